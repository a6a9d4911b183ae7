"""Waiting for people: each test is named after what can't happen. All on asyncio and trio hosts."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import anyio
import pytest

import snaprt
from snaprt.kernel import Kernel
from snaprt.store import Log, Store
from tests.runtime import people
from tests.runtime.test_runtime import lines

pytestmark = pytest.mark.anyio


async def start(url: str, agent: Any, *args: Any, **options: Any) -> Any:
    async with snaprt.Runtime(url, **options) as rt:
        return await (await rt.start(agent, *args, run_id="r")).outcome()


async def resumed(url: str, *answers: tuple[str | None, Any], **options: Any) -> Any:
    """What the run gives when these are answered and it is resumed."""
    async with snaprt.Runtime(url, **options) as rt:
        for suspension, value in answers:
            await rt.answer("r", value, suspension=suspension)
        return await (await rt.resume("r")).outcome()


# --- typed answers --------------------------------------------------------------------------------


async def test_an_answer_comes_as_the_type_that_was_asked_for(url: str) -> None:
    asleep = await start(url, people.typed)
    assert asleep.waiting[0].answer["properties"]["cents"]["maximum"] == 10_000
    done = await resumed(url, (None, {"approved": True, "cents": 4200}))
    assert done.value == ("Decision", True, 4200, "")


async def test_a_wrong_answer_is_refused_where_it_is_given_and_uses_nothing_up(url: str) -> None:
    await start(url, people.typed)
    async with snaprt.Runtime(url) as rt:
        for wrong in ({"approved": True, "cents": 20_000}, {"cents": 1}, "yes", None):
            with pytest.raises(
                snaprt.UsageError, match=r"doesn't answer ask-1 of run r: .* Answer what fits"
            ):
                await rt.answer("r", wrong)
    done = await resumed(url, (None, {"approved": True, "cents": 1}))
    assert done.value == ("Decision", True, 1, "")


async def test_an_answer_that_only_the_agents_own_code_can_refuse_leaves_the_question_open(url: str) -> None:
    await start(url, people.typed)
    # By its JSON Schema it fits; the model's validator knows better.
    asleep = await resumed(url, (None, {"approved": False}))
    assert isinstance(asleep, snaprt.Suspended)
    assert asleep.waiting[0].suspension == "ask-1"
    assert "a refusal says why" in asleep.waiting[0].refused
    async with snaprt.Runtime(url) as rt:
        assert "a refusal says why" in ((await rt.show("r")).waiting[0].refused or "")
    done = await resumed(url, (None, {"approved": False, "note": "too much"}))
    assert done.value == ("Decision", False, 0, "too much")


async def test_a_refused_answer_is_refused_once_also_if_the_process_dies(
    url: str, dying_at: Callable[[str], AbstractContextManager[None]]
) -> None:
    await start(url, people.typed)
    with dying_at("suspend"):
        await resumed(url, (None, {"approved": False}))
    asleep = await resumed(url)
    assert [(each.suspension, each.refused is not None) for each in asleep.waiting] == [("ask-1", True)]
    done = await resumed(url, (None, {"approved": False, "note": "no"}))
    assert done.value == ("Decision", False, 0, "no")


async def test_a_choice_tells_what_there_is_to_choose(url: str) -> None:
    asleep = await start(url, people.choice)
    assert asleep.waiting[0].answer == {"enum": ["left", "right"], "type": "string"}
    async with snaprt.Runtime(url) as rt:
        with pytest.raises(snaprt.UsageError, match="'up' is not one of"):
            await rt.answer("r", "up")
    assert (await resumed(url, (None, "left"))).value == "left"


async def test_a_type_that_cant_be_checked_is_refused_in_the_agent(url: str) -> None:
    async def asks() -> Any:
        return await snaprt.suspend("?", answer=anyio.Event)

    outcome = await start(url, asks)
    assert isinstance(outcome, snaprt.Failed)
    assert isinstance(outcome.error, TypeError)
    assert "no type that pydantic can check" in str(outcome.error)


# --- who, when, and too late ----------------------------------------------------------------------


async def test_who_answered_and_when_is_on_record(url: str) -> None:
    await start(url, people.looped, "/dev/null", 2)
    before = time.time()
    async with snaprt.Runtime(url) as rt:
        await rt.answer("r", 1, by="ana")
        await (await rt.resume("r")).outcome()
        [answered] = (await rt.show("r")).answered
    assert (answered["suspension"], answered["status"], answered["by"]) == ("ask-1", "answered", "ana")
    assert before <= answered["at"] <= time.time()


async def test_a_second_answer_after_the_run_went_on_is_told_who_was_first(url: str) -> None:
    await start(url, people.looped, "/dev/null", 2)
    async with snaprt.Runtime(url) as rt:
        await rt.answer("r", 1, by="ana")
        await (await rt.resume("r")).outcome()
        with pytest.raises(snaprt.AlreadyAnswered, match=r"ask-1 of run r was answered by ana at 20"):
            await rt.answer("r", 2, suspension="ask-1")


# --- several at once (langgraph #4028, #6626, #6533, #6208, #7780; adk #5349; openai-agents #5141) --


async def test_answers_to_parallel_questions_under_one_name_dont_go_to_the_wrong_task(url: str) -> None:
    asleep = await start(url, people.same_names)
    ids = {each.payload: each.suspension for each in asleep.waiting}
    assert ids == {"a": "review", "b": "review.2", "c": "review.3"}
    still = await resumed(url, (ids["c"], "C"), (ids["a"], "A"))
    assert [each.payload for each in still.waiting] == ["b"]
    done = await resumed(url, (ids["b"], "B"))
    assert done.value == [("a", "A"), ("b", "B"), ("c", "C")]


async def test_a_question_doesnt_hold_up_the_tools_of_other_tasks(url: str, ledger: str) -> None:
    async with snaprt.Runtime(url, look=0.05) as rt:
        run = await rt.start(people.ask_while_working, ledger, run_id="r")
        async with snaprt.Runtime(url) as elsewhere:  # another process, as far as the run is concerned
            while not (await elsewhere.show("r")).waiting:
                await anyio.sleep(0.01)
            await elsewhere.answer("r", "yes")
        people.enough(ledger)
        done = await run.outcome()
    assert done.value == ("long", "yes")
    assert lines(ledger) == ["took long"]


async def test_an_answer_given_elsewhere_while_the_run_runs_isnt_lost_until_a_resume(
    url: str, ledger: str
) -> None:
    async with snaprt.Runtime(url, look=0.02) as rt:
        run = await rt.start(people.ask_while_working, ledger, run_id="r")
        async with snaprt.Runtime(url) as elsewhere:
            while not (await elsewhere.show("r")).waiting:
                await anyio.sleep(0.01)
            await elsewhere.answer("r", "early")
        answered: list[Any] = []
        while not answered:  # while the tool still runs
            await anyio.sleep(0.01)
            answered = run.progress().get("answered", [])
        assert not lines(ledger)
        people.enough(ledger)
        assert (await run.outcome()).value == ("long", "early")


async def test_a_loop_of_questions_repeats_nothing_when_it_is_answered(url: str, ledger: str) -> None:
    await start(url, people.looped, ledger, 4)
    for turn in range(4):
        outcome = await resumed(url, (f"ask-{turn + 1}", turn))
    assert outcome.value == [(f"<turn {n}>", n) for n in range(4)]
    assert lines(ledger) == [f"look turn {n}" for n in range(4)]


async def test_a_second_resume_doesnt_stop_silently(url: str) -> None:
    await start(url, people.looped, "/dev/null", 2)
    first = await resumed(url, (None, "one"))
    assert isinstance(first, snaprt.Suspended)
    assert first == await resumed(url)  # nothing new: it still waits, and says for what
    assert (await resumed(url, (None, "two"))).value == [("<turn 0>", "one"), ("<turn 1>", "two")]


# --- names: before it is asked --------------------------------------------------------------------


async def test_an_answer_given_before_the_question_is_asked_waits_for_it(url: str) -> None:
    await start(url, people.named)
    async with snaprt.Runtime(url) as rt:
        await rt.answer("r", "second", suspension="review.2", early=True)
    done = await resumed(url, ("review", "first"))
    assert done.value == ("first", "second")


async def test_a_mistyped_name_isnt_taken_for_a_question_to_come(url: str) -> None:
    await start(url, people.named)
    async with snaprt.Runtime(url) as rt:
        with pytest.raises(snaprt.UnknownSuspension, match=r"Open: review\. .*early=True"):
            await rt.answer("r", "?", suspension="reveiw")
        with pytest.raises(snaprt.UnknownSuspension):
            await rt.answer("r", "?", suspension="ask-7", early=True)


@pytest.mark.parametrize("name", ["", "a.b", "_cancel", "ask-1", "doubt-3", "ä", "x" * 101, "a/b"])
async def test_a_name_that_could_be_taken_for_another_slot_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="can't be the name"):
        snaprt.inbox(name)


# --- timeouts -------------------------------------------------------------------------------------


class Jumping:
    """A clock that is told what time it is."""

    def __init__(self, now: float = 1_900_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


async def test_a_question_that_nobody_answers_gives_its_default(url: str) -> None:
    clock = Jumping()
    asleep = await start(url, people.patient, 3600, clock=clock)
    assert asleep.until == clock.now + 3600 == asleep.waiting[0].until
    clock.now += 3601
    assert (await resumed(url, clock=clock)).value == "nobody"
    async with snaprt.Runtime(url) as rt:
        [question] = (await rt.show("r")).answered
        assert (question["status"], question["by"]) == ("expired", None)


async def test_or_raises(url: str) -> None:
    clock = Jumping()
    await start(url, people.impatient, 3600, clock=clock)
    clock.now += 3601
    assert (await resumed(url, clock=clock)).value == "TimeoutError: nobody answered ask-1 in time"


async def test_an_answer_given_in_time_isnt_lost_because_the_run_woke_late(url: str) -> None:
    clock = Jumping()
    await start(url, people.patient, 3600, clock=clock)
    async with snaprt.Runtime(url) as rt:
        await rt.answer("r", "somebody")
    clock.now += 1_000_000
    assert (await resumed(url, clock=clock)).value == "somebody"


async def test_an_answer_that_came_too_late_isnt_taken_because_the_run_woke_later_still(url: str) -> None:
    began = time.time()
    clock = Jumping(began - 7200)
    await start(url, people.patient, 3600, clock=clock)
    async with snaprt.Runtime(url) as rt:
        with pytest.raises(snaprt.AlreadyAnswered, match="The time of ask-1 of run r was over at"):
            await rt.answer("r", "late")
        await rt.put("r", "ask-1", "late")  # as one with a slow clock would
    clock.now = began
    assert (await resumed(url, clock=clock)).value == "nobody"


async def test_what_was_asked_isnt_kept_when_it_is_answered(url: str) -> None:
    async def asks() -> None:
        for _ in range(2):
            await snaprt.suspend("x" * 100_000)

    await start(url, asks)
    await resumed(url, (None, 1))
    newest = Store.open(url).log("r").newest_state()
    assert newest is not None
    kernel = Kernel.load(newest.sections["state"])
    try:
        assert [each.payload for each in kernel.waits.suspensions.values()] == [None, "x" * 100_000]
    finally:
        kernel.release()


async def test_an_answer_after_the_time_is_over_is_told_so(url: str) -> None:
    clock = Jumping()
    await start(url, people.patient, 3600, clock=clock)
    clock.now += 3601
    await resumed(url, clock=clock)
    async with snaprt.Runtime(url) as rt:
        with pytest.raises(snaprt.AlreadyAnswered, match="The time of ask-1 of run r is over"):
            await rt.answer("r", "late", suspension="ask-1")


# --- streams --------------------------------------------------------------------------------------


async def test_messages_come_in_order_each_once_and_none_is_lost_while_the_run_sleeps(url: str) -> None:
    asleep = await start(url, people.chat, 5)
    assert asleep.listening == ("chat",)
    async with snaprt.Runtime(url) as rt:
        assert [await rt.send("r", n, inbox="chat") for n in range(3)] == [1, 2, 3]
    asleep = await resumed(url)
    assert asleep.listening == ("chat",)
    async with snaprt.Runtime(url) as rt:
        run = await rt.resume("r")
        await rt.send("r", 3, inbox="chat")
        await rt.send("r", {"last": True}, inbox="chat")
        outcome = await run.outcome()
        if isinstance(outcome, snaprt.Suspended):  # it had left before they came
            outcome = await (await rt.resume("r")).outcome()
    assert outcome.value == [0, 1, 2, 3, {"last": True}]


@pytest.mark.parametrize("kind", ["wake", "suspend", "claim"])
async def test_a_message_isnt_delivered_twice_if_the_process_dies(
    url: str, kind: str, dying_at: Callable[[str], AbstractContextManager[None]]
) -> None:
    await start(url, people.chat, 3)
    async with snaprt.Runtime(url) as rt:
        for n in range(2):
            await rt.send("r", n, inbox="chat")
    with dying_at(kind):
        await resumed(url)
    async with snaprt.Runtime(url) as rt:
        await rt.send("r", 2, inbox="chat")
    assert (await resumed(url)).value == [0, 1, 2]


async def test_many_senders_at_once_lose_no_message(url: str) -> None:
    await start(url, people.chat, 20)

    async def sender(rt: snaprt.Runtime, who: str) -> None:
        for n in range(5):
            await rt.send("r", (who, n), inbox="chat")

    async with snaprt.Runtime(url) as rt, anyio.create_task_group() as group:
        for who in "abcd":
            group.start_soon(sender, rt, who)
    heard = (await resumed(url)).value
    assert sorted(heard) == [(who, n) for who in "abcd" for n in range(5)]
    for who in "abcd":
        assert [n for sender, n in heard if sender == who] == list(range(5))


async def test_a_message_whose_acknowledgement_is_lost_is_there_once(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from snaprt.store import Transient

    await start(url, people.chat, 2)
    put, lost = Log.put_message, []

    def losing(self: Log, *args: Any) -> int:
        number = put(self, *args)
        if not lost:
            lost.append(number)
            raise Transient("the answer got lost")
        return number

    monkeypatch.setattr(Log, "put_message", losing)
    async with snaprt.Runtime(url) as rt:
        assert await rt.send("r", "one", inbox="chat") == 1
        assert await rt.send("r", "two", inbox="chat") == 2
    assert (await resumed(url)).value == ["one", "two"]


async def test_two_readers_of_one_inbox_share_its_messages(url: str) -> None:
    await start(url, people.chats, 2)
    async with snaprt.Runtime(url) as rt:
        for n in range(4):
            await rt.send("r", n, inbox="chat")
    left, right = (await resumed(url)).value
    assert sorted(left + right) == [0, 1, 2, 3]
    assert (left, right) == (sorted(left), sorted(right))


async def test_a_reader_that_gave_up_leaves_the_message_to_the_next(url: str) -> None:
    await start(url, people.chat_with_patience)
    async with snaprt.Runtime(url) as rt:
        await rt.send("r", "hello", inbox="chat")
    assert (await resumed(url, (None, "go on"))).value == ("late", "hello")


async def test_a_run_that_has_ended_takes_no_messages(url: str) -> None:
    await start(url, people.choice)
    await resumed(url, (None, "left"))
    async with snaprt.Runtime(url) as rt:
        with pytest.raises(snaprt.UsageError, match=r"has ended \(completed\)"):
            await rt.send("r", "anybody?", inbox="chat")
        with pytest.raises(snaprt.UsageError, match="can't be the name of an inbox"):
            await rt.send("r", "?", inbox="no such.name")


# --- cancelling -----------------------------------------------------------------------------------


async def test_cancelling_a_sleeping_run_lets_it_clean_up_with_its_tools(url: str, ledger: str) -> None:
    await start(url, people.cleans_up, ledger)
    async with snaprt.Runtime(url) as rt:
        assert await rt.cancel("r", "not needed any more", by="ana")  # nobody has it in hand
    outcome = await resumed(url)
    assert outcome == snaprt.Cancelled("r", "not needed any more")
    assert lines(ledger) == ["cancelled not needed any more", "look cleanup"]


async def test_cancelling_reaches_a_run_that_another_process_has_in_hand(url: str, ledger: str) -> None:
    async with snaprt.Runtime(url, look=0.05) as rt:
        run = await rt.start(people.ask_while_working, ledger, run_id="r")
        async with snaprt.Runtime(url) as elsewhere:
            assert not await elsewhere.cancel("r")
        assert isinstance(await run.outcome(), snaprt.Cancelled)
    assert not lines(ledger)


@pytest.mark.parametrize("kind", ["wake", "result", "finish"])
async def test_a_cancellation_happens_once_wherever_the_process_dies(
    url: str, ledger: str, kind: str, dying_at: Callable[[str], AbstractContextManager[None]]
) -> None:
    await start(url, people.cleans_up, ledger)
    async with snaprt.Runtime(url) as rt:
        await rt.cancel("r", "enough")
    with dying_at(kind):
        await resumed(url)
    assert await resumed(url) == snaprt.Cancelled("r", "enough")


async def test_an_agent_that_swallows_a_cancellation_can_be_cancelled_again(url: str) -> None:
    await start(url, people.stubborn)
    async with snaprt.Runtime(url) as rt:
        await rt.cancel("r")
    asleep = await resumed(url)
    assert [each.payload for each in asleep.waiting] == [1]
    async with snaprt.Runtime(url) as rt:
        await rt.cancel("r")
    assert (await resumed(url)).value == "still here"


async def test_a_run_that_has_ended_cant_be_cancelled(url: str) -> None:
    await start(url, people.choice)
    await resumed(url, (None, "left"))
    async with snaprt.Runtime(url) as rt:
        with pytest.raises(snaprt.UsageError, match="has ended"):
            await rt.cancel("r")


# --- approvals (openai-agents #5141, #2487) -------------------------------------------------------


async def test_an_approval_isnt_lost_or_mixed_up_among_equal_calls(url: str, ledger: str) -> None:
    asleep = await start(url, people.pays_thrice, ledger)
    assert [each.payload["args"][1] for each in asleep.waiting] == [100, 100, 100]
    one, two, three = (each.suspension for each in asleep.waiting)
    assert len({one, two, three}) == 3
    still = await resumed(url, (two, {"approved": False, "reason": "no"}))
    assert [each.suspension for each in still.waiting] == [one, three]
    done = await resumed(
        url, (three, {"approved": True}), (one, {"approved": True, "args": [ledger, 1], "kwargs": {}})
    )
    assert done.value == ["paid 1", "no", "paid 100"]
    assert sorted(line.split()[1] for line in lines(ledger)) == ["1", "100"]


async def test_an_approved_call_isnt_asked_for_ever(url: str, ledger: str) -> None:
    asleep = await start(url, people.pays_thrice, ledger)
    await resumed(url, *((each.suspension, {"approved": True}) for each in asleep.waiting))
    async with snaprt.Runtime(url) as rt:
        info = await rt.show("r")
    assert info.status == "completed"
    assert len(info.answered) == 3
