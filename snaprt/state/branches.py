"""What hangs off an object, and what a person calls each branch.

For the slow walk of `paths`: frames by their variables and stack, tasks and futures, exceptions, closures,
containers; the rest through its reduce value, as a pickler sees it, its parts named after the attributes they
come from. This file knows no handles beyond the kinds that only show when an object is taken apart, and
decides nothing: it yields steps and what they lead to.

A frame that is awaited by another, and the frame of a task, begin their path anew: where such a frame stands
says more than how it was reached. The steps that lead to them have an empty `joint`.
"""

from __future__ import annotations

import asyncio
import collections
import contextvars
import copyreg
import functools
import gc
import itertools
import os
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from snaprt import frames
from snaprt.state import caches, classes, contexts, modules, subclasses
from snaprt.state.handles import CONTEXT_TOKEN, UNPICKLABLE
from snaprt.state.kinds import Kind
from snaprt.state.operands import line_at, operand_names
from snaprt.state.resources import StandIn
from snaprt.state.suspended import without_tracebacks

Reduce = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Step:
    """One edge of a path. `joint` stands before `text`; a step without a parent begins the path."""

    parent: Step | None
    text: str
    joint: str = " → "
    task: str = ""

    def path(self) -> str:
        parts: list[str] = []
        step: Step | None = self
        while step is not None:
            if step.text:
                parts.append(step.text)
                if step.parent is not None:
                    parts.append(step.joint)
            step = step.parent
        return "".join(reversed(parts))


@dataclass(frozen=True, slots=True)
class Unpicklable:
    """In the place of children: the object itself can't be taken apart, and why."""

    kind: Kind
    reason: str


Branches = Iterator[tuple[Step, Any]]


def branches(step: Step, obj: Any, reduce: Reduce | None) -> Branches | Unpicklable:
    cls = type(obj)
    named = _BY_TYPE.get(cls)
    if named is not None:
        return named(step, obj)
    # type(obj), not isinstance: a stand-in answers isinstance as its handle would.
    if cls is StandIn:
        return _stand_in(step, obj)
    if frames.is_opaque(obj):
        return _opaque(step, obj)
    if issubclass(cls, BaseException):
        return _exception(step, obj)
    if issubclass(cls, (asyncio.Future, _PurePythonFuture)):
        return _future(step, obj)
    if issubclass(cls, asyncio.Handle):
        return _handle(step, obj)
    if issubclass(cls, type):
        if not classes.can_travel(obj):
            return Unpicklable(UNPICKLABLE, f"its module has no {obj.__qualname__}")
        return _class(step, obj)
    return _reduced(step, obj, reduce)


def _reduced(step: Step, obj: Any, reduce: Reduce | None) -> Branches | Unpicklable:
    value: Any = NotImplemented
    if reduce is not None:
        value = reduce(obj)
    if value is NotImplemented:
        dispatched = copyreg.dispatch_table.get(type(obj))
        if dispatched is not None:
            value = dispatched(obj)
        elif type(obj) in _REFERENTS_TELL:
            return iter([(Step(step, "what it iterates"), child) for child in gc.get_referents(obj)])
        else:
            try:
                value = obj.__reduce_ex__(4)
            except TypeError as error:
                kind = CONTEXT_TOKEN if type(obj) is contextvars.Token else UNPICKLABLE
                return Unpicklable(kind, said(error))
    if isinstance(value, str):
        return iter(())
    if not isinstance(value, tuple) or len(value) < 2:
        return Unpicklable(UNPICKLABLE, f"its reducer gives {value!r}, which is no reduce value")
    return _reduce_value(step, obj, value)


# --- frames and what runs in them --------------------------------------------------------------------

_PurePythonFuture: type = asyncio.futures._PyFuture  # type: ignore[attr-defined]  # the loop's futures derive from it


def _frame(step: Step, obj: Any) -> Branches:
    frozen = frames.freeze(obj)
    shell, code = frozen.shell, frozen.code
    line = line_at(code, shell.offset) if shell.status == "suspended" else code.co_firstlineno
    where = f"{short_path(code.co_filename)}:{line} in {shell.qualname}"
    at = Step(None if step.text == "state" or step.joint == "" else step, where)
    if step.joint == "":
        at = Step(None, f"{step.task}: {where}" if step.task else where, task=step.task)
    slots = list(_slots(code, shell.slots))
    held = without_tracebacks(frozen.values)
    local, stacked = held[: len(slots)], held[len(slots) :]
    depth = len(shell.stack)
    names = operand_names(code, shell.offset, depth) if depth else []
    texts = names or [f"value on the stack at line {line}"] * depth
    stack = [text for text, letter in zip(texts, shell.stack, strict=True) if letter == "v"]
    awaited = _awaited(stacked[-1]) if stack and not stack[-1].startswith("value of") else None
    if awaited is not None:
        # Before the variables, one of which may hold it too.
        yield Step(at, stack[-1], "", task=at.task), awaited
    for (name, cell, kind), value in zip(slots, local, strict=True):
        here = Step(at, f"{kind} {name!r}", ": ")
        if cell and isinstance(value, types.CellType):
            yield from _cell(here, value, own=True)
        else:
            yield here, value
    for text, value in zip(stack, stacked, strict=True):
        yield Step(at, text, ": "), value
    if frozen.handled is not None:
        yield Step(at, "exception being handled", ": "), frozen.handled
    for name, value in _globals(code, frozen.globals):
        yield Step(at, f"global {name!r}", ": "), value


def _awaited(value: Any) -> Any:
    """The frame that an awaited value is or hands on to, if it is one."""
    while value is not None and type(value) not in _FRAMES:
        value = frames.await_target(value)
    return value


def _slots(code: types.CodeType, bound: str) -> Iterator[tuple[str, bool, str]]:
    """Name, whether it is a cell's slot, and what to call it, for each bound slot in order."""
    if not bound:  # a finished frame has no slots
        return
    cells = [name for name in code.co_cellvars if name not in code.co_varnames]
    names = [(name, name in code.co_cellvars, "local") for name in code.co_varnames]
    names += [(name, True, "local") for name in cells]
    names += [(name, True, "closure variable") for name in code.co_freevars]
    for name, letter in zip(names, bound, strict=True):
        if letter == "v":
            yield name


def _task_name(task: Any) -> str:
    return f"task {task.get_name()!r}"


def _future(step: Step, obj: Any) -> Branches:
    """A task or future of the agent loop, also the C ones that the library itself makes."""
    at = step
    task = ""
    if hasattr(type(obj), "get_coro"):
        task = _task_name(obj)
        at = Step(None, task)
        yield Step(at, "coroutine", "", task=task), obj.get_coro()
        yield Step(at, "context"), getattr(obj, "_context", None)
        yield Step(at, "awaited future"), obj._fut_waiter
    yield Step(at, "result"), obj._result
    yield Step(at, "exception"), obj._exception
    for callback in obj._callbacks or ():
        yield Step(at, "callback"), callback[0]
        yield Step(at, "context of a callback"), callback[1]
    for name, value in getattr(obj, "__dict__", {}).items():
        if name not in _OF_FUTURES:
            yield Step(at, f".{name}"), value


# Said already, or made anew with the object.
_OF_FUTURES = frozenset(
    (
        *("_loop", "_coro", "_context", "_fut_waiter", "_result", "_exception", "_callbacks"),
        *("_source_traceback", "_exception_tb"),
    )
)


def _handle(step: Step, obj: Any) -> Branches:
    if obj._cancelled:
        return
    yield Step(step, "callback"), obj._callback
    for index, value in enumerate(obj._args or ()):
        yield Step(step, f"argument [{index}]"), value
    yield Step(step, "context"), obj._context


def _opaque(step: Step, obj: Any) -> Branches:
    """What stands between two frames has no name of its own: its parts go by the step that led to it."""
    for part in frames.take_apart(obj)[1]:
        yield Step(step.parent, step.text, step.joint, step.task), part


# --- data --------------------------------------------------------------------------------------------


def _mapping(step: Step, obj: Mapping[Any, Any]) -> Branches:
    for key, value in list(obj.items()):
        shown = f"[{_short(key)}]"
        yield Step(step, f"key {shown}"), key
        yield Step(step, shown), value


def _sequence(step: Step, obj: Any) -> Branches:
    for index, value in enumerate(list(obj)):
        yield Step(step, f"[{index}]"), value


def _set(step: Step, obj: Any) -> Branches:
    for value in list(obj):
        yield Step(step, "item of the set"), value


def _exception(step: Step, obj: BaseException) -> Branches:
    parts = obj.exceptions if isinstance(obj, BaseExceptionGroup) else ()
    for index, value in enumerate(parts):
        yield Step(step, f".exceptions → [{index}]"), value
    for index, value in enumerate(obj.args):
        if value is not parts and not (parts and isinstance(value, (list, tuple)) and index == 1):
            yield Step(step, f".args → [{index}]"), value
    for name, value in obj.__dict__.items():
        yield Step(step, f".{name}"), value
    yield Step(step, ".__cause__"), obj.__cause__
    yield Step(step, ".__context__"), obj.__context__
    if isinstance(obj, StopIteration):
        yield Step(step, ".value"), obj.value


def _context(step: Step, obj: contextvars.Context) -> Branches:
    for var, value in obj.items():
        yield Step(step, f"context variable {var.name!r}"), value


def _cell(step: Step, obj: types.CellType, *, own: bool = False) -> Branches:
    """A cell's content, as its variable if the step names one already."""
    try:
        content = obj.cell_contents
    except ValueError:  # not bound yet
        return
    yield (step if own else Step(step, "content of the cell")), content


def _function(step: Step, obj: types.FunctionType) -> Branches:
    for name, cell in zip(obj.__code__.co_freevars, obj.__closure__ or (), strict=True):
        yield from _cell(Step(step, f"closure variable {name!r}"), cell, own=True)
    positional = obj.__code__.co_varnames[: obj.__code__.co_argcount]
    defaults = obj.__defaults__ or ()
    for name, value in zip(positional[len(positional) - len(defaults) :], defaults, strict=True):
        yield Step(step, f"default of {name!r}"), value
    for name, value in (obj.__kwdefaults__ or {}).items():
        yield Step(step, f"default of {name!r}"), value
    if (annotate := getattr(obj, "__annotate__", None)) is not None:  # from 3.14 on
        yield Step(step, "its annotations"), annotate
    else:
        for name, value in obj.__annotations__.items():
            yield Step(step, f"annotation of {name!r}"), value
    for index, value in enumerate(getattr(obj, "__type_params__", ())):  # from 3.12 on
        yield Step(step, f".__type_params__ → [{index}]"), value
    for name, value in obj.__dict__.items():
        yield Step(step, f".{name}"), value
    for name, value in _globals(obj.__code__, obj.__globals__):
        yield Step(step, f"global {name!r}"), value


def _module(step: Step, obj: types.ModuleType) -> Branches:
    for name, value in modules.carried(obj).items():
        yield Step(step, f".{name}"), value


# Made anew with the class, or not carried as it stands.
_OF_CLASSES = frozenset(
    (
        *("__dict__", "__weakref__", "__module__", "__doc__", "_abc_impl"),
        *("__annotate_func__", "__annotations_cache__"),
    )
)


def _class(step: Step, obj: type) -> Branches:
    if type(obj) is not type:
        yield Step(step, "its metaclass"), type(obj)
    for index, base in enumerate(obj.__bases__):
        yield Step(step, f".__bases__ → [{index}]"), base
    for name, value in list(vars(obj).items()):
        if name not in _OF_CLASSES:
            yield Step(step, f".{name}"), value


def _alias(step: Step, obj: Any) -> Branches:
    """A type with arguments, or one of several types."""
    if hasattr(obj, "__origin__"):
        yield Step(step, ".__origin__"), obj.__origin__
    for index, value in enumerate(obj.__args__):
        yield Step(step, f".__args__ → [{index}]"), value


def _method(step: Step, obj: Any) -> Branches:
    yield Step(step, ".__self__"), obj.__self__
    if isinstance(obj, types.MethodType):
        yield Step(step, ".__func__"), obj.__func__


def _descriptor(step: Step, obj: Any) -> Branches:
    yield Step(step, ".__func__"), obj.__func__


def _property(step: Step, obj: property) -> Branches:
    yield Step(step, ".fget"), obj.fget
    yield Step(step, ".fset"), obj.fset
    yield Step(step, ".fdel"), obj.fdel


def _stand_in(step: Step, obj: StandIn) -> Branches:
    """A resource travels as its arguments; the real handle stays."""
    _, _, (made_by, args, kwargs), *_ = obj.__reduce_ex__(4)
    argument = Step(step, f"argument of resource {made_by.name!r}")
    yield Step(step, "its resource"), made_by
    for index, value in enumerate(args):
        yield Step(argument, f"[{index}]"), value
    for name, value in kwargs.items():
        yield Step(argument, f"[{name!r}]"), value


def _partial(step: Step, obj: functools.partial[Any]) -> Branches:
    yield Step(step, ".func"), obj.func
    for index, value in enumerate(obj.args):
        yield Step(step, f".args → [{index}]"), value
    for name, value in obj.keywords.items():
        yield Step(step, f".keywords → [{name!r}]"), value
    for name, value in obj.__dict__.items():
        yield Step(step, f".{name}"), value


def _reduce_value(step: Step, obj: Any, value: tuple[Any, ...]) -> Branches:
    """The parts of a reduce value, named after the attributes that they come from where that shows."""
    make, args, state, items, pairs, *_ = (*value, None, None, None, None, None)[:6]
    attributes = {id(held): name for name, held in (subclasses.names_of(obj) or {}).items()}
    yield Step(step, "its maker"), make
    if make is caches.make_cached:
        yield from _cached(step, *state)
        return
    if make is subclasses.bare:
        yield from _rebuilt(step, args, state)
        return
    sources = [arg for arg in args if not isinstance(arg, type)]
    known = _ARGUMENTS.get(make, ()) if isinstance(make, types.FunctionType) else ()
    for at, arg in enumerate(args):
        if at < len(known):
            yield Step(step, known[at]), arg
        elif isinstance(arg, type):
            yield Step(step, "its class"), arg
        elif id(arg) in attributes:
            yield Step(step, f".{attributes[id(arg)]}"), arg
        elif hasattr(type(obj), "__next__"):
            which = "" if len(sources) == 1 else f" [{next(i for i, s in enumerate(sources) if s is arg)}]"
            yield Step(step, f"what it iterates{which}"), arg
        else:
            index = next(i for i, s in enumerate(args) if s is arg)
            yield Step(step, f"argument [{index}] of its reducer"), arg
    yield from _state(step, state)
    for index, item in enumerate(items or ()):
        yield Step(step, f"[{index}]"), item
    for key, item in pairs or ():
        yield Step(step, f"key [{_short(key)}]"), key
        yield Step(step, f"[{_short(key)}]"), item


def _cached(step: Step, names: dict[str, Any], entries: list[caches.Entry]) -> Branches:
    for name, value in names.items():
        yield Step(step, f".{name}"), value
    for args, named, result in entries:
        at = Step(step, f"in its cache, the call with {_short(args)}")
        yield from _sequence(Step(at, "argument"), args)
        yield from _mapping(Step(at, "argument"), named)
        yield Step(at, "result"), result


# What the arguments of these makers are to the object.
_ARGUMENTS: dict[Any, tuple[str, ...]] = {
    contexts.new_variable: (".name", "its default"),
    classes.new_type: (".__name__", ".__supertype__"),
    classes.type_alias: (".__name__", ".__value__", ".__type_params__"),
}


def _rebuilt(step: Step, args: tuple[Any, ...], state: subclasses.State | None) -> Branches:
    """An instance rebuilt without its class's code; of an immutable type, its value is an argument."""
    yield Step(step, "its class"), args[0]
    for value in args[1:]:
        if type(value) in (tuple, frozenset):
            yield from _sequence(step, value)
    keys, values, names, held = state or ((), (), (), ())
    if values:
        for key, value in zip(keys, values, strict=False):
            yield Step(step, f"key [{_short(key)}]"), key
            yield Step(step, f"[{_short(key)}]"), value
        for value in values[len(keys) :]:
            yield Step(step, ".default_factory"), value
    else:
        yield from _sequence(step, keys)
    for name, value in zip(names, held, strict=True):
        yield Step(step, f".{name}"), value


def _state(step: Step, state: Any) -> Branches:
    parts = state if type(state) is tuple and len(state) == 2 else (state,)
    if all(part is None or type(part) is dict for part in parts):
        for part in parts:
            for name, held in (part or {}).items():
                text = f".{name}" if isinstance(name, str) else f"[{_short(name)}]"
                yield Step(step, text), held
    else:
        yield Step(step, ".__getstate__()"), state


def _globals(code: types.CodeType, namespace: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The globals that travel with code of a script: those that it reads by name."""
    if modules.owner(namespace) is None:
        for name in sorted(modules.globals_read(code) & namespace.keys()):
            yield name, namespace[name]


def _short(key: object) -> str:
    """A key as it would be written, if that is safe and short; else its type."""
    if type(key) in (str, bytes, int, float, bool, type(None)):
        text = repr(key)
        return text if len(text) <= 40 else text[:38] + "…" + text[-1]
    if type(key) is tuple and len(key) <= 4:
        return "(" + ", ".join(_short(item) for item in key) + ("," if len(key) == 1 else "") + ")"
    if isinstance(key, type):
        return key.__qualname__
    return f"<{type(key).__qualname__}>"


def said(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 200 else text[:199] + "…"


def short_path(filename: str) -> str:
    """A source file as short as it can be found: from the directory it is imported from, or where we are."""
    best = filename
    for directory in (os.getcwd(), *sys.path):
        root = os.path.join(os.path.abspath(directory or os.curdir), "")
        if root != os.sep and filename.startswith(root) and len(filename) - len(root) < len(best):
            best = filename[len(root) :]
    return best


_FRAMES = frozenset((types.CoroutineType, types.GeneratorType, types.AsyncGeneratorType))

LEAVES: frozenset[type] = frozenset(
    (
        *(int, float, complex, bool, str, bytes, bytearray, type(None), type(...), type(NotImplemented)),
        *(range, types.CodeType),
        *(types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType),
        *(types.MemberDescriptorType, types.ClassMethodDescriptorType),
    )
)

# Types that pickle refuses and a reducer of ours may not; what they refer to is what they go through.
_REFERENTS_TELL: frozenset[type] = frozenset(
    (
        *(type({}.keys()), type({}.values()), type({}.items()), types.MappingProxyType),
        *(type(iter({})), type(iter({}.values())), type(iter({}.items())), type(iter(set()))),
        *(type(reversed({})), type(reversed({}.values())), type(reversed({}.items()))),
        *(cls for cls in vars(itertools).values() if isinstance(cls, type)),  # from 3.14 on
    )
)

_BY_TYPE: dict[type, Callable[[Step, Any], Branches]] = {
    dict: _mapping,
    list: _sequence,
    tuple: _sequence,
    collections.deque: _sequence,
    set: _set,
    frozenset: _set,
    contextvars.Context: _context,
    types.CellType: _cell,
    types.ModuleType: _module,
    types.GenericAlias: _alias,
    types.UnionType: _alias,
    types.FunctionType: _function,
    types.MethodType: _method,
    types.BuiltinMethodType: _method,
    types.MethodWrapperType: _method,
    functools.partial: _partial,
    staticmethod: _descriptor,
    classmethod: _descriptor,
    property: _property,
    **dict.fromkeys(_FRAMES, _frame),
}
