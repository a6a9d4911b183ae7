"""The history of one run: reading its records, and proving before giving.

A record is proven in steps, each before anything of it is used: its head by the MAC, that it is this run's
and this number's, a section by the digest in the head, a blob chunk by chunk. The chain between records is
proven wherever two that lie side by side are read. Heads are small and kept; finding the newest record
takes one listing and one read, however long the log.

This file only reads. Layout under a store's root:

    runs/<run>/log/<number, 12 digits>   runs/<run>/blobs/<sha256>   runs/<run>/inbox/<suspension>
"""

from __future__ import annotations

import io
import json
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from snaprt.errors import Damaged, UnknownRun
from snaprt.records import blobs
from snaprt.records.envelope import head_length
from snaprt.records.keys import Keyring
from snaprt.records.leaves import Place
from snaprt.records.record import Head, Header, Record, described, follows, read_head, starts
from snaprt.records.sections import DEPTH_MOST, Reference, Section, join, references, unpack_raw
from snaprt.store.failures import Removed, explain
from snaprt.store.names import TOMBSTONE
from snaprt.store.objects import ONE_REQUEST, Objects, in_parallel

Buffer = bytes | bytearray | memoryview

# Heads take about 1 KiB and a summary a few: with this much the newest record's both come in one read.
START = 16 << 10
# How many heads are asked for at once.
_MANY = 256
# Of so many records the start is kept: small sections lie there, such as those of the bases of a state.
_STARTS = 8


def numbers_in(sizes: Mapping[str, int]) -> list[int]:
    """The numbers of the records among the names of a log folder."""
    return sorted(int(name) for name in sizes if is_record_name(name))


def is_record_name(name: str) -> bool:
    """Whether an object of a log folder is named as a record."""
    return len(name) == 12 and name.isascii() and name.isdecimal() and int(name) > 0


def missing(numbers: Sequence[int], most: int) -> Iterator[int]:
    """The first few numbers that lack between 1 and the last. Bounded: anybody can forge a high number."""
    wanted = 1
    for number in numbers:
        while wanted < number and most > 0:
            yield wanted
            wanted += 1
            most -= 1
        wanted = number + 1


def resized(head: Head, size: int) -> str:
    """What to say of a record that hasn't the size it was written with."""
    how = "cut short" if size < head.size else "followed by foreign bytes"
    return f"{described(head.header.run, head.header.number)} is {how}: {size} bytes of {head.size}."


class History:
    """One run's records, read-only. Safe to use from several threads."""

    def __init__(self, objects: Objects, run: str, keyring: Keyring):
        self.run = run
        self._objects = objects
        self._keyring = keyring
        self._lock = threading.RLock()
        self._heads: dict[int, Head] = {}
        self._starts: dict[int, bytes] = {}
        self._newest = 0
        self._sizes: dict[int, int] = {}  # of records, as last listed
        self._raws: dict[str, dict[int, bytes]] = {}  # of bases, by section and record
        self._places: dict[str, Place] = {}  # of leaves, as far as they were read

    def _record(self, number: int) -> str:
        return f"runs/{self.run}/log/{number:012d}"

    def _blob(self, name: str) -> str:
        return f"runs/{self.run}/blobs/{name}"

    def url(self, number: int) -> str:
        """Where a record lies."""
        return self._objects.locate(self._record(number))

    # --- what is there ----------------------------------------------------------------------------

    @property
    def newest(self) -> int:
        """The number of the newest record known; 0 if there is none. `refresh` looks for newer ones."""
        return self._newest

    def refresh(self) -> int:
        """Looks for records that others appended and gives the newest number.

        Raises UnknownRun if there is no record at all or the run was removed, Damaged if numbers are missing.
        """
        with self._lock:
            sizes = self._objects.sizes(f"runs/{self.run}/log")
            if TOMBSTONE in sizes:
                raise Removed(self.run, self._objects.url)
            numbers = numbers_in(sizes)
            if not numbers and not self._newest:
                raise UnknownRun(f"There is no run {self.run!r} at {self._objects.url}.")
            # A record that was there and is gone is as missing as one between two others.
            lost = list(missing([*numbers, max(self._newest, *numbers, 0) + 1], 5))
            if lost:
                some = ", ".join(map(str, lost)) + (" and others" if len(lost) == 5 else "")
                raise Damaged(
                    f"Run {self.run!r} is damaged: records are missing from its log (number {some})."
                )
            self._newest = numbers[-1]
            self._sizes = {number: sizes[f"{number:012d}"] for number in numbers}
            return self._newest

    def headers(self, first: int = 1) -> list[Header]:
        """The headers of all records from `first` on, each proven, and the chain between them."""
        return [head.header for head in self._chain(first)]

    def header(self, number: int | None = None) -> Header:
        """The header of one record, the newest if no number is given."""
        return self._head(self._newest if number is None else number).header

    def _chain(self, first: int) -> list[Head]:
        with self._lock:
            first = max(1, first)
            wanted = [n for n in range(first, self._newest + 1) if n not in self._heads]
            for at in range(0, len(wanted), _MANY):
                some = wanted[at : at + _MANY]
                try:
                    read = self._objects.starts([self._record(n) for n in some], START)
                except FileNotFoundError as error:
                    raise Damaged(f"Run {self.run!r} is damaged: a record is missing ({error}).") from None
                for number, start in zip(some, read, strict=True):
                    self._heads[number] = self._prove(number, start)
                self._keep(some[0], read[0])
            heads = [self._heads[n] for n in range(first, self._newest + 1)]
            if heads and first == 1:
                starts(heads[0])
            for before, head in pairwise(heads):
                follows(head, before)
            return heads

    def _head(self, number: int) -> Head:
        with self._lock:
            if number in self._heads:
                return self._heads[number]
            if not 1 <= number <= self._newest:
                raise UnknownRun(f"Run {self.run!r} has no record {number}; its newest is {self._newest}.")
            start = self._part(number, 0, START)
            head = self._prove(number, start)
            if number - 1 in self._heads:
                follows(head, self._heads[number - 1])
            if number + 1 in self._heads:
                follows(self._heads[number + 1], head)
            self._heads[number] = head
            self._keep(number, start)
            return head

    def _keep(self, number: int, start: bytes) -> None:
        self._starts[number] = start
        while len(self._starts) > _STARTS:
            del self._starts[next(iter(self._starts))]

    def _prove(self, number: int, start: bytes) -> Head:
        """The head at the start of a record, of which more is read if it is longer than most."""
        length = head_length(start, described(self.run, number))
        if length > len(start):
            start += self._part(number, len(start), length)
        head = read_head(start, self._keyring, self.run, number)
        listed = self._sizes.get(number, 0)  # 0: this filesystem's listings don't say
        if listed and listed != head.size:
            raise Damaged(resized(head, listed))
        return head

    def _part(self, number: int, start: int, end: int) -> bytes:
        try:
            return self._objects.part(self._record(number), start, end)
        except FileNotFoundError:
            raise Damaged(f"{described(self.run, number)} is missing.") from None

    # --- reading ----------------------------------------------------------------------------------

    def read(self, number: int, sections: Iterable[str] | None = None) -> Record:
        """A record with the sections asked for (all, if none are named), proven. Raises Damaged or
        WrongKey."""
        with self._lock:
            head = self._head(number)
            have = [section.name for section in head.header.sections]
            wanted = have if sections is None else [name for name in have if name in set(sections)]
            stored = self._stored(head, wanted)
            found: dict[str, list[Buffer]] = {}
            for name in wanted:
                raw = self._raw(head, name, stored.pop(name))
                section = head.header.section(name)
                assert section is not None
                found[name] = self._parts(section, raw, described(self.run, number))
            return Record(head.header, found, head.digest)

    def newest_state(self) -> Record | None:
        """The newest record that holds a whole state, and the chain from it to the newest record is proven.
        None if there is no state yet."""
        with self._lock:
            number = self.header().state
            if number is None:
                return None
            self._chain(number)
            return self.read(number)

    def summary(self) -> dict[str, Any]:
        """The newest summary; empty if there is none. Unpickles nothing."""
        with self._lock:
            number = self.header().summary
            if number is None:
                return {}
            parts = self.read(number, ("summary",)).sections["summary"]
            found = json.loads(b"".join(parts))
            if not isinstance(found, dict):
                raise Damaged(f"{described(self.run, number)} has a summary that isn't a JSON object.")
            return found

    def _stored(self, head: Head, names: Sequence[str]) -> dict[str, Buffer]:
        """The stored bytes of sections, unproven, in as few reads as they lie apart."""
        number = head.header.number
        found: dict[str, Buffer] = {}
        inside: list[str] = []
        for name in names:
            section = head.header.section(name)
            assert section is not None
            if section.apart:
                found[name] = self._fetch(section.sha256, section.size)
            else:
                inside.append(name)
        if not inside:
            return found
        places = {name: head.place(name) for name in inside}
        low = min(start for start, _ in places.values())
        high = max(end for _, end in places.values())
        start = self._starts.get(number, b"")
        if high <= len(start):
            data, low = start, 0
        elif low == high:
            data = b""
        else:
            data = self._part(number, low, high)
        view = memoryview(data)
        for name, (begin, end) in places.items():
            found[name] = view[begin - low : end - low]
        return found

    def _raw(self, head: Head, name: str, stored: Buffer) -> bytes:
        section = head.header.section(name)
        assert section is not None
        number = head.header.number
        base = None if section.base is None else self._bases(name, section.base, number)
        return unpack_raw(section, memoryview(stored), base, described(self.run, number))

    def _bases(self, name: str, number: int, user: int) -> bytes:
        """The raw bytes of the base that record `user` names, and of those below it: they are kept, and no
        others."""
        chain = [number]
        while True:
            section = self._base(name, number, user)
            if section.base is None:
                break
            number, user = section.base, number
            chain.append(number)
            if len(chain) > DEPTH_MOST:
                raise Damaged(
                    f"{described(self.run, chain[0])} is the top of more than {DEPTH_MOST} bases, which no "
                    "snaprt writes."
                )
        known = self._raws.get(name, {})
        kept: dict[int, bytes] = {}
        raw = b""
        for number in reversed(chain):
            if number in known:
                raw = known[number]
            else:
                head = self._head(number)
                section = self._base(name, number, number + 1)
                stored = memoryview(self._stored(head, (name,))[name])
                raw = unpack_raw(section, stored, raw, described(self.run, number))
            kept[number] = raw
        self._raws[name] = kept
        return raw

    def _base(self, name: str, number: int, user: int) -> Section:
        if not 0 < number < user:
            raise Damaged(
                f"{described(self.run, user)} has a delta against record {number}, which isn't before it."
            )
        section = self._head(number).header.section(name)
        if section is None:
            raise Damaged(
                f"{described(self.run, user)} has a delta against record {number}, which has no such section."
            )
        return section

    def _parts(self, section: Section, raw: bytes, what: str) -> list[Buffer]:
        found, stream = references(section, raw, what)
        if not found:
            return [stream] if stream else []
        distinct = {reference.name: reference for reference in found}
        contents = self._several(list(distinct.values()))
        self._places.update({reference.name: reference.place for reference in found})
        return join(found, stream, lambda reference: contents[reference.name])

    def _several(self, wanted: Sequence[Reference]) -> dict[str, bytearray]:
        """The contents of leaves: those inside of one record are read together."""
        contents: dict[str, bytearray] = {}
        inside: defaultdict[int, list[Reference]] = defaultdict(list)
        alone: list[Reference] = []
        for reference in wanted:
            (inside[reference.place.record] if reference.place.stored else alone).append(reference)
        for number, some in inside.items():
            contents.update(self._inside(number, some))
        found = in_parallel(
            self._objects,
            lambda reference: self._fetch(reference.name, reference.length),
            alone,
            lambda reference: reference.length,
        )
        contents.update(zip((reference.name for reference in alone), found, strict=True))
        return contents

    def _inside(self, number: int, wanted: Sequence[Reference]) -> dict[str, bytearray]:
        """The contents of leaves that lie in one record, proven each by itself."""
        if not 0 < number <= self._newest:
            raise Damaged(
                f"A record of run {self.run!r} says that leaves lie in record {number}, which isn't there."
            )
        head = self._head(number)
        low = min(reference.place.at for reference in wanted)
        high = max(reference.place.at + reference.place.stored for reference in wanted)
        if high > head.header.leaves:
            raise Damaged(
                f"{described(self.run, number)} hasn't the leaves that another record says lie in it."
            )
        view = memoryview(self._part(number, head.leaves + low, head.leaves + high))
        contents: dict[str, bytearray] = {}
        for reference in wanted:
            start = reference.place.at - low
            stored = view[start : start + reference.place.stored]
            what = f"Leaf {reference.name[:16]}… in record {number} of run {self.run!r}"
            read = io.BytesIO(stored).read
            contents[reference.name] = blobs.decode(
                read, reference.name, reference.length, self._keyring, what
            )
        return contents

    def _fetch(self, name: str, length: int | None) -> bytearray:
        what = f"Blob {name[:16]}… of run {self.run!r}"
        place = self._blob(name)
        try:
            if length is not None and length <= ONE_REQUEST:
                # One byte more than it can take shows bytes that don't belong to it.
                stored = self._objects.part(place, 0, blobs.most(length) + 1)
                return blobs.decode(io.BytesIO(stored).read, name, length, self._keyring, what)
            with self._objects.reader(place) as file:
                return blobs.decode(file.read, name, length, self._keyring, what)
        except FileNotFoundError:
            raise Damaged(f"{what} is missing.") from None
        except OSError as error:
            raise explain(error, self._objects.url, f"reading {place}") from error

    def sizes(self) -> dict[str, int]:
        """Bytes of every object of the run, by its name below the run (`log/000000000001`)."""
        return {
            f"{folder}/{name}": size
            for folder in ("log", "blobs", "inbox")
            for name, size in sorted(self._listed_in(folder).items())
        }

    def _listed_in(self, folder: str) -> dict[str, int]:
        return self._objects.sizes(f"runs/{self.run}/{folder}")
