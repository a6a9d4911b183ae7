"""What a caller gets to see of a run: how it ended, what it waits for, where it stands.

Plain frozen data. This file must not know how a run is driven or stored: it is made from a record's
header and summary, which can be read without unpickling anything, or from the live kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from snaprt.kernel import Kernel


@dataclass(frozen=True)
class Waiting:
    """One open question: the suspension's id, and the payload that the agent gave to `suspend`.

    `answer` is the JSON Schema of the answer, if it has to have a type; `until` when it expires (seconds
    since the epoch); `refused` what was wrong with the last answer."""

    suspension: str
    payload: Any
    answer: Mapping[str, Any] | None = None
    until: float | None = None
    refused: str | None = None


@dataclass(frozen=True)
class Completed:
    """The agent returned `value`."""

    run: str
    value: Any


@dataclass(frozen=True)
class Suspended:
    """The run has left the process. It goes on when a question in `waiting` is answered, a message is put
    into an inbox of `listening`, a run of `children` ends, or at `until` (seconds since the epoch; None when
    no timer runs)."""

    run: str
    waiting: tuple[Waiting, ...]
    until: float | None = None
    listening: tuple[str, ...] = ()
    children: tuple[str, ...] = ()


@dataclass(frozen=True)
class Failed:
    """The agent raised `error`; `traceback` is its text, also when the error came from another process."""

    run: str
    error: BaseException
    traceback: str


@dataclass(frozen=True)
class Cancelled:
    """The agent was cancelled, or ended by a cancellation of its own."""

    run: str
    reason: str


def suspended(kernel: Kernel, doubts: tuple[Waiting, ...]) -> Suspended:
    """What a run that leaves, or doesn't come back yet, waits for; `doubts` are the questions about its
    calls."""
    mine = (
        Waiting(each.id, each.payload, each.schema, each.until, each.mistakes[-1] if each.mistakes else None)
        for each in kernel.open_suspensions().values()
    )
    return Suspended(
        kernel.run,
        (*doubts, *mine),
        kernel.next_timer(),
        tuple(kernel.waits.next_messages()),
        tuple(kernel.open_children().values()),
    )


Outcome = Completed | Suspended | Failed | Cancelled


@dataclass(frozen=True)
class RunInfo:
    """Where a run stands. Times are seconds since the epoch, sizes are bytes at the store.

    `status` is running, suspended, completed, failed or cancelled. "running" means that the newest
    record leaves work to do: a process has it in hand, or had and died. `open_children` are those of
    `children` whose end it waits for.
    """

    run: str
    status: str
    agent: str
    started: float
    updated: float
    current_step: str | None = None
    plan: list[dict[str, Any]] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    waiting: tuple[Waiting, ...] = ()
    until: float | None = None
    listening: tuple[str, ...] = ()
    answered: list[dict[str, Any]] = field(default_factory=list)
    parent: str | None = None
    children: tuple[str, ...] = ()
    open_children: tuple[str, ...] = ()
    rules: Mapping[str, Any] = field(default_factory=dict)
    result: Any = None
    error: str | None = None
    records: int = 0
    bytes: int = 0
    where: str = ""
    objects: list[tuple[str, int]] = field(default_factory=list)
