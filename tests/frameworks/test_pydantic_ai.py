"""Somebody else's framework inside: pydantic-ai's `Agent.run`, in a new process at every idle moment."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

import snaprt
from tests.crash.processes import ROOT, environment
from tests.frameworks import hop

pytest.importorskip("pydantic_ai", reason="pydantic-ai-slim isn't installed")

TARGET = "tests.frameworks.shopping:buy"
RESULT = "laptop refused; monitor ordered (hops/3)"


def undisturbed() -> tuple[object, int]:
    kernel = hop.begin(TARGET)
    hops = 0
    while kernel.status == "running":
        hop.hop(kernel, TARGET)
        hops += 1
    return kernel.value, hops


def test_it_goes_through_a_new_process_at_every_idle_moment(tmp_path: Path) -> None:
    value, hops = undisturbed()
    assert value == RESULT
    assert hops == 5  # two prices, two answers, one order
    file = tmp_path / "state"
    printed = []
    for number in range(hops + 1):
        done = subprocess.run(
            [sys.executable, "-m", "tests.frameworks.hop", str(file), TARGET],
            env=environment(seed=number + 1),
            cwd=tmp_path if number % 2 else ROOT,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout.strip())
    assert printed == ["more"] * hops + [json.dumps(RESULT)]


def test_two_people_are_asked_at_once_and_answer_in_any_order(tmp_path: Path) -> None:
    from tests.frameworks.shopping import answer_of, buy

    async def main() -> None:
        async with snaprt.Runtime(str(tmp_path)) as rt:
            asked = await (await rt.start(buy, run_id="shop")).outcome()
        assert isinstance(asked, snaprt.Suspended)
        assert [item.payload["item"] for item in asked.waiting] == ["laptop", "monitor"]
        for item in reversed(asked.waiting):
            async with snaprt.Runtime(str(tmp_path)) as rt:
                await rt.answer("shop", answer_of(item.payload), suspension=item.suspension)
                outcome = await (await rt.resume("shop")).outcome()
        assert outcome == snaprt.Completed("shop", "laptop refused; monitor ordered (shop/3)")

    anyio.run(main)
