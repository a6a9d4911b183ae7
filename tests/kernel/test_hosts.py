"""The agent loop is the running loop while it steps, inside any host, and leaves no trace after."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import anyio
import pytest
import sniffio
import trio

from snaprt.kernel import AgentLoop, Kernel

from .driver import Driver
from .programs import PROGRAMS, gathering, queues, task_groups


def on_nothing(check: Callable[[], None]) -> None:
    check()


def on_asyncio(check: Callable[[], None]) -> None:
    async def main() -> None:
        check()
        await asyncio.sleep(0)
        done = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(lambda: done.set_result(check()))
        await done

    asyncio.run(main())


def on_trio(check: Callable[[], None]) -> None:
    async def main() -> None:
        check()
        await trio.lowlevel.checkpoint()
        check()

    trio.run(main)


def on_anyio_over_trio(check: Callable[[], None]) -> None:
    async def main() -> None:
        check()

    anyio.run(main, backend="trio")


HOSTS = [on_nothing, on_asyncio, on_trio, on_anyio_over_trio]
Host = Callable[[Callable[[], None]], None]


def surroundings() -> tuple[Any, ...]:
    """Everything of a thread that says what runs there."""
    loop = asyncio._get_running_loop()
    try:
        library: str | None = sniffio.current_async_library()
    except sniffio.AsyncLibraryNotFoundError:
        library = None
    return (
        loop,
        asyncio.current_task() if loop is not None else None,
        sys.get_asyncgen_hooks(),
        library,
        sniffio.thread_local.name,
    )


@pytest.mark.parametrize("host", HOSTS)
def test_code_on_the_agent_loop_sees_asyncio_and_nothing_of_the_host(host: Host) -> None:
    seen: list[Any] = []

    async def agent() -> None:
        await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        seen.append(isinstance(loop, AgentLoop) and asyncio.get_event_loop() is loop and loop.is_running())
        seen.append(task in asyncio.all_tasks() and len(asyncio.all_tasks()) == 1)
        seen.append(sniffio.current_async_library())
        seen.append(anyio.get_current_task().name == task.get_name() if task else None)

    host(lambda: Driver().outcome(agent) and None)
    assert seen == [True, True, "asyncio", True] * (len(seen) // 4)
    assert seen


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("leaving", [None, ValueError, SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_the_host_is_as_it_was_after_a_step_however_that_ends(
    host: Host, leaving: type[BaseException] | None
) -> None:
    async def agent() -> None:
        await asyncio.sleep(0)
        if leaving is not None:
            raise leaving("out")

    def check() -> None:
        before = surroundings()
        kernel = Kernel("run")
        kernel.start(agent)
        assert surroundings() == before
        if leaving in (SystemExit, KeyboardInterrupt):
            with pytest.raises(leaving):  # type: ignore[arg-type]  # one of the two
                kernel.advance()
            assert surroundings() == before
        kernel.advance()
        assert surroundings() == before
        assert kernel.status != "running"

    host(check)


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("program", [gathering, queues, task_groups], ids=lambda program: program.__name__)
def test_a_program_gives_the_same_in_every_host(host: Host, program: Callable[[], Any]) -> None:
    assert program in PROGRAMS
    expected = Driver().outcome(program)
    got: list[Any] = []
    host(lambda: got.append(Driver().outcome(program)))
    assert got == [expected] * len(got)
    assert got


def test_exits_that_agent_code_raises_fail_the_run_they_leave() -> None:
    async def agent() -> None:
        raise SystemExit(3)

    kernel = Kernel("run")
    kernel.start(agent)
    with pytest.raises(SystemExit):
        kernel.advance()
    kernel.advance()
    assert kernel.status == "failed"
    assert isinstance(kernel.error, SystemExit)


def test_the_hosts_context_variables_are_not_the_agents() -> None:
    from .programs import color

    async def agent() -> str:
        return color.get()

    token = color.set("the host's")
    try:
        assert Driver().outcome(agent) == "none"
    finally:
        color.reset(token)
