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
from snaprt.errors import SnaprtError

# Into a pipe, lines are as long as they need to be: whoever reads them cuts them.
_WIDTH_OF_A_PIPE = 1000


class OutputLost(SnaprtError):
    """Standard output can't be written any more (a full disk); a reader who left is a BrokenPipeError."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"Standard output can't be written: {error.strerror}. The run itself is kept.")


@contextmanager
def writing() -> Iterator[None]:
    """Around every write to standard output: that it failed is told apart from everything else that can."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputLost(error) from error


def console(*, stderr: bool = False) -> Console:
    """Colours where the terminal has them and NO_COLOR doesn't forbid; agents' text is never markup."""
    stream = sys.stderr if stderr else sys.stdout
    if stream.isatty():
        return _Console(file=stream, markup=False, highlight=False, emoji=False)
    watched = cast("IO[str]", stream if stderr else _Output(stream))
    return _Console(file=watched, markup=False, highlight=False, emoji=False, width=_WIDTH_OF_A_PIPE)


def say(text: str) -> None:
    """A line of plain text, or some, for people."""
    console().print(text, soft_wrap=True)


def put(out: Console, *parts: RenderableType) -> None:
    """Print parts below each other. Plain text isn't cut into lines here, so that commands and URLs in it
    can be copied from a narrow terminal; the terminal itself wraps it."""
    for part in parts:
        out.print(part, soft_wrap=isinstance(part, Text))


def print_json(value: Any) -> None:
    """One value, one line, out at once: whoever reads is a program that waits for it."""
    out = _reserved[-1] if _reserved else sys.stdout
    text = visible_json(json.dumps(value, ensure_ascii=out.encoding.lower() != "utf-8"))
    with writing():
        out.write(text + "\n")
        out.flush()


@contextmanager
def only_json() -> Iterator[None]:
    """In this block nothing but `print_json` reaches standard output.

    Whatever agents, tools and their subprocesses print goes to standard error, so that a line read by a
    program is always ours.
    """
    stream = sys.stdout
    with writing():
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
    # Closing it writes what is left, which fails again where the disk is full.
    with writing(), os.fdopen(kept, "w", encoding=stream.encoding, errors=stream.errors) as out:
        os.dup2(error, number)
        _reserved.append(out)
        try:
            yield
        finally:
            _reserved.pop()
            stream.flush()
            os.dup2(kept, number)


@contextmanager
def for_help() -> Iterator[None]:
    """In this block typer writes, for whom nothing tells whether it can."""
    with redirect_stdout(cast("IO[str]", _Output(sys.stdout))):
        yield


# Where JSON goes while standard output is given to others.
_reserved: list[Any] = []


class _Console(Console):
    def render_str(self, text: str, **options: Any) -> Any:
        return super().render_str(visible(text), **options)

    def on_broken_pipe(self) -> None:
        # rich would end the process here, and not quietly; `run_command_line` knows what to do.
        raise BrokenPipeError


class _Output:
    """Standard output that says so when it is lost, without the blanks with which rich fills up the lines of
    a table."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with writing():
            self._stream.write(re.sub(r" +(?=\n)", "", text))

    def flush(self) -> None:
        with writing():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
