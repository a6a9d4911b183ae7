"""A call that may have happened: an intent is on record and no result is.

What changes nothing, or can be repeated under its key, is called again. A `write` is never repeated
silently: its `reconcile` hook is asked what the other side knows, and where that doesn't say, a person is.
The question is a suspension like any other, `doubt-<step>-<record>`, answered through the inbox with

    {"done": VALUE}      it happened; VALUE is its result
    {"retry": true}      it didn't; call it, with the same key
    {"fail": "REASON"}   neither: `CallFailed` is raised in the agent

The record's number in the name makes a doubt of the same step that comes up again a new question: an answer
holds once. This file must not know logs or drivers: it says what to ask and what an answer means.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from snaprt.errors import CallFailed
from snaprt.kernel import Call, Done, NotDone
from snaprt.kernel.preview import in_words, preview
from snaprt.runtime.calls import invoke
from snaprt.runtime.failing import own
from snaprt.runtime.outcomes import Waiting
from snaprt.state import resources


@dataclass(frozen=True)
class Doubt:
    """An open question about a call. `note` says why `reconcile` couldn't settle it."""

    suspension: str
    call: Call
    note: str | None = None

    def as_json(self) -> dict[str, Any]:
        """What a record says of it, so that the same question stays out over a resume."""
        return {"step": self.call.step, "suspension": self.suspension, "note": self.note}

    @property
    def question(self) -> Waiting:
        """The doubt as a person's question."""
        return Waiting(self.suspension, self.payload)

    @property
    def payload(self) -> dict[str, Any]:
        """What a person gets to see, as JSON."""
        call = self.call
        return {
            "in_doubt": {
                "step": call.step,
                "tool": call.tool,
                "key": call.key,
                "args": preview(list(call.args)),
                "kwargs": preview(dict(call.kwargs)),
                "note": self.note,
            },
            "answers": ['{"done": VALUE}', '{"retry": true}', '{"fail": "REASON"}'],
        }


@dataclass(frozen=True)
class Retry:
    """The call didn't happen; make it."""


@dataclass(frozen=True)
class Settled:
    """What the call gave, by whoever looked at the other side."""

    value: Any = None
    error: BaseException | None = None


class Doubts:
    """The open questions of one run about its calls."""

    def __init__(self) -> None:
        self._open: dict[str, Doubt] = {}

    def __contains__(self, suspension: str) -> bool:
        return suspension in self._open

    def names(self) -> list[str]:
        """The suspensions of the questions."""
        return list(self._open)

    def questions(self) -> tuple[Waiting, ...]:
        """What a person gets to see."""
        return tuple(doubt.question for doubt in self._open.values())

    def as_json(self) -> list[dict[str, Any]]:
        """What a record says of them."""
        return [doubt.as_json() for doubt in self._open.values()]

    def keep(self, doubt: Doubt) -> None:
        """This question is out."""
        self._open[doubt.suspension] = doubt

    def ask(self, call: Call, why: str, newest: int) -> None:
        """A new question, which the newest record's number tells from an earlier one about the same call."""
        self.keep(Doubt(f"doubt-{call.step}-{newest}", call, why))

    def resolve(self, suspension: str, answer: Any) -> tuple[Call, Settled | Retry]:
        """What the answer to a question means for its call."""
        doubt = self._open.pop(suspension)
        return doubt.call, verdict(doubt, answer)

    def drop(self, step: int) -> None:
        """The agent doesn't wait for this call any more."""
        self._open = {name: doubt for name, doubt in self._open.items() if doubt.call.step != step}


async def reconciled(call: Call) -> Settled | Retry | str:
    """What the tool's own hook says; a text where it can't say, which is then a person's to know."""
    assert call.reconcile is not None  # else nobody asks
    try:
        args, kwargs = resources.real(call.args), resources.real(dict(call.kwargs))
        found = await invoke(call.reconcile, (call.key, *args), kwargs)
    except BaseException as error:
        return f"reconcile raised {in_words(own(error, 'reconcile'))}"
    if isinstance(found, Done):
        return Settled(found.value)
    if isinstance(found, NotDone):
        return Retry()
    return "reconcile doesn't know"


def misread(answer: Any) -> str | None:
    """What is wrong with an answer to a doubt; None if it is one of the three."""
    if not isinstance(answer, dict) or len(answer) != 1:
        return "it is no object with exactly one of done, retry and fail"
    if "done" in answer or answer.get("retry") is True or isinstance(answer.get("fail"), str):
        return None
    return "it is none of done, retry (true) and fail (a text)"


def verdict(doubt: Doubt, answer: Any) -> Settled | Retry:
    """What a person's answer means. One that isn't known fails the call, for it can't be given again."""
    wrong = misread(answer)
    if wrong is None and "done" in answer:
        return Settled(answer["done"])
    if wrong is None and "retry" in answer:
        return Retry()
    reason = answer["fail"] if wrong is None else f"{answer!r} doesn't settle it: {wrong}"
    return Settled(error=CallFailed(f"{doubt.call.tool} (step {doubt.call.step}): {reason}"))
