"""Exceptions, with everything that hangs off them but live tracebacks.

`BaseException.__reduce__` loses cause, context, notes and the fields that C keeps (`OSError.errno`), and it
calls the class again, which fails for every class whose `__init__` wants something else than `args`. So an
exception is made by the `__new__` of its builtin base, without `__init__`, and given its parts afterwards;
two exceptions may be each other's context. A class that says itself how it is pickled is made that way, and
gets cause, context and notes on top.

A traceback holds live frames of code that has returned; the exception's own travels as text. It is kept in
the attribute `__snaprt_traceback__`, and what it comes by after a restore is added at the next save.

A group needs more. `except*` tells what its clauses raised anew from what they let pass by the identity of
tracebacks: parts of the group share its own. So a restored group has a traceback again, of one entry that
stands for what was saved, and shares it with the groups it shared the saved one with.

This file must not know how the state around an exception is written.
"""

from __future__ import annotations

import builtins
import traceback
from collections.abc import Iterator
from types import FunctionType, GetSetDescriptorType, MemberDescriptorType, TracebackType
from typing import Any

from snaprt.state.reducers import Reduced, reducer
from snaprt.state.sessions import Call, Dumping

TRACEBACK = "__snaprt_traceback__"

_BUILTIN = frozenset(
    cls for cls in vars(builtins).values() if isinstance(cls, type) and issubclass(cls, BaseException)
)
# Written on their own, or given to `__new__`.
_APART = frozenset(
    {"args", "exceptions", "message", "__dict__", "__cause__", "__context__", "__suppress_context__"}
    | {"__traceback__", "__weakref__"}
)


@reducer(BaseException, subclasses=True)
def reduce_exception(error: BaseException, dumping: Dumping) -> Reduced:
    cls = type(error)
    state: dict[str, Any] = {}
    if error.__cause__ is not None:
        state["__cause__"] = error.__cause__
    if error.__context__ is not None:
        state["__context__"] = error.__context__
    if error.__suppress_context__:
        state["__suppress_context__"] = True
    if isinstance(error, BaseExceptionGroup) and error.__traceback__ is not None:
        state["__traceback__"] = stand_in(error.__traceback__, dumping)
    own = _own_reduce(cls)
    if own is not None:
        text = traceback_text(error)
        names = {key: value for key, value in vars(error).items() if key == "__notes__"}
        if text:
            names[TRACEBACK] = text
        if names:
            state["__dict__"] = names
        return _extended(error, own, state)
    state["args"] = error.args
    fields = _fields(error)
    if fields:
        state["fields"] = fields
    names = dict(vars(error))
    text = traceback_text(error)
    if text:
        names[TRACEBACK] = text
    if names:
        state["__dict__"] = names
    made = (error.message, error.exceptions) if isinstance(error, BaseExceptionGroup) else ()
    return make, (cls, *made), state, None, None, fill


def make(cls: type[BaseException], *args: Any) -> BaseException:
    """An exception without its parts; the arguments are those that only `__new__` can take (of a group)."""
    base = next(base for base in cls.__mro__ if base in _BUILTIN)
    error: BaseException = base.__new__(cls, *args)  # not cls.__new__, which may want what nobody kept
    return error


def fill(error: Any, state: dict[str, Any]) -> None:
    for name, value in state.items():
        if name == "__dict__":
            error.__dict__.update(value)
        elif name == "fields":
            for base, field, content in value:
                base.__dict__[field].__set__(error, content)
        elif name != "__suppress_context__":
            setattr(error, name, value)
    # Setting a cause suppresses the context, so whether it is suppressed comes last.
    error.__suppress_context__ = "__suppress_context__" in state


def _fields(error: BaseException) -> list[tuple[type, str, Any]]:
    """What is kept outside `__dict__`, by slots of C and of Python classes."""
    fields = []
    for base in type(error).__mro__:
        if base is object:
            continue
        for name, descriptor in base.__dict__.items():
            if name in _APART or type(descriptor) not in (MemberDescriptorType, GetSetDescriptorType):
                continue
            try:
                value = descriptor.__get__(error)
            except Exception:
                continue  # not set yet; some getters of C raise more than AttributeError for that
            if value is not None:
                fields.append((base, name, value))
    return fields


def _own_reduce(cls: type) -> type | None:
    """The class that overrides how exceptions are pickled, if one does."""
    for base in cls.__mro__:
        if base in _BUILTIN:
            return None
        if "__reduce__" in base.__dict__ or "__reduce_ex__" in base.__dict__:
            return base
    return None


def _extended(error: BaseException, own: type, state: dict[str, Any]) -> Reduced:
    reduced = error.__reduce_ex__(5)
    if not isinstance(reduced, tuple):
        return reduced
    inner = reduced[2] if len(reduced) > 2 else None
    return reduced[0], reduced[1], (inner, state), None, None, fill_extended


def fill_extended(error: BaseException, state: tuple[Any, dict[str, Any]]) -> None:
    inner, outer = state
    if inner is not None:
        setter = getattr(error, "__setstate__", None)
        if setter is not None:
            setter(inner)
        elif isinstance(inner, tuple) and len(inner) == 2:
            error.__dict__.update(inner[0] or {})
            for name, value in (inner[1] or {}).items():
                setattr(error, name, value)
        else:
            error.__dict__.update(inner)
    fill(error, outer)


# --- tracebacks -----------------------------------------------------------------------------------


def traceback_text(error: BaseException) -> str:
    """Where the exception was raised, as text: before its last restore, and since. "" if it wasn't.

    The most recent call stands last, as in every traceback: what an exception comes by on its way out is
    outside of where it was.
    """
    saved: str = error.__dict__.get(TRACEBACK, "")
    live = error.__traceback__
    return _text(live, saved) if live is not None else saved


def _text(trace: TracebackType, saved: str = "") -> str:
    """A traceback as text, with what its stand-in for earlier ones knows, or else with `saved` behind it."""
    lines, last = traceback.format_tb(trace), trace
    while last.tb_next is not None:
        last = last.tb_next
    if last.tb_frame.f_code is _EARLIER:
        return "".join(lines[:-1]) + str(last.tb_frame.f_globals[TRACEBACK])
    return "".join(lines) + saved


def stand_in(trace: TracebackType, dumping: Dumping) -> Call:
    """In the stream: what stands for a traceback after the load, for all who hold this very one."""
    key = ("traceback", id(trace))
    return dumping.call(key, earlier, "" if dumping.known(key) else _text(trace))


def _earlier() -> Iterator[None]:
    """The frame of stand-ins is a generator's, since that keeps no frames around it alive."""
    yield


_EARLIER = _earlier.__code__.replace(co_filename="<before it was restored>", co_name="__snaprt_traceback__")


def earlier(text: str) -> TracebackType:
    """A traceback of one entry that holds the text of a saved one."""
    return TracebackType(None, FunctionType(_EARLIER, {TRACEBACK: text})().gi_frame, -1, 1)


def format_exception(error: BaseException) -> str:
    """What `traceback.format_exception` gives, with the parts that lie before a restore."""
    seen: set[int] = set()
    return "".join(_format(error, seen))


def _format(error: BaseException, seen: set[int]) -> list[str]:
    seen.add(id(error))
    lines: list[str] = []
    before, why = error.__cause__, traceback._cause_message  # type: ignore[attr-defined]  # its wording
    if before is None and not error.__suppress_context__:
        before, why = error.__context__, traceback._context_message  # type: ignore[attr-defined]  # its wording
    if before is not None and id(before) not in seen:
        lines += [*_format(before, seen), why]
    text = traceback_text(error)
    if text:
        lines += ["Traceback (most recent call last):\n", text]
    lines += traceback.format_exception_only(error)
    if isinstance(error, BaseExceptionGroup):
        for number, inner in enumerate(error.exceptions, 1):
            if id(inner) not in seen:
                lines.append(f"  +---------------- {number} ----------------\n")
                lines += ["  | " + line + "\n" for part in _format(inner, seen) for line in part.splitlines()]
    return lines
