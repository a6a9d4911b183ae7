"""Sections: the named payloads of a record, packed small and unpacked exactly.

This file turns parts (bytes-like pieces of one stream) into the stored bytes of a section and back; it
doesn't know what the parts mean, nor where records and blobs lie.

- A part of 64 KiB or more leaves the stream and becomes a blob. What stays, the **raw** bytes of the
  section, is a table of references (position in the stream, length, SHA-256, place), then the stream. The
  summary is exempt: it must be readable from its record alone.
- Raw bytes are stored in segments, packed on two threads where there are several: in full, each up to 8 MiB
  and one zstd frame; as a **delta**, told by an earlier record's section (deltas.py).
- **Bases** are a short stack: a section in full, the *keyframe*, at the bottom, on it deltas, each made
  against the one below. A new delta is made against the top. When those against the top have cost as much
  as the top itself, it is let go and the next below takes its place: so a state that grows pays for what is
  new a few times over, not for all that grew since the keyframe each time. A restore reads the record and
  at most four others. Measured on the states of 200 turns of a conversation: 35 MB in full, 4.9 MB with one
  base, 2.0 MB with up to four.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, TypeVar

from snaprt.errors import Damaged
from snaprt.records.blobs import SMALLEST, Buffer, compress, flat, name_of
from snaprt.records.deltas import SEGMENT, Piece, Segment, pack_against, plan, restore
from snaprt.records.leaves import THREADS_FROM, Leaves, Place

# The most bases of a section, by name: others are packed in full. A summary is what listings read, so its
# record and two others must do: with one, the summaries of a long run would take twice the bytes, with more
# hardly fewer.
DEPTHS = {"state": 4, "summary": 2}
DEPTH_MOST = 4
# A section that takes less in full saves less as a delta than the read of its base costs.
_DELTA_FROM = {"state": 512, "summary": 1 << 10}
# Deltas against a base may cost this much whatever its own size, or small ones would hardly serve.
_LEAST_SPENT = 512
# Bases are kept in memory by whoever appends: not more than this together.
DELTA_UPTO = 256 << 20
# A section whose stored bytes are more lies in a blob, so that a record is always one request to create and
# a listing reads little. S3 clients switch to several requests at 50 to 100 MB.
APART_FROM = 32 << 20
WITHOUT_BLOBS = ("summary",)

FULL, DELTA = "zstd", "delta"

Item = TypeVar("Item")

_REFERENCE = struct.Struct("<QQ32sQQQ")
_THREADS = min(2, os.cpu_count() or 1)


@dataclass(frozen=True)
class Reference:
    """A leaf that left the stream: where it stood, how long it is, the name of its blob and where that
    lies."""

    position: int
    length: int
    name: str
    place: Place


@dataclass(frozen=True)
class Section:
    """What a record's header says of one section. All sizes in bytes."""

    name: str
    codec: str  # FULL or DELTA
    raw: int
    references: int
    segments: tuple[Segment, ...]
    sha256: str  # of the stored bytes
    apart: bool = False  # the stored bytes lie in the blob of that digest, not in the record
    base: int | None = None  # DELTA: the number of the record that holds the base

    @property
    def size(self) -> int:
        """How many bytes are stored."""
        return sum(segment.stored for segment in self.segments)

    def as_json(self) -> dict[str, Any]:
        """The entry in the header."""
        entry: dict[str, Any] = {
            "name": self.name,
            "codec": self.codec,
            "raw": self.raw,
            "references": self.references,
            "segments": [segment.as_json() for segment in self.segments],
            "sha256": self.sha256,
        }
        if self.apart:
            entry["apart"] = True
        if self.base is not None:
            entry["base"] = self.base
        return entry

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Section:
        """Raises KeyError, TypeError or ValueError where the entry isn't one."""
        codec = str(entry["codec"])
        section = cls(
            str(entry["name"]),
            codec,
            int(entry["raw"]),
            int(entry["references"]),
            tuple(Segment.from_json(segment, codec == DELTA) for segment in entry["segments"]),
            str(entry["sha256"]),
            bool(entry.get("apart", False)),
            None if entry.get("base") is None else int(entry["base"]),
        )
        if codec not in (FULL, DELTA) or (codec == DELTA) != (section.base is not None):
            raise ValueError(f"codec {codec!r}")
        if sum(segment.raw for segment in section.segments) != section.raw:
            raise ValueError("sizes")
        if section.references < 0 or section.references * _REFERENCE.size > section.raw:
            raise ValueError("references")
        return section


@dataclass(frozen=True)
class Base:
    """A section that deltas are made against: the number of its record, its raw bytes, how many are stored,
    whether it is in full (the keyframe), and the stored bytes of all deltas made against it so far."""

    number: int
    raw: bytes = field(repr=False)
    size: int
    full: bool
    spent: int = 0

    def in_full(self, raw: int) -> float:
        """What so many raw bytes would take in full, if they shrink as those of this keyframe did."""
        return self.size * raw / max(1, len(self.raw))

    def pays(self, raw: int, delta: int) -> bool:
        """Whether to go on with deltas against this. Not once all together cost as much as it does itself:
        from there on a new base is cheaper than what the growing deltas add. Nor if one is more than half of
        what the section would take in full (the next ones will hardly be smaller)."""
        if not self.full:
            return self.spent + delta <= max(self.size, _LEAST_SPENT)
        full = self.in_full(raw)
        return delta <= full / 2 and self.spent + delta <= max(self.size, full, _LEAST_SPENT)


@dataclass(frozen=True)
class Packed:
    """A section ready to be stored, and the stack of bases after it, the keyframe first."""

    section: Section
    stored: tuple[bytes, ...] = field(repr=False)
    bases: tuple[Base, ...] = field(repr=False)


def pack(name: str, parts: Iterable[Buffer], leaves: Leaves, bases: Sequence[Base] = ()) -> Packed:
    """Packs a section of record `leaves.number`, as a delta against one of the bases where that pays. Its
    large leaves go to `leaves`."""
    pieces, table, count = _take_out(parts, leaves if name not in WITHOUT_BLOBS else None)
    total = len(table) + sum(len(piece) for piece in pieces)
    if total > DELTA_UPTO or name not in DEPTHS:
        segments = _regroup((memoryview(table), *pieces))
        return _packed(name, leaves.number, total, count, None, _each(_in_full, segments), ())
    raw = b"".join((table, *pieces))
    stack = list(bases)
    if stack and stack[0].in_full(total) < _DELTA_FROM[name]:
        stack.clear()
    size = 0
    while stack:
        base = stack.pop()
        if not base.pays(total, size):  # against a lower base it is hardly smaller than against the one above
            continue
        stored = _against(raw, base.raw)
        size = sum(len(data) for _, data in stored)
        if base.pays(total, size):
            stack.append(Base(base.number, base.raw, base.size, base.full, base.spent + size))
            return _packed(name, leaves.number, total, count, base.number, stored, stack, raw)
    stored = _each(_in_full, _cut(raw))
    return _packed(name, leaves.number, total, count, None, stored, (), raw)


def _packed(
    name: str,
    number: int,
    total: int,
    references: int,
    base: int | None,
    stored: Sequence[tuple[Segment, bytes]],
    stack: Sequence[Base],
    raw: bytes | None = None,
) -> Packed:
    digest = hashlib.sha256()
    for _, data in stored:
        digest.update(data)
    segments = tuple(segment for segment, _ in stored)
    size = sum(segment.stored for segment in segments)
    codec = FULL if base is None else DELTA
    section = Section(name, codec, total, references, segments, digest.hexdigest(), size > APART_FROM, base)
    bases = tuple(stack)
    if raw is not None and len(bases) < DEPTHS[name] and _held(bases) + len(raw) <= DELTA_UPTO:
        bases = (*bases, Base(number, raw, size, base is None))
    return Packed(section, tuple(data for _, data in stored if data), bases)


def _held(bases: Iterable[Base]) -> int:
    return sum(len(base.raw) for base in bases)


def unpack_raw(section: Section, stored: memoryview, base: bytes | None, what: str) -> bytes:
    """The raw bytes of a section. Raises Damaged unless the stored bytes are the ones that its (proven)
    header names; only then do they reach zstd."""
    what = f"{what}: section {section.name!r}"
    if len(stored) != section.size or hashlib.sha256(stored).hexdigest() != section.sha256:
        raise Damaged(f"{what} doesn't prove right; its bytes were changed or cut.")
    if section.codec == DELTA and base is None:
        raise Damaged(f"{what} is a delta, and its base isn't there.")
    raws: list[bytes | memoryview] = []
    at = 0
    for segment in section.segments:
        raws.append(restore(segment, stored[at : at + segment.stored], base or b"", what))
        at += segment.stored
    return raws[0] if len(raws) == 1 and isinstance(raws[0], bytes) else b"".join(raws)


def references(section: Section, raw: bytes, what: str) -> tuple[list[Reference], memoryview]:
    """The table of a section and its stream. Raises Damaged if they don't fit together."""
    end = section.references * _REFERENCE.size
    stream = memoryview(raw)[end:]
    found = [
        Reference(position, length, digest.hex(), Place(record, at, stored))
        for position, length, digest, record, at, stored in _REFERENCE.iter_unpack(memoryview(raw)[:end])
    ]
    last = 0
    for reference in found:
        if not last <= reference.position <= len(stream):
            raise Damaged(f"{what}: section {section.name!r} refers to a place outside of itself.")
        last = reference.position
    return found, stream


def join(
    found: Sequence[Reference], stream: memoryview, fetch: Callable[[Reference], Buffer]
) -> list[Buffer]:
    """The parts of a section in order: pieces of its stream, with the blobs between them."""
    parts: list[Buffer] = []
    at = 0
    for reference in found:
        if reference.position > at:
            parts.append(stream[at : reference.position])
            at = reference.position
        parts.append(fetch(reference))
    if at < len(stream):
        parts.append(stream[at:])
    return parts


def _take_out(parts: Iterable[Buffer], leaves: Leaves | None) -> tuple[list[memoryview], bytes, int]:
    """The pieces of the stream, the table of references and how many it has."""
    pieces: list[memoryview] = []
    large: list[tuple[int, memoryview]] = []
    position = 0
    for part in parts:
        view = flat(part)
        if leaves is not None and len(view) >= SMALLEST:
            large.append((position, view))
        else:
            pieces.append(view)
            position += len(view)
    if leaves is None or not large:
        return pieces, b"", 0
    contents = [view for _, view in large]
    if len(contents) > 1 and sum(map(len, contents)) >= THREADS_FROM and _THREADS > 1:
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="snaprt-digest") as pool:
            names = list(pool.map(name_of, contents))
    else:
        names = list(map(name_of, contents))
    leaves.place(list(zip(names, contents, strict=True)))
    table = bytearray()
    for (at, view), name in zip(large, names, strict=True):
        place = leaves.places[name]
        table += _REFERENCE.pack(at, len(view), bytes.fromhex(name), place.record, place.at, place.stored)
    return pieces, bytes(table), len(large)


def _cut(raw: bytes) -> Iterator[Buffer]:
    view = memoryview(raw)
    return (view[at : at + SEGMENT] for at in range(0, len(raw), SEGMENT))


def _regroup(pieces: Iterable[memoryview]) -> Iterator[Buffer]:
    """The same bytes in segments, without ever joining all of them."""
    segment = bytearray()
    for piece in pieces:
        at = 0
        while at < len(piece):
            take = min(SEGMENT - len(segment), len(piece) - at)
            segment += piece[at : at + take]
            at += take
            if len(segment) == SEGMENT:
                yield segment
                segment = bytearray()
    if segment:
        yield segment


def _each(
    tool: Callable[[Item], tuple[Segment, bytes]], items: Iterable[Item]
) -> list[tuple[Segment, bytes]]:
    """The tool's result for each item in order, on two threads if there are several items."""
    rest = iter(items)
    first = list(islice(rest, 2))
    if len(first) < 2 or _THREADS == 1:
        return list(map(tool, chain(first, rest)))
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="snaprt-pack") as pool:
        waiting = [pool.submit(tool, item) for item in first]
        done: list[tuple[Segment, bytes]] = []
        # No more segments in flight than threads and one to spare: segments may be copies.
        for item in rest:
            if len(waiting) > _THREADS:
                done.append(waiting.pop(0).result())
            waiting.append(pool.submit(tool, item))
        done.extend(future.result() for future in waiting)
        return done


def _in_full(data: Buffer) -> tuple[Segment, bytes]:
    stored = compress(data)
    return Segment(len(data), len(stored)), stored


def _against(raw: bytes, base: bytes) -> list[tuple[Segment, bytes]]:
    view = memoryview(raw)

    def tool(piece: Piece) -> tuple[Segment, bytes]:
        if piece.copy:
            return Segment(piece.size, 0, piece.start), b""
        data = view[piece.at : piece.at + piece.size]
        stored = pack_against(data, base, piece.start, piece.end)
        return Segment(piece.size, len(stored), piece.start, piece.end), stored

    pieces = list(plan(raw, base))
    if sum(piece.size for piece in pieces if not piece.copy) < THREADS_FROM:
        return list(map(tool, pieces))
    return _each(tool, pieces)
