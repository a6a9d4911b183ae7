"""What a run keeps of its tool calls and its questions.

A `Step` is one call of a tool, a `Suspension` one wait for an answer. Both are frozen: what happens to
one makes a new one in the kernel's table. While a step is open it holds its `Call`, function and
arguments included, so that a restored run can issue exactly the same call again; afterwards it keeps what
people want to see of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from snaprt.kernel.events import Call, Effect

StepStatus = Literal["pending", "done", "failed", "cancelled", "refused"]
SuspensionStatus = Literal["open", "answered", "expired", "cancelled", "refused"]
SuspensionKind = Literal["question", "child"]


@dataclass(frozen=True)
class Step:
    """One call of a tool. Numbers count from 1 in the order of the calls."""

    id: int
    tool: str
    effect: Effect
    key: str
    status: StepStatus = "pending"
    call: Call | None = None
    """The call itself while the step is pending, else None."""
    output: Any = None
    """What it returned, as `preview` shows it."""
    error: str | None = None
    started: float | None = None
    ended: float | None = None
    attempts: tuple[Mapping[str, Any], ...] = ()
    """The attempts that failed before the last, as JSON."""
    approval: str | None = None
    """None, or "as asked" or "edited": whether a person approved the arguments or gave others."""

    def shown(self) -> dict[str, Any]:
        """As JSON, for a summary."""
        return {
            "id": self.id,
            "key": self.key,
            "tool": self.tool,
            "effect": self.effect,
            "status": self.status,
            "output": self.output,
            "error": self.error,
            "started": self.started,
            "ended": self.ended,
            "attempts": list(self.attempts),
            "approval": self.approval,
        }


class StepTexts:
    """The steps of a run as the JSON of `shown`, each encoded once: a run may have thousands, and every
    record tells of them all."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Step, str]] = {}

    def of(self, step: Step) -> str:
        """The text of a step as it is now."""
        known = self._known.get(step.id)
        if known is None or known[0] is not step:
            known = self._known[step.id] = (step, _encoded(step.shown()))
        return known[1]


_encoded = json.JSONEncoder(separators=(",", ":")).encode


def shown_before(text: Mapping[str, Any]) -> Step:
    """The step of which this is the JSON. It is over, as open ones hold their call."""
    return Step(**{**text, "attempts": tuple(text["attempts"])})


@dataclass(frozen=True)
class Suspension:
    """One wait for an answer, or for the end of a child. Ids are safe as a name in a path: `ask-1`, `ask-2`,
    … or the name that the agent gave (`review`, and `review.2` where it is used again)."""

    id: str
    payload: Any
    status: SuspensionStatus = "open"
    by: str | None = None
    """Who answered, if that is known."""
    at: float | None = None
    """When it was answered or expired, in seconds since the epoch."""
    kind: SuspensionKind = "question"
    name: str | None = None
    """The name that the agent gave."""
    expected: Any = None
    """The type that the answer has to have; None: anything."""
    schema: Mapping[str, Any] | None = None
    """The same as JSON Schema, for those who don't have the type."""
    until: float | None = None
    """When it expires, by the clock of the agent loop."""
    approval: Any = None
    """The tool whose call is to be approved, where it is snaprt that asks for that."""
    child: str | None = None
    """The run whose end is waited for."""
    mistakes: tuple[str, ...] = ()
    """Why answers that were given weren't taken."""

    @property
    def slot(self) -> str:
        """Where its answer is put. An answer that was refused has used up its slot."""
        return f"{self.id}.r{len(self.mistakes)}" if self.mistakes else self.id
