"""The tour: one command, three processes, nothing done twice."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from snaprt.cli import demo
from snaprt.cli.session import Settings
from tests.cli.processes import lines, snaprt


def test_the_tour_kills_resumes_asks_and_proves_that_nothing_was_done_twice(tmp_path: Path) -> None:
    done = snaprt("demo", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for text in (
        "kill -9",
        "Refund 42.00 euros?",
        "told Ada: 42.00 euros paid back",
        "5 calls, none twice",
        "file://",
    ):
        assert text in done.stdout
    assert os.listdir(tmp_path) == [".snaprt"]
    (row,) = lines(snaprt("ls", "--json", cwd=tmp_path))
    assert (row["status"], [step["status"] for step in row["steps"]]) == ("completed", ["done"] * 5)
    assert lines(snaprt("verify", row["run"], "--json", cwd=tmp_path))[0]["status"] == "whole"


def test_the_tour_goes_to_the_store_that_is_said(tmp_path: Path) -> None:
    done = snaprt("demo", "--yes", "--store", "elsewhere", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert os.listdir(tmp_path) == ["elsewhere"]
    assert "--store elsewhere" in done.stdout


def test_a_tour_that_cannot_go_on_says_what_its_process_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "AGENT", "snaprt.demo:nobody")
    said = r"process 1 ended before it could be killed\. snaprt: .*no function 'nobody'"
    with pytest.raises(demo.TourStopped, match=said):
        demo.tour(Settings(), approve=True)
