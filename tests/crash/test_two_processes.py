"""A run moves between processes that share nothing but the store and the key."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

import snaprt
from tests.crash.processes import drive


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "local":
        return str(tmp_path / "store")
    return str(request.getfixturevalue("s3").url)


def answer(url: str, run: str, value: object, suspension: str | None = None) -> None:
    async def main() -> None:
        async with snaprt.Runtime(url) as rt:
            await rt.answer(run, value, suspension=suspension)

    anyio.run(main)


def test_a_run_resumes_under_another_seed_folder_and_flags(url: str, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    arguments = json.dumps([str(ledger), "A-17"])
    first = drive("start", url, "r", "tests.runtime.agents:support", arguments, seed=1, cwd=here)
    assert first["outcome"] == "Suspended"
    answer(url, "r", {"approved": True, "cents": 4200})
    second = drive("resume", url, "r", seed=99, cwd=there, flags=["-X", "dev", "-W", "ignore"])
    assert second["outcome"] == "Completed"
    assert second["value"]["receipt"] == "paid 4200"
    assert second["value"]["seen"] == ["<A-17>", "<policy>"]
    assert sorted(ledger.read_text().splitlines()) == ["look A-17", "look policy", "pay 4200 r/3"]


def test_an_optimised_process_takes_over_what_carries_no_asserts(url: str, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    first = drive(
        "start",
        url,
        "r",
        "tests.runtime.agents:two_questions",
        json.dumps([str(ledger)]),
        seed=3,
        cwd=tmp_path,
    )
    assert first["outcome"] == "Suspended"
    for item in first["waiting"]:
        answer(url, "r", item["payload"]["name"].upper(), item["suspension"])
    second = drive("resume", url, "r", seed=4, cwd=tmp_path, flags=["-O"])
    assert second["value"] == [["left", "<left>", "LEFT"], ["right", "<right>", "RIGHT"]]
    assert len(ledger.read_text().splitlines()) == 4
