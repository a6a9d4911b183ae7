"""anyio inside an agent: its structures work, and travel with the run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from snaprt.kernel import Kernel

from .anyio_programs import ANYIO_PROGRAMS
from .driver import TRACE, Clock, Driver, shown
from .programs import fetch
from .test_programs import run_on_asyncio


@pytest.mark.parametrize("program", ANYIO_PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_gives_what_it_gives_on_asyncio(program: Callable[[], Any]) -> None:
    TRACE.clear()
    expected = run_on_asyncio(program), sorted(map(repr, TRACE))
    TRACE.clear()
    assert (Driver().outcome(program), sorted(map(repr, TRACE))) == expected


@pytest.mark.parametrize("program", ANYIO_PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_saved_at_every_idle_moment_shows_the_trace_of_the_undisturbed(
    program: Callable[[], Any],
) -> None:
    driver = Driver(save=True)
    assert shown(program, driver) == shown(program, Driver())
    assert driver.saves > 0


def test_a_cancelled_scope_that_waits_for_a_shielded_task_leaves_the_run_idle() -> None:
    async def agent() -> None:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:

                async def cleans() -> None:
                    with anyio.CancelScope(shield=True):
                        await fetch("cleaning")

                group.start_soon(cleans)
                await anyio.sleep(0)
                scope.cancel()

    kernel = Kernel("run", clock=Clock())
    kernel.start(agent)
    commands = kernel.advance()
    assert len(commands) == 1
    assert kernel.idle
    assert kernel.next_timer() is None
    kernel.save()
    assert kernel.advance() == []
    assert not kernel.dirty


def test_parents_of_restored_tasks_are_the_restored_parents() -> None:
    async def agent() -> list[bool]:
        seen: list[bool] = []
        root = asyncio.current_task()

        async def child() -> None:
            await fetch("x")
            seen.append(anyio.get_current_task().parent_id == id(root))

        async with anyio.create_task_group() as group:
            group.start_soon(child)
        return seen

    assert Driver(save=True).outcome(agent) == [True]
