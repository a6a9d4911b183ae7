"""The write protocol: doubts, approvals, retries, owners, draining, failing stores. One test, one promise."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import anyio
import pytest

import snaprt
from snaprt.store import Log, Store, Transient
from tests.crash.processes import ROOT, environment
from tests.runtime import agents, careful

pytestmark = pytest.mark.anyio


def lines(ledger: str) -> list[str]:
    return Path(ledger).read_text().splitlines()


def tell(ledger: str, what: str) -> None:
    Path(ledger + ".told").write_text(what)


Dying = Callable[[str], AbstractContextManager[None]]


async def lose_the_result(
    url: str, dying_at: Dying, agent: Callable[..., Awaitable[Any]], *args: Any
) -> None:
    """Run an agent until its first result is about to be written, and die there."""
    with dying_at("result"):
        async with snaprt.Runtime(url) as rt:
            await (await rt.start(agent, *args, run_id="r")).outcome()


async def resumed(url: str, **options: Any) -> Any:
    async with snaprt.Runtime(url) as rt:
        return await (await rt.resume("r", **options)).outcome()


# --- doubts ---------------------------------------------------------------------------------------


async def test_a_write_in_doubt_that_happened_is_not_called_again(
    url: str, ledger: str, dying_at: Dying
) -> None:
    await lose_the_result(url, dying_at, careful.pays, ledger)
    tell(ledger, "paid")
    assert await resumed(url) == snaprt.Completed("r", "paid 7 before")
    assert lines(ledger) == ["pay 7 r/1", "reconcile r/1"]


async def test_a_write_in_doubt_that_did_not_happen_is_called_with_its_key(
    url: str, ledger: str, dying_at: Dying
) -> None:
    await lose_the_result(url, dying_at, careful.pays, ledger)
    tell(ledger, "not paid")
    assert await resumed(url) == snaprt.Completed("r", "paid 7")
    assert lines(ledger) == ["pay 7 r/1", "reconcile r/1", "pay 7 r/1"]


@pytest.mark.parametrize(
    ("answer", "value", "called"),
    [
        ({"done": "by hand"}, "by hand", 1),
        ({"retry": True}, "paid 7", 2),
        ({"fail": "the bank is shut"}, "told: pay_blindly (step 1): the bank is shut", 1),
    ],
)
async def test_a_person_settles_what_no_hook_knows(
    url: str,
    ledger: str,
    dying_at: Dying,
    answer: dict[str, Any],
    value: str,
    called: int,
) -> None:
    await lose_the_result(url, dying_at, careful.pays_blindly, ledger)
    asked = await resumed(url)
    assert isinstance(asked, snaprt.Suspended)
    [question] = asked.waiting
    assert question.payload["in_doubt"]["key"] == "r/1"
    assert await resumed(url) == asked  # nobody answered: the same question, and nothing is called
    async with snaprt.Runtime(url) as rt:
        assert (await rt.show("r")).waiting == asked.waiting
        with pytest.raises(snaprt.UsageError, match="doesn't answer"):
            await rt.answer("r", {"approved": True})
        await rt.answer("r", answer)
    assert await resumed(url) == snaprt.Completed("r", value)
    assert lines(ledger) == ["pay 7 r/1"] * called


async def test_what_may_be_repeated_is_repeated_with_the_same_key(
    url: str, ledger: str, dying_at: Dying
) -> None:
    await lose_the_result(url, dying_at, careful.puts, ledger)
    assert await resumed(url) == snaprt.Completed("r", "x")
    assert lines(ledger) == ["put x r/1", "put x r/1"]


async def test_a_doubt_that_comes_up_again_is_a_new_question(url: str, ledger: str, dying_at: Dying) -> None:
    await lose_the_result(url, dying_at, careful.pays_blindly, ledger)
    first = await resumed(url)
    async with snaprt.Runtime(url) as rt:
        await rt.answer("r", {"retry": True})
    with dying_at("result"):
        await resumed(url)
    second = await resumed(url)
    assert isinstance(second, snaprt.Suspended)
    assert second.waiting[0].suspension != first.waiting[0].suspension
    assert lines(ledger) == ["pay 7 r/1"] * 2


# --- approvals ------------------------------------------------------------------------------------


async def test_a_call_below_the_limit_needs_no_approval(url: str, ledger: str) -> None:
    async with snaprt.Runtime(url) as rt:
        done = await (await rt.start(careful.shops, ledger, 50, run_id="r")).outcome()
    assert isinstance(done, snaprt.Completed)
    assert done.value == 1_000_050  # the agent's own meddling: nobody was asked about these


@pytest.mark.parametrize(
    ("answer", "value", "called"),
    [
        ({"approved": True}, 500, ["buy [200, 300]"]),
        ({"approved": True, "args": ["LEDGER", [1, 2]]}, 3, ["buy [1, 2]"]),
        ({"approved": False, "reason": "too dear"}, "rejected: too dear", []),
    ],
)
async def test_exactly_what_was_approved_is_called(
    url: str, ledger: str, answer: dict[str, Any], value: Any, called: list[str]
) -> None:
    async with snaprt.Runtime(url) as rt:
        asked = await (await rt.start(careful.shops, ledger, 200, 300, run_id="r")).outcome()
    assert isinstance(asked, snaprt.Suspended)
    assert asked.waiting[0].payload["args"][1] == [200, 300]
    assert asked.waiting[0].payload["approve"] == "buy"
    assert lines(ledger) == []
    if "args" in answer:
        answer = {**answer, "args": [ledger, answer["args"][1]]}
    async with snaprt.Runtime(url) as rt:
        with pytest.raises(snaprt.UsageError, match="approved"):
            await rt.answer("r", "yes")
        await rt.answer("r", answer)
    assert await resumed(url) == snaprt.Completed("r", value)
    assert lines(ledger) == called


# --- inside a step --------------------------------------------------------------------------------


async def test_retries_happen_inside_one_step_and_each_is_shown(url: str, ledger: str) -> None:
    async with snaprt.Runtime(url) as rt:
        done = await (await rt.start(careful.insists, ledger, run_id="r")).outcome()
        [step] = (await rt.show("r")).steps
    assert done == snaprt.Completed("r", "up")
    assert [attempt["error"] for attempt in step["attempts"]] == ["OSError: down", "OSError: down"]
    assert lines(ledger) == ["flaky"] * 3


async def test_an_attempt_that_takes_too_long_is_a_timeout_in_the_agent(url: str, ledger: str) -> None:
    async with snaprt.Runtime(url) as rt:
        done = await (await rt.start(careful.is_patient, ledger, run_id="r")).outcome()
    assert done == snaprt.Completed("r", "timed out")


# --- state with effects only ------------------------------------------------------------------------


async def die_at(url: str, dying_at: Dying, ledger: str, kind: str) -> None:
    with dying_at(kind):
        async with snaprt.Runtime(url) as rt:
            await (await rt.start(careful.reads_much, ledger, run_id="r")).outcome()


async def test_with_effects_only_recorded_reads_are_fed_again_and_not_called(
    url: str, ledger: str, dying_at: Dying
) -> None:
    await die_at(url, dying_at, ledger, "intent")
    assert await resumed(url) == snaprt.Completed("r", [[4, 6], [8, 12], "x"])
    assert sorted(lines(ledger)) == ["put x r/5", "roll 12", "roll 4", "roll 6", "roll 8"]
    async with snaprt.Runtime(url) as rt:
        held = await rt.show("r")
    assert held.records < 10


async def test_with_effects_only_a_call_that_differs_from_its_record_is_refused(
    url: str, ledger: str, dying_at: Dying
) -> None:
    await die_at(url, dying_at, ledger, "intent")
    tell(ledger, "otherwise")
    with pytest.raises(snaprt.Diverged, match=r"was roll\(.*12\) and is roll\(.*20\) now"):
        await resumed(url)
    assert sorted(lines(ledger)) == ["roll 12", "roll 4", "roll 6", "roll 8"]


async def test_a_write_that_outlasts_its_timeout_is_in_doubt_and_not_tried_again(
    url: str, ledger: str
) -> None:
    async with snaprt.Runtime(url) as rt:
        asked = await (await rt.start(careful.pays_with_a_timeout, ledger, run_id="r")).outcome()
        assert isinstance(asked, snaprt.Suspended)
        [question] = asked.waiting
        assert question.payload["in_doubt"]["tool"] == "pays_slowly"
        tell(ledger, "end")
        await rt.answer("r", {"done": "paid after all"})
    assert await resumed(url) == snaprt.Completed("r", "paid after all")
    assert lines(ledger) == ["pay"]


# --- owners ---------------------------------------------------------------------------------------


async def test_a_live_owner_is_named_and_can_be_robbed(url: str, ledger: str) -> None:
    async with snaprt.Runtime(url) as first:
        run = await first.start(careful.waits_for_the_world, ledger, run_id="r")
        while lines(ledger) != ["began"]:
            await anyio.sleep(0.01)
        async with snaprt.Runtime(url) as second:
            with pytest.raises(snaprt.RunBusy, match=r"in the hands of process \d+ on .* until \d{4}-"):
                await second.resume("r")
            robbed = await (await second.resume("r", steal=True)).outcome()
            assert isinstance(robbed, snaprt.Suspended)  # the payment may have happened: a person is asked
        tell(ledger, "end")
        with pytest.raises(snaprt.Fenced, match="it owns the run now"):
            await run.outcome()
    assert lines(ledger) == ["began", "ended"]


async def test_a_live_owner_renews_its_lease(url: str, ledger: str) -> None:
    async with snaprt.Runtime(url, lease=0.15) as rt:
        run = await rt.start(careful.waits_for_the_world, ledger, run_id="r")
        log = Store.open(url).log("r")
        seen: set[float] = set()
        while len(seen) < 3:
            if lease := log.get_lease():
                seen.add(lease["until"])
            await anyio.sleep(0.01)
        tell(ledger, "end")
        assert await run.outcome() == snaprt.Completed("r", "done")


async def test_an_owner_that_is_provably_gone_is_not_waited_for(
    url: str, ledger: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "tests.runtime.process", "start", url, "r"]
    target = ["tests.runtime.careful:waits_for_the_world", f'["{ledger}"]']
    process = subprocess.Popen([*command, *target], env=environment(seed=5), cwd=ROOT)
    try:
        while lines(ledger) != ["began"]:
            await anyio.sleep(0.02)
        async with snaprt.Runtime(url) as rt:
            with pytest.raises(snaprt.RunBusy):
                await rt.resume("r")
    finally:
        process.kill()
        process.wait()
    assert isinstance(await resumed(url), snaprt.Suspended)


async def test_a_resume_that_is_refused_runs_none_of_the_agents_cleanup(url: str, ledger: str) -> None:
    async with snaprt.Runtime(url) as rt:
        await (await rt.start(agents.two_questions, ledger, run_id="r")).outcome()
    snaprt.agent(rules={"model": "another"})(agents.two_questions)
    try:
        async with snaprt.Runtime(url) as rt:
            with pytest.raises(snaprt.RulesChanged):
                await rt.resume("r")
        gc.collect()
    finally:
        del agents.two_questions.__snaprt_agent__  # type: ignore[attr-defined]  # set above
    assert sorted(lines(ledger)) == ["look left", "look right"]  # and nothing of their finally blocks


async def test_rules_that_are_not_equal_to_themselves_have_not_changed(url: str, ledger: str) -> None:
    snaprt.agent(rules={"limit": float("nan")})(agents.two_questions)
    try:
        async with snaprt.Runtime(url) as rt:
            await (await rt.start(agents.two_questions, ledger, run_id="r")).outcome()
        assert isinstance(await resumed(url), snaprt.Suspended)
        snaprt.agent(rules={"limit": 3})(agents.two_questions)
        assert isinstance(await resumed(url, rules="current"), snaprt.Suspended)
        assert isinstance(await resumed(url), snaprt.Suspended)  # the change is on record
    finally:
        del agents.two_questions.__snaprt_agent__  # type: ignore[attr-defined]  # set above


# --- draining, failing, and stores that fail --------------------------------------------------------


async def test_a_drain_gives_running_calls_their_grace(url: str, ledger: str) -> None:
    async with snaprt.Runtime(url) as rt:
        run = await rt.start(careful.waits_for_the_world, ledger, run_id="r")
        while lines(ledger) != ["began"]:
            await anyio.sleep(0.01)
        rt.drain(grace=60)
        tell(ledger, "end")
        left = await run.outcome()
    assert isinstance(left, snaprt.Suspended | snaprt.Completed)
    assert await resumed(url) == snaprt.Completed("r", "done")
    assert lines(ledger) == ["began", "ended"]


async def test_a_call_that_outlasts_the_grace_is_in_doubt(url: str, ledger: str) -> None:
    async with snaprt.Runtime(url) as rt:
        run = await rt.start(careful.waits_for_the_world, ledger, run_id="r")
        while lines(ledger) != ["began"]:
            await anyio.sleep(0.01)
        rt.drain(grace=0)
        assert isinstance(await run.outcome(), snaprt.Suspended)
    asked = await resumed(url)
    assert isinstance(asked, snaprt.Suspended)
    assert asked.waiting[0].payload["in_doubt"]["step"] == 1
    assert lines(ledger) == ["began"]


async def test_an_agent_that_never_rests_can_be_drained(url: str, ledger: str) -> None:
    async with snaprt.Runtime(url) as rt:
        run = await rt.start(careful.spins, ledger, run_id="r")
        await anyio.sleep(0)
        rt.drain()
        assert isinstance(await run.outcome(), snaprt.Suspended)
        late = await (await rt.start(careful.puts, ledger, run_id="late")).outcome()
        assert isinstance(late, snaprt.Suspended)  # on record, and nothing of it was called
    assert lines(ledger) == []
    tell(ledger, "stop")
    assert await resumed(url) == snaprt.Completed("r", None)


async def test_what_makes_no_sense_is_told_before_anything_is_written(url: str, ledger: str) -> None:
    for wrong in ({"distant": -1}, {"lease": 0}, {"grace": "x"}, {"patience": float("nan")}):
        with pytest.raises(snaprt.UsageError):
            snaprt.Runtime(url, **wrong)  # type: ignore[arg-type]  # that is the point
    with open(ledger) as handle:
        async with snaprt.Runtime(url) as rt:
            with pytest.raises(snaprt.NotSerialisable, match=r"  argument 1: io\.TextIOWrapper"):
                await rt.start(careful.puts, handle)  # type: ignore[arg-type]  # as above
            assert await rt.list() == []
    with pytest.raises(snaprt.UsageError, match="isn't open"):
        await rt.start(careful.puts, ledger)
    for rules in (lambda: 1 / 0, lambda: 5, {"tool": object()}):
        marked = snaprt.agent(rules=rules)(careful.spins)
        try:
            async with snaprt.Runtime(url) as rt:
                with pytest.raises(snaprt.UsageError, match="agent spins"):
                    await rt.start(marked, ledger)
        finally:
            del careful.spins.__snaprt_agent__  # type: ignore[attr-defined]  # set above


async def test_a_failed_run_goes_on_from_its_last_state_after_the_cause_is_mended(
    url: str, ledger: str
) -> None:
    async with snaprt.Runtime(url) as rt:
        failed = await (await rt.start(careful.fails_until_mended, ledger, run_id="r")).outcome()
    assert isinstance(failed, snaprt.Failed)
    again = await resumed(url)
    assert isinstance(again, snaprt.Failed)  # without the word, the end is the end
    assert isinstance(await resumed(url, retry=True), snaprt.Failed)  # not mended yet
    tell(ledger, "mended")
    assert await resumed(url, retry=True) == snaprt.Completed("r", "x mended".replace("x", "first"))
    assert lines(ledger) == ["put first r/1", "broken", "broken", "broken"]


async def test_a_result_that_cannot_be_written_is_tried_until_it_is_and_said_loudly(
    url: str, ledger: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    append = Log.append
    refused: list[str] = []

    def stutter(self: Log, kind: str, **kwargs: Any) -> Any:
        if kind == "result" and len(refused) < 3:
            # The try made in passing, where the disk was quick, is followed by a real one without a word.
            refused.extend([] if kwargs.get("hurried") else [kind])
            raise Transient("the store is away for a moment")
        return append(self, kind, **kwargs)

    monkeypatch.setattr(Log, "append", stutter)
    monkeypatch.setattr("snaprt.runtime.patience._FIRST_PAUSE", 0.001)
    with caplog.at_level(logging.ERROR, "snaprt"):
        async with snaprt.Runtime(url, patience=0) as rt:
            done = await (await rt.start(careful.puts, ledger, run_id="r")).outcome()
    assert done == snaprt.Completed("r", "x")
    assert len([r for r in caplog.records if "couldn't be done" in r.message]) == 3
    assert lines(ledger) == ["put x r/1"]


async def test_another_record_stops_the_run_when_patience_ends_and_it_can_be_resumed(
    url: str, ledger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = Log.append

    def away(self: Log, kind: str, **kwargs: Any) -> Any:
        if kind == "intent":
            raise Transient("the store is away")
        return append(self, kind, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Log, "append", away)
        async with snaprt.Runtime(url, patience=0) as rt:
            run = await rt.start(careful.puts, ledger, run_id="r")
            with pytest.raises(snaprt.StoreError, match="away"):
                await run.outcome()
    assert lines(ledger) == []
    assert await resumed(url) == snaprt.Completed("r", "x")


async def test_a_cancelled_host_leaves_a_run_that_can_be_resumed(url: str, ledger: str) -> None:
    with anyio.CancelScope() as scope:
        async with snaprt.Runtime(url) as rt:
            run = await rt.start(careful.waits_for_the_world, ledger, run_id="r")
            while lines(ledger) != ["began"]:
                await anyio.sleep(0.01)
            scope.cancel()
            await run.outcome()
    assert scope.cancelled_caught
    assert isinstance(await resumed(url), snaprt.Suspended)


async def test_what_a_tool_does_to_end_the_process_is_its_own_failure(url: str, ledger: str) -> None:
    async with snaprt.Runtime(url) as rt:
        done = await (await rt.start(careful.meets_exits, ledger, run_id="r")).outcome()
    assert isinstance(done, snaprt.Completed)
    exited, cancelled, refused = done.value
    assert exited == "SystemExit: the tool's own"
    assert cancelled == "CallFailed: cancels_itself (step 2) was cancelled from inside."
    assert "what returns_a_file (step 3) returned: io.TextIOWrapper" in refused


async def test_an_agent_that_exits_fails_alone(url: str, ledger: str) -> None:
    async with snaprt.Runtime(url) as rt:
        failed = await (await rt.start(careful.exits_itself, ledger, run_id="r")).outcome()
        other = await (await rt.start(careful.puts, ledger, run_id="other")).outcome()
    assert isinstance(failed, snaprt.Failed)
    assert isinstance(failed.error, SystemExit)
    assert other == snaprt.Completed("other", "x")


async def test_a_returned_handle_is_named_as_what_the_agent_returned(url: str, ledger: str) -> None:
    async with snaprt.Runtime(url) as rt:
        failed = await (await rt.start(careful.returns_handle, ledger, run_id="r")).outcome()
    assert isinstance(failed, snaprt.Failed)
    assert "the value that the agent returned → [0]: io.TextIOWrapper" in str(failed.error)


async def test_a_failure_after_a_restore_still_names_the_line_it_came_from(url: str, ledger: str) -> None:
    async with snaprt.Runtime(url) as rt:
        await (await rt.start(careful.fails_after_a_wait, ledger, run_id="r")).outcome()
    async with snaprt.Runtime(url) as rt:
        await rt.answer("r", "yes")
        failed = await (await rt.resume("r")).outcome()
    assert isinstance(failed, snaprt.Failed)
    assert 'raise KeyError("first")' in failed.traceback


async def test_a_tool_gets_arguments_of_its_own_and_the_agent_what_is_recorded(url: str, ledger: str) -> None:
    async with snaprt.Runtime(url) as rt:
        done = await (await rt.start(careful.shares, ledger, run_id="r")).outcome()
    assert done == snaprt.Completed("r", [[1, 2], [1, 99], False])
    assert lines(ledger) == ["got [1]", "still [1]"]


async def test_reads_started_together_share_few_records(url: str, ledger: str) -> None:
    async with snaprt.Runtime(url) as rt:
        await (await rt.start(agents.many_reads, ledger, 100, run_id="r")).outcome()
        info = await rt.show("r")
    assert len(info.steps) == 100
    assert info.records < 25


GO_ON = threading.Event()
BLOCKED: list[int] = []


@snaprt.tool(effect="read")
def blocks(number: int) -> int:
    BLOCKED.append(number)
    assert GO_ON.wait(60)
    return number


async def blocks_often(times: int) -> int:
    return len(await asyncio.gather(*map(blocks, range(times))))


async def test_blocking_tools_keep_neither_each_other_nor_the_lease_nor_the_store_waiting(url: str) -> None:
    BLOCKED.clear()
    GO_ON.clear()
    many = 3 * 40  # anyio lets 40 threads run at once
    async with snaprt.Runtime(url, lease=0.15) as rt:
        run = await rt.start(blocks_often, many, run_id="r")
        try:
            with anyio.fail_after(60):
                while len(BLOCKED) < many:
                    await anyio.sleep(0.01)
                log, seen = rt._open.log("r"), set[float]()
                while len(seen) < 3:
                    await anyio.sleep(0.02)
                    seen.add(log.get_lease().get("until", 0.0))
                assert (await rt.show("r")).status == "running"
        finally:
            GO_ON.set()
        assert await run.outcome() == snaprt.Completed("r", many)


HANGING: list[str] = []
ASKED: list[str] = []


async def hangs_or_tells(key: str) -> Any:
    ASKED.append(key)
    if HANGING:
        await anyio.sleep(3600)
    return snaprt.Done("it was done")


@snaprt.tool(reconcile=hangs_or_tells, timeout=0.01)
async def outlasts_its_timeout() -> None:
    await anyio.sleep(3600)


async def in_doubt() -> Any:
    try:
        return await outlasts_its_timeout()
    except asyncio.CancelledError:
        HANGING.append("cleaned up")
        raise


async def asked() -> None:
    with anyio.fail_after(30):
        while not ASKED:
            await anyio.sleep(0.01)


@pytest.mark.parametrize("resumed", [False, True])
async def test_a_reconcile_hook_that_hangs_is_cut_off_by_a_drain_and_asked_again(
    url: str, resumed: bool
) -> None:
    HANGING[:] = ["yes"]
    for _ in range(1 + resumed):
        ASKED.clear()
        async with snaprt.Runtime(url) as rt:
            run = await (rt.resume("r") if (await rt.list()) else rt.start(in_doubt, run_id="r"))
            await asked()
            run.drain(0)
            assert await run.outcome() == snaprt.Suspended("r", ())
    HANGING.clear()
    async with snaprt.Runtime(url) as rt:
        assert await (await rt.resume("r")).outcome() == snaprt.Completed("r", "it was done")


async def test_a_run_whose_reconcile_hook_hangs_can_be_cancelled(url: str) -> None:
    HANGING[:] = ["yes"]
    ASKED.clear()
    async with snaprt.Runtime(url) as rt:
        run = await rt.start(in_doubt, run_id="r")
        await asked()
        await rt.cancel("r", "enough")
        assert await run.outcome() == snaprt.Cancelled("r", "enough")
    assert HANGING == ["yes", "cleaned up"]
