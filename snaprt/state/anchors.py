"""Objects that belong to an importable module, and travel as the place where they hang.

Module globals aren't state: an instance or container that is a global of an importable module is written as
`module` and `name`, and is that module's own object again after the restore. A *place* is a module with a
path of steps; for a plain global it is one attribute.

Two indexes from ids to places are kept for that. The instances' is asked by the pickler for whatever isn't
an exact builtin. Exact dicts, lists, sets and bytearrays never reach a reducer, so the containers' index
goes into the pickler's memo beforehand (`pickling` tells how). Both are kept from dump to dump: modules of
the user are looked through again at every dump for globals that were bound anew, modules of packages and
the standard library when the number of loaded modules changed. A hit is only used if the module still holds
that very object under that name.

**Anchored** objects hang deeper: frameworks keep closures and dynamically made classes in tools and
registries of a global (`module:agent.tools['look'].function`). Finding them means walking everything that
globals reach, so that index is built only after a dump failed for something that can't be pickled, and then
covers functions, classes and instances whose own state refuses to travel; what it helped with is remembered
for the next dump.

This file must not know the pickler.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import enum
import fractions
import functools
import pathlib
import re
import sys
import threading
import types
import typing
import uuid
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, TypeAlias

from snaprt.errors import CodeChanged
from snaprt.state import modules

Step = tuple[str, Any]  # ("." attribute) or ("[" key)
Place = tuple[str, tuple[Step, ...]]

CONTAINERS = (dict, list, set, bytearray)

# What is equal wherever it is made, so that being somebody's global says nothing about it. Patterns, for
# one, come from a cache: the agent's own may well be the very object of some library.
_VALUES: tuple[type, ...] = (
    type(None), bool, int, float, complex, str, bytes, tuple, frozenset, range, slice,
    type(Ellipsis), type(NotImplemented),
    FunctionType, BuiltinFunctionType, MethodType, ModuleType,
    types.GenericAlias, types.UnionType, type(typing.List[int]), type(typing.Optional[int]),  # noqa: UP006, UP045
    re.Pattern, decimal.Decimal, fractions.Fraction, uuid.UUID,
    datetime.datetime, datetime.date, datetime.time, datetime.timedelta, datetime.timezone,
    pathlib.PurePath, pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.PosixPath, pathlib.WindowsPath,
    staticmethod, classmethod, property,
)  # fmt: skip
_NO_ANCHOR = frozenset(_VALUES)
# What a module says about itself, equal wherever it is made.
_ABOUT = frozenset({"__all__", "__annotations__"})


class _Module:
    """What was found in one module."""

    __slots__ = ("containers", "instances", "module", "spec", "user", "values")

    def __init__(self, module: ModuleType, user: bool) -> None:
        self.module = module
        self.user = user
        self.spec: Any = None
        self.values: list[int] = []
        self.instances: list[int] = []
        self.containers: list[int] = []


class Index:
    """The globals of the importable modules of this process, by id."""

    def __init__(self) -> None:
        self.instances: dict[int, tuple[str, str]] = {}
        self.containers: dict[int, tuple[Any, str, str]] = {}
        self.unseeded: set[int] = set()
        """Of the containers, by id, those of packages that hardly any state holds, and that are many: the
        namespaces, which are told by the spec in them, and texts about a module."""
        self.specs: dict[int, tuple[dict[str, Any], str]] = {}
        """By id: the specs in those namespaces, with the namespace and its module's name."""
        self.version = 0  # changes whenever `containers` does
        self.known: dict[int, tuple[Any, Place]] = {}
        """Anchored objects that a dump needed; asked first, so that the next dump needn't fail before."""
        self._modules: dict[str, _Module] = {}
        self._users: list[tuple[str, _Module]] = []
        self._loaded: tuple[int, Any] = (0, None)
        self.lock = threading.RLock()
        """Held by a dump as long as it lasts: it relies on what it found at its beginning."""

    def refresh(self, *, full: bool = False) -> None:
        """Brings both indexes up to date, as far as the module's opening says."""
        with self.lock:
            if full or _loaded() != self._loaded:
                self._look_for_modules()
            for name, found in self._users:
                if list(map(id, found.module.__dict__.values())) != found.values:
                    self._read(name, found)

    def instance(self, obj: object) -> tuple[str, str] | None:
        """Where `obj` is a global, if it is one now."""
        place = self.instances.get(id(obj))
        if place is None:
            return None
        module = sys.modules.get(place[0])
        return place if module is not None and module.__dict__.get(place[1]) is obj else None

    def anchored(self, obj: object) -> Place | None:
        """The place of an anchored object that an earlier dump needed."""
        known = self.known.get(id(obj))
        if known is None:
            return None
        if known[0] is obj and _leads(known[1], obj):
            return known[1]
        del self.known[id(obj)]
        return None

    def roots(self, *, user: bool) -> list[_Entry]:
        """The globals of the user's modules, or of the others, with their places."""
        return [
            (value, None, (name, key))
            for name, found in self._modules.items()
            if found.user is user
            for key, value in list(found.module.__dict__.items())
            if type(value) not in _SKIPPED
        ]

    def _look_for_modules(self) -> None:
        self._loaded = _loaded()
        here = dict(sys.modules)
        for name in [n for n, m in self._modules.items() if here.get(n) is not m.module]:
            self._forget(self._modules.pop(name))
        for name, module in here.items():
            known = self._modules.get(name)
            if known is None:
                if not isinstance(module, ModuleType) or not modules.importable(name):
                    continue
                known = self._modules[name] = _Module(module, not modules.is_library(module))
                self._read(name, known)
            elif not known.user and len(module.__dict__) != len(known.values):
                self._read(name, known)
        self._users = [(n, m) for n, m in self._modules.items() if m.user]

    def _forget(self, found: _Module) -> None:
        for key in found.instances:
            self.instances.pop(key, None)
        for key in found.containers:
            self.containers.pop(key, None)
            self.unseeded.discard(key)
        self.specs.pop(id(found.spec), None)
        if found.containers:
            self.version += 1
        found.instances, found.containers = [], []

    def _read(self, name: str, found: _Module) -> None:
        self._forget(found)
        namespace = found.module.__dict__
        found.values = list(map(id, namespace.values()))
        self.containers.setdefault(id(namespace), (namespace, name, "__dict__"))
        found.containers.append(id(namespace))
        found.spec = namespace.get("__spec__")
        if not found.user and type(found.spec) is ModuleSpec:
            self.specs[id(found.spec)] = (namespace, name)
            self.unseeded.add(id(namespace))
        for key, value in list(namespace.items()):
            cls = type(value)
            if cls in CONTAINERS:
                if key == "__builtins__":
                    continue
                self.containers.setdefault(id(value), (value, name, key))
                found.containers.append(id(value))
                if not found.user and key in _ABOUT:
                    self.unseeded.add(id(value))
            elif cls not in _NO_ANCHOR and not issubclass(cls, (type, enum.Enum)):
                self.instances.setdefault(id(value), (name, key))
                found.instances.append(id(value))
        if found.containers:
            self.version += 1


def _loaded() -> tuple[int, Any]:
    """What changes when a module is loaded: how many there are, and the newest."""
    return len(sys.modules), next(reversed(sys.modules), None)


index = Index()


def follow(module: str, steps: tuple[Step, ...]) -> Any:
    """What hangs there now."""
    found: Any = modules.import_module(module)
    for kind, step in steps:
        found = _slot(found, step) if kind == "." else found[step]
    return found


def resolve(module: str, steps: tuple[Step, ...]) -> Any:
    """`follow`, for a state that is being loaded: CodeChanged if nothing hangs there."""
    try:
        return follow(module, steps)
    except (AttributeError, LookupError, TypeError):
        raise CodeChanged(
            f"{spell(module, steps)} is in the state, but nothing is there now; bring it back to go on"
        ) from None


def global_(module: str, name: str) -> Any:
    """The global of that name; CodeChanged if the module has none."""
    namespace = modules.import_module(module).__dict__
    if name == "__dict__":
        return namespace
    if name not in namespace:
        raise CodeChanged(
            f"{module}:{name} is in the state, but {module} has no such global now; bring it back to go on"
        )
    return namespace[name]


def spell(module: str, steps: tuple[Step, ...]) -> str:
    """`module:agent.tools['look']`, as errors have it."""
    text = "".join(f".{step}" if kind == "." else f"[{step!r}]" for kind, step in steps)
    return f"{module}:{text.removeprefix('.')}"


def _slot(obj: Any, name: str) -> Any:
    # An instance's own attribute first: `getattr` may compute (a property), and then isn't the same twice.
    namespace = getattr(obj, "__dict__", None)
    if namespace is not None and name in namespace:
        return namespace[name]
    return getattr(obj, name)


# --- the deep index -------------------------------------------------------------------------------

_DEPTH = 12
_LIMIT = 100_000  # objects; a user's registries hold far fewer
# Packages are looked through once, and not as far: what matters of them hangs off objects of the user.
_LIBRARY_DEPTH = 4
# An object with where it hangs: off another entry by a step, or as the global that a place names.
_Entry: TypeAlias = "tuple[Any, _Entry | None, Any]"
_library: tuple[int, dict[int, _Entry]] = (0, {})


class Hanging:
    """The deep index: where what hangs off the globals of importable modules hangs.

    Breadth first, so that the shortest path wins; modules of the user, and after `look_into_packages()` those
    of packages too. Keys that aren't text or numbers aren't walked, for they would have to be found again in
    another process.
    """

    def __init__(self) -> None:
        index.refresh(full=True)
        self._maps = [_walk(index.roots(user=True), _DEPTH)]

    def look_into_packages(self) -> None:
        global _library
        if len(self._maps) == 1:
            if _library[0] != len(sys.modules):
                _library = (len(sys.modules), _walk(index.roots(user=False), _LIBRARY_DEPTH))
            self._maps.append(_library[1])

    def place(self, obj: object) -> Place | None:
        """Where `obj` hangs now, or None."""
        for found in self._maps:
            entry = found.get(id(obj))
            if entry is not None and entry[0] is obj:
                place = _place(entry)
                if _leads(place, obj):
                    return place
        return None


def _place(entry: _Entry) -> Place:
    steps: list[Step] = []
    while entry[1] is not None:
        steps.append(entry[2])
        entry = entry[1]
    module, name = entry[2]
    return module, ((".", name), *reversed(steps))


def _leads(place: Place, obj: object) -> bool:
    try:
        return follow(*place) is obj
    except (LookupError, AttributeError, TypeError, CodeChanged):
        return False


def _walk(waiting: list[_Entry], depth: int) -> dict[int, _Entry]:
    found: dict[int, _Entry] = {}
    slots: dict[type, list[tuple[str, Any]]] = {}
    for _ in range(depth):
        following: list[_Entry] = []
        for entry in waiting:
            obj, above, step = entry
            if id(obj) in found:
                continue
            if above is None and isinstance(obj, type) and obj.__module__ != step[0]:
                continue  # an import; its own module leads to it
            found[id(obj)] = entry
            if len(found) > _LIMIT:
                return found
            following += [
                (under, entry, to)
                for to, under in _branches(obj, type(obj), slots)
                if type(under) not in _SKIPPED
            ]
        if not following:
            break
        waiting = following
    return found


_SKIPPED = frozenset(
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
    if isinstance(obj, type):
        return [((".", k), v) for k, v in list(obj.__dict__.items()) if isinstance(v, (type, *CONTAINERS))]
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


_FORGOTTEN = 1000  # objects remembered to hang nowhere, before they are looked for again
_nowhere: dict[int, object] = {}


def hanging(obj: object) -> Place | None:
    """Where an object hangs that isn't a plain global; remembered, for the walk is slow."""
    place = index.anchored(obj)
    if place is None:
        if _nowhere.get(id(obj)) is obj:
            return None
        searched = Hanging()
        place = searched.place(obj)
        if place is None:
            searched.look_into_packages()
            place = searched.place(obj)
        if place is None:
            if len(_nowhere) >= _FORGOTTEN:
                _nowhere.clear()
            _nowhere[id(obj)] = obj
            return None
        index.known[id(obj)] = (obj, place)
    return place


def lasting(place: Place) -> bool:
    """Whether a handle at that place may be taken for its owner's fixture: reached by attributes alone, in a
    module of the user. Registries come and go by key, and packages keep loops and threads of the process."""
    module = sys.modules.get(place[0])
    return module is not None and not modules.is_library(module) and all(kind == "." for kind, _ in place[1])


def lives_elsewhere(obj: object) -> bool:
    """Whether `obj` is held by a module in any process, so that a weak reference to it stays alive."""
    if index.instance(obj) is not None or isinstance(obj, ModuleType):
        return True
    if isinstance(obj, (type, FunctionType)) and modules.importable(obj.__module__):
        found: Any = sys.modules[obj.__module__]
        for name in obj.__qualname__.split("."):
            found = getattr(found, name, None)
        return found is obj
    return False
