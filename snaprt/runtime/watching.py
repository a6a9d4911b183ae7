"""What has happened to a run, as it happens: its records told as events, from any process that has the key.

The log is the only source. So a watcher that looks on from elsewhere, or later, is told the same in the same
order, each thing once, whatever process did it; and one that was away goes on after the record that it saw
last. Nothing is unpickled.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio

from snaprt.kernel.kernel import CHILD
from snaprt.records import Header
from snaprt.runtime.patience import patiently
from snaprt.store import Log

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0  # seconds between two looks at the log: the longer nothing happens


@dataclass(frozen=True)
class RunEvent:
    """One thing that happened to a run. `record` is the number of the record that says so, `at` is in seconds
    since the epoch.

    `kind` is one of: started, called (a step that isn't a read is about to be made), returned and failed (a
    step ended), emitted (`value` is what `snaprt.emit` was given, `step` the tool's if it was one),
    suspended, answered, child_ended, refused (an answer that was none), received (a message), cancelling,
    resumed (a process took the run over), finished (`detail` has its status). `detail` holds what the record
    says."""

    run: str
    record: int
    kind: str
    at: float
    step: int | None = None
    value: Any = None
    detail: Mapping[str, Any] = field(default_factory=dict)


async def watch(log: Log, *, after: int, follow: bool, patience: float) -> AsyncIterator[RunEvent]:
    """The events of all records behind `after`; with `follow` also of those to come, until the run has
    ended."""
    pause = _FIRST_PAUSE
    while True:
        what = f"Reading run {log.run}"
        newest = await patiently(what, patience, log.refresh)
        if newest > after:
            pause = _FIRST_PAUSE
            for header in await patiently(what, patience, log.headers, after + 1):
                emitted = []
                if any(section.name == "events" for section in header.sections):
                    record = await patiently(what, patience, log.read, header.number, ["events"])
                    emitted = json.loads(b"".join(bytes(part) for part in record.sections["events"]))
                for event in _told(header, emitted):
                    yield event
                after = header.number
                if header.kind == "finish" and header.number == newest:
                    return
        if not follow or (await patiently(what, patience, log.header)).kind == "finish":
            return
        await anyio.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE)


def _told(header: Header, emitted: list[dict[str, Any]]) -> Iterator[RunEvent]:
    """A record's events. What was emitted comes first: it happened before what the record is about."""
    detail = header.detail

    def event(kind: str, at: float = header.time, **more: Any) -> RunEvent:
        return RunEvent(header.run, header.number, kind, at, **more)

    for each in emitted:
        yield event("emitted", each["at"], step=each.get("step"), value=each["value"])
    match header.kind:
        case "start":
            yield event("started", detail={"agent": detail["agent"], "parent": detail.get("parent")})
        case "claim":
            owner = detail["owner"]
            yield event("resumed", detail={"host": owner.get("host"), "pid": owner.get("pid")})
        case "intent":
            for step, tool in zip(detail["steps"], detail["tools"], strict=True):
                yield event("called", step=step, detail={"tool": tool})
        case "result":
            for item in detail["steps"]:
                kind = "returned" if item["ok"] else "failed"
                yield event(kind, item["ended"], step=item["step"], detail={"tool": item["tool"]})
        case "suspend":
            yield event("suspended", detail={"waiting": detail["waiting"], "until": detail["until"]})
        case "wake":
            for taken in detail["taken"]:
                yield event(_kind(taken), taken["at"], detail=taken)
        case "finish":
            said = {name: detail[name] for name in ("status", "result", "error", "reason") if name in detail}
            yield event("finished", detail=said)


def _kind(taken: Mapping[str, Any]) -> str:
    if "refused" in taken:
        return "refused"
    if "suspension" in taken:
        return "child_ended" if taken["suspension"].startswith(CHILD) else "answered"
    return "received" if "inbox" in taken else "cancelling"
