"""Records: one immutable, numbered object of a run's log, as a value and as bytes.

This file puts a record together from its header and packed sections and proves one that was read. It does
no I/O: what it needs from elsewhere (bases, blobs) comes through functions. The byte format is
docs/format.md.

The head (see envelope.py) is signed; its header names the digest of every section and the digest of the
record before. So the digest of a head stands for the whole record and for all before it, and the chain can
be proven from heads alone.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from snaprt.errors import Damaged
from snaprt.records.blobs import Buffer
from snaprt.records.envelope import RECORD, seal, unseal
from snaprt.records.keys import Keyring
from snaprt.records.sections import Packed, Section

# A sections order: what a listing reads comes first, so that it lies in the first bytes that are fetched.
_ORDER = {"summary": 0, "values": 1, "state": 2}
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Header:
    """What a record says of itself. Proven before anybody sees it."""

    number: int  # 1, 2, 3, …
    kind: str  # start, intent, result, suspend, wake, claim, finish
    run: str
    epoch: int
    time: float  # seconds since 1970, by the writer's clock: to be shown, never relied on
    previous: str | None  # digest of the record before; None for the first
    interpreter: Mapping[str, Any]
    state: int | None  # number of the newest record that holds a whole state, this one included
    summary: int | None  # likewise for summaries
    detail: Mapping[str, Any]  # small JSON, by kind
    # By section name, its bases, the keyframe first: number, and stored bytes of the deltas against it.
    bases: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    sections: tuple[Section, ...] = ()
    leaves: int = 0  # bytes of the blobs behind the sections

    def section(self, name: str) -> Section | None:
        """The entry of a section, or None."""
        return next((section for section in self.sections if section.name == name), None)

    def as_json(self) -> dict[str, Any]:
        """The header as it is signed."""
        return {
            "number": self.number,
            "kind": self.kind,
            "run": self.run,
            "epoch": self.epoch,
            "time": self.time,
            "previous": self.previous,
            "interpreter": dict(self.interpreter),
            "state": self.state,
            "summary": self.summary,
            "detail": dict(self.detail),
            "bases": {name: [list(pair) for pair in pairs] for name, pairs in self.bases.items()},
            "sections": [section.as_json() for section in self.sections],
            "leaves": self.leaves,
        }

    @classmethod
    def from_json(cls, header: Mapping[str, Any]) -> Header:
        """Raises KeyError, TypeError or ValueError where the JSON isn't a header."""
        previous = header["previous"]
        if previous is not None and not _SHA256.fullmatch(previous):
            raise ValueError("previous")
        leaves = int(header["leaves"])
        if leaves < 0:
            raise ValueError("leaves")
        return cls(
            int(header["number"]),
            str(header["kind"]),
            str(header["run"]),
            int(header["epoch"]),
            float(header["time"]),
            previous,
            dict(header["interpreter"]),
            None if header["state"] is None else int(header["state"]),
            None if header["summary"] is None else int(header["summary"]),
            dict(header["detail"]),
            {
                str(name): tuple((int(number), int(spent)) for number, spent in pairs)
                for name, pairs in header["bases"].items()
            },
            tuple(Section.from_json(entry) for entry in header["sections"]),
            leaves,
        )


@dataclass(frozen=True)
class Record:
    """A proven record. `sections` has the ones that were asked for, each as parts: concatenated they are
    the bytes that were stored (cut elsewhere, perhaps)."""

    header: Header
    sections: Mapping[str, list[Buffer]] = field(repr=False)
    digest: str = ""


@dataclass(frozen=True)
class Sealed:
    """A record ready to be created: its bytes in pieces, and the header with its digest."""

    header: Header
    digest: str
    pieces: tuple[Buffer, ...] = field(repr=False)

    @property
    def size(self) -> int:
        """Bytes of the record object."""
        return sum(map(len, self.pieces))


def arranged(names: Sequence[str]) -> list[str]:
    """The order in which sections lie in a record."""
    return sorted(names, key=lambda name: (_ORDER.get(name, 1), name))


def sealed(header: Header, packed: Sequence[Packed], inside: Sequence[Buffer], keyring: Keyring) -> Sealed:
    """The bytes of a record with the blobs that lie inside. `header.sections` must be those of `packed`, in
    that order."""
    head = seal(keyring, RECORD, header.as_json())
    body = [segment for each in packed if not each.section.apart for segment in each.stored]
    return Sealed(header, digest_of(head), (head, *body, *inside))


def digest_of(head: bytes | memoryview) -> str:
    """The digest that the next record names: of the head, which names the digests of the rest."""
    return hashlib.sha256(head).hexdigest()


@dataclass(frozen=True)
class Head:
    """A proven head: the header, its digest, and where the body starts."""

    header: Header
    digest: str
    length: int

    def place(self, name: str) -> tuple[int, int]:
        """Where the stored bytes of a section lie in the record: start and end."""
        at = self.length
        for section in self.header.sections:
            size = 0 if section.apart else section.size
            if section.name == name:
                return at, at + size
            at += size
        raise KeyError(name)

    @property
    def leaves(self) -> int:
        """Where the blobs inside of the record start."""
        return self.length + sum(section.size for section in self.header.sections if not section.apart)

    @property
    def size(self) -> int:
        """How many bytes the whole record takes."""
        return self.leaves + self.header.leaves


def read_head(data: bytes | memoryview, keyring: Keyring, run: str, number: int) -> Head:
    """Proves a head and that it is the record which its place says. Raises Damaged or WrongKey."""
    what = described(run, number)
    found, length = unseal(keyring, RECORD, data, what)
    try:
        header = Header.from_json(found)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Damaged(
            f"{what} has a header that no snaprt of this format version writes ({error!r})."
        ) from error
    if header.run != run or header.number != number:
        raise Damaged(
            f"{what} is really record {header.number} of run {header.run!r}: it was swapped or moved. "
            f"Nothing of it was used."
        )
    return Head(header, digest_of(data[:length]), length)


def follows(head: Head, before: Head) -> None:
    """Raises Damaged unless `before` is the record that `head` was written after."""
    if head.header.previous != before.digest:
        raise Damaged(
            f"{described(head.header.run, head.header.number)} was written after another record than the one "
            "that lies before it now: the log was reordered, or a record was replaced."
        )


def starts(head: Head) -> None:
    """Raises Damaged unless the head can be the first of its run."""
    if head.header.previous is not None:
        raise Damaged(
            f"{described(head.header.run, head.header.number)} names a record before it, and it is the first."
        )


def described(run: str, number: int) -> str:
    """How messages name a record."""
    return f"Record {number} of run {run!r}"
