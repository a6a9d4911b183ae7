"""Run as a process of its own: saves every program at its middle idle moment, or goes on with what was saved.

    python -m tests.kernel.halves save DIRECTORY
    python -m tests.kernel.halves continue DIRECTORY

Both in processes of their own, because pytest rewrites the asserts of the packages that it loads as plugins
(anyio is one), and code that was rewritten isn't the code of another process. Each file is a pickle of the
clock and of a state's parts; it is a test's own and trusted. The output is one JSON object: by file, the
status, value and trace of the rest of the run.
"""

from __future__ import annotations

import json
import logging
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from snaprt.kernel import Kernel
from tests.kernel.anyio_programs import ANYIO_PROGRAMS
from tests.kernel.driver import TRACE, Driver
from tests.kernel.programs import PROGRAMS


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


def save_all(folder: Path) -> dict[str, list[str]]:
    expected = {}
    for kind, programs in (("asyncio", PROGRAMS), ("anyio", ANYIO_PROGRAMS)):
        for program in programs:
            name = f"{kind}-{program.__name__}"
            rest = stop_half_way(program, folder / name)
            if rest is not None:
                expected[name] = rest
    return expected


def go_on(path: Path) -> list[str]:
    now, parts = pickle.loads(path.read_bytes())
    TRACE.clear()
    driver = Driver()
    driver.clock.now = now
    kernel = driver.drive(driver.restored(parts))
    return [kernel.status, repr(kernel.value), *map(repr, TRACE)]


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # on a busy machine a step may take long, and is warned about
    verb, where = sys.argv[1], Path(sys.argv[2])
    if verb == "save":
        print(json.dumps(save_all(where)))
    else:
        print(json.dumps({path.name: go_on(path) for path in sorted(where.iterdir())}))
