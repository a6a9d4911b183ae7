"""Sections and blobs: what goes in comes out, and as small as is promised."""

from __future__ import annotations

import hashlib
import io
import random

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from snaprt.errors import Damaged
from snaprt.records import Section, blobs, leaves
from snaprt.records import sections as module
from snaprt.records.blobs import SMALLEST
from snaprt.records.deltas import SEGMENT, plan
from snaprt.records.leaves import Leaves, Place
from snaprt.records.sections import Base, Packed, Reference, join, pack, references, unpack_raw
from tests.store.held import KEYRING

Buffer = bytes | bytearray | memoryview


def leaves_of(number: int, known: dict[str, Place] | None = None) -> Leaves:
    """Leaves of a record; `known` lie somewhere already."""
    return Leaves(number, lambda name, alone: (known or {}).get(name), KEYRING)


def opened(packed: Packed, held: Leaves, base: bytes | None = None) -> bytes:
    """The bytes of a packed section, through its JSON entry."""
    section = Section.from_json(packed.section.as_json())
    assert section == packed.section
    raw = unpack_raw(section, memoryview(b"".join(packed.stored)), base, "It")
    found, stream = references(section, raw, "It")
    inside = b"".join(held.inside)
    assert len(inside) == held.size

    def content(reference: Reference) -> Buffer:
        place = reference.place
        if not place.stored:
            return held.objects[reference.name]
        stored = io.BytesIO(inside[place.at : place.at + place.stored])
        return blobs.decode(stored.read, reference.name, reference.length, KEYRING, "It")

    return b"".join(join(found, stream, content))


def noise(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size)


# Parts around the size at which they become blobs, empty ones and equal ones, of every kind of buffer.
parts = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 50, 4000, SMALLEST - 1, SMALLEST, SMALLEST + 1]),
        st.integers(0, 3),
        st.sampled_from([bytes, bytearray, memoryview]),
    ).map(lambda drawn: drawn[2](noise(drawn[1], drawn[0]))),
    max_size=6,
)


@settings(max_examples=60, deadline=None)
@given(parts)
def test_a_section_in_full_comes_back_byte_for_byte(given_parts: list[Buffer]) -> None:
    held = leaves_of(1)
    packed = pack("state", given_parts, held)
    assert opened(packed, held) == b"".join(given_parts)
    large = {blobs.name_of(part) for part in given_parts if len(part) >= SMALLEST}
    assert set(held.places) == large, "each large leaf has one place, equal ones the same"


@settings(max_examples=60, deadline=None)
@given(parts, parts, st.binary(max_size=300))
def test_a_delta_comes_back_byte_for_byte(before: list[Buffer], after: list[Buffer], new: bytes) -> None:
    common = noise(9, 20_000)
    held = leaves_of(1)
    base = pack("state", [common, *before], held)
    later = leaves_of(2, held.places)
    packed = pack("state", [common, *before, *after, new], later, base.bases)
    later.inside[:0], later.size = held.inside, held.size + later.size  # as if both lay in one record
    for name, place in later.places.items():
        assert place.record == (1 if name in held.places else 2), "a leaf that is there isn't stored again"
    if not set(later.places) - set(held.places):
        assert opened(packed, later, base.bases[0].raw) == b"".join([common, *before, *after, new])


# Edits of bytes: what is put in, taken out and exchanged, and where.
edits = st.lists(
    st.tuples(
        st.floats(0, 1), st.sampled_from([0, 1, 9, 300, 40_000]), st.sampled_from([0, 1, 9, 300, 40_000])
    ),
    max_size=6,
)


@settings(max_examples=80, deadline=None)
@given(st.sampled_from([0, 7, 5000, 120_000, 700_000]), edits, st.booleans())
def test_whatever_was_edited_a_delta_gives_the_new_bytes(
    size: int, changes: list[tuple[float, int, int]], repeats: bool
) -> None:
    old = (noise(1, 50) * (size // 50 + 1))[:size] if repeats else noise(1, size)
    new = bytearray(old)
    for number, (where, out, put_in) in enumerate(changes):
        at = int(where * len(new))
        new[at : at + out] = noise(number + 5, put_in)
    pieces = list(plan(bytes(new), old))
    assert [piece.at for piece in pieces] == [0, *(piece.at + piece.size for piece in pieces)][:-1]
    assert sum(piece.size for piece in pieces) == len(new)
    for piece in pieces:
        if piece.copy:
            assert new[piece.at : piece.at + piece.size] == old[piece.start : piece.start + piece.size]
    base = Base(1, old, size, True)
    stored = module._against(bytes(new), base.raw)  # what pack stores if it pays
    section = module._packed("state", 2, len(new), 0, 1, stored, (base,)).section
    assert Section.from_json(section.as_json()) == section
    data = memoryview(b"".join(data for _, data in stored))
    assert unpack_raw(section, data, old, "It") == new


def test_a_section_of_several_segments_and_its_delta_come_back() -> None:
    text = random.Random(3).choices(
        [noise(seed, 30) for seed in range(2000)], k=(2 * SEGMENT + 5_000_000) // 30
    )
    whole = b"".join(text)
    pieces = [whole[at : at + 60_000] for at in range(0, len(whole), 60_000)]
    held = leaves_of(1)
    base = pack("state", pieces, held)
    assert len(base.section.segments) == 3
    assert opened(base, held) == whole
    # Half a megabyte goes in near the start: everything after it has moved.
    moved = [*pieces[:5], *(noise(seed, 50_000) for seed in range(10)), *pieces[5:]]
    packed = pack("state", moved, held, base.bases)
    assert packed.section.codec == "delta"
    assert packed.section.size < 510_000, "little more than what is new"
    assert [segment.stored > 0 for segment in packed.section.segments] == [False, True, False]
    assert opened(packed, held, base.bases[0].raw) == b"".join(moved)


def test_bytes_that_changed_all_over_are_left_to_zstd_with_a_window_of_the_base() -> None:
    dice = random.Random(4)
    lines = [dice.randbytes(400) for _ in range(25_000)]
    base = pack(
        "state", [b"".join(lines)[at : at + 60_000] for at in range(0, 10_000_000, 60_000)], leaves_of(1)
    )
    changed = bytearray(b"".join(lines))
    for at in range(0, len(changed), 1000):
        changed[at] ^= 1
    held = leaves_of(2)
    cut = [bytes(changed[at : at + 60_000]) for at in range(0, len(changed), 60_000)]
    packed = pack("state", cut, held, base.bases)
    assert packed.section.codec == "delta"
    assert packed.section.size < 1_000_000
    assert opened(packed, held, base.bases[0].raw) == changed


def test_a_section_too_large_for_deltas_is_never_joined_and_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "DELTA_UPTO", 1_000_000)
    pieces = [noise(seed, 60_000) for seed in range(200)]
    held = leaves_of(1)
    packed = pack("state", pieces, held)
    assert packed.bases == ()
    assert len(packed.section.segments) == 2
    assert opened(packed, held) == b"".join(pieces)


@pytest.mark.parametrize("size", [0, 1, 3, 8, 100])
def test_a_tiny_section_comes_back(size: int) -> None:
    held = leaves_of(1)
    assert opened(pack("state", [noise(1, size)], held), held) == noise(1, size)


def test_a_summary_is_never_taken_apart() -> None:
    held = leaves_of(1)
    packed = pack("summary", [b"x" * 200_000], held)
    assert not held.places
    assert opened(packed, held) == b"x" * 200_000


def test_small_leaves_lie_in_their_record_and_large_or_too_many_are_objects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leaves, "INSIDE_MOST", leaves.INSIDE_UPTO + 200_000)
    small, most, large = noise(1, SMALLEST), noise(2, leaves.INSIDE_UPTO), noise(3, leaves.INSIDE_UPTO + 1)
    late = [noise(seed, 100_000) for seed in (4, 5, 6)]
    held = leaves_of(7)
    packed = pack("state", [small, b"between", large, most, *late], held)
    assert set(held.objects) == {blobs.name_of(part) for part in (large, *late[1:])}
    assert {place.record for place in held.places.values()} == {0, 7}
    assert opened(packed, held) == b"".join([small, b"between", large, most, *late])


def test_a_new_keyframe_is_taken_when_a_delta_is_more_than_half_of_the_whole() -> None:
    keyframe = Base(1, bytes(100_000), size=50_000, full=True)
    assert keyframe.pays(100_000, 25_000)
    assert not keyframe.pays(100_000, 25_001)
    assert keyframe.pays(200_000, 49_999), "a section that doubled may have a delta twice as large"


def test_a_new_keyframe_is_taken_when_the_deltas_together_cost_as_much_as_one() -> None:
    assert Base(1, bytes(100_000), size=50_000, full=True, spent=40_000).pays(100_000, 10_000)
    assert not Base(1, bytes(100_000), size=50_000, full=True, spent=40_001).pays(100_000, 10_000)


def test_a_base_is_let_go_when_the_deltas_against_it_cost_as_much_as_it_did() -> None:
    assert Base(2, bytes(100_000), size=3000, full=False, spent=2000).pays(100_000, 1000)
    assert not Base(2, bytes(100_000), size=3000, full=False, spent=2000).pays(100_000, 1001)


def test_bases_are_stacked_up_to_their_depth_and_let_go_from_the_top() -> None:
    dice = random.Random(6)
    stream = dice.randbytes(60_000)
    bases: tuple[Base, ...] = ()
    depths = []
    for number in range(1, 60):
        stream += dice.randbytes(1000)
        cut = [stream[at : at + 50_000] for at in range(0, len(stream), 50_000)]
        held = leaves_of(number)
        packed = pack("state", cut, held, bases)
        below = {base.number: base.raw for base in bases}
        assert packed.section.base in (None, *below)
        base = None if packed.section.base is None else below[packed.section.base]
        assert opened(packed, held, base) == stream
        bases = packed.bases
        assert [base.full for base in bases] == [True] + [False] * (len(bases) - 1)
        assert [base.number for base in bases] == sorted({base.number for base in bases})
        depths.append(len(bases))
    assert max(depths) == 4
    assert 2 in depths[4:], "a base that cost enough goes, and the new delta stands on the one below"


def test_bases_together_are_bounded_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DELTA_UPTO", 100_000)
    stream = noise(1, 45_000)
    bases: tuple[Base, ...] = ()
    for number in range(1, 6):
        stream += noise(number, 100)
        bases = pack("state", [stream], leaves_of(number), bases).bases
        assert sum(len(base.raw) for base in bases) <= 100_000
    assert len(bases) == 2


def test_only_a_section_that_is_tiny_in_full_is_no_delta() -> None:
    for size, codec in ((5000, "delta"), (450, "zstd")):
        base = pack("state", [noise(1, size)], leaves_of(1))
        assert pack("state", [noise(1, size), b"more"], leaves_of(2), base.bases).section.codec == codec


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 3),
    st.sampled_from([0, 1, 65536, blobs.CHUNK - 1, blobs.CHUNK, blobs.CHUNK + 1, 3 * blobs.CHUNK]),
    st.booleans(),
)
def test_a_blob_comes_back_byte_for_byte(seed: int, size: int, repeats: bool) -> None:
    content = (noise(seed, 100) * (size // 100 + 1))[:size] if repeats else noise(seed, size)
    name = blobs.name_of(content)
    stored = b"".join(blobs.encode(content, name, KEYRING))
    assert blobs.decode(io.BytesIO(stored).read, name, size, KEYRING, "It") == content
    if repeats and size > 1000:
        assert len(stored) < size / 10
    assert len(stored) < size + 300 + 40 * (size // blobs.CHUNK + 1)


def test_a_typed_array_becomes_a_blob_of_its_bytes() -> None:
    array = memoryview(noise(1, 80_000)).cast("d")
    held = leaves_of(1)
    packed = pack("state", [array], held)
    assert opened(packed, held) == array.tobytes()
    assert list(held.places) == [blobs.name_of(array.tobytes())]


@pytest.mark.parametrize(
    "change",
    [
        {"codec": "plain"},
        {"codec": "delta"},
        {"base": 3},
        {"segments": []},
        {"segments": [[3, -1]]},
        {"segments": [3]},
        {"segments": [[3]]},
        {"segments": [[3, 12, 0, 0]]},
        {"segments": [[3, 0, 0]]},
        {"segments": [[3, 12, 0, 9]]},
        {"segments": [[3, 12], [0, 1]]},
        {"segments": [[3.0, 12]]},
        {"raw": -5},
        {"references": 10**9},
        {"raw": 10**12},
        {"raw": 9 << 20, "segments": [[9 << 20, 12]]},
        {"codec": "delta", "base": 1, "segments": [[3, 12, 5, 9]]},
        {"codec": "delta", "base": 1, "segments": [[3, 0, -1]]},
        {"codec": "delta", "base": 1, "segments": [[3, 0, 1, 12]]},
        {"codec": "delta", "base": 1, "segments": [[3, 0]]},
        {"codec": "delta", "base": 1, "segments": [[3, 12, 0, 9, 1]]},
    ],
)
def test_an_entry_that_contradicts_itself_is_refused(change: dict[str, object]) -> None:
    entry = pack("state", [b"abc"], leaves_of(1)).section.as_json() | change
    with pytest.raises((ValueError, TypeError), match=r".+"):
        Section.from_json(entry)


@pytest.mark.parametrize("segment", [[3, 0, 98], [3, 0, 1 << 60], [3, 12, 90, 101]])
def test_a_segment_that_reaches_beyond_its_base_is_refused(segment: list[int]) -> None:
    stored = zstandard.compress(b"abc")
    entry = {
        "name": "state",
        "codec": "delta",
        "raw": 3,
        "references": 0,
        "segments": [[each if at != 1 or not each else len(stored) for at, each in enumerate(segment)]],
        "sha256": hashlib.sha256(stored if segment[1] else b"").hexdigest(),
        "base": 1,
    }
    data = memoryview(stored if segment[1] else b"")
    with pytest.raises(Damaged, match="base"):
        unpack_raw(Section.from_json(entry), data, bytes(100), "It")


def test_a_reference_outside_of_its_stream_is_refused() -> None:
    packed = pack("state", [b"abc", noise(1, SMALLEST), b"def"], leaves_of(1))
    broken = (99).to_bytes(8, "little") + packed.bases[0].raw[8:]
    with pytest.raises(Damaged, match="outside"):
        references(packed.section, broken, "It")
