"""Deltas: raw bytes told by what an earlier version of them has.

This file turns raw bytes and their base (the same section of an earlier record) into segments and back; it
doesn't know which record is whose base, nor when a delta pays.

States grow at one place and stay the same elsewhere, so a delta is made in two steps:

- **Copies.** Long runs that stand in the base are found by comparing memory: from the front, from the back,
  and in between by looking for a few bytes a little further on near the place where they stood. A copy
  costs no compression and no stored bytes, only an entry in the header.
- **zstd** with a window of the base as raw-content dictionary, for what is left. The window lies around the
  place that the segment stands for, half its length further to both sides, at least 64 KiB. A segment of
  8 MiB has one of 16 MiB: zstd indexes no more of a dictionary. The usual tables of level 3 are made for the
  data and too small for a large window; with tables sized to the window, the same strategy finds what they
  miss (a history of 8 MB with a message put in at its front, by which each later reference of the pickle
  changes: 67 KB instead of 1.7 MB).

The first step alone makes the save of a large history quick; the second alone keeps it small when pieces
moved or changed all over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import zstandard

from snaprt.errors import Damaged
from snaprt.records.blobs import unpack

SEGMENT = 8 << 20
# A shorter run isn't worth an entry: zstd finds it for a few bytes.
_SHORTEST_COPY = 32 << 10
# More stretches than this between copies and the bytes changed all over: they are left to zstd.
_MOST_LITERALS = 32
_NEAR = 64 << 10
# Where a run broke off, so many bytes of the data, so much further on, are looked for in the base.
_PROBE = 32
_STEPS = (0, 256, 4 << 10, 32 << 10, 256 << 10)
_REACH = 64 << 10
_BLOCK = 256 << 10
_SMALLEST_DICTIONARY = 8  # zstd takes no shorter one
# A turn of a conversation is about so long: at level 6 it takes a tenth less, and as little time as at level
# 3 with twice the dictionary.
_LEVEL = 3
_SHORT = 64 << 10
_SHORT_LEVEL = 6
# Up to here the usual tables are large enough for the dictionary.
_USUAL = 1 << 20


@dataclass(frozen=True)
class Segment:
    """A stretch of raw bytes and how it is stored. Sizes in bytes.

    With `stored`, it is one zstd frame with `base[start:end]` as dictionary (none if that is empty). Without,
    it is a copy of `base[start:start + raw]`.
    """

    raw: int
    stored: int
    start: int = 0
    end: int = 0

    def as_json(self) -> list[int]:
        """The entry in the header, as short as it can be."""
        if self.end:
            return [self.raw, self.stored, self.start, self.end]
        return [self.raw, self.stored] if self.stored else [self.raw, 0, self.start]

    @classmethod
    def from_json(cls, entry: object, delta: bool) -> Segment:
        """Raises TypeError or ValueError where the entry isn't one."""
        if not isinstance(entry, list) or not all(type(each) is int for each in entry):
            raise TypeError("a segment")
        found = cls(*entry)
        if found.as_json() != entry or min(entry) < 0 or not found.raw:
            raise ValueError("a segment")
        if found.stored and (found.raw > SEGMENT or 0 < found.end < found.start + _SMALLEST_DICTIONARY):
            raise ValueError("sizes of a segment")
        if (found.end and not found.stored) or (not delta and (found.end or not found.stored)):
            raise ValueError("a segment that isn't one of its codec")
        return found


def restore(segment: Segment, stored: bytes | memoryview, base: bytes, what: str) -> bytes | memoryview:
    """The raw bytes of a proven segment. Raises Damaged if it reaches beyond its base."""
    if not segment.stored:
        if segment.start + segment.raw > len(base):
            raise Damaged(f"{what} copies bytes that its base doesn't have.")
        return memoryview(base)[segment.start : segment.start + segment.raw]
    if segment.end > len(base):
        raise Damaged(f"{what} has a dictionary that reaches beyond its base.")
    return unpack(stored, segment.raw, what, _dictionary(base, segment.start, segment.end))


@dataclass(frozen=True)
class Piece:
    """A stretch of the data, before packing: a copy of the base at `start`, or to be packed with
    `base[start:end]` as dictionary."""

    at: int
    size: int
    start: int
    end: int
    copy: bool


def plan(data: bytes, base: bytes) -> Iterator[Piece]:
    """How the data are told by the base: pieces in order, without gaps."""
    done = start = 0
    runs = _runs(data, base)
    for at, place, size in [*runs, (len(data), len(base), 0)]:
        while done < at:
            length = min(SEGMENT, at - done)
            margin = max(_NEAR, length // 2)
            end = min(len(base), start + length + margin)
            begin = max(0, min(start, len(base)) - margin)
            if end - begin < _SMALLEST_DICTIONARY:
                begin = end = 0
            yield Piece(done, length, begin, end, False)
            done, start = done + length, start + length
        if size:
            yield Piece(at, size, place, 0, True)
        done, start = at + size, place + size


def pack_against(data: memoryview, base: bytes, start: int, end: int) -> bytes:
    """One zstd frame of the data, with that stretch of the base as dictionary."""
    size = end - start
    if size + len(data) <= _SHORT:
        bits = (size + len(data)).bit_length()
        parameters = zstandard.ZstdCompressionParameters(
            strategy=zstandard.STRATEGY_FAST,
            window_log=max(10, bits),
            hash_log=max(6, bits - 3),
            min_match=5,
            write_content_size=1,
        )
    elif size + len(data) <= _USUAL:
        parameters = zstandard.ZstdCompressionParameters.from_level(
            _LEVEL if len(data) > _SHORT else _SHORT_LEVEL,
            source_size=len(data),
            dict_size=size,
            write_content_size=1,
        )
    else:
        parameters = zstandard.ZstdCompressionParameters.from_level(
            _LEVEL,
            strategy=zstandard.STRATEGY_DFAST,
            window_log=25,  # 32 MiB: segment and dictionary together
            # A slot for every eighth byte of the dictionary in the table of long matches, half as many in
            # that of short ones. The "fast" strategy takes a fifth less time and a quarter more bytes.
            hash_log=max(14, min(22, size.bit_length() - 3)),
            chain_log=max(14, min(21, size.bit_length() - 4)),
            min_match=5,
            write_content_size=1,
        )
    tool = zstandard.ZstdCompressor(compression_params=parameters, dict_data=_dictionary(base, start, end))
    return tool.compress(data)


def _dictionary(base: bytes, start: int, end: int) -> zstandard.ZstdCompressionDict | None:
    if start == end:
        return None
    return zstandard.ZstdCompressionDict(base[start:end], dict_type=zstandard.DICT_TYPE_RAWCONTENT)


def _runs(data: bytes, base: bytes) -> list[tuple[int, int, int]]:
    """Long runs that both have: place in the data, place in the base, length. In order of the data."""
    if min(len(data), len(base)) < _SHORTEST_COPY:
        return []
    front = _alike(data, 0, base, 0)
    back = _alike_before(data, len(data), base, len(base), min(len(data), len(base)) - front)
    found = [(0, 0, front)] if front >= _SHORTEST_COPY else []
    front = front if found else 0
    if back < _SHORTEST_COPY:
        back = 0
    if len(data) - front - back >= 2 * _SHORTEST_COPY:
        between = list(_between(data, front, len(data) - back, base, front))
        # Too many: the bytes changed all over, and a frame for each stretch would cost more than one for all.
        if len(between) <= _MOST_LITERALS:
            found += between
    if back:
        found.append((len(data) - back, len(base) - back, back))
    return found


def _between(data: bytes, at: int, stop: int, base: bytes, place: int) -> Iterator[tuple[int, int, int]]:
    """Runs between two places of the data, the first of which stands at `place` in the base."""
    tries = 4 * _MOST_LITERALS
    while tries and stop - at >= _SHORTEST_COPY:
        tries -= 1
        for step in _STEPS:
            here = at + step
            probe = data[here : min(here + _PROBE, stop)]
            there = -1
            if len(probe) == _PROBE:
                there = base.find(probe, max(0, place + step - _REACH), place + step + _REACH)
            if there < 0:
                continue
            before = _alike_before(data, here, base, there, min(step, there))
            here, there = here - before, there - before
            size = min(_alike(data, here, base, there), stop - here)
            if size >= _SHORTEST_COPY:
                yield here, there, size
                at, place = here + size, there + size
                break
        else:
            # Nothing near is the same: go on behind what was looked at.
            at, place = at + _STEPS[-1], place + _STEPS[-1]


def _alike(data: bytes, at: int, base: bytes, place: int) -> int:
    """How many bytes from there on are the same."""
    view = memoryview(base)
    start, most = at, min(len(data) - at, len(base) - place)
    block = 64
    # `startswith` compares memory without copying it. Blocks grow while they match and halve where not.
    while block and most:
        block = min(block, most)
        if data.startswith(view[place : place + block], at):
            at, place, most = at + block, place + block, most - block
            block = min(2 * block, _BLOCK)
        elif block == 1:
            break
        else:
            most = block - 1
            block //= 2
    return at - start


def _alike_before(data: bytes, at: int, base: bytes, place: int, most: int) -> int:
    """How many bytes before there, at most so many, are the same."""
    view = memoryview(base)
    start, block = at, 64
    while block and most > 0:
        block = min(block, most)
        if data.startswith(view[place - block : place], at - block):
            at, place, most = at - block, place - block, most - block
            block = min(2 * block, _BLOCK)
        elif block == 1:
            break
        else:
            most = block - 1
            block //= 2
    return start - at
