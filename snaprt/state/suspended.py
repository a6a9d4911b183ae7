"""Coroutines, generators and async generators, and the awaitables between them.

A frame is met as a shell: what makes an object in the same position without its values. The values are
written later, from the dump's queue (see `pickling`), and the frame is primed at the end of the load. So
frames may be part of any cycle, and of a chain of any length.

This file must not know how a frame is read or rebuilt (`snaprt.frames` does).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Iterable
from itertools import chain
from types import (
    AsyncGeneratorType,
    CodeType,
    CoroutineType,
    FunctionType,
    GeneratorType,
    ModuleType,
    TracebackType,
)
from typing import Any

from snaprt import frames
from snaprt.frames import awaitables
from snaprt.state import anchors, exceptions, modules
from snaprt.state import code as codes
from snaprt.state.functions import fill_namespace
from snaprt.state.handles import refuse
from snaprt.state.reducers import Reduced, reducer
from snaprt.state.sessions import Dumping, code_name, loading


@reducer(CoroutineType)
@reducer(GeneratorType)
@reducer(AsyncGeneratorType)
def reduce_frame(obj: Any, dumping: Dumping) -> Reduced:
    frozen = frames.freeze(obj)
    code, namespace = frozen.code, frozen.globals
    if frozen.shell.status == "finished":
        namespace = modules.home(code) or namespace
    finalizer = frozen.finalizer
    if finalizer is not None and not _travels(finalizer, dumping):
        finalizer = None
    if frozen.shell.status != "finished":
        dumping.unfilled.append((obj, without_tracebacks(frozen.values, dumping), frozen.handled, finalizer))
    made = (frozen.shell, codes.reference(code, namespace, dumping), modules.reference(namespace, dumping))
    unsent = modules.unsent(namespace, code, dumping)
    if unsent is None:
        return make_frame, made
    return make_frame, made, (made[2], unsent), None, None, _fill_namespace


def without_tracebacks(values: tuple[Any, ...], dumping: Dumping | None = None) -> tuple[Any, ...]:
    """The values of a frame without the tracebacks that exits of `with` blocks are handed.

    A traceback can't be rebuilt, and every `__aexit__(self, kind, error, tb)` that awaits has one in a local;
    its text travels with the exception, and None stands in its place, or the group's stand-in where it comes
    with a group (and there is a dump). Anywhere else a traceback is a handle like any other.
    """
    triples = [value for value in values if type(value) is tuple and len(value) == 3]
    if TracebackType not in map(type, values) and not any(type(each[2]) is TracebackType for each in triples):
        return values
    grouped = any(issubclass(type(value), BaseExceptionGroup) for value in chain(values, *triples))

    def exchanged(value: Any) -> Any:
        if type(value) is TracebackType:
            return exceptions.stand_in(value, dumping) if grouped and dumping is not None else None
        if type(value) is tuple and len(value) == 3 and type(value[2]) is TracebackType:
            return (*value[:2], exchanged(value[2]))
        return value

    return tuple(map(exchanged, values))


def _travels(finalizer: Any, dumping: Dumping) -> bool:
    """Whether a loop's finalizer belongs to a loop that is known by name where the state is loaded."""
    loop = getattr(finalizer, "__self__", None)
    return not isinstance(loop, asyncio.AbstractEventLoop) or id(loop) in dumping.named


@reducer(frames.Shell)
def reduce_shell(shell: frames.Shell, dumping: Dumping) -> Reduced:
    return frames.Shell, tuple(shell)


def make_frame(shell: frames.Shell, code: CodeType, namespace: dict[str, Any]) -> Any:
    load = loading()
    load.require_same_interpreter(code_name(code))
    made = frames.make(shell, code, namespace)
    load.frames.append(made)
    return made


def _fill_namespace(obj: Any, state: tuple[dict[str, Any], dict[str, Any]]) -> None:
    fill_namespace(*state)


def reduce_awaitable(obj: Any, dumping: Dumping) -> Reduced:
    """`coroutine_wrapper`, `async_generator_asend` and the like, which show nothing of what they hold."""
    return frames.take_apart(obj)


reducer(awaitables.WRAPPER)(reduce_awaitable)
reducer(awaitables.ASEND)(reduce_awaitable)
reducer(awaitables.ATHROW)(reduce_awaitable)
reducer(awaitables.ANEXT)(reduce_awaitable)


# --- context managers of contextlib, which hold a frame ---------------------------------------------


@reducer(contextlib._GeneratorContextManager)
@reducer(contextlib._AsyncGeneratorContextManager)
def reduce_context_manager(manager: Any, dumping: Dumping) -> Reduced:
    # Its __init__ would call the function again; what it is made of lies in its attributes.
    return object.__new__, (type(manager),), dict(vars(manager)), None, None, set_vars


def set_vars(obj: Any, names: dict[str, Any]) -> None:
    obj.__dict__.update(names)


# --- which frames a state holds --------------------------------------------------------------------

_STOP = (ModuleType, CodeType)


def held_frames(*roots: Any, outside: Iterable[object] = ()) -> list[Any]:
    """The frames that hang off the roots and would be dumped with them, the roots themselves included.

    With them each `asend`, `athrow` and `aclose`, which would else complain that it was never awaited.

    Not those behind what is a module's own (its classes, functions and other globals), behind handles, or
    behind the objects in `outside`. The walk follows what the garbage collector sees, so it finds the
    generators inside context managers, iterators, closures and classes made in functions too.
    """
    seen = {id(obj) for obj in outside}
    waiting = list(roots)
    found = []
    anchors.index.refresh()
    while waiting:
        obj = waiting.pop()
        cls = type(obj)
        if id(obj) in seen or not gc.is_tracked(obj):
            continue
        seen.add(id(obj))
        # `isinstance` would ask the object, and a dead proxy raises.
        if issubclass(cls, _STOP) or _of_module(obj, cls):
            continue
        if cls in FRAMES:
            found.append(obj)
            seen.add(id(_globals_of(obj)))
        elif cls in awaitables.ASYNC_GENERATOR_AWAITABLES:
            found.append(obj)
        elif cls is FunctionType:
            waiting += [obj.__closure__, obj.__defaults__, obj.__kwdefaults__, obj.__dict__]
            continue
        elif cls not in _PLAIN and refuse(obj) is not None:
            continue
        waiting += gc.get_referents(obj)
    return found


def _of_module(obj: object, cls: type) -> bool:
    """Whether it is a module's own, so that it stays there when a run is let go of."""
    index = anchors.index
    if issubclass(cls, (type, FunctionType)) and anchors.is_named(obj):
        return True
    return (
        index.instance(obj) is not None or index.container(obj) is not None or index.anchored(obj) is not None
    )


FRAMES = (CoroutineType, GeneratorType, AsyncGeneratorType)
_PLAIN = frozenset({dict, list, tuple, set, frozenset})


def _globals_of(frame: Any) -> Any:
    for referent in gc.get_referents(frame):
        if type(referent) is FunctionType:
            return referent.__globals__
    return None
