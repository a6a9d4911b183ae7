"""Code objects: by reference with a digest where a module holds them, by value where none can be imported.

The code of a function is found again through its module and qualified name, nested functions, lambdas and
comprehensions included: every code object that hangs off a live function of the module (through decorators'
closures, `__wrapped__`, properties, classes and constants of enclosing code) is listed under its
`co_qualname`. Where several share a name, as lambdas do, the digest picks one and their order decides among
equals. If no live function leads to it, the module's own code, as its loader gives it, does; if that doesn't
either (generated code), it travels by value.

What is found must have the digest that was saved: a frame's offset, and a closure's variables, mean nothing
to other code. Code by value is marshalled, so it loads only in the interpreter that saved it.

This file must not know about dumps beyond `Dumping.call`.
"""

from __future__ import annotations

import functools
import marshal
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from snaprt import frames
from snaprt.errors import CodeChanged, Damaged
from snaprt.frames.codes import ByCode
from snaprt.state import modules
from snaprt.state.sessions import Call, Dumping, code_name, loading


def reference(code: CodeType, namespace: dict[str, Any], dumping: Dumping) -> Call:
    """What stands in the stream for the code of a function or frame with these globals."""
    key = ("code", id(code))
    if dumping.known(key):
        return dumping.call(key, find)
    dumping.keep(code)
    owner = modules.owner(namespace)
    place = _place(code, owner) if owner is not None else None
    if place is not None:
        return dumping.call(key, find, owner, *place)
    return dumping.call(key, load, marshal.dumps(code), code_name(code))


def reduce_code(code: CodeType, dumping: Dumping) -> tuple[Any, ...]:
    """A code object that stands in the state itself: by value, since nothing says whose it is."""
    return load, (marshal.dumps(code), code_name(code))


def load(data: bytes, name: str) -> CodeType:
    loading().require_same_interpreter(name)
    code = marshal.loads(data)
    if not isinstance(code, CodeType):
        raise Damaged(f"the state holds no code where that of {name} should be")
    return code


def find(module: str, qualname: str, index: int, digest: str) -> CodeType:
    """The code object of that name and digest, or CodeChanged with both sides."""
    found = modules.import_module(module)
    closest: CodeType | None = None
    for listing in _listings(found):
        codes = listing.get(qualname, [])
        if index < len(codes) and frames.code_digest(codes[index]) == digest:
            return codes[index]
        for code in codes:
            if frames.code_digest(code) == digest:
                return code
        if closest is None and codes:
            closest = codes[min(index, len(codes) - 1)]
    what = f"{module}:{qualname}"
    if closest is None:
        raise CodeChanged(
            f"{what} is in the state, but {getattr(found, '__file__', None) or module} has no such function "
            "now; bring it back to go on"
        )
    loading().require_same_interpreter(what)
    raise CodeChanged(changed(what, closest, digest))


def changed(what: str, code: CodeType, digest: str) -> str:
    """The refusal's text for code that isn't what was saved."""
    return (
        f"{what} isn't the code that was saved: {code.co_filename}:{code.co_firstlineno} has digest "
        f"{frames.code_digest(code)}, the state was saved with {digest}; bring that version back to go on"
    )


# --- where a module keeps its code -----------------------------------------------------------------

_Listing = dict[str, list[CodeType]]

_places: ByCode[tuple[str, tuple[str, int, str]]] = ByCode()
_live: dict[str, tuple[ModuleType, list[int], _Listing]] = {}


def _place(code: CodeType, module: str) -> tuple[str, int, str] | None:
    known = _places.get(code)
    if known is not None and known[0] == module:
        return known[1]
    digest = frames.code_digest(code)
    for listing in _listings(sys.modules[module]):
        codes = listing.get(code.co_qualname, [])
        same = [i for i, other in enumerate(codes) if other is code]
        same += [i for i, other in enumerate(codes) if frames.code_digest(other) == digest]
        if same:
            place = (code.co_qualname, same[0], digest)
            _places.put(code, (module, place))
            return place
    return None


def _listings(module: ModuleType) -> Iterator[_Listing]:
    name = module.__name__
    state = list(map(id, module.__dict__.values()))
    known = _live.get(name)
    if known is None or known[0] is not module or known[1] != state:
        known = _live[name] = (module, state, _list_live(module))
    yield known[2]
    # A method set on a class after the listing was made is seen by a fresh one only.
    known = _live[name] = (module, state, _list_live(module))
    yield known[2]
    yield _list_source(module)


def _list_live(module: ModuleType) -> _Listing:
    listing: _Listing = {}
    seen: set[int] = set()
    namespace = module.__dict__
    # What the import system hangs there (a loader) may lead anywhere, and the module's own functions and
    # classes come before the objects among whose attributes there may be more: the search is bounded.
    values = [value for name, value in namespace.items() if not (name[:2] == name[-2:] == "__")]
    values.sort(key=lambda value: not issubclass(type(value), (FunctionType, type)))
    for function in _functions(values, namespace):
        _add(function.__code__, listing, seen)
    return listing


def _list_source(module: ModuleType) -> _Listing:
    """What the module's file defines, as far as its loader can tell without running it."""
    get_code = getattr(getattr(module.__spec__, "loader", None), "get_code", None)
    listing: _Listing = {}
    try:
        code = get_code(module.__name__) if get_code is not None else None
    except Exception:
        return listing
    if isinstance(code, CodeType):
        _add(code, listing, set())
    return listing


def _add(code: CodeType, listing: _Listing, seen: set[int]) -> None:
    waiting = [code]
    while waiting:
        code = waiting.pop()
        if id(code) in seen:
            continue
        seen.add(id(code))
        listing.setdefault(code.co_qualname, []).append(code)
        waiting += [const for const in reversed(code.co_consts) if isinstance(const, CodeType)]


_LIMIT = 20_000  # objects looked at for one module: a registry with more is found through its source


def _functions(roots: list[Any], namespace: dict[str, Any]) -> Iterator[FunctionType]:
    """The functions with these globals that hang off the roots, in a stable order."""
    waiting = roots[::-1]
    seen: set[int] = set()
    mine = namespace.get("__name__")
    while waiting and len(seen) < _LIMIT:
        obj = waiting.pop()
        if id(obj) in seen:
            continue
        seen.add(id(obj))
        cls = type(obj)
        if cls is FunctionType:
            if obj.__globals__ is namespace:
                yield obj
            for cell in obj.__closure__ or ():
                try:
                    waiting.append(cell.cell_contents)
                except ValueError:
                    continue
            waiting += obj.__dict__.values()
        elif issubclass(cls, type):  # `isinstance` would ask the object, and a dead proxy raises
            if obj.__module__ == mine:
                waiting += list(obj.__dict__.values())[::-1]
        elif cls is MethodType or cls is staticmethod or cls is classmethod:
            waiting.append(obj.__func__)
        elif cls is property:
            waiting += [obj.fget, obj.fset, obj.fdel]
        elif cls is functools.partial:
            waiting.append(obj.func)
        elif cls is dict:
            waiting += list(obj.values())[::-1]
        elif cls is list or cls is tuple:
            waiting += obj[::-1]
        elif cls.__module__ != "builtins" and not issubclass(cls, ModuleType):
            try:
                waiting += list(vars(obj).values())[::-1]
            except Exception:
                continue
