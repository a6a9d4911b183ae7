"""The log of one run: append, read, prove.

The log knows records and where they lie; it doesn't know what they mean. Layout under a store's root:

    runs/<run>/log/<number, 12 digits>   runs/<run>/blobs/<sha256>   runs/<run>/inbox/<suspension>

**Appending** is creating the next number, which only one can. Whoever finds it taken is fenced: another
process owns the run. But an answer can get lost, and clients make lost requests again by themselves, so
before that verdict the record is read back: if it is ours, byte for byte, the append succeeded. Blobs are
stored first; a record never refers to what isn't there.

**Reading** proves before it gives: the head by its MAC, that it is this run's and this number's, the
section by its digest, a blob chunk by chunk. Heads are small and kept; the chain between them is proven
wherever two that lie side by side are read. Finding the newest record takes one listing and one read,
however long the log.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from snaprt.errors import AlreadyAnswered, Damaged, Fenced, RunExists, StoreError, UnknownRun
from snaprt.records import blobs
from snaprt.records.envelope import ANSWER, head_length, seal, unseal
from snaprt.records.keys import Keyring
from snaprt.records.record import (
    Head,
    Header,
    Record,
    Sealed,
    arranged,
    described,
    digest_of,
    follows,
    read_head,
    sealed,
)
from snaprt.records.sections import (
    DELTAS,
    Keyframe,
    Packed,
    Reference,
    Section,
    join,
    pack,
    references,
    unpack_raw,
)
from snaprt.store.failures import Transient
from snaprt.store.names import checked_suspension
from snaprt.store.objects import Objects

Buffer = bytes | bytearray | memoryview

# Heads take about 1 KiB and a summary a few: with this much the newest record's both come in one read.
START = 16 << 10
# Waits before an append is tried again, in seconds. The client has its own attempts beneath.
PAUSES = (0.1, 0.5, 2.0)


@dataclass(frozen=True)
class Stored:
    """A record that was appended. `size` is what it added to the store, blobs included, in bytes."""

    header: Header
    digest: str
    size: int


class Log:
    """One run's log. Safe to use from several threads. Made by `Store.log` and `Store.create`."""

    def __init__(
        self,
        objects: Objects,
        run: str,
        keyring: Keyring,
        interpreter: Mapping[str, Any],
        ready: Callable[[], None],
        pause: Callable[[float], None] = time.sleep,
    ):
        self.run = run
        self._objects = objects
        self._keyring = keyring
        self._interpreter = dict(interpreter)
        self._ready = ready  # called before the first write: the probe
        self._pause = pause
        self._lock = threading.RLock()
        self._heads: dict[int, Head] = {}
        self._starts: dict[int, bytes] = {}
        self._newest = 0
        self._keyframes: dict[str, Keyframe] = {}
        self._blobs: set[str] | None = None
        self._unsure: tuple[int, str] | None = None

    # --- names ------------------------------------------------------------------------------------

    def _record(self, number: int) -> str:
        return f"runs/{self.run}/log/{number:012d}"

    def _blob(self, name: str) -> str:
        return f"runs/{self.run}/blobs/{name}"

    def _inbox(self, suspension: str) -> str:
        return f"runs/{self.run}/inbox/{checked_suspension(suspension)}"

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

        Raises UnknownRun if there is no record at all, Damaged if numbers are missing.
        """
        with self._lock:
            numbers = self._numbers()
            if not numbers:
                raise UnknownRun(f"There is no run {self.run!r} at {self._objects.url}.")
            whole = range(1, numbers[-1] + 1)
            if len(numbers) != len(whole):
                lost = sorted(set(whole) - set(numbers))
                raise Damaged(
                    f"Run {self.run!r} is damaged: record {', '.join(map(str, lost[:5]))} of "
                    f"{numbers[-1]} is missing."
                )
            if numbers[-1] < self._newest:
                raise Damaged(
                    f"Run {self.run!r} is damaged: record {self._newest}, which was there, is gone."
                )
            self._newest = numbers[-1]
            self._unsure = None
            return self._newest

    def _numbers(self) -> list[int]:
        names = self._objects.sizes(f"runs/{self.run}/log")
        return sorted(int(name) for name in names if len(name) == 12 and name.isdecimal())

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
            for at in range(0, len(wanted), 256):
                some = wanted[at : at + 256]
                starts = self._objects.starts([self._record(n) for n in some], START)
                for number, start in zip(some, starts, strict=True):
                    self._take_head(number, start)
            heads = [self._heads[n] for n in range(first, self._newest + 1)]
            if heads and first == 1 and heads[0].header.previous is not None:
                raise Damaged(f"{described(self.run, 1)} names a record before it, and it is the first.")
            for before, head in pairwise(heads):
                follows(head, before)
            return heads

    def _head(self, number: int) -> Head:
        with self._lock:
            if number not in self._heads:
                if not 1 <= number <= self._newest:
                    raise UnknownRun(
                        f"Run {self.run!r} has no record {number}; its newest is {self._newest}."
                    )
                try:
                    start = self._objects.part(self._record(number), 0, START)
                except FileNotFoundError:
                    raise Damaged(f"{described(self.run, number)} is missing.") from None
                self._take_head(number, start)
                if number == self._newest:
                    self._starts = {number: start}  # for the summary, which lies there too
                for low, high in ((number - 1, number), (number, number + 1)):
                    if low in self._heads and high in self._heads:
                        follows(self._heads[high], self._heads[low])
            return self._heads[number]

    def _take_head(self, number: int, start: bytes) -> None:
        what = described(self.run, number)
        length = head_length(start, what)
        if length > len(start):
            start += self._objects.part(self._record(number), len(start), length)
        self._heads[number] = read_head(start, self._keyring, self.run, number)

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
            try:
                data = self._objects.part(self._record(number), low, high)
            except FileNotFoundError:
                raise Damaged(f"{described(self.run, number)} is missing.") from None
        view = memoryview(data)
        for name, (begin, end) in places.items():
            found[name] = view[begin - low : end - low]
        return found

    def _raw(self, head: Head, name: str, stored: Buffer) -> bytes:
        section = head.header.section(name)
        assert section is not None
        base = None if section.base is None else self._keyframe(name, section.base, head.header.number).raw
        return unpack_raw(section, memoryview(stored), base, described(self.run, head.header.number))

    def _keyframe(self, name: str, number: int, user: int) -> Keyframe:
        known = self._keyframes.get(name)
        if known is not None and known.number == number:
            return known
        if not 0 < number < user:
            raise Damaged(
                f"{described(self.run, user)} has a delta against record {number}, which isn't before it."
            )
        head = self._head(number)
        section = head.header.section(name)
        if section is None or section.base is not None:
            raise Damaged(
                f"{described(self.run, user)} has a delta against record {number}, which is no keyframe."
            )
        raw = self._raw(head, name, self._stored(head, (name,))[name])
        keyframe = Keyframe(number, raw, section.size)
        self._keyframes[name] = keyframe
        return keyframe

    def _parts(self, section: Section, raw: bytes, what: str) -> list[Buffer]:
        found, stream = references(section, raw, what)
        if not found:
            return [stream] if stream else []
        distinct = {reference.name: reference for reference in found}
        contents = self._several(list(distinct.values()))
        return join(found, stream, lambda reference: contents[reference.name])

    def _several(self, wanted: Sequence[Reference]) -> dict[str, bytearray]:
        if len(wanted) == 1 or self._objects.parallel == 1:
            return {reference.name: self._fetch(reference.name, reference.length) for reference in wanted}
        with ThreadPoolExecutor(self._objects.parallel, thread_name_prefix="snaprt-fetch") as pool:
            found = pool.map(lambda reference: self._fetch(reference.name, reference.length), wanted)
            return {reference.name: content for reference, content in zip(wanted, found, strict=True)}

    def _fetch(self, name: str, length: int) -> bytearray:
        what = f"Blob {name[:16]}… of run {self.run!r}"
        try:
            with self._objects.reader(self._blob(name)) as file:
                return blobs.decode(file.read, name, length, self._keyring, what)
        except FileNotFoundError:
            raise Damaged(f"{what} is missing.") from None

    # --- appending --------------------------------------------------------------------------------

    def append(
        self,
        kind: str,
        *,
        detail: Mapping[str, Any] | None = None,
        sections: Mapping[str, Iterable[Buffer]] | None = None,
        epoch: int = 0,
    ) -> Stored:
        """Appends a record; when this returns, it lasts.

        Raises Fenced if another process has appended since (RunExists, if that made the run), StoreError if
        the record couldn't be written. After a StoreError it may still have been, late; a later append
        takes that in.
        """
        with self._lock:
            self._ready()
            self._settle_unsure()
            packed = [
                pack(name, (sections or {})[name], self._basis(name))
                for name in arranged(list(sections or {}))
            ]
            added = self._put_blobs(packed)
            record = self._seal(kind, dict(detail or {}), packed, epoch)
            self._create(record)
            self._adopt(record, packed)
            return Stored(record.header, record.digest, added + record.size)

    def _basis(self, name: str) -> Keyframe | None:
        """The keyframe that a section is packed against, read from the store once if the log was opened
        anew."""
        if name not in DELTAS or not self._newest:
            return None
        found = self._head(self._newest).header.keyframes.get(name)
        if found is None:
            return None
        number, spent = found
        keyframe = self._keyframe(name, number, self._newest + 1)
        return Keyframe(number, keyframe.raw, keyframe.size, spent)

    def _seal(self, kind: str, detail: dict[str, Any], packed: Sequence[Packed], epoch: int) -> Sealed:
        number = self._newest + 1
        before = self._head(self._newest) if self._newest else None
        names = {each.section.name for each in packed}
        keyframes = dict(before.header.keyframes) if before else {}
        for each in packed:
            name = each.section.name
            if each.section.base is not None:
                keyframes[name] = (each.section.base, each.spent)
            elif each.raw is not None:
                keyframes[name] = (number, 0)
            else:
                keyframes.pop(name, None)
        header = Header(
            number=number,
            kind=kind,
            run=self.run,
            epoch=epoch,
            time=time.time(),
            previous=before.digest if before else None,
            interpreter=self._interpreter,
            state=number if "state" in names else before.header.state if before else None,
            summary=number if "summary" in names else before.header.summary if before else None,
            detail=detail,
            keyframes=keyframes,
            sections=tuple(each.section for each in packed),
        )
        return sealed(header, packed, self._keyring)

    def _put_blobs(self, packed: Sequence[Packed]) -> int:
        """Stores the blobs that aren't there yet; gives the bytes it wrote."""
        contents: dict[str, Buffer] = {}
        for each in packed:
            contents.update(each.blobs)
            if each.section.apart:
                contents[each.section.sha256] = b"".join(each.stored)
        if not contents:
            return 0
        folder = f"runs/{self.run}/blobs"
        if self._blobs is None:
            self._blobs = set(self._objects.sizes(folder)) if self._newest else set()
        new = [(name, content) for name, content in contents.items() if name not in self._blobs]
        if not new:
            return 0

        def put(item: tuple[str, Buffer]) -> int:
            name, content = item
            counted = _Counted(blobs.encode(content, name, self._keyring))
            self._objects.put(self._blob(name), counted)
            return counted.size

        if len(new) == 1 or self._objects.parallel == 1:
            written = sum(map(put, new))
        else:
            with ThreadPoolExecutor(self._objects.parallel, thread_name_prefix="snaprt-put") as pool:
                written = sum(pool.map(put, new))
        self._objects.settle(folder)
        self._blobs.update(name for name, _ in new)
        return written

    def _create(self, record: Sealed) -> None:
        number = record.header.number
        data = record.pieces[0] if len(record.pieces) == 1 else b"".join(record.pieces)
        for pause in (*PAUSES, None):
            try:
                self._objects.create(self._record(number), data)
                return
            except FileExistsError:
                if self._is_there(number, record.digest):
                    return
                raise self._lost(number) from None
            except Transient:
                # The request may have arrived: whoever made another record of this number would do it twice.
                self._unsure = (number, record.digest)
                if pause is None:
                    raise
                self._pause(pause)

    def _is_there(self, number: int, digest: str) -> bool:
        """Whether the record of that number is the one with that digest."""
        try:
            start = self._objects.part(self._record(number), 0, START)
            length = head_length(start, described(self.run, number))
            if length > len(start):
                start = self._objects.part(self._record(number), 0, length)
        except (FileNotFoundError, Damaged):
            return False
        return digest_of(start[:length]) == digest

    def _lost(self, number: int) -> StoreError:
        if number == 1:
            return RunExists(f"There is already a run {self.run!r} at {self._objects.url}.")
        return Fenced(
            f"Another process has written record {number} of run {self.run!r}: it owns the run now, and "
            "this one "
            f"stops. Nothing of what it was about to write was recorded."
        )

    def _settle_unsure(self) -> None:
        """Takes in a record of ours of which an earlier append couldn't say whether it arrived."""
        if self._unsure is None:
            return
        number, digest = self._unsure
        if self._is_there(number, digest):
            self._newest = max(self._newest, number)
            self._head(number)
        # If it isn't there it may still arrive; then the next create is lost to it, and that is Fenced: the
        # safe verdict.
        self._unsure = None

    def _adopt(self, record: Sealed, packed: Sequence[Packed]) -> None:
        head = record.pieces[0]
        number = record.header.number
        self._heads[number] = Head(record.header, record.digest, len(head))
        self._newest = number
        self._unsure = None
        self._starts = {}
        for each in packed:
            if each.raw is not None:
                self._keyframes[each.section.name] = Keyframe(number, each.raw, each.section.size)

    # --- answers ----------------------------------------------------------------------------------

    def put_answer(self, suspension: str, data: bytes) -> None:
        """Puts an answer into the inbox, signed. The first wins: raises AlreadyAnswered if there is one."""
        self._ready()
        name = self._inbox(suspension)
        header = {
            "run": self.run,
            "suspension": suspension,
            "time": time.time(),
            "sha256": hashlib.sha256(data).hexdigest(),
            "length": len(data),
            # Tells our own answer, of which only the acknowledgement was lost, from an equal one of another.
            "nonce": secrets.token_hex(16),
        }
        whole = seal(self._keyring, ANSWER, header) + data
        for pause in (*PAUSES, None):
            try:
                self._objects.create(name, whole)
                return
            except FileExistsError:
                if self._objects.read(name) == whole:
                    return
                raise AlreadyAnswered(
                    f"Suspension {suspension!r} of run {self.run!r} has its answer already; the first one "
                    "counts."
                ) from None
            except Transient:
                if pause is None:
                    raise
                self._pause(pause)

    def get_answer(self, suspension: str) -> bytes | None:
        """The answer to a suspension, proven, or None. Raises Damaged or WrongKey."""
        try:
            data = self._objects.read(self._inbox(suspension))
        except FileNotFoundError:
            return None
        what = f"The answer to suspension {suspension!r} of run {self.run!r}"
        header, length = unseal(self._keyring, ANSWER, data, what)
        if header.get("run") != self.run or header.get("suspension") != suspension:
            raise Damaged(
                f"{what} is really one to {header.get('suspension')!r} of {header.get('run')!r}: swapped."
            )
        answer = data[length:]
        if len(answer) != header.get("length") or hashlib.sha256(answer).hexdigest() != header.get("sha256"):
            raise Damaged(f"{what} doesn't prove right; its bytes were changed or cut.")
        return answer

    def answers(self) -> list[str]:
        """The suspensions that have an answer in the inbox."""
        return sorted(self._objects.sizes(f"runs/{self.run}/inbox"))

    # --- the whole --------------------------------------------------------------------------------

    def sizes(self) -> dict[str, int]:
        """Bytes of every object of the run, by its name below the run (`log/000000000001`)."""
        return {
            f"{folder}/{name}": size
            for folder in ("log", "blobs", "inbox")
            for name, size in sorted(self._objects.sizes(f"runs/{self.run}/{folder}").items())
        }


class _Counted:
    """Pieces, and how many bytes went by."""

    def __init__(self, pieces: Iterable[bytes]):
        self._pieces = pieces
        self.size = 0

    def __iter__(self) -> Any:
        for piece in self._pieces:
            self.size += len(piece)
            yield piece
