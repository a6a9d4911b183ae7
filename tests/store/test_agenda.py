"""Hints that say when somebody should look at a run: found cheaply, never taken for more than hints."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from snaprt.errors import AlreadyAnswered, Fenced, StoreError
from snaprt.store import Agenda, Log, Transient, lease_over
from snaprt.store.agenda import NOW, Hint
from snaprt.store.local import LocalObjects
from tests.store.held import Held, store

T = 1_900_000_000.0  # 2030-03-17 17:46:40 UTC


@pytest.fixture
def held() -> Held:
    return Held()


@pytest.fixture
def agenda(held: Held) -> Agenda:
    return Agenda(held)


def due(agenda: Agenda, now: float, most: int = 100) -> list[tuple[str, str]]:
    return [(hint.run, hint.what) for hint in agenda.due(now, most).hints]


def hints(held: Held) -> list[tuple[str, int, str]]:
    return [(hint.run, hint.at, hint.what) for hint in Agenda(held).all()]


# --- what is due --------------------------------------------------------------------------------------


def test_a_hint_is_due_at_its_second_and_not_before(agenda: Agenda) -> None:
    agenda.at("r", T, "1")
    assert due(agenda, T - 1) == []
    assert due(agenda, T) == due(agenda, T + 59) == due(agenda, T + 9 * 86400) == [("r", "1")]


def test_the_next_hint_of_this_minute_is_told_so_that_nobody_looks_in_vain(agenda: Agenda) -> None:
    agenda.at("r", T + 9, "1")
    agenda.at("s", T + 5, "1")
    assert agenda.due(T, 100).following == T + 5
    assert agenda.due(T + 5, 100).following == T + 9


def test_what_an_inbox_got_is_due_at_once_and_comes_first(agenda: Agenda) -> None:
    agenda.at("slept", time.time() - 60, "1")
    agenda.now("asked", "ask-1")
    assert due(agenda, time.time()) == [("asked", "ask-1"), ("slept", "1")]


def test_more_than_wanted_is_not_listed_and_what_rests_does_not_hide_the_others(
    held: Held, agenda: Agenda
) -> None:
    for minute in range(5):
        for number in range(10):
            agenda.at(f"r{minute}-{number}", T + 60 * minute, "1")
    held.asked.clear()
    assert len(agenda.due(T + 600, 10).hints) == 10
    few = held.asked["list"]
    rest = agenda.due(T + 600, 10, lambda hint: not hint.run.startswith("r0"))
    assert {hint.run[:2] for hint in rest.hints} == {"r1"}
    assert few < held.asked["list"] - few


def test_looking_costs_the_same_whether_ten_or_ten_thousand_sleep(held: Held, agenda: Agenda) -> None:
    def cost() -> int:
        held.asked.clear()
        assert due(agenda, T) == [("woken", "ask-1")]
        return held.asked.total()

    agenda.now("woken", "ask-1")
    for number in range(10):
        agenda.at(f"few-{number}", T + 1000 + number, "1")
    few = cost()
    for number in range(10_000):
        agenda.at(f"many-{number}", T + 1000 + 977 * number, "1")
    assert cost() == few <= 5


@pytest.mark.parametrize(
    "name",
    [
        "no-parts",
        "r~soon~1",
        "r~1~",
        "..~1~1",
        "r ~1~1",
        "~1~1",
        f"r~{'9' * 13}~1",
        f"{'r' * 129}~1~1",
        "r~\u0661~1",
    ],
)
def test_foreign_names_are_no_hints(held: Held, agenda: Agenda, name: str) -> None:
    held.data[f"{NOW}/{name}"] = b""
    held.data[f"agenda/1999-12-31/23/59/{name}"] = b""
    held.data["agenda/zzz/1/2/r~1~1"] = b""
    assert due(agenda, time.time()) == []


@pytest.mark.parametrize("when", [0.0, -5.0, 1e300, float("inf")])
def test_any_time_can_be_hinted_at(agenda: Agenda, when: float) -> None:
    agenda.at("r", when, "1")
    assert [hint.run for hint in agenda.all()] == ["r"]


def test_a_hint_of_the_longest_names_fits_into_a_file_name(tmp_path: Path) -> None:
    agenda = Agenda(LocalObjects(str(tmp_path)))
    agenda.now("r" * 128, "s" * 114)
    agenda.now("r" * 128, "s" * 128)
    agenda.at("r" * 128, 1e300, "f" * 12)
    assert sorted(hint.slot or "" for hint in agenda.all()) == ["", "", "s" * 114]


# --- on a disk ----------------------------------------------------------------------------------------


def test_folders_of_minutes_that_are_past_and_empty_are_removed(tmp_path: Path) -> None:
    agenda = Agenda(LocalObjects(str(tmp_path)))
    name = agenda.at("r", T, "1")
    other = agenda.at("s", T + 3600, "1")
    agenda.drop([name])
    agenda.due(T, 100)
    assert (tmp_path / name).parent.is_dir()  # somebody may be about to put a hint there
    agenda.due(T + 3600, 100)
    assert not (tmp_path / name).parent.parent.exists()
    agenda.drop([other])
    for _ in range(2):
        agenda.due(T + 2 * 86400, 100)
    assert list((tmp_path / "agenda").iterdir()) == []


def test_a_hint_finds_its_folder_removed_and_makes_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = LocalObjects(str(tmp_path))
    mkdir = Path.mkdir
    removed = []

    def made_and_removed(path: Path, *args: Any, **options: Any) -> None:
        mkdir(path, *args, **options)
        if path.name not in ("tmp", *removed):
            removed.append(path.name)
            path.rmdir()

    monkeypatch.setattr(Path, "mkdir", made_and_removed)
    objects.replace("agenda/now/r~1~s", b"hint")
    assert removed == ["agenda", "now"]
    assert objects.sizes("agenda/now") == {"r~1~s": 4}


def test_a_hint_that_cannot_be_put_or_is_gone_is_no_error(held: Held, agenda: Agenda) -> None:
    agenda.drop(["agenda/now/r~1~s"])

    def fail(*_: object) -> None:
        raise StoreError("full")

    held.replace = held.remove = fail  # type: ignore[method-assign, assignment]
    agenda.now("r", "s")
    agenda.drop([agenda.at("r", T, "1")])
    assert hints(held) == []


def test_hints_are_put_off_only_when_the_later_one_lies_there(
    held: Held, agenda: Agenda, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = agenda.at("r", T, "1")

    def fail(*_: object) -> None:
        raise StoreError("full")

    with monkeypatch.context() as patch:
        patch.setattr(held, "replace", fail)
        agenda.put_off([name], "r", T + 60, "f1")
    assert hints(held) == [("r", T, "1")]
    agenda.put_off([name], "r", T + 60, "f1")
    assert hints(held) == [("r", T + 60, "f1")]
    agenda.put_off([agenda.name("r", T + 60, "f1")], "r", T + 60, "f1")
    assert hints(held) == [("r", T + 60, "f1")]


def test_a_store_that_fails_for_a_moment_doesnt_lose_the_hint_of_a_sleeping_run(
    held: Held, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise Transient("busy")

    with monkeypatch.context() as patch:
        patch.setattr(held, "replace", fail)
        with pytest.raises(Transient):  # so the record isn't written either, and both are tried again
            log.append("suspend", look=T + 60, attempt="a")
        with pytest.raises(Transient):
            log.put_answer("ask-1", b"yes", "b")
    assert (log.newest, log.answers()) == (1, [])
    log.append("suspend", look=T + 60, attempt="a")
    log.put_answer("ask-1", b"yes", "b")
    assert sorted((run, what) for run, _, what in hints(held)) == [("r", "2"), ("r", "ask-1")]


def test_a_store_that_fails_for_a_moment_doesnt_lose_the_hint_of_a_run_in_hand(
    held: Held, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = held.replace

    def fail(name: str, data: bytes) -> None:
        if name.startswith("agenda/"):
            raise Transient("busy")
        replace(name, data)

    with monkeypatch.context() as patch:
        patch.setattr(held, "replace", fail)
        log.put_lease({"owner": "me"}, 30.0)
    assert hints(held) == [("r", T, "1")]
    log.put_lease({"owner": "me"}, 30.0)
    assert len(hints(held)) == 1
    assert hints(held) != [("r", T, "1")]


# --- the hint of a run in hand ------------------------------------------------------------------------


@pytest.fixture
def log(held: Held) -> Log:
    log = store(held).create("r")
    log.append("start", detail={"lease": 30.0}, look=T)
    return log


def test_a_record_leaves_its_hint_and_takes_away_that_of_the_one_before(held: Held, log: Log) -> None:
    assert hints(held) == [("r", T, "1")]
    log.append("result")
    assert hints(held) == [("r", T, "1")]
    log.append("suspend", look=T + 90)
    assert hints(held) == [("r", T + 90, "3")]
    log.append("claim", look=T + 30)
    log.append("suspend", look=None)
    assert hints(held) == []


def test_another_process_takes_away_the_hint_of_the_suspend_that_it_ends(held: Held, log: Log) -> None:
    log.append("suspend", look=T + 9e6)
    other = store(held).log("r")
    other.append("claim", detail={"lease": 30.0}, look=T, epoch=1)
    assert hints(held) == [("r", T, "3")]


def test_the_hint_lies_there_before_the_record_does(held: Held) -> None:
    seen = []
    held.before = lambda name: seen.append((name.split("/")[0], hints(held)))
    store(held).create("r").append("start", look=T)
    assert seen[-1] == ("runs", [("r", T, "1")])
    store(held).log("r").put_answer("ask-1", b"yes")
    assert [(run, what) for run, _, what in seen[-1][1]] == [("r", "ask-1"), ("r", "1")]


def test_signs_of_life_move_the_hint_on_once_a_lease(held: Held, log: Log) -> None:
    moved = {hints(held)[0] for _ in range(5) if log.put_lease({}, 30.0) is None}
    assert len(moved) <= 2  # the clock may have passed a boundary
    (hint,) = hints(held)
    assert time.time() + 30 < hint[1] <= time.time() + 60


def test_signs_of_life_do_not_move_the_timer_of_a_run_that_sleeps(held: Held, log: Log) -> None:
    log.append("suspend", look=T + 90)
    log.put_lease({}, 30.0)
    assert hints(held) == [("r", T + 90, "2")]
    log.append("finish", look=None)
    log.put_lease({}, 30.0)
    assert hints(held) == []


def test_who_is_fenced_takes_no_hint_of_the_winner_away(held: Held, log: Log) -> None:
    other = store(held).log("r")
    other.append("claim", detail={"lease": 30.0}, look=T + 60, epoch=1)
    with pytest.raises(Fenced):
        log.append("suspend", look=None)
    log.put_lease({}, 30.0)
    assert ("r", T + 60, "2") in hints(held)


def test_each_answer_is_announced_by_its_slot(held: Held, log: Log) -> None:
    log.put_answer("ask-1", b"yes")
    with pytest.raises(AlreadyAnswered):
        log.put_answer("ask-1", b"no")
    log.put_answer("x" * 120, b"yes")
    found = [hint for hint in Agenda(held).all() if hint.announces]
    assert {hint.slot for hint in found} == {"ask-1", None}


@pytest.mark.parametrize("lease", [0.5, 1.0, 30.0, 300.0])
def test_a_lease_is_looked_at_after_its_end_and_within_another_lease(lease: float) -> None:
    ends: Callable[[float], float] = lambda now: lease_over(lease, now)  # noqa: E731
    for step in range(50):
        now = T + step * lease / 7
        assert now + lease < ends(now) <= now + 2 * lease


def test_a_hint_knows_its_slot() -> None:
    assert Hint(f"{NOW}/r~1~ask-1", "r", 1, "ask-1").slot == "ask-1"
    assert Hint(f"{NOW}/r~1~-ab", "r", 1, "-ab").slot is None
    assert Hint("agenda/2030-03-17/17/46/r~1~7", "r", 1, "7").slot is None
