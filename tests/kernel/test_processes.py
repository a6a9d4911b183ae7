"""A run goes on in another process, with another hash seed and other flags, as if nothing had been."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import snaprt
from snaprt.kernel import Kernel

from .anyio_programs import ANYIO_PROGRAMS
from .driver import TRACE, Driver
from .programs import PROGRAMS


def stop_half_way(program: Callable[[], Any], path: Path) -> list[str] | None:
    """Save `program` at its middle idle moment; give what the rest of the undisturbed run shows."""
    traces: list[int] = []
    states: list[bytes] = []
    driver = Driver()

    def save(kernel: Kernel) -> None:
        traces.append(len(TRACE))
        parts = [bytes(part) for part in kernel.save().parts]
        states.append(pickle.dumps((driver.clock.now, parts)))

    driver.at_idle = save
    TRACE.clear()
    kernel = driver.run(program)
    if not states:
        return None
    middle = len(states) // 2
    path.write_bytes(states[middle])
    return [kernel.status, repr(kernel.value), *map(repr, TRACE[traces[middle] :])]


def test_every_program_goes_on_in_another_process(tmp_path: Path) -> None:
    states = tmp_path / "states"
    states.mkdir()
    expected = {}
    for kind, programs in (("asyncio", PROGRAMS), ("anyio", ANYIO_PROGRAMS)):
        for program in programs:
            name = f"{kind}-{program.__name__}"
            rest = stop_half_way(program, states / name)
            if rest is not None:
                expected[name] = rest
    root = Path(snaprt.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-B", "-X", "utf8", "-m", "tests.kernel.continuing", str(states)],
        env=os.environ | {"PYTHONPATH": str(root), "PYTHONHASHSEED": "4711"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stderr == ""
    assert json.loads(done.stdout) == expected
    assert len(expected) > 20
