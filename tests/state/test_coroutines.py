"""A suspended coroutine goes through `dumps` and `loads`, and can't tell."""

from __future__ import annotations

import gc
import types
import warnings

import pytest

import snaprt.state as state


class Box:
    pass


REGISTRY = {"a": 1}
THING = Box()


@types.coroutine
def park(value):
    return (yield value)


def finish(coro, value=None):
    try:
        while True:
            coro.send(value)
    except StopIteration as stop:
        return stop.value


async def collect(count, into):
    for i in range(count):
        into.append(await park(i))
    return into


async def outer(count):
    into = []
    result = await collect(count, into)
    return result is into, into


def test_a_chain_goes_on_where_it_stood_with_its_objects_shared():
    coro = outer(3)
    coro.send(None)
    coro.send("first")
    twin = state.loads(state.dumps(coro))
    assert finish(twin, "twin") == (True, ["first", "twin", "twin"])
    assert finish(coro, "self") == (True, ["first", "self", "self"])


async def with_globals():
    held = [REGISTRY, THING, [REGISTRY]]
    await park(None)
    return held


def test_globals_of_importable_modules_are_the_modules_own_again():
    coro = with_globals()
    coro.send(None)
    registry, thing, nested = finish(state.loads(state.dumps(coro)))
    assert registry is REGISTRY
    assert thing is THING
    assert nested[0] is REGISTRY


async def dive(depth):
    return await dive(depth - 1) + 1 if depth else await park(None)


def test_a_chain_of_five_thousand_awaits_is_no_deeper_than_one(recursion_limit):
    recursion_limit(20_000)
    coro = dive(5000)
    coro.send(None)
    recursion_limit(1_000)
    data = state.dumps(coro)
    twin = state.loads(data)
    recursion_limit(20_000)
    with pytest.raises(StopIteration) as stop:
        twin.send(1)
    assert stop.value.value == 5001
    state.release(coro)


def make_counter():
    count = 0

    async def count_twice(read):
        nonlocal count
        count += 1
        await park(None)
        count += 1
        return count, read()

    def read():
        return count

    return count_twice(read)


def test_closures_share_their_cells_with_each_other_and_the_frame():
    coro = make_counter()
    coro.send(None)
    assert finish(state.loads(state.dumps(coro))) == (2, 2)


async def with_cleanup(log):
    try:
        await park(None)
    finally:
        log.append("cleaned")


def test_release_runs_none_of_its_code():
    log = []
    coro = with_cleanup(log)
    coro.send(None)
    state.release(coro)
    del coro
    assert log == []


async def numbers():
    yield 1


async def holding_what_it_never_awaits():
    begun = numbers()
    await begun.asend(None)
    held = [numbers().asend(None), begun.aclose(), begun.athrow(ValueError), anext(numbers(), None)]
    await park(None)
    return held


def test_release_lets_go_of_awaitables_without_a_complaint_that_nobody_awaited_them():
    coro = holding_what_it_never_awaits()
    coro.send(None)
    again = state.loads(state.dumps(coro))
    with warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        for each in (coro, again):
            state.release(each)
        del coro, again, each
        gc.collect()
    assert complaints == []
