"""Runs are removed whole or not at all, never under somebody's hands; lost hints are written anew."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

import snaprt
from snaprt.records import Keyring
from snaprt.store import Agenda, Store, local
from snaprt.store.inbox import Inbox
from tests.conftest import S3
from tests.runtime.agents import breaks, pay, sleeps, support, two_questions
from tests.store.held import KEYRING, Held, store
from tests.store.places import memory_url

pytestmark = pytest.mark.anyio

Dying = Callable[[str], AbstractContextManager[None]]


def runtime(**options: Any) -> snaprt.Runtime:
    return snaprt.Runtime("held://store", keyring=KEYRING, **options)


def left(held: Held, run: str) -> list[str]:
    """The objects of a run that have something in them, but for the sign that it was removed."""
    inside = [name for name, data in held.data.items() if data and name.startswith(f"runs/{run}/")]
    return [name for name in inside if name != f"runs/{run}/log/removed"]


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
        for asked in (rt.show, rt.resume, rt.verify, rt.remove):
            with pytest.raises(snaprt.UnknownRun, match="was removed"):
                await asked("r")
        assert await rt.list() == []


async def test_a_run_that_waits_is_not_removed_unless_forced(held: Held, ledger: str) -> None:
    async with runtime() as rt:
        await (await rt.start(support, ledger, "A-17", run_id="r")).outcome()
        before = dict(held.data)
        with pytest.raises(snaprt.UsageError, match=r"suspended and hasn't ended.*--force"):
            await rt.remove("r")
        assert held.data == before
        await rt.remove("r", force=True)
        assert left(held, "r") == []
        assert await rt.list() == []


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


async def test_wherever_a_removal_breaks_off_no_run_is_left_that_could_act(
    held: Held, ledger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with runtime() as rt:
        for force in (False, True):
            run = f"r{force:d}"
            if force:
                await (await rt.start(support, ledger, "A-17", run_id=run)).outcome()
                await rt.answer(run, {"approved": False})  # which lies there and isn't taken in
            else:
                await answered(ledger, run)
            held.data[f"runs/{run}/lease"] = b"its owner was alive"
            whole = dict(held.data)
            for lives in range(100):
                held.data = dict(whole)
                broke_off = False
                with breaking(monkeypatch, after=lives):
                    try:
                        await rt.remove(run, force=force)
                    except snaprt.StoreError:
                        broke_off = True
                if f"runs/{run}/log/removed" in held.data:
                    with pytest.raises(snaprt.UnknownRun, match="was removed"):
                        await rt.resume(run)
                    with pytest.raises(snaprt.RunExists, match="aren't used twice"):
                        await rt.start(support, ledger, "B-2", run_id=run)
                    newest = max(name for name in held.data if name.startswith(f"runs/{run}/log/0"))
                    assert int(newest[-12:]) == len([n for n in whole if f"/{run}/log/" in n]) + force
                    assert f"runs/{run}/log/{1:012d}" in held.data
                    assert await rt.list() == [] or (await rt.list())[0].run != run
                elif left(held, run) == left_in(whole, run):
                    assert broke_off
                else:
                    outcome = await (await rt.resume(run)).outcome()
                    assert outcome == snaprt.Cancelled(run, "it was removed"), "ended, and still whole"
                if not broke_off:
                    break
                await rt.remove(run, force=force)
                assert left(held, run) == []
                with pytest.raises(snaprt.UnknownRun, match="was removed"):
                    await rt.remove(run)
            assert lives > 8


def left_in(data: dict[str, bytes], run: str) -> list[str]:
    return left(Held(data), run)


@contextlib.contextmanager
def breaking(monkeypatch: pytest.MonkeyPatch, after: int) -> Iterator[None]:
    """Lets so many changes of runs through, and then none."""
    made: list[str] = []

    def counted(do: Callable[..., None]) -> Callable[..., None]:
        def operation(self: Held, name: str, *data: bytes) -> None:
            if name.startswith("runs/"):
                if len(made) == after:
                    raise snaprt.StoreError("no")
                made.append(name)
            do(self, name, *data)

        return operation

    with monkeypatch.context() as patch:
        for name in ("create", "replace", "remove"):
            patch.setattr(Held, name, counted(getattr(Held, name)))
        yield


# --- what can't be after it ---------------------------------------------------------------------------


@pytest.fixture(params=["local", "files", "memory", pytest.param("s3", marks=pytest.mark.s3)])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, dict[str, Any]]:
    """A store: its URL and options."""
    if request.param in ("local", "files"):
        if request.param == "files":
            monkeypatch.setattr(local, "appends_in_one_step", lambda folder: False)
        return str(tmp_path / "store"), {}
    if request.param == "memory":
        return memory_url(), {}
    s3: S3 = request.getfixturevalue("s3")
    return f"{s3.url}/agents", {"storage_options": dict(s3.storage_options)}


def at(place: tuple[str, dict[str, Any]]) -> snaprt.Runtime:
    url, options = place
    return snaprt.Runtime(url, keyring=KEYRING, **options)


async def pays_on(ledger: str, flag: str) -> None:
    await pay(ledger, 1)
    while not Path(flag).exists():
        await asyncio.sleep(0.02)
    await pay(ledger, 2)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_owner_of_a_run_that_was_removed_by_force_does_nothing_more(
    place: tuple[str, dict[str, Any]], ledger: str, tmp_path: Path
) -> None:
    async with at(place) as owner, at(place) as other:
        run = await owner.start(pays_on, ledger, str(tmp_path / "flag"), run_id="r")
        while not Path(ledger).read_text():
            await asyncio.sleep(0.02)
        await other.remove("r", force=True)
        with pytest.raises(snaprt.RunExists, match="aren't used twice"):  # whose log he could write into
            await other.start(pays_on, ledger, str(tmp_path / "flag"), run_id="r")
        paid = Path(ledger).read_text()
        (tmp_path / "flag").touch()
        with pytest.raises(snaprt.Fenced):
            await run.outcome()
        assert await other.list() == []
        assert Path(ledger).read_text() == paid


async def test_an_owner_who_was_fenced_long_ago_does_nothing_more_when_the_run_is_removed(
    place: tuple[str, dict[str, Any]],
) -> None:
    url, options = place
    owners = []
    for epoch in range(3):
        store = Store.open(url, keyring=KEYRING, **options)
        log = store.log("r") if epoch else store.create("r")
        for kind in ("claim" if epoch else "start", "call", "result"):
            log.append(kind, epoch=epoch)
        owners.append(log)
    owners.pop().append("finish", epoch=2)
    store.remove("r")
    for log in owners:
        with pytest.raises(snaprt.Fenced):
            log.append("call")


async def test_the_owner_of_a_run_that_cannot_be_read_does_nothing_more_when_it_is_removed(
    place: tuple[str, dict[str, Any]],
) -> None:
    url, options = place
    owner = Store.open(url, keyring=KEYRING, **options).create("r")
    owner.append("start")
    async with snaprt.Runtime(url, keyring=Keyring.from_bytes(b"another-key-0123456789"), **options) as rt:
        with pytest.raises(snaprt.WrongKey, match="--force"):
            await rt.remove("r")
        await rt.remove("r", force=True)
        with pytest.raises(snaprt.UnknownRun, match="was removed"):
            await rt.remove("r", force=True)
    with pytest.raises(snaprt.Fenced):
        owner.append("call")


async def test_nothing_that_a_removed_run_left_behind_goes_to_a_new_one(
    place: tuple[str, dict[str, Any]], ledger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a late answer nor a child: there is no new one of its id."""
    async with at(place) as rt:
        await (await rt.start(family, run_id="p")).outcome()
        put = Inbox.put

        def late(self: Inbox, *args: Any) -> None:
            monkeypatch.setattr(Inbox, "put", put)
            Store.open(place[0], keyring=KEYRING, **place[1]).remove("p.1")
            put(self, *args)

        monkeypatch.setattr(Inbox, "put", late)
        await rt.answer("p.1", "yes")
        await rt.remove("p", force=True)
        for run in ("p", "p.1"):
            with pytest.raises(snaprt.RunExists, match="aren't used twice"):
                await rt.start(family, run_id=run)
            with pytest.raises(snaprt.UnknownRun, match="was removed"):
                await rt.answer(run, "yes")


async def asks() -> Any:
    return await snaprt.suspend("Go on?")


async def family() -> Any:
    try:
        return await snaprt.child(asks)
    except snaprt.ChildCancelled as error:
        return str(error)


async def test_a_parent_does_not_wait_for_a_child_that_ended_untold_and_was_removed(
    place: tuple[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dead(*_: Any) -> bool:
        return False

    async with at(place) as rt:
        await (await rt.start(family, run_id="p")).outcome()
        with monkeypatch.context() as patch:
            patch.setattr("snaprt.runtime.family.Family.tell", dead)
            await rt.answer("p.1", "yes")
            await (await rt.resume("p.1")).outcome()
        await rt.remove("p.1")
        assert await (await rt.resume("p")).outcome() == snaprt.Completed("p", "yes")


async def test_a_parent_does_not_wait_for_a_child_that_was_removed_by_force(
    place: tuple[str, dict[str, Any]],
) -> None:
    async with at(place) as rt:
        await (await rt.start(family, run_id="p")).outcome()
        await rt.remove("p.1", force=True)
        outcome = await (await rt.resume("p")).outcome()
        assert isinstance(outcome, snaprt.Completed)
        assert "it was removed" in outcome.value


async def test_a_child_whose_id_was_removed_is_not_waited_for(place: tuple[str, dict[str, Any]]) -> None:
    async with at(place) as rt:
        await (await rt.start(asks, run_id="p.1")).outcome()
        await rt.remove("p.1", force=True)
        outcome = await (await rt.start(family, run_id="p")).outcome()
        if isinstance(outcome, snaprt.Suspended):
            outcome = await (await rt.resume("p")).outcome()
        assert isinstance(outcome, snaprt.Completed)
        assert "it was removed" in outcome.value


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


async def test_on_a_disk_no_byte_of_a_removed_run_is_left(url: str, ledger: str) -> None:
    async with snaprt.Runtime(url) as rt:
        await (await rt.start(support, ledger, "A-17", run_id="r")).outcome()
        await rt.answer("r", {"approved": False})
        await (await rt.resume("r")).outcome()
        await rt.remove("r")
        assert await rt.list() == []
    files = {path.name: path.stat().st_size for path in Path(url, "runs").rglob("*") if path.is_file()}
    assert files == {"removed": files["removed"], "000000000001": 0}


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
    await answered(ledger, "gone")
    async with runtime() as rt:
        await rt.remove("gone")
        agenda.at("gone", time.time() + 40, "3")
        assert await rt.reindex() == snaprt.Reindexed(runs=1, put=0, removed=3 + 2)  # and of the answers
    assert {hint.run for hint in agenda.all()} == {"starting"}
