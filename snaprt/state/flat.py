"""Graphs of any depth: objects first, and what is in them later.

A pickler goes down along every reference, and a linked list of some thousand objects is more than a C stack,
or CPython's own limits from 3.12 on, allow. In a *flat* dump a list, a dict or a plain instance is written
empty where it is met, and its contents come later from a queue, as frames' values do.

That isn't right for everything: what a constructor or `__setstate__` is handed must be complete by then, and
so must what is hashed. So only such objects are emptied as stand in a frame, a list, a dict or a plain
instance directly, and only instances that pickle would rebuild by `__new__` and their attributes alone.

Only a pickler in Python asks about lists and dicts at all, so a flat dump is a slow one; `pickling` makes it
when nothing else is left.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any


class Flattening:
    """What a flat dump has still to write."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Any, ...]] = []
        self._direct: dict[int, object] = {}

    def direct(self, objects: Iterable[object]) -> None:
        """These stand where they may be written empty."""
        self._direct.update((id(obj), obj) for obj in objects)

    def empty(self, obj: Any) -> Any:
        """A reduce value without contents, which go into the queue; NotImplemented if that isn't right."""
        if id(obj) not in self._direct:
            return NotImplemented
        cls = type(obj)
        if cls is list:
            self.waiting.append(("list", obj, tuple(obj)))
            return list, ()
        if cls is dict:
            self.waiting.append(("dict", obj, tuple(obj), tuple(obj.values())))
            return dict, ()
        if not _plain(cls):
            return NotImplemented
        reduced = obj.__reduce_ex__(5)
        if len(reduced) < 3 or any(part is not None for part in reduced[3:]):
            return NotImplemented
        state = reduced[2]
        names, slots = state if type(state) is tuple else (state, None)
        names, slots = names or {}, slots or {}
        self.waiting.append(
            ("state", obj, tuple(names), tuple(names.values()), tuple(slots), tuple(slots.values()))
        )
        return reduced[:2]

    def later(
        self, obj: object, setter: Callable[[Any, Any], None], state: tuple[tuple[Any, ...], ...]
    ) -> bool:
        """Whether a state for `setter` went into the queue, which is right if this may be written empty."""
        if id(obj) not in self._direct or type(obj).__hash__ not in (None, object.__hash__):
            return False
        self.waiting.append((setter, obj, *state))
        return True

    def take(self) -> list[tuple[Any, ...]]:
        """The queue so far, whose contents may be written empty in their turn."""
        taken, self.waiting = self.waiting, []
        self._direct = {}
        for item in taken:
            for contents in item[2:]:
                self.direct(contents)
        return taken


def _plain(cls: Any) -> bool:
    return (
        cls.__hash__ is object.__hash__
        and cls.__reduce_ex__ is object.__reduce_ex__
        and cls.__reduce__ is object.__reduce__
        and cls.__getstate__ is object.__getstate__
        and not any(hasattr(cls, name) for name in ("__setstate__", "__getnewargs__", "__getnewargs_ex__"))
    )


def fill(item: tuple[Any, ...]) -> None:
    """Puts contents into the object that was written without."""
    kind, obj, *contents = item
    if callable(kind):
        kind(obj, tuple(contents))
    elif kind == "list":
        obj.extend(contents[0])
    elif kind == "dict":
        obj.update(zip(*contents, strict=True))
    else:
        names, values, slots, slot_values = contents
        if names:
            obj.__dict__.update(zip(map(sys.intern, names), values, strict=True))
        for name, value in zip(slots, slot_values, strict=True):
            setattr(obj, name, value)
