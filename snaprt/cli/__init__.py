"""The command line: `snaprt run`, `resume`, `answer`, `worker`, `ls`, `show`, `rm` and the others.

The floor that knows people. Each file has one idea:

- `app`: the commands about one run, with their help; from every end to an exit code
- `fleet`, `keeping`: the commands about many runs; `options`: what commands share
- `target`: from `module:function` or `file.py:function` to the agent
- `values`: from words on a command line to Python values
- `session`: one runtime opened for one command; following a run; Ctrl-C
- `changes`: what is new between two looks at a run
- `screen`: where that goes: JSON lines, plain lines, or a live display
- `views`: how runs, steps, questions and results look to a person
- `leaving`: the end of the process, also where a tool's thread doesn't end
- `foreign`: text that isn't ours, shown and never obeyed
- `failures`: from an exception to one paragraph and an exit code
- `demo`: the tour

It uses only the public interface of `snaprt.runtime`; nothing below may import it.
"""

from __future__ import annotations

import os


def main() -> None:
    """Entry point of the `snaprt` script and of `python -m snaprt`."""
    try:
        from snaprt.cli.app import run_command_line
        from snaprt.cli.leaving import end_process

        end_process(run_command_line())
    except KeyboardInterrupt:  # before a command is under way, or when it is over
        os._exit(130)


__all__ = ["main"]
