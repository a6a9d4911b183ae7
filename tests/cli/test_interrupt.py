"""A process that is interrupted, killed or robbed of its run loses and repeats nothing."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from snaprt.cli import session
from tests.cli.processes import COMMAND, environment, lines, snaprt

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sends POSIX signals to a child")


_HOLD = ("waits", "charges", "asks_beside_a_charge")


class Started:
    """A run in a process of its own, whose tool ends when `gate` is made."""

    def __init__(self, folder: Path, *words: str, agent: str = "waits") -> None:
        self.ledger, self.gate = folder / "ledger", folder / "gate"
        arguments = [f"ledger={self.ledger}", f"path={self.gate}"] if agent in _HOLD else []
        arguments += [f"ledger={self.ledger}"] if agent == "never_gives_up" else []
        self.process = subprocess.Popen(
            [*COMMAND, "run", f"tests.cli.agents:{agent}", *arguments, "--run-id", "w", *words],
            cwd=folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )

    def read_until(self, wanted: Callable[[str], bool]) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if wanted(line):
                return line
        raise AssertionError(f"ended too early: {self.process.communicate()}")

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Started]]:
    made: list[Started] = []

    def go(*words: str, **more: str) -> Started:
        made.append(Started(tmp_path, *words, **more))
        return made[-1]

    yield go
    for started in made:
        if started.process.poll() is None:
            started.process.kill()
        started.process.communicate()


def calls(started: Started) -> list[str]:
    return started.ledger.read_text().splitlines()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_for_the_tool_saves_and_says_how_to_go_on(
    start: Callable[..., Started], tmp_path: Path, number: signal.Signals
) -> None:
    started = start()
    started.read_until(lambda line: "wait_for_file" in line)
    started.interrupt(number)
    assert "s for 1 tool to end" in started.read_until(lambda line: "stopping" in line)
    started.gate.touch()
    returned, out, err = started.end()
    assert (returned, err) == (0, "")
    assert "w is kept as it stood" in out
    assert out.splitlines()[-1].strip() == "snaprt resume w"
    done = snaprt("resume", "w", "--json", cwd=tmp_path)
    assert lines(done)[-1]["result"] == "there<after>", done.stderr
    assert calls(started) == ["wait", "look after"]


def test_json_says_that_it_was_interrupted(start: Callable[..., Started]) -> None:
    started = start("--json")
    started.read_until(lambda line: "wait_for_file" in line)
    started.interrupt()
    started.read_until(lambda line: '"stopping"' in line)
    started.gate.touch()
    returned, out, err = started.end()
    assert (returned, err) == (0, "")
    last: dict[str, Any] = json.loads(out.splitlines()[-1])
    assert (last["status"], last["run"], last["interrupted"]) == ("suspended", "w", True)


def test_a_second_signal_leaves_at_once_and_the_run_goes_on_all_the_same(
    start: Callable[..., Started], tmp_path: Path
) -> None:
    started = start()
    started.read_until(lambda line: "wait_for_file" in line)
    started.interrupt()
    started.read_until(lambda line: "stopping" in line)
    started.interrupt()
    returned, _, err = started.end()
    assert (returned, err) == (130, "")
    started.gate.touch()
    done = snaprt("resume", "w", "--json", cwd=tmp_path)
    assert lines(done)[-1]["result"] == "there<after>", done.stderr
    assert calls(started) == ["wait", "wait", "look after"]  # a read in doubt is called again


def test_a_second_signal_ends_even_an_agent_that_never_gives_way(start: Callable[..., Started]) -> None:
    started = start(agent="spins")
    started.read_until(lambda line: "spinning" in line)
    started.interrupt(signal.SIGINT)
    started.interrupt(signal.SIGTERM)  # two of one kind could arrive as one
    returned, _, err = started.end()
    assert (returned, err) == (143, "")


@pytest.mark.parametrize(
    ("verdict", "result", "charges"),
    [("retry", "charged", 2), ('done "by hand"', "by hand", 1), ("fail not allowed", None, 1)],
)
def test_a_write_in_doubt_is_asked_about_and_a_person_decides(
    start: Callable[..., Started], tmp_path: Path, verdict: str, result: str | None, charges: int
) -> None:
    started = start(agent="charges")
    started.read_until(lambda line: "charge" in line)
    while not started.ledger.exists():  # the step is told when it is announced, a moment before it happens
        assert started.process.poll() is None
    started.kill()
    done = snaprt("resume", "w", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "charge" in done.stdout
    assert "snaprt resume w --answer '{\"retry\": true}'" in done.stdout
    assert calls(started) == ["charge"]
    started.gate.touch()
    done = snaprt("resume", "w", "--in-doubt", verdict, "--json", cwd=tmp_path)
    outcome = lines(done)[-1]
    assert (done.returncode, outcome.get("result")) == (1 if result is None else 0, result), done.stderr
    if result is None:
        assert "not allowed" in done.stderr
    assert calls(started) == ["charge"] * charges


def test_a_verdict_finds_the_call_in_doubt_among_other_questions(
    start: Callable[..., Started], tmp_path: Path
) -> None:
    started = start(agent="asks_beside_a_charge")
    started.read_until(lambda line: "charge" in line)
    while not started.ledger.exists():
        assert started.process.poll() is None
    started.kill()
    started.gate.touch()
    done = snaprt("resume", "w", "--in-doubt", 'done "by hand"', cwd=tmp_path)  # nobody has looked yet
    assert done.returncode == 0, done.stderr
    assert "Left?" in done.stdout
    done = snaprt("resume", "w", "--answer", '"yes"', "--json", cwd=tmp_path)
    assert lines(done)[-1]["result"] == ["yes", "by hand"], done.stderr
    assert calls(started) == ["charge"]


def test_a_run_in_other_hands_is_refused_until_it_is_stolen(
    start: Callable[..., Started], tmp_path: Path
) -> None:
    started = start()
    started.read_until(lambda line: "wait_for_file" in line)
    done = snaprt("resume", "w", cwd=tmp_path)
    assert done.returncode == 3
    assert str(started.process.pid) in done.stderr
    thief = subprocess.Popen(
        [*COMMAND, "resume", "w", "--steal"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    assert thief.stdout is not None
    assert any("wait_for_file" in line for line in thief.stdout)
    started.gate.touch()
    out, _ = thief.communicate(timeout=60)
    assert (thief.returncode, out.splitlines()[-1]) == (0, "there<after>")
    returned, _, err = started.end()
    assert returned == 3
    assert err.startswith("snaprt: ")
    assert calls(started).count("look after") == 1


def test_a_failed_run_is_retried_from_its_last_state(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert (
        snaprt("run", "tests.cli.agents:reads", f"path={path}", "--run-id", "f", cwd=tmp_path).returncode == 1
    )
    path.write_text("here")
    assert snaprt("resume", "f", cwd=tmp_path).returncode == 1
    done = snaprt("resume", "f", "--retry", "--json", cwd=tmp_path)
    assert lines(done)[-1].get("result") == "here", done.stderr


# --- threads that don't end -----------------------------------------------------------------------------


@pytest.mark.parametrize("beside", ["false", "true"])
def test_a_process_ends_although_a_tool_that_was_given_up_does_not(tmp_path: Path, beside: str) -> None:
    ledger = tmp_path / "ledger"
    words = ["run", "tests.cli.agents:gives_up", f"ledger={ledger}", f"beside={beside}"]
    done = snaprt(*words, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "gave up"
    assert ledger.read_text().splitlines() == ["begin", "left in good order"]


def test_a_run_that_a_signal_stopped_is_at_work_in_no_process(
    start: Callable[..., Started], tmp_path: Path
) -> None:
    started = start(agent="never_gives_up")
    started.read_until(lambda line: "hangs_for_good" in line)
    started.interrupt(signal.SIGTERM)
    returned, out, err = started.end()
    assert (returned, err) == (0, "")
    assert "w is kept as it stood" in out
    assert calls(started) == ["begin", "left in good order"]


def test_a_second_signal_leaves_at_once_whatever_it_interrupts(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)

    class Writing:
        def close(self) -> None:
            raise RuntimeError("reentrant call inside <_io.BufferedWriter>")

    async def go() -> None:
        with session.Signals(Writing()):
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            assert left == [130]
        signal.raise_signal(signal.SIGTERM)  # the block is over, and the process still ends
        assert left == [130, 143]

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        asyncio.run(go())
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
