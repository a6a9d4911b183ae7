"""`python -m benchmarks [NAME…] [--save] [--quick]`: each in a process of its own, one after the other."""

from __future__ import annotations

import argparse
import subprocess
import sys

NAMES = ("frames", "chain", "saving", "conversation", "steps", "steps_peers", "workers")


def main() -> int:
    """Run the ones that were named, or all; the exit code is that of the first that failed."""
    options = argparse.ArgumentParser(prog="python -m benchmarks")
    options.add_argument("names", nargs="*", choices=[*NAMES, []], metavar="NAME", help=", ".join(NAMES))
    options.add_argument("--save", action="store_true", help="keep the tables in results.json and results.md")
    options.add_argument(
        "--quick", action="store_true", help="fewer rounds: figures that only show the order"
    )
    chosen = options.parse_args()
    flags = [f"--{name}" for name in ("save", "quick") if getattr(chosen, name)]
    failed = 0
    for name in chosen.names or NAMES:
        code = subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *flags], check=False).returncode
        failed = failed or code
    return failed


if __name__ == "__main__":
    sys.exit(main())
