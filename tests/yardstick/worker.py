"""The child process: runs one module one way and writes a line of JSON for each test to the given file."""

from __future__ import annotations

import argparse
import json
import signal
from typing import Any

from tests.yardstick import inplace


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("module")
    parser.add_argument("how", choices=("plain", "watched", "frozen", "loop", "saved"))
    parser.add_argument("out")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--skip", nargs="*", default=())
    parser.add_argument("--stretched", action="store_true")
    parser.add_argument("--keep-frame-objects", action="store_true")
    options = parser.parse_args()
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell's background job ignores it, and tests send it
    with open(options.out, "a", encoding="utf-8", errors="backslashreplace") as out:

        def tell(line: dict[str, Any]) -> None:
            out.write(json.dumps(line) + "\n")
            out.flush()

        only = set(options.only) if options.only is not None else None
        if options.how in ("loop", "saved"):
            from tests.yardstick import (
                onloop,
            )  # needs all floors up to the kernel; the rest needs `frames` alone

            onloop.run(
                options.module, options.how, only, set(options.skip), tell, stretched=options.stretched
            )
            return
        inplace.run(
            options.module,
            options.how,
            only,
            set(options.skip),
            tell,
            stretched=options.stretched,
            keep_frame_objects=options.keep_frame_objects,
        )


if __name__ == "__main__":
    main()
