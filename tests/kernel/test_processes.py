"""A run goes on in another process, with another hash seed and other flags, as if nothing had been."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import snaprt


def half(verb: str, states: Path, cwd: Path, seed: str, *flags: str) -> Any:
    """One half of every program, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-B", *flags, "-m", "tests.kernel.halves", verb, str(states)],
        env=os.environ | {"PYTHONPATH": str(Path(snaprt.__file__).parent.parent), "PYTHONHASHSEED": seed},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_every_program_goes_on_in_another_process(tmp_path: Path) -> None:
    states, elsewhere = tmp_path / "states", tmp_path / "elsewhere"
    states.mkdir()
    elsewhere.mkdir()
    expected = half("save", states, tmp_path, "1")
    assert len(expected) > 20
    assert half("continue", states, elsewhere, "4711", "-X", "utf8") == expected
