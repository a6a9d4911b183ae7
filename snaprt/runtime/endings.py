"""How a run ends: the outcome of a kernel that is done, its `finish` record, and that read back.

This file must not know who writes the record.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from snaprt import state
from snaprt.errors import NotSerialisable, SnaprtError
from snaprt.kernel import Kernel
from snaprt.kernel.preview import preview
from snaprt.records import Record
from snaprt.runtime.calls import about
from snaprt.runtime.outcomes import Cancelled, Completed, Failed, Outcome
from snaprt.runtime.restore import section
from snaprt.state.exceptions import format_exception


@dataclass(frozen=True)
class Ending:
    """An outcome, and its record: the status, what the header says, and the section `outcome`."""

    outcome: Outcome
    status: str
    detail: Mapping[str, Any]
    dump: state.Dump


def ending(kernel: Kernel) -> Ending:
    """How a kernel that is done has ended. A value that can't travel makes it failed."""
    run, error = kernel.run, kernel.error
    if kernel.status == "completed":
        try:
            value = state.dump(("completed", kernel.value), copied=True)
        except NotSerialisable as refusal:
            error = about(refusal, "state → [1]", "the value that the agent returned")
        else:
            detail = {"result": preview(kernel.value)}
            return Ending(Completed(run, kernel.value), "completed", detail, value)
    if kernel.status == "cancelled":
        reason = str(error) if error is not None else ""
        said = state.dump(("cancelled", reason), copied=True)
        return Ending(Cancelled(run, reason), "cancelled", {"reason": reason}, said)
    assert error is not None  # a failed kernel has its error
    text = format_exception(error)
    headline = "".join(traceback.format_exception_only(error)).strip()
    try:
        outcome = state.dump(("failed", error, text), copied=True)
    except NotSerialisable:
        outcome = state.dump(("failed", SnaprtError(headline), text), copied=True)
    return Ending(Failed(run, error, text), "failed", {"error": headline, "traceback": text}, outcome)


def ended(record: Record) -> Outcome:
    """How a finished run ended, from its last record."""
    run = record.header.run
    status, *rest = section(record, "outcome")
    if status == "completed":
        return Completed(run, rest[0])
    if status == "cancelled":
        return Cancelled(run, rest[0])
    return Failed(run, rest[0], rest[1])
