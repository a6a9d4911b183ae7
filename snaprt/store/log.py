"""The log of one run: appending to its history.

Appending is creating the next number, which only one can. Whoever finds it taken is fenced: another process
owns the run. But an answer can get lost, and clients make lost requests again by themselves, so before that
verdict the record is read back: if it is ours, by its digest, the append succeeded. Blobs are stored first;
a record never refers to what isn't there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from snaprt.errors import Damaged, Fenced, RunExists, StoreError
from snaprt.records import blobs
from snaprt.records.envelope import head_length
from snaprt.records.keys import Keyring
from snaprt.records.record import Head, Header, Sealed, arranged, described, digest_of, sealed
from snaprt.records.sections import DELTAS, Keyframe, Packed, pack
from snaprt.store.check import Report, check
from snaprt.store.failures import Transient
from snaprt.store.history import START, Buffer, History
from snaprt.store.inbox import Inbox
from snaprt.store.lease import get_lease, put_lease
from snaprt.store.objects import Objects, in_parallel

# Waits before a write is tried again, in seconds. The client has its own attempts beneath.
PAUSES = (0.1, 0.5, 2.0)


@dataclass(frozen=True)
class Stored:
    """A record that was appended. `size` is what it added to the store, blobs included, in bytes."""

    header: Header
    digest: str
    size: int


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
        self._unsure: tuple[int, str] | None = None
        self._inbox = Inbox(objects, run, keyring)

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
            written = 0

            def pieces() -> Iterator[bytes]:
                nonlocal written
                written = 0
                for piece in blobs.encode(content, name, self._keyring):
                    written += len(piece)
                    yield piece

            self._insist(lambda: self._objects.put(self._blob(name), pieces()))
            return written

        total = sum(in_parallel(self._objects, put, new, lambda item: memoryview(item[1]).nbytes))
        self._objects.settle(folder)
        self._blobs.update(name for name, _ in new)
        return total

    def _create(self, record: Sealed) -> None:
        number = record.header.number
        data = record.pieces[0] if len(record.pieces) == 1 else b"".join(record.pieces)
        try:
            self._insist(lambda: self._objects.create(self._record(number), data))
        except FileExistsError:
            if not self._is_there(number, record.digest):
                raise self._lost(number) from None
        except Transient:
            # It may arrive yet: whoever then made another record of this number would be fenced by himself.
            self._unsure = (number, record.digest)
            raise

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

    def put_answer(self, suspension: str, data: bytes) -> None:
        """Puts an answer into the inbox, signed. The first wins: raises AlreadyAnswered if there is one."""
        self._ready()
        self._inbox.put(suspension, data, self._insist)

    def get_answer(self, suspension: str) -> bytes | None:
        """The answer to a suspension, proven, or None. Raises Damaged or WrongKey."""
        return self._inbox.get(suspension)

    def answers(self) -> list[str]:
        """The suspensions that have an answer in the inbox."""
        return self._inbox.names()

    def put_lease(self, lease: dict[str, Any]) -> None:
        """Says that the owner is alive: a hint beside the log, overwritten, and nothing rests on it."""
        put_lease(self._objects, self.run, self._keyring, lease)

    def get_lease(self) -> dict[str, Any]:
        """The newest lease; empty if there is none."""
        return get_lease(self._objects, self.run, self._keyring)

    def verify(self) -> Report:
        """Reads the whole run and lists everything that is wrong with it."""
        return check(self._objects, self.run, self._keyring)

    def _insist(self, create: Callable[[], None]) -> None:
        """Creates an object; tries again, with the same bytes, where the answer got lost."""
        for pause in PAUSES:
            try:
                return create()
            except Transient:
                self._pause(pause)
        create()
