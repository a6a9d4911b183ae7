"""Sections and blobs: what goes in comes out, and as small as is promised."""

from __future__ import annotations

import io
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snaprt.errors import Damaged
from snaprt.records import Section, blobs
from snaprt.records import sections as module
from snaprt.records.sections import SEGMENT, SMALLEST, Keyframe, Packed, join, pack, references, unpack_raw
from tests.store.held import KEYRING

Buffer = bytes | bytearray | memoryview


def opened(packed: Packed, keyframe: bytes | None = None) -> bytes:
    """The bytes of a packed section, through its JSON entry."""
    section = Section.from_json(packed.section.as_json())
    assert section == packed.section
    raw = unpack_raw(section, memoryview(b"".join(packed.stored)), keyframe, "It")
    found, stream = references(section, raw, "It")
    contents = dict(packed.blobs)
    return b"".join(join(found, stream, lambda reference: contents[reference.name]))


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
    packed = pack("state", given_parts)
    assert opened(packed) == b"".join(given_parts)
    assert all(len(content) >= SMALLEST for _, content in packed.blobs)
    assert len({name for name, _ in packed.blobs}) == len(packed.blobs), "equal leaves are stored once"


@settings(max_examples=60, deadline=None)
@given(parts, parts, st.binary(max_size=300))
def test_a_delta_comes_back_byte_for_byte(before: list[Buffer], after: list[Buffer], new: bytes) -> None:
    common = noise(9, 20_000)
    base = pack("state", [common, *before])
    assert base.raw is not None
    packed = pack("state", [common, *before, *after, new], Keyframe(1, base.raw, base.section.size))
    assert opened(packed, base.raw) == b"".join([common, *before, *after, new])


def test_a_section_of_several_segments_and_its_delta_come_back() -> None:
    text = random.Random(3).choices(
        [noise(seed, 30) for seed in range(2000)], k=(2 * SEGMENT + 5_000_000) // 30
    )
    whole = b"".join(text)
    pieces = [whole[at : at + 60_000] for at in range(0, len(whole), 60_000)]
    base = pack("state", pieces)
    assert len(base.section.segments) == 3
    assert opened(base) == whole
    assert base.raw is not None
    # Half a megabyte goes in near the start: everything after it has moved.
    moved = [*pieces[:5], *(noise(seed, 50_000) for seed in range(10)), *pieces[5:]]
    packed = pack("state", moved, Keyframe(1, base.raw, base.section.size))
    assert packed.section.codec == "delta"
    assert packed.section.size < 600_000, "little more than what is new"
    assert opened(packed, base.raw) == b"".join(moved)


def test_a_section_too_large_for_deltas_is_never_joined_and_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "DELTA_UPTO", 1_000_000)
    pieces = [noise(seed, 60_000) for seed in range(200)]
    packed = pack("state", pieces)
    assert packed.raw is None
    assert len(packed.section.segments) == 2
    assert opened(packed) == b"".join(pieces)


@pytest.mark.parametrize("size", [0, 1, 3, 8, 100])
def test_a_tiny_section_comes_back(size: int) -> None:
    packed = pack("state", [noise(1, size)])
    assert opened(packed) == noise(1, size)


def test_a_summary_is_never_taken_apart() -> None:
    packed = pack("summary", [b"x" * 200_000])
    assert not packed.blobs
    assert opened(packed) == b"x" * 200_000


def test_a_new_keyframe_is_taken_when_a_delta_is_more_than_half_of_the_whole() -> None:
    keyframe = Keyframe(1, bytes(100_000), size=50_000)
    assert keyframe.pays(100_000, 25_000)
    assert not keyframe.pays(100_000, 25_001)
    assert keyframe.pays(200_000, 49_999), "a section that doubled may have a delta twice as large"


def test_a_new_keyframe_is_taken_when_the_deltas_together_cost_as_much_as_one() -> None:
    assert Keyframe(1, bytes(100_000), size=50_000, spent=40_000).pays(100_000, 10_000)
    assert not Keyframe(1, bytes(100_000), size=50_000, spent=40_001).pays(100_000, 10_000)


def test_a_section_that_is_small_in_full_is_no_delta() -> None:
    base = pack("state", [b"a" * 50_000])
    assert base.raw is not None
    assert pack("state", [b"a" * 50_001], Keyframe(1, base.raw, base.section.size)).section.codec == "zstd"


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
    packed = pack("state", [array])
    assert opened(packed) == array.tobytes()
    assert packed.blobs[0][0] == blobs.name_of(array.tobytes())


@pytest.mark.parametrize(
    "change",
    [
        {"codec": "plain"},
        {"codec": "delta"},
        {"base": 3},
        {"segments": []},
        {"segments": [-1]},
        {"raw": -5},
        {"references": 10**9},
        {"raw": 10**12},
    ],
)
def test_an_entry_that_contradicts_itself_is_refused(change: dict[str, object]) -> None:
    entry = pack("state", [b"abc"]).section.as_json() | change
    with pytest.raises(ValueError, match=r".+"):
        Section.from_json(entry)


def test_a_reference_outside_of_its_stream_is_refused() -> None:
    packed = pack("state", [b"abc", noise(1, SMALLEST), b"def"])
    assert packed.raw is not None
    broken = (99).to_bytes(8, "little") + packed.raw[8:]
    with pytest.raises(Damaged, match="outside"):
        references(packed.section, broken, "It")
