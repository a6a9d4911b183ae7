"""What a fuzzed program finds around it: a trace, awaitables of every kind, context managers, a class to
inherit.

None of it is module state of a program: each run gets its own `World`, whose functions are the globals
that the program's source is compiled against.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import sys
import types
from typing import Any

from snaprt import frames
from snaprt.state.exceptions import TRACEBACK


class World:
    """The surroundings of one run. `events` is its trace; `choices` come from the seed."""

    def __init__(self, seed: int, *, keep: bool = False) -> None:
        self.keep = keep
        self.events: list[Any] = []
        self.choices = random.Random(seed)
        self.fuel = 3000
        self.open: list[asyncio.Future[Any]] = []
        self.first: list[str] = []  # async generators that began, and that were dropped, as hooks tell
        self.dropped: list[str] = []
        self.kept: list[Any] = []

    def drop(self, generator: Any) -> None:
        """Finalizer of async generators, in place of a loop's: nothing of it runs.

        With `keep` not even what hangs on it goes.
        """
        self.dropped.append(generator.__name__)
        if self.keep:
            self.kept.append(generator)
        else:
            frames.release(generator)

    def names(self) -> dict[str, Any]:
        """The globals of a program."""
        return _names(self)


class FuelSpent(BaseException):
    """The program ran for long enough."""


def plain(value: object, depth: int = 0) -> object:
    """A value as far as it doesn't depend on addresses."""
    if isinstance(value, BaseExceptionGroup):
        return (type(value).__name__, [plain(item) for item in value.exceptions], lines(value))
    if isinstance(value, BaseException):
        context = type(value.__context__).__name__
        return (type(value).__name__, str(value)[:80], context, type(value.__cause__).__name__, lines(value))
    if isinstance(value, list | tuple) and depth < 3:
        return [type(value).__name__, *[plain(item, depth + 1) for item in value[:8]]]
    if isinstance(value, set) and depth < 3:
        return ["set", *sorted(str(plain(item)) for item in value)]
    if isinstance(value, dict) and depth < 3:
        return ["dict", *[(str(plain(k)), plain(v, depth + 1)) for k, v in value.items()]]
    if isinstance(value, int | float | str | bytes | None):
        return value if not isinstance(value, int) or abs(value) < 1 << 60 else "big"
    return type(value).__name__


def lines(error: BaseException) -> list[tuple[str, int]]:
    """Where in the program an exception came by."""
    if isinstance(error, UnboundLocalError):
        # On 3.11 its line depends on how warm the code is: a superinstruction that stores one local and
        # loads the next stands on the line of the first.
        return []
    found, trace = [], error.__traceback__
    before = error.__dict__.get(TRACEBACK, "")  # a load, as text
    while trace is not None:
        if "<program " in trace.tb_frame.f_code.co_filename:
            found.append((trace.tb_frame.f_code.co_name, trace.tb_lineno))
        before = trace.tb_frame.f_globals.get(TRACEBACK, before)
        trace = trace.tb_next
    return found + [(name, int(line)) for line, name in _LINE.findall(before)]


_LINE = re.compile(r'^  File ".*<program [0-9]+>", line ([0-9]+), in (.*)$', re.MULTILINE)


@types.coroutine
def nap(value: object) -> Any:
    """Suspend with a value, and give back what is sent in."""
    return (yield ("nap", plain(value)))


@types.coroutine
def old(count: int) -> Any:
    """A generator-based coroutine that suspends more than once."""
    for at in range(count):
        yield ("old", at)
    return count


async def wrapped(value: object) -> Any:
    """Awaits through a coroutine_wrapper that lies on the stack."""
    return await Through(nap_async(value))


async def nap_async(value: object) -> Any:
    return await nap(value)


class Through:
    def __init__(self, coroutine: Any) -> None:
        self.coroutine = coroutine

    def __await__(self) -> Any:
        return self.coroutine.__await__()


class Custom:
    def __init__(self, value: object) -> None:
        self.value = value

    def __await__(self) -> Any:
        got = yield ("custom", plain(self.value))
        return [got, (yield from nap("inner"))]


class Loop:
    """As much of an event loop as a C future asks for."""

    def get_debug(self) -> bool:
        return False

    def call_soon(self, *args: object, **more: object) -> None:
        return None

    def call_exception_handler(self, context: object) -> None:
        return None


LOOP: Any = Loop()


class Aiter:
    def __init__(self, count: int) -> None:
        self.count = count

    def __aiter__(self) -> Aiter:
        return self

    async def __anext__(self) -> Any:
        if self.count == 0:
            raise StopAsyncIteration
        self.count -= 1
        await nap("aiter")
        return self.count


def _names(world: World) -> dict[str, Any]:
    def trace(*values: object) -> None:
        world.fuel -= 1
        if world.fuel < 0:
            raise FuelSpent
        world.events.append([plain(value) for value in values])

    def num(value: object) -> int:
        world.fuel -= 1
        if world.fuel < 0:
            raise FuelSpent
        return value % 1000 if isinstance(value, int) else len(str(plain(value)))

    def less(chance: int, limit: int) -> bool:
        return world.choices.randrange(100) * chance // 100 < limit // 2

    def handled() -> object:
        return plain(sys.exc_info()[1])

    def call(*args: object, **more: object) -> int:
        return sum(num(arg) for arg in args) + sum(num(arg) for arg in more.values())

    class Root:
        def method(self, *args: object, **more: object) -> int:
            return call(*args, **more) + 1

        async def amethod(self, *args: object) -> Any:
            return call(*args, await nap("amethod"))

    class Manager:
        def __init__(self, label: int, swallow: bool) -> None:
            self.label, self.swallow = label, swallow

        def __enter__(self) -> Any:
            trace("enter", self.label)
            return self.label

        def __exit__(self, *error: Any) -> bool:
            trace("exit", self.label, error[1])
            return self.swallow and isinstance(error[1], Exception)

    class AsyncManager(Manager):
        async def __aenter__(self) -> Any:
            trace("aenter", self.label, await nap("aenter"))
            return self.label

        async def __aexit__(self, *error: Any) -> bool:
            trace("aexit", self.label, error[1])
            got = await nap("aexit")
            trace("aexit", self.label, error[1], got)
            return self.swallow and isinstance(error[1], Exception)

    @contextlib.contextmanager
    def managed(label: int) -> Any:
        trace("managed", label)
        try:
            yield label
        except ValueError as error:
            trace("managed swallows", error)
        finally:
            trace("managed ends", label, handled())

    @contextlib.asynccontextmanager
    async def async_managed(label: int) -> Any:
        trace("amanaged", label, await nap("amanaged"))
        try:
            yield label
        except KeyError as error:
            trace("amanaged swallows", error, await nap("amanaged error"))
        finally:
            trace("amanaged ends", label, handled(), await nap("amanaged end"), handled())

    def future(label: int) -> Any:
        made: asyncio.Future[Any] = asyncio.Future(loop=LOOP)
        world.open.append(made)
        return made

    async def close(generator: Any) -> Any:
        got = await anext(generator, "none")
        await generator.aclose()
        return got

    async def drive(generator: Any, count: int) -> Any:
        got: list[Any] = []
        try:
            got.append(await generator.asend(None))
            for at in range(count):
                got.append(await generator.asend(at))
        except StopAsyncIteration:
            got.append("end")
        return got

    async def hurl(generator: Any, count: int) -> Any:
        got: list[Any] = []
        try:
            got.append(await generator.__anext__())
            for at in range(count + 1):
                got.append(await generator.athrow(ValueError(at)))
        except StopAsyncIteration:
            got.append("end")
        except ValueError as error:
            got.append(str(error))
        return got

    made = dict(locals())
    del made["world"]
    made |= {"nap": nap, "old": old, "wrapped": wrapped, "Custom": Custom, "Aiter": Aiter, "THING": Root()}
    return made
