"""What is new between two looks at a run.

A run is followed by looking at it every now and then: `Run.progress()` is cheap and gives the summary
that also stands in every record. These pure functions turn two looks into events, so that every kind
of screen tells the same story. An event is a dict ready for JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from snaprt.kernel.interrupts import is_ctrl_c
from snaprt.kernel.preview import shorten

Summary = Mapping[str, Any]


def changes(run: str, before: Summary, now: Summary) -> Iterator[dict[str, Any]]:
    """Events since `before` (empty: since the start), steps first: they are why a plan moves."""
    known = {step["id"]: step["status"] for step in before.get("steps") or ()}
    for step in now.get("steps") or ():
        if known.get(step["id"]) != step["status"]:
            yield _step_event(run, step)
    plan = now.get("plan") or []
    if plan != (before.get("plan") or []):
        yield {"event": "plan", "run": run, "plan": plan}


def as_json(value: Any) -> Any:
    """The value itself if JSON can say it, else `{"repr": …}`, which never fails either."""
    try:
        json.dumps(value, allow_nan=False)
    except BaseException as error:  # a class derived from dict may raise anything
        if is_ctrl_c(error):
            raise
        return {"repr": text_of(value)}
    return value


def text_of(value: Any) -> str:
    """The whole `repr`; of a value whose `repr` fails, as much as can be had."""
    try:
        return repr(value)
    except BaseException as error:
        if is_ctrl_c(error):
            raise
        return shorten(value)


def _step_event(run: str, step: dict[str, Any]) -> dict[str, Any]:
    event = {"event": "step", "run": run, "step": step["id"], "tool": step["tool"], "status": step["status"]}
    for field in ("effect", "output", "error"):
        if step.get(field) is not None:
            event[field] = as_json(step[field])
    return event
