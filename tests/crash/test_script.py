"""The refund as a script on the command line, killed while it pays, and resumed where the script isn't."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.processes import ROOT, environment
from tests.crash.service import payments

pytestmark = pytest.mark.skipif(os.name != "posix", reason="there is no SIGKILL on this system")


def test_a_script_killed_in_its_payment_is_resumed_where_its_file_is_gone(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    (here / "scripts").mkdir(parents=True)
    there.mkdir()
    shutil.copy(ROOT / "examples/refund.py", here / "scripts")
    command = [sys.executable, "-m", "snaprt"]
    store = ["--store", str(tmp_path / "store")]
    with payments(tmp_path, "--ignore-keys", "--delay", "3") as service:
        target = ["scripts/refund.py:refund", "order=A-17", f"service={service.url}", "--run-id", "r"]
        with subprocess.Popen(
            [*command, "run", *target, *store], cwd=here, env=environment(1), stdout=subprocess.DEVNULL
        ) as running:
            while not service.rows():
                assert running.poll() is None
            running.kill()
        shutil.rmtree(here)
        done = subprocess.run(
            [*command, "resume", "r", *store],
            cwd=there,
            env=environment(2),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr + done.stdout
        assert '"refunded": 4200' in done.stdout
        assert len(service.rows()) == 1
