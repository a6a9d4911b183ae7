"""`python -m tests.yardstick [--module NAME …] [--way WAY …] [--json]`: measure this interpreter.

A line for each module as it is measured, then what can't hold and why. With `--json` one JSON object a line,
of the fields of `measure.Measured`; `python -m tests.yardstick.report FILE …` makes the tables of
docs/yardstick.md of such files. Exit code 1 if a test neither holds nor is explained.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from dataclasses import asdict

from snaprt import frames
from tests.yardstick.measure import WAYS, measure
from tests.yardstick.modules import MODULES, installed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.yardstick")
    parser.add_argument("--module", nargs="+", help="modules below `test`; all that are listed if not said")
    parser.add_argument("--way", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    frames.supported()
    if not installed("test_generators"):
        print(
            "This installation has no `test` package; install it (libpython3-testsuite on Debian).",
            file=sys.stderr,
        )
        return 2
    faults = 0
    for way in options.way:
        for module in MODULES[way]:
            if options.module is not None and module not in options.module:
                continue
            if not installed(module):
                continue
            done = measure(module, way)
            faults += len(done.unexplained)
            if options.json:
                print(json.dumps({"version": platform.python_version(), **asdict(done)}), flush=True)
                continue
            print(
                f"{way:10}  {module:36} {done.seconds:5.1f} s, {done.held:4} held of {done.tests:4}, "
                f"{done.frozen:6} frozen, "
                f"{done.missed:4} missed, {done.unsuspended:4} without, {done.excluded:3} excluded, "
                f"{len(done.unwatched):2} unwatched, {len(done.cannot):2} can't, "
                f"{len(done.unexplained):2} unexplained",
                flush=True,
            )
            for name, why in done.cannot.items():
                print(f"    can't: {name}: {why}")
            for name in done.unwatched:
                print(f"    unwatched: {name}")
            for name, detail in done.unexplained.items():
                print(f"    UNEXPLAINED: {name}:")
                print("\n".join("      " + line for line in detail.splitlines()[-12:]))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
