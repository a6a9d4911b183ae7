"""A run's log: what it holds, what it costs, and what it says when answers get lost."""

from __future__ import annotations

import json
import pickle
import random
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from snaprt.errors import AlreadyAnswered, Damaged, Fenced, RunExists, StoreError, UnknownRun, WrongKey
from snaprt.records import Keyring
from snaprt.records import sections as module
from snaprt.store import Log
from snaprt.store.failures import Transient
from snaprt.store.log import PAUSES
from tests.store.held import KEYRING, Held, store
from tests.store.places import memory_url, opened

sections = st.fixed_dictionaries(
    {},
    optional={
        "state": st.lists(
            st.tuples(st.sampled_from([0, 10, 3000, 9000, 70_000]), st.integers(0, 3)).map(
                lambda drawn: random.Random(drawn[1]).randbytes(drawn[0])
            ),
            max_size=4,
        ),
        "summary": st.dictionaries(st.text(max_size=5), st.integers(), max_size=3).map(
            lambda found: [json.dumps(found).encode()]
        ),
        "values": st.lists(st.binary(max_size=200), max_size=2),
    },
)


def cut(stream: bytes) -> list[bytes]:
    """A stream in parts as a dump gives it: short ones, for only leaves are long."""
    return [stream[at : at + 60_000] for at in range(0, len(stream), 60_000)]


def inside(log: Log, slot: str) -> bytes:
    found = log.get_answer(slot)
    assert found is not None
    return found.data


def whole(parts: list[Any]) -> bytes:
    return b"".join(bytes(part) for part in parts)


def test_who_appends_for_long_keeps_few_heads_and_has_the_old_ones_all_the_same() -> None:
    held = Held()
    log = store(held).create("r")
    log.append("start", sections={"state": [b"keyframe" * 500]}, look=99.0)
    for number in range(2, 1001):
        log.append("result", detail={"n": number}, sections={"state": [b"keyframe" * 500 + b"%d" % number]})
    assert len(log._heads) < 300
    assert log.read(7).header.detail == {"n": 7}
    assert whole(log.read(1000).sections["state"]) == b"keyframe" * 500 + b"1000"
    assert [header.number for header in log.headers()] == list(range(1, 1001))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(sections, st.booleans()), min_size=1, max_size=8))
def test_a_log_gives_back_what_was_appended_whoever_reads_it(
    turns: list[tuple[dict[str, Any], bool]],
) -> None:
    held = Held()
    log = store(held).create("r")
    for number, (given_sections, reopen) in enumerate(turns, 1):
        stored = log.append("result", detail={"n": number}, sections=given_sections, epoch=number // 3)
        assert (stored.header.number, stored.header.epoch) == (number, number // 3)
        if reopen:  # another process goes on
            log = store(held).log("r")
    for reader in (log, store(held).log("r")):
        assert reader.newest == len(turns)
        for number, (given_sections, _) in enumerate(turns, 1):
            record = reader.read(number)
            assert {name: whole(parts) for name, parts in record.sections.items()} == {
                name: whole(parts) for name, parts in given_sections.items()
            }
        with_state = [n for n, (given_sections, _) in enumerate(turns, 1) if "state" in given_sections]
        newest = reader.newest_state()
        assert (newest.header.number if newest else None) == (with_state[-1] if with_state else None)
        summaries = [
            given_sections["summary"][0] for given_sections, _ in turns if "summary" in given_sections
        ]
        assert reader.summary() == (json.loads(summaries[-1]) if summaries else {})
        assert [header.detail["n"] for header in reader.headers()] == list(range(1, len(turns) + 1))
        assert reader.verify().whole


def test_only_the_sections_asked_for_are_read() -> None:
    held = Held()
    log = store(held).create("r")
    log.append("start", sections={"state": [bytes(5_000_000)], "values": [b"v"]})
    name = next(name for name in held.data if "blobs" in name)
    del held.data[name]
    assert whole(store(held).log("r").read(1, ("values",)).sections["values"]) == b"v"
    with pytest.raises(Damaged, match=r"Blob .* is missing"):
        store(held).log("r").read(1)


def test_the_loser_of_a_record_is_fenced_and_stays_so() -> None:
    held = Held()
    store(held).create("r").append("start")
    first, second = store(held).log("r"), store(held).log("r")
    first.append("claim")
    for _ in range(2):
        with pytest.raises(Fenced, match=r"Another process has written record 2 of run 'r'"):
            second.append("claim")
    assert second.newest == 1
    assert second.refresh() == 2
    assert second.append("claim").header.number == 3


def test_a_run_is_made_once() -> None:
    held = Held()
    one, two = store(held).create("r"), store(held).create("r")
    one.append("start")
    with pytest.raises(RunExists, match="already a run 'r'"):
        two.append("start")
    with pytest.raises(RunExists, match="already a run 'r'"):
        store(held).create("r")


def test_an_unknown_run_is_named_with_those_that_are_like_it() -> None:
    held = Held()
    with pytest.raises(UnknownRun, match=r"no run 'suport-1'.*no runs at all; is that the right store"):
        store(held).log("suport-1")
    store(held).create("support-1").append("start")
    with pytest.raises(UnknownRun, match=r"Did you mean 'support-1'"):
        store(held).log("suport-1")


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../a", "-a", ".a", "a b", "a\n", "ä", "a" * 129, "a.", "a\\b", "a\0"]
)
def test_an_id_that_could_leave_its_folder_is_refused(name: str) -> None:
    held = Held()
    for action in (store(held).create, store(held).log, store(held).removed):
        with pytest.raises(StoreError, match="can't be a run id"):
            action(name)
    log = store(held).create("r")
    with pytest.raises(StoreError, match="can't be a suspension id"):
        log.put_answer(name, b"")
    with pytest.raises(StoreError, match="can't be a suspension id"):
        log.get_answer(name)


# --- answers that get lost ------------------------------------------------------------------------


class Lost:
    """Raises Transient for the first `times` requests that create a record."""

    def __init__(self, times: int):
        self.times = times

    def __call__(self, name: str) -> None:
        if "/log/" in name and self.times:
            self.times -= 1
            raise Transient("no usable answer came")


def patient(held: Held, run: str = "r") -> tuple[Log, list[float]]:
    """A log that waits by writing down how long it would."""
    waited: list[float] = []
    log = Log(held, run, KEYRING, {}, lambda: None, waited.append)
    if f"runs/{run}/log/000000000001" in held.data:
        log.refresh()
    return log, waited


def test_a_record_that_arrived_though_its_answer_was_lost_is_not_a_race_lost() -> None:
    held = Held()
    log, waited = patient(held)
    log.append("start")
    held.after = Lost(1)
    assert log.append("result", detail={"x": 1}).header.number == 2
    assert waited == [PAUSES[0]]
    assert log.append("result").header.number == 3
    assert [header.detail for header in log.headers()] == [{}, {"x": 1}, {}]


def test_a_request_that_never_arrived_is_made_again_with_the_same_bytes() -> None:
    held = Held()
    log, waited = patient(held)
    held.before = Lost(2)
    assert log.append("start").header.number == 1
    assert waited == list(PAUSES[:2])


def test_another_writer_between_a_lost_answer_and_the_next_try_fences() -> None:
    held = Held()
    log, _ = patient(held)
    log.append("start")
    rival, _ = patient(held)
    lost = Lost(1)

    def before(name: str) -> None:
        if "/log/" in name and lost.times:
            lost.times = 0
            rival.append("claim")
            raise Transient("no usable answer came")

    held.before = before
    with pytest.raises(Fenced):
        log.append("result")


def test_a_record_that_arrives_after_all_tries_failed_is_taken_in_by_the_next_append() -> None:
    class Slow(Held):
        """Keeps what it is sent, answers nothing, and delivers later, as a proxy may."""

        kept: tuple[str, bytes] | None = None
        stuck = False

        def create(self, name: str, data: bytes) -> None:
            if self.stuck:
                self.kept = (name, data)
                raise Transient("no usable answer came")
            super().create(name, data)

    held = Slow()
    log, waited = patient(held)
    log.append("start")
    held.stuck = True
    with pytest.raises(Transient):
        log.append("result", detail={"late": True}, sections={"state": [b"x" * 9000]})
    assert waited == list(PAUSES)
    assert log.newest == 1, "nobody knows yet"
    held.stuck = False
    assert held.kept is not None
    held.create(*held.kept)
    assert log.append("finish").header.number == 3
    assert [header.detail for header in log.headers()] == [{}, {"late": True}, {}]
    assert log.verify().whole


def test_an_append_that_failed_for_good_leaves_the_log_usable() -> None:
    held = Held()
    log, waited = patient(held)
    log.append("start")

    def full(name: str) -> None:
        raise StoreError("no space is left")

    held.before = full
    with pytest.raises(StoreError, match="no space"):
        log.append("result")
    assert waited == [], "what can't help isn't tried again"
    held.before = lambda name: None
    assert log.append("result").header.number == 2


# --- answers of people ----------------------------------------------------------------------------


def test_the_first_answer_wins_and_later_ones_are_told() -> None:
    held = Held()
    log = store(held).create("r")
    log.append("start")
    assert log.get_answer("ask-1") is None
    log.put_answer("ask-1", b"yes")
    with pytest.raises(AlreadyAnswered, match="'ask-1' of run 'r'"):
        log.put_answer("ask-1", b"no")
    with pytest.raises(AlreadyAnswered):
        log.put_answer("ask-1", b"yes")
    assert inside(log, "ask-1") == b"yes"
    assert log.answers() == ["ask-1"]


def test_an_answer_whose_acknowledgement_was_lost_counts_as_given() -> None:
    held = Held()
    log, _ = patient(held)
    log.append("start")
    lost = [Transient("no usable answer came")]

    def after(name: str) -> None:
        if "/inbox/" in name and lost:
            raise lost.pop()

    held.after = after
    log.put_answer("ask-1", b"yes")
    assert inside(log, "ask-1") == b"yes"


def test_an_answer_to_another_suspension_or_run_is_not_one_to_this() -> None:
    held = Held()
    for run in ("r", "q"):
        log = store(held).create(run)
        log.append("start")
        log.put_answer("ask-1", b"yes")
    held.data["runs/r/inbox/ask-2"] = held.data["runs/r/inbox/ask-1"]
    held.data["runs/r/inbox/ask-3"] = held.data["runs/q/inbox/ask-1"]
    for suspension in ("ask-2", "ask-3"):
        with pytest.raises(Damaged, match="moved or swapped"):
            store(held).log("r").get_answer(suspension)


# --- what it costs --------------------------------------------------------------------------------


def test_an_append_is_one_request_and_one_more_per_new_large_blob() -> None:
    held = Held()
    log = store(held).create("r")
    log.append("start", sections={"state": [b"a" * 9000]})
    held.asked.clear()
    log.append("result", sections={"state": [b"a" * 9000, b"b"], "summary": [b"{}"], "values": [b"v"]})
    assert held.asked == {"create": 1}
    held.asked.clear()
    small = [random.Random(seed).randbytes(70_000) for seed in range(5)]
    log.append("result", sections={"state": [b"a" * 9000, *small]})
    assert held.asked == {"create": 1}, "small ones lie in the record"
    held.asked.clear()
    log.append("result", sections={"state": [b"a" * 9000, *small, bytes(5_000_000)]})
    assert held.asked == {"list": 1, "put": 1, "create": 1}, "which blobs are there is asked once"
    held.asked.clear()
    log.append("result", sections={"state": [b"a" * 9000, bytes(5_000_000), b"x" * 5_000_000]})
    assert held.asked == {"put": 1, "create": 1}


def test_leaves_inside_of_one_record_are_read_in_one_request() -> None:
    held = Held()
    log = store(held).create("r")
    dice = random.Random(2)
    documents = [dice.randbytes(70_000) for _ in range(20)]
    log.append("start", sections={"state": documents[:15]})
    log.append("result", sections={"state": [*documents, b"end"]})
    reader = store(held).log("r")
    reader.headers()
    held.asked.clear()
    assert whole(reader.read(2).sections["state"]) == whole(documents) + b"end"
    assert held.asked["read"] <= 4, "the section, its base, and the leaves of two records"


def test_showing_a_run_takes_one_listing_and_one_read_however_long_it_is() -> None:
    held = Held()
    log = store(held).create("r")
    for number in range(300):
        log.append("result", sections={"state": [bytes(5000)], "summary": [b'{"n": %d}' % number]})
    held.asked.clear()
    assert store(held).log("r").summary() == {"n": 299}
    assert held.asked == {"list": 1, "read": 1}


def test_showing_a_run_with_a_long_plan_takes_two_reads_more_at_most() -> None:
    held = Held()
    log = store(held).create("r")
    dice = random.Random(1)
    steps = [dice.randbytes(20).hex() for _ in range(500)]
    for number in range(30):
        steps.append(dice.randbytes(20).hex())
        log.append("result", sections={"summary": [json.dumps({"n": number, "steps": steps}).encode()]})
    assert log.header().section("summary").codec == "delta"  # type: ignore[union-attr]  # it is there
    held.asked.clear()
    assert store(held).log("r").summary() == {"n": 29, "steps": steps}
    assert held.asked["list"] == 1
    assert held.asked["read"] <= 3, "the record, and up to two bases, each in one read"


def test_resuming_reads_the_state_its_bases_and_the_heads_since() -> None:
    held = Held()
    log = store(held).create("r")
    dice = random.Random(1)
    history = [dice.randbytes(40).hex() for _ in range(1000)]
    for number in range(20):
        history.append(dice.randbytes(40).hex())
        state = {"state": cut(pickle.dumps(history))} if number < 17 else {}
        log.append("result", sections={**state, "values": [b"v"]})
    held.asked.clear()
    reader = store(held).log("r")
    found = reader.newest_state()
    assert found is not None
    assert found.header.number == 17
    assert found.header.section("state").codec == "delta"  # type: ignore[union-attr]  # it is there
    assert held.asked["list"] == 1
    # Heads of 17 to 20, head and section of up to four bases, the section itself.
    assert held.asked["read"] <= 4 + 4 * 2 + 1
    bases = found.header.bases["state"]
    assert 2 <= len(bases) <= 4


def test_listing_runs_reads_one_head_each_and_shows_a_damaged_run_as_such() -> None:
    held = Held()
    for name in ("a", "b", "c"):
        store(held).create(name).append("start", sections={"summary": [b'{"run": "%s"}' % name.encode()]})
    held.data["runs/b/log/000000000001"] = b"foreign"
    held.asked.clear()
    found = {listed.run: listed for listed in store(held).listing()}
    assert list(found) == ["a", "b", "c"]
    assert found["a"].summary == {"run": "a"}
    assert isinstance(found["b"].error, Damaged)
    assert held.asked["read"] == 3


def test_two_hundred_turns_of_a_conversation_are_stored_in_a_fraction_of_their_full_states() -> None:
    held = Held()
    log = store(held).create("r")
    dice = random.Random(7)
    words = ["".join(dice.choices("abcdefghijklmnopqrstuvwxyz", k=dice.randint(2, 9))) for _ in range(3000)]
    history: list[dict[str, Any]] = []
    full = 0
    for turn in range(200):
        for role in ("user", "assistant"):
            history.append({"role": role, "content": " ".join(dice.choices(words, k=60)), "turn": turn})
        state = pickle.dumps(history)
        log.append("result", sections={"state": cut(state), "summary": [b'{"turn": %d}' % turn]})
        full += len(zstandard.compress(state))
    stored = sum(log.sizes().values())
    final = len(zstandard.compress(pickle.dumps(history)))
    keyframes = [n for n in range(1, 201) if log.header(n).section("state").base is None]  # type: ignore[union-attr]
    print(f"stored {stored}, full {full}, last {final}, keyframes {len(keyframes)}")
    assert stored < full / 12, "against each state in full"
    assert len(keyframes) < 15
    assert whole(store(held).log("r").read(200).sections["state"]) == state


def test_a_large_leaf_is_stored_once_however_many_states_hold_it() -> None:
    held = Held()
    log = store(held).create("r")
    small, large = random.Random(1).randbytes(1_000_000), random.Random(2).randbytes(5_000_000)
    for number in range(10):
        log.append("result", sections={"state": [b"head%d" % number, large, b"between", small]})
    for number in range(3):  # other processes, each with no more than the store to know it from
        store(held).log("r").append("result", sections={"state": [b"head%d" % number, small, large]})
    assert sum(log.sizes().values()) < 6_000_000 + 30_000
    assert held.asked["put"] == 1
    for number in range(11, 14):
        assert whole(store(held).log("r").read(number).sections["state"])[5:] == small + large


def test_a_leaf_of_a_record_that_was_never_written_is_stored_again() -> None:
    held = Held()
    log, _ = patient(held)
    log.append("start")
    leaf = random.Random(1).randbytes(100_000)

    def full(name: str) -> None:
        raise StoreError("no space is left")

    held.before = full
    with pytest.raises(StoreError, match="no space"):
        log.append("result", sections={"state": [leaf]})
    held.before = lambda name: None
    log.append("result")
    log.append("result", sections={"state": [leaf, b"end"]})
    assert whole(store(held).log("r").read(3).sections["state"]) == leaf + b"end"
    assert log.verify().whole


def test_a_record_never_grows_beyond_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "APART_FROM", 100_000)
    held = Held()
    log = store(held).create("r")
    pieces = [random.Random(seed).randbytes(60_000) for seed in range(5)]
    log.append("start", sections={"state": pieces, "summary": [b"{}"]})
    log.append("result", sections={"state": [*pieces, b"more"]})
    assert log.sizes()["log/000000000001"] < 2000
    for reader in (log, store(held).log("r")):
        assert whole(reader.read(1).sections["state"]) == whole(pieces)
        assert whole(reader.read(2).sections["state"]) == whole(pieces) + b"more"
        assert reader.verify().whole
    assert log.header(2).section("state").codec == "delta"  # type: ignore[union-attr]  # it is there


# --- keys -----------------------------------------------------------------------------------------


def test_a_key_is_rotated_without_rewriting_a_log() -> None:
    held = Held()
    old = Keyring.from_bytes(b"the-old-key-0123456789")
    both = Keyring.from_bytes(b"the-new-key-0123456789", b"the-old-key-0123456789")
    new = Keyring.from_bytes(b"the-new-key-0123456789")
    leaf = bytes(100_000)
    store(held, old).create("r").append("start", sections={"state": [leaf, b"a" * 9000]})
    store(held, both).log("r").append("result", sections={"state": [leaf, b"a" * 9000, b"more"]})
    assert whole(store(held, both).log("r").read(2).sections["state"]) == leaf + b"a" * 9000 + b"more"
    assert store(held, both).log("r").verify().whole
    reader = store(held, new).log("r")
    with pytest.raises(
        WrongKey, match=rf"Record 1 of run 'r' is signed with key {old.signer.id}.*{new.signer.id}"
    ):
        reader.headers()


def test_a_log_through_fsspec_holds_what_one_in_a_dictionary_does() -> None:
    url = memory_url()
    log = opened(url).create("r")
    leaf = random.Random(1).randbytes(9_000_000)
    log.append("start", sections={"state": [b"a" * 9000, leaf], "summary": [b'{"a": 1}']})
    log.append("result", sections={"state": [b"a" * 9001, leaf]})
    reader = opened(url).log("r")
    assert whole(reader.read(2).sections["state"]) == b"a" * 9001 + leaf
    assert reader.summary() == {"a": 1}
    assert reader.verify().whole
    assert reader.url(2) == f"{url}/runs/r/log/000000000002"
    assert opened(url).runs() == ["r"]
