"""Answers, messages, children and texts that are made to break whoever waits for them."""

from __future__ import annotations

import asyncio
import math
from typing import Annotated, Any

import anyio
import pydantic
import pytest

import snaprt
from snaprt.runtime.family import Family
from tests.runtime import people
from tests.runtime.agents import note
from tests.runtime.test_people import Jumping, resumed, start
from tests.runtime.test_runtime import lines

pytestmark = pytest.mark.anyio


class Explosive(pydantic.BaseModel):
    x: int

    @pydantic.model_validator(mode="after")
    def _explodes(self) -> Explosive:
        if self.x == 1:
            raise RuntimeError("boom")
        if self.x == 2:
            raise SystemExit(3)
        return self


class OneWay:
    """Can be pickled and not be unpickled."""

    def __reduce__(self) -> Any:
        return _refuses, ()


def _refuses() -> Any:
    raise ValueError("not here")


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Money(pydantic.BaseModel):
    name: Annotated[str, pydantic.Field(pattern=r"^\p{L}+$")]
    eur: Annotated[float, pydantic.Field(multiple_of=0.01)] = 0.0


async def explosive() -> Any:
    return (await snaprt.suspend("?", answer=Explosive)).x


async def money() -> Any:
    return (await snaprt.suspend("?", answer=Money)).eur


async def asks(payload: Any, answer: Any = None) -> Any:
    return await snaprt.suspend(payload, answer=answer)


async def gives_one_way() -> Any:
    return OneWay()


async def has_a_child_that_gives_one_way() -> Any:
    try:
        return await snaprt.child(gives_one_way)
    except snaprt.NotRestorable as error:
        return str(error)


async def shows(value: Any) -> Any:
    snaprt.emit(value)
    return await snaprt.suspend(value)


async def forever(seconds: float) -> Any:
    try:
        return await snaprt.suspend("?", timeout=seconds)
    except ValueError as error:
        return str(error)


@snaprt.tool
async def fails_mutely(ledger: str) -> None:
    note(ledger, "called")
    raise Mute


async def calls_mute(ledger: str) -> str:
    try:
        await fails_mutely(ledger)
    except Mute as error:
        return type(error).__name__
    return "?"


@pytest.mark.parametrize("x", [1, 2])
async def test_a_validator_that_raises_something_else_doesnt_keep_the_run_from_going_on(
    url: str, x: int
) -> None:
    await start(url, explosive)
    asleep = await resumed(url, (None, {"x": x}))
    assert ("boom" in asleep.waiting[0].refused) == (x == 1)
    assert (await resumed(url, (None, {"x": 3}))).value == 3


async def test_a_message_that_nobody_could_read_isnt_accepted(url: str) -> None:
    await start(url, people.chat, 1)
    async with snaprt.Runtime(url) as rt:
        with pytest.raises(snaprt.NotRestorable, match="not here"):
            await rt.send("r", OneWay(), inbox="chat")
        await rt.send("r", "hello", inbox="chat")
    assert (await resumed(url)).value == ["hello"]


async def test_a_child_whose_result_nobody_could_read_doesnt_keep_its_parent_waiting(url: str) -> None:
    done = await start(url, has_a_child_that_gives_one_way)
    assert "can't be rebuilt elsewhere" in done.value


async def test_an_answer_isnt_refused_over_what_two_checkers_understand_differently(url: str) -> None:
    await start(url, money)
    async with snaprt.Runtime(url) as rt:
        with pytest.raises(snaprt.UsageError, match="not of type 'number'"):
            await rt.answer("r", {"name": "x", "eur": "much"})
    asleep = await resumed(url, (None, {"name": "4", "eur": 0.07}))  # by the type's own pattern it is none
    assert "pattern" in asleep.waiting[0].refused
    assert (await resumed(url, (None, {"name": "Zoë", "eur": 0.07}))).value == 0.07


@pytest.mark.parametrize(
    "payload", [{"in_doubt": 1}, {"approve": "x", "args": [], "kwargs": {}}], ids=["doubt", "approval"]
)
async def test_a_payload_that_looks_like_a_question_of_ours_takes_its_own_answers(
    url: str, payload: dict[str, Any]
) -> None:
    await start(url, asks, payload, bool)
    assert (await resumed(url, (None, True))).value is True


async def test_a_number_too_long_for_text_is_shown_by_its_size_alone(url: str) -> None:
    asleep = await start(url, shows, 10**5000)
    assert isinstance(asleep, snaprt.Suspended)
    assert (await resumed(url, (None, 1))).value == 1


@pytest.mark.parametrize("seconds", [math.inf, math.nan, 1e300, 0, -1])
async def test_a_timeout_that_is_none_is_refused_in_the_agent(url: str, seconds: float) -> None:
    assert "timeout is some seconds" in (await start(url, forever, seconds)).value


async def test_an_exception_without_a_text_is_a_result_like_any_other(url: str, ledger: str) -> None:
    assert (await start(url, calls_mute, ledger)).value == "Mute"
    assert lines(ledger) == ["called"]


async def test_a_run_that_sleeps_for_ever_beside_a_question_can_be_shown(url: str) -> None:
    async def both() -> Any:
        sleeping = asyncio.ensure_future(asyncio.sleep(math.inf))
        answer = await snaprt.suspend("?")
        sleeping.cancel()
        return answer

    assert (await start(url, both)).until is None
    assert (await resumed(url, (None, 1))).value == 1


# --- draining and cancelling ----------------------------------------------------------------------


async def works_while_asking(ledger: str) -> Any:
    async with asyncio.TaskGroup() as group:
        group.create_task(people.takes_long(ledger, 60))
        asked = group.create_task(snaprt.suspend("?", timeout=3.0, default="expired"))
    return asked.result()


async def test_an_answer_given_in_time_isnt_lost_because_the_run_drains(url: str, ledger: str) -> None:
    clock = Jumping()
    async with snaprt.Runtime(url, look=60, clock=clock) as rt:
        run = await rt.start(works_while_asking, ledger, run_id="r")
        async with snaprt.Runtime(url) as elsewhere:
            while not (await elsewhere.show("r")).waiting:
                await anyio.sleep(0.01)
            await elsewhere.answer("r", "in time")
        run.drain(30)
        clock.now += 10  # the question's time is over now, and the run hasn't looked for its answer
        people.enough(ledger)
        outcome = await run.outcome()
    if isinstance(outcome, snaprt.Suspended):
        outcome = await resumed(url, clock=clock)
    assert outcome.value == "in time"


async def test_a_second_cancellation_doesnt_take_back_what_the_first_asked_of_the_child(
    url: str, ledger: str
) -> None:
    await start(url, people.parent_of_cleaner, ledger)
    async with snaprt.Runtime(url) as rt:
        await rt.cancel("r", "one")
        run = await rt.resume("r")
        await rt.cancel("r", "two")
        assert isinstance(await run.outcome(), snaprt.Cancelled)
        assert isinstance(await (await rt.resume("r.1")).outcome(), snaprt.Cancelled)


async def gives_up_on_child(ledger: str) -> str:
    task = asyncio.create_task(snaprt.child(people.cleans_up, ledger))
    await people.look_up(ledger, "meanwhile")
    task.cancel()
    await asyncio.wait([task])
    return "went on"


async def test_a_child_that_is_given_up_while_it_begins_isnt_left_behind(
    url: str, ledger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = Family._begin

    async def slowly(self: Family, *args: Any) -> None:
        await anyio.sleep(0.2)
        await begin(self, *args)

    monkeypatch.setattr(Family, "_begin", slowly)
    async with snaprt.Runtime(url) as rt:
        assert (await (await rt.start(gives_up_on_child, ledger, run_id="r")).outcome()).value == "went on"
        assert (await (await rt.resume("r.2")).outcome()) == snaprt.Cancelled(
            "r.2", "its parent was cancelled"
        )


async def test_a_child_that_has_just_ended_doesnt_fail_a_parent_that_is_cancelled(
    url: str, ledger: str
) -> None:
    await start(url, people.parent, ledger, True)
    async with snaprt.Runtime(url) as rt:
        await rt.answer("r.1", "!")
        await (await rt.resume("r.1")).outcome()
        await rt.cancel("r", "enough")
        assert await (await rt.resume("r")).outcome() == snaprt.Cancelled("r", "enough")


async def test_watching_an_ended_run_from_its_end_on_ends(url: str) -> None:
    await start(url, people.choice)
    await resumed(url, (None, "left"))
    async with snaprt.Runtime(url) as rt:
        records = (await rt.show("r")).records
        with anyio.fail_after(20):
            assert [event async for event in rt.events("r", after=records)] == []


async def test_an_early_answer_to_what_cant_be_asked_any_more_is_refused(url: str) -> None:
    await start(url, people.choice)
    async with snaprt.Runtime(url) as rt:
        for never in ("chat.m000000000001", "review.r1", "review.foo", "review.1", "review.02"):
            with pytest.raises(snaprt.UnknownSuspension):
                await rt.answer("r", 1, suspension=never, early=True)
    await resumed(url, (None, "left"))
    async with snaprt.Runtime(url) as rt:
        with pytest.raises(snaprt.UsageError, match="has ended"):
            await rt.answer("r", 1, suspension="review", early=True)


async def test_whether_a_time_is_over_is_told_by_the_runs_clock(url: str) -> None:
    clock = Jumping(1_000_000.0)
    await start(url, people.patient, 3600, clock=clock)
    async with snaprt.Runtime(url, clock=clock) as rt:
        await rt.answer("r", "in time")
    # By its own clock whoever gave it was late.
    assert (await resumed(url, clock=clock)).until == 1_003_600.0
