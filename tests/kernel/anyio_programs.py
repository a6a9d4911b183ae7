"""Agent programs over anyio's primitives, for the same comparisons as `programs`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
from anyio.abc import TaskStatus

from .driver import note
from .programs import fetch

ANYIO_PROGRAMS: list[Callable[..., Any]] = []


def program(fn: Callable[..., Any]) -> Callable[..., Any]:
    ANYIO_PROGRAMS.append(fn)
    return fn


@program
async def task_groups() -> Any:
    got: list[Any] = []

    async def work(n: int) -> None:
        await anyio.sleep(n)
        got.append(await fetch(str(n)))
        note("worked", n)

    async def fails(n: int) -> None:
        try:
            await anyio.sleep(n)
            raise ValueError(n)
        finally:
            note("left", n)

    async with anyio.create_task_group() as group:
        for n in range(3):
            group.start_soon(work, n)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(fails, 1)
            group.start_soon(work, 100)
            await work(50)
    except* ValueError as errors:
        await anyio.sleep(1)
        got.append(sorted(map(repr, errors.exceptions)))
    return got


@program
async def starting() -> Any:
    async def serve(port: int, *, task_status: TaskStatus[int]) -> None:
        await anyio.sleep(1)
        task_status.started(port + 1)
        try:
            await anyio.sleep_forever()
        finally:
            note("served")

    async with anyio.create_task_group() as group:
        port = await group.start(serve, 80)
        await anyio.sleep(1)
        group.cancel_scope.cancel()
    return port


@program
async def cancel_scopes() -> Any:
    got: list[Any] = []
    with anyio.move_on_after(1) as moved:
        await anyio.sleep(5)
        note("never")
    got.append(moved.cancelled_caught)
    try:
        with anyio.fail_after(1):
            with anyio.CancelScope(shield=True):
                await anyio.sleep(2)
                note("shielded")
            await anyio.sleep(5)
            note("never")
    except TimeoutError:
        got.append("too late")
    with anyio.CancelScope() as outer, anyio.CancelScope() as inner:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 100)
            await anyio.sleep(1)
            outer.cancel()
            await anyio.sleep(1)
    got.append((outer.cancelled_caught, inner.cancelled_caught))
    with anyio.move_on_after(10) as scope:
        await anyio.sleep(1)
        scope.deadline = anyio.current_time() + 0.5
        await anyio.sleep(1)
        note("never")
    got.append(anyio.current_effective_deadline())
    return got


@program
async def cleaning_up_under_a_shield_with_a_tool() -> Any:
    async with anyio.create_task_group() as group:

        async def cleans() -> None:
            try:
                await anyio.sleep(100)
            finally:
                with anyio.CancelScope(shield=True):
                    note(await fetch("cleaning"))
                    await anyio.sleep(3)
                    note(await fetch("cleaned"))

        group.start_soon(cleans)
        await anyio.sleep(1)
        group.cancel_scope.cancel()
    return group.cancel_scope.cancel_called


@program
async def synchronisation() -> Any:
    event, lock, semaphore = anyio.Event(), anyio.Lock(), anyio.Semaphore(2)
    condition, limiter = anyio.Condition(), anyio.CapacityLimiter(1)
    got: list[Any] = []

    async def work(n: int) -> None:
        async with lock:
            note("lock", n)
            await anyio.sleep(1)
        await event.wait()
        async with semaphore, limiter:
            note("in", n)
            await fetch(str(n))
        async with condition:
            got.append(n)
            condition.notify_all()

    async with anyio.create_task_group() as group:
        for n in range(3):
            group.start_soon(work, n)
        await anyio.sleep(5)
        event.set()
        async with condition:
            while len(got) < 3:
                await condition.wait()
    return got, limiter.statistics().borrowed_tokens, lock.statistics().locked


@program
async def memory_streams() -> Any:
    send, receive = anyio.create_memory_object_stream[int](1)
    got: list[Any] = []

    async def produce(stream: Any, start: int) -> None:
        async with stream:
            for n in range(start, start + 3):
                await stream.send(n)
                note("sent", n)
                await anyio.sleep(0.5)

    async def consume(stream: Any) -> None:
        async with stream:
            async for n in stream:
                got.append(n)
                await anyio.sleep(0.75)

    async with anyio.create_task_group() as group:
        group.start_soon(produce, send.clone(), 0)
        group.start_soon(produce, send, 10)
        group.start_soon(consume, receive.clone())
        group.start_soon(consume, receive)
    try:
        await receive.receive()
    except anyio.ClosedResourceError:
        note("closed")
    return sorted(got)


@program
async def mixed_with_asyncio() -> Any:
    async def work(n: int) -> int:
        with anyio.move_on_after(2) as scope:
            await asyncio.sleep(n)
        return -n if scope.cancelled_caught else n

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work(n)) for n in range(4)]
    try:
        async with asyncio.timeout(1):
            async with anyio.create_task_group() as inner:
                inner.start_soon(anyio.sleep, 10)
    except TimeoutError:
        note("timed out")
    return [task.result() for task in tasks]
