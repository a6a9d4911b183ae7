"""What an agent loop can't do is refused at once, with the line and the mend."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any

import anyio.to_thread
import pytest

from snaprt.errors import NotInAgent
from snaprt.kernel import AgentLoop
from snaprt.kernel.noio import REFUSED

from .driver import Driver, outcome


def public_methods(cls: type) -> set[str]:
    return {name for name, value in vars(cls).items() if inspect.isfunction(value) and name[0] != "_"}


def test_every_method_of_an_event_loop_works_or_is_in_the_table() -> None:
    written_out = {
        name
        for name in public_methods(AgentLoop)
        if getattr(AgentLoop, name) is not getattr(asyncio.AbstractEventLoop, name, None)
    }
    assert public_methods(asyncio.AbstractEventLoop) <= written_out


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_method_names_the_line_and_the_mend(name: str) -> None:
    async def agent() -> None:
        loop = asyncio.get_running_loop()
        await getattr(loop, name)(1, 2, 3)  # HERE

    line = inspect.getsource(agent).splitlines().index("        await getattr(loop, name)(1, 2, 3)  # HERE")
    with pytest.raises(NotInAgent) as caught:
        outcome(agent)
    text = str(caught.value)
    assert f"{__file__}:{agent.__code__.co_firstlineno + line} in " in text
    assert name in text
    assert "tool" in text or "runtime" in text or "process" in text


async def connect() -> None:
    await asyncio.open_connection("localhost", 1)


async def serve() -> None:
    await asyncio.start_server(lambda r, w: None, "localhost", 0)


async def spawn() -> None:
    await asyncio.create_subprocess_exec("true")


async def thread() -> None:
    await asyncio.to_thread(print)


async def anyio_thread() -> None:
    await anyio.to_thread.run_sync(print)


async def anyio_connect() -> None:
    await anyio.connect_tcp("localhost", 1)


async def signals() -> None:
    asyncio.get_running_loop().add_signal_handler(2, print)


@pytest.mark.parametrize(
    "agent", [connect, serve, spawn, thread, anyio_thread, anyio_connect, signals], ids=lambda fn: fn.__name__
)
def test_asyncios_own_doors_to_the_world_name_the_agents_line(agent: Callable[[], Any]) -> None:
    with pytest.raises(NotInAgent) as caught:
        outcome(agent)
    assert f"{__file__}:{agent.__code__.co_firstlineno + 1} in {agent.__name__}" in str(caught.value)


def test_where_no_line_of_the_agent_is_near_the_librarys_own_is_named() -> None:
    async def agent() -> None:
        await anyio.connect_tcp("127.0.0.1", 1)  # does it in a task of its own

    with pytest.raises(ExceptionGroup) as caught:
        outcome(agent)
    (error,) = caught.value.exceptions
    assert isinstance(error, NotInAgent)
    assert "in try_connect" in str(error) or "connect_tcp" in str(error)
    assert "driver.py" not in str(error)


def test_a_future_of_another_loop_is_refused_where_it_is_awaited() -> None:
    other = asyncio.new_event_loop()
    try:
        foreign = other.create_future()

        async def deeper() -> None:
            await foreign

        async def agent() -> None:
            await deeper()

        with pytest.raises(NotInAgent) as caught:
            outcome(agent)
        assert f"{__file__}:{deeper.__code__.co_firstlineno + 1} in " in str(caught.value)
        assert "snaprt.step" in str(caught.value)
    finally:
        other.close()


def test_another_thread_may_not_call_into_the_agent_loop() -> None:
    caught: list[BaseException] = []

    async def agent() -> None:
        loop = asyncio.get_running_loop()

        def elsewhere() -> None:
            try:
                loop.call_soon_threadsafe(print)
            except NotInAgent as error:
                caught.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()

    outcome(agent)
    assert "thread" in str(caught[0])


def test_between_steps_no_thread_may_schedule_what_nobody_would_notice() -> None:
    loops: list[Any] = []

    async def agent() -> None:
        loops.append(asyncio.get_running_loop())
        await asyncio.sleep(1)

    outcome(agent)
    with pytest.raises(NotInAgent, match="thread"):
        loops[0].call_soon_threadsafe(print)


def test_the_same_thread_may() -> None:
    async def agent() -> str:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        loop.call_soon_threadsafe(future.set_result, "done")
        return await future  # type: ignore[no-any-return]

    assert outcome(agent) == "done"


def test_an_await_of_something_that_is_no_future_fails_as_on_asyncio() -> None:
    class Odd:
        def __await__(self) -> Any:
            yield 42

    async def agent() -> None:
        await Odd()

    with pytest.raises(RuntimeError, match="bad yield: 42"):
        Driver().outcome(agent)
