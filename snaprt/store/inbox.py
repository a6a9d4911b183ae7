"""The inbox of a run: answers to its suspensions, from anywhere, and the first one wins.

An answer is an object of its own, created only if absent and signed, so that nobody without the key can
answer. It tells its run and suspension, so that one can't be moved to where it wasn't given.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable

from snaprt.errors import AlreadyAnswered, Damaged
from snaprt.records.envelope import ANSWER, seal, unseal
from snaprt.records.keys import Keyring
from snaprt.store.agenda import Agenda
from snaprt.store.names import checked_suspension
from snaprt.store.objects import Objects


class Inbox:
    """The answers of one run."""

    def __init__(self, objects: Objects, run: str, keyring: Keyring):
        self.run = run
        self._objects = objects
        self._keyring = keyring
        self._agenda = Agenda(objects)

    def _name(self, suspension: str) -> str:
        return f"runs/{self.run}/inbox/{checked_suspension(suspension)}"

    def put(
        self, suspension: str, data: bytes, nonce: str, insist: Callable[[Callable[[], None]], None]
    ) -> None:
        """Puts an answer in, and before it the hint that somebody should look; `insist` makes the request
        again where its answer got lost.

        The `nonce` tells our own answer, of which only the acknowledgement was lost, from an equal one of
        another. Raises AlreadyAnswered."""
        name = self._name(suspension)
        header = {
            "run": self.run,
            "suspension": suspension,
            "time": time.time(),
            "sha256": hashlib.sha256(data).hexdigest(),
            "length": len(data),
            "nonce": nonce,
        }
        whole = seal(self._keyring, ANSWER, header) + data
        self._agenda.now(self.run, suspension)
        try:
            insist(lambda: self._objects.create(name, whole))
        except FileExistsError:
            what = f"The answer to suspension {suspension!r} of run {self.run!r}"
            there, _ = unseal(self._keyring, ANSWER, self._objects.read(name), what)
            if there.get("nonce") != nonce:
                raise AlreadyAnswered(
                    f"Suspension {suspension!r} of run {self.run!r} has its answer already; the first one "
                    "counts."
                ) from None

    def get(self, suspension: str) -> bytes | None:
        """The answer to a suspension, proven, or None. Raises Damaged or WrongKey."""
        try:
            data = self._objects.read(self._name(suspension))
        except FileNotFoundError:
            return None
        what = f"The answer to suspension {suspension!r} of run {self.run!r}"
        header, length = unseal(self._keyring, ANSWER, data, what)
        if header.get("run") != self.run or header.get("suspension") != suspension:
            raise Damaged(
                f"{what} was given to {header.get('suspension')!r} of {header.get('run')!r}: it was moved "
                "or swapped."
            )
        answer = data[length:]
        if len(answer) != header.get("length") or hashlib.sha256(answer).hexdigest() != header.get("sha256"):
            raise Damaged(f"{what} doesn't prove right; its bytes were changed or cut.")
        return answer

    def names(self) -> list[str]:
        """The suspensions that have an answer."""
        return sorted(self._objects.sizes(f"runs/{self.run}/inbox"))
