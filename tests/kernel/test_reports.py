"""What nobody handles is reported as asyncio reports it; what holds the loop is warned about."""

from __future__ import annotations

import asyncio
import gc
import logging
from typing import Any

import pytest

from snaprt.kernel import Kernel

from .driver import Clock, Driver, outcome


def test_an_exception_that_nobody_retrieved_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def fails() -> None:
        raise ValueError("lost")

    async def agent() -> None:
        asyncio.create_task(fails())  # noqa: RUF006  # dropped on purpose
        await asyncio.sleep(1)

    gc.collect()  # what other tests dropped is reported now and not below
    caplog.clear()
    outcome(agent)
    gc.collect()
    records = [record for record in caplog.records if record.name == "asyncio"]
    assert [record.getMessage().splitlines()[0] for record in records] == [
        "Task exception was never retrieved"
    ]
    assert records[0].exc_info is not None
    assert isinstance(records[0].exc_info[1], ValueError)


def test_an_exception_in_a_callback_goes_to_the_exception_handler() -> None:
    seen: list[dict[str, Any]] = []

    async def agent() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: seen.append(context))
        assert loop.get_exception_handler() is not None
        loop.call_soon(int, "no number")
        await asyncio.sleep(0)

    outcome(agent)
    assert [type(context["exception"]) for context in seen] == [ValueError]


def test_an_exception_of_the_last_tasks_is_reported_as_asyncio_run_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fails_at_the_end() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            raise ValueError("while cleaning")

    async def agent() -> str:
        kept.append(asyncio.create_task(fails_at_the_end()))
        await asyncio.sleep(1)
        return "fine"

    assert outcome(agent) == "fine"
    assert "unhandled exception while the run ended" in caplog.text


kept: list[Any] = []


class Stopwatch:
    """In the place of `perf_counter`: moves when agent code says that it worked for so long."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def stopwatch(monkeypatch: pytest.MonkeyPatch) -> Stopwatch:
    stopwatch = Stopwatch()
    monkeypatch.setattr("snaprt.kernel.loop.perf_counter", stopwatch)
    return stopwatch


def test_a_step_that_holds_the_loop_is_warned_about_with_its_line(
    caplog: pytest.LogCaptureFixture, stopwatch: Stopwatch
) -> None:
    async def deeper() -> None:
        stopwatch.now += 0.25
        await asyncio.sleep(1)  # the step ends here

    async def agent() -> None:
        await asyncio.sleep(0)
        await deeper()

    outcome(agent)
    records = [record for record in caplog.records if record.name == "snaprt.kernel"]
    assert len(records) == 1
    assert records[0].levelno == logging.WARNING
    assert f"{__file__}:{deeper.__code__.co_firstlineno + 2} in " in records[0].getMessage()
    assert "held the agent loop for 0.25 s" in records[0].getMessage()


def test_how_long_a_step_may_take_can_be_set(caplog: pytest.LogCaptureFixture, stopwatch: Stopwatch) -> None:
    async def agent() -> None:
        stopwatch.now += 0.09
        await asyncio.sleep(1)
        asyncio.get_running_loop().slow_callback_duration = 2
        await asyncio.sleep(1)
        stopwatch.now += 1.9
        await asyncio.sleep(1)

    outcome(agent)
    assert caplog.records == []


def test_a_callback_that_holds_the_loop_is_warned_about(
    caplog: pytest.LogCaptureFixture, stopwatch: Stopwatch
) -> None:
    def slow() -> None:
        stopwatch.now += 1

    async def agent() -> None:
        asyncio.get_running_loop().call_soon(slow)
        await asyncio.sleep(0)

    outcome(agent)
    assert f"{__file__}:{slow.__code__.co_firstlineno}" in caplog.text


def test_a_released_run_says_nothing_and_runs_nothing(
    caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    ran: list[str] = []

    async def fails() -> None:
        raise ValueError("lost")

    async def waits() -> None:
        try:
            await asyncio.sleep(100)
        except GeneratorExit:
            ran.append("except")
        finally:
            ran.append("finally")

    async def agent() -> None:
        failed = asyncio.create_task(fails())
        waiting = [asyncio.create_task(waits()) for _ in range(3)]
        unawaited = waits()
        await asyncio.gather(*waiting)
        del failed, unawaited

    kernel = Kernel("run", clock=Clock())
    kernel.start(agent)
    kernel.advance()
    kernel.release()
    del kernel
    gc.collect()
    assert ran == []
    assert caplog.records == []
    assert [str(warning.message) for warning in recwarn] == []


def test_cancelled_timers_dont_pile_up() -> None:
    sizes: list[int] = []

    async def agent() -> None:
        loop: Any = asyncio.get_running_loop()
        for _ in range(1000):
            async with asyncio.timeout(10_000):
                await asyncio.sleep(0)
            sizes.append(len(loop._timers))

    Driver().outcome(agent)
    assert max(sizes) < 250
