"""Timers mean wall time, keep their order, and survive clocks that jump."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from snaprt.kernel import AgentLoop, Kernel

from .driver import Clock, outcome


def test_time_never_goes_back_when_the_clock_does() -> None:
    clock = Clock(1000.0)
    loop = AgentLoop(clock)
    assert loop.time() == 1000.0
    clock.now = 400.0
    assert loop.time() == 1000.0
    clock.now = 407.0
    assert loop.time() == 1007.0


def test_a_timer_fires_after_its_delay_when_the_clock_jumps_back() -> None:
    clock = Clock(1000.0)
    fired: list[float] = []

    async def agent() -> None:
        loop = asyncio.get_running_loop()
        for delay in (10, 5):
            loop.call_later(delay, fired.append, delay)
        await asyncio.sleep(20)

    kernel = Kernel("run", clock=clock)
    kernel.start(agent)
    kernel.advance()
    assert kernel.next_timer() == 1005.0
    clock.now = 400.0
    kernel.advance()
    assert fired == []
    assert kernel.next_timer() == 405.0
    clock.now = 405.0
    kernel.advance()
    assert fired == [5]
    clock.now = 420.0
    kernel.advance()
    assert fired == [5, 10]
    assert kernel.status == "completed"
    assert kernel.next_timer() is None


def test_timers_of_one_time_fire_in_the_order_in_which_they_were_set() -> None:
    async def agent() -> list[int]:
        loop = asyncio.get_running_loop()
        fired: list[int] = []
        when = loop.time() + 5
        timers = [loop.call_at(when, fired.append, n) for n in range(200)]
        for n in range(0, 200, 3):
            timers[n].cancel()
            timers[n].cancel()
        await asyncio.sleep(6)
        return fired

    assert outcome(agent) == [n for n in range(200) if n % 3]


def test_a_run_that_polls_is_not_idle_and_gets_its_result_all_the_same() -> None:
    from .programs import fetch

    async def agent() -> str:
        task = asyncio.create_task(fetch("it"))  # type: ignore[arg-type]  # a tool's call is a coroutine
        while not task.done():
            await asyncio.sleep(0)
        return task.result()

    clock = Clock()
    kernel = Kernel("run", clock=clock)
    kernel.start(agent)
    commands = kernel.advance()
    assert len(commands) == 1
    assert not kernel.idle
    assert kernel.next_timer() == clock.now
    from snaprt.kernel import Result

    kernel.deliver(Result(1, "got"))
    kernel.advance()
    assert kernel.value == "got"
    assert kernel.idle


@pytest.mark.parametrize("delay", [None, float("nan")])
def test_odd_delays_fail_as_on_asyncio(delay: Any) -> None:
    async def agent() -> None:
        if delay is None:
            asyncio.get_running_loop().call_later(delay, print)
        else:
            await asyncio.sleep(delay)

    with pytest.raises((TypeError, ValueError)):
        outcome(agent)
