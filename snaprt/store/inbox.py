"""The inbox of a run: what others put in for it, from anywhere, and the first one wins.

What is put in is an object of its own in a slot (a suspension's, or the next of a stream), created only if
absent and signed, so that nobody without the key can answer. It tells its run and slot, so that one can't
be moved to where it wasn't given.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from snaprt.errors import AlreadyAnswered, Damaged
from snaprt.records.envelope import ANSWER, seal, unseal
from snaprt.records.keys import Keyring
from snaprt.store.agenda import Agenda
from snaprt.store.names import checked_suspension, numbered
from snaprt.store.objects import Objects

_NUMBER = re.compile(r"m([0-9]{12})")


@dataclass(frozen=True)
class Given:
    """What was put into a slot, proven, and when (seconds since the epoch, by the clock of who put it in)."""

    data: bytes
    at: float


class Inbox:
    """What was given to one run."""

    def __init__(self, objects: Objects, run: str, keyring: Keyring):
        self.run = run
        self._objects = objects
        self._keyring = keyring
        self._agenda = Agenda(objects)

    def _name(self, slot: str) -> str:
        return f"runs/{self.run}/inbox/{checked_suspension(slot)}"

    def put(self, slot: str, data: bytes, nonce: str, insist: Callable[[Callable[[], None]], None]) -> None:
        """Puts something in, and before it the hint that somebody should look; `insist` makes the request
        again where its answer got lost.

        The `nonce` tells our own object, of which only the acknowledgement was lost, from an equal one of
        another. Raises AlreadyAnswered."""
        name = self._name(slot)
        header = {
            "run": self.run,
            "suspension": slot,
            "time": time.time(),
            "sha256": hashlib.sha256(data).hexdigest(),
            "length": len(data),
            "nonce": nonce,
        }
        whole = seal(self._keyring, ANSWER, header) + data
        self._agenda.now(self.run, slot)
        try:
            insist(lambda: self._objects.create(name, whole))
        except FileExistsError:
            what = f"The answer to suspension {slot!r} of run {self.run!r}"
            there, _ = unseal(self._keyring, ANSWER, self._objects.read(name), what)
            if there.get("nonce") != nonce:
                raise AlreadyAnswered(
                    f"Suspension {slot!r} of run {self.run!r} has its answer already; the first one counts, "
                    "and is taken in when the run is resumed."
                ) from None

    def put_next(
        self, stream: str, first: int, data: bytes, nonce: str, insist: Callable[[Callable[[], None]], None]
    ) -> int:
        """Puts a message into the first free slot of a stream from `first` on, and gives its number.

        Who has to try again does it with the same `first` and `nonce`: a message that arrived is found."""
        number = first
        while True:
            try:
                self.put(numbered(stream, number), data, nonce, insist)
            except AlreadyAnswered:
                number += 1
            else:
                return number

    def free(self, stream: str) -> int:
        """A number from which on the stream's slots were free a moment ago."""
        taken = [
            int(match[1])
            for name in self.names()
            if name.startswith(f"{stream}.") and (match := _NUMBER.fullmatch(name[len(stream) + 1 :]))
        ]
        return max(taken, default=0) + 1

    def get(self, slot: str) -> Given | None:
        """What lies in a slot, proven, or None. Raises Damaged or WrongKey."""
        try:
            data = self._objects.read(self._name(slot))
        except FileNotFoundError:
            return None
        what = f"The answer to suspension {slot!r} of run {self.run!r}"
        header, length = unseal(self._keyring, ANSWER, data, what)
        if header.get("run") != self.run or header.get("suspension") != slot:
            raise Damaged(
                f"{what} was given to {header.get('suspension')!r} of {header.get('run')!r}: it was moved "
                "or swapped."
            )
        answer = data[length:]
        if len(answer) != header.get("length") or hashlib.sha256(answer).hexdigest() != header.get("sha256"):
            raise Damaged(f"{what} doesn't prove right; its bytes were changed or cut.")
        return Given(answer, header["time"])

    def names(self) -> list[str]:
        """The slots that have something in them."""
        return sorted(self._objects.sizes(f"runs/{self.run}/inbox"))
