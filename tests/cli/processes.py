"""Run the command line as people and programs do: as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "snaprt"]


def environment(**variables: str) -> dict[str, str]:
    """This process's, with the project to be found from any folder, and nothing of a person's own store."""
    base = {
        key: value for key, value in os.environ.items() if key not in ("SNAPRT_STORE", "NO_COLOR", "COLUMNS")
    }
    return {**base, "PYTHONPATH": str(ROOT), **variables}


def snaprt(*words: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """One command to its end."""
    return subprocess.run(
        [*COMMAND, *words],
        cwd=cwd,
        env=environment(**variables),
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        stdin=subprocess.DEVNULL,
    )


def lines(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """What `--json` printed: every line has to be an object."""
    values = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(isinstance(value, dict) for value in values)
    return values
