"""Check an answer before it is put into the inbox, where the first one counts for ever.

Questions of the agent take any answer. Those of snaprt itself (an approval, a call in doubt) know their
answers, and a slip there would be final; so it is refused here, with what was expected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from snaprt.errors import UnknownSuspension, UsageError
from snaprt.kernel.approvals import mistake
from snaprt.runtime.doubts import misread


def check(run: str, waiting: Sequence[Mapping[str, Any]], suspension: str | None, value: Any) -> str:
    """The id of the question that `value` answers. `waiting` is what the run's summary says."""
    open_questions = {item["suspension"]: item["payload"] for item in waiting}
    if suspension is None and len(open_questions) == 1:
        suspension = next(iter(open_questions))
    if suspension is None or suspension not in open_questions:
        raise UnknownSuspension(_which(run, list(open_questions), suspension))
    payload = open_questions[suspension]
    wrong = None
    if isinstance(payload, dict) and set(payload) == {"approve", "args", "kwargs"}:
        wrong = mistake(value)
        known = '{"approved": true}, {"approved": false, "reason": "…"} or {"approved": true, "args": […]}'
    elif isinstance(payload, dict) and "in_doubt" in payload:
        wrong = misread(value)
        known = '{"done": VALUE}, {"retry": true} or {"fail": "REASON"}'
    if wrong is not None:
        raise UsageError(f"{value!r} doesn't answer {suspension} of run {run}: {wrong}. Answer {known}.")
    return suspension


def _which(run: str, names: list[str], asked: str | None) -> str:
    if not names:
        return f"Run {run} waits for no answer. Look with `snaprt show {run}`."
    listed = ", ".join(names)
    if asked is None:
        return f"Run {run} has several questions open: {listed}. Say which with suspension= (--suspension)."
    return f"Run {run} has no open question {asked!r}. Open: {listed}."
