"""Runs are removed whole or not at all, never under somebody's hands; lost hints are written anew."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

import snaprt
from snaprt.store import Agenda
from tests.runtime.agents import breaks, pay, sleeps, support, two_questions
from tests.store.held import KEYRING, Held, store

pytestmark = pytest.mark.anyio

Dying = Callable[[str], AbstractContextManager[None]]


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    """The objects that every Runtime of the test works on."""
    objects = Held()
    monkeypatch.setattr("snaprt.store.store.open_objects", lambda *_: (objects, "held"))
    return objects


def runtime(**options: Any) -> snaprt.Runtime:
    return snaprt.Runtime("held://store", keyring=KEYRING, **options)


def left(held: Held, run: str) -> list[str]:
    return [name for name in held.data if name.startswith(f"runs/{run}/")]


async def answered(ledger: str, run: str = "r") -> None:
    """A run that was asked and has ended, with an answer in its inbox."""
    async with runtime() as rt:
        await (await rt.start(support, ledger, "A-17", run_id=run)).outcome()
        await rt.answer(run, {"approved": False})
        await (await rt.resume(run)).outcome()


# --- removing -----------------------------------------------------------------------------------------


async def test_a_run_that_has_ended_is_removed_with_all_its_objects(held: Held, ledger: str) -> None:
    await answered(ledger)
    count = len(left(held, "r"))
    async with runtime() as rt:
        assert await rt.remove("r") == count
        assert left(held, "r") == []
        with pytest.raises(snaprt.UnknownRun):
            await rt.show("r")
        with pytest.raises(snaprt.UnknownRun):
            await rt.remove("r")


async def test_a_run_that_waits_is_not_removed_unless_forced(held: Held, ledger: str) -> None:
    async with runtime() as rt:
        await (await rt.start(support, ledger, "A-17", run_id="r")).outcome()
        before = dict(held.data)
        with pytest.raises(snaprt.UsageError, match=r"suspended and hasn't ended.*--force"):
            await rt.remove("r")
        assert held.data == before
        await rt.remove("r", force=True)
        assert left(held, "r") == []


async def test_a_run_in_a_live_owners_hands_is_not_removed_and_by_force_its_owner_is_fenced(
    held: Held, ledger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with runtime() as owner, runtime() as other:
        run = await owner.start(pays_late, ledger, run_id="r")
        with pytest.raises(snaprt.RunBusy, match="seems to be alive"):
            await other.remove("r")
        monkeypatch.setattr("snaprt.store.store.remove", lambda *_: 0)  # slower than the owner's next record
        await other.remove("r", force=True)
        with pytest.raises(snaprt.Fenced):
            await run.outcome()
    assert Path(ledger).read_text() == ""


async def pays_late(ledger: str) -> None:
    await asyncio.sleep(0.5)
    await pay(ledger, 5)


async def test_a_removal_and_a_resume_at_the_same_moment_do_not_both_win(
    held: Held, ledger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with runtime() as rt:
        await (await rt.start(breaks, ledger, run_id="r")).outcome()

        def resumed(name: str) -> None:
            held.before = lambda name: None
            store(held).log("r").append("claim", detail={"status": "running"})

        held.before = resumed
        with pytest.raises(snaprt.RunBusy, match="at the same moment"):
            await rt.remove("r")
        assert len(left(held, "r")) > 3


async def test_a_removed_failed_run_cannot_be_tried_again_while_it_is_being_removed(
    held: Held, ledger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with runtime() as rt:
        await (await rt.start(breaks, ledger, run_id="r")).outcome()
        monkeypatch.setattr("snaprt.store.store.remove", lambda *_: 0)
        await rt.remove("r")
        assert await (await rt.resume("r", retry=True)).outcome() == snaprt.Cancelled("r", "it was removed")


async def test_wherever_a_removal_breaks_off_no_run_is_left_that_could_act(held: Held, ledger: str) -> None:
    await answered(ledger)
    async with runtime() as rt:
        whole = dict(held.data)
        removed: list[str] = []
        remove = Held.remove

        for lives in range(1, 100):
            held.data = dict(whole)
            removed.clear()

            def breaking(name: str, most: int = lives) -> None:
                if name.startswith("runs/"):
                    if len(removed) == most:
                        raise snaprt.StoreError("no")
                    removed.append(name)
                remove(held, name)

            held.remove = breaking  # type: ignore[method-assign]
            try:
                await rt.remove("r")
            except snaprt.StoreError:
                pass
            else:
                break
            log = [name for name in left(held, "r") if "/log/" in name]
            if "runs/r/log/000000000001" in log:
                outcome = await (await rt.resume("r")).outcome()
                assert isinstance(outcome, snaprt.Completed)
            else:
                with pytest.raises(snaprt.Damaged, match=r"`snaprt rm r` ends that"):
                    await rt.resume("r")
                assert len(log) == len(left(held, "r")), "an answer is left that a new run could find"
                with pytest.raises(snaprt.RunExists):
                    await rt.start(support, ledger, "B-2", run_id="r")
            held.remove = lambda name: remove(held, name)  # type: ignore[method-assign]
            await rt.remove("r")
            assert left(held, "r") == []
        assert lives > 5


async def test_a_damaged_run_is_removed_only_by_force(held: Held, ledger: str) -> None:
    await answered(ledger)
    newest = max(name for name in held.data if name.startswith("runs/r/log/"))
    held.data[newest] = held.data[newest][:-20] + bytes(20)
    held.data[newest] = b"x" * len(held.data[newest])
    async with runtime() as rt:
        with pytest.raises(snaprt.Damaged, match="--force"):
            await rt.remove("r")
        assert left(held, "r") != []
        await rt.remove("r", force=True)
    assert left(held, "r") == []


async def test_the_hints_of_a_removed_run_go_with_it(held: Held, ledger: str) -> None:
    async with runtime(distant=0.1) as rt:
        await (await rt.start(sleeps, ledger, 9e6, run_id="r")).outcome()
        assert len(list(Agenda(held).all())) == 1
        await rt.remove("r", force=True)
    assert list(Agenda(held).all()) == []


async def test_on_a_disk_nothing_of_a_removed_run_is_left(url: str, ledger: str) -> None:
    async with snaprt.Runtime(url) as rt:
        await (await rt.start(support, ledger, "A-17", run_id="r")).outcome()
        await rt.answer("r", {"approved": False})
        await (await rt.resume("r")).outcome()
        await rt.remove("r")
        assert await rt.list() == []
        assert list(Path(url, "runs").iterdir()) == []
        # And a new one of that id asks anew.
        outcome = await (await rt.start(support, ledger, "A-17", run_id="r")).outcome()
        assert isinstance(outcome, snaprt.Suspended)


# --- hints --------------------------------------------------------------------------------------------


def forget(held: Held) -> set[tuple[str, int]]:
    """Loses every hint; gives what they were."""
    lost = {(hint.run, hint.at) for hint in Agenda(held).all()}
    held.data = {name: data for name, data in held.data.items() if not name.startswith("agenda/")}
    return lost


async def test_every_hint_that_was_lost_is_written_again(held: Held, ledger: str, dying_at: Dying) -> None:
    await answered(ledger, "ended")
    async with runtime(distant=0.1) as rt:
        await (await rt.start(sleeps, ledger, 9e6, run_id="sleeps")).outcome()
        await (await rt.start(two_questions, ledger, run_id="waits")).outcome()
        await (await rt.start(two_questions, ledger, run_id="answered")).outcome()
        await rt.answer("answered", 1, suspension="ask-1")
    with dying_at("result"):
        async with runtime() as rt:
            await (await rt.start(support, ledger, "A-17", run_id="died")).outcome()
    lost = forget(held)
    async with runtime() as rt:
        done = await rt.reindex()
    now = {(hint.run, hint.at) for hint in Agenda(held).all()}
    assert done == snaprt.Reindexed(runs=5, put=3, removed=0)
    assert {run for run, _ in now} == {"sleeps", "answered", "died"} == {run for run, _ in lost} - {"ended"}
    assert {at for run, at in now if run == "sleeps"} == {at for run, at in lost if run == "sleeps"}
    assert all(at <= time.time() + 1 for run, at in now if run != "sleeps")


async def test_hints_of_runs_that_are_no_more_are_removed_and_those_of_starts_are_kept(
    held: Held, ledger: str
) -> None:
    await answered(ledger, "ended")
    agenda = Agenda(held)
    agenda.at("ended", time.time() + 9e6, "3")
    agenda.at("removed", time.time() + 9e6, "3")
    agenda.at("starting", time.time() + 40, "1")
    async with runtime() as rt:
        assert await rt.reindex() == snaprt.Reindexed(runs=1, put=0, removed=2 + 1)  # and of the answer
    assert {hint.run for hint in agenda.all()} == {"starting"}
