"""Durable time, children, and what watchers are shown. On asyncio and trio hosts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import anyio
import pytest

import snaprt
from tests.runtime import people
from tests.runtime.test_people import Jumping, resumed, start
from tests.runtime.test_runtime import lines

pytestmark = pytest.mark.anyio

Dying = Callable[[str], AbstractContextManager[None]]


# --- time -----------------------------------------------------------------------------------------


async def test_a_moment_is_reached_by_the_wall_clock_also_if_that_is_set_back(url: str) -> None:
    clock = Jumping()
    when = datetime.fromtimestamp(clock.now + 7200, timezone(timedelta(hours=5)))
    asleep = await start(url, people.until, when, clock=clock)
    assert asleep.until == clock.now + 7200
    clock.now -= 3600  # set back an hour: the moment is three hours off now
    asleep = await resumed(url, clock=clock)
    assert isinstance(asleep, snaprt.Suspended)
    clock.now += 3 * 3600 - 100
    assert isinstance(await resumed(url, clock=clock), snaprt.Suspended)
    clock.now += 101
    assert (await resumed(url, clock=clock)).value >= when.timestamp()


async def test_a_moment_that_is_past_isnt_waited_for(url: str) -> None:
    done = await start(url, people.until, datetime(2001, 1, 1, tzinfo=UTC))
    assert isinstance(done, snaprt.Completed)


async def test_a_moment_without_a_zone_is_refused(url: str) -> None:
    outcome = await start(url, people.until, datetime(2001, 1, 1))
    assert isinstance(outcome.error, ValueError)
    assert "doesn't say which moment it is" in str(outcome.error)


async def test_a_sleep_that_ended_in_time_isnt_timed_out_because_the_run_woke_late(url: str) -> None:
    clock = Jumping()
    await start(url, people.two_timers, clock=clock)
    clock.now += 10_000
    assert (await resumed(url, clock=clock)).value == ["slept"]


async def test_a_clock_that_jumps_ahead_while_the_run_is_in_hand_wakes_it(url: str) -> None:
    clock = Jumping()
    async with snaprt.Runtime(url, clock=clock, distant=1e6, look=0.02) as rt:
        run = await rt.start(people.two_timers, run_id="r")
        await anyio.sleep(0.05)
        clock.now += 150
        with anyio.fail_after(20):
            assert (await run.outcome()).value == ["slept"]


# --- children -------------------------------------------------------------------------------------


async def test_a_child_is_a_run_of_its_own_and_its_result_is_awaited(url: str, ledger: str) -> None:
    async with snaprt.Runtime(url) as rt:
        outcome = await (await rt.start(people.parent, ledger, False, run_id="r")).outcome()
        assert outcome.value == ("<one>", "<two>")
        assert sorted((await rt.show("r")).children) == ["r.1", "r.2"]
        child = await rt.show("r.1")
    assert (child.parent, child.status, child.agent) == ("r", "completed", "leaf")
    assert sorted(lines(ledger)) == ["look one", "look two"]


async def test_a_parent_whose_child_waits_for_a_person_leaves_and_comes_back(url: str, ledger: str) -> None:
    asleep = await start(url, people.parent, ledger, True)
    assert (asleep.waiting, asleep.children) == ((), ("r.1",))
    assert await resumed(url) == asleep
    async with snaprt.Runtime(url) as rt:
        await rt.answer("r.1", "!")
        # Resuming the parent goes on with the child, too.
        assert (await (await rt.resume("r")).outcome()).value == ("<one>!", "<two>")
    assert sorted(lines(ledger)) == ["look one", "look two"]


async def test_a_parent_is_told_by_whoever_sees_its_child_end(url: str, ledger: str) -> None:
    await start(url, people.parent, ledger, True)
    async with snaprt.Runtime(url) as rt:
        await rt.answer("r.1", "!")
        assert (await (await rt.resume("r.1")).outcome()).value == "<one>!"
    assert (await resumed(url)).value == ("<one>!", "<two>")


@pytest.mark.parametrize("kind", ["start", "intent", "claim", "result", "suspend", "wake", "finish"])
async def test_no_child_is_started_twice_nor_lost_wherever_the_process_dies(
    url: str, ledger: str, kind: str, dying_at: Dying
) -> None:
    with dying_at(kind):
        await start(url, people.parent, ledger, True)
        async with snaprt.Runtime(url) as rt:
            await rt.answer("r.1", "!")
            await (await rt.resume("r")).outcome()
    async with snaprt.Runtime(url) as rt:
        if not [info for info in await rt.list() if info.run == "r"]:
            return  # it died before there was a run
        outcome = await (await rt.resume("r")).outcome()
        if isinstance(outcome, snaprt.Suspended):  # it waits for the child, and that for its answer
            assert outcome.children == ("r.1",)
            await rt.answer("r.1", "!")
            outcome = await (await rt.resume("r")).outcome()
        assert outcome.value == ("<one>!", "<two>")
        assert sorted(info.run for info in await rt.list()) == ["r", "r.1", "r.2"]


async def test_the_exception_of_a_child_is_raised_in_its_parent(url: str, ledger: str) -> None:
    assert (await start(url, people.parent_of_broken, ledger)).value == "the child's own"


async def test_cancelling_a_parent_reaches_down(url: str, ledger: str) -> None:
    await start(url, people.parent_of_cleaner, ledger)
    async with snaprt.Runtime(url) as rt:
        await rt.cancel("r", "enough")
        assert await (await rt.resume("r")).outcome() == snaprt.Cancelled("r", "enough")
        child = await (await rt.resume("r.1")).outcome()
    assert child == snaprt.Cancelled("r.1", "its parent was cancelled")
    assert lines(ledger) == ["cancelled its parent was cancelled", "look cleanup"]


async def test_cancelling_a_grandparent_reaches_all_the_way_down_before_it_has_ended(
    url: str, ledger: str
) -> None:
    await start(url, people.grandparent_of_cleaner, ledger)
    async with snaprt.Runtime(url) as rt:
        await rt.cancel("r", "enough")
        assert await (await rt.resume("r")).outcome() == snaprt.Cancelled("r", "enough")
    async with snaprt.Runtime(url) as rt:
        assert {info.run: info.status for info in await rt.list()} == dict.fromkeys(
            ["r", "r.1", "r.1.1"], "cancelled"
        )
    assert lines(ledger) == ["cancelled its parent was cancelled", "look cleanup"]


async def test_an_agent_isnt_held_up_while_a_child_that_it_gave_up_cleans_up(url: str, ledger: str) -> None:
    async with snaprt.Runtime(url) as rt:
        outcome = await (await rt.start(people.gives_up_in_time, ledger, run_id="r")).outcome()
        assert outcome == snaprt.Completed("r", "timed out")
        assert isinstance(await (await rt.resume("r.1")).outcome(), snaprt.Cancelled)
    assert lines(ledger) == ["look went on", "took long"]


async def test_a_child_isnt_cancelled_once_more_while_it_cleans_up_if_the_process_dies(
    url: str, ledger: str, dying_at: Dying
) -> None:
    await start(url, people.parent_of_slow_cleaner, ledger)
    async with snaprt.Runtime(url) as rt:
        await rt.cancel("r", "enough")
    with dying_at("result"):  # the request to the child is made, and whether it was isn't on record
        await resumed(url)
    async with snaprt.Runtime(url) as rt:
        await (await rt.resume("r.1")).outcome()  # it is cancelled, and cleans up
        await (await rt.resume("r")).outcome()  # which asks for that again
        await (await rt.resume("r.1")).outcome()
        await rt.answer("r.1", "clean", suspension="ask-2")
        child = await (await rt.resume("r.1")).outcome()
        assert child == snaprt.Cancelled("r.1", "its parent was cancelled")
        assert await (await rt.resume("r")).outcome() == snaprt.Cancelled("r", "enough")
    assert lines(ledger) == ["cleaned up: clean"]


async def test_a_child_that_ends_while_its_parent_cancels_it_doesnt_fail_the_parent(
    url: str, ledger: str, dying_at: Dying
) -> None:
    await start(url, people.parent_of_cleaner, ledger)
    async with snaprt.Runtime(url) as rt:
        await rt.cancel("r", "enough")
    with dying_at("result"):
        await resumed(url)
    async with snaprt.Runtime(url) as rt:
        assert isinstance(await (await rt.resume("r.1")).outcome(), snaprt.Cancelled)
    assert await resumed(url) == snaprt.Cancelled("r", "enough")


async def test_a_child_that_somebody_else_cancels_is_told_apart_from_a_cancelled_parent(
    url: str, ledger: str
) -> None:
    await start(url, people.parent_that_hears, ledger)
    async with snaprt.Runtime(url) as rt:
        await rt.cancel("r.1", "by hand")
    assert (await resumed(url)).value == "Child r.1 was cancelled: by hand."


async def test_a_child_isnt_mistaken_for_a_run_that_has_its_id(url: str, ledger: str) -> None:
    async with snaprt.Runtime(url) as rt:
        await (await rt.start(people.choice, run_id="r.1")).outcome()
        outcome = await (await rt.start(people.parent_of_broken, ledger, run_id="r")).outcome()
    assert isinstance(outcome.error, snaprt.CallFailed)
    assert "r.1, is taken by a run that isn't one of r's" in str(outcome.error)


# --- events ---------------------------------------------------------------------------------------


async def told(url: str, **options: Any) -> list[tuple[str, Any]]:
    async with snaprt.Runtime(url) as rt:
        return [
            (event.kind, event.value if event.kind == "emitted" else event.step)
            async for event in rt.events("r", **options)
        ]


async def test_a_watcher_is_told_all_in_order_across_processes(url: str, ledger: str) -> None:
    await start(url, people.shows, ledger)
    before = await told(url, follow=False)
    assert [value for kind, value in before if kind == "emitted"] == [
        "begin", {"count": 0}, {"count": 1}, {"count": 2}, "middle", "thread 0", "thread 1",
    ]  # fmt: skip
    assert before[0] == ("started", None)
    assert before[-1] == ("suspended", None)
    await resumed(url, (None, "yes"))
    after = await told(url)
    assert after[: len(before)] == before
    assert after[len(before) :] == [
        ("resumed", None), ("answered", None), ("emitted", "end"), ("finished", None),
    ]  # fmt: skip


async def test_a_watcher_of_a_parent_is_told_of_its_children(url: str, ledger: str) -> None:
    await start(url, people.parent_of_broken, ledger)
    kinds = [kind for kind, _ in await told(url)]
    assert kinds == ["started", "called", "returned", "child_ended", "finished"]


async def test_a_watcher_sees_what_a_tool_shows_while_it_works(url: str, ledger: str) -> None:
    async with snaprt.Runtime(url) as rt, anyio.create_task_group() as group:
        seen: list[Any] = []
        shown = anyio.Event()

        async def watching() -> None:
            async for event in run.events():
                if event.kind == "emitted":
                    seen.append((event.step, event.value))
                    shown.set()

        people.RELEASED.clear()
        run = await rt.start(people.works, run_id="r")
        group.start_soon(watching)
        with anyio.fail_after(20):
            await shown.wait()  # the tool still works
        people.RELEASED.append(True)
        await run.outcome()
    assert seen == [(1, "half")]


@pytest.mark.parametrize("kind", ["result", "suspend", "progress"])
async def test_nothing_is_shown_twice_when_a_step_is_called_again(
    url: str, ledger: str, kind: str, dying_at: Dying
) -> None:
    if kind == "progress":
        await start(url, people.shows, ledger)
    else:
        with dying_at(kind):
            await start(url, people.shows, ledger)
        await resumed(url)
    emitted = [value for what, value in await told(url, follow=False) if what == "emitted"]
    assert emitted == [
        "begin", {"count": 0}, {"count": 1}, {"count": 2}, "middle", "thread 0", "thread 1",
    ]  # fmt: skip


async def test_nothing_is_shown_twice_when_one_process_after_the_other_dies_over_a_step(
    url: str, dying_at: Dying
) -> None:
    people.RELEASED.clear()
    with dying_at("result"):
        async with snaprt.Runtime(url) as rt:
            run = await rt.start(people.works, run_id="r")
            with anyio.fail_after(20):
                async for event in run.events():
                    if event.kind == "emitted":
                        break
            people.RELEASED.append(True)
            await run.outcome()
    with dying_at("result"):
        await resumed(url)
    await resumed(url)
    assert [value for kind, value in await told(url, follow=False) if kind == "emitted"] == ["half"]


async def test_emitting_where_nobody_could_show_it_is_refused() -> None:
    with pytest.raises(snaprt.OutsideAgent):
        snaprt.emit("lost")
