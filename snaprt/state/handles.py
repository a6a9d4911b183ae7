"""The register of handle kinds: what can't travel, and what its owner can do about it.

Neither the C pickler nor dill can be left to decide what may be saved: both accept live things (dill
reopens files by name at position 0, the C pickler takes asyncio primitives bound to a foreign loop).
So the pickler asks `refuse(obj)` for everything that isn't an exact plain builtin, and this register
answers with the kind of handle it is, or None. It knows types only; how they are reached, and what
the refusal reads like, is `paths`. The built-in kinds stand in `standard_kinds` and `package_kinds`.

How the hard part works. A kind names its types either as type objects or as `"module:Qualified.Name"`.
Names are never imported: they match a class that says it was defined there, or, once that module is
loaded by somebody else, whatever the module holds under that name (a re-export). The answer for a type
is worked out once along its MRO and kept by the type's id beside a weak reference that forgets it when
the type dies, because agents that define classes in functions would otherwise leak one per run. Only
kinds with a `when` look at the object itself.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from snaprt.errors import NotCapturable
from snaprt.state.kinds import Kind
from snaprt.state.package_kinds import PACKAGES
from snaprt.state.standard_kinds import STANDARD


@dataclass(frozen=True)
class Offender:
    """One thing in a state that can't travel: where it hangs, what it is, and the mend.

    All fields are text, so that a refusal raised inside an agent can itself be saved.
    """

    path: str
    what: str
    hint: str
    kind: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


class NotNow(NotCapturable):
    """An object whose type travels, and which itself can't as it stands: a reducer says so."""

    def __init__(self, kind: Kind, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


# Kinds that no type alone gives away: whoever walks or pickles finds them, and reports them as these.
WEAK_REFERENCE = Kind(
    "weak reference to something outside the state",
    (weakref.ref,),
    "keep its target in the agent's state too, or drop the weak reference before the await",
)
CONTEXT_TOKEN = Kind(
    "context variable token of another context",
    ("_contextvars:Token",),
    "reset it before the await, in the context that made it",
)
UNPICKLABLE = Kind(
    "object that can't be pickled",
    (object,),
    "take the plain values you need out of it before the await, make it a module global, "
    "or declare it with @snaprt.resource",
)

_by_type: dict[type, list[Kind]] = {}
_by_name: dict[str, list[Kind]] = {}
_likes: list[Kind] = []
_unresolved: dict[str, dict[str, list[Kind]]] = {}  # module -> qualname -> kinds
_allowed: weakref.WeakSet[type] = weakref.WeakSet()

_answers: dict[int, tuple[Kind, ...]] = {}
_watches: dict[int, weakref.ref[type]] = {}
_lock = threading.RLock()  # a kind's `like` is user code, and may ask the register itself


def register(kind: Kind) -> Kind:
    """Adds a kind to the register. The kinds registered last are asked first."""
    with _lock:
        for entry in kind.types:
            if isinstance(entry, type):
                _by_type.setdefault(entry, []).insert(0, kind)
            else:
                module, _, qualname = entry.partition(":")
                _by_name.setdefault(entry, []).insert(0, kind)
                _unresolved.setdefault(module, {}).setdefault(qualname, []).insert(0, kind)
        if kind.like is not None:
            _likes.insert(0, kind)
        _forget_answers()
    return kind


def unregister(kind: Kind) -> None:
    """Takes a kind out again (for tests, and for users who know better than a built-in kind)."""
    with _lock:
        qualnames = [kinds for names in _unresolved.values() for kinds in names.values()]
        for kinds in (*_by_type.values(), *_by_name.values(), *qualnames, _likes):
            while kind in kinds:
                kinds.remove(kind)
        _forget_answers()


def register_handle(
    handle: type | str, *, hint: str, when: Callable[[Any], bool] | None = None, name: str | None = None
) -> Kind:
    """Declares a type of yours (or `"module:qualname"` of one that needn't be loaded) a handle.

    From then on state that holds one is refused with the path to it and `hint`. `when(obj)` limits it
    to objects that are live now.
    """
    if name is None:
        name = handle if isinstance(handle, str) else f"{handle.__module__}.{handle.__qualname__}"
    return register(Kind(name, (handle,), hint, when))


def allow(cls: type) -> type:
    """Exempts a class and its subclasses: something else (a reducer) knows how they travel.

    The kernel allows its loop, tasks and futures so. Along an MRO the class nearest to the object
    decides: a kind registered for a subclass of an allowed class still counts. What is bound to a loop
    of an allowed class isn't "of another loop".
    """
    with _lock:
        _allowed.add(cls)
        _forget_answers()
    return cls


def disallow(cls: type) -> None:
    """Ends an exemption made by `allow`."""
    with _lock:
        _allowed.discard(cls)
        _forget_answers()


def allowed(cls: type) -> bool:
    """Whether the class, or one it derives from, is exempt."""
    return any(base in _allowed for base in _mro(cls))


def refuse(obj: object) -> Kind | None:
    """The kind of handle that `obj` is, or None if as far as the register knows it may travel."""
    cls = type(obj)
    kinds = _answers.get(id(cls))
    if kinds is None:
        kinds = _classify(cls)
    for kind in kinds:
        if (not kind.of_other_loop or foreign_loop(obj)) and kind.holds(obj):
            return kind
    return None


def registered() -> list[Kind]:
    """Every kind in the register, in no promised order."""
    seen: dict[int, Kind] = {}
    for kinds in (*_by_type.values(), *_by_name.values(), _likes):
        seen.update((id(kind), kind) for kind in kinds)
    return list(seen.values())


def foreign_loop(obj: Any) -> bool:
    """Whether `obj` is bound to an event loop that isn't an allowed one."""
    loop = getattr(obj, "_loop", None)
    return loop is not None and not allowed(type(loop))


def type_name(cls: type) -> str:
    """The name a person knows the class by: `socket.socket`, not `_socket.socket`."""
    module, name = str(cls.__module__), cls.__qualname__
    if module == "builtins":
        return name
    spoken = _SPOKEN.get(f"{module}.{name}")
    if spoken:
        return spoken
    public = _PUBLIC.get(module, module)
    # A nested or re-exported name must stay findable: only modules whose public twin holds it are renamed.
    return f"{public}.{name}"


_PUBLIC = {
    "_io": "io",
    "_ssl": "ssl",
    "_csv": "csv",
    "_queue": "queue",
    "_ctypes": "ctypes",
    "_hashlib": "hashlib",
    "_blake2": "hashlib",
    "_sre": "re",
    "_bz2": "bz2",
    "_lzma": "lzma",
    "_struct": "struct",
    "_asyncio": "asyncio",
    "_contextvars": "contextvars",
    "posix": "os",
    "nt": "os",
}
_SPOKEN = {
    "_thread.lock": "threading.Lock",
    "_thread.RLock": "threading.RLock",
    "_thread._local": "threading.local",
    "_sre.SRE_Scanner": "re.Scanner",
}


def _classify(cls: type) -> tuple[Kind, ...]:
    with _lock:
        _resolve_names()
        found: list[Kind] = []
        exempt = False
        for base in _mro(cls):
            if base in _allowed:
                exempt = True
                break
            found += _by_type.get(base, ())
            found += _by_name.get(f"{base.__module__}:{base.__qualname__}", ())
        if not exempt:
            found += (kind for kind in _likes if _is_like(kind, cls))
        answer = tuple(dict.fromkeys(found))
        key = id(cls)

        # A class can't die unnoticed, so an id is never taken for that of another class.
        def forget(_: object) -> None:
            _answers.pop(key, None)
            _watches.pop(key, None)

        _watches[key] = weakref.ref(cls, forget)
        _answers[key] = answer
    return answer


def _is_like(kind: Kind, cls: type) -> bool:
    if kind.like is None:
        return False
    try:
        return bool(kind.like(cls))
    except Exception:
        return True


def _mro(cls: type) -> Iterable[type]:
    return type.__dict__["__mro__"].__get__(cls)  # type: ignore[no-any-return]  # an untyped slot; a metaclass may lie


def _resolve_names() -> None:
    """Finds the classes behind names whose modules are loaded by now."""
    fresh = False
    for module in [name for name in _unresolved if name in sys.modules]:
        names = _unresolved[module]
        # A module in the middle of its import lacks some names: those are tried again.
        for qualname in list(names):
            found: Any = sys.modules[module]
            for part in qualname.split("."):
                # Not getattr: a lazy module would import what nobody asked for.
                found = getattr(found, "__dict__", {}).get(part)
            if isinstance(found, type):
                kinds = _by_type.setdefault(found, [])
                kinds[:0] = [kind for kind in names.pop(qualname) if kind not in kinds]
                fresh = True
    if fresh:
        _forget_answers()


def _forget_answers() -> None:
    _answers.clear()
    _watches.clear()


for _kind in (*STANDARD, *PACKAGES):
    register(_kind)
