"""Reading and writing the two varint-coded tables of a code object, and instructions with long arguments.

The formats are CPython's own (`Objects/exception_handling_notes.txt`, `Objects/locations.md`), the same
from 3.11 on. This file knows bytes only: what is inserted where, and why, is `patch`'s business. Positions
are code units of two bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from opcode import opmap
from typing import NamedTuple

_NO_LOCATION = 15  # line table entry without a position: lines stay as they are in the user's source
_LONG = 14
_NO_COLUMNS = 13
_ONE_LINE = (10, 11, 12)


def instruction(name: str, arg: int = 0, caches: int = 0) -> bytes:
    """One instruction with as many EXTENDED_ARG as its argument needs, followed by its empty cache."""
    out = bytearray()
    for shift in (24, 16, 8):
        if arg >> shift:
            out += bytes((opmap["EXTENDED_ARG"], (arg >> shift) & 0xFF))
    return bytes(out + bytes((opmap[name], arg & 0xFF)) + bytes(2 * caches))


class Handler(NamedTuple):
    """One entry of an exception table: where it holds, where it leads, and what it does to the stack."""

    start: int
    length: int
    target: int
    depth: int
    lasti: bool


def read_handlers(data: bytes) -> list[Handler]:
    """Decode an exception table."""
    numbers: list[int] = []
    value = 0
    for byte in data:
        value = (value << 6) | (byte & 0x3F)
        if not byte & 0x40:
            numbers.append(value)
            value = 0
    return [
        Handler(start, length, target, flags >> 1, bool(flags & 1))
        for start, length, target, flags in zip(*[iter(numbers)] * 4, strict=True)
    ]


def write_handlers(handlers: Iterable[Handler]) -> bytes:
    """Encode an exception table. Entries must be in the order of their start."""
    out = bytearray()
    for handler in handlers:
        begin = 0x80
        for number in (handler.start, handler.length, handler.target, handler.depth << 1 | handler.lasti):
            digits = [number & 0x3F]
            while number := number >> 6:
                digits.append(number & 0x3F)
            for index in range(len(digits) - 1, -1, -1):
                out.append(digits[index] | begin | (0x40 if index else 0))
                begin = 0
    return bytes(out)


def insert_handlers(handlers: list[Handler], at: int, units: int) -> tuple[list[Handler], list[Handler]]:
    """The entries before and behind `units` new units at `at`; one that spans the place splits in two."""
    before, behind = [], []
    for start, length, target, depth, lasti in handlers:
        target += units if target >= at else 0
        left = min(length, max(0, at - start))
        if left:
            before.append(Handler(start, left, target, depth, lasti))
        if length > left:
            behind.append(Handler(start + left + units, length - left, target, depth, lasti))
    return before, behind


def insert_lines(table: bytes, at: int, units: int) -> bytes:
    """The line table with `units` units of no location inserted at `at`; an entry that spans it splits."""
    place, unit = 0, 0
    while place < len(table):
        first, end = table[place], place + 1
        while end < len(table) and not table[end] & 0x80:
            end += 1
        length = (first & 7) + 1
        if unit + length > at:
            break
        unit, place = unit + length, end
    else:
        return table + _blank(units) if table and unit == at else table
    if unit == at:
        return table[:place] + _blank(units) + table[place:]
    code, left = first >> 3 & 0xF, at - unit
    halves = bytes((0x80 | code << 3 | left - 1,)) + table[place + 1 : end] + _blank(units)
    return table[:place] + halves + _again(code, length - left, table[place + 1 : end]) + table[end:]


def _blank(units: int) -> bytes:
    """Entries without a location for `units` units, eight at most each."""
    sizes = [8] * (units // 8) + ([units % 8] if units % 8 else [])
    return bytes(0x80 | _NO_LOCATION << 3 | size - 1 for size in sizes)


def _again(code: int, length: int, payload: bytes) -> bytes:
    """The second half of a split entry: the same place, and no step in lines, for the first half took it."""
    if code in _ONE_LINE:
        code = _ONE_LINE[0]
    elif code in (_NO_COLUMNS, _LONG):
        step = 1
        while payload[step - 1] & 0x40:
            step += 1
        payload = b"\0" + payload[step:]
    return bytes((0x80 | code << 3 | length - 1,)) + payload
