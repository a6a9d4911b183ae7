"""`worker` takes up what is due and stops in good order; `ls`, `rm`, `prune` and `reindex` keep a store."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import COMMAND, environment, lines, snaprt

AGENTS = "tests.cli.agents"


def suspended(folder: Path, *runs: str) -> None:
    """Runs that wait for their answer."""
    for run in runs:
        done = snaprt(
            "run", f"{AGENTS}:support", f"ledger={folder / 'ledger'}", "--run-id", run, "--json", cwd=folder
        )
        assert done.returncode == 0, done.stderr


def completed(folder: Path, *runs: str) -> None:
    for run in runs:
        assert snaprt("run", f"{AGENTS}:echo", "--run-id", run, cwd=folder).returncode == 0


def listed(folder: Path, *words: str) -> list[str]:
    return sorted(row["run"] for row in lines(snaprt("ls", "--json", *words, cwd=folder)))


class Working:
    """A worker in a process of its own."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, "worker", "--poll", "0.1", *words],
            cwd=folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )

    def until(self, wanted: str) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if re.search(wanted, line):
                return line
        raise AssertionError(f"ended too early: {self.process.communicate()}")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str, str]:
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Callable[..., Working]]:
    made: list[Working] = []

    def start(*words: str) -> Working:
        made.append(Working(tmp_path, *words))
        return made[-1]

    yield start
    for each in made:
        if each.process.poll() is None:
            each.process.kill()
        each.process.communicate()


needs_signals = pytest.mark.skipif(os.name != "posix", reason="sends POSIX signals to a child")


# --- worker -------------------------------------------------------------------------------------------


@needs_signals
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_worker_says_what_it_takes_up_and_ends_with_zero_on_a_signal(
    tmp_path: Path, worker: Callable[..., Working], number: signal.Signals
) -> None:
    there = worker()  # before there is any store
    there.until(r"working at \./\.snaprt, up to 4 runs at a time")
    suspended(tmp_path, "r-1")
    assert snaprt("answer", "r-1", '{"approved": true}', cwd=tmp_path).returncode == 0
    there.until(r"^\d\d:\d\d:\d\d  took r-1 \(ask-1\)$")
    there.until(r"completed r-1$")
    code, out, err = there.stop(number)
    assert code == 0
    assert err == ""
    assert "stopping" in out
    assert out.splitlines()[-1].endswith("stopped; the next worker goes on")
    assert (tmp_path / "ledger").read_text().splitlines().count("pay 100") == 1


@needs_signals
def test_json_of_a_worker_tells_the_same_to_a_program(tmp_path: Path, worker: Callable[..., Working]) -> None:
    suspended(tmp_path, "r-1", "r-2")
    there = worker("--json", "--concurrency", "1")
    told: list[dict[str, Any]] = [json.loads(there.until(""))]
    for run in ("r-1", "r-2"):
        snaprt("answer", run, '{"approved": false}', cwd=tmp_path)
        told += [json.loads(there.until("")), json.loads(there.until(""))]
    code, out, _ = there.stop()
    assert code == 0
    told += [json.loads(line) for line in out.splitlines()]
    assert [(each["event"], each.get("run")) for each in told] == [
        ("working", None),
        ("took", "r-1"),
        ("outcome", "r-1"),
        ("took", "r-2"),
        ("outcome", "r-2"),
        ("stopping", None),
        ("stopped", None),
    ]
    assert told[2]["result"] == {"paid": None}


@needs_signals
def test_a_tool_that_a_stopping_worker_waits_for_is_not_called_by_the_next(
    tmp_path: Path, worker: Callable[..., Working]
) -> None:
    words = [f"ledger={tmp_path / 'ledger'}", f"path={tmp_path / 'gate'}"]
    done = snaprt("run", f"{AGENTS}:asks_and_charges", *words, "--run-id", "r", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    snaprt("answer", "r", "true", cwd=tmp_path)
    first = worker()
    first.until("took r ")
    while not (tmp_path / "ledger").exists():
        time.sleep(0.01)
    first.process.send_signal(signal.SIGTERM)
    first.until("stopping: waits up to 8 s")
    (tmp_path / "gate").touch()
    first.until("(suspended|completed) r")
    assert first.process.wait(60) == 0
    if listed(tmp_path, "--status", "suspended"):
        second = worker()
        second.until("completed r")
        second.stop()
    assert (tmp_path / "ledger").read_text().splitlines() == ["charge"]


@needs_signals
def test_a_run_that_cannot_be_taken_up_is_told_with_when_it_is_tried_again(
    tmp_path: Path, worker: Callable[..., Working]
) -> None:
    (tmp_path / "agents_here.py").write_text(
        "import snaprt\nasync def asks():\n    return await snaprt.suspend('?')\n"
    )
    snaprt("run", "agents_here:asks", "--run-id", "gone", cwd=tmp_path)
    snaprt("answer", "gone", "1", cwd=tmp_path)
    (tmp_path / "agents_here.py").unlink()
    shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
    there = worker()
    line = there.until("couldn't go on with gone")
    assert "agents_here" in line
    assert re.search(r"Tries again at \d{4}-", line)
    assert there.stop()[0] == 0


def test_a_module_of_agents_that_is_not_there_is_said_before_anything_is_done(tmp_path: Path) -> None:
    done = snaprt("worker", "--agents", "no.such.module", cwd=tmp_path)
    assert done.returncode == 2
    assert "'no.such.module' of agents can't be imported here" in done.stderr


# --- ls -----------------------------------------------------------------------------------------------


def test_ls_shows_the_runs_that_are_meant(tmp_path: Path) -> None:
    suspended(tmp_path, "s-1")
    completed(tmp_path, "c-1", "c-2")
    assert listed(tmp_path) == ["c-1", "c-2", "s-1"]
    assert listed(tmp_path, "--status", "completed") == ["c-1", "c-2"]
    assert listed(tmp_path, "--status", "completed", "--status", "suspended") == ["c-1", "c-2", "s-1"]
    assert listed(tmp_path, "--agent", "support") == ["s-1"]
    assert listed(tmp_path, "--older-than", "0s") == ["c-1", "c-2", "s-1"]
    assert listed(tmp_path, "--older-than", "1h") == []
    done = snaprt("ls", "--status", "failed", cwd=tmp_path)
    assert done.stdout == "No runs at ./.snaprt; of 3 runs none is so.\n"


# --- rm and prune -------------------------------------------------------------------------------------


def test_rm_removes_what_has_ended_and_refuses_what_has_not(tmp_path: Path) -> None:
    suspended(tmp_path, "s-1")
    completed(tmp_path, "c-1", "c-2")
    done = snaprt("rm", "c-1", cwd=tmp_path)
    assert done.returncode == 0
    assert re.fullmatch(r"removed c-1: \d objects\n", done.stdout)
    done = snaprt("rm", "s-1", cwd=tmp_path)
    assert done.returncode == 2
    assert "s-1 is suspended and hasn't ended" in done.stderr
    assert "--force" in done.stderr
    done = snaprt("rm", "s-1", "c-2", "--json", cwd=tmp_path)
    assert done.returncode == 2
    assert [line["run"] for line in lines(done)] == ["c-2"]
    assert listed(tmp_path) == ["s-1"]
    assert snaprt("rm", "s-1", "--force", cwd=tmp_path).returncode == 0
    assert listed(tmp_path) == []
    left = [path for path in (tmp_path / ".snaprt" / "runs").rglob("*") if path.is_file()]
    assert {path.parent.name for path in left} == {"log"}
    # What says that the ids are taken; nothing of what the runs were.
    assert {path.name for path in left if path.stat().st_size} == {"removed"}


def test_rm_of_an_unknown_run_names_the_nearest(tmp_path: Path) -> None:
    completed(tmp_path, "support-1")
    done = snaprt("rm", "support-2", cwd=tmp_path)
    assert done.returncode == 2
    assert "Did you mean support-1?" in done.stderr


def test_prune_removes_old_runs_that_have_ended_and_no_others(tmp_path: Path) -> None:
    suspended(tmp_path, "s-1")
    completed(tmp_path, "c-1", "c-2")
    done = snaprt("prune", "--older-than", "1h", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "0 runs removed.\n")
    done = snaprt("prune", "--older-than", "0s", "--dry-run", cwd=tmp_path)
    assert "would remove c-1  (completed, " in done.stdout
    assert "2 runs would be removed" in done.stdout
    assert listed(tmp_path) == ["c-1", "c-2", "s-1"]
    done = snaprt("prune", "--older-than", "0s", cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "2 runs removed."
    assert listed(tmp_path) == ["s-1"]


def test_prune_of_runs_that_wait_has_to_be_forced(tmp_path: Path) -> None:
    suspended(tmp_path, "s-1")
    words = ["prune", "--older-than", "0s", "--status", "suspended"]
    done = snaprt(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert "suspended haven't ended" in done.stderr
    assert "s-1" in snaprt(*words, "--dry-run", cwd=tmp_path).stdout
    assert listed(tmp_path) == ["s-1"]
    assert snaprt(*words, "--force", cwd=tmp_path).returncode == 0
    assert listed(tmp_path) == []


@pytest.mark.parametrize("age", ["", "7", "d", "-1d", "1w", "1.5", "1 h", "1e3s"])
def test_an_age_that_is_none_is_refused_with_how_to_write_one(tmp_path: Path, age: str) -> None:
    done = snaprt("ls", f"--older-than={age}", cwd=tmp_path)
    assert done.returncode == 2
    assert "write a number and s, m, h or d" in done.stderr


def test_prune_says_that_it_needs_an_age(tmp_path: Path) -> None:
    done = snaprt("prune", cwd=tmp_path)
    assert done.returncode == 2
    assert "--older-than" in done.stderr


# --- reindex ------------------------------------------------------------------------------------------


@needs_signals
def test_reindex_lets_workers_find_what_lost_its_hints(
    tmp_path: Path, worker: Callable[..., Working]
) -> None:
    suspended(tmp_path, "r-1", "r-2")
    snaprt("answer", "r-1", '{"approved": false}', cwd=tmp_path)
    shutil.rmtree(tmp_path / ".snaprt" / "agenda")
    there = worker()
    there.until("working at")
    done = snaprt("reindex", cwd=tmp_path)
    assert done.stdout == "2 runs read: 1 hints written, 0 of runs that are done removed.\n"
    there.until("completed r-1")
    there.stop()
