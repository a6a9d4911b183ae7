"""Sections: the named payloads of a record, packed small and unpacked exactly.

This file turns parts (bytes-like pieces of one stream) into the stored bytes of a section and back; it
doesn't know what the parts mean, nor where records and blobs lie.

- A part of 64 KiB or more leaves the stream and becomes a blob. What stays, the **raw** bytes of the
  section, is a table of references (position in the stream, length, SHA-256), then the stream. The summary
  is exempt: it must be readable from its record alone.
- Raw bytes are cut into segments of 8 MiB; each is one zstd frame. Segments are packed on two threads.
- A **delta** packs each segment with a window of the same section of a *keyframe* (a record that holds it
  in full) as raw-content dictionary. Depth is always one: a keyframe is never a delta. zstd indexes 16 MiB
  of a dictionary and no more, hence the window: from 4 MiB before the segment's own position to 12 MiB
  after it, so that up to 4 MiB may be inserted or removed before a part that stayed the same. Its "fast"
  strategy with a hash table sized to the dictionary finds what the usual ones of level 3 miss (a history of
  8 MB and two messages: 13 KB, against 3.4 MB with their tables, in half the time).
- When deltas stop paying is decided here (`Keyframe.pays`).
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import zstandard

from snaprt.errors import Damaged
from snaprt.records.blobs import LEVEL, SMALLEST, Buffer, flat, name_of, unpack

SEGMENT = 8 << 20
_BEFORE, _AFTER = 4 << 20, 12 << 20  # together the 16 MiB of a dictionary that zstd indexes
# A section that takes less in full saves less as a delta than the read of its keyframe costs.
DELTA_FROM = 4 << 10
# A keyframe is kept in memory by whoever appends: not beyond this.
DELTA_UPTO = 256 << 20
# A section whose stored bytes are more lies in a blob, so that a record is always one request to create and
# a listing reads little. S3 clients switch to several requests at 50 to 100 MB.
APART_FROM = 32 << 20
# Sections that resemble their predecessor; the others are packed in full.
DELTAS = ("state", "summary")
WITHOUT_BLOBS = ("summary",)

FULL, DELTA = "zstd", "delta"

_REFERENCE = struct.Struct("<QQ32s")
_THREADS = min(2, os.cpu_count() or 1)


@dataclass(frozen=True)
class Reference:
    """A leaf that left the stream: where it stood, how long it is, the name of its blob."""

    position: int
    length: int
    name: str


@dataclass(frozen=True)
class Section:
    """What a record's header says of one section. All sizes in bytes."""

    name: str
    codec: str  # FULL or DELTA
    raw: int
    references: int
    segments: tuple[int, ...]  # stored size of each
    sha256: str  # of the stored bytes
    apart: bool = False  # the stored bytes lie in the blob of that digest, not in the record
    base: int | None = None  # DELTA: the number of the keyframe

    @property
    def size(self) -> int:
        """How many bytes are stored."""
        return sum(self.segments)

    def as_json(self) -> dict[str, Any]:
        """The entry in the header."""
        entry: dict[str, Any] = {
            "name": self.name,
            "codec": self.codec,
            "raw": self.raw,
            "references": self.references,
            "segments": list(self.segments),
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
        section = cls(
            str(entry["name"]),
            str(entry["codec"]),
            int(entry["raw"]),
            int(entry["references"]),
            tuple(int(size) for size in entry["segments"]),
            str(entry["sha256"]),
            bool(entry.get("apart", False)),
            None if entry.get("base") is None else int(entry["base"]),
        )
        count = -(-section.raw // SEGMENT)
        if section.codec not in (FULL, DELTA) or (section.codec == DELTA) != (section.base is not None):
            raise ValueError(f"codec {section.codec!r}")
        if min((section.raw, section.references, *section.segments)) < 0 or len(section.segments) != count:
            raise ValueError("sizes")
        if section.references * _REFERENCE.size > section.raw:
            raise ValueError("references")
        return section


@dataclass(frozen=True)
class Keyframe:
    """A section held in full by record `number`: its raw bytes, its stored size, and the stored bytes of all
    deltas made against it so far."""

    number: int
    raw: bytes = field(repr=False)
    size: int
    spent: int = 0

    def full(self, raw: int) -> float:
        """What so many raw bytes would take in full, if they shrink as those of the keyframe did."""
        return self.size * raw / max(1, len(self.raw))

    def pays(self, raw: int, delta: int) -> bool:
        """Whether to go on with deltas. Not if this one is more than half of what the section would take in
        full (the next ones will hardly be smaller), nor once all together cost as much as a keyframe: from
        there on a new one is cheaper than what the growing deltas add."""
        full = self.full(raw)
        return delta <= full / 2 and self.spent + delta <= max(self.size, full)


@dataclass(frozen=True)
class Packed:
    """A section ready to be stored. `raw` is there when the section may serve as a keyframe."""

    section: Section
    stored: tuple[bytes, ...] = field(repr=False)
    blobs: tuple[tuple[str, memoryview], ...] = field(repr=False)
    raw: bytes | None = field(repr=False)
    spent: int = 0


def pack(name: str, parts: Iterable[Buffer], keyframe: Keyframe | None = None) -> Packed:
    """Packs a section, as a delta against the keyframe if one is given and that pays."""
    pieces, references, blobs = _take_out(parts, name not in WITHOUT_BLOBS)
    table = b"".join(_REFERENCE.pack(r.position, r.length, bytes.fromhex(r.name)) for r in references)
    total = len(table) + sum(len(piece) for piece in pieces)
    raw: bytes | None = None
    segments: Iterator[Buffer]
    if total <= DELTA_UPTO:
        raw = b"".join((table, *pieces))
        segments = _cut(raw)
    else:
        segments = _regroup((memoryview(table), *pieces))
    if keyframe is not None and raw is not None and keyframe.full(total) >= DELTA_FROM:
        stored = _each(_against(keyframe.raw), enumerate(_cut(raw)))
        size = sum(map(len, stored))
        if keyframe.pays(total, size):
            section = _describe(name, DELTA, total, len(references), stored, keyframe.number)
            return Packed(section, stored, blobs, None, keyframe.spent + size)
    stored = _each(_in_full, enumerate(segments))
    section = _describe(name, FULL, total, len(references), stored, None)
    return Packed(section, stored, blobs, raw if name in DELTAS else None)


def _describe(
    name: str, codec: str, raw: int, references: int, stored: Sequence[bytes], base: int | None
) -> Section:
    digest = hashlib.sha256()
    for segment in stored:
        digest.update(segment)
    sizes = tuple(map(len, stored))
    return Section(name, codec, raw, references, sizes, digest.hexdigest(), sum(sizes) > APART_FROM, base)


def unpack_raw(section: Section, stored: memoryview, keyframe: bytes | None, what: str) -> bytes:
    """The raw bytes of a section. Raises Damaged unless the stored bytes are the ones that its (proven)
    header names; only then do they reach zstd."""
    if len(stored) != section.size or hashlib.sha256(stored).hexdigest() != section.sha256:
        raise Damaged(f"{what}: section {section.name!r} doesn't prove right; its bytes were changed or cut.")
    raws: list[bytes] = []
    at = 0
    for index, size in enumerate(section.segments):
        length = min(SEGMENT, section.raw - index * SEGMENT)
        dictionary = None
        if section.codec == DELTA:
            if keyframe is None:
                raise Damaged(f"{what}: section {section.name!r} is a delta, and its keyframe isn't there.")
            dictionary = _window(keyframe, index)
        raws.append(unpack(stored[at : at + size], length, f"{what}: section {section.name!r}", dictionary))
        at += size
    return raws[0] if len(raws) == 1 else b"".join(raws)


def references(section: Section, raw: bytes, what: str) -> tuple[list[Reference], memoryview]:
    """The table of a section and its stream. Raises Damaged if they don't fit together."""
    end = section.references * _REFERENCE.size
    stream = memoryview(raw)[end:]
    found = [
        Reference(position, length, digest.hex())
        for position, length, digest in _REFERENCE.iter_unpack(memoryview(raw)[:end])
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


def _take_out(
    parts: Iterable[Buffer], take: bool
) -> tuple[list[memoryview], list[Reference], tuple[tuple[str, memoryview], ...]]:
    pieces: list[memoryview] = []
    large: list[tuple[int, memoryview]] = []
    position = 0
    for part in parts:
        view = flat(part)
        if take and len(view) >= SMALLEST:
            large.append((position, view))
        else:
            pieces.append(view)
            position += len(view)
    if sum(len(view) for _, view in large) > 8 * SMALLEST and _THREADS > 1:
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="snaprt-digest") as pool:
            names = list(pool.map(name_of, (view for _, view in large)))
    else:
        names = [name_of(view) for _, view in large]
    found = [Reference(at, len(view), name) for (at, view), name in zip(large, names, strict=True)]
    blobs = {name: view for (_, view), name in zip(large, names, strict=True)}
    return pieces, found, tuple(blobs.items())


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
    tool: Callable[[tuple[int, Buffer]], bytes], segments: Iterable[tuple[int, Buffer]]
) -> tuple[bytes, ...]:
    first = list(_first(segments, 2))
    if len(first) < 2 or _THREADS == 1:
        return tuple(map(tool, (*first, *segments)))
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="snaprt-pack") as pool:
        waiting = [pool.submit(tool, segment) for segment in first]
        done: list[bytes] = []
        # No more segments in flight than threads and one to spare: segments may be copies.
        for segment in segments:
            if len(waiting) > _THREADS:
                done.append(waiting.pop(0).result())
            waiting.append(pool.submit(tool, segment))
        done.extend(future.result() for future in waiting)
        return tuple(done)


def _first(segments: Iterable[tuple[int, Buffer]], count: int) -> Iterator[tuple[int, Buffer]]:
    for segment in segments:
        yield segment
        count -= 1
        if not count:
            return


def _in_full(segment: tuple[int, Buffer]) -> bytes:
    return zstandard.ZstdCompressor(level=LEVEL, write_content_size=True).compress(segment[1])


def _against(keyframe: bytes) -> Callable[[tuple[int, Buffer]], bytes]:
    def tool(segment: tuple[int, Buffer]) -> bytes:
        index, data = segment
        dictionary = _window(keyframe, index)
        # A slot of the hash table for every eighth byte of the dictionary, at least those of level 3 for
        # small ones.
        slots = max(14, min(21, (len(keyframe)).bit_length() - 3))
        parameters = zstandard.ZstdCompressionParameters.from_level(
            LEVEL,
            strategy=zstandard.STRATEGY_FAST,
            window_log=25,  # 32 MiB: segment and dictionary together
            hash_log=slots,
            min_match=6,
            write_content_size=1,
        )
        tool = zstandard.ZstdCompressor(compression_params=parameters, dict_data=dictionary)
        return tool.compress(data)

    return tool


def _window(keyframe: bytes, index: int) -> zstandard.ZstdCompressionDict | None:
    start = max(0, index * SEGMENT - _BEFORE)
    window = keyframe[start : index * SEGMENT + _AFTER]
    if len(window) < 8:  # zstd takes no shorter dictionary
        return None
    return zstandard.ZstdCompressionDict(window, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
