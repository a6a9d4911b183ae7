"""Objects that belong to an importable module, and travel as the place where they hang.

Module globals aren't state: an instance or container that is a global of an importable module is written as
`module` and `name`, and is that module's own object again after the restore. A *place* is a module with a
path of steps; for a plain global it is one attribute.

Two indexes from ids to places are kept for that. The instances' is asked by the pickler for whatever isn't
an exact builtin. Exact dicts, lists, sets and bytearrays never reach a reducer, so the containers' index
goes into the pickler's memo beforehand (`pickling` tells how). Both are kept from dump to dump: modules of
the user are looked through again at every dump for globals that were bound anew, modules of packages and
the standard library when a module was loaded. (What a package binds later travels by value until then.)

An object that several modules hold, as `from m import x` has it, has several places. They are kept in the
order in which they were found, for one dump a module's before those of what imports it, and the first is
used whose module still holds that very object under that name.

**Anchored** objects hang deeper: frameworks keep closures and dynamically made classes in tools and
registries of a global (`module:agent.tools['look'].function`). Finding them means walking everything that
globals reach, so that index is built only after a dump failed for something that can't be pickled, and then
covers functions, classes and instances whose own state refuses to travel; what it helped with is remembered
for the next dump. A key, and more so a position in a list, may lead to something else in other code, so such
a place comes with a *mark* of what hung there, and a load refuses if it isn't that.

This file must not know the pickler.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import pathlib
import re
import sys
import threading
import types
import typing
import uuid
from importlib.machinery import ModuleSpec
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from snaprt.errors import CodeChanged
from snaprt.state import marks, modules
from snaprt.state.marks import Place, Step
from snaprt.state.sessions import loading
from snaprt.state.walks import SKIPPED, Entry, walk

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
    """What was found in one module: its globals, by name, as ids."""

    __slots__ = ("containers", "instances", "module", "spec", "user", "values")

    def __init__(self, module: ModuleType, user: bool) -> None:
        self.module = module
        self.user = user
        self.spec: Any = None
        self.values: list[int] = []
        self.instances: dict[str, int] = {}
        self.containers: dict[str, int] = {}


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
        self._further: dict[int, list[tuple[str, str]]] = {}
        """By id: the places of an instance but for the first, which stands in `instances`."""
        self._further_containers: dict[int, list[tuple[str, str]]] = {}
        self._modules: dict[str, _Module] = {}
        self._users: list[tuple[str, _Module]] = []
        self._unready: list[ModuleType] = []
        self._loaded: tuple[int, Any, int] = (0, None, 0)
        self.lock = threading.RLock()
        """Held by a dump as long as it lasts: it relies on what it found at its beginning."""

    def refresh(self, *, full: bool = False) -> None:
        """Brings both indexes up to date, as far as the module's opening says."""
        with self.lock:
            if full or _loaded() != self._loaded or any(map(modules.is_plain, self._unready)):
                self._look_for_modules()
            loaded = sys.modules
            for name, found in self._users:
                if loaded.get(name) is not found.module:
                    return self.refresh(full=True)
                if list(map(id, found.module.__dict__.values())) != found.values:
                    self._read(name, found)

    def instance(self, obj: object) -> tuple[str, str] | None:
        """Where `obj` is a global, if it is one now."""
        place = self.instances.get(id(obj))
        if place is None:
            return None
        module = sys.modules.get(place[0])
        if type(module) is ModuleType and module.__dict__.get(place[1]) is obj:
            return place
        return _held(obj, [place, *self._further.get(id(obj), ())])

    def container(self, obj: object) -> tuple[str, str] | None:
        """The same for a container."""
        held = self.containers.get(id(obj))
        if held is None:
            return None
        return _held(obj, [held[1:], *self._further_containers.get(id(obj), ())])

    def anchored(self, obj: object) -> Place | None:
        """The place of an anchored object that an earlier dump needed."""
        known = self.known.get(id(obj))
        if known is None:
            return None
        if known[0] is obj and _leads(known[1], obj):
            return marks.marked(known[1], obj)
        del self.known[id(obj)]
        # It may hang elsewhere too; to carry it along would make another one of it.
        return hanging(obj) if known[0] is obj else None

    def roots(self, *, user: bool) -> list[Entry]:
        """The globals of the user's modules, or of the others, with their places."""
        return [
            (value, None, (name, key))
            for name, found in self._modules.items()
            if found.user is user
            for key, value in list(found.module.__dict__.items())
            if type(value) not in SKIPPED
        ]

    def _look_for_modules(self) -> None:
        self._loaded = _loaded()
        here = dict(sys.modules)
        for name in [n for n, m in self._modules.items() if here.get(n) is not m.module]:
            self._forget(name, self._modules.pop(name))
        self._unready = []
        for name, module in here.items():
            known = self._modules.get(name)
            if known is None:
                if type(module) is not ModuleType and not modules.is_plain(module):
                    if issubclass(type(module), ModuleType):
                        self._unready.append(module)
                    continue
                if not modules.importable(name):
                    continue
                known = self._modules[name] = _Module(module, not modules.is_library(module))
                self._read(name, known)
            elif not known.user and len(module.__dict__) != len(known.values):
                self._read(name, known)
        self._users = [(n, m) for n, m in self._modules.items() if m.user]

    def _forget(self, name: str, found: _Module) -> None:
        for key, at in found.instances.items():
            _drop(at, (name, key), self.instances, self._further)
        for key, at in found.containers.items():
            self._drop_container(at, (name, key))
        self._read_spec(name, found, None)

    def _read(self, name: str, found: _Module) -> None:
        """Notes what changed since the module was read: a place that stays keeps its rank among others."""
        namespace = found.module.__dict__
        found.values = list(map(id, namespace.values()))
        instances: dict[str, int] = {}
        containers: dict[str, int] = {}
        new: list[tuple[str, int]] = []
        new_containers: list[tuple[str, Any]] = []
        for key, value in [("__dict__", namespace), *namespace.items()]:
            cls = type(value)
            if cls in CONTAINERS:
                if key != "__builtins__":
                    containers[key] = at = id(value)
                    if found.containers.get(key) != at:
                        new_containers.append((key, value))
            elif cls not in _NO_ANCHOR and not issubclass(cls, (type, enum.Enum)):
                instances[key] = at = id(value)
                if found.instances.get(key) != at:
                    new.append((key, at))
        found.instances, before = instances, found.instances
        for key, at in before.items():
            if instances.get(key) != at:
                _drop(at, (name, key), self.instances, self._further)
        for key, at in new:
            place = (name, key)
            if self.instances.setdefault(at, place) is not place:
                self._further.setdefault(at, []).append(place)
        # No container's id can be another's by now: this index holds it.
        found.containers, before = containers, found.containers
        for key, at in before.items():
            if containers.get(key) != at:
                self._drop_container(at, (name, key))
        for key, value in new_containers:
            self._add_container(value, name, key, package=not found.user)
        self._read_spec(name, found, namespace.get("__spec__"))

    def _read_spec(self, name: str, found: _Module, spec: Any) -> None:
        # A module may have another's spec, as a copy of it has: a namespace is told by a spec of its own.
        if found.user or type(spec) is not ModuleSpec or spec.name != name:
            spec = None
        if spec is found.spec or (found.spec is None and id(spec) in self.specs):
            return
        namespace = found.module.__dict__
        if found.spec is not None:
            del self.specs[id(found.spec)]
            self.unseeded.discard(id(namespace))
        found.spec = spec if id(spec) not in self.specs else None
        if found.spec is not None:
            self.specs[id(spec)] = (namespace, name)
            self.unseeded.add(id(namespace))
        self.version += 1

    def _add_container(self, obj: Any, name: str, key: str, *, package: bool) -> None:
        first = self.containers.get(id(obj))
        if first is not None and (key != "__dict__" or first[2] == "__dict__"):
            self._further_containers.setdefault(id(obj), []).append((name, key))
            return
        if first is not None:  # a namespace is first of all its own module's
            self._further_containers.setdefault(id(obj), []).insert(0, first[1:])
        self.containers[id(obj)] = (obj, name, key)
        self.version += 1
        if package and key in _ABOUT:
            self.unseeded.add(id(obj))

    def _drop_container(self, at: int, place: tuple[str, str]) -> None:
        obj, *here = self.containers[at]
        first = {at: (here[0], here[1])}
        _drop(at, place, first, self._further_containers)
        if at in first:
            self.containers[at] = (obj, *first[at])
        else:
            del self.containers[at]
            self.unseeded.discard(at)
            self.version += 1


def _held(obj: object, places: list[tuple[str, str]]) -> tuple[str, str] | None:
    """The first of these places where the object is now, or where else one of their modules has it."""
    for place in places:
        if holds(*place, obj):
            return place
    # To give a global another name needn't change the values of a module, by which it is looked through.
    for module in dict.fromkeys(module for module, _ in places):
        for name, value in list(modules.names_in(sys.modules.get(module)).items()):
            if value is obj and holds(module, name, obj):
                return module, name
    return None


def _drop(
    at: int,
    place: tuple[str, str],
    first: dict[int, tuple[str, str]],
    further: dict[int, list[tuple[str, str]]],
) -> None:
    """Forgets one of the places of what has this id; the one after the first takes the first's stead."""
    others = further.get(at, [])
    if first.get(at) != place:
        if place in others:
            others.remove(place)
    elif others:
        first[at] = others.pop(0)
    else:
        del first[at]
    if not others:
        further.pop(at, None)


def _loaded() -> tuple[int, Any, int]:
    """What changes when a module is loaded: how many there are, and the newest."""
    name: Any = next(reversed(sys.modules), None)
    return len(sys.modules), name, id(sys.modules.get(name))


def holds(module: str, name: str, obj: object) -> bool:
    """Whether the module has that very object under that name, or as its namespace."""
    holder = sys.modules.get(module)
    if not modules.is_plain(holder):
        return False
    return obj is (holder.__dict__ if name == "__dict__" else holder.__dict__.get(name))


index = Index()


def follow(module: str, steps: tuple[Step, ...]) -> Any:
    """What hangs there now."""
    found: Any = modules.import_module(module)
    for kind, step in steps:
        found = _slot(found, step) if kind == "." else found[step]
    return found


def resolve(module: str, steps: tuple[Step, ...], mark: str | None = None) -> Any:
    """`follow`, for a state that is being loaded: CodeChanged if nothing hangs there, or something else."""
    try:
        found = follow(module, steps)
    except (AttributeError, LookupError, TypeError):
        raise CodeChanged(
            f"{spell(module, steps)} is in the state, but nothing is there now; bring it back to go on"
        ) from None
    if mark is not None and (now := marks.mark(module, steps, found)) != mark:
        what = spell(module, steps)
        if type(found) is FunctionType:
            loading().require_same_interpreter(what)
        raise CodeChanged(
            f"{what} isn't what it was when the state was saved: that was {mark}, and there is now "
            f"{now or repr(found)}; bring it back to go on"
        )
    return found


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
# Packages are looked through once, and not as far: what matters of them hangs off objects of the user.
_LIBRARY_DEPTH = 4
_library: tuple[int, dict[int, Entry]] = (0, {})


class Hanging:
    """The deep index: where what hangs off the globals of importable modules hangs.

    Of modules of the user, and after `look_into_packages()` those of packages too.
    """

    def __init__(self) -> None:
        index.refresh(full=True)
        self._maps = [walk(index.roots(user=True), _DEPTH)]

    def look_into_packages(self) -> None:
        global _library
        if len(self._maps) == 1:
            if _library[0] != len(sys.modules):
                _library = (len(sys.modules), walk(index.roots(user=False), _LIBRARY_DEPTH))
            self._maps.append(_library[1])

    def place(self, obj: object) -> Place | None:
        """Where `obj` hangs now, or None."""
        for found in self._maps:
            entry = found.get(id(obj))
            if entry is not None and entry[0] is obj:
                place = _place(entry)
                if _leads(place, obj):
                    return marks.marked(place, obj)
        return None


def _place(entry: Entry) -> Place:
    steps: list[Step] = []
    while entry[1] is not None:
        steps.append(entry[2])
        entry = entry[1]
    module, name = entry[2]
    return module, ((".", name), *reversed(steps))


def _leads(place: Place, obj: object) -> bool:
    try:
        return follow(*place[:2]) is obj
    except Exception:  # a property on the way may raise anything
        return False


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


def lives_elsewhere(obj: Any) -> bool:
    """Whether `obj` is held by a module in any process, so that a weak reference to it stays alive."""
    cls = type(obj)  # `isinstance` would ask the object, and a dead proxy raises
    if index.instance(obj) is not None or issubclass(cls, ModuleType):
        return True
    return issubclass(cls, (type, FunctionType)) and modules.importable(obj.__module__) and is_named(obj)


def is_named(obj: Any) -> bool:
    """Whether a class or function is what its module, importable or not, holds under its name."""
    found: Any = sys.modules.get(obj.__module__)
    try:
        for name in obj.__qualname__.split("."):
            found = getattr(found, name, None)
    except Exception:  # the module, or a class on the way, may have a `__getattr__`
        return False
    return found is obj
