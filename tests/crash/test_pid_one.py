"""As process 1 of a container, where the kernel delivers no signal that nobody handles."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.processes import ROOT, environment

UNSHARE = ["unshare", "--pid", "--fork", "--mount-proc"]


def container_possible() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*UNSHARE, "true"], capture_output=True).returncode == 0


@pytest.mark.skipif(not container_possible(), reason="needs the right to make a namespace of process ids")
def test_process_one_drains_on_sigterm_and_exits_with_0(tmp_path: Path) -> None:
    ledger, gate = tmp_path / "ledger", tmp_path / "gate"
    words = ["run", "tests.cli.agents:waits", f"ledger={ledger}", f"path={gate}", "--run-id", "r", "--json"]
    process = subprocess.Popen(
        [*UNSHARE, sys.executable, "-m", "snaprt", *words, "--store", str(tmp_path / "store")],
        cwd=ROOT,
        env=environment(seed=1),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "wait_for_file" in line:
            break
    [child] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(child), signal.SIGTERM)
    for line in process.stdout:
        if "stopping" in line:
            break
    gate.touch()
    rest = process.stdout.read().splitlines()
    assert process.wait(timeout=60) == 0
    assert json.loads(rest[-1])["status"] == "suspended"
    done = subprocess.run(
        [sys.executable, "-m", "snaprt", "resume", "r", "--json", "--store", str(tmp_path / "store")],
        cwd=tmp_path,
        env=environment(seed=2),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert json.loads(done.stdout.splitlines()[-1])["status"] == "completed", done.stderr
    assert ledger.read_text().splitlines()[0] == "wait"
    assert ledger.read_text().count("wait") == 1
