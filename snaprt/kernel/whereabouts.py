"""Where in the agent's code something happened: the line that a person would look at.

Frames of asyncio, anyio and snaprt itself stand between an agent's line and what it asks for. This
file skips them, both for code that runs now (the stack) and for a task that is parked (its chain of
awaits). It knows frames only to read their line; freezing them is `snaprt.frames`' work.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

_MACHINERY = frozenset({"asyncio", "anyio", "sniffio", "contextlib", "concurrent", "contextvars", "snaprt"})
"""Top-level packages whose frames are never "the agent's line"."""

_STEP_BEGINS = frozenset({("snaprt.kernel.tasks", "_drive"), ("snaprt.kernel.loop", "_run")})
"""Module and function of the frames in which the kernel calls agent code: a task's step and a callback."""


def _is_machinery(frame: FrameType) -> bool:
    name = frame.f_globals.get("__name__") or ""
    return str(name).partition(".")[0] in _MACHINERY


def _place(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"


def calling_line() -> str:
    """`file:line in function` of the nearest caller that isn't machinery.

    Looks no further than the step that runs now: what lies beyond is the host. A task that consists of
    machinery alone is named by its innermost line.
    """
    frame: FrameType | None = sys._getframe(1)  # the only way to see one's callers
    nearest = None
    while frame is not None and (frame.f_globals.get("__name__"), frame.f_code.co_name) not in _STEP_BEGINS:
        if not _is_machinery(frame):
            return _place(frame)
        if nearest is None and not str(frame.f_globals.get("__name__")).startswith("snaprt."):
            nearest = frame
        frame = frame.f_back
    return _place(nearest) if nearest is not None else "an unknown line"


def awaiting_frames(awaitable: Any) -> Iterator[FrameType]:
    """Frames of a parked coroutine, outermost first, down its chain of awaits."""
    while awaitable is not None:
        for frame_name, next_name in (
            ("cr_frame", "cr_await"),
            ("gi_frame", "gi_yieldfrom"),
            ("ag_frame", "ag_await"),
        ):
            frame = getattr(awaitable, frame_name, None)
            if frame is not None:
                yield frame
                awaitable = getattr(awaitable, next_name)
                break
        else:
            return


def parked_line(coroutine: Any) -> str | None:
    """`file:line in function` of the agent's innermost own frame; None when the coroutine has ended."""
    line = None
    for frame in awaiting_frames(coroutine):
        if line is None or not _is_machinery(frame):
            line = _place(frame)
    return line
