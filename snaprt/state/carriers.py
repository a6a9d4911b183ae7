"""Side tables: state that a library keeps about its users' objects in a global of its own.

anyio keeps a weak dictionary of its state by task. A module's globals aren't state, so such an entry would be
lost; a *carrier* takes out the entries that belong to objects of the dump, and puts them back after the load,
when they belong to the objects of that load.

This file must not know any library.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol


class Carrier(Protocol):
    """What `register` takes.

    `name` is unique and stays the same, for it stands in saved states. `module` is the library's module that
    holds the table; a carrier is asked only once that is loaded. `take(held)` gives the entries that belong
    to objects for which `held(obj)` is true, as an object that can travel, or None if there are none; it may
    be asked several times for one dump and has to give all of them each time. `put(entries)` puts them back.
    """

    name: str
    module: str

    def take(self, held: Callable[[object], bool]) -> Any: ...

    def put(self, entries: Any) -> None: ...


_carriers: dict[str, Carrier] = {}


def register(carrier: Carrier) -> Carrier:
    """Adds a carrier; one of the same name is replaced."""
    _carriers[carrier.name] = carrier
    return carrier


def unregister(name: str) -> None:
    _carriers.pop(name, None)


def find(name: str) -> Carrier | None:
    return _carriers.get(name)


def active() -> list[Carrier]:
    """The carriers whose library is in use in this process."""
    return [carrier for carrier in _carriers.values() if carrier.module in sys.modules]
