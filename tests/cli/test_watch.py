"""`snaprt watch` tells what happened and what happens, each thing once, and Ctrl-C ends only the watching."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from snaprt.cli import watch
from snaprt.runtime import RunEvent
from tests.cli.processes import COMMAND, environment, lines, snaprt

PEOPLE = "tests.cli.people"

needs_signals = pytest.mark.skipif(os.name != "posix", reason="sends POSIX signals to a child")


@pytest.fixture
def asleep(tmp_path: Path) -> Path:
    """A folder with a run that has emitted and waits."""
    done = snaprt("run", f"{PEOPLE}:shows", "ledger=x", "--run-id", "r", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return tmp_path


@pytest.fixture
def watching(asleep: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    made: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        made.append(
            subprocess.Popen(
                [*COMMAND, "watch", *words],
                cwd=asleep,
                env=environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                encoding="utf-8",
            )
        )
        return made[-1]

    yield start
    for each in made:
        if each.poll() is None:
            each.kill()
        each.communicate()


def until(process: subprocess.Popen[str], wanted: str) -> list[str]:
    """The lines up to one that has this in it."""
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line.rstrip("\n"))
        if wanted in line:
            return seen
    raise AssertionError(f"ended too early: {seen} {process.communicate()}")


def test_each_thing_that_happened_is_a_line_with_time_what_and_value(asleep: Path) -> None:
    snaprt("resume", "r", "--answer", '"yes"', cwd=asleep, LOGNAME="ana", USER="ana")
    done = snaprt("watch", "r", cwd=asleep)  # it has ended, so this ends too
    assert (done.returncode, done.stderr) == (0, "")
    told = done.stdout.splitlines()
    assert all(re.match(r"\d\d:\d\d:\d\d  \w+", line) for line in told)
    assert [line[10:] for line in told if not line[10:].startswith("resumed")] == [
        "started     shows",
        "emitted     begin",
        'emitted     {"count": 0}  (step 1)',
        'emitted     {"count": 1}  (step 1)',
        "returned    step 1  counts",
        "suspended   waits for ask-1",
        "answered    ask-1 by ana",
        "emitted     null",
        "finished    completed: yes",
    ]


def test_what_a_watcher_saw_is_not_told_again_after_its_record(asleep: Path) -> None:
    before = lines(snaprt("watch", "r", "--no-follow", "--json", cwd=asleep))
    assert before[0] == {
        "event": "started", "run": "r", "record": 1, "at": before[0]["at"],
        "detail": {"agent": "shows", "parent": None},
    }  # fmt: skip
    assert [each["value"] for each in before if each["event"] == "emitted"] == [
        "begin", {"count": 0}, {"count": 1},
    ]  # fmt: skip
    snaprt("resume", "r", "--answer", "3", cwd=asleep)
    rest = lines(snaprt("watch", "r", "--json", "--after", str(before[-1]["record"]), cwd=asleep))
    assert [(each["event"], each.get("value")) for each in rest] == [
        ("resumed", None), ("answered", None), ("emitted", None), ("finished", None),
    ]  # fmt: skip
    assert rest[-1]["detail"] == {"status": "completed", "result": 3}


def test_a_watcher_is_told_live_until_the_run_ends(
    asleep: Path, watching: Callable[..., subprocess.Popen[str]]
) -> None:
    there = watching("r", "--json")
    until(there, '"suspended"')
    snaprt("resume", "r", "--answer", "3", cwd=asleep)
    out, err = there.communicate(timeout=60)
    assert (there.returncode, err) == (0, "")
    assert json.loads(out.splitlines()[-1])["event"] == "finished"


@needs_signals
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_watching_quietly_and_not_the_run(
    asleep: Path, watching: Callable[..., subprocess.Popen[str]], number: signal.Signals
) -> None:
    there = watching("r")
    until(there, "suspended")
    there.send_signal(number)
    out, err = there.communicate(timeout=60)
    assert (there.returncode, out, err) == (0, "", "")
    (shown,) = lines(snaprt("show", "r", "--json", cwd=asleep))
    assert shown["status"] == "suspended"


@pytest.mark.parametrize(
    ("kind", "facts", "line"),
    [
        ("started", {"detail": {"agent": "a", "parent": {"run": "p", "step": 1}}}, "a, a child of p"),
        ("called", {"step": 3, "detail": {"tool": "pay"}}, "step 3  pay"),
        ("failed", {"step": 3, "detail": {"tool": "pay"}}, "step 3  pay"),
        ("emitted", {"value": "two\nlines"}, "two lines"),
        ("emitted", {"value": "x" * 1000}, "x" * 299 + "…"),
        ("suspended", {"detail": {"waiting": [], "until": None}}, "see snaprt show r"),
        ("suspended", {"detail": {"waiting": ["a", "b"], "until": None}}, "waits for a, b"),
        (
            "refused",
            {"detail": {"suspension": "ask-1", "by": "ana", "refused": "why"}},
            "an answer to ask-1 by ana: why",
        ),
        ("child_ended", {"detail": {"suspension": "_child-1", "by": "r.1"}}, "r.1"),
        ("received", {"detail": {"inbox": "chat", "number": 2, "by": None}}, "message 2 in inbox chat"),
        ("cancelling", {"detail": {"cancel": 1, "reason": None, "by": "ana"}}, "asked by ana"),
        ("finished", {"detail": {"status": "failed", "error": "ValueError: no"}}, "failed: ValueError: no"),
        ("finished", {"detail": {"status": "completed", "result": None}}, "completed"),
        ("of a later version", {"detail": {"x": 1}}, '{"x": 1}'),
    ],
)
def test_a_line_says_to_what_it_happened(kind: str, facts: dict[str, Any], line: str) -> None:
    at = datetime(2026, 11, 30, 9, 0, 1).timestamp()
    text = watch.event_line(RunEvent("r", 1, kind, at, **facts)).plain
    assert text == f"09:00:01  {kind:<11} {line}".rstrip()


def test_another_day_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    out = watch.Printed(as_json=False)
    for hour in (8, 9):
        at = datetime(2020, 2, 29, hour).timestamp()
        out.tell(RunEvent("r", hour, "emitted", at, value=hour))
    assert capsys.readouterr().out == "2020-02-29\n08:00:00  emitted     8\n09:00:00  emitted     9\n"
