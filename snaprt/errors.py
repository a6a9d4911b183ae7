"""The one family of errors.

Every error that snaprt raises on purpose is a `SnaprtError`; its text says what happened, where, and
the next thing to do, in one short paragraph, so that the command line can print it as it is. This
file knows no floor: each floor raises the classes that stand under its heading.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class SnaprtError(Exception):
    """Root of the family. `str(error)` is one paragraph meant for a person."""


# --- frames ---------------------------------------------------------------------------------------


class UnsupportedInterpreter(SnaprtError):
    """This interpreter has no proven frame table; frames are never captured by guess."""


class NotCapturable(SnaprtError):
    """A frame can't be frozen now (it runs, or its layout doesn't match what the table says)."""


class CodeChanged(SnaprtError):
    """Code of a live frame or closure isn't the code that was saved. Names both sides."""


# --- state ----------------------------------------------------------------------------------------


class NotSerialisable(SnaprtError):
    """State holds handles that can't travel. `offenders` has every one, with path and hint."""

    def __init__(self, message: str = "", offenders: Iterable[Any] = ()) -> None:
        super().__init__(message)
        self.offenders = tuple(offenders)


class NotRestorable(SnaprtError):
    """The bytes of a state are sound, but an object in it can't be rebuilt in this process."""


class ResourceUnavailable(SnaprtError):
    """A declared resource is used while closed, or its factory isn't known here."""


# --- records --------------------------------------------------------------------------------------


class Damaged(SnaprtError):
    """Bytes of a record or blob don't prove right. Nothing of them was used."""


class WrongKey(SnaprtError):
    """A record is signed with another key; names both key ids."""


class MissingKey(SnaprtError):
    """No signing key, or one that can't be used."""


# --- store ----------------------------------------------------------------------------------------


class StoreError(SnaprtError):
    """The store can't be opened, read or written; says which URL and why."""


class MissingExtra(StoreError):
    """The URL's filesystem needs a package that isn't installed; says which."""


class UnknownRun(StoreError):
    """No run of that id at this store."""


class RunExists(StoreError):
    """A run of that id is already at this store."""


class Fenced(StoreError):
    """Another process wrote the record that this one was about to write: it owns the run now."""


class RunBusy(StoreError):
    """Another process holds the run; says who and until when (`until`, in seconds since the epoch, where
    that is known)."""

    until: float | None = None


class AlreadyAnswered(StoreError):
    """The suspension has its answer; the first one won."""


class UnknownSuspension(StoreError):
    """The run doesn't wait for a suspension of that id."""


# --- kernel ---------------------------------------------------------------------------------------


class NotInAgent(SnaprtError):
    """Agent code asked for I/O, a thread or another loop's future; says where and the mend."""


class OutsideAgent(SnaprtError):
    """An operation of agents (`suspend`, `plan`, …) was called where no agent runs."""


class Rejected(SnaprtError):
    """A person rejected a call that needs approval; the text is the reason."""


class ChildCancelled(SnaprtError):
    """A child run ended because somebody cancelled it; says which."""


# --- runtime --------------------------------------------------------------------------------------


class RulesChanged(SnaprtError):
    """The rules in force differ from today's; carries a diff."""


class Diverged(SnaprtError):
    """Lines that run again issue another call than the one on record. Nothing of it was executed."""


class CallFailed(SnaprtError):
    """A call that may or may not have happened was declared failed by a person."""


class Stalled(SnaprtError):
    """Every task waits, and nothing that could wake one of them is left."""


class UsageError(SnaprtError):
    """A target, argument or option that can't be used; exit code 2 on the command line."""
