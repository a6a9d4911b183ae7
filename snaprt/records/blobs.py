"""Blobs: large leaves of state, each stored once per run under the SHA-256 of its content.

This file turns content into the bytes of a blob object and back; it doesn't know where blobs lie.
A blob is a signed head (name and length of the content) and a row of chunks, each of 4 MiB of content:

    stored length, u32 little endian · codec, one byte · stored bytes · MAC

The MAC of a chunk covers the MAC of the head, the chunk's number, its codec and the SHA-256 of its stored
bytes (the digest, not the bytes: for content that is stored as it is, in one chunk, that is the name and
known already). So a blob is read in a stream with little memory, a chunk can't be moved within a blob or from
another blob, and no byte reaches zstd unproven. At the end the content's digest must be the blob's name.

Chunks are compressed alone, on two threads (both zstd and SHA-256 let go of the GIL). 4 MiB is twice the
window of zstd's level 3, so cutting costs under one percent. A chunk whose first 32 KiB don't shrink by a
tenth is stored as it is: floats, images and archives would cost time and save little (float32 of a normal
distribution: 7 % of the bytes for double the time). A small chunk is compressed without asking its start.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import zstandard

from snaprt.errors import Damaged
from snaprt.records.envelope import BLOB, head_length, key_of, seal, unseal
from snaprt.records.keys import MAC_BYTES, Key, Keyring

Buffer = bytes | bytearray | memoryview

# The least that a leaf must have to become a blob (DESIGN: any leaf of 64 KiB or more).
SMALLEST = 64 << 10
CHUNK = 4 << 20
# zstd's usual level, 3, takes a third more time than 2 for 5 % fewer bytes of a message history of 1 MB and
# 1 % of documents, but for 12 % of a history of 100 MB: it looks further back.
_LEVEL, _LEVEL_LARGE = 2, 3
_SHORT = 32 << 10
PLAIN, ZSTD = 0, 1

_FRAME = struct.Struct("<IB")
_NUMBER = struct.Struct("<QB")
_SAMPLE = 32 << 10
_HEAD_MOST = 512  # heads of blobs take about 200 bytes
_WORTH = 0.9
_SAMPLED_FROM = 512 << 10  # below, the sample costs more than it saves
_THREADS = min(2, os.cpu_count() or 1)


def flat(data: Buffer) -> memoryview:
    """The bytes of a buffer as they lie in memory, without a copy."""
    view = memoryview(data)
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


def name_of(content: Buffer) -> str:
    """The name of the blob that holds this content."""
    return hashlib.sha256(content).hexdigest()


def compress(content: Buffer) -> bytes:
    """One zstd frame that tells its content's size."""
    if len(content) < _SHORT:
        return _tools.short.compress(content)
    level = _LEVEL if len(content) < CHUNK else _LEVEL_LARGE
    return zstandard.ZstdCompressor(level=level, write_content_size=True).compress(content)


class _Tools(threading.local):
    """Made once: that takes three times as long as to compress a short content. Each serves one
    thread at a time."""

    def __init__(self) -> None:
        self.short = zstandard.ZstdCompressor(level=_LEVEL, write_content_size=True)


_tools = _Tools()


def shrinks(data: memoryview) -> bool:
    """Whether compressing is worth its time, judged by the start of the data."""
    sample = data[:_SAMPLE]
    return len(zstandard.ZstdCompressor(level=1).compress(sample)) < _WORTH * len(sample)


def most(length: int) -> int:
    """The most bytes that the blob object of so much content takes."""
    return _HEAD_MOST + length + (length // CHUNK + 1) * (_FRAME.size + MAC_BYTES)


def encode(content: Buffer, name: str, keyring: Keyring) -> Iterator[Buffer]:
    """The bytes of a blob object, piece by piece; memory stays at a few chunks. Pieces may be views of the
    content."""
    view = flat(content)
    key = keyring.signer
    head = seal(keyring, BLOB, {"sha256": name, "length": len(view), "chunk": CHUNK})
    bond = head[-MAC_BYTES:]
    yield head
    count = -(-len(view) // CHUNK)
    if count <= 1 or _THREADS == 1:
        for number in range(count):
            piece = view[number * CHUNK : (number + 1) * CHUNK]
            yield from _encode_chunk(piece, number, bond, key, name if count == 1 else None)
        return
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="snaprt-blob") as pool:
        waiting: list[Future[tuple[Buffer, ...]]] = []
        for number in range(count):
            piece = view[number * CHUNK : (number + 1) * CHUNK]
            waiting.append(pool.submit(_encode_chunk, piece, number, bond, key))
            if len(waiting) > 2 * _THREADS:
                yield from waiting.pop(0).result()
        for future in waiting:
            yield from future.result()


def _encode_chunk(
    piece: memoryview, number: int, bond: bytes, key: Key, digest: str | None = None
) -> tuple[Buffer, ...]:
    """The bytes of a chunk; `digest` is that of the piece, where it is known."""
    codec = PLAIN
    stored: Buffer = piece
    if len(piece) < _SAMPLED_FROM or shrinks(piece):
        packed = compress(piece)
        # Taking it apart costs time, too: what shrinks little is stored as it is.
        if len(packed) < _WORTH * len(piece):
            codec, stored = ZSTD, packed
    proof = bytes.fromhex(digest) if digest and codec == PLAIN else hashlib.sha256(stored).digest()
    mac = key.mac(bond, _NUMBER.pack(number, codec), proof)
    return _FRAME.pack(len(stored), codec), stored, mac


def decode(
    read: Callable[[int], bytes], name: str, length: int | None, keyring: Keyring, what: str
) -> bytearray:
    """The content of a blob object, read with `read(n)` (which may give less only at the end).

    `name` and `length` come from a proven record; None takes the length that the blob's proven head says.
    Raises Damaged or WrongKey. Memory is the content and a chunk.
    """
    start = read(_HEAD_MOST)
    end = head_length(start, what)
    if len(start) < end:
        start += read(end - len(start))
    header, end = unseal(keyring, BLOB, start, what)
    length = header.get("length") if length is None else length
    if not isinstance(length, int) or header.get("sha256") != name or header.get("length") != length:
        raise Damaged(
            f"{what} holds other content than its name says ({header.get('sha256')!r}, "
            f"{header.get('length')!r} bytes instead of {length}): it was swapped."
        )
    chunk = header.get("chunk")
    if not isinstance(chunk, int) or not 0 < chunk <= 64 << 20:
        raise Damaged(f"{what} is cut into chunks of {chunk!r} bytes, which no snaprt writes.")
    key = keyring.find(key_of(start))
    assert key is not None, "unseal found it"
    bond = start[end - MAC_BYTES : end]
    source = _Source(read, start[end:])
    content = bytearray(length)
    digest = hashlib.sha256()
    found = ""  # the digest, where it is known already
    for number, at in enumerate(range(0, length, chunk)):
        wanted = min(chunk, length - at)
        frame = source.take(_FRAME.size, what)
        size, codec = _FRAME.unpack(frame)
        # A stored chunk is never longer than its content: a longer one would have been stored as it is.
        if size > wanted or codec not in (PLAIN, ZSTD):
            raise Damaged(f"{what} doesn't prove right: chunk {number} has an impossible frame.")
        stored = source.take(size, what)
        mac = source.take(MAC_BYTES, what)
        proof = hashlib.sha256(stored).digest()
        if not hmac.compare_digest(key.mac(bond, _NUMBER.pack(number, codec), proof), mac):
            raise Damaged(f"{what} doesn't prove right: chunk {number} isn't what key {key.id} signed.")
        if codec == ZSTD:
            stored = unpack(stored, wanted, what)
        if len(stored) != wanted:
            raise Damaged(f"{what} has a chunk {number} of {len(stored)} bytes instead of {wanted}.")
        content[at : at + wanted] = stored
        if codec == PLAIN and wanted == length:
            found = proof.hex()
        else:
            digest.update(stored)
    if source.rest():
        raise Damaged(f"{what} has bytes after its end.")
    if (found or digest.hexdigest()) != name:
        raise Damaged(f"{what} holds content whose digest isn't its name.")
    return content


def unpack(
    data: bytes | memoryview, length: int, what: str, dictionary: zstandard.ZstdCompressionDict | None = None
) -> bytes:
    """Proven zstd bytes, decompressed to exactly `length` bytes. The frame's own size is checked first, so
    a frame can't ask for more memory than its record says."""
    if length == 0:
        return b""
    try:
        if zstandard.frame_content_size(data) != length:
            raise Damaged(f"{what} would decompress to another length than it says; it wasn't decompressed.")
        tool = (
            zstandard.ZstdDecompressor(dict_data=dictionary) if dictionary else zstandard.ZstdDecompressor()
        )
        return tool.decompress(data, max_output_size=length)
    except zstandard.ZstdError as error:
        raise Damaged(f"{what} can't be decompressed ({error}).") from error


class _Source:
    """Exact reads over what is already there and what `read` gives."""

    def __init__(self, read: Callable[[int], bytes], start: bytes):
        self._read = read
        self._start = start

    def take(self, size: int, what: str) -> bytes:
        data = self._start[:size]
        self._start = self._start[size:]
        if len(data) < size:
            data += self._read(size - len(data))
        if len(data) < size:
            raise Damaged(f"{what} is cut short.")
        return data

    def rest(self) -> bool:
        return bool(self._start or self._read(1))
