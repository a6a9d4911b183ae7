"""Read where a run stands from its log, without unpickling anything.

Every record's header says agent and status, and its `summary` section holds the five fields as JSON;
that is all this file looks at, so it works in a process that has neither the agent's code nor its
packages.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from snaprt.kernel import Kernel
from snaprt.records import Header
from snaprt.runtime.outcomes import RunInfo, Waiting
from snaprt.store import Listed, Log


def encode(kernel: Kernel, also_waiting: Iterable[Waiting] = ()) -> bytes:
    """A kernel's summary as the bytes of a record's `summary` section, with the runtime's own questions."""
    rest = kernel.brief()
    rest["waiting"] += [{"suspension": each.suspension, "payload": each.payload} for each in also_waiting]
    steps = ",".join(kernel.step_texts())
    return f'{{"steps":[{steps}],{_encoded(rest)[1:]}'.encode()


_encoded = json.JSONEncoder(separators=(",", ":")).encode


def brief(listed: Listed) -> RunInfo:
    """What `ls` shows: the newest header and summary; a damaged run is shown as such."""
    if listed.header is None:
        return RunInfo(listed.run, "damaged", "?", 0.0, 0.0, error=str(listed.error))
    return _info(listed.run, listed.header, listed.summary)


def full(log: Log) -> RunInfo:
    """What `show` shows: `brief`, and every object of the run with its size in bytes."""
    where = log.url(1).rpartition("/log/")[0]
    objects = [(f"{where}/{name}", size) for name, size in log.sizes().items()]
    return _info(log.run, log.header(), log.summary(), where=where, objects=objects)


def _info(
    run: str,
    last: Header,
    summary: Mapping[str, Any],
    where: str = "",
    objects: list[tuple[str, int]] | None = None,
) -> RunInfo:
    detail = last.detail
    return RunInfo(
        run=run,
        status=detail["status"],
        agent=detail["agent"],
        started=detail["started"],
        updated=last.time,
        current_step=summary.get("current_step"),
        plan=summary.get("plan") or [],
        steps=summary.get("steps") or [],
        waiting=tuple(
            Waiting(
                item["suspension"],
                item["payload"],
                item.get("answer"),
                item.get("until"),
                item.get("refused"),
            )
            for item in summary.get("waiting") or ()
        ),
        until=detail.get("until"),
        listening=tuple(summary.get("listening") or ()),
        answered=summary.get("answered") or [],
        parent=(detail.get("parent") or {}).get("run"),
        children=tuple(child["run"] for child in summary.get("children") or ()),
        open_children=tuple(
            child["run"] for child in summary.get("children") or () if child["status"] == "open"
        ),
        rules=summary.get("rules") or {},
        result=detail.get("result"),
        error=detail.get("error"),
        records=last.number,
        bytes=sum(size for _, size in objects or ()),
        where=where,
        objects=objects or [],
    )
