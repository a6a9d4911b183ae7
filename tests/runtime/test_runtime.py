"""Promises of the runtime, in one process, on asyncio and trio hosts."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

import snaprt
from tests.runtime import agents

pytestmark = pytest.mark.anyio


def lines(ledger: str) -> list[str]:
    return Path(ledger).read_text().splitlines()


async def test_a_run_suspends_leaves_and_goes_on_where_it_stood(url: str, ledger: str) -> None:
    async with snaprt.Runtime(url) as rt:
        outcome = await (await rt.start(agents.support, ledger, "A-17", run_id="A17")).outcome()
        assert isinstance(outcome, snaprt.Suspended)
        [question] = outcome.waiting
        assert question.payload == {"order": "A-17", "seen": ["<A-17>", "<policy>"]}
    async with snaprt.Runtime(url) as rt:
        await rt.answer("A17", {"approved": True, "cents": 4200})
        done = await (await rt.resume("A17")).outcome()
    assert isinstance(done, snaprt.Completed)
    assert done.value["receipt"] == "paid 4200"
    assert sorted(lines(ledger)) == ["look A-17", "look policy", "pay 4200 A17/3"]


async def test_a_finished_run_gives_its_outcome_again_and_calls_nothing(url: str, ledger: str) -> None:
    async with snaprt.Runtime(url) as rt:
        await (await rt.start(agents.sleeps, ledger, 0, run_id="r")).outcome()
    before = lines(ledger)
    async with snaprt.Runtime(url) as rt:
        again = await (await rt.resume("r")).outcome()
    assert again == snaprt.Completed("r", "<after>")
    assert lines(ledger) == before


async def test_resuming_a_run_that_still_waits_writes_nothing(url: str, ledger: str) -> None:
    async with snaprt.Runtime(url) as rt:
        first = await (await rt.start(agents.support, ledger, "A-17", run_id="r")).outcome()
        records = (await rt.show("r")).records
    async with snaprt.Runtime(url) as rt:
        assert await (await rt.resume("r")).outcome() == first
        assert (await rt.show("r")).records == records


async def test_parallel_questions_are_answered_in_any_order(url: str, ledger: str) -> None:
    async with snaprt.Runtime(url) as rt:
        outcome = await (await rt.start(agents.two_questions, ledger, run_id="r")).outcome()
    assert isinstance(outcome, snaprt.Suspended)
    by_name = {item.payload["name"]: item.suspension for item in outcome.waiting}
    async with snaprt.Runtime(url) as rt:
        with pytest.raises(snaprt.UnknownSuspension, match="several"):
            await rt.answer("r", 1)
        await rt.answer("r", "R", suspension=by_name["right"])
        still = await (await rt.resume("r")).outcome()
    assert isinstance(still, snaprt.Suspended)
    assert [item.payload["name"] for item in still.waiting] == ["left"]
    async with snaprt.Runtime(url) as rt:
        await rt.answer("r", "L")
        done = await (await rt.resume("r")).outcome()
    assert isinstance(done, snaprt.Completed)
    assert done.value == [("left", "<left>", "L"), ("right", "<right>", "R")]
    assert sorted(lines(ledger)) == ["look after left", "look after right", "look left", "look right"]


async def test_the_first_answer_wins_and_the_second_is_told(url: str, ledger: str) -> None:
    async with snaprt.Runtime(url) as rt:
        await (await rt.start(agents.support, ledger, "A", run_id="r")).outcome()
        await rt.answer("r", {"approved": False})
        with pytest.raises(snaprt.AlreadyAnswered):
            await rt.answer("r", {"approved": True, "cents": 1})
        done = await (await rt.resume("r")).outcome()
    assert isinstance(done, snaprt.Completed)
    assert done.value["receipt"] is None


async def test_an_exception_of_a_tool_is_a_result_and_handled_after_a_restore(url: str, ledger: str) -> None:
    async with snaprt.Runtime(url) as rt:
        await (await rt.start(agents.recovers, ledger, run_id="r")).outcome()
    async with snaprt.Runtime(url) as rt:
        await rt.answer("r", "seen")
        done = await (await rt.resume("r")).outcome()
    assert done == snaprt.Completed("r", "seen: LookupError('no such order') NoneType")
    assert lines(ledger) == ["fails"]


async def test_a_handle_is_refused_at_the_await_before_the_tool_is_called(url: str, ledger: str) -> None:
    async with snaprt.Runtime(url) as rt:
        done = await (await rt.start(agents.holds_a_file, ledger, run_id="r")).outcome()
    assert isinstance(done, snaprt.Completed)
    assert "in holds_a_file: local 'handle'" in done.value
    assert lines(ledger) == []


async def test_a_long_sleep_leaves_the_process_and_a_short_one_stays(url: str, ledger: str) -> None:
    async with snaprt.Runtime(url, distant=0.05) as rt:
        outcome = await (await rt.start(agents.sleeps, ledger, 0.2, run_id="r")).outcome()
        assert isinstance(outcome, snaprt.Suspended)
        assert outcome.until is not None
        assert outcome.waiting == ()
    async with snaprt.Runtime(url) as rt:
        done = await (await rt.resume("r")).outcome()
    assert done == snaprt.Completed("r", "<after>")
    assert lines(ledger) == ["look before", "look after"]


async def test_a_failing_agent_is_recorded_with_its_traceback(url: str, ledger: str) -> None:
    async with snaprt.Runtime(url) as rt:
        failed = await (await rt.start(agents.breaks, ledger, run_id="r")).outcome()
        assert isinstance(failed, snaprt.Failed)
        info = await rt.show("r")
    assert info.status == "failed"
    assert info.error == "ZeroDivisionError: on purpose"
    async with snaprt.Runtime(url) as rt:
        again = await (await rt.resume("r")).outcome()
    assert isinstance(again, snaprt.Failed)
    assert isinstance(again.error, ZeroDivisionError)
    assert "in breaks" in again.traceback


async def test_changed_rules_are_refused_with_a_diff_and_decided_by_a_word(url: str, ledger: str) -> None:
    async with snaprt.Runtime(url) as rt:
        await (await rt.start(agents.support, ledger, "A", run_id="r")).outcome()
        await rt.answer("r", {"approved": False})
    changed = snaprt.agent(rules={"model": "small-1", "prompt": "Be kind.\nBe thorough."})
    was = agents.support.__snaprt_agent__  # type: ignore[attr-defined]  # set by the decorator
    try:
        changed(agents.support)
        async with snaprt.Runtime(url) as rt:
            with pytest.raises(snaprt.RulesChanged, match=r"-Be brief\.\n\+Be thorough\."):
                await rt.resume("r")
            done = await (await rt.resume("r", rules="current")).outcome()
    finally:
        agents.support.__snaprt_agent__ = was  # type: ignore[attr-defined]  # as above
    assert isinstance(done, snaprt.Completed)
    assert done.value["rules"]["prompt"] == "Be kind.\nBe thorough."


async def test_the_five_fields_are_read_without_unpickling(
    url: str, ledger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with snaprt.Runtime(url) as rt:
        await (await rt.start(agents.support, ledger, "A", run_id="r")).outcome()

    def forbidden(*args: object, **kwargs: object) -> object:
        raise AssertionError("unpickled")

    monkeypatch.setattr("snaprt.state.load", forbidden)
    monkeypatch.setattr("pickle.loads", forbidden)
    async with snaprt.Runtime(url) as rt:
        info = await rt.show("r")
        [listed] = await rt.list()
    assert info.status == listed.status == "suspended"
    assert [(step["name"], step["status"]) for step in info.plan] == [
        ("look", "done"),
        ("ask", "active"),
        ("refund", "pending"),
    ]
    assert [(step["tool"].rpartition(".")[2], step["status"], step["output"]) for step in info.steps] == [
        ("look_up", "done", "<A>"),
        ("look_up_sync", "done", "<policy>"),
    ]
    assert info.waiting[0].payload["order"] == "A"
    assert info.rules == {"model": "small-1", "prompt": "Be kind.\nBe brief."}
    assert info.bytes == sum(size for _, size in info.objects) > 0


async def test_an_agent_that_waits_for_nothing_is_told_so(url: str) -> None:
    async with snaprt.Runtime(url) as rt:
        run = await rt.start(agents.stalls, run_id="r")
        with pytest.raises(snaprt.Stalled, match="stalls"):
            await run.outcome()


async def test_one_of_two_resumes_acts_and_the_other_is_told(url: str, ledger: str) -> None:
    async with snaprt.Runtime(url) as rt:
        await (await rt.start(agents.support, ledger, "A", run_id="r")).outcome()
        await rt.answer("r", {"approved": True, "cents": 5})
    outcomes: list[object] = []

    async def resume() -> None:
        try:
            async with snaprt.Runtime(url) as rt:
                outcomes.append(await (await rt.resume("r")).outcome())
        except (snaprt.RunBusy, snaprt.Fenced) as error:
            outcomes.append(error)

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(resume)
    assert any(isinstance(outcome, snaprt.Completed) for outcome in outcomes)
    assert [line for line in lines(ledger) if line.startswith("pay")] == ["pay 5 r/3"]


async def test_a_call_whose_result_was_lost_is_not_repeated_silently(
    url: str, ledger: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from snaprt.store import Log

    async with snaprt.Runtime(url) as rt:
        await (await rt.start(agents.support, ledger, "A", run_id="r")).outcome()
        await rt.answer("r", {"approved": True, "cents": 5})
        append = Log.append

        def lose_the_result(self: Log, kind: str, **kwargs: object) -> object:
            if kind == "result":
                raise snaprt.StoreError("the store went away")
            return append(self, kind, **kwargs)  # type: ignore[arg-type]  # passed through as it came

        with monkeypatch.context() as patch:
            patch.setattr(Log, "append", lose_the_result)
            run = await rt.resume("r")
            with anyio.fail_after(30):
                while "went away" not in caplog.text:
                    await anyio.sleep(0.01)
            run.drain(0)  # until somebody stops the process, it is tried
            with pytest.raises(snaprt.StoreError, match="went away"):
                await run.outcome()
    async with snaprt.Runtime(url) as rt:
        doubt = await (await rt.resume("r")).outcome()
    assert isinstance(doubt, snaprt.Suspended)
    [question] = doubt.waiting
    assert question.payload["in_doubt"]["key"] == "r/3"
    assert [line for line in lines(ledger) if line.startswith("pay")] == ["pay 5 r/3"]
    async with snaprt.Runtime(url) as rt:
        await rt.answer("r", {"retry": True}, suspension=question.suspension)
        done = await (await rt.resume("r")).outcome()
    assert isinstance(done, snaprt.Completed)
    assert lines(ledger)[-2:] == ["pay 5 r/3", "pay 5 r/3"]


async def test_misuse_is_told_in_one_paragraph(url: str, ledger: str) -> None:
    async with snaprt.Runtime(url) as rt:
        with pytest.raises(snaprt.UsageError, match="not an agent"):
            await rt.start(agents.note, ledger, "x")
        with pytest.raises(snaprt.UsageError, match="missing a required argument"):
            await rt.start(agents.support, ledger)
        with pytest.raises(snaprt.UnknownRun):
            await rt.resume("nobody")
        with pytest.raises(snaprt.UnknownRun):
            await rt.answer("nobody", 1)
        await (await rt.start(agents.sleeps, ledger, 0, run_id="taken")).outcome()
        with pytest.raises(snaprt.RunExists):
            await rt.start(agents.sleeps, ledger, 0, run_id="taken")
        with pytest.raises(snaprt.UnknownSuspension):
            await rt.answer("taken", 1)
    with pytest.raises(snaprt.UsageError, match="async with"):
        await rt.__class__(url).show("taken")


async def test_draining_saves_and_leaves_and_an_unstarted_call_is_made_later(url: str, ledger: str) -> None:
    async with snaprt.Runtime(url) as rt:
        run = await rt.start(agents.support, ledger, "A", run_id="r")
        run.drain()
        outcome = await run.outcome()
    assert isinstance(outcome, snaprt.Suspended)
    assert lines(ledger) == []
    async with snaprt.Runtime(url) as rt:
        outcome = await (await rt.resume("r")).outcome()
    assert isinstance(outcome, snaprt.Suspended)
    assert outcome.waiting
    assert sorted(lines(ledger)) == ["look A", "look policy"]
