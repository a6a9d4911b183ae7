"""What the way that a library's type is pickled leaves out of its subclasses' instances.

A `datetime`, a `Decimal`, a path or an iterator is pickled as a call with arguments. That says all about an
exact one. An instance of a subclass has attributes, which nobody wrote down; and its class's own `__new__` is
then called with what the library's wants. So where the type that says how has no `__dict__` itself, and the
subclass says nothing, the attributes go along, and the library's own constructor makes the instance.

This file must not know types whose contents are set later (`subclasses`).
"""

from __future__ import annotations

import copyreg
import sys
from typing import Any

from snaprt.state import reducers
from snaprt.state.reducers import Reduced, Reducer
from snaprt.state.sessions import Dumping
from snaprt.state.subclasses import (
    BASES,
    PICKLING,
    attributes,
    mro,
    names_of,
    set_attributes,
    written_in_python,
)


@reducers.fallback
def reducer_for(cls: type) -> Reducer | None:
    """What completes the reduce values of the class's instances, if they may leave something out."""
    if not written_in_python(cls):
        return None
    says = next((each for each in mro(cls) if any(name in each.__dict__ for name in PICKLING)), object)
    own = mro(cls)[: mro(cls).index(says)]
    if not own or says in BASES or says.__dictoffset__ != 0:
        return None
    library = _library(cls)
    if library is cls:
        return None
    if library is not None and says not in mro(library):
        library = None
    if cls.__dictoffset__ == 0 and (library is None or not any("__slots__" in each.__dict__ for each in own)):
        return None
    return _reducer(cls, library)


def _library(cls: type) -> Any:
    """The nearest type below a class that the interpreter or its standard library brings."""
    below: type | None = cls
    while below is not None and written_in_python(below):
        if str(below.__module__).partition(".")[0] in sys.stdlib_module_names - {"__main__"}:
            break
        below = below.__base__
    return below


def _reducer(cls: type, library: Any) -> Reducer:
    # Found by their types, which a subclass isn't.
    inner = None if library is None else reducers.find(library)
    constructs = library is not None and any(
        name in each.__dict__
        for each in mro(cls)[: mro(cls).index(library)]
        for name in ("__new__", "__init__")
    )

    def reduce(obj: Any, dumping: Dumping) -> Reduced:
        if cls in copyreg.dispatch_table:
            return NotImplemented
        held = dict(names_of(obj) or {}) if library is None else attributes(obj, library)
        if not held and not constructs:
            return NotImplemented
        value = NotImplemented if inner is None else inner(obj, dumping)
        if value is NotImplemented or not (value[0] in (cls, library) or cls in value[1]):
            value = obj.__reduce_ex__(5)
        if not isinstance(value, tuple) or len(value) < 2:
            return NotImplemented
        make, args, state, items, pairs, setter = (*value, None, None, None, None)[:6]
        if make in (cls, library) and library is not None:
            make, args = construct, (cls, library, *args)
        if setter is None and state is not None and not hasattr(cls, "__setstate__"):
            held = {}  # such a state is the attributes
        if _holds(state, held):
            return make, args, state, items, pairs, setter
        return make, args, (state, setter, tuple(held), tuple(held.values())), items, pairs, complete

    return reduce


def _holds(state: Any, held: dict[str, Any]) -> bool:
    parts = (state, *state) if type(state) is tuple else (state,)
    return not held or any(type(part) is dict and held.keys() <= part.keys() for part in parts)


def construct(cls: type, library: Any, *args: Any) -> Any:
    """`library(*args)` of class `cls`, whose own constructor isn't asked."""
    obj = library.__new__(cls, *args)
    if library.__init__ is not object.__init__:
        library.__init__(obj, *args)
    return obj


def complete(obj: Any, state: tuple[Any, Any, tuple[str, ...], tuple[Any, ...]]) -> None:
    known, setter, names, values = state
    if setter is not None:
        setter(obj, known)
    elif known is not None:
        obj.__setstate__(known)
    set_attributes(obj, names, values)
