"""A thawed frame goes on as the original would, in every construct it can be suspended in."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from snaprt import frames
from tests.frames.conftest import nap, steps
from tests.frames.copier import Copier


class Manager:
    def __init__(self, log: list[Any], swallow: bool = False) -> None:
        self.log, self.swallow = log, swallow

    def __enter__(self) -> str:
        return "inside"

    def __exit__(self, *error: Any) -> bool:
        self.log.append(("exit", repr(error[1])))
        return self.swallow

    async def __aenter__(self) -> Any:
        return await nap("enter")

    async def __aexit__(self, *error: Any) -> bool:
        self.log.append(("aexit", repr(error[1]), await nap("exit")))
        return self.swallow


async def loops() -> Any:
    out = []
    for first in [1, 2]:
        for second, third in enumerate("xy"):
            for key in {"a": 1, "b": 2}:
                out.append((first, second, third, key, await nap(key)))
    return out


async def handled_exception() -> Any:
    out: list[Any] = []
    try:
        raise ValueError("outer")
    except ValueError:
        await nap()
        try:
            raise KeyError("inner")
        except KeyError:
            await nap()
            out.append(repr(sys.exc_info()[1]))
        out.append(repr(sys.exc_info()[1]))
        await nap()
        try:
            raise
        except ValueError as again:
            out.append((repr(again), await nap()))
    return [*out, sys.exc_info()[1]]


async def context_managers() -> Any:
    log: list[Any] = []
    with Manager(log) as inside:
        await nap(inside)
    async with Manager(log) as inside:
        await nap(inside)
    async with Manager(log, swallow=True):
        await nap("body")
        raise ValueError("swallowed")
    try:
        async with Manager(log), Manager(log):
            raise KeyError("through two")
    except KeyError as error:
        log.append((repr(error), await nap()))
    return log


async def contextlib_managers() -> Any:
    log: list[Any] = []

    @contextlib.contextmanager
    def plain() -> Any:
        try:
            yield 1
        finally:
            log.append("plain ends")

    @contextlib.asynccontextmanager
    async def waiting() -> Any:
        await nap("before")
        try:
            yield 2
        except ValueError:
            log.append(await nap("after an error"))

    with plain() as one:
        async with waiting() as two:
            log.append((one, two, await nap("body")))
            raise ValueError
    return log


async def finally_after_exception() -> Any:
    log: list[Any] = []
    try:
        try:
            raise ValueError("on its way")
        finally:
            log.append(await nap("finally"))
            log.append(repr(sys.exc_info()[1]))
    except ValueError as error:
        log.append(repr(error))
    return log


async def exception_groups() -> Any:
    log: list[Any] = []
    try:
        raise ExceptionGroup("g", [ValueError(1), KeyError(2), OSError(3)])
    except* ValueError as group:
        log.append((repr(group), await nap("value")))
    except* (KeyError, OSError) as group:
        log.append((repr(group), await nap("others")))
        log.append(repr(sys.exc_info()[1]))
    return log


async def partial_expressions() -> Any:
    def call(*args: Any, **more: Any) -> Any:
        return args, more

    class Thing:
        def method(self, *args: Any) -> Any:
            return args

    thing = Thing()
    return [
        call(1, await nap(), key=await nap()),
        thing.method(await nap(), *[2, await nap()]),
        f"{await nap()}-{await nap()!r:>4}",
        {await nap(): await nap()},
        1 < await nap() < await nap(),
        [*[0], await nap()],
        3 + await nap() * await nap(),
    ]


async def comprehensions() -> Any:
    x = "outer"

    async def numbers() -> Any:
        for number in range(3):
            yield await nap(number)

    return [
        [await nap(x) for x in [1, 2]],
        [(lambda: x)() for x in [await nap(y) for y in [1, 2]]],
        {x: await nap(x) for x in [3]},
        [x async for x in numbers() if await nap(x)],
        [x async for x in (await nap(i) for i in range(2))],
        x,
    ]


async def shared_cells() -> Any:
    count = 0

    async def add(amount: int) -> int:
        nonlocal count
        count += amount
        await nap(count)
        count += amount
        return count

    first = add(1)
    second = await add(10)
    return [count, second, await first, count]


async def cleared_cells() -> Any:
    held = 1

    def read() -> Any:
        return held

    del held
    await nap()
    try:
        read()
    except NameError as error:
        missing = str(error)
    held = 2
    await nap()
    return missing, read()


async def unbound_locals(given: Any = 1, *rest: Any, more: Any = 2) -> Any:
    del given, more
    await nap()
    for name in (lambda: given, lambda: more):  # noqa: F821  # that they are unbound is the point
        with contextlib.suppress(NameError):
            name()
            return "bound"
    if rest:
        never = 1
    await nap()
    try:
        return never
    except UnboundLocalError:
        return "unbound"


class Parent:
    async def greet(self, name: str) -> str:
        return f"{await nap('parent')} {name}"


class Child(Parent):
    async def greet(self, name: str) -> str:
        await nap("child")
        return f"{__class__.__name__}: {await super().greet(name)}"


async def methods() -> Any:
    return await Child().greet("you")


async def delegation() -> Any:
    def inner(depth: int) -> Any:
        if depth:
            return (yield from inner(depth - 1))
        got = yield "deep"
        return got

    @types.coroutine
    def outer() -> Any:
        return [(yield from inner(20)), (yield from inner(0))]

    return await outer()


async def generators_as_iterators() -> Any:
    def count(limit: int) -> Any:
        got = 0
        while got < limit:
            got += 1
            yield got

    waiting = count(5)
    started = count(5)
    next(started)
    done = count(0)
    list(done)
    out = [await nap(number) for number in count(3)]
    return [out, list(waiting), list(started), list(done)]


async def sequences() -> Any:
    out: list[Any] = []
    changing = [1, 2, 3, 4]
    for item in changing:
        if item == 2:
            changing.append(5)
            del changing[0]
        out.append(await nap(item))
    for letter in "ab":
        for number in list(range(600)):
            if number % 200 == 99:
                out.append((letter, number, await nap(number)))
    shrinking = [1, 2, 3]
    for item in shrinking:
        shrinking.clear()
        out.append(await nap(item))
        shrinking.extend("xyz" if len(out) < 20 else "")

    def delegating() -> Any:
        yield from [1, 2, 3]

    delegated = delegating()
    next(delegated)
    unstarted = (number * 2 for number in [1, 2, 3])
    waiting = (await nap(number) for number in (1, 2))
    over = (item async for item in waiting)
    await nap()
    return [*out, list(delegated), list(unstarted), [item async for item in over]]


async def async_generators() -> Any:
    async def numbers() -> Any:
        got = yield await nap("first")
        while True:
            got = yield (got, await nap("more"))

    source = numbers()
    out = [await source.asend(None), await source.asend("hello")]
    await nap("at rest")
    out.append(await source.asend("again"))
    await source.aclose()
    return [*out, await anext(source, "the end")]


async def closing_that_waits() -> Any:
    log: list[Any] = []

    async def numbers() -> Any:
        try:
            yield 1
        finally:
            log.append((repr(sys.exc_info()[1]), await nap("cleaning"), await nap("still")))

    source = numbers()
    await anext(source)
    await source.aclose()
    return log, await anext(source, "closed")


async def throwing_that_waits() -> Any:
    async def numbers() -> Any:
        try:
            yield 1
        except ValueError as error:
            yield (repr(error), await nap("handling"))

    source = numbers()
    await anext(source)
    return await source.athrow(ValueError("in")), await anext(source, "end")


async def lambdas_and_held_awaitables() -> Any:
    make = lambda value: nap(value)  # noqa: E731  # a lambda that gives a coroutine is the construct
    held = Child().greet("later")

    async def numbers() -> Any:
        yield await nap("n")

    step = numbers().asend(None)
    first = await make("lambda")
    return [first, await held, await step]


CONSTRUCTS: list[Callable[[], Any]] = [
    *(loops, handled_exception, context_managers, contextlib_managers, finally_after_exception),
    *(exception_groups, partial_expressions, comprehensions, shared_cells, cleared_cells, unbound_locals),
    *(methods, delegation, generators_as_iterators, sequences, async_generators, closing_that_waits),
    *(throwing_that_waits, lambdas_and_held_awaitables),
]


@pytest.mark.parametrize("construct", CONSTRUCTS, ids=lambda construct: construct.__name__)
def test_frames_replaced_at_every_suspension_go_on_as_undisturbed(construct: Callable[[], Any]) -> None:
    undisturbed = steps(construct, replace=False)
    assert undisturbed[-1][0] == "returned"
    assert len(undisturbed) > 1
    assert steps(construct, replace=True) == undisturbed


@pytest.mark.parametrize("construct", CONSTRUCTS, ids=lambda construct: construct.__name__)
def test_an_exception_thrown_into_a_thawed_frame_takes_the_same_way(construct: Callable[[], Any]) -> None:
    for place in range(1, len(steps(construct, replace=False))):
        thrown = [warned(construct, replace=way, place=place) for way in (False, True)]
        assert thrown[0] == thrown[1], place


def warned(begin: Callable[[], Any], *, replace: bool, place: int) -> tuple[list[Any], list[str]]:
    """What `steps` gives with an exception thrown at `place`, and what was warned of: a coroutine that the
    exception keeps from being awaited.
    """
    gc.disable()  # what is made here stays young, and collecting the young alone is quick
    try:
        gc.collect(0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            seen = steps(begin, replace=replace, throw={place: ValueError("t")})
            gc.collect(0)
    finally:
        gc.enable()
    return seen, sorted(str(warning.message) for warning in caught)


def test_more_locals_and_constants_than_a_byte_holds_survive() -> None:
    lines = [f"    v{at} = {at + 1000}" for at in range(700)]
    source = (
        "async def big(nap):\n"
        + "\n".join(lines)
        + "\n    got = await nap()\n    return v0, v300, v699, got\n"
    )
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    begin = lambda: namespace["big"](nap)  # noqa: E731  # a new coroutine for each way
    assert steps(begin, replace=True) == [None, ("returned", (1000, 1300, 1699, 1))]


def test_a_future_waited_for_is_the_same_future_after_the_thaw() -> None:
    loop = asyncio.new_event_loop()
    try:
        future = loop.create_future()

        async def wait() -> Any:
            return await future

        root = wait()
        assert root.send(None) is future
        thawed = Copier().replace(root)
        future._asyncio_future_blocking = False
        future.set_result("done")
        with pytest.raises(StopIteration) as stop:
            thawed.send(None)
        assert stop.value.value == "done"
    finally:
        loop.close()


def test_lines_names_and_what_is_awaited_agree_with_the_original() -> None:
    async def outer() -> Any:
        return await inner()

    async def inner() -> Any:
        local = 1
        await nap(local)

    root = outer()
    root.send(None)
    shown = [
        (type(item), item.__qualname__, getattr(item, "cr_frame", None) and item.cr_frame.f_lineno)
        for item in frames.chain(root)
    ]
    assert [name for _, name, _ in shown] == [outer.__qualname__, inner.__qualname__, "nap"]
    thawed = Copier().replace(root)
    again = [
        (type(item), item.__qualname__, getattr(item, "cr_frame", None) and item.cr_frame.f_lineno)
        for item in frames.chain(thawed)
    ]
    assert again == shown
    frames.release(thawed)


def test_reraising_after_an_exceptional_exit_names_the_users_line() -> None:
    async def failing(log: list[Any]) -> None:
        async with Manager(log):
            raise KeyError("here")

    def line_of(replace: bool) -> list[int]:
        root = failing([])
        root.send(None)
        root.send(None)
        if replace:
            root = Copier().replace(root)
        with pytest.raises(KeyError) as caught:
            root.send(None)
        return [entry.lineno for entry in caught.traceback if entry.name == "failing"]

    assert line_of(True) == line_of(False)
