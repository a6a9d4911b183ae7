"""Which modules another process can import, and how the namespace of one that it can't is carried.

A module is **by reference** if `import name` gives it from anywhere; what it defines then travels as its
name. `__main__`, a script loaded from a path, a notebook and `exec`'d source are **by value**: their code
travels with the state, and with it a namespace of the globals that this code reads by name, and no others
(a client that only unrelated code uses must not be refused).

A restored namespace belongs to its load: two loads in one process don't mix, and neither touches a module
that happens to have the same name. Functions and classes of one namespace share one dict, which is filled
as more code of it is met.

This file must not know how a function or class is reduced.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import opcode
import re
import sys
import sysconfig
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any, TypeGuard

from snaprt.errors import CodeChanged
from snaprt.frames.codes import ByCode
from snaprt.state.sessions import Call, Dumping, loading

MARK = "__snaprt_by_value__"
"""Set in a module's dict by whoever loads a script that can't be imported by name."""

HELD = "__snaprt_held__"
"""In a restored namespace: by qualified name, the classes that the module held, though no code that came with
the state reads them by name. They aren't globals here, but they are who they were."""

_importable: dict[str, tuple[ModuleType, bool]] = {}


def names_in(module: object) -> dict[str, Any]:
    """What lies in the dict of whatever `sys.modules` holds, which is empty if it has none.

    Without asking the object: a lazy module would import itself, and anything may raise.
    """
    if type(module) is ModuleType:
        return module.__dict__
    try:
        names = (ModuleType if issubclass(type(module), ModuleType) else object).__getattribute__(
            module, "__dict__"
        )
    except Exception:
        return {}
    return names if type(names) is dict else {}


def is_plain(module: object) -> TypeGuard[ModuleType]:
    """Whether it is a module whose attributes are what lies in its dict; a lazy one isn't yet."""
    cls = type(module)
    return cls is ModuleType or (
        issubclass(cls, ModuleType) and cls.__getattribute__ is ModuleType.__getattribute__
    )


def by_value(module: ModuleType) -> ModuleType:
    """Marks a module as one whose code travels with the state (the CLI does for `path/to/file.py`)."""
    module.__dict__[MARK] = True
    return module


def importable(name: object) -> TypeGuard[str]:
    """Whether `import name` in another process gives this process's module of that name."""
    module = sys.modules.get(name) if type(name) is str else None
    if module is None:
        return False
    assert type(name) is str  # for mypy, which doesn't follow the line above
    known = _importable.get(name)
    if known is None or known[0] is not module:
        _importable[name] = (module, False)  # for a spec that leads back here
        _importable[name] = known = (module, _is_importable(name, module))
    return known[1] and MARK not in names_in(module)


_library: dict[str, tuple[ModuleType, bool]] = {}


def is_library(module: ModuleType) -> bool:
    """Whether the module comes with Python or an installed package, so that its globals seldom change."""
    name = names_in(module).get("__name__")
    if type(name) is not str:
        return _is_library(module)
    known = _library.get(name)
    if known is None or known[0] is not module:
        _library[name] = known = (module, _is_library(module))
    return known[1]


def _is_library(module: ModuleType) -> bool:
    spec: Any = names_in(module).get("__spec__")
    origin = spec.origin if issubclass(type(spec), ModuleSpec) else None
    return (
        not isinstance(origin, str)
        or origin.startswith(_library_paths())
        or _INSTALLED.search(origin) is not None
    )


# Packages needn't lie where this interpreter installs its own: those of the system below a virtual
# environment, of the user (`pip --user`), of Debian, of a `.pth`.
_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]")


@functools.cache
def _library_paths() -> tuple[str, ...]:
    places = [sysconfig.get_path(p) for p in ("stdlib", "platstdlib", "purelib", "platlib")]
    here = __file__.rpartition("snaprt")[0]
    return (*{p.rstrip("/\\") + "/" for p in places if p}, "built-in", "frozen", f"{here}snaprt/")


def owner(namespace: dict[str, Any]) -> str | None:
    """The name of the importable module whose globals these are, or None if they go by value."""
    name = namespace.get("__name__")
    if not importable(name):
        return None
    return name if names_in(sys.modules[name]) is namespace else None


def home(code: CodeType) -> dict[str, Any] | None:
    """The globals of the importable module from whose file the code comes.

    (A finished frame has let go of its own.)
    """
    name = _by_file(code.co_filename)
    return names_in(sys.modules[name]) if importable(name) else None


@functools.lru_cache(maxsize=512)
def _by_file(filename: str) -> str | None:
    for name, module in list(sys.modules.items()):
        if names_in(module).get("__file__") == filename and importable(name):
            return name
    return None


def _is_importable(name: str, module: ModuleType) -> bool:
    spec = names_in(module).get("__spec__")
    if spec is not None and not issubclass(type(spec), ModuleSpec):
        return False  # whoever made this up knows what it means
    if name == "__main__" or name.startswith("<") or spec is None or spec.loader is None:
        # Modules that a package makes up at its import (`six.moves`) have no file, but come with it.
        parent = name.rpartition(".")[0]
        return bool(parent) and name != "__main__" and spec is None and importable(parent)
    if spec.name != name:
        return name in sys.modules and importable(spec.name)  # `os.path` is `posixpath`
    if is_library(module):
        return True
    found = _find(name)
    return found is not None and getattr(found, "origin", None) == spec.origin


def _find(name: str) -> Any:
    # importlib.util.find_spec gives back the spec of what is loaded; here the question is what would be.
    parent = name.rpartition(".")[0]
    path = names_in(sys.modules.get(parent)).get("__path__") if parent else None
    if parent and path is None:
        return None
    for finder in sys.meta_path:
        try:
            spec = finder.find_spec(name, path)
        except Exception:
            continue
        if spec is not None:
            return spec
    return None


# --- the names that code reads ---------------------------------------------------------------------

_NAME_OPS = {
    opcode.opmap[op]: shift
    for op, shift in (("LOAD_GLOBAL", 1), ("LOAD_NAME", 0), ("LOAD_FROM_DICT_OR_GLOBALS", 0))
    if op in opcode.opmap
}
_EXTENDED = opcode.EXTENDED_ARG


_names: ByCode[frozenset[str]] = ByCode()


def globals_read(code: CodeType) -> frozenset[str]:
    """The globals that `code`, or code nested in it, looks up by name."""
    known = _names.get(code)
    if known is not None:
        return known
    names: set[str] = set()
    raw = code.co_code
    high = 0
    for at in range(0, len(raw), 2):
        op, arg = raw[at], raw[at + 1] | high
        high = arg << 8 if op == _EXTENDED else 0
        if op in _NAME_OPS:
            names.add(code.co_names[arg >> _NAME_OPS[op]])
    for const in code.co_consts:
        if isinstance(const, CodeType):
            names |= globals_read(const)
    return _names.put(code, frozenset(names))


# --- carrying a namespace --------------------------------------------------------------------------

# What `import` statements and tracebacks inside the code need, whether or not it names them.
_ALWAYS = ("__name__", "__package__", "__file__", "__doc__")


def reference(namespace: dict[str, Any], dumping: Dumping) -> Call:
    """What stands in the stream for a module's globals."""
    name = owner(namespace)
    if name is not None:
        return dumping.call(("globals", name), globals_of, name)
    key = ("namespace", id(namespace))
    if not dumping.known(key):
        dumping.keep(namespace)
        plain = {k: namespace[k] for k in _ALWAYS if isinstance(namespace.get(k), str)}
        dumping.sent[id(namespace)] = set(plain)
        call = dumping.call(key, new_namespace, plain)
        dumping.namespaces[id(namespace)] = namespace, call
        return call
    return dumping.call(key, new_namespace)


def unsent(namespace: dict[str, Any], code: CodeType, dumping: Dumping) -> dict[str, Any] | None:
    """The globals that `code` reads and that aren't in the stream yet; None for an importable module."""
    sent = dumping.sent.get(id(namespace))
    if sent is None:
        return None
    names = [name for name in globals_read(code) if name not in sent and name in namespace]
    inner = {name: module for name, module in _submodules(code, namespace).items() if name not in sent}
    if not names and not inner:
        return None
    sent.update(names)
    sent.update(inner)
    # Sorted, because a set's order changes with the hash seed and equal states should give equal bytes.
    found = {name: namespace[name] for name in sorted(names) if name != "__builtins__"}
    return found | {name: inner[name] for name in sorted(inner)}


def _submodules(code: CodeType, namespace: dict[str, Any]) -> dict[str, ModuleType]:
    """The submodules that `code` may reach through a package among its globals.

    `import urllib.request` leaves nothing but `urllib` behind, so what travels of it is the package alone.
    Which submodules were meant can't be told from bytecode; those that are loaded, and whose names the code
    has, are imported again with it. (cloudpickle's rule.) They stand under their dotted names, as no global
    does.
    """
    packages = [
        name
        for name in globals_read(code)
        if issubclass(type(namespace.get(name)), ModuleType) and "__path__" in names_in(namespace[name])
    ]
    if not packages:
        return {}
    mentioned = _all_names(code)
    found = {}
    for name in packages:
        prefix = f"{names_in(namespace[name]).get('__name__')}."
        for dotted, module in list(sys.modules.items()):
            meant = dotted.startswith(prefix) and all(
                part in mentioned for part in dotted[len(prefix) :].split(".")
            )
            if meant and issubclass(type(module), ModuleType) and importable(dotted):
                found[dotted] = module
    return found


def _all_names(code: CodeType) -> frozenset[str]:
    """Every name in `code` and in code nested in it, attributes included."""
    known = _mentioned.get(code)
    if known is not None:
        return known
    names = set(code.co_names)
    for const in code.co_consts:
        if isinstance(const, CodeType):
            names |= _all_names(const)
    return _mentioned.put(code, frozenset(names))


_mentioned: ByCode[frozenset[str]] = ByCode()


def import_module(name: str) -> ModuleType:
    """The module, imported if need be; CodeChanged if there is none here."""
    module = sys.modules.get(name)
    if module is not None:
        return module
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise CodeChanged(
            f"the state needs module {name!r}, which can't be imported here ({error}); install it, or start "
            "from where it can be imported"
        ) from error


def globals_of(name: str) -> dict[str, Any]:
    return import_module(name).__dict__


def new_namespace(plain: dict[str, str]) -> dict[str, Any]:
    """The globals of a by-value module: those that this load joins, else new ones with its names only."""
    here = loading().joining.get(plain.get("__name__", "__main__"))
    if here is not None:
        return here
    module = ModuleType(plain.get("__name__", "__main__"))
    namespace = module.__dict__
    namespace.pop("__spec__", None)
    namespace.pop("__loader__", None)
    namespace.update(plain)
    namespace["__builtins__"] = builtins
    namespace[MARK] = True
    loading().modules.append(module)
    return namespace


def module_of(namespace: dict[str, Any]) -> ModuleType:
    """The module whose globals these are: of this load, or imported."""
    for module in loading().modules:
        if module.__dict__ is namespace:
            return module
    return sys.modules[namespace["__name__"]]


def reduce_module(module: ModuleType, dumping: Dumping) -> Any:
    name = names_in(module).get("__name__")
    if importable(name) and sys.modules[name] is module:
        return import_module, (name,)
    for alias, other in list(sys.modules.items()):
        if other is module and importable(alias):
            return import_module, (alias,)
    if type(module) is not ModuleType:
        return NotImplemented  # its class may say how it travels
    made = module_of, (reference(module.__dict__, dumping),)
    sent = dumping.sent.get(id(module.__dict__), set())
    rest = {name: value for name, value in carried(module).items() if name not in sent}
    sent.update(rest)
    return (*made, rest, None, None, fill_module) if rest else made


# Made anew with the module, or of the process that made it.
_NOT_CARRIED = frozenset({"__builtins__", "__cached__", "__loader__", "__spec__", MARK, HELD})


def carried(module: ModuleType) -> dict[str, Any]:
    """What travels of a module by value that is in the state itself: any of its names may be asked for."""
    return {name: value for name, value in names_in(module).items() if name not in _NOT_CARRIED}


def fill_module(module: ModuleType, names: dict[str, Any]) -> None:
    for name, value in names.items():
        module.__dict__.setdefault(name, value)
