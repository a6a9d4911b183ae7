"""The walk over everything that hangs off the globals of modules.

Breadth first, so that the shortest path wins. Keys that aren't text or numbers aren't walked, for they would
have to be found again in another process. No object on the way is asked for anything: attributes are read
where they lie, and `isinstance` is left out, for a dead proxy raises.

This file must not know whose globals these are, nor what is done with what is found.
"""

from __future__ import annotations

import contextlib
import functools
import re
import types
from collections.abc import Iterable, Iterator
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, TypeAlias

from snaprt.state.marks import Step

# An object with where it hangs: off another entry by a step, or as the global that a place names.
Entry: TypeAlias = "tuple[Any, Entry | None, Any]"

_LIMIT = 100_000  # objects; a user's registries hold far fewer
_CONTAINERS = (dict, list, set, bytearray)


def walk(waiting: list[Entry], depth: int) -> dict[int, Entry]:
    found: dict[int, Entry] = {}
    slots: dict[type, list[tuple[str, Any]]] = {}
    for _ in range(depth):
        following: list[Entry] = []
        for entry in waiting:
            obj, above, step = entry
            if id(obj) in found:
                continue
            if above is None and issubclass(type(obj), type) and obj.__module__ != step[0]:
                continue  # an import; its own module leads to it
            found[id(obj)] = entry
            if len(found) > _LIMIT:
                return found
            following += [
                (under, entry, to)
                for to, under in _branches(obj, type(obj), slots)
                if type(under) not in SKIPPED
            ]
        if not following:
            break
        waiting = following
    return found


SKIPPED = frozenset(
    {type(None), bool, int, float, complex, str, bytes, ModuleType, re.Pattern, BuiltinFunctionType}
)


def _branches(obj: Any, cls: type, slots: dict[type, list[tuple[str, Any]]]) -> Iterable[tuple[Step, Any]]:
    if cls is dict:
        return [(("[", k), v) for k, v in list(obj.items()) if type(k) in (str, int)]
    if cls is list or cls is tuple:
        return [(("[", i), v) for i, v in enumerate(obj)]
    if cls is FunctionType:
        return [((".", k), v) for k, v in obj.__dict__.items()] if obj.__dict__ else ()
    if cls is functools.partial:
        return [((".", "func"), obj.func)]
    if cls is MethodType:
        return [((".", "__func__"), obj.__func__)]
    if issubclass(cls, type):
        kinds = (type, *_CONTAINERS)
        return [((".", k), v) for k, v in list(obj.__dict__.items()) if issubclass(type(v), kinds)]
    try:
        names = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        names = None
    found: list[tuple[Step, Any]] = []
    if type(names) is dict:
        found += [((".", k), v) for k, v in list(names.items()) if type(k) is str]
    if cls not in slots:
        slots[cls] = list(_slots(cls))
    for slot, descriptor in slots[cls]:
        with contextlib.suppress(AttributeError):
            found.append(((".", slot), descriptor.__get__(obj, cls)))
    return found


def _slots(cls: type) -> Iterator[tuple[str, Any]]:
    for base in cls.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            descriptor = base.__dict__.get(slot)
            if isinstance(descriptor, types.MemberDescriptorType):
                yield slot, descriptor
