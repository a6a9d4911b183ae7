"""Leaves: where the large leaves of a record's sections lie.

A leaf is stored once per run, as a blob (see blobs.py). A small blob lies behind the sections of the record
that first held it, byte for byte what it would be as an object: so a save is one request, or one synced
file, however many new documents the state holds. A large one, or one too many, is an object of its own and
is sent in a stream.

This file decides which, for one record that is being made, and packs the small ones. It does no I/O.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from snaprt.records.blobs import CHUNK, Buffer, encode
from snaprt.records.keys import Keyring

# A leaf of one chunk lies in its record.
INSIDE_UPTO = CHUNK
# All of a record together. With the sections (32 MiB stored, or apart) a record stays below the 100 MB that
# S3 clients send in one request.
INSIDE_MOST = 48 << 20
# Threads take half a millisecond to start: two small leaves are packed before that.
THREADS_FROM = 4 << 20
THREADS = min(2, os.cpu_count() or 1)


@dataclass(frozen=True)
class Place:
    """Where a blob lies: `stored` bytes at `at` behind the sections of record `record`. All are 0 if it is an
    object of its own."""

    record: int = 0
    at: int = 0
    stored: int = 0


OWN_OBJECT = Place()


@dataclass
class Leaves:
    """The leaves of record `number` while it is made. `known` says where a leaf of that name lies already, or
    None; it is told whether it would be an object."""

    number: int
    known: Callable[[str, bool], Place | None]
    keyring: Keyring
    places: dict[str, Place] = field(default_factory=dict)
    inside: list[Buffer] = field(default_factory=list)  # pieces of the blobs that go into the record
    objects: dict[str, memoryview] = field(default_factory=dict)  # contents that become objects
    size: int = 0  # of those inside
    _raw: int = 0

    def place(self, leaves: Sequence[tuple[str, memoryview]]) -> None:
        """Finds a place for each leaf, given by name and content: afterwards `places` has it."""
        new: dict[str, memoryview] = {}
        for name, content in leaves:
            if name in self.places:
                continue
            fits = len(content) <= INSIDE_UPTO and self._raw + len(content) <= INSIDE_MOST
            found = self.known(name, not fits)
            if found is not None:
                self.places[name] = found
            elif fits:
                new[name] = content
                self._raw += len(content)
                self.places[name] = OWN_OBJECT  # until it is packed
            else:
                self.objects[name] = content
                self.places[name] = OWN_OBJECT
        for name, blob in zip(new, self._packed(new), strict=True):
            size = sum(map(len, blob))
            self.places[name] = Place(self.number, self.size, size)
            self.inside += blob
            self.size += size

    def _packed(self, new: dict[str, memoryview]) -> list[list[Buffer]]:
        def blob(item: tuple[str, memoryview]) -> list[Buffer]:
            return list(encode(item[1], item[0], self.keyring))

        if sum(map(len, new.values())) < THREADS_FROM or THREADS == 1:
            return [blob(item) for item in new.items()]
        with ThreadPoolExecutor(THREADS, thread_name_prefix="snaprt-blob") as pool:
            return list(pool.map(blob, new.items()))
