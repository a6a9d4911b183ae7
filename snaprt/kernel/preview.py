"""Showing a value: as JSON while it is small, and as the beginning of its text when it isn't.

A run's summary stands in every record and is read without unpickling anything, so whatever an agent
passes around has to be turned into a little JSON. The work is bounded by `LIMIT`, whatever the size of the
value, and a value whose `__repr__` fails is still shown.
"""

from __future__ import annotations

import math
import reprlib
from enum import Enum
from typing import Any

from snaprt.kernel.interrupts import is_ctrl_c

LIMIT = 2048
"""Characters of JSON, roughly, up to which a value is shown in full: a screenful."""

_SHOWN = 500
"""Characters shown of a value that is too long."""

_DEPTH = 20

_LONGEST_INT = 14_000
"""Bits of an int that Python turns into text: 4,300 digits, unless somebody raised that."""


class _Short(reprlib.Repr):
    def repr_int(self, value: int, level: int) -> str:
        if value.bit_length() <= _LONGEST_INT:
            return super().repr_int(value, level)
        return f"<an int of about {round(value.bit_length() * 0.30103)} digits>"


_short = _Short()
_short.maxstring = _short.maxother = _short.maxlong = _SHOWN
_short.maxlist = _short.maxtuple = _short.maxset = _short.maxfrozenset = _short.maxdict = _short.maxdeque = 20


class _NotShowable(Exception):
    """The value isn't JSON, or is too large for it."""


PAYLOAD_LIMIT = 64 * LIMIT
"""The same for the payload of a question: whoever answers has to see what they decide about."""


def preview(value: Any, limit: int = LIMIT) -> Any:
    """`value` itself if it is JSON of at most `limit` characters, else `{"preview": text, "size": …}`."""
    try:
        return _copy(value, [limit], _DEPTH)
    except BaseException as error:  # besides _NotShowable, whatever an agent's class raises when looked at
        if is_ctrl_c(error):
            raise
        return {"preview": shorten(value), "size": _size(value)}


def shorten(value: Any) -> str:
    """The beginning of the text of `value`."""
    try:
        if isinstance(value, (str, bytes, bytearray)):
            text = str(value[:_SHOWN]) if isinstance(value, str) else repr(bytes(value[:_SHOWN]))
            return text if len(value) <= _SHOWN else text + "…"
        text = _short.repr(value)
    except BaseException as error:
        if is_ctrl_c(error):
            raise
        return f"<{type(value).__name__}, whose repr raises {type(error).__name__}>"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def in_words(error: BaseException) -> str:
    """An exception in a line. Its own text may be what fails."""
    try:
        text = shorten(str(error))
    except BaseException as failure:
        if is_ctrl_c(failure):
            raise
        text = f"<its text raises {type(failure).__name__}>"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _size(value: Any) -> str:
    try:
        if isinstance(value, str):
            return f"{len(value)} characters"
        if isinstance(value, (bytes, bytearray)):
            return f"{len(value)} bytes"
        if isinstance(value, (list, tuple, set, frozenset, dict)):
            return f"{len(value)} items"
    except BaseException as error:  # a `__len__` of the agent's own
        if is_ctrl_c(error):
            raise
    return type(value).__name__


def _copy(value: Any, budget: list[int], depth: int) -> Any:
    """A JSON copy of `value`; takes what it costs from `budget`."""
    kind = type(value)
    if kind is str:
        _take(budget, len(value) + 2)
        return value
    if value is None or kind is bool or kind is int:
        if kind is int and value.bit_length() > _LONGEST_INT:
            raise _NotShowable
        _take(budget, 8 if kind is not int else 8 + value.bit_length() // 3)
        return value
    if kind is float:
        _take(budget, 20)
        if not math.isfinite(value):
            raise _NotShowable
        return value
    if depth == 0:
        raise _NotShowable
    if kind is list or kind is tuple:
        _take(budget, 2 + len(value))
        return [_copy(item, budget, depth - 1) for item in value]
    if kind is dict:
        _take(budget, 2 + 4 * len(value))
        if any(type(key) is not str for key in value):
            raise _NotShowable
        return {_copy(key, budget, depth - 1): _copy(item, budget, depth - 1) for key, item in value.items()}
    if isinstance(value, Enum):
        return _copy(value.value, budget, depth - 1)
    names = getattr(kind, "__dataclass_fields__", None) or getattr(kind, "__pydantic_fields__", None)
    if type(names) is dict:
        return _copy(_fields(value, names), budget, depth)
    raise _NotShowable


def _fields(value: Any, names: dict[str, Any]) -> dict[str, Any]:
    """A dataclass's or model's fields, as a person would have written them; without those that its `repr`
    leaves out, and those that aren't set."""
    try:
        return {
            name: getattr(value, name) for name, each in names.items() if each.repr and hasattr(value, name)
        }
    except BaseException as error:  # a field may be a property
        if is_ctrl_c(error):
            raise
        raise _NotShowable from None


def _take(budget: list[int], cost: int) -> None:
    budget[0] -= cost
    if budget[0] < 0:
        raise _NotShowable
