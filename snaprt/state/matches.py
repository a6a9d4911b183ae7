"""Matches of regular expressions, compiled structs, rows of SQLite: plain results in types without a pickle.

A match is the outcome of a pattern on a text, so it travels as how it was found: `match` or `fullmatch`
with these bounds, or the n-th of a `search` that goes on (`finditer`, `sub`). Whether that gives the same
groups is tried when it is saved, and once more when it is loaded, because the text may be a buffer that has
changed and another Python may know other letters. One scan serves all matches that came out of it, however
many a dump holds.

This file must not know the pickler.
"""

from __future__ import annotations

import re
import struct
from typing import Any

from snaprt.errors import NotRestorable
from snaprt.state.handles import NotNow
from snaprt.state.kinds import Kind
from snaprt.state.reducers import Reduced, by_name, reducer
from snaprt.state.sessions import Dumping, loading

LOST = Kind(
    "regular expression match that can't be found again",
    (re.Match,),
    "keep match.group(...) or match.groupdict() instead",
)


class _Scan:
    """A search that goes on, and what it found so far."""

    def __init__(self, pattern: Any, text: Any, start: int, end: int) -> None:
        self._rest = pattern.finditer(text, start, end)
        self._text = text  # its id is in the scan's name
        self._found: list[Any] = []
        self._places: dict[Any, int] = {}

    def nth(self, n: int) -> Any:
        while len(self._found) <= n:
            match = next(self._rest, None)
            if match is None:
                return None
            self._places.setdefault((match.regs, match.lastindex), len(self._found))
            self._found.append(match)
        return self._found[n]

    def place(self, match: Any) -> int | None:
        """Which of the search's matches this one is."""
        while not self._found or self._found[-1].start() <= match.start():
            if self.nth(len(self._found)) is None:
                break
        return self._places.get((match.regs, match.lastindex))


def _same(found: Any, regs: Any, last: Any) -> bool:
    return found is not None and found.regs == regs and found.lastindex == last


def _scan(scans: dict[Any, Any], pattern: Any, text: Any, start: int, end: int) -> _Scan:
    key = (id(pattern), id(text), start, end)
    if key not in scans:
        scans[key] = _Scan(pattern, text, start, end)
    return scans[key]  # type: ignore[no-any-return]  # sessions don't know what is kept there


@reducer(re.Match)
def reduce_match(match: Any, dumping: Dumping) -> Reduced:
    pattern, text, start, end = match.re, match.string, match.pos, match.endpos
    how = _how(match, dumping)
    if how is None:
        raise NotNow(LOST, "Its pattern doesn't find it in its text any more.")
    return found_again, (pattern, text, start, end, how, match.regs, match.lastindex)


def _how(match: Any, dumping: Dumping) -> str | int | None:
    pattern, text, start, end = match.re, match.string, match.pos, match.endpos
    if match.start() == start:
        for how in ("match", "fullmatch"):
            if _same(getattr(pattern, how)(text, start, end), match.regs, match.lastindex):
                return how
    return _scan(dumping.scans, pattern, text, start, end).place(match)


def found_again(pattern: Any, text: Any, start: int, end: int, how: str | int, regs: Any, last: Any) -> Any:
    if isinstance(how, str):
        match = getattr(pattern, how)(text, start, end)
    else:
        match = _scan(loading().scans, pattern, text, start, end).nth(how)
    if not _same(match, regs, last):
        raise NotRestorable(
            f"the match of {pattern.pattern!r} at {regs[0][0]} of a text isn't found by this Python any more"
        )
    return match


@reducer(struct.Struct)
def reduce_struct(compiled: Any, dumping: Dumping) -> Reduced:
    return struct.Struct, (compiled.format,)


@by_name("sqlite3:Row")
def reduce_row(row: Any, dumping: Dumping) -> Reduced:
    return new_row, (tuple(row.keys()), tuple(row))


def new_row(names: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    """A row gets its names from a cursor, so one is made that has these."""
    import sqlite3

    connection = sqlite3.connect(":memory:")
    try:
        columns = ", ".join('null as "{}"'.format(name.replace('"', '""')) for name in names)
        return sqlite3.Row(connection.execute(f"select {columns}"), values)
    finally:
        connection.close()
