"""Read where a run stands from its log, without unpickling anything.

Every record's header says agent and status, and its `summary` section holds the five fields as JSON;
that is all this file looks at, so it works in a process that has neither the agent's code nor its
packages.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from snaprt.runtime.outcomes import RunInfo, Waiting
from snaprt.store import Log


def encode(summary: Mapping[str, Any]) -> bytes:
    """A kernel's summary as the bytes of a record's `summary` section."""
    return json.dumps(summary, separators=(",", ":")).encode()


def brief(log: Log) -> RunInfo:
    """What `ls` shows: two headers and one summary."""
    log.refresh()
    return _info(log, objects=[])


def full(log: Log) -> RunInfo:
    """What `show` shows: `brief`, and every object of the run with its size in bytes."""
    log.refresh()
    return _info(log, objects=list(log.sizes().items()))


def _info(log: Log, *, objects: list[tuple[str, int]]) -> RunInfo:
    last = log.last()
    summary = log.summary()
    detail = last.detail
    return RunInfo(
        run=log.run,
        status=detail["status"],
        agent=detail["agent"],
        started=detail["started"],
        updated=last.time,
        current_step=summary.get("current_step"),
        plan=summary.get("plan") or [],
        steps=summary.get("steps") or [],
        waiting=tuple(Waiting(item["suspension"], item["payload"]) for item in summary.get("waiting") or ()),
        until=detail.get("until"),
        rules=summary.get("rules") or {},
        result=summary.get("result"),
        error=detail.get("error") or summary.get("error"),
        records=last.number,
        bytes=sum(size for _, size in objects),
        where=log.url(),
        objects=objects,
    )
