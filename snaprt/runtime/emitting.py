"""What agent and tools show while they work, on its way into the log.

An event goes out with a record, so whoever reads the log sees it, in order and once. What the *agent* emitted
goes out only with the state in which it has emitted it: should the process die, lines that run again emit
again what nobody saw. What a *tool* emits is shown as it comes. A step that has to be called again after a
crash emits again what was shown; so a record says how much of each open step was, and that much is left out.

This file must not know when which record is written.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from snaprt.kernel import Kernel
from snaprt.kernel.preview import PAYLOAD_LIMIT, preview

PAUSE = 0.5
"""Seconds between two records that are written for events alone."""


class Events:
    """The events of one run in hand. `said` is what the newest record says of those before."""

    def __init__(self, kernel: Kernel, said: Mapping[str, Any] | None = None) -> None:
        self._kernel = kernel
        said = said or {}
        self._emitted: int = said.get("agent", 0)
        self._shown: dict[int, int] = dict(said.get("steps", ()))
        self._ready: list[dict[str, Any]] = []
        self._of_tools: deque[dict[str, Any]] = deque()
        self._last = 0.0

    def emitter(self, step: int, tell: Callable[[], None]) -> Callable[[Any], None]:
        """What `emit` does in the tool of this step; `tell` is called after each. For any thread."""
        count = 0
        shown = self._shown.get(step, 0)

        def emit(value: Any) -> None:
            nonlocal count
            count += 1
            if count > shown:
                event = {"step": step, "n": count, "at": time.time(), "value": preview(value, PAYLOAD_LIMIT)}
                self._of_tools.append(event)
                tell()

        return emit

    def of_the_agent(self) -> None:
        """The state of this moment was dumped: what the agent has emitted goes out with it."""
        fresh, self._kernel.events = self._kernel.events, []
        self._ready += [event for event in fresh if event["n"] > self._emitted]

    @property
    def ready(self) -> bool:
        """Whether there is something that the next record can carry."""
        return bool(self._ready or self._of_tools)

    def postpone(self) -> None:
        """What the agent emitted can't go out yet: try again in a while."""
        self._last = time.monotonic()

    def due_in(self) -> float | None:
        """Seconds until a record has to be written for what waits to be shown; None if nothing does."""
        if not (self._ready or self._of_tools or self._kernel.events):
            return None
        return max(self._last + PAUSE - time.monotonic(), 0.0)

    def take(self) -> list[dict[str, Any]]:
        """What goes out with the record that is being written."""
        taken, self._ready = self._ready, []
        while self._of_tools:
            taken.append(self._of_tools.popleft())
        for event in taken:
            if "step" in event:
                self._shown[event["step"]] = event["n"]
            else:
                self._emitted = event["n"]
        if taken:
            self._last = time.monotonic()
        return sorted(taken, key=lambda event: float(event["at"]))

    def said(self) -> dict[str, Any]:
        """What the record says of all events up to it; of steps, those that may be called again."""
        if not (self._shown or self._emitted):
            return {}
        pending = {call.step for call in self._kernel.pending_calls()}
        self._shown = {step: count for step, count in self._shown.items() if step in pending}
        found: dict[str, Any] = {}
        if self._emitted:
            found["agent"] = self._emitted
        if self._shown:
            found["steps"] = sorted(self._shown.items())
        return found


def encode(events: list[dict[str, Any]]) -> bytes:
    """Events as the bytes of a record's `events` section."""
    return json.dumps(events, separators=(",", ":")).encode()
