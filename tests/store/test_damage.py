"""Ten thousand seeded mutations of a log: each is refused by a clear error, and nothing of it is used.

The states here are real pickles. What an attacker puts in is a pickle with a side effect, so a reader that
let it through would show: `RAN` would hold something.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import random
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
import zstandard

from snaprt.errors import Damaged, SnaprtError, UnknownRun, WrongKey
from snaprt.records import Keyring, blobs, deltas, leaves
from snaprt.records import sections as module
from snaprt.records.envelope import ANSWER, BLOB, PREFIX, RECORD, head_length, seal, unseal
from snaprt.records.keys import MAC_BYTES, Key
from snaprt.records.sections import pack, references, unpack_raw
from snaprt.store import Problem
from tests.store.held import KEYRING, Held, store

RAN: list[str] = []
STRANGER = Keyring.from_bytes(b"a-key-of-somebody-else-0123456789")
# Somebody who names our key without having it.
LIAR = Keyring((Key(KEYRING.signer.id, STRANGER.signer.secret),))
MUTATIONS = int(os.environ.get("SNAPRT_TEST_MUTATIONS", "10000"))


class Payload:
    """Unpickling it is what must never happen."""

    def __reduce__(self) -> tuple[object, ...]:
        return (RAN.append, ("code ran",))


EVIL = pickle.dumps(Payload())


def build() -> tuple[dict[str, bytes], dict[int, bytes], bytes]:
    """A log with keyframes, deltas on deltas, copies, blobs in records and alone, values and an answer: its
    objects, the states by record, and the answer."""
    with mock.patch.object(leaves, "INSIDE_UPTO", 80_000), mock.patch.object(deltas, "_SHORTEST_COPY", 4000):
        return built()


def built() -> tuple[dict[str, bytes], dict[int, bytes], bytes]:
    held = Held()
    log = store(held).create("run-1")
    noise = random.Random(5)
    history = [{"role": "user", "content": noise.randbytes(40).hex(), "turn": turn} for turn in range(150)]
    large = [noise.randbytes(70_000), noise.randbytes(90_000)]
    states: dict[int, bytes] = {}
    for number in range(1, 9):
        history.append({"role": "tool", "content": noise.randbytes(40).hex(), "turn": number})
        sections: dict[str, list[bytes]] = {"values": [pickle.dumps(number)]}
        if number != 4:
            small = pickle.dumps(history)
            sections["state"] = [small, large[number % 2], b"end"]
            sections["summary"] = [b'{"turn":%d}' % number]
            states[number] = b"".join(sections["state"])
        log.append("start" if number == 1 else "result", detail={"n": number}, sections=sections)
    entries = [log.header(n).section("state") for n in states]
    assert {entry.codec for entry in entries if entry} == {"zstd", "delta"}
    assert any(not segment.stored for entry in entries if entry for segment in entry.segments), "a copy"
    assert max(len(log.header(n).bases["state"]) for n in states) > 2, "a delta against a delta"
    assert sorted(log.header(n).leaves > 0 for n in states) == [False] * 6 + [True], "one in its record"
    assert len([name for name in held.data if "/blobs/" in name]) == 1, "and one alone"
    answer = pickle.dumps({"approved": True})
    log.put_answer("ask-1", answer)
    other = store(held).create("run-2")
    for number in range(1, 9):
        other.append("start" if number == 1 else "result", sections={"state": [pickle.dumps(number)]})
    other.put_answer("ask-1", answer)
    return dict(held.data), states, answer


def resigned(data: bytes, ring: Keyring) -> bytes:
    """The object with its head signed anew by another ring."""
    end = head_length(data, "object")
    kind = PREFIX.unpack_from(data)[2]
    header, _ = unseal(KEYRING, kind, data, "object")
    return seal(ring, kind, header) + data[end:]


def forged(data: bytes, ring: Keyring) -> bytes:
    """An object of the same kind, made by an attacker: its body is a pickle with a side effect."""
    kind = PREFIX.unpack_from(data)[2]
    header, _ = unseal(KEYRING, kind, data, "object")
    if kind == RECORD:
        header["detail"] = {"evil": True}
    return seal(ring, kind, header) + EVIL


def mutate(data: dict[str, bytes], dice: random.Random) -> tuple[str, set[str]]:
    """Damages a store in place; gives what was done and the objects of run-1 that aren't what they were."""
    ours = sorted(name for name in data if name.startswith("runs/run-1/"))
    records = [name for name in ours if "/log/" in name]
    name = dice.choice(ours)
    how = dice.choice(
        [
            "truncate",
            "flip",
            "flip",
            "flip",
            "swap",
            "reorder",
            "stranger",
            "liar",
            "forge",
            "foreign",
            "grow",
            "other",
        ]
    )
    if how == "truncate":
        data[name] = data[name][: dice.randrange(len(data[name]))]
    elif how == "flip":
        changed = bytearray(data[name])
        # Heads are a small part of large objects, and where most can go wrong: hit them as often as the rest.
        end = len(changed) if dice.random() < 0.5 else min(len(changed), head_length(changed, name))
        changed[dice.randrange(end)] ^= 1 << dice.randrange(8)
        data[name] = bytes(changed)
    elif how == "swap":
        second = dice.choice([other for other in ours if data[other] != data[name]])
        data[name], data[second] = data[second], data[name]
        return how, {name, second}
    elif how == "reorder":
        low = dice.randrange(len(records) - 1)
        high = dice.randrange(low + 1, len(records))
        moved = [data[record] for record in records[low : high + 1]]
        for record, old in zip(records[low : high + 1], moved[1:] + moved[:1], strict=True):
            data[record] = old
        return how, set(records[low : high + 1])
    elif how == "stranger":
        data[name] = resigned(data[name], STRANGER)
    elif how == "liar":
        data[name] = resigned(data[name], LIAR)
    elif how == "forge":
        data[name] = forged(data[name], dice.choice([STRANGER, LIAR]))
    elif how == "foreign":
        data[name] = dice.choice(
            [EVIL, b"", dice.randbytes(dice.randrange(1, 3000)), b"\x89SNAPRT\n" + dice.randbytes(900)]
        )
    elif how == "grow":
        data[name] += EVIL
    else:
        if "/blobs/" in name:  # run-2 has none; another blob of this run stands for it
            name = dice.choice(records)
        data[name] = data[name.replace("run-1", "run-2")]
    return how, {name}


def use(
    data: dict[str, bytes], states: dict[int, bytes], answer: bytes, orders: random.Random
) -> list[SnaprtError]:
    """What a reader does, in any order, going on after each refusal. Whatever is given must be what was
    written."""
    held = Held(data)
    errors: list[SnaprtError] = []

    def attempt(action: Callable[[], None]) -> None:
        try:
            action()
        except (Damaged, WrongKey) as error:
            errors.append(error)

    try:
        log = store(held).log("run-1")
    except (Damaged, WrongKey) as error:
        return [error]

    def read(number: int) -> None:
        record = log.read(number)
        assert record.header.number == number
        if number in states:
            assert b"".join(record.sections["state"]) == states[number]
            pickle.loads(record.sections["state"][0])
        assert pickle.loads(b"".join(record.sections["values"])) == number

    def newest() -> None:
        record = log.newest_state()
        assert record is not None
        assert b"".join(record.sections["state"]) == states[record.header.number]

    def summary() -> None:
        assert log.summary() == {"turn": max(states)}

    def headers() -> None:
        assert [header.detail for header in log.headers()] == [{"n": n} for n in range(1, 9)]

    def inbox() -> None:
        found = log.get_answer("ask-1")
        assert found is not None
        assert pickle.loads(found.data) == pickle.loads(answer)

    actions = [newest, summary, headers, inbox, *(lambda n=n: read(n) for n in range(1, 9))]
    orders.shuffle(actions)
    for action in actions:
        attempt(action)
    return errors


@pytest.mark.slow
@pytest.mark.timeout(1200)  # 25 s alone, minutes beside others
def test_each_of_ten_thousand_mutations_is_refused_and_never_half_used() -> None:
    objects, states, answer = build()
    assert not use(dict(objects), states, answer, random.Random(0)), "the undamaged log is read in full"
    seen: set[tuple[str, str]] = set()
    for seed in range(MUTATIONS):
        dice = random.Random(seed)
        data = dict(objects)
        how, hit = mutate(data, dice)
        assert any(data[name] != objects[name] for name in hit)
        errors = use(data, states, answer, dice)
        assert errors, f"seed {seed}: {how} of {hit} went unnoticed"
        for error in errors:
            text = str(error)
            assert "run-1" in text, f"seed {seed}: {text}"
            assert "\n" not in text
            seen.add((how, type(error).__name__))
        assert not RAN, f"seed {seed}: {how} of {hit} ran code"
    if MUTATIONS >= 1000:
        assert {
            ("stranger", "WrongKey"),
            ("liar", "Damaged"),
            ("reorder", "Damaged"),
            ("flip", "Damaged"),
        } <= seen


def test_verify_names_exactly_the_objects_that_were_changed() -> None:
    objects, _, _ = build()
    log = store(Held(dict(objects))).log("run-1")
    assert log.verify().whole
    assert (log.verify().records, log.verify().blobs, log.verify().answers) == (8, 2, 1)
    for seed in range(min(MUTATIONS, 600)):
        data = dict(objects)
        how, hit = mutate(data, random.Random(seed))
        found = {f"runs/run-1/{problem.object}" for problem in store_check(data)}
        assert hit - {name for name in hit if data[name] == objects[name]} <= found, f"seed {seed}: {how}"
    assert not RAN


def store_check(data: dict[str, bytes]) -> tuple[Problem, ...]:
    return store(Held(data)).verify("run-1").problems


def test_verify_lists_every_problem_and_not_only_the_first() -> None:
    objects, _, _ = build()
    data = dict(objects)
    place = "runs/run-1/log/{:012d}".format
    del data[place(2)]
    data[place(3)] = data[place(3)][:-1]
    data[place(5)] = resigned(data[place(5)], STRANGER)
    data[place(6)], data[place(7)] = data[place(7)], data[place(6)]
    blob = next(name for name in data if "run-1/blobs" in name)
    data[blob] = data[blob][:-40]
    data["runs/run-1/inbox/ask-1"] = EVIL
    texts: dict[str, str] = {}
    for problem in store_check(data):
        texts[problem.object] = texts.get(problem.object, "") + problem.text
    assert "missing" in texts["log/000000000002"]
    assert "cut short" in texts["log/000000000003"]
    assert STRANGER.signer.id in texts["log/000000000005"]
    assert "swapped" in texts["log/000000000006"]
    assert "swapped" in texts["log/000000000007"]
    assert "cut short" in texts[blob.removeprefix("runs/run-1/")]
    assert "isn't an object of snaprt" in texts["inbox/ask-1"]
    assert not RAN


def test_a_record_that_was_replaced_by_another_of_its_number_breaks_the_chain() -> None:
    held = Held()
    log = store(held).create("run-1")
    for number in range(1, 5):
        log.append("start" if number == 1 else "result", detail={"n": number})
    twin = Held({name: data for name, data in held.data.items() if not name.endswith(("3", "4"))})
    other = store(twin).log("run-1")
    other.append("result", detail={"n": "another story"})
    held.data["runs/run-1/log/000000000003"] = twin.data["runs/run-1/log/000000000003"]
    reader = store(held).log("run-1")
    with pytest.raises(Damaged, match=r"Record 4 of run 'run-1' was written after another record"):
        reader.headers()
    reader = store(held).log("run-1")
    reader.read(4)
    with pytest.raises(Damaged, match="written after another"):
        reader.read(3)
    with pytest.raises(Damaged, match="written after another"):
        reader.read(3)


def test_a_forged_high_number_costs_no_memory_and_is_refused() -> None:
    held = Held()
    store(held).create("run-1").append("start")
    held.data["runs/run-1/log/999999999999"] = EVIL
    with pytest.raises(
        Damaged, match=r"records are missing from its log \(number 2, 3, 4, 5, 6 and others\)"
    ):
        store(held).log("run-1")
    assert len(store_check(held.data)) == 101


def test_a_record_that_vanishes_under_an_open_log_is_noticed() -> None:
    held = Held()
    log = store(held).create("run-1")
    log.append("start")
    log.append("result")
    del held.data["runs/run-1/log/000000000002"]
    with pytest.raises(Damaged, match="number 2"):
        log.refresh()


def test_no_stored_size_makes_a_reader_allocate_before_a_signature_proves_it() -> None:
    forged_head = PREFIX.pack(b"\x89SNAPRT\n", 1, RECORD, bytes.fromhex(KEYRING.signer.id), (1 << 32) - 1)
    held = Held({"runs/run-1/log/000000000001": forged_head + b"x" * 100})
    with pytest.raises(Damaged, match="claims a header of 4294967295 bytes"):
        store(held).log("run-1").headers()


@pytest.mark.parametrize("kind", [ANSWER, BLOB])
def test_a_signed_object_of_another_kind_is_no_record(kind: bytes) -> None:
    held = Held()
    store(held).create("run-1").append("start")
    name = "runs/run-1/log/000000000001"
    header, _ = unseal(KEYRING, RECORD, held.data[name], "x")
    held.data[name] = seal(KEYRING, kind, header)
    with pytest.raises(Damaged, match="another kind"):
        store(held).log("run-1").headers()


def test_a_bomb_that_is_signed_by_our_own_key_is_still_bounded_by_what_its_header_says() -> None:
    packed = pack("state", [b"a" * 1000], leaves.Leaves(1, lambda name, alone: None, KEYRING))
    bomb = zstandard.compress(bytes(50_000_000))
    segments = (deltas.Segment(1000, len(bomb)),)
    lying = replace(packed.section, segments=segments, sha256=hashlib.sha256(bomb).hexdigest())
    with pytest.raises(Damaged, match="another length"):
        unpack_raw(lying, memoryview(bomb), None, "Record 1 of run 'x'")


def test_more_bases_than_a_reader_bargained_for_are_refused() -> None:
    held = Held()
    stream = random.Random(1).randbytes(9000)
    with mock.patch.dict(module.DEPTHS, state=9), mock.patch.object(module, "_LEAST_SPENT", 10**6):
        log = store(held).create("run-1")
        for number in range(7):
            log.append("start" if number == 0 else "result", sections={"state": [stream, b"n%d" % number]})
            if number < 6:
                assert len(log.header().bases["state"]) == number + 1
    reader = store(held).log("run-1")
    assert b"".join(reader.read(5).sections["state"]) == stream + b"n4", "four bases"
    with pytest.raises(Damaged, match=r"Record 5 of run 'run-1' is the top of more than 4 bases"):
        reader.read(6)


def signed_anew(held: Held, number: int, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes the header of a record as somebody with the key could."""
    name = f"runs/run-1/log/{number:012d}"
    header, end = unseal(KEYRING, RECORD, held.data[name], name)
    change(header)
    held.data[name] = seal(KEYRING, RECORD, header) + held.data[name][end:]


@pytest.mark.parametrize("base", [0, 2, 3, 10**9, -1])
def test_a_base_that_is_not_before_its_delta_is_refused_even_if_our_key_signed_it(base: int) -> None:
    held = Held()
    log = store(held).create("run-1")
    for number in range(2):
        log.append("result", sections={"state": [b"".join(b"%d," % n for n in range(2000)), b"%d" % number]})
    signed_anew(held, 2, lambda header: header["sections"][0].update(base=base))
    with pytest.raises(Damaged, match="which isn't before it"):
        store(held).log("run-1").read(2)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"record": 9}, "record 9, which isn't there"),
        ({"at": 1}, "hasn't the leaves"),
        ({"stored": 1 << 40}, "hasn't the leaves"),
        ({"stored": 40}, "cut short"),
        ({"length": 99_999}, "other content"),
    ],
)
def test_a_leaf_that_is_not_where_its_reference_says_is_refused(change: dict[str, int], said: str) -> None:
    held = Held()
    log = store(held).create("run-1")
    log.append("start", sections={"state": [random.Random(1).randbytes(100_000), b"end"]})
    record = log.read(1)
    section = record.header.section("state")
    assert section is not None
    # No signed record can say this, so the reader's own steps are gone through one by one.
    raw = log._raw(log._head(1), "state", log._stored(log._head(1), ("state",))["state"])
    found, _ = references(section, raw, "It")
    length = change.get("length", found[0].length)
    place = replace(found[0].place, **{name: value for name, value in change.items() if name != "length"})
    with pytest.raises(Damaged, match=said):
        log._several([replace(found[0], length=length, place=place)])


def test_chunks_of_a_blob_cannot_be_exchanged_within_it() -> None:
    content = random.Random(1).randbytes(2 * blobs.CHUNK)
    name = blobs.name_of(content)
    whole = b"".join(blobs.encode(content, name, KEYRING))
    size = blobs.CHUNK + 5 + MAC_BYTES
    head, first, second = whole[: -2 * size], whole[-2 * size : -size], whole[-size:]
    assert struct.unpack_from("<I", first)[0] == struct.unpack_from("<I", second)[0] == blobs.CHUNK
    assert blobs.decode(io.BytesIO(whole).read, name, len(content), KEYRING, "blob") == content
    with pytest.raises(Damaged, match="chunk 0"):
        blobs.decode(io.BytesIO(head + second + first).read, name, len(content), KEYRING, "blob")


def test_an_unknown_run_cannot_be_verified() -> None:
    with pytest.raises(UnknownRun, match="no run 'run-1'"):
        store(Held()).verify("run-1")
