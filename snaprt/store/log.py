"""The log of one run: appending to its history.

Appending is creating the next number, which only one can. Whoever finds it taken is fenced: another process
owns the run. But an answer can get lost, and clients make lost requests again by themselves, so before that
verdict the record is read back: if it is ours, by its digest, the append succeeded. Blobs that are objects
are stored first; a record never refers to what isn't there.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from snaprt.errors import Damaged, Fenced, RunExists, StoreError
from snaprt.records import blobs
from snaprt.records.envelope import head_length
from snaprt.records.keys import Keyring
from snaprt.records.leaves import OWN_OBJECT, Leaves, Place
from snaprt.records.record import Head, Header, Sealed, arranged, described, digest_of, sealed
from snaprt.records.sections import DEPTHS, Base, Packed, pack, references
from snaprt.store.agenda import Agenda, OwnHint, lease_over
from snaprt.store.check import Report, check
from snaprt.store.failures import Transient, may_get_better
from snaprt.store.history import START, Buffer, History
from snaprt.store.inbox import Given, Inbox
from snaprt.store.lease import get_lease, put_lease
from snaprt.store.objects import Objects, in_parallel

# Waits before a write is tried again, in seconds. The client has its own attempts beneath.
PAUSES = (0.1, 0.5, 2.0)
# A disk that took no longer for the last record (seconds) is quick: a hop to a thread takes about as long.
_QUICK = 0.001
# So many heads of records are kept by whoever appends, and the bases'.
_HEADS = 128


@dataclass(frozen=True)
class Stored:
    """A record that was appended. `size` is what it added to the store, blobs included, in bytes."""

    header: Header
    digest: str
    size: int


@dataclass(frozen=True)
class _Unsure:
    """A record that is being written, until it is known whether it was. `added`: bytes of its blobs."""

    record: Sealed
    packed: Sequence[Packed]
    leaves: Leaves
    added: int
    attempt: str | None


class Log(History):
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
        super().__init__(objects, run, keyring)
        self._interpreter = dict(interpreter)
        self._ready = ready  # called before the first write: the probe
        self._pause = pause
        self._blobs: set[str] | None = None
        self._unsure: _Unsure | None = None
        self._took = math.inf  # seconds for the last record
        self._hurried = False
        self._inbox = Inbox(objects, run, keyring)
        self._agenda = Agenda(objects)
        self._hint = OwnHint(self._agenda, run)

    def append(
        self,
        kind: str,
        *,
        detail: Mapping[str, Any] | None = None,
        sections: Mapping[str, Iterable[Buffer]] | None = None,
        epoch: int = 0,
        attempt: str | None = None,
        look: float | Literal["as before"] | None = "as before",
        hurried: bool = False,
    ) -> Stored:
        """Appends a record; when this returns, it lasts. `hurried`: tries once, and waits for nothing else.

        `look`: when somebody should look at the run if nothing more is heard of it (seconds since the epoch;
        None: there's nothing to see to). A hint says so, put before the record; the one of before is removed.

        Raises Fenced if another process has appended since (RunExists, if that made the run), StoreError if
        the record couldn't be written. After a StoreError it may still have been, late. Who then makes the
        same append again says so by the same `attempt`: the very same bytes are created again, so that
        whichever request arrives, there is one record. Any other append first takes in what arrived.
        """
        with self._lock:
            self._hurried = hurried
            self._ready()
            if self._unsure is not None and attempt is not None and self._unsure.attempt == attempt:
                return self._complete(self._unsure)
            self._settle_unsure()
            detail = dict(detail or {})
            if look != "as before":
                detail["look"] = look
                self._hint.before(
                    look, self._newest + 1, moves="lease" in detail and not detail.get("deaths")
                )
            given = sections or {}
            stacks = {name: self._stack(name) for name in arranged(list(given))}
            leaves = Leaves(self._newest + 1, self._known, self._keyring)
            packed = [pack(name, given[name], leaves, stack) for name, stack in stacks.items()]
            added = self._put_blobs(packed, leaves)
            record = self._seal(kind, detail, packed, leaves, epoch)
            return self._complete(_Unsure(record, packed, leaves, added, attempt))

    @property
    def quick(self) -> bool:
        """Whether the store is a disk of this machine and took hardly any time for the last record: whoever
        appends a small one needn't go to a thread for it."""
        return self._objects.near and self._took < _QUICK

    def _complete(self, writing: _Unsure) -> Stored:
        """Creates a record that is ready to be written, for the first time or again."""
        record = writing.record
        self._unsure = writing  # until it is known
        try:
            self._create(record)
        except BaseException as error:
            # It may arrive yet, or have arrived whole though a sync failed: whoever made another record of
            # its number would fence himself.
            if not may_get_better(error):
                self._unsure = None
            raise
        self._adopt(record, writing.packed, writing.leaves)
        if "look" in record.header.detail:
            self._hint.after(self._hint_before(record.header.number))
        return Stored(record.header, record.digest, writing.added + record.size)

    def _hint_before(self, number: int) -> str | None:
        """The hint that stood before that record was written, by whoever, as far as what was read tells."""
        while (number := number - 1) in self._heads:
            detail = self._heads[number].header.detail
            if "look" in detail:
                look = detail["look"]
                return None if look is None else self._agenda.name(self.run, look, str(number))
        return None

    def _stack(self, name: str) -> list[Base]:
        """The bases that a section is packed against, read from the store once if the log was opened anew."""
        if name not in DEPTHS or not self._newest:
            return []
        pairs = self._head(self._newest).header.bases.get(name, ())
        if not pairs:
            return []
        top = pairs[-1][0]
        if top not in self._raws.get(name, {}):
            raw = self._bases(name, top, self._newest + 1)
            found = references(self._base(name, top, top + 1), raw, described(self.run, top))[0]
            self._places.update({reference.name: reference.place for reference in found})
        raws = self._raws[name]
        sections = [self._base(name, number, self._newest + 1) for number, _ in pairs]
        return [
            Base(number, raws[number], section.size, section.base is None, spent)
            for (number, spent), section in zip(pairs, sections, strict=True)
        ]

    def _known(self, name: str, alone: bool) -> Place | None:
        """Where a leaf lies already, as far as that was read or written here; objects are listed once."""
        found = self._places.get(name)
        if found is None and alone and name in self._listed():
            return OWN_OBJECT
        return found

    def _listed(self) -> set[str]:
        if self._blobs is None:
            self._blobs = set(self._objects.sizes(f"runs/{self.run}/blobs")) if self._newest else set()
        return self._blobs

    def _seal(
        self, kind: str, detail: dict[str, Any], packed: Sequence[Packed], leaves: Leaves, epoch: int
    ) -> Sealed:
        number = self._newest + 1
        before = self._head(self._newest) if self._newest else None
        names = {each.section.name for each in packed}
        bases = dict(before.header.bases) if before else {}
        for each in packed:
            bases[each.section.name] = tuple((base.number, base.spent) for base in each.bases)
        bases = {name: pairs for name, pairs in bases.items() if pairs}
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
            bases=bases,
            sections=tuple(each.section for each in packed),
            leaves=leaves.size,
        )
        return sealed(header, packed, leaves.inside, self._keyring)

    def _put_blobs(self, packed: Sequence[Packed], leaves: Leaves) -> int:
        """Stores the blobs that are objects and aren't there yet; gives the bytes it wrote."""
        contents: dict[str, Buffer] = dict(leaves.objects)
        for each in packed:
            if each.section.apart and each.section.sha256 not in self._listed():
                contents[each.section.sha256] = b"".join(each.stored)
        new = list(contents.items())
        if not new:
            return 0

        def put(item: tuple[str, Buffer]) -> int:
            name, content = item
            written = 0

            def pieces() -> Iterator[Buffer]:
                nonlocal written
                written = 0
                for piece in blobs.encode(content, name, self._keyring):
                    written += len(piece)
                    yield piece

            self._insist(lambda: self._objects.put(self._blob(name), pieces()))
            return written

        total = sum(in_parallel(self._objects, put, new, lambda item: memoryview(item[1]).nbytes))
        self._objects.settle(f"runs/{self.run}/blobs")
        self._listed().update(contents)
        return total

    def _create(self, record: Sealed) -> None:
        number = record.header.number
        data = b"".join(record.pieces)
        began = time.perf_counter()
        self._took = math.inf  # unless it is done
        try:
            self._insist(lambda: self._objects.create(self._record(number), data))
            self._took = time.perf_counter() - began
        except FileExistsError:
            if not self._is_there(number, record.digest):
                raise self._lost(number) from None

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
            f"Another process has written record {number} of run {self.run!r}: it owns the run now, and this "
            "one stops. Nothing of what it was about to write was recorded."
        )

    def refresh(self) -> int:
        newest = super().refresh()
        self._unsure = None
        return newest

    def _settle_unsure(self) -> None:
        """Takes in a record of ours of which an earlier append couldn't say whether it arrived."""
        if self._unsure is None:
            return
        record = self._unsure.record
        if self._is_there(record.header.number, record.digest):
            self._adopt(record, self._unsure.packed, self._unsure.leaves)
        # If it isn't there it may still arrive; then the next create is lost to it, and that is Fenced: the
        # safe verdict.
        self._unsure = None

    def _adopt(self, record: Sealed, packed: Sequence[Packed], leaves: Leaves) -> None:
        head = record.pieces[0]
        number = record.header.number
        self._heads[number] = Head(record.header, record.digest, len(head))
        self._newest = number
        if len(self._heads) > 2 * _HEADS:
            self._forget_heads(record.header)
        self._unsure = None
        self._places.update(leaves.places)
        for each in packed:
            self._raws[each.section.name] = {base.number: base.raw for base in each.bases}

    def _forget_heads(self, newest: Header) -> None:
        """A run may have any number of records; what is asked for of old ones is read again."""
        bases = {number for pairs in newest.bases.values() for number, _ in pairs}
        for number in [number for number in self._heads if number not in bases][:-_HEADS]:
            del self._heads[number]

    def put_answer(self, slot: str, data: bytes, attempt: str | None = None) -> None:
        """Puts an answer into the inbox, signed. The first wins: raises AlreadyAnswered if there is one.

        Who makes the same answer again after a StoreError says so by the same `attempt`.
        """
        self._ready()
        self._inbox.put(slot, data, attempt or secrets.token_hex(16), self._insist)

    def put_message(self, stream: str, first: int, data: bytes, attempt: str) -> int:
        """Puts a message behind the others of a stream and gives its number. `first` is from `free_message`;
        who makes the same again after a StoreError says so by the same `first` and `attempt`."""
        self._ready()
        return self._inbox.put_next(stream, first, data, attempt, self._insist)

    def free_message(self, stream: str) -> int:
        """The number that the next message of a stream will have, or a later one."""
        return self._inbox.free(stream)

    def get_answer(self, slot: str) -> Given | None:
        """What lies in a slot of the inbox, proven, or None. Raises Damaged or WrongKey."""
        return self._inbox.get(slot)

    def answers(self) -> list[str]:
        """The slots of the inbox that have something in them."""
        return self._inbox.names()

    def put_lease(self, lease: dict[str, Any], seconds: float | None = None) -> None:
        """Says that the owner is alive: a hint beside the log, overwritten, and nothing rests on it. With the
        `seconds` that the lease lasts, whoever looks for owners that died is told to look later."""
        put_lease(self._objects, self.run, self._keyring, lease)
        if seconds is not None:
            self._hint.move(lease_over(seconds))

    def get_lease(self) -> dict[str, Any]:
        """The newest lease; empty if there is none."""
        return get_lease(self._objects, self.run, self._keyring)

    def done(self) -> None:
        """Nobody needs to look at the run any more: takes the hint of its last record away."""
        self._hint.before(None, self._newest, moves=False)
        self._hint.after(None)

    def verify(self) -> Report:
        """Reads the whole run and lists everything that is wrong with it."""
        return check(self._objects, self.run, self._keyring)

    def _insist(self, create: Callable[[], None]) -> None:
        """Creates an object; tries again, with the same bytes, where the answer got lost."""
        for pause in () if self._hurried else PAUSES:
            try:
                return create()
            except Transient:
                self._pause(pause)
        create()
