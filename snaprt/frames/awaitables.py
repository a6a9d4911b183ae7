"""Awaitables that hide what they hold: how to look into them, and how to make them again.

Between two frames of a chain of awaits may stand an object of CPython's own that shows nothing: a
`coroutine_wrapper`, an `async_generator_asend` or `athrow`, an `anext_awaitable`, a `FutureIter`. A pickler
needs to take them apart, and a walk along the chain needs to look through them. This file must not know of
any pickler: `take_apart` gives a function and its arguments, as `__reduce__` does.

An `asend`, `athrow` or `aclose` is in one of three states: not begun, under way, done. One that is under
way is the way in which its generator is primed (see `thaw`); there can be only one for a generator.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
from collections.abc import Callable
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

from snaprt.errors import NotCapturable
from snaprt.frames.thaw import enter, with_hooks

INITIAL, ITERATING, CLOSED = 0, 1, 2
# An asend, athrow or aclose has behind its head the generator, the arguments, and last the state. Arguments:
# of asend the value; of the others a tuple, or from 3.15 on type, traceback and value.
_HEAD, _TAIL = 16, 8


class _Anext:
    """Hands a given awaitable to the builtin `anext`."""

    def __init__(self, awaitable: Any) -> None:
        self.awaitable = awaitable

    def __anext__(self) -> Any:
        return self.awaitable


async def _empty() -> Any:
    return
    yield


async def _nothing() -> None:
    return None


def _spent(begin: Callable[[Any], Any]) -> Any:
    """An awaitable of an empty async generator, awaited to its end."""
    awaitable = with_hooks(None, lambda: begin(_empty()))
    with contextlib.suppress(StopIteration, StopAsyncIteration):
        awaitable.send(None)
    return awaitable


def _wrapper_type() -> type:
    coroutine = _nothing()
    kind = type(coroutine.__await__())
    coroutine.close()
    return kind


WRAPPER = _wrapper_type()
ASEND = type(_spent(lambda generator: generator.asend(None)))
ATHROW = type(_spent(lambda generator: generator.aclose()))
ANEXT = type(anext(_Anext(None), None))
ASYNC_GENERATOR_AWAITABLES = frozenset({ASEND, ATHROW})


def is_future_iter(kind: type) -> bool:
    """Whether `kind` is the iterator that awaiting a C future leaves on the stack; it has no public name."""
    return kind.__name__ == "FutureIter" and kind.__module__ == "_asyncio"


def is_opaque(obj: object) -> bool:
    """Whether `take_apart` knows how to take `obj` apart."""
    kind = type(obj)
    return kind in _TAKE or is_future_iter(kind)


def await_target(obj: Any) -> Any:
    """What an opaque awaitable hands on to: a coroutine, an async generator, a future, another awaitable.

    None for anything else, and for an awaitable that is done.
    """
    kind = type(obj)
    if kind in ASYNC_GENERATOR_AWAITABLES:
        return gc.get_referents(obj)[0] if read_state(obj) != CLOSED else None
    if kind is WRAPPER or kind is ANEXT or is_future_iter(kind):
        return next(iter(_held(obj)), None)
    return None


def _held(obj: Any) -> list[Any]:
    """What an object refers to, but for its own type (which objects of heap types name first)."""
    return [item for item in gc.get_referents(obj) if item is not type(obj)]


def chain(obj: Any) -> list[Any]:
    """The frames along which `obj` waits: itself first, the innermost last, through opaque awaitables."""
    frames: list[Any] = []
    seen: set[int] = set()
    while obj is not None and id(obj) not in seen:
        seen.add(id(obj))
        kind = type(obj)
        if kind is CoroutineType:
            frames.append(obj)
            obj = obj.cr_await
        elif kind is GeneratorType:
            frames.append(obj)
            obj = obj.gi_yieldfrom
        elif kind is AsyncGeneratorType:
            frames.append(obj)
            obj = obj.ag_await
        else:
            obj = await_target(obj)
    return frames


def take_apart(obj: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A function and the arguments with which it makes an awaitable equal to `obj`.

    An async generator among the arguments may be one that was made but not primed. Raises NotCapturable for
    an object that can't be made again, TypeError for one that isn't an opaque awaitable.
    """
    kind = type(obj)
    take = _TAKE.get(kind) or (_take_future_iter if is_future_iter(kind) else None)
    if take is None:
        raise TypeError(f"{kind.__qualname__} isn't an opaque awaitable")
    return take(obj)


def read_state(obj: Any) -> int:
    """The state of an asend, athrow or aclose, after a check that it lies where it is expected."""
    state = ctypes.c_int.from_address(id(obj) + type(obj).__basicsize__ - _TAIL).value
    held = [id(item) for item in gc.get_referents(obj)]
    if held != [address for address in _words(obj) if address] or state not in (0, 1, 2):
        raise NotCapturable(f"Can't read {type(obj).__name__}: it isn't laid out as on a proven interpreter.")
    return state


def _words(obj: Any) -> list[int]:
    """The addresses of what an asend, athrow or aclose holds, 0 for what it doesn't."""
    size = type(obj).__basicsize__ - _HEAD - _TAIL
    return list(memoryview(ctypes.string_at(id(obj) + _HEAD, size)).cast("Q"))


def write_state(obj: Any, state: int) -> None:
    """Set the state of an asend, athrow or aclose that `read_state` has read."""
    ctypes.c_int.from_address(id(obj) + type(obj).__basicsize__ - _TAIL).value = state


def _under_way(generator: Any, obj: Any) -> None:
    if not generator.ag_running:
        raise NotCapturable(
            f"Can't take {type(obj).__name__} of {generator.__qualname__} apart: it was begun, and yet its "
            "generator isn't inside it. It was abandoned half-way; drop it before the await."
        )


def _take_wrapper(obj: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    return make_wrapper, (_held(obj)[0],)


def _take_asend(obj: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    state = read_state(obj)
    generator, *value = gc.get_referents(obj)
    if state == CLOSED:
        return make_spent, (generator, "asend")
    if state == INITIAL:
        return make_asend, (generator, *value)
    _under_way(generator, obj)
    return make_entering, (generator, "asend")


def _take_athrow(obj: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    state = read_state(obj)
    generator, *arguments = gc.get_referents(obj)
    if state == CLOSED:
        return make_spent, (generator, "athrow" if arguments else "aclose")
    if state == INITIAL:
        return make_athrow, (generator, *_thrown(obj, arguments))
    _under_way(generator, obj)
    return make_entering, (generator, "athrow" if arguments else "aclose")


def _thrown(obj: Any, held: list[Any]) -> tuple[tuple[Any, ...], ...]:
    """The arguments of an athrow, as one tuple; of an aclose, which has none, an empty one around it."""
    words = _words(obj)[1:]
    if len(words) == 1 or not held:
        return tuple(held)
    objects = {id(item): item for item in held}
    kind, trace, value = [objects.get(word) for word in words]
    return ((kind,) if trace is None and value is None else (kind, value, trace),)


def _take_anext(obj: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    wrapped, default = _held(obj)
    return make_anext, (wrapped, default)


def _take_future_iter(obj: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    held = _held(obj)
    if not held:
        raise NotCapturable("Can't take a FutureIter apart that is exhausted: it no longer knows its future.")
    return make_future_iter, (held[0],)


_TAKE: dict[type, Callable[[Any], tuple[Callable[..., Any], tuple[Any, ...]]]] = {
    WRAPPER: _take_wrapper,
    ASEND: _take_asend,
    ATHROW: _take_athrow,
    ANEXT: _take_anext,
}


def make_wrapper(coroutine: Any) -> Any:
    """What `await` makes of a coroutine outside of coroutines."""
    return coroutine.__await__()


def make_asend(generator: Any, value: Any = None) -> Any:
    """An `asend` that hasn't begun."""
    return enter(generator, lambda: generator.asend(value), drives=False)


def make_athrow(generator: Any, arguments: tuple[Any, ...] | None = None) -> Any:
    """An `athrow`, or without arguments an `aclose`, that hasn't begun."""
    if arguments is None:
        return enter(generator, generator.aclose, drives=False)
    return enter(generator, lambda: generator.athrow(*arguments), drives=False)


def _begin(generator: Any, how: str) -> Callable[[], Any]:
    ways: dict[str, Callable[[], Any]] = {
        "asend": lambda: generator.asend(None),
        "athrow": lambda: generator.athrow(GeneratorExit),
        "aclose": lambda: generator.aclose(),
    }
    return ways[how]


def make_entering(generator: Any, how: str) -> Any:
    """The `asend`, `athrow` or `aclose` that is under way in a generator that will be primed."""
    return enter(generator, _begin(generator, how), drives=True)


def make_spent(generator: Any, how: str) -> Any:
    """An `asend`, `athrow` or `aclose` that is done. It does nothing but keep its generator alive."""
    awaitable = enter(generator, _begin(generator, how), drives=False)
    read_state(awaitable)
    write_state(awaitable, CLOSED)
    return awaitable


def make_anext(wrapped: Any, default: Any) -> Any:
    """What `anext(generator, default)` gives."""
    return anext(_Anext(wrapped), default)


def make_future_iter(future: Any) -> Any:
    """The iterator of an await on a C future."""
    return future.__await__()
