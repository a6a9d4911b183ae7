"""A run saved and restored at every idle moment goes on as if nothing had been."""

from __future__ import annotations

import asyncio
import colorsys
import gc
import logging
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psutil
import pytest

from snaprt import state
from snaprt.errors import NotSerialisable
from snaprt.kernel import Answer, Ask, Call, Kernel, Refused, plan, rules, suspend, tool
from snaprt.state import anchors

from .driver import TRACE, Clock, Driver, note, shown
from .programs import PROGRAMS, fetch, store

NEVER_IDLE = {"as_completed_async_for", "queue_shutdown", "eager_tasks"}  # on the versions that lack them


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_saved_at_every_idle_moment_shows_the_trace_of_the_undisturbed(
    program: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    driver = Driver(save=True)
    assert shown(program, driver) == shown(program, Driver())
    assert driver.saves > 0 or program.__name__ in NEVER_IDLE
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


def restored(kernel: Kernel, clock: Callable[[], float] | None = None) -> Kernel:
    parts = [bytes(part) for part in kernel.save().parts]
    kernel.release()
    return Kernel.load(parts, clock=clock or Clock())


def started(agent: Callable[..., Any], *args: Any, clock: Callable[[], float] | None = None) -> Kernel:
    kernel = Kernel("run", {"model": "m-1"}, clock=clock or Clock())
    kernel.start(agent, args)
    kernel.advance()
    return kernel


def test_a_restored_run_can_issue_the_same_calls_and_questions_again() -> None:
    async def agent() -> Any:
        return await asyncio.gather(store({"a": 1}), fetch("x"), suspend({"sure": "?"}))

    kernel = started(agent)
    calls, asks = kernel.pending_calls(), kernel.open_suspensions()
    again = restored(kernel)
    assert again.advance() == []
    assert again.pending_calls() == calls
    assert [call.fn for call in calls] == [store.__wrapped__, fetch.__wrapped__]
    assert [(call.key, call.pass_key) for call in calls] == [("run/1", True), ("run/2", False)]
    assert again.open_suspensions() == asks
    assert list(asks) == ["ask-1"]


def test_the_summary_of_a_restored_run_is_that_of_the_saved_one() -> None:
    async def agent() -> Any:
        plan("look", "ask").start("look")
        await fetch("x")
        await suspend({"rules": rules()})

    driver = Driver()
    seen = []
    driver.at_idle = lambda kernel: seen.append((kernel.summary(), restored(started_twin(kernel)).summary()))

    def started_twin(kernel: Kernel) -> Kernel:
        return Kernel.load([bytes(part) for part in kernel.save().parts], clock=driver.clock)

    driver.run(agent)
    assert len(seen) == 2
    for before, after in seen:
        assert before == after


def test_a_kernel_is_dirty_when_anything_has_happened_since_it_was_saved() -> None:
    async def agent() -> None:
        await fetch("x")
        await asyncio.sleep(5)

    clock = Clock()
    kernel = started(agent, clock=clock)
    assert kernel.dirty
    kernel.save()
    assert not kernel.dirty
    assert kernel.advance() == []
    assert not kernel.dirty
    again = restored(kernel, clock)
    assert not again.dirty


def test_a_timer_goes_on_while_the_run_sleeps() -> None:
    async def agent() -> float:
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(100)
        return asyncio.get_running_loop().time() - began

    clock = Clock(1000.0)
    kernel = started(agent, clock=clock)
    elsewhere = Clock(1040.0)
    again = restored(kernel, elsewhere)
    assert again.next_timer() == 1100.0
    elsewhere.now = 1100.0
    again.advance()
    assert again.value == 100.0


def test_a_machine_whose_clock_is_behind_doesnt_turn_time_back() -> None:
    async def agent() -> float:
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(100)
        return asyncio.get_running_loop().time() - began

    kernel = started(agent, clock=Clock(1000.0))
    behind = Clock(500.0)
    again = restored(kernel, behind)
    assert again.next_timer() == 600.0
    behind.now = 550.0
    again.advance()
    right = Clock(1060.0)
    last = restored(again, right)
    assert last.next_timer() == 1100.0
    right.now = 1100.0
    last.advance()
    assert last.value == 100.0


def test_tasks_are_registered_with_asyncio_again() -> None:
    async def agent() -> list[str]:
        async def child() -> None:
            await fetch("never")

        children = [asyncio.create_task(child(), name=f"child {n}") for n in range(3)]
        await fetch("x")
        names = sorted(task.get_name() for task in asyncio.all_tasks())
        for task in children:
            task.cancel()
        return names

    driver = Driver(save=True, choose=lambda open_things: len(open_things) - 1)
    driver.choose = lambda open_things: next(
        n for n, each in enumerate(open_things) if isinstance(each, Call) and each.args == ("x",)
    )
    assert driver.outcome(agent) == ["Task-1", "child 0", "child 1", "child 2"]


def test_names_of_tasks_are_counted_by_the_run() -> None:
    async def agent() -> list[str]:
        names = [asyncio.create_task(asyncio.sleep(0)).get_name()]
        await asyncio.sleep(1)
        names.append(asyncio.create_task(asyncio.sleep(0)).get_name())
        return names

    assert Driver(save=True).outcome(agent) == ["Task-2", "Task-3"]


def test_a_handle_is_refused_in_the_awaits_that_would_have_saved_it() -> None:
    async def agent() -> Any:
        lock = threading.Lock()
        waiting = asyncio.create_task(asyncio.sleep(1000))
        try:
            await asyncio.gather(fetch("a"), suspend("b"))
        except NotSerialisable as error:
            note("refused", len(error.args))
        del lock
        waiting.cancel()
        return await fetch("c")

    TRACE.clear()
    kernel = Kernel("run", clock=Clock())
    kernel.start(agent)
    commands = kernel.advance()
    assert [type(command) for command in commands] == [Call, Ask]
    with pytest.raises(NotSerialisable, match="lock") as caught:
        kernel.save()
    assert kernel.dirty
    kernel.deliver(Refused([1], ["ask-1"], caught.value))
    commands = kernel.advance()
    assert TRACE == [("refused", 1)]
    assert [command.args for command in commands if isinstance(command, Call)] == [("c",)]
    assert kernel.steps[1].status == "refused"
    assert kernel.waits.suspensions["ask-1"].status == "refused"
    restored(kernel)


def test_a_task_made_by_asyncio_task_itself_is_refused_with_the_mend() -> None:
    async def agent() -> None:
        task: Any = asyncio.Task(asyncio.sleep(10))
        await task

    kernel = Kernel("run", clock=Clock())
    kernel.start(agent)
    kernel.advance()
    with pytest.raises(NotSerialisable, match=r"asyncio\.create_task"):
        kernel.save()
    kernel.release()


def test_a_future_of_another_loop_in_a_local_is_refused() -> None:
    other = asyncio.new_event_loop()
    foreign = other.create_future()

    async def agent(mine: list[Any]) -> None:
        await fetch("x")

    kernel = started(agent, [foreign])
    with pytest.raises(NotSerialisable, match=r"'mine' → \[0\]: asyncio\.Future"):
        kernel.save()
    kernel.release()
    other.close()


def test_nothing_of_a_run_executes_when_it_is_released(
    caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    ran: list[str] = []

    async def generator() -> Any:
        try:
            yield 1
            yield 2
        finally:
            ran.append("async generator")

    def plain() -> Any:
        try:
            yield 1
        finally:
            ran.append("generator")

    async def waits() -> None:
        try:
            await fetch("x")
        except GeneratorExit:
            ran.append("except")
        finally:
            ran.append("finally")

    async def agent() -> None:
        numbers, more = plain(), generator()
        next(numbers)
        await anext(more)
        unawaited = waits()
        tasks = [asyncio.create_task(waits()) for _ in range(3)]
        async with asyncio.TaskGroup() as group:
            group.create_task(waits())
            await asyncio.gather(*tasks)
        del unawaited

    kernel = started(agent)
    root = weakref.ref(kernel._root)
    kernel.release()
    kernel.release()
    del kernel
    gc.collect()
    assert root() is None
    assert ran == []
    assert caplog.records == []
    assert [str(warning.message) for warning in recwarn] == []


class Classless:
    @property
    def __class__(self) -> Any:
        raise RuntimeError("no class")


class Holder:
    pass


def _behind_a_class(frame: Any) -> Any:
    return type("Local", (), {"held": frame})


def _behind_an_instance(frame: Any) -> Any:
    return _behind_a_class(frame)()


def _behind_a_method(frame: Any) -> Any:
    class Reader:
        def read(self) -> Any:
            return next(frame)

    return Reader()


def _behind_a_base(frame: Any) -> Any:
    return type("Sub", (_behind_a_class(frame),), {})()


def _beside_a_dead_proxy(frame: Any) -> Any:
    return [weakref.proxy(Holder()), frame]


def _beside_one_without_a_class(frame: Any) -> Any:
    return [Classless(), frame]


def _in_what_was_a_global(frame: Any) -> Any:
    state.dump([object()])  # the globals are looked through
    held, colorsys.cache = colorsys.cache, {}  # type: ignore[attr-defined]  # the test's own
    held["frame"] = frame
    return held


@pytest.mark.parametrize(
    "holding",
    [
        _behind_a_class,
        _behind_an_instance,
        _behind_a_method,
        _behind_a_base,
        _beside_a_dead_proxy,
        _beside_one_without_a_class,
        _in_what_was_a_global,
    ],
)
def test_no_frame_executes_when_its_run_is_released_wherever_it_hangs(
    holding: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(colorsys, "cache", {}, raising=False)
    anchors.index._loaded = (0, None, 0)  # as if a module had been loaded
    ran: list[str] = []

    def generator() -> Any:
        try:
            yield 1
        finally:
            ran.append("generator")

    async def agent() -> None:
        frame = generator()
        next(frame)
        held = holding(frame)
        del frame
        try:
            await fetch("x")
        finally:
            ran.append("agent")
        del held

    kernel = started(agent)
    kernel.release()
    del kernel
    gc.collect()
    monkeypatch.delattr(colorsys, "cache")
    anchors.index.refresh(full=True)
    state.dump([object()])  # what the last one kept is let go of
    gc.collect()
    assert ran == []


def _counting() -> Any:
    numbers = iter_numbers()

    def count() -> int:
        return next(numbers)  # type: ignore[no-any-return]  # a generator of numbers

    return count


def iter_numbers() -> Any:
    yield from range(100)


class Counter:
    numbers = iter_numbers()


counting = _counting()
counting.__qualname__ = "counting"


def test_the_frames_that_a_module_holds_outlive_the_runs_that_use_them() -> None:
    async def agent() -> None:
        held = [Counter, Counter(), counting, next(Counter.numbers), counting()]
        await fetch("x")
        del held

    for count in range(2):
        kernel = started(agent)
        kernel.release()
        assert (next(Counter.numbers), counting()) == (2 * count + 1, 2 * count + 1)


@pytest.mark.slow
def test_ten_thousand_runs_that_come_and_go_leave_memory_flat() -> None:
    async def agent(n: int) -> Any:
        data = bytearray(2000)
        queue: asyncio.Queue[int] = asyncio.Queue()
        tasks = [asyncio.create_task(queue.get()) for _ in range(2)]
        try:
            async with asyncio.timeout(1000):
                await asyncio.gather(*tasks, fetch(str(n)))
        finally:
            data.clear()

    def one(n: int) -> None:
        kernel = Kernel(f"run-{n}", clock=Clock())
        kernel.start(agent, (n,))
        kernel.advance()
        if n % 20 == 0:
            kernel = restored(kernel)
        kernel.release()

    process = psutil.Process()
    for n in range(1000):
        one(n)
    gc.collect()
    objects, blocks, before = len(gc.get_objects()), sys.getallocatedblocks(), process.memory_info().rss
    for n in range(10_000):
        one(n)
    gc.collect()
    assert len(gc.get_objects()) - objects < 200
    assert sys.getallocatedblocks() - blocks < 2000
    # What isn't counted as a block, like the data of each run. Half of that is left to the allocator's whims.
    assert process.memory_info().rss - before < 10_000 * 1000


@tool(effect="read")
def shared(value: list[int]) -> int:
    return len(value)


def test_what_a_call_and_its_caller_share_stays_shared() -> None:
    async def agent() -> bool:
        mine = [1, 2]
        task = asyncio.create_task(shared(mine))
        await asyncio.sleep(0)
        await suspend()
        mine.append(3)
        return await task == 3

    driver = Driver(save=True, choose=lambda open_things: len(open_things) - 1)
    assert driver.outcome(agent) is True


def test_a_released_run_still_shows_its_summary() -> None:
    async def agent() -> None:
        await asyncio.gather(fetch("x"), suspend("y"))

    kernel = started(agent)
    before = kernel.summary()
    kernel.release()
    assert kernel.summary() == before | {"current_step": "ask-1"}
    assert kernel.pending_calls() == []


def test_a_long_payload_is_shown_whole_to_whoever_has_to_answer() -> None:
    draft = "A line of the draft.\n" * 1000

    async def agent() -> Any:
        return await suspend({"draft": draft})

    kernel = Kernel("r")
    kernel.start(agent)
    kernel.advance()
    assert kernel.summary()["waiting"] == [{"suspension": "ask-1", "payload": {"draft": draft}}]


def test_a_run_names_no_global_that_only_another_run_of_the_process_holds() -> None:
    async def one() -> None:
        kept = TRACE
        await suspend()
        del kept

    async def other() -> None:
        await suspend()

    def saved(agent: Callable[[], Any]) -> bytes:
        kernel = Kernel("r", clock=Clock())
        kernel.start(agent)
        kernel.advance()
        data = bytes(kernel.save())
        assert bytes(kernel.save()) == data
        kernel.release()
        return data

    before = saved(other)
    assert b'"TRACE"' in saved(one)
    assert b'"TRACE"' not in before
    assert saved(other) == before


@dataclass(frozen=True)
class Node:
    name: str
    peers: set[Any] = field(default_factory=set, compare=False)


def test_of_a_load_that_has_to_be_tried_again_nothing_is_heard_of_the_first_try(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def agent() -> list[str]:
        node = Node("a")
        node.peers.add(node)
        task = asyncio.create_task(asyncio.sleep(10, "slept"))
        await suspend()
        task.cancel()
        return [each.name for each in node.peers if each in node.peers]

    gc.collect()  # what other tests left isn't meant
    caplog.clear()
    kernel = Kernel("r", clock=Clock())
    kernel.start(agent)
    kernel.advance()
    kernel = restored(kernel)
    gc.collect()
    assert len(asyncio.all_tasks(kernel.loop)) == 2
    kernel.deliver(Answer("ask-1", None))
    kernel.advance()
    assert kernel.value == ["a"]
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
