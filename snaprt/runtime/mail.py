"""What others put into a run's inbox, as far as the run wants it: answers, messages, the ends of children,
and requests to cancel.

One listing of the inbox tells which slots are filled; only those that the run waits for are read. A run in
hand looks now and then, since what comes from another process makes no sound here, and at once where
something may lie there already: a question with a name, a stream that nobody read yet, a run that was just
taken over.

This file must not know when what came is recorded, nor what a call in doubt is: of that it knows the slots.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from snaprt import state
from snaprt.errors import NotSerialisable
from snaprt.kernel import Answer, Cancel, Event, Kernel, Message, Mistaken
from snaprt.kernel.questions import WrongAnswer, is_name
from snaprt.runtime.failing import rebuilding
from snaprt.runtime.patience import patiently
from snaprt.store import Log
from snaprt.store.inbox import Given
from snaprt.store.names import numbered

CANCEL = "_cancel"
"""The stream of requests to cancel."""


@dataclass(frozen=True)
class Wanted:
    """What a slot is for: a suspension, or the next message of a stream (`CANCEL` is one)."""

    suspension: str | None = None
    stream: str | None = None
    number: int = 0


@dataclass(frozen=True)
class Letter:
    """Something that the run wants and that has come."""

    wanted: Wanted
    given: Given


@dataclass(frozen=True)
class Taken:
    """A letter as the kernel takes it in; what its record says of it, and the value there."""

    event: Event
    told: dict[str, Any]
    dump: state.Dump | None = None


def opened(kernel: Kernel, letter: Letter) -> Taken:
    """Read a letter and hold it against what was asked. Raises NotRestorable for a value of a class that
    can't be had here: it stays where it is, for a process that can."""
    wanted, at = letter.wanted, letter.given.at
    with rebuilding("What was put in"):
        value, by = state.load(letter.given.data, joining=kernel.namespaces)
    about = {"by": by, "at": at}
    if wanted.suspension is not None:
        about = {"suspension": wanted.suspension, **about}
        try:
            value = kernel.judged(wanted.suspension, value)
            return Taken(Answer(wanted.suspension, value, by, at), about, state.dump(value, copied=True))
        except (WrongAnswer, NotSerialisable) as wrong:
            return Taken(Mistaken(wanted.suspension, str(wrong)), {**about, "refused": str(wrong)})
    assert wanted.stream is not None  # it is one of the two
    if wanted.stream == CANCEL:
        reason = value if isinstance(value, str) else None
        about = {"cancel": wanted.number, "reason": reason, **about}
        return Taken(Cancel(reason, wanted.number), about)
    about = {"inbox": wanted.stream, "number": wanted.number, **about}
    return Taken(Message(wanted.stream, wanted.number, value), about, state.dump(value, copied=True))


def again(kernel: Kernel, told: Mapping[str, Any], value: Any) -> None:
    """Deliver once more what a record says was taken in."""
    by, at = told["by"], told["at"]
    if "refused" in told:
        kernel.deliver(Mistaken(told["suspension"], told["refused"]))
    elif "suspension" in told:
        kernel.deliver(Answer(told["suspension"], value, by, at))
    elif "inbox" in told:
        kernel.deliver(Message(told["inbox"], told["number"], value))
    else:
        kernel.deliver(Cancel(told["reason"], told["cancel"]))


def wanted(kernel: Kernel, doubts: Iterable[str] = ()) -> dict[str, Wanted]:
    """What the run takes in, by slot: what it is told first comes first."""
    found = {slot: Wanted(suspension=slot) for slot in doubts}
    for slot, each in kernel.waits.slots().items():
        found[slot] = Wanted(suspension=each.id)
    streams: Mapping[str, int] = {**kernel.waits.next_messages(), CANCEL: kernel.waits.cancels + 1}
    for name, number in streams.items():
        found[numbered(name, number)] = Wanted(stream=name, number=number)
    return found


class Mail:
    """The inbox of one run in hand. `every`: seconds between two looks."""

    def __init__(self, log: Log, kernel: Kernel, *, patience: float, every: float, at_once: bool) -> None:
        self._log = log
        self._kernel = kernel
        self._patience = patience
        self._every = every
        self._next = 0.0 if at_once else time.monotonic() + every
        self._known: set[str] = set()

    def look_soon(self) -> None:
        """Something was put in."""
        self._next = 0.0

    def due_in(self) -> float:
        """Seconds until it is time to look."""
        waits = self._kernel.waits
        early = (waits.suspensions or waits.streams) and {
            slot
            for slot, each in wanted(self._kernel).items()
            if each.stream not in (None, CANCEL)
            or (each.suspension and is_name(each.suspension.split(".")[0]))
        }
        if early and early - self._known:
            return 0.0
        return max(self._next - time.monotonic(), 0.0)

    async def look(self, doubts: Iterable[str] = ()) -> list[Letter]:
        """What has come of what the run wants now."""
        wants = wanted(self._kernel, doubts)
        self._known = set(wants)
        self._next = time.monotonic() + self._every
        what = f"Looking into the inbox of run {self._log.run}"
        there = set(await patiently(what, self._patience, self._log.answers))
        letters = []
        for slot in wants:
            if slot in there:
                given = await patiently(what, self._patience, self._log.get_answer, slot)
                if given is not None and not self._is_late(wants[slot], given):
                    letters.append(Letter(wants[slot], given))
        if letters:
            self._next = 0.0  # where one is, the next may be
        return letters

    def _is_late(self, wants: Wanted, given: Given) -> bool:
        """Whether an answer was given when the question's time was over."""
        question = self._kernel.waits.suspensions.get(wants.suspension or "")
        return question is not None and question.until is not None and given.at > question.until
