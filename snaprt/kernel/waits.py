"""What a run waits for from outside: questions, the ends of children, streams of messages, and cancellation.

An answer has a *slot*, a name under which exactly one thing can be put; a question gets another after an
answer was refused as wrong. Messages of a stream are numbered, and so are the requests to cancel. So what a
run still wants is known by name, can be put before it is wanted, and nothing is taken twice.

A message is taken only when a task waits for it: what nobody reads stays outside and doesn't grow the state.

The object is part of the state. This file must not know who looks into the slots, nor what for.
"""

from __future__ import annotations

import asyncio
from contextvars import Context
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from snaprt.kernel.preview import PAYLOAD_LIMIT, preview
from snaprt.kernel.questions import schema
from snaprt.kernel.steps import Suspension, SuspensionKind
from snaprt.kernel.tasks import AskFuture

if TYPE_CHECKING:
    from snaprt.kernel.loop import AgentLoop


_SHOWN = 100
"""Of the questions that are over, so many are shown, the newest: a summary stands in every record."""


class NoDefault:
    """Stands where `suspend` was given no default: a class, since it has to be the same after a restore."""


class Stream:
    """Messages from outside, in order. The queue does for their readers what asyncio's does."""

    def __init__(self) -> None:
        self.taken = 0
        self.queue: asyncio.Queue[Any] = asyncio.Queue()

    @property
    def wanted(self) -> bool:
        """Whether a task waits for a message that isn't here."""
        getters: Any = self.queue._getters  # type: ignore[attr-defined]  # asyncio shows them to nobody
        return sum(not getter.done() for getter in getters) > self.queue.qsize()


class Waits:
    """What one run waits for."""

    def __init__(self, loop: AgentLoop) -> None:
        self._loop = loop
        self.suspensions: dict[str, Suspension] = {}
        self.streams: dict[str, Stream] = {}
        self.cancels = 0
        """Requests to cancel that were taken."""
        self._futures: dict[str, AskFuture] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    # --- what the agent opens -----------------------------------------------------------------

    def open(
        self,
        payload: Any,
        *,
        name: str | None = None,
        expected: Any = None,
        timeout: float | None = None,
        default: Any = NoDefault,
        approval: Any = None,
    ) -> AskFuture:
        """A new question, and the future of its answer. Raises TypeError for a type that can't be checked."""
        shape = schema(expected) if expected is not None else None
        if name is None:
            asked = sum(each.kind == "question" and each.name is None for each in self.suspensions.values())
            suspension = f"ask-{asked + 1}"
        else:
            used = sum(each.name == name for each in self.suspensions.values())
            suspension = f"{name}.{used + 1}" if used else name
        until = None
        if timeout is not None:
            until = self._loop.time() + timeout
            self._timers[suspension] = self._loop.call_at(
                until, self.expire, suspension, default, context=Context()
            )
        return self._open(
            Suspension(
                suspension,
                payload,
                name=name,
                expected=expected,
                schema=shape,
                until=until,
                approval=approval,
            )
        )

    def open_child(self, suspension: str, run: str) -> AskFuture:
        """The wait for the end of a child."""
        return self._open(Suspension(suspension, None, kind="child", child=run))

    def _open(self, suspension: Suspension) -> AskFuture:
        future = AskFuture(loop=self._loop, suspension=suspension.id)
        self.suspensions[suspension.id] = suspension
        self._futures[suspension.id] = future
        return future

    def stream(self, name: str) -> Stream:
        """The stream of that name; the same for all who read it."""
        return self.streams.setdefault(name, Stream())

    # --- what comes ---------------------------------------------------------------------------

    def answer(self, suspension: str, value: Any, by: str | None, at: float | None) -> None:
        future = self._closed(suspension, "answered", by, at)
        if future is not None:
            future.set_result(value)

    def refuse(self, suspension: str, error: BaseException) -> None:
        """The state couldn't be saved with this question open."""
        future = self._closed(suspension, "refused")
        if future is not None:
            future.set_exception(error)

    def refuse_reader(self, name: str, error: BaseException) -> None:
        """The same for a task that waits for a message."""
        getters: Any = self.stream(name).queue._getters  # type: ignore[attr-defined]  # as above
        for getter in getters:
            if not getter.done():
                getter.set_exception(error)
                return

    def mistake(self, suspension: str, why: str) -> None:
        """An answer that was given is none. The question stays open, with another slot."""
        found = self._known(suspension)
        self.suspensions[suspension] = replace(found, mistakes=(*found.mistakes, why))

    def cancelled(self, suspension: str) -> bool:
        """Nobody waits any more. False if that was known."""
        return self._closed(suspension, "cancelled") is not None

    def expire(self, suspension: str, default: Any) -> None:
        """No answer came in time."""
        future = self._closed(suspension, "expired", at=self._loop.time())
        if future is None:
            return
        if default is NoDefault:
            future.set_exception(TimeoutError(f"nobody answered {suspension} in time"))
        else:
            future.set_result(default)

    def message(self, name: str, number: int, value: Any) -> None:
        """The next message of a stream. One that was taken already is dropped."""
        stream = self.stream(name)
        if number == stream.taken + 1:
            stream.taken = number
            stream.queue.put_nowait(value)

    def _known(self, suspension: str) -> Suspension:
        if suspension not in self.suspensions:
            raise ValueError(f"this run has no suspension {suspension}")
        return self.suspensions[suspension]

    def _closed(
        self, suspension: str, status: Any, by: str | None = None, at: float | None = None
    ) -> AskFuture | None:
        """Close a question; the future of whoever waits, or None if nobody does."""
        found = self._known(suspension)
        timer = self._timers.pop(suspension, None)
        if timer is not None:
            timer.cancel()
        future = self._futures.pop(suspension, None)
        if future is not None:
            # What was asked isn't needed any more, and may be large.
            self.suspensions[suspension] = replace(
                found, status=status, by=by, at=at, payload=None, expected=None, schema=None, approval=None
            )
        return future

    # --- what is open -------------------------------------------------------------------------

    def of_kind(self, kind: SuspensionKind) -> dict[str, Suspension]:
        """What is open, by id, oldest first."""
        return {
            name: each
            for name, each in self.suspensions.items()
            if each.status == "open" and each.kind == kind
        }

    def slots(self) -> dict[str, Suspension]:
        """Open questions and children by the slot of their answer."""
        return {each.slot: each for each in self.suspensions.values() if each.status == "open"}

    def next_messages(self) -> dict[str, int]:
        """By stream, the number of the message that a task waits for. They count from 1."""
        return {name: stream.taken + 1 for name, stream in self.streams.items() if stream.wanted}

    def overdue(self) -> bool:
        """Whether a question's time is over, so that an answer has to be looked for now."""
        now = self._loop.time()
        return any(each.until is not None and each.until <= now for each in self.slots().values())

    def forget(self) -> None:
        """The run has left: nobody waits here."""
        self._futures.clear()
        self._timers.clear()
        self.streams.clear()

    # --- what is shown ------------------------------------------------------------------------

    def shown(self) -> dict[str, Any]:
        """As JSON, for a summary: the open questions, and what else there is."""
        if not (self.suspensions or self.streams):
            return {"waiting": []}
        more = {
            "answered": [
                {"suspension": each.id, "status": each.status, "by": each.by, "at": each.at}
                for each in self.suspensions.values()
                if each.kind == "question" and each.status != "open"
            ][-_SHOWN:],
            "listening": list(self.next_messages()),
            "children": [
                {"run": each.child, "status": "open" if each.status == "open" else "ended"}
                for each in self.suspensions.values()
                if each.kind == "child"
            ],
        }
        waiting = [_shown(each) for each in self.of_kind("question").values()]
        return {"waiting": waiting, **{name: each for name, each in more.items() if each}}


def _shown(question: Suspension) -> dict[str, Any]:
    """A question as JSON; what it doesn't have isn't there."""
    more = {
        "slot": question.slot if question.slot != question.id else None,
        "answer": question.schema,
        "until": question.until,
        "refused": question.mistakes[-1] if question.mistakes else None,
        "approval": question.approval is not None or None,
    }
    return {
        "suspension": question.id,
        "payload": preview(question.payload, PAYLOAD_LIMIT),
        **{name: value for name, value in more.items() if value is not None},
    }
