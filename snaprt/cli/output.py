"""The two ways out: a rich console for people, JSON lines for programs. Knows nothing of runs."""

from __future__ import annotations

import json
import re
import sys
from typing import IO, Any, cast

from rich.console import Console

# Into a pipe, lines are as long as they need to be: whoever reads them cuts them.
_WIDTH_OF_A_PIPE = 200


def console(*, stderr: bool = False) -> Console:
    """Colours where the terminal has them and NO_COLOR doesn't forbid; agents' text is never markup."""
    stream = sys.stderr if stderr else sys.stdout
    if stream.isatty():
        return _Console(file=stream, markup=False, highlight=False, emoji=False)
    trimmed = cast("IO[str]", _Trimmed(stream))
    return _Console(file=trimmed, markup=False, highlight=False, emoji=False, width=_WIDTH_OF_A_PIPE)


def print_json(value: Any) -> None:
    """One value, one line, out at once: whoever reads is a program that waits for it."""
    sys.stdout.write(json.dumps(value, ensure_ascii=sys.stdout.encoding.lower() != "utf-8") + "\n")
    sys.stdout.flush()


class _Console(Console):
    def on_broken_pipe(self) -> None:
        # rich would end the process here, and not quietly; `run_command_line` knows what to do.
        raise BrokenPipeError


class _Trimmed:
    """A stream that drops the blanks with which rich fills up each line of a table."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        self._stream.write(re.sub(r" +(?=\n)", "", text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
