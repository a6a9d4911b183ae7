"""Classes: by name where their module can be imported and holds them, by value otherwise.

A class by value is made in two steps, because its methods' cells, its registry or a method's default may lead
back to it: first a skeleton (name, bases, slots), then its attributes. There is one per load, so `isinstance`
holds between everything that came with it, and it never mixes with a class of the same name in this process.

The skeleton is made by the builtin metaclass under the user's (`type`, `ABCMeta`), never by the user's own
`__new__`, and without `__init_subclass__` of its bases and `__set_name__` of its attributes: all that ran
when the class was written, and its results are among the attributes.

Enum members are part of their class: they exist with the skeleton, and a member elsewhere in the state is
that member.

This file must not know how functions travel.
"""

from __future__ import annotations

import abc
import collections
import enum
import sys
import types
import typing
from collections.abc import Callable
from types import GetSetDescriptorType, MemberDescriptorType, MethodDescriptorType, WrapperDescriptorType
from typing import Any, TypeAlias

from snaprt.frames import awaitables
from snaprt.state import anchors, iterators, modules
from snaprt.state.functions import attribute
from snaprt.state.reducers import Reduced, reducer
from snaprt.state.sessions import Call, Dumping, loading

_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement, or an extension that imitates one

# Types of the interpreter that have no name of their own where they say they have.
_NAMELESS: dict[type, str] = {}
for _name, _value in vars(types).items():
    if isinstance(_value, type):
        _NAMELESS.setdefault(_value, _name)


_HIDDEN: dict[str, type] = {
    "deque_reverse_iterator": type(reversed(collections.deque())),
    "dict_keys": type({}.keys()),
    "dict_values": type({}.values()),
    "dict_items": type({}.items()),
    "callable_iterator": type(iter(int, 1)),
    "list_iterator": type(iter([])),
    "list_reverseiterator": type(reversed([])),
    "tuple_iterator": type(iter(())),
    "range_iterator": type(iter(range(0))),
    "set_iterator": type(iter(set())),
    "str_iterator": type(iter("")),
    "coroutine_wrapper": awaitables.WRAPPER,
    **{cls.__name__: cls for cls in iterators.KINDS},
}
_NAMELESS.update((cls, name) for name, cls in _HIDDEN.items())


def named(cls: type) -> bool:
    """Whether another process finds this very class under its module and qualified name."""
    module = cls.__module__
    if module == "builtins" or modules.importable(module):
        try:
            return attribute(sys.modules[module], cls.__qualname__) is cls
        except AttributeError:
            return False
    return False


_elsewhere: list[Callable[[type], Reduced]] = []
_finishing: list[Callable[[type], None]] = []


def elsewhere(find: Callable[[type], Reduced]) -> Callable[[type], Reduced]:
    """Registers the decorated function, which may say how a class that has no name is found again."""
    _elsewhere.append(find)
    return find


def finishing(finish: Callable[[type], None]) -> Callable[[type], None]:
    """Registers the decorated function, which is told of every class that was made by value."""
    _finishing.append(finish)
    return finish


@reducer(type, subclasses=True)
def reduce_class(cls: type, dumping: Dumping) -> Reduced:
    if named(cls):
        return NotImplemented
    for find in _elsewhere:
        if (found := find(cls)) is not NotImplemented:
            return found
    if cls in _NAMELESS:
        return nameless, (_NAMELESS[cls],)
    if not written_in_python(cls):
        return NotImplemented  # pickle says that it can't be found
    place = dumping.anchor(cls)
    if place is not None:
        return anchors.resolve, place
    return by_value(cls, dumping)


def written_in_python(cls: type) -> bool:
    """Whether a class statement made it, or what does as much."""
    if not cls.__flags__ & _HEAP_TYPE:
        return False
    # An extension's type has methods of C that say that they are its own.
    return not any(
        type(value) in (WrapperDescriptorType, MethodDescriptorType) and value.__objclass__ is cls
        for value in cls.__dict__.values()
    )


def can_travel(cls: type) -> bool:
    """Whether a class, if nothing else says how, travels by its name or by value."""
    return named(cls) or cls in _NAMELESS or written_in_python(cls)


def nameless(name: str) -> Any:
    return _HIDDEN.get(name) or getattr(types, name)


# --- by value --------------------------------------------------------------------------------------

# Made anew with the skeleton, or set at the end.
_NOT_CARRIED = frozenset(
    {"__dict__", "__weakref__", "_abc_impl", "__abstractmethods__", "__slots__", "__module__", "__qualname__"}
)


# From 3.14 on a class keeps a function that gives its annotations, and whose closure is the class's namespace
# with everything in it. Their values travel instead.
_ANNOTATIONS = frozenset({"__annotate_func__", "__annotations_cache__"})


def by_value(cls: type, dumping: Dumping) -> Reduced:
    own: dict[str, Any] = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
    slots: Any = cls.__dict__.get("__slots__")
    if slots is not None:
        own["__slots__"] = slots if isinstance(slots, (str, dict)) else tuple(slots)
    if type(cls.__dict__.get("__class__")) is property:
        own["__class__"] = Call(property)  # it can't be set later, but can be filled
    members = _members(cls) if isinstance(cls, enum.EnumType) else None
    dumping.classes[id(cls)] = cls
    made = (type(cls), cls.__name__, _bases(cls), own, members)
    return make_class, made, _state(cls), None, None, fill_class


def _bases(cls: type) -> tuple[Any, ...]:
    # `Generic` and `Protocol` stand in `__bases__` as the classes that `__orig_bases__` was resolved to.
    return cls.__bases__


def _state(cls: Any) -> dict[str, Any]:
    carried = {}
    for name, value in cls.__dict__.items():
        if name in _NOT_CARRIED or name in _ANNOTATIONS:
            continue
        if type(value) in (MemberDescriptorType, GetSetDescriptorType) and value.__objclass__ is cls:
            continue  # of a slot: the skeleton has it
        carried[name] = value
    if any(name in cls.__dict__ for name in _ANNOTATIONS):
        carried["__annotations__"] = _annotations(cls)
    state: dict[str, Any] = {"attributes": carried}
    if "__abstractmethods__" in cls.__dict__:
        state["abstract"] = sorted(cls.__dict__["__abstractmethods__"])
        registered = _registered(cls)
        if registered:
            state["registered"] = registered
    if isinstance(cls, enum.EnumType):
        # Combinations of flags are made again when they are asked for, which the class must be complete for.
        by_name = cls._member_map_
        carried["_value2member_map_"] = {
            value: member
            for value, member in cls._value2member_map_.items()
            if by_name.get(member._name_) is member
        }
        state["members"] = [(name, dict(vars(m))) for name, m in cls._member_map_.items() if m._name_ == name]
    return state


def _annotations(cls: Any) -> dict[str, Any]:
    """Annotations as they evaluate; as they are written if a name isn't there yet."""
    from annotationlib import Format, get_annotations  # type: ignore[import-not-found]  # from 3.14 on

    try:
        return dict(get_annotations(cls, format=Format.VALUE))
    except NameError:
        return dict(get_annotations(cls, format=Format.STRING))


def _registered(cls: Any) -> list[type]:
    """Classes registered with an ABC as its virtual subclasses."""
    try:
        references = abc._get_dump(cls)[0]  # type: ignore[attr-defined]  # the only way to ask an ABC
    except TypeError:
        return []
    return [found for found in (reference() for reference in references) if found is not None]


class _Quiet:
    """Stands before the bases while a skeleton is made, so that their `__init_subclass__` isn't called."""

    __slots__ = ()

    def __init_subclass__(cls, **arguments: Any) -> None:
        pass


class _QuietWithDict:
    """The same for bases whose instances have a `__dict__`, since only like can be exchanged for like."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        pass


def _quietly(make: Any, meta: type, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> Any:
    set_bases = type.__dict__["__bases__"].__set__
    try:
        cls = make(meta, name, (_Quiet, *bases), dict(namespace))
        set_bases(cls, bases)
    except TypeError:
        cls = make(meta, name, (_QuietWithDict, *bases), dict(namespace))
        set_bases(cls, bases)
    return cls


def make_class(
    meta: type, name: str, bases: tuple[type, ...], own: dict[str, Any], members: list[Any] | None
) -> type:
    """The skeleton; or the class of that name, where the load joins a namespace that has it."""
    here = _joined(own)
    if here is not None:
        return here
    builder = next(base for base in meta.__mro__ if base in (type, abc.ABCMeta))
    quiet = any("__init_subclass__" in b.__dict__ for base in bases for b in base.__mro__ if b is not object)
    namespace = dict(own)
    qualname = namespace.pop("__qualname__")
    cls: Any = (
        _quietly(builder.__new__, meta, name, bases, namespace)
        if quiet
        else builder.__new__(meta, name, bases, namespace)
    )
    type.__setattr__(cls, "__qualname__", qualname)
    if "__slots__" not in own:
        # What the class statement put there (a docstring, say) comes with the attributes.
        for left in ("__doc__",):
            if cls.__dict__.get(left) is not None:
                type.__delattr__(cls, left)
    if members is not None:
        type.__setattr__(cls, "_member_map_", {})
        for member, base, value in members:
            made: Any = base.__new__(cls, *value)
            made._name_ = member
            cls._member_map_[member] = made
    return cls  # type: ignore[no-any-return]  # what a metaclass makes is a type


def _joined(own: dict[str, Any]) -> type | None:
    load = loading()
    namespace = load.joining.get(own["__module__"])
    found = _in_module(namespace, own["__module__"], own["__qualname__"]) if namespace is not None else None
    if found is not None:
        load.joined.add(id(found))
    return found


def _in_module(namespace: dict[str, Any], module: str, qualname: str) -> type | None:
    """The class of that module that its namespace has under that name, or held before it was restored."""
    first, *rest = qualname.split(".")
    found = namespace.get(first)
    for name in rest:
        found = found.__dict__.get(name) if isinstance(found, type) else None
    if isinstance(found, type) and found.__module__ == module:
        return found
    held: type | None = namespace.get(modules.HELD, {}).get(qualname)
    return held


Held: TypeAlias = "tuple[tuple[Call, tuple[tuple[str, type], ...]], ...]"


def held(dumping: Dumping) -> Held:
    """For each namespace in the dump, the classes in the dump that it has under their names.

    Of a namespace only those globals travel that code reads. A class may come another way (as the type of a
    field, say); without its name, what is dumped apart from this state would bring a second one of it.
    """
    found = []
    for namespace, call in dumping.namespaces.values():
        name = namespace.get("__name__")
        mine = tuple(
            (cls.__qualname__, cls)
            for cls in dumping.classes.values()
            if cls.__module__ == name and _in_module(namespace, name, cls.__qualname__) is cls
        )
        if mine:
            found.append((call, mine))
    return tuple(found)


def hold(held: Any) -> None:
    """Have the namespaces of a load hold those classes (`held`)."""
    for namespace, mine in held:
        for name, cls in mine:
            if _in_module(namespace, cls.__module__, name) is None:
                namespace.setdefault(modules.HELD, {})[name] = cls


def fill_class(cls: Any, state: dict[str, Any]) -> None:
    load = loading()
    if id(cls) in load.joined:
        return
    namespace = load.joining.get(cls.__module__)
    if namespace is not None and "<locals>" not in cls.__qualname__:
        # The next load that joins finds this one.
        held = namespace if "." not in cls.__qualname__ else namespace.setdefault(modules.HELD, {})
        held.setdefault(cls.__qualname__, cls)
    members = getattr(cls, "_member_map_", None) if "members" in state else None
    for name, value in state["attributes"].items():
        if members is not None and name == "_member_map_":
            continue
        if name == "__class__":
            cls.__dict__[name].__init__(value.fget, value.fset, value.fdel, value.__doc__)
        else:
            type.__setattr__(cls, name, value)
    if members is not None:
        for name, names in state["members"]:
            members[name].__dict__.update(names)
        aliases = state["attributes"].get("_member_map_", {})
        members.update((name, member) for name, member in aliases.items() if name not in members)
    if "abstract" in state:
        type.__setattr__(cls, "__abstractmethods__", frozenset(state["abstract"]))
        for registered in state.get("registered", ()):
            abc.ABCMeta.register(cls, registered)
    for finish in _finishing:
        finish(cls)


# --- enums ----------------------------------------------------------------------------------------

# What may lie under an enum's members, and how one is made of a member: by the type's own `__new__`.
_DATA: dict[type, Any] = {
    int: lambda m: (int.__int__(m),),
    str: lambda m: (str.__str__(m),),
    float: lambda m: (float.__float__(m),),
    bytes: lambda m: (bytes.__bytes__(m) if hasattr(bytes, "__bytes__") else b"".join((m,)),),
    complex: lambda m: (m.real, m.imag),
    tuple: lambda m: (tuple(tuple.__iter__(m)),),
    frozenset: lambda m: (frozenset(frozenset.__iter__(m)),),
}


def _members(cls: Any) -> list[tuple[str, type, tuple[Any, ...]]]:
    """For each member that isn't an alias: its name, and what makes the bare object."""
    members = []
    for name, member in cls.__members__.items():
        if member.name != name:
            continue
        base = next((b for b in cls.__mro__ if b in _DATA or b is object), object)
        members.append((name, base, _DATA[base](member) if base in _DATA else ()))
    return members


@reducer(enum.Enum, subclasses=True)
def reduce_member(member: Any, dumping: Dumping) -> Reduced:
    cls = type(member)
    if named(cls):
        return NotImplemented
    name = member._name_
    if name is not None and cls._member_map_.get(name) is member:
        return enum_member, (cls, name)
    return enum_value, (cls, member._value_)


def enum_member(cls: Any, name: str) -> Any:
    return cls._member_map_[name]


def enum_value(cls: Any, value: Any) -> Any:
    """A combination of flags, which is made when it is first asked for."""
    return cls(value)


# --- type variables -------------------------------------------------------------------------------


@reducer(typing.TypeVar)
@reducer(typing.ParamSpec)
@reducer(typing.TypeVarTuple)
def reduce_type_variable(var: Any, dumping: Dumping) -> Reduced:
    module = getattr(var, "__module__", None)
    if module is not None and _in_its_module(var):
        return NotImplemented
    options: dict[str, Any] = {}
    if not isinstance(var, typing.TypeVarTuple):
        options = {
            key: value
            for key, value in (
                ("bound", var.__bound__),
                ("covariant", var.__covariant__),
                ("contravariant", var.__contravariant__),
                ("infer_variance", getattr(var, "__infer_variance__", False)),
            )
            if value
        }
    constraints = getattr(var, "__constraints__", ())
    if hasattr(var, "has_default") and var.has_default():
        options["default"] = var.__default__
    return type_variable, (type(var), var.__name__, constraints, options, module)


def type_variable(
    kind: Any, name: str, constraints: tuple[Any, ...], options: dict[str, Any], module: Any
) -> Any:
    var = kind(name, *constraints, **options)
    if module is not None:
        var.__module__ = module
    return var


@reducer(typing.NewType)
def reduce_new_type(kind: Any, dumping: Dumping) -> Reduced:
    if _in_its_module(kind):
        return NotImplemented
    names = kind.__module__, kind.__qualname__
    return new_type, (kind.__name__, kind.__supertype__), names, None, None, put_names


def new_type(name: str, supertype: Any) -> Any:
    return typing.NewType(name, supertype)


def put_names(kind: Any, names: tuple[str, str]) -> None:
    kind.__module__, kind.__qualname__ = names


def reduce_type_alias(alias: Any, dumping: Dumping) -> Reduced:
    if _in_its_module(alias):
        return NotImplemented
    return type_alias, (alias.__name__, alias.__value__, alias.__type_params__)


def type_alias(name: str, value: Any, parameters: tuple[Any, ...]) -> Any:
    make: Any = typing.TypeAliasType  # type: ignore[attr-defined]  # from 3.12 on
    return make(name, value, type_params=parameters)


if sys.version_info >= (3, 12):
    reducer(typing.TypeAliasType)(reduce_type_alias)


def _in_its_module(kind: Any) -> bool:
    name = kind.__module__
    return modules.importable(name) and sys.modules[name].__dict__.get(kind.__name__) is kind
