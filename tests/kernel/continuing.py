"""Run as a process of its own: goes on with the states that lie in a directory, and tells what came of each.

    python -m tests.kernel.continuing DIRECTORY

Each file is a pickle of the clock and of a state's parts; it is a test's own and trusted. The output is one
JSON object: by file, the status, value and trace of the rest of the run.
"""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path

from .driver import TRACE, Driver


def go_on(path: Path) -> list[str]:
    now, parts = pickle.loads(path.read_bytes())
    TRACE.clear()
    driver = Driver()
    driver.clock.now = now
    kernel = driver.drive(driver.restored(parts))
    return [kernel.status, repr(kernel.value), *map(repr, TRACE)]


if __name__ == "__main__":
    print(json.dumps({path.name: go_on(path) for path in sorted(Path(sys.argv[1]).iterdir())}))
