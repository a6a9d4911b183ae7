"""The load for cycles through what is hashed by its contents.

Frozen dataclasses that hold each other in sets, a dict whose value leads back to its key: such objects are
put into a set or dict before they have their attributes, and can't say their hash then. The C unpickler fails
at that. This one, in Python and twenty times slower, is asked when it did: it lets such an entry, and those
behind it, wait until everything else is there.

A hash that doesn't fail without attributes, but is another one, goes unnoticed, as in any pickle; and what is
in a frozenset can't wait. This file must not know what a load does besides.
"""

from __future__ import annotations

import pickle
from typing import Any, ClassVar


def failed_at_a_hash(error: BaseException | None) -> bool:
    """Whether it came out of a `__hash__` or `__eq__`."""
    trace = error.__traceback__ if error is not None else None
    while trace is not None:
        if trace.tb_frame.f_code.co_name in ("__hash__", "__eq__"):
            return True
        trace = trace.tb_next
    return False


_Python: Any = pickle._Unpickler  # the one in Python


class PatientUnpickler(_Python):  # type: ignore[misc]  # Any
    """Reads what `pickle.Unpickler` does; call `finish` when the last pickle was read."""

    dispatch: ClassVar[dict[int, Any]] = dict(_Python.dispatch)

    def __init__(self, file: Any) -> None:
        super().__init__(file)
        self._late: dict[int, tuple[Any, list[Any]]] = {}

    def _put(self, container: Any, entries: list[Any]) -> None:
        at = id(container)
        while entries and at not in self._late:
            try:
                _put_one(container, entries[0])
            except Exception:
                self._late[at] = (container, [])
            else:
                entries = entries[1:]
        if entries:
            self._late[at][1].extend(entries)

    def finish(self) -> None:
        """Put in what had to wait, in its order."""
        for container, entries in self._late.values():
            for entry in entries:
                _put_one(container, entry)

    def load_setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._put(self.stack[-1], [(key, value)])

    def load_setitems(self) -> None:
        items = self.pop_mark()
        self._put(self.stack[-1], list(zip(items[::2], items[1::2], strict=True)))

    def load_additems(self) -> None:
        items = self.pop_mark()
        self._put(self.stack[-1], [(item,) for item in items])

    dispatch[pickle.SETITEM[0]] = load_setitem
    dispatch[pickle.SETITEMS[0]] = load_setitems
    dispatch[pickle.ADDITEMS[0]] = load_additems


def _put_one(container: Any, entry: tuple[Any, ...]) -> None:
    if len(entry) == 2:
        container[entry[0]] = entry[1]
    else:
        container.add(entry[0])
