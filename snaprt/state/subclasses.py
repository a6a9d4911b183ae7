"""Instances of Python classes, rebuilt without running any of their code.

Pickle rebuilds an instance by its class's own `__new__`, `__init__`, `__setitem__`, `append` or `add`, and
asks the half-made one for `__setstate__`, which a `__getattr__` that delegates answers with endless
recursion. All that code has run when the program ran; what it led to is the instance. So where a class has
code in pickle's way, its instances are made as the builtin type under it does it, by that type's own methods,
and their attributes are put where they lie: into the `__dict__`, or a slot by its descriptor. The same where
the builtin's own way to be pickled leaves attributes out.

Only classes that say nothing of pickling themselves: what one says is heeded. A class without such code is
left to the C pickler, which is faster; what a class needs is decided once (`reducers.find`).

Contents come after the object, so it may hold itself. The values of immutable types can't.

This file must not know types of the library that need arguments of their own (`dropped`).
"""

from __future__ import annotations

import collections
import copyreg
import inspect
import random
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, GetSetDescriptorType, MemberDescriptorType
from typing import Any, TypeAlias

from snaprt.state import classes, reducers
from snaprt.state.reducers import Reduced, Reducer
from snaprt.state.sessions import Dumping, loading

PICKLING = (
    *("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__"),
)

State: TypeAlias = "tuple[tuple[Any, ...], tuple[Any, ...], tuple[str, ...], tuple[Any, ...]]"
"""Items or keys, values of those keys (last a default dict's factory), names of attributes, their values."""

Read: TypeAlias = "Callable[[Any], tuple[tuple[Any, ...], tuple[Any, ...]]]"


@dataclass(frozen=True)
class _Base:
    """How a builtin type makes, reads and fills an instance of a subclass, by its own methods alone.

    `hooks` are what pickle would call of a subclass, besides what it calls of any; None: its instances never
    come back whole from pickle.
    """

    hooks: frozenset[str] | None
    args: Callable[[Any], tuple[Any, ...]] = lambda _: ()
    read: Read = lambda _: ((), ())
    fill: Callable[[Any, tuple[Any, ...], tuple[Any, ...]], None] = lambda obj, items, values: None


def _hooks(*names: str) -> frozenset[str]:
    return frozenset(names)


def _pairs(read: Callable[[Any], Any]) -> Read:
    def pairs(obj: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        items = tuple(read(obj))
        return tuple(key for key, _ in items), tuple(value for _, value in items)

    return pairs


def _fill_dict(obj: Any, keys: tuple[Any, ...], values: tuple[Any, ...]) -> None:
    dict.update(obj, zip(keys, values, strict=True))


def _fill_ordered(obj: Any, keys: tuple[Any, ...], values: tuple[Any, ...]) -> None:
    for key, value in zip(keys, values, strict=True):
        collections.OrderedDict.__setitem__(obj, key, value)


def _read_default(obj: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    keys, values = _pairs(dict.items)(obj)
    return keys, (*values, _FACTORY.__get__(obj))


def _fill_default(obj: Any, keys: tuple[Any, ...], values: tuple[Any, ...]) -> None:
    _FACTORY.__set__(obj, values[-1])
    _fill_dict(obj, keys, values[:-1])


_FACTORY: Any = collections.defaultdict.__dict__["default_factory"]
_MAXLEN: Any = collections.deque.__dict__["maxlen"]

BASES: dict[type, _Base] = {
    object: _Base(_hooks()),
    types.SimpleNamespace: _Base(_hooks("__init__", "__new__", "__setattr__")),
    dict: _Base(
        _hooks("__new__", "__setitem__", "items"),
        read=_pairs(dict.items),
        fill=_fill_dict,
    ),
    collections.OrderedDict: _Base(
        _hooks("__new__", "__init__", "__setitem__", "items"),
        read=_pairs(collections.OrderedDict.items),
        fill=_fill_ordered,
    ),
    collections.defaultdict: _Base(None, read=_read_default, fill=_fill_default),
    collections.Counter: _Base(None, read=_pairs(dict.items), fill=_fill_dict),
    collections.deque: _Base(
        _hooks("__new__", "__init__", "append", "extend", "__iter__"),
        args=lambda obj: (_MAXLEN.__get__(obj),),
        read=lambda obj: (tuple(collections.deque.__iter__(obj)), ()),
        fill=lambda obj, items, _: collections.deque.extend(obj, items),
    ),
    list: _Base(
        _hooks("__new__", "append", "extend", "__iter__"),
        read=lambda obj: (tuple(list.__iter__(obj)), ()),
        fill=lambda obj, items, _: list.extend(obj, items),
    ),
    # Pickle hands a set's elements to the class, so that one which leads back to the set is none for it.
    set: _Base(
        None,
        read=lambda obj: (tuple(set.__iter__(obj)), ()),
        fill=lambda obj, items, _: set.update(obj, items),
    ),
    frozenset: _Base(
        _hooks("__new__", "__init__", "__iter__"), lambda obj: (tuple(frozenset.__iter__(obj)),)
    ),
    bytearray: _Base(_hooks("__new__", "__init__"), lambda obj: (bytes(memoryview(obj)),)),
    int: _Base(_hooks("__new__"), lambda obj: (int.__int__(obj),)),
    float: _Base(_hooks("__new__"), lambda obj: (float.__float__(obj),)),
    complex: _Base(_hooks("__new__"), lambda obj: (complex.__complex__(obj),)),
    str: _Base(_hooks("__new__"), lambda obj: (str.__str__(obj),)),
    bytes: _Base(_hooks("__new__"), lambda obj: (bytes(memoryview(obj)),)),
    tuple: _Base(_hooks("__new__"), lambda obj: (tuple(tuple.__iter__(obj)),)),
    random.Random: _Base(
        None,
        read=lambda obj: (random.Random.getstate(obj), ()),
        fill=lambda obj, state, _: random.Random.setstate(obj, state),
    ),
}

# What pickle asks every instance for, or compares.
_ANY = frozenset({"__getattr__", "__getattribute__", "__class__"})

_NAMED_TUPLE: Any = collections.namedtuple("_NAMED_TUPLE", ()).__dict__["__getnewargs__"]


# --- what a class needs ----------------------------------------------------------------------------


def mro(cls: type) -> tuple[type, ...]:
    return type.__dict__["__mro__"].__get__(cls)  # type: ignore[no-any-return]  # an untyped slot; a metaclass may lie


def written_in_python(cls: type) -> bool:
    made = cls.__dict__.get("__new__")
    return classes.written_in_python(cls) and not isinstance(made, BuiltinFunctionType)


def base_of(cls: type) -> type | None:
    """The builtin type that lays out the instances of a Python class, if it is one that is known here."""
    base: type | None = cls
    while base is not None and base not in BASES:
        if not written_in_python(base):
            return None
        base = base.__base__
    return base


@reducers.fallback
def reducer_for(cls: type) -> Reducer | None:
    """What rebuilds instances of the class, if it is a Python class with code in pickle's way."""
    if cls in BASES:
        return None
    base = base_of(cls)
    if base is None:
        return None
    below = mro(base)
    own = [each for each in mro(cls) if each not in below]
    if any(_says_how(each, base) for each in own) or not _needs(cls, BASES[base], own):
        return None
    return _reducer(base)


def _says_how(cls: type, base: type) -> bool:
    """Whether a class has a say in how its instances are pickled."""
    if base is random.Random and ("getstate" in cls.__dict__ or "setstate" in cls.__dict__):
        return True
    return any(name in cls.__dict__ for name in PICKLING) and not _is_named_tuple(cls)


def _is_named_tuple(cls: type) -> bool:
    """Whether these are the methods that `namedtuple` writes, which say what a tuple's own would."""
    function = cls.__dict__.get("__getnewargs__")
    return type(function) is FunctionType and function.__code__ == _NAMED_TUPLE.__code__


def _needs(cls: type, base: _Base, own: list[type]) -> bool:
    if base.hooks is None:
        return True
    written = {
        name for each in own for name in each.__dict__ if not (name == "__new__" and _is_named_tuple(each))
    }
    if written & (base.hooks | _ANY):
        return True
    if "__setattr__" in written and any(True for _ in _slots(cls)):
        return True
    if "__new__" not in written:
        return False
    # Of an importable class, a `__new__` that wants nothing may give what it gave before: its only instance.
    return not (classes.named(cls) and _takes_nothing(cls))


def _takes_nothing(cls: Any) -> bool:
    try:
        inspect.signature(cls.__new__).bind(cls)
    except (TypeError, ValueError):
        return False
    return True


# --- dump -----------------------------------------------------------------------------------------


def _reducer(base: type) -> Reducer:
    ways = BASES[base]

    def reduce(obj: Any, dumping: Dumping) -> Reduced:
        cls = type(obj)
        if cls in copyreg.dispatch_table:
            return NotImplemented
        held = attributes(obj)
        state = (*ways.read(obj), tuple(held), tuple(held.values()))
        made = bare, (cls, *ways.args(obj))
        if not any(state):
            return made
        if dumping.flat is not None and dumping.flat.later(obj, fill, state):
            return made
        return (*made, state, None, None, fill)

    return reduce


def _slots(cls: type, until: type | None = None) -> Iterator[tuple[str, Any]]:
    """The slots of a class and its bases that were written in Python, with their descriptors."""
    for each in mro(cls):
        if each is until:
            return
        if "__slots__" in each.__dict__:
            for name, value in each.__dict__.items():
                if type(value) is MemberDescriptorType and value.__objclass__ is each:
                    yield name, value


def names_of(obj: object) -> dict[str, Any] | None:
    """An instance's `__dict__`, whatever its class says about that."""
    for cls in mro(type(obj)):
        descriptor: Any = cls.__dict__.get("__dict__")
        if isinstance(descriptor, (GetSetDescriptorType, MemberDescriptorType)):
            return descriptor.__get__(obj)  # type: ignore[no-any-return]  # it is the instance's dict
    return None


def attributes(obj: object, until: type | None = None) -> dict[str, Any]:
    """What an instance has in its `__dict__` and its slots (but for slots of `until` and its bases)."""
    held = dict(names_of(obj) or {})
    for name, slot in _slots(type(obj), until):
        try:
            held[name] = slot.__get__(obj)
        except AttributeError:  # not set
            continue
    return held


# --- load -----------------------------------------------------------------------------------------


def bare(cls: type, *args: Any) -> Any:
    """An instance without contents and attributes; of an immutable type, with its value."""
    base: Any = base_of(cls)
    if base is collections.deque:
        obj: Any = base.__new__(cls)
        base.__init__(obj, (), *args)
        return obj
    obj = base.__new__(cls, *args)
    if base is bytearray:
        base.__init__(obj, *args)
    return obj


def fill(obj: Any, state: State) -> None:
    items, values, names, held = state
    base = base_of(type(obj))
    if base is not None:
        put = BASES[base].fill
        try:
            put(obj, items, values)
        except Exception:  # of an element that can't say its hash before it is complete
            loading().finish.append(lambda: put(obj, items, values))
    set_attributes(obj, names, held)


def set_attributes(obj: Any, names: tuple[str, ...], values: tuple[Any, ...]) -> None:
    slots = dict(reversed(list(_slots(type(obj)))))
    held = names_of(obj)
    for name, value in zip(names, values, strict=True):
        if name in slots:
            slots[name].__set__(obj, value)
        elif held is not None:
            held[sys.intern(name)] = value
