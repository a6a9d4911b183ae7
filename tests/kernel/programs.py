"""Agent programs over every asyncio primitive. Each notes what it does, and returns a value.

`PROGRAMS` lists them; tests run each of them undisturbed, on plain asyncio where it uses no operation, and
saved and restored at every idle moment, and compare.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import snaprt.kernel as k

from .driver import note

PROGRAMS: list[Callable[..., Any]] = []
color: ContextVar[str] = ContextVar("color", default="none")


def program(fn: Callable[..., Any]) -> Callable[..., Any]:
    PROGRAMS.append(fn)
    return fn


@k.tool(effect="read")
async def fetch(name: str, *, fail: bool = False) -> str:
    if fail:
        raise LookupError(name)
    return f"<{name}>"


@k.tool
def store(value: Any, *, idempotency_key: str) -> tuple[str, Any]:
    return idempotency_key, value


@program
async def sleeping() -> list[Any]:
    loop = asyncio.get_running_loop()
    began = loop.time()
    got = []
    for delay in (0, 0.5, 86_400):
        got.append(await asyncio.sleep(delay, result=delay))
        note("slept", delay)
    assert loop.time() - began >= 86_400.5
    return got


@program
async def tools_one_after_the_other() -> list[Any]:
    got: list[Any] = []
    for name in "abc":
        got.append(await fetch(name) + await fetch(name.upper()))
        note(got[-1])
    try:
        await fetch("x", fail=True)
    except LookupError as error:
        got.append(repr(error))
    got.append(await store({"n": 1}))
    got.append(await k.step(len, "four"))
    got.append(await k.step.read(max, 3, 4, key=lambda x: -x))
    return got


@program
async def gathering() -> Any:
    async def work(n: int) -> int:
        note("work", n)
        await asyncio.sleep(1.0 / (n + 1))
        await fetch(str(n))
        note("worked", n)
        if n == 2:
            raise ValueError(n)
        return n

    everything = await asyncio.gather(*map(work, range(4)), return_exceptions=True)
    try:
        await asyncio.gather(*map(work, range(4)))
    except ValueError as error:
        note("caught", repr(error))
    nested = await asyncio.gather(asyncio.gather(work(0), work(1)), work(3))
    return repr(everything), nested, await asyncio.gather()


@program
async def gather_cancelled() -> Any:
    async def work(n: int) -> None:
        try:
            await fetch(str(n)) if n else await asyncio.sleep(1000)
        except asyncio.CancelledError as error:
            note("cancelled", n, error.args)
            await asyncio.sleep(n)
            raise

    outer = asyncio.gather(*[asyncio.create_task(work(n)) for n in (0, 0, 0)])
    await asyncio.sleep(1)
    outer.cancel("enough")
    try:
        await outer
    except asyncio.CancelledError as error:
        return error.args


@program
async def task_groups() -> Any:
    async def work(n: int) -> str:
        await asyncio.sleep(n)
        return await fetch(str(n))

    async with asyncio.TaskGroup() as tg:
        tasks = [tg.create_task(work(n), name=f"worker {n}") for n in range(4)]
        note("spawned")
    got: list[Any] = [task.result() for task in tasks]

    async def fails(n: int) -> None:
        try:
            await asyncio.sleep(n)
            raise (ValueError if n % 2 else KeyError)(n)
        finally:
            note("leaving", n)

    try:
        async with asyncio.TaskGroup() as tg:
            tg.create_task(fails(1))
            tg.create_task(fails(1))
            tg.create_task(work(100))
            async with asyncio.TaskGroup() as inner:
                inner.create_task(work(50))
            note("never")
    except* ValueError as group:
        await asyncio.sleep(1)
        got.append(sorted(repr(each) for each in group.exceptions))
    return got


@program
async def waiting() -> Any:
    async def work(n: int) -> int:
        await asyncio.sleep(n)
        if n == 3:
            raise ValueError(n)
        return n

    tasks = [asyncio.create_task(work(n)) for n in (1, 2, 3, 4, 5)]
    got = []
    pending: set[Any] = set(tasks)
    for how in (asyncio.FIRST_COMPLETED, asyncio.FIRST_EXCEPTION, asyncio.ALL_COMPLETED):
        done, pending = await asyncio.wait(pending, return_when=how, timeout=100)
        got.append(sorted(tasks.index(task) for task in done))
        note(how, got[-1])
    done, pending = await asyncio.wait([asyncio.create_task(asyncio.sleep(5))], timeout=1)
    got.append((len(done), len(pending)))
    return got, repr(tasks[2].exception())


@program
async def as_completed_plain() -> Any:
    async def work(n: int) -> int:
        await asyncio.sleep(n)
        return n

    got = []
    for each in asyncio.as_completed([work(3), work(1), work(2)]):
        got.append(await each)
        note(got[-1])
    late = []
    try:
        for each in asyncio.as_completed([work(1), work(10)], timeout=5):
            late.append(await each)
    except TimeoutError:
        note("too late")
    return got, late


@program
async def as_completed_async_for() -> Any:
    if sys.version_info < (3, 13):
        note("as_completed can't be iterated asynchronously before 3.13")
        return None

    async def work(n: int) -> int:
        await asyncio.sleep(n)
        return n

    tasks = [asyncio.create_task(work(n)) for n in (3, 1, 2)]
    got = []
    async for each in asyncio.as_completed(tasks):
        got.append((tasks.index(each), await each))
        note(got[-1])
    return got


@program
async def wait_for_and_timeout() -> Any:
    async def work(n: float) -> float:
        try:
            await asyncio.sleep(n)
        except asyncio.CancelledError:
            note("cancelled", n)
            await asyncio.sleep(0.5)
            raise
        return n

    got: list[Any] = [await asyncio.wait_for(work(1), 2)]
    for limit in (0.3, 0, None):
        try:
            got.append(await asyncio.wait_for(work(1), limit))
        except TimeoutError:
            got.append("too late")
    try:
        async with asyncio.timeout(10) as outer:
            try:
                async with asyncio.timeout(1) as inner:
                    await work(5)
            except TimeoutError:
                note("inner", inner.expired(), outer.expired())
            outer.reschedule(asyncio.get_running_loop().time() + 2)
            await work(5)
    except TimeoutError:
        note("outer", outer.expired())
    task = asyncio.current_task()
    assert task is not None
    got.append(task.cancelling())
    return got


@program
async def shielding() -> Any:
    async def work() -> str:
        await asyncio.sleep(2)
        note("done all the same")
        return await fetch("shielded")

    inner = asyncio.create_task(work())

    async def waits() -> None:
        await asyncio.shield(inner)

    outer = asyncio.create_task(waits())
    await asyncio.sleep(1)
    outer.cancel()
    try:
        await outer
    except asyncio.CancelledError:
        note("outer cancelled", inner.cancelled())
    return await inner


@program
async def queues() -> Any:
    got = []
    for make in (asyncio.Queue, asyncio.LifoQueue, asyncio.PriorityQueue):
        queue: asyncio.Queue[Any] = make(maxsize=2)

        async def produce(queue: asyncio.Queue[Any] = queue) -> None:
            for n in (3, 1, 2, 5, 4):
                await queue.put(n)
                note("put", n, queue.qsize())

        async def consume(queue: asyncio.Queue[Any] = queue) -> None:
            while True:
                n = await queue.get()
                await asyncio.sleep(0.5**n)
                note("got", n)
                got.append(n)
                queue.task_done()

        workers = [asyncio.create_task(consume()) for _ in range(2)]
        await produce()
        await queue.join()
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return got


@program
async def queue_shutdown() -> Any:
    if sys.version_info < (3, 13):
        note("queues can't be shut down before 3.13")
        return None
    queue: asyncio.Queue[int] = asyncio.Queue(1)

    async def consume(n: int) -> list[int]:
        got = []
        try:
            while True:
                got.append(await queue.get())
                await asyncio.sleep(1)
        except asyncio.QueueShutDown:
            note("shut", n)
            return got

    tasks = [asyncio.create_task(consume(n)) for n in range(3)]
    for n in range(5):
        await queue.put(n)
    queue.shutdown()
    return await asyncio.gather(*tasks)


@program
async def locks_events_conditions() -> Any:
    lock, event, condition = asyncio.Lock(), asyncio.Event(), asyncio.Condition()
    got: list[Any] = []

    async def locked(n: int) -> None:
        async with lock:
            note("has the lock", n)
            got.append(n)
            await asyncio.sleep(1)

    async def waits(n: int) -> None:
        await event.wait()
        note("event", n)
        async with condition:
            await condition.wait_for(lambda: len(got) >= 3 + n)
            note("condition", n)
            got.append("c")
            condition.notify_all()

    tasks = [asyncio.create_task(locked(n)) for n in range(3)]
    tasks += [asyncio.create_task(waits(n)) for n in range(3)]
    await asyncio.sleep(1.5)
    assert lock.locked()
    tasks[2].cancel()
    await asyncio.sleep(3)
    event.set()
    await asyncio.sleep(0)
    async with condition:
        got.append("main")
        condition.notify_all()
    await asyncio.gather(*tasks, return_exceptions=True)
    return got


@program
async def semaphores_and_barriers() -> Any:
    semaphore, bounded, barrier = asyncio.Semaphore(2), asyncio.BoundedSemaphore(1), asyncio.Barrier(3)

    async def work(n: int) -> tuple[int, bool]:
        async with semaphore:
            note("in", n)
            await asyncio.sleep(1)
        async with bounded:
            await fetch(str(n))
        async with barrier as place:
            note("through", sorted([place])[0] in (0, 1, 2))
        return n, barrier.broken

    results = await asyncio.gather(*map(work, range(3)))
    try:
        bounded.release()
    except ValueError as error:
        note(str(error))
    waiting = asyncio.create_task(barrier.wait())
    await asyncio.sleep(1)
    await barrier.abort()
    try:
        await waiting
    except asyncio.BrokenBarrierError:
        note("broken")
    return results


@program
async def cancellation() -> Any:
    async def stubborn() -> str:
        task = asyncio.current_task()
        assert task is not None
        for n in range(2):
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError as error:
                note("not yet", n, error.args, task.cancelling(), task.uncancel())
        try:
            await asyncio.sleep(100)
        finally:
            note("cleaning")
            await asyncio.sleep(1)
            note("cleaned", await fetch("up"))
        return "never"

    task = asyncio.create_task(stubborn(), name="stubborn")
    for n in range(3):
        await asyncio.sleep(1)
        task.cancel(f"please {n}")
    try:
        await task
    except asyncio.CancelledError as error:
        return error.args, task.cancelled(), task.get_name()


@program
async def handled_exception_while_waiting() -> Any:
    try:
        try:
            raise ValueError("first")
        except ValueError:
            await asyncio.sleep(1)
            await fetch("in the handler")
            raise
    except ValueError as error:
        try:
            raise KeyError("second") from error
        except KeyError as second:
            await asyncio.sleep(1)
            return repr(second), repr(second.__cause__), repr(sys.exc_info()[1])


@asynccontextmanager
async def managed(name: str) -> Any:
    note("enter", name)
    await asyncio.sleep(1)
    try:
        yield name.upper()
    finally:
        await fetch("leaving " + name)
        note("exit", name)


async def counting(limit: int) -> Any:
    try:
        for n in range(limit):
            await asyncio.sleep(0.1)
            got = yield n
            if got:
                note("sent", got)
    finally:
        note("counting ends")


@program
async def async_generators_and_managers() -> Any:
    got: list[Any] = []
    async with managed("a") as a, managed("b") as b:
        await asyncio.sleep(1)
        got += [a, b]
        async for n in counting(3):
            got.append(n)
            await asyncio.sleep(0.5)
    got.append([n async for n in counting(3) if await asyncio.sleep(0.1, True)])
    generator = counting(10)
    got.append(await anext(generator))
    got.append(await generator.asend("hello"))
    await generator.aclose()
    return got


@program
async def generator_left_open() -> Any:
    generator = counting(10)
    first = await anext(generator)
    async for n in counting(5):
        await asyncio.sleep(0.1)
        if n == 1:
            break
    await asyncio.sleep(1)
    return first, n


@program
async def context_variables() -> Any:
    color.set("red")

    async def child(n: int) -> list[str]:
        seen = [color.get()]
        token = color.set(f"child {n}")
        await asyncio.sleep(1)
        seen.append(color.get())
        color.reset(token)
        await asyncio.sleep(1)
        return [*seen, color.get()]

    results = await asyncio.gather(child(1), child(2))
    return results, color.get()


@program
async def bare_futures_and_callbacks() -> Any:
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    future.add_done_callback(lambda done: note("callback", done.result()))
    loop.call_later(2, future.set_result, "late")
    soon = loop.call_later(1, note, "never")
    loop.call_later(0.5, soon.cancel)
    loop.call_soon(note, "soon")
    plain: asyncio.Future[str] = asyncio.Future()
    loop.call_at(loop.time() + 3, plain.set_result, "plain")
    waiting = asyncio.ensure_future(future)
    assert waiting is future
    return await future, await plain


@program
async def rest_is_cancelled_at_the_end() -> str:
    async def lingers(n: int) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            note("cleaning", n, await fetch("last words"))

    for n in range(2):
        asyncio.get_running_loop().set_debug(False)
        tasks.append(asyncio.create_task(lingers(n)))
    await asyncio.sleep(1)
    return "over"


tasks: list[Any] = []  # module global: keeps what would else be collected


@program
async def suspensions_and_plan() -> Any:
    plan = k.plan("look", "ask", "act")

    async def ask(n: int) -> Any:
        return await k.suspend({"question": n})

    with plan.step("look"):
        await fetch("it")
    plan.start("ask")
    answers = await asyncio.gather(ask(1), ask(2))
    plan.done("ask")
    plan.insert("think", before="act")
    try:
        async with plan.step("act"):
            await asyncio.sleep(1)
            raise ValueError("no")
    except ValueError:
        plan.skip("think")
    return answers, [(each.name, each.status) for each in plan], k.rules()


@program
async def eager_tasks() -> Any:
    eager = getattr(asyncio, "eager_task_factory", None)
    if eager is None:
        note("no eager tasks before 3.12")
        return None
    loop = asyncio.get_running_loop()
    loop.set_task_factory(eager)

    async def work(n: int) -> int:
        note("begun", n)
        if n:
            await asyncio.sleep(n)
        return n

    tasks = [asyncio.create_task(work(n)) for n in range(3)]
    note("made", [task.done() for task in tasks])
    return await asyncio.gather(*tasks)
