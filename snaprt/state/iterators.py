"""Builtin iterators that pickle would turn into something else, and views.

Most keep type and position by themselves. A dict's iterator becomes an iterator over a list of the rest, and
no longer notices that its dict changed; here it is made anew over the dict, and moved to where it stood. One
whose dict changed under it raises after the restore as it would have before.

A set's iterator does become a list's: the restored set may lie in another order (strings hash differently in
each process), and what has been visited can't be told from what hasn't. Elements and their order are right,
and adding to the set meanwhile no longer raises. The same holds for `OrderedDict`, whose iterators don't say
what they iterate over.

This file must not know itertools (`iterator_tools`).
"""

from __future__ import annotations

import gc
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from snaprt.errors import NotRestorable
from snaprt.state.handles import NotNow
from snaprt.state.kinds import Kind
from snaprt.state.reducers import Reduced, reducer
from snaprt.state.sessions import Dumping

_START: dict[str, Callable[[dict[Any, Any]], Iterator[Any]]] = {
    "keys": lambda d: iter(dict.keys(d)),
    "values": lambda d: iter(dict.values(d)),
    "items": lambda d: iter(dict.items(d)),
    "reversed keys": lambda d: reversed(dict.keys(d)),
    "reversed values": lambda d: reversed(dict.values(d)),
    "reversed items": lambda d: reversed(dict.items(d)),
}
KINDS = {type(start({})): kind for kind, start in _START.items()}


EXCHANGED = Kind("iterator over a dict that changed", tuple(KINDS), "iterate over a copy of the dict")


def reduce_dict_iterator(iterator: Any, dumping: Dumping) -> Reduced:
    kind = KINDS[type(iterator)]
    over = next((held for held in gc.get_referents(iterator) if isinstance(held, dict)), None)
    if over is None:
        return exhausted, (kind,)
    try:
        left = len(iterator.__reduce__()[1][0])
    except RuntimeError:  # the dict changed, which the iterator will say
        if iterator.__length_hint__():
            raise NotNow(
                EXCHANGED,
                "Can't place an iterator over a dict in which keys were exchanged since it began: it doesn't "
                "say which it has visited.",
            ) from None
        return outdated, (kind,)
    return dict_iterator, (kind, over, len(over), len(over) - left)


for _type in KINDS:
    reducer(_type)(reduce_dict_iterator)


def dict_iterator(kind: str, over: dict[Any, Any], size: int, done: int) -> Iterator[Any]:
    if len(over) != size:
        raise NotRestorable(
            "an iterator over a dict is held by that very dict, so it can't be placed before the dict is "
            "complete"
        )
    iterator = _START[kind](over)
    next(islice(iterator, done, done), None)
    return iterator


def exhausted(kind: str) -> Iterator[Any]:
    iterator = _START[kind]({})
    next(iterator, None)
    return iterator


def outdated(kind: str) -> Iterator[Any]:
    changed = {0: 0}
    iterator = _START[kind](changed)
    changed[1] = 1
    return iterator


@reducer(type(iter(set())))
def reduce_set_iterator(iterator: Any, dumping: Dumping) -> Reduced:
    try:
        return iterator.__reduce__()
    except RuntimeError:
        return outdated_set, ()


def outdated_set() -> Iterator[Any]:
    changed = {0}
    iterator = iter(changed)
    changed.add(1)
    return iterator


# --- views ----------------------------------------------------------------------------------------


def _view(make: Callable[[Any], Any], empty: Any) -> None:
    def reduce(view: Any, dumping: Dumping) -> Reduced:
        (over,) = gc.get_referents(view)
        return make, (over,)

    reducer(type(make(empty)))(reduce)


def keys(over: dict[Any, Any]) -> Any:
    return dict.keys(over)


def values(over: dict[Any, Any]) -> Any:
    return dict.values(over)


def items(over: dict[Any, Any]) -> Any:
    return dict.items(over)


def ordered_keys(over: OrderedDict[Any, Any]) -> Any:
    return OrderedDict.keys(over)


def ordered_values(over: OrderedDict[Any, Any]) -> Any:
    return OrderedDict.values(over)


def ordered_items(over: OrderedDict[Any, Any]) -> Any:
    return OrderedDict.items(over)


for _make in (keys, values, items):
    _view(_make, {})
for _ordered in (ordered_keys, ordered_values, ordered_items):
    _view(_ordered, OrderedDict())
