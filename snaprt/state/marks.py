"""Places where objects hang below a module's global, and the marks that tell what hung there.

A name keeps its meaning when code changes, a key less so, and a position in a list least: what is at
`module:HANDLERS[0]` may be another function after somebody put one before it. A place is written with a mark
of its object, and a load compares it with that of what it finds. Marks are text that stands in states: what
makes one may not change without a thought for those that are saved.

This file must not know how an object's place is found.
"""

from __future__ import annotations

import contextlib
import dis
import hashlib
import sys
from contextvars import ContextVar
from types import FunctionType
from typing import Any, TypeAlias

from snaprt import frames
from snaprt.state import modules

Step = tuple[str, Any]  # ("." attribute) or ("[" key)
# With a mark where it takes one.
Place: TypeAlias = "tuple[str, tuple[Step, ...]] | tuple[str, tuple[Step, ...], str]"


def marked(place: Place, obj: object) -> Place:
    """The place with what a load needs to tell `obj` from others that may hang there in other code."""
    module, steps = place[:2]
    found = mark(module, steps, obj)
    return (module, steps) if found is None else (module, steps, found)


def mark(module: str, steps: tuple[Step, ...], obj: object) -> str | None:
    """What is known of an object besides its place; None where a name says it all.

    A function has the digest of its code, unless a package keeps it under a name. Other things have a name of
    their own behind a key. A position says least: there, what tells a function from others that were made
    alike counts too.
    """
    keyed = any(kind == "[" for kind, _ in steps)
    ordered = any(kind == "[" and type(step) is int for kind, step in steps)
    if type(obj) is FunctionType:
        holder = sys.modules.get(module)
        if not keyed and holder is not None and modules.is_library(holder):
            return None
        digest = frames.code_digest(obj.__code__)
        return f"function {digest} {_bound(obj)}".rstrip() if ordered else f"function {digest}"
    if not keyed:
        return None
    if issubclass(type(obj), type):
        return f"class {type.__dict__['__qualname__'].__get__(obj)}"
    name = f" named {obj.name}" if type(obj) is ContextVar else ""
    return f"a {type(obj).__qualname__}{name}"


_TOLD = (str, bytes, int, float, bool)


def _bound(function: FunctionType) -> str:
    """A digest of what a function was made with and doesn't rebind: text, numbers, functions and classes."""
    code = function.__code__
    rebound = {each.argval for each in dis.get_instructions(code) if each.opname in _REBINDS}
    values: list[tuple[str, Any]] = []
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        if name not in rebound:
            with contextlib.suppress(ValueError):
                values.append((name, cell.cell_contents))
    values += [("", value) for value in function.__defaults__ or ()]
    values += (function.__kwdefaults__ or {}).items()
    told = []
    for name, value in values:
        if type(value) in _TOLD:
            told.append(f"{name}={value!r}")
        elif type(value) is FunctionType or issubclass(type(value), type):
            told.append(f"{name}={value.__module__}.{value.__qualname__}")
    return hashlib.blake2b("\n".join(told).encode(), digest_size=8).hexdigest() if told else ""


_REBINDS = frozenset({"STORE_DEREF", "DELETE_DEREF"})
