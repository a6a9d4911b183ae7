"""Start processes that differ in everything a restored state must not depend on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def environment(seed: int) -> dict[str, str]:
    """This process's environment with another hash seed, and the project to be found from anywhere."""
    return {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": str(ROOT)}


def drive(*arguments: str, seed: int, cwd: Path, flags: Sequence[str] = ()) -> dict[str, Any]:
    """Run `tests.runtime.process` to its end and return what it printed; fails with its stderr."""
    done = subprocess.run(
        [sys.executable, *flags, "-m", "tests.runtime.process", *arguments],
        env=environment(seed),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return outcome
