"""A worker takes up what is due, and nothing that one run does keeps it from the others."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

import snaprt
from snaprt.runtime.worker import Look
from snaprt.store import Agenda
from tests.runtime.agents import breaks, many_reads, sleeps, stalls, support
from tests.store.held import KEYRING, Held, store

pytestmark = pytest.mark.anyio

Dying = Callable[[str], AbstractContextManager[None]]


def runtime(**options: Any) -> snaprt.Runtime:
    return snaprt.Runtime("held://store", keyring=KEYRING, **{"lease": 0.2, "distant": 0.1, **options})


class Told:
    """What a worker told; `until` waits for something to be true of it."""

    def __init__(self) -> None:
        self.looks: list[Look] = []

    def __call__(self, look: Look) -> None:
        self.looks.append(look)

    def of(self, run: str) -> list[str]:
        return [look.kind for look in self.looks if look.run == run]

    def left(self, run: str) -> list[Any]:
        return [look.outcome for look in self.looks if look.run == run and look.kind == "left"]

    async def until(self, true: Callable[[], object]) -> None:
        with anyio.fail_after(30):
            while not true():
                await anyio.sleep(0.01)


async def some_looks(held: Held) -> None:
    """Waits until the worker has listed what is due several times more."""
    before = held.asked["list"]
    await Told().until(lambda: held.asked["list"] > before + 8)


@asynccontextmanager
async def working(rt: snaprt.Runtime | None = None, **options: Any) -> AsyncIterator[Told]:
    """A worker for as long as the block lasts."""
    told = options.setdefault("tell", Told())
    rt = rt or runtime()
    async with rt, anyio.create_task_group() as group:
        work = {"poll": 0.1, **options}
        group.start_soon(lambda: rt.work(**work))
        yield told
        rt.drain()


def hints(held: Held) -> set[tuple[str, str]]:
    return {(hint.run, hint.what) for hint in Agenda(held).all()}


async def suspended(ledger: str, *runs: str) -> None:
    """Runs that wait for their answer."""
    async with runtime() as rt:
        for run in runs:
            outcome = await (await rt.start(support, ledger, "A-17", run_id=run)).outcome()
            assert isinstance(outcome, snaprt.Suspended)


async def answer(run: str, approved: bool = True) -> None:
    async with runtime() as rt:
        await rt.answer(run, {"approved": approved, "cents": 1})


# --- what is taken up ---------------------------------------------------------------------------------


async def test_a_run_goes_on_when_its_answer_comes(held: Held, ledger: str) -> None:
    await suspended(ledger, "asks", "waits")
    async with working() as told:
        await answer("asks")
        await told.until(lambda: told.left("asks"))
    (outcome,) = told.left("asks")
    assert outcome.value["receipt"] == "paid 1"
    assert told.looks[0] == Look("took", "asks", why="ask-1")
    assert told.of("waits") == []
    assert hints(held) == set()


async def test_a_run_goes_on_when_its_time_is_due(held: Held, ledger: str) -> None:
    async with runtime() as rt:
        outcome = await (await rt.start(sleeps, ledger, 0.5, run_id="r")).outcome()
        assert isinstance(outcome, snaprt.Suspended)
    assert len(hints(held)) == 1
    async with working() as told:
        await told.until(lambda: told.left("r"))
    assert told.left("r") == [snaprt.Completed("r", "<after>")]
    assert Path(ledger).read_text().splitlines() == ["look before", "look after"]
    assert hints(held) == set()


async def test_a_run_whose_owner_died_is_taken_up_when_its_lease_is_over(
    held: Held, ledger: str, dying_at: Dying
) -> None:
    with dying_at("suspend"):
        await suspended(ledger, "r")
    assert hints(held) == {("r", "1")}
    async with working() as told:
        await told.until(lambda: told.left("r"))
        await answer("r")
        await told.until(lambda: len(told.left("r")) == 2)
    assert isinstance(told.left("r")[1], snaprt.Completed)
    assert Path(ledger).read_text().count("look A-17\n") == 1


async def test_an_answer_that_comes_long_after_its_hint_is_not_missed(
    held: Held, ledger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await suspended(ledger, "r")
    Agenda(held).now("r", "ask-1")
    async with working() as told:
        await some_looks(held)
        assert told.looks == []
        assert hints(held) == {("r", "ask-1")}
        before = held.asked.copy()
        await some_looks(held)
        assert held.asked["create"] == before["create"]
        with monkeypatch.context() as patch:
            patch.setattr(Agenda, "now", lambda *_: None)
            await answer("r")
        await told.until(lambda: told.left("r"))
    assert hints(held) == set()


async def test_a_hint_that_names_no_slot_is_kept_for_what_may_be_on_its_way(
    held: Held, ledger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await suspended(ledger, "r")
    Agenda(held).now("r")
    async with working() as told:
        before = held.asked["create"]
        await some_looks(held)
        assert len(hints(held)) == 1
        assert (told.looks, held.asked["create"]) == ([], before)
        with monkeypatch.context() as patch:
            patch.setattr(Agenda, "now", lambda *_: None)
            await answer("r")
        await told.until(lambda: told.left("r"))


async def test_a_run_that_was_looked_at_too_early_is_looked_at_again_at_its_time(
    held: Held, ledger: str
) -> None:
    async with runtime() as rt:
        outcome = await (await rt.start(sleeps, ledger, 9e6, run_id="r")).outcome()
    assert isinstance(outcome, snaprt.Suspended)
    (hint,) = Agenda(held).all()
    Agenda(held).put_off([hint.name], "r", time.time() - 1, "1")
    async with working() as told:
        await told.until(lambda: hints(held) == {("r", "timer")})
    assert next(Agenda(held).all()).at == hint.at
    assert told.looks == []


async def test_a_hint_is_not_removed_before_what_it_announces_was_taken_in(
    held: Held, ledger: str, dying_at: Dying
) -> None:
    await suspended(ledger, "r")
    await answer("r")
    with dying_at("claim"):
        async with working() as told:
            await told.until(lambda: False)
    assert ("r", "ask-1") in hints(held)


async def test_a_run_that_is_told_to_stop_is_taken_up_by_another_worker_at_once(
    held: Held, ledger: str
) -> None:
    await suspended_beside_a_timer(held)
    async with working(runtime(distant=60.0)) as told:
        await told.until(lambda: told.of("r"))
    assert isinstance(told.left("r")[0], snaprt.Suspended)
    async with working(runtime(distant=60.0)) as again:
        await again.until(lambda: again.of("r"))
        await answer("r")
        await again.until(lambda: again.left("r") and not hints(held))
    assert again.left("r") == [snaprt.Completed("r", "early")]


# --- who else is there --------------------------------------------------------------------------------


async def test_a_run_in_the_hands_of_another_is_left_to_it_until_its_lease_is_over(
    held: Held, ledger: str
) -> None:
    async with runtime(distant=60.0, lease=30.0) as owner:
        run = await owner.start(sleeps, ledger, 0.6, run_id="r")
        Agenda(held).at("r", time.time() - 1, "1")
        async with working() as told:
            await told.until(lambda: ("r", "busy") in hints(held))
            assert told.looks == []
        (off,) = [hint for hint in Agenda(held).all() if hint.what == "busy"]
        assert off.at > time.time() + 20
        assert isinstance(await run.outcome(), snaprt.Completed)


async def test_an_answer_to_a_run_in_hand_is_taken_in_when_the_worker_hears_of_it(
    held: Held, ledger: str
) -> None:
    async with working(runtime(distant=60.0, look=60.0)) as told:
        await suspended_beside_a_timer(held)
        await told.until(lambda: told.of("r"))
        await answer("r")
        await told.until(lambda: told.left("r"))
    assert told.left("r") == [snaprt.Completed("r", "early")]


async def suspended_beside_a_timer(held: Held) -> None:
    """A run that is due now, and that a worker to whom its timer is near keeps in hand."""
    async with runtime(distant=0.0) as rt:
        await (await rt.start(asks_for_a_while, run_id="r")).outcome()
    Agenda(held).at("r", time.time() - 1, "x")


async def asks_for_a_while() -> str:
    try:
        async with asyncio.timeout(50):
            await snaprt.suspend("?")
    except TimeoutError:
        return "late"
    return "early"


async def test_many_workers_share_the_runs_and_do_nothing_twice(held: Held, ledger: str) -> None:
    runs = [f"r{number}" for number in range(24)]
    await suspended(ledger, *runs)
    for run in runs:
        await answer(run)
    async with working() as one, working() as two, working(concurrency=1) as three:
        tellers = (one, two, three)
        await one.until(lambda: all(any(each.left(run) for each in tellers) for run in runs))
    outcomes = [outcome for each in tellers for run in runs for outcome in each.left(run)]
    assert sum(isinstance(outcome, snaprt.Completed) for outcome in outcomes) == len(runs)
    assert Path(ledger).read_text().count("pay 1") == len(runs)


async def test_no_more_runs_are_in_hand_than_was_said(held: Held, ledger: str) -> None:
    runs = [f"r{number}" for number in range(12)]
    await suspended(ledger, *runs)
    for run in runs:
        await answer(run)
    most = 0
    async with working(concurrency=3) as told:

        def in_hand() -> bool:
            nonlocal most
            kinds = [look.kind for look in told.looks]
            most = max(most, kinds.count("took") - kinds.count("left"))
            return kinds.count("left") == len(runs)

        await told.until(in_hand)
    assert 1 <= most <= 3


# --- what goes wrong ----------------------------------------------------------------------------------


async def test_a_run_that_cannot_be_taken_up_is_tried_again_later_and_stops_nobody(
    held: Held, ledger: str, caplog: pytest.LogCaptureFixture
) -> None:
    await suspended(ledger, "bad", "good")
    await answer("bad")
    await answer("good")
    for name in [name for name in held.data if name.startswith("runs/bad/log/")]:
        held.data[name] = held.data[name][:-40] + bytes(40)
    began = time.time()
    async with working() as told:
        await told.until(lambda: told.of("bad") and told.left("good"))
    (failed,) = [look for look in told.looks if look.kind == "failed"]
    assert failed.again is not None
    assert began + 30 <= failed.again <= time.time() + 30
    assert hints(held) == {("bad", "f1")}

    # Where nobody listens, it is logged.
    with caplog.at_level(logging.INFO, "snaprt"):
        for times in range(3):
            (last,) = Agenda(held).all()
            Agenda(held).put_off([last.name], "bad", time.time() - 1, f"f{times}")
            async with working(tell=None):
                await Told().until(lambda times=times: hints(held) == {("bad", f"f{times + 1}")})  # type: ignore[misc]
    warnings = [each.message for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert "Run bad couldn't be taken up" in warnings[0]
    assert "snaprt show bad" in warnings[0]


async def test_the_pauses_between_tries_double_up_to_an_hour(held: Held, ledger: str) -> None:
    await suspended(ledger, "r")
    held.data.update({name: b"x" for name in held.data if name.startswith("runs/r/log/")})
    for times, seconds in {1: 60, 2: 120, 3: 240, 8: 3600, 200: 3600}.items():
        held.data = {name: data for name, data in held.data.items() if not name.startswith("agenda/")}
        began = time.time()
        Agenda(held).at("r", began - 1, f"f{times}")
        async with working() as told:
            await told.until(lambda told=told: told.looks)  # type: ignore[misc]
        assert told.looks[0].again is not None
        assert began + seconds <= told.looks[0].again <= time.time() + seconds


async def test_a_run_that_fails_is_done_with_and_one_that_stalls_is_tried_again(
    held: Held, ledger: str
) -> None:
    async with runtime() as rt:
        await (await rt.start(breaks_after_an_answer, ledger, run_id="breaks")).outcome()
        await (await rt.start(stalls_after_an_answer, run_id="stalls")).outcome()
        for run in ("breaks", "stalls"):
            await rt.answer(run, "go on")
    async with working() as told:
        await told.until(lambda: told.left("breaks") and "failed" in told.of("stalls"))
    assert isinstance(told.left("breaks")[0], snaprt.Failed)
    assert "f1" in {what for run, what in hints(held) if run == "stalls"}
    assert "breaks" not in {run for run, _ in hints(held)}


async def breaks_after_an_answer(ledger: str) -> None:
    await snaprt.suspend("?")
    await breaks(ledger)


async def stalls_after_an_answer() -> None:
    await snaprt.suspend("?")
    await stalls()


@snaprt.tool(effect="idempotent")
async def pay_by_key(ledger: str, *, idempotency_key: str) -> str:
    return idempotency_key


async def pays_by_key(ledger: str, count: int) -> None:
    for _ in range(count):
        await pay_by_key(ledger)


@pytest.mark.parametrize("agent", [many_reads, pays_by_key])
async def test_a_run_whose_owners_die_one_after_the_other_is_left_alone_ever_longer(
    held: Held, ledger: str, dying_at: Dying, agent: Any
) -> None:
    async def dies(kind: str) -> tuple[float, float]:
        """A process that dies before a record of that kind; gives how long the run is left alone, at least
        and at most: it was taken in hand somewhere between."""
        began = time.time()
        with dying_at(kind):
            async with runtime(lease=10.0) as rt:
                await (await rt.resume("r")).outcome()
        (hint,) = Agenda(held).all()
        return hint.at - time.time(), hint.at - began

    with dying_at("result"):
        async with runtime(lease=10.0) as rt:
            await (await rt.start(agent, ledger, 1, run_id="r")).outcome()
    for seconds in (40, 80, 160):
        least, most = await dies("result")
        assert least - 1 <= seconds <= most  # a hint names whole seconds
    await dies("finish")  # it got the run on
    least, _ = await dies("finish")
    assert least <= 20
    async with runtime(lease=10.0) as rt:
        await (await rt.resume("r")).outcome()
    assert hints(held) == set()


_gate = threading.Event()


@snaprt.tool(effect="read")
def wait_at_gate() -> None:
    assert _gate.wait(30)


async def waits_at_gate() -> None:
    await wait_at_gate()


async def lose_two_owners(dying_at: Dying, *runs: str) -> None:
    """Has each run taken up twice by a process that dies before it got on; the gate is closed then."""
    _gate.set()
    for life in range(2):
        for run in runs:
            with dying_at("result"):
                async with runtime(lease=10.0) as rt:
                    begun = rt.resume(run) if life else rt.start(waits_at_gate, run_id=run)
                    await (await begun).outcome()
    _gate.clear()


async def test_runs_that_died_together_are_in_hand_one_by_one_until_they_got_on(
    held: Held, dying_at: Dying, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One of them may be what kills the process; with it beside them the others would never get on.
    monkeypatch.setattr("snaprt.runtime.owning.look_at", lambda lease, deaths: time.time())
    await lose_two_owners(dying_at, "r-1", "r-2", "r-3")
    async with runtime(lease=10.0) as rt:
        first = await rt.resume("r-1", wary=True)
        for _ in range(2):
            with pytest.raises(
                snaprt.RunBusy, match="until it is known whether run r-1, in hand now"
            ) as busy:
                await rt.resume("r-2", wary=True)
            assert busy.value.until is None  # whoever works looks again soon
        assert (await rt.resume("r-3")).in_hand  # a person may
        _gate.set()
        assert isinstance(await first.outcome(), snaprt.Completed)
        _gate.clear()
        second = await rt.resume("r-2", wary=True)
        _gate.set()
        assert isinstance(await second.outcome(), snaprt.Completed)


async def test_a_run_that_lived_for_some_leases_keeps_no_other_waiting(
    held: Held, dying_at: Dying, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("snaprt.runtime.owning.look_at", lambda lease, deaths: time.time())
    monkeypatch.setattr("snaprt.runtime.runtime._TRIAL", 0.0)
    await lose_two_owners(dying_at, "r-1", "r-2")
    async with runtime(lease=10.0) as rt:
        runs = [await rt.resume(run, wary=True) for run in ("r-1", "r-2")]
        _gate.set()
        assert [type(await run.outcome()) for run in runs] == [snaprt.Completed] * 2


async def test_no_hint_hurries_a_run_whose_owners_died_and_a_person_may(
    held: Held, ledger: str, dying_at: Dying
) -> None:
    with dying_at("result"):
        async with runtime(lease=10.0) as rt:
            await (await rt.start(many_reads, ledger, 1, run_id="r")).outcome()
    with dying_at("result"):
        async with runtime(lease=10.0) as rt:
            await (await rt.resume("r")).outcome()
    Agenda(held).now("r")
    Agenda(held).at("r", time.time() - 1, "1")
    async with working() as told:
        await told.until(lambda: ("r", "busy") in hints(held))
        (off,) = [hint for hint in Agenda(held).all() if hint.what == "busy"]
        assert off.at > time.time() + 30
        assert told.looks == []
        with pytest.raises(snaprt.RunBusy, match="in hand 2 times, and each time its process died"):
            async with runtime() as rt:
                await rt.resume("r", wary=True)
    async with runtime() as rt:
        assert isinstance(await (await rt.resume("r")).outcome(), snaprt.Completed)


async def test_what_was_announced_and_what_is_foreign_does_no_harm(held: Held, ledger: str) -> None:
    await suspended(ledger, "r")
    Agenda(held).now("nobody", "ask-1")
    Agenda(held).at("nobody", time.time() - 1, "1")
    Agenda(held).at("nobody", time.time() - 9999, "1")
    held.data["agenda/now/r~1~../../x"] = b""
    held.data["agenda/now/junk"] = b""
    await answer("r")
    async with working() as told:
        await told.until(lambda: told.left("r"))
        await told.until(lambda: len(hints(held)) == 2)
    assert hints(held) == {("nobody", "ask-1"), ("nobody", "1")}
    assert {look.run for look in told.looks} == {"r"}


async def test_an_error_of_the_store_that_no_patience_mends_comes_out_as_it_is(held: Held) -> None:
    def refuse(*_: object) -> Any:
        raise snaprt.StoreError("access denied")

    async with runtime() as rt:
        held.folders = refuse  # type: ignore[method-assign]
        with pytest.raises(snaprt.StoreError, match="access denied"):
            await rt.work()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"concurrency": 0}, "1 or more"),
        ({"concurrency": True}, "1 or more"),
        ({"poll": 0}, "more than 0"),
        ({"agents": ["no.such.module"]}, "can't be imported"),
    ],
)
async def test_wrong_use_is_said_at_once(held: Held, options: dict[str, Any], said: str) -> None:
    async with runtime() as rt:
        with pytest.raises(snaprt.UsageError, match=said):
            await rt.work(**options)


async def test_a_worker_of_some_modules_leaves_the_agents_of_others_alone(held: Held, ledger: str) -> None:
    await suspended(ledger, "r")
    async with runtime() as rt:
        await (await rt.start(stalls_after_an_answer, run_id="other")).outcome()
        await rt.answer("other", 1)
    await answer("r")
    async with working(agents=["tests.runtime.agents"]) as told:
        await told.until(lambda: told.left("r"))
        await some_looks(held)
    assert {look.run for look in told.looks} == {"r"}
    assert {run for run, _ in hints(held)} == {"other"}


# --- what it costs ------------------------------------------------------------------------------------


def sleeping(held: Held, count: int) -> None:
    """Runs that sleep for days, written as a process would have left them."""
    there = store(held)
    detail = {"status": "suspended", "agent": "a", "target": "m:a", "started": 0.0, "save": "always"}
    for number in range(count):
        until = time.time() + 86_400 + 61 * number
        there._log(f"sleeps-{number}").append("suspend", detail=detail, look=until)


async def cost_of_an_answer(held: Held, ledger: str, run: str) -> int:
    """Store requests from the answer to the end of the run, the worker's."""
    await suspended(ledger, run)
    await answer(run)
    held.asked.clear()
    async with working(runtime(lease=30.0), poll=60.0) as told:
        await told.until(lambda: told.left(run))
        cost = held.asked.total()
    assert isinstance(told.left(run)[0], snaprt.Completed)
    return cost


async def test_among_ten_thousand_sleeping_runs_the_answered_one_is_found_in_fifty_requests(
    held: Held, ledger: str
) -> None:
    few = await cost_of_an_answer(held, ledger, "first")
    sleeping(held, 10_000)
    assert await cost_of_an_answer(held, ledger, "second") == few <= 50


async def test_a_worker_remembers_nothing_of_runs_that_sleep(held: Held, ledger: str) -> None:
    peaks: list[int] = []  # one for each stretch between two listings
    folders = Held.folders

    def listed(folder: str) -> list[str]:
        # What the dictionary itself needs to list its names isn't the worker's.
        if tracemalloc.is_tracing():
            peaks.append(tracemalloc.get_traced_memory()[1])
        found = folders(held, folder)
        if tracemalloc.is_tracing():
            tracemalloc.reset_peak()
        return found

    held.folders = listed  # type: ignore[method-assign]
    held.sizes = lambda folder: {}  # type: ignore[method-assign]

    async def peak() -> int:
        async with working(runtime(), poll=0.02) as told:
            before = held.asked["list"]
            await told.until(lambda: held.asked["list"] > before + 4)  # what is done once is done
            peaks.clear()
            tracemalloc.start()
            await told.until(lambda: len(peaks) > 10)
            tracemalloc.stop()
        return max(peaks[1:])  # tracing may have begun amid a listing

    few = await peak()
    for number in range(10_000):
        Agenda(held).at(f"r-{number}", time.time() + 86_400 + 3 * number, "1")
    assert await peak() < few + 100_000


# --- children -----------------------------------------------------------------------------------------


async def asked_child() -> str:
    return str(await snaprt.suspend("child?"))


async def waiting_parent() -> str:
    return f"parent of {await snaprt.child(asked_child)}"


async def test_a_parent_goes_on_when_its_child_has_ended_though_nobody_told_it(
    held: Held, ledger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with runtime() as rt:
        await (await rt.start(waiting_parent, run_id="r")).outcome()
        (child,) = [info.run for info in await rt.list() if info.run != "r"]
        await rt.answer(child, "yes")
    with monkeypatch.context() as patch:

        async def dies(*_: object) -> bool:
            return False

        patch.setattr("snaprt.runtime.family.Family.tell", dies)
        async with runtime() as rt:
            outcome = await (await rt.resume(child)).outcome()
            assert isinstance(outcome, snaprt.Completed)
    Agenda(held).drop([hint.name for hint in Agenda(held).all() if hint.announces])
    async with working() as told:
        await told.until(lambda: told.left("r") and not hints(held))
    assert told.left("r") == [snaprt.Completed("r", "parent of yes")]


# --- whatever else is put into an inbox ---------------------------------------------------------------


async def reads_mail() -> list[Any]:
    inbox = snaprt.inbox("orders")
    return [await inbox.get(), await inbox.get()]


async def test_messages_to_a_sleeping_run_are_taken_in_by_a_worker(held: Held) -> None:
    async with runtime() as rt:
        await (await rt.start(reads_mail, run_id="r")).outcome()
    async with working() as told, runtime() as sender:
        await sender.send("r", "first", inbox="orders")
        await told.until(lambda: told.left("r"))
        await sender.send("r", "second", inbox="orders")
        await told.until(lambda: len(told.left("r")) == 2 and not hints(held))
    assert told.left("r")[1] == snaprt.Completed("r", ["first", "second"])


async def test_a_sleeping_run_that_is_to_end_is_ended_by_a_worker(held: Held, ledger: str) -> None:
    async with runtime() as rt:
        await (await rt.start(sleeps, ledger, 9e6, run_id="r")).outcome()
        assert await rt.cancel("r", "no longer wanted")
    async with working() as told:
        await told.until(lambda: told.left("r") and not hints(held))
    assert isinstance(told.left("r")[0], snaprt.Cancelled)
    assert Path(ledger).read_text().splitlines() == ["look before"]
