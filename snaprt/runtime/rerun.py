"""Run lines of an agent again against what they did before: `save="effects"` after a crash.

State was saved with intents and suspends only, so results were recorded that the newest state doesn't
know. The agent runs again from there; each call that it issues is held against the record before anything
is executed, and the recorded results are fed in the order in which they arrived. Where the agent asks for
something else than the record has, the stretch wasn't repeatable, and `Diverged` says both sides. After
the last recorded result everything is live again.

This file must not know logs: it is given what was recorded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from snaprt.errors import Diverged
from snaprt.kernel import Call, Result
from snaprt.kernel.preview import preview


@dataclass(frozen=True)
class Recorded:
    """The result of a step that the state doesn't know, and what was called."""

    result: Result
    called: dict[str, Any]


def as_called(call: Call) -> dict[str, Any]:
    """What a record says of a call, to know it again: the tool, and its arguments as JSON shows them."""
    return {"tool": call.tool, "args": preview(list(call.args)), "kwargs": preview(dict(call.kwargs))}


class Rerun:
    """Recorded results that wait for their calls to be issued again. Each batch arrived at once."""

    def __init__(self, batches: Iterable[Sequence[Recorded]] = ()) -> None:
        self._batches = deque(batch for batch in batches if batch)
        self._issued: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._batches)

    def takes(self, call: Call) -> bool:
        """Whether the record has this call's result, so that it must not be made. Raises Diverged."""
        for batch in self._batches:
            for recorded in batch:
                if recorded.result.step == call.step:
                    now = as_called(call)
                    if now != recorded.called:
                        raise Diverged(
                            f"Step {call.step} was {_text(recorded.called)} and is {_text(now)} now: lines "
                            "that run again after a crash (save='effects') have to repeat themselves. "
                            "Nothing was called. Take what isn't repeatable into a tool, or save always."
                        )
                    self._issued.add(call.step)
                    return True
        return False

    def next(self) -> Sequence[Result]:
        """The next batch of results, if all its calls have been issued; else nothing."""
        if not self._batches or any(each.result.step not in self._issued for each in self._batches[0]):
            return ()
        return [each.result for each in self._batches.popleft()]

    def missing(self) -> str:
        """The calls on record that the agent didn't issue this time."""
        return ", ".join(
            f"step {each.result.step} ({_text(each.called)})"
            for each in self._batches[0]
            if each.result.step not in self._issued
        )


def _text(called: dict[str, Any]) -> str:
    parts = (
        [repr(each) for each in called["args"]] if isinstance(called["args"], list) else [str(called["args"])]
    )
    kwargs = called["kwargs"] if isinstance(called["kwargs"], dict) else {}
    return (
        f"{called['tool']}({', '.join([*parts, *(f'{name}={value!r}' for name, value in kwargs.items())])})"
    )
