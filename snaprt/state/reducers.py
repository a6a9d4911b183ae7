"""The table of reducers: which function says how objects of a type travel.

Every reducer takes the object and the dump, and gives what `__reduce_ex__` would: a callable with its
arguments, a state and a setter for what may lead back to the object; or NotImplemented, to leave it to
pickle. The other files of this floor fill the table with `@reducer`; other floors add their types with
`register`.

The table is asked for every object that isn't an exact plain builtin, so the answer for a type is kept, by
the type's id beside a weak reference that forgets it when the type dies.

This file must not know any type in particular.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, TypeAlias

from snaprt.state.sessions import Dumping

Reduced: TypeAlias = Any  # a tuple as pickle's protocol has it, or NotImplemented
Reducer: TypeAlias = Callable[[Any, Dumping], Reduced]

_exact: dict[type, Reducer] = {}
_named: dict[str, Reducer] = {}
_families: list[tuple[type, Reducer]] = []
_fallbacks: list[Callable[[type], Reducer | None]] = []
_answers: dict[int, tuple[Any, Reducer | None]] = {}


def reducer(cls: type, *, subclasses: bool = False) -> Callable[[Reducer], Reducer]:
    """Registers the decorated function for a type, and on request for all its subclasses."""

    def add(function: Reducer) -> Reducer:
        if subclasses:
            _families.insert(0, (cls, function))
        else:
            _exact[cls] = function
        _answers.clear()
        return function

    return add


def by_name(name: str) -> Callable[[Reducer], Reducer]:
    """Registers the decorated function for the type `name` ("module:qualname"), which needn't be imported."""

    def add(function: Reducer) -> Reducer:
        _named[name] = function
        _answers.clear()
        return function

    return add


def fallback(decide: Callable[[type], Reducer | None]) -> Callable[[type], Reducer | None]:
    """Registers the decorated function, which is asked once for each type that the table doesn't have."""
    _fallbacks.append(decide)
    _answers.clear()
    return decide


def register(cls: type, reduce_fn: Callable[[Any], Reduced], *, subclasses: bool = False) -> None:
    """Says how objects of a type travel. `reduce_fn(obj)` gives what `__reduce_ex__` would, or
    NotImplemented.

    Anything that may lead back to the object belongs in the state (third item) with a setter (sixth), not in
    the arguments. The register of handles is asked first, so that no kind that a user adds, and no subclass
    that is live, slips through: a type that a kind covers needs `handles.allow` too.
    """

    def reduce(obj: Any, dumping: Dumping) -> Reduced:
        return reduce_fn(obj)

    reducer(cls, subclasses=subclasses)(reduce)


def unregister(cls: type) -> None:
    """Takes a type out of the table again."""
    _exact.pop(cls, None)
    _families[:] = [entry for entry in _families if entry[0] is not cls]
    _answers.clear()


def find(cls: type) -> Reducer | None:
    """The reducer for objects of exactly this type, or None if they are left to pickle."""
    known = _answers.get(id(cls))
    if known is not None:
        return known[1]
    answer = _exact.get(cls) or _named.get(f"{cls.__module__}:{cls.__qualname__}")
    if answer is None:
        for family, function in _families:
            # Not issubclass: an ABC's hook would run foreign code, and a stand-in's class may lie.
            if family in cls.__mro__:
                answer = function
                break
        else:
            answer = next(filter(None, (decide(cls) for decide in _fallbacks)), None)
    key = id(cls)
    _answers[key] = (weakref.ref(cls, lambda _: _answers.pop(key, None)), answer)
    return answer
