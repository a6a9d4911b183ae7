"""A kernel as a state, and a state as a kernel.

What is saved is one dictionary, `_take_out` of kernel and loop: every task, callback and timer in its
order, and what the run keeps beside them. Two things aren't in it: the clock, which belongs to the
process, and the loop and kernel objects, which stand in it by name and are made anew before the load, so
that whatever is loaded can be bound to them at once.

A run can be saved whenever its loop isn't being stepped. Idle or not makes no difference: what is
ready to run is part of the state.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from snaprt import frames, state
from snaprt.errors import SnaprtError
from snaprt.kernel.events import call_of
from snaprt.kernel.plan import Plan
from snaprt.kernel.reducers import fill_future, make_future, register
from snaprt.kernel.steps import Step, shown_before
from snaprt.kernel.tasks import AgentTask, Awaited, CallFuture

if TYPE_CHECKING:
    from snaprt.kernel.kernel import Kernel
    from snaprt.kernel.loop import AgentLoop

register()
state.often(AgentTask, Awaited, CallFuture, Plan, Step, make_future, fill_future, call_of)

_OF_THE_KERNEL = (
    "run",
    "rules",
    "plan",
    "waits",
    "status",
    "value",
    "error",
    "_root",
    "_root_ended",
    "_closer",
    "_calls",
    "_handling",
    "_commands",
    "_cancel_reason",
    "emitted",
)
_OF_THE_LOOP = (
    "slow_callback_duration",
    "_latest",
    "_timers",
    "_serial",
    "_task_names",
    "_task_factory",
    "_exception_handler",
    "_debug",
    "_generators_shut",
    "_only_polled",
)


def save(kernel: Kernel) -> state.Dump:
    """The state of the run. Raises NotSerialisable with every offender; the run itself isn't disturbed."""
    resolve = {"loop": kernel.loop, "kernel": kernel}
    return state.dump(_take_out(kernel), resolve=resolve, met=kernel.globals_met)


def _take_out(kernel: Kernel) -> dict[str, Any]:
    loop = kernel.loop
    loop.time()
    loop.sweep_timers()
    return {
        "kernel": {name: getattr(kernel, name) for name in _OF_THE_KERNEL},
        "ended": _bundled([kernel.texts.of(step) for step in kernel.steps.values() if step.call is None]),
        "open": [kernel.steps[number] for number in kernel._calls],
        "resources": kernel.open_resources(),
        "loop": {name: getattr(loop, name) for name in _OF_THE_LOOP},
        "ready": [handle for handle in loop._ready if not handle.cancelled()],
        "tasks": sorted(asyncio.all_tasks(loop), key=lambda task: getattr(task, "_serial", 0)),
        "generators": loop.live_generators(),
        "orphans": list(loop._orphans),
    }


# Steps that are over travel as text, in bundles of so many characters: enough to be few, and too few for a
# leaf of the dump. As objects each would shift the pickle's references to everything behind it, and a state
# would look changed all over.
_BUNDLE = 32 << 10


def _bundled(texts: Sequence[str]) -> list[bytes]:
    bundles: list[list[str]] = []
    left = 0
    for text in texts:
        left -= len(text) + 1
        if left < 0:
            bundles.append([])
            left = _BUNDLE - len(text)
        bundles[-1].append(text)
    return ["\n".join(bundle).encode() for bundle in bundles]


def put_in(kernel: Kernel, parts: Any) -> None:
    """Fill a new kernel with a saved state."""
    loop = kernel.loop
    try:
        # Async generators take the hooks of the loop that they begin on, also when they are loaded.
        with loop.stepping():
            saved = state.load(parts, resolve={"loop": loop, "kernel": kernel})
    except BaseException:
        loop.leave()  # what was made so far goes without a word
        raise
    for name, value in saved["kernel"].items():
        setattr(kernel, name, value)
    ended = [shown_before(json.loads(text)) for bundle in saved["ended"] for text in bundle.splitlines()]
    kernel.steps = {step.id: step for step in sorted([*ended, *saved["open"]], key=lambda step: step.id)}
    for name, value in saved["loop"].items():
        setattr(loop, name, value)
    loop._ready = deque(saved["ready"])
    loop._orphans = deque(saved["orphans"])
    loop._generators.clear()
    for generator in saved["generators"]:
        loop._first_iteration(generator)
    for stand_in in saved["resources"]:
        kernel._note_open(stand_in)
    kernel.dirty = False


def let_go(kernel: Kernel) -> None:
    """Drop every frame of the run without running any of its code, then everything else of it."""
    loop: AgentLoop = kernel.loop
    loop.silent = True
    if not loop.is_closed():
        for frame in state.held_frames(_take_out(kernel), outside=(kernel, loop)):
            # One that can't be released (it runs, say) is left to the interpreter.
            with suppress(SnaprtError):
                frames.release(frame)
    loop.leave()
