"""The two ways out: a rich console for people, JSON lines for programs. Knows nothing of runs."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import IO, Any, cast

from rich.console import Console, RenderableType

from snaprt.cli.foreign import Text, visible, visible_json

# Into a pipe, lines are as long as they need to be: whoever reads them cuts them.
_WIDTH_OF_A_PIPE = 1000


def console(*, stderr: bool = False) -> Console:
    """Colours where the terminal has them and NO_COLOR doesn't forbid; agents' text is never markup."""
    stream = sys.stderr if stderr else sys.stdout
    if stream.isatty():
        return _Console(file=stream, markup=False, highlight=False, emoji=False)
    trimmed = cast("IO[str]", _Trimmed(stream))
    return _Console(file=trimmed, markup=False, highlight=False, emoji=False, width=_WIDTH_OF_A_PIPE)


def put(out: Console, *parts: RenderableType) -> None:
    """Print parts below each other. Plain text isn't cut into lines here, so that commands and URLs in it
    can be copied from a narrow terminal; the terminal itself wraps it."""
    for part in parts:
        out.print(part, soft_wrap=isinstance(part, Text))


def print_json(value: Any) -> None:
    """One value, one line, out at once: whoever reads is a program that waits for it."""
    out = _reserved[-1] if _reserved else sys.stdout
    out.write(visible_json(json.dumps(value, ensure_ascii=out.encoding.lower() != "utf-8")) + "\n")
    out.flush()


@contextmanager
def only_json() -> Iterator[None]:
    """In this block nothing but `print_json` reaches standard output.

    Whatever agents, tools and their subprocesses print goes to standard error, so that a line read by a
    program is always ours.
    """
    stream = sys.stdout
    stream.flush()
    try:
        number, error = stream.fileno(), sys.stderr.fileno()
    except (OSError, ValueError):  # no real files: embedded in another program
        _reserved.append(stream)
        with redirect_stdout(sys.stderr):
            try:
                yield
            finally:
                _reserved.pop()
        return
    kept = os.dup(number)
    with os.fdopen(kept, "w", encoding=stream.encoding, errors=stream.errors) as out:
        os.dup2(error, number)
        _reserved.append(out)
        try:
            yield
        finally:
            _reserved.pop()
            stream.flush()
            os.dup2(kept, number)


# Where JSON goes while standard output is given to others.
_reserved: list[Any] = []


class _Console(Console):
    def render_str(self, text: str, **options: Any) -> Any:
        return super().render_str(visible(text), **options)

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
