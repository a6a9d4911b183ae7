"""Runs that started other runs: starting and cancelling a child, waking those of a run that was resumed, and
telling a parent how its child ended.

A child's id is made of its parent's and of the step that starts it, so starting it again finds it. How it
ended is put into the parent's inbox by whoever saw it end, or sees later that it has: the first wins, and
they all say the same. Nobody keeps a parent in a process for that: it may sleep, and be woken by its inbox.

This file must not know how runs are driven: it asks the runtime that owns it.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import anyio

from snaprt.errors import (
    AlreadyAnswered,
    CallFailed,
    NotRestorable,
    RunBusy,
    RunExists,
    SnaprtError,
    UnknownRun,
    UsageError,
)
from snaprt.kernel.kernel import child_slot
from snaprt.kernel.preview import in_words, shorten
from snaprt.kernel.waiting import child_run
from snaprt.runtime.outcomes import Cancelled, Completed, Failed, Outcome
from snaprt.runtime.posting import travels

if TYPE_CHECKING:
    from snaprt.runtime.runtime import Runtime

logger = logging.getLogger("snaprt")

REMOVED = ("cancelled", "it was removed")


class Family:
    """What a runtime's runs have to do with each other."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._beginning: dict[str, anyio.Event] = {}

    def starting(self, parent: str, step: int) -> Callable[..., Awaitable[str]]:
        """The function that this step of the parent calls, with the agent and its arguments."""
        return functools.partial(self._start, {"run": parent, "step": step})

    async def _start(
        self, parent: Mapping[str, Any], agent: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> str:
        run = child_run(parent["run"], parent["step"])
        begun = self._beginning[run] = anyio.Event()
        try:
            # Whoever gives up waiting finds the child begun or not, and not half-way.
            with anyio.CancelScope(shield=True):
                await self._begin(run, parent, agent, args, kwargs)
        finally:
            del self._beginning[run]
            begun.set()
        return run

    async def _begin(
        self, run: str, parent: Mapping[str, Any], agent: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        try:
            await self._runtime.begin(agent, args, kwargs, run, parent)
        except RunExists:
            try:
                about = await self._runtime.about(run)
            except UnknownRun:  # it was removed: its parent was told how it ended, or is now
                with contextlib.suppress(AlreadyAnswered):
                    slot = child_slot(parent["step"])
                    await self._runtime.put(parent["run"], slot, REMOVED, by=run)
                return
            if about.get("parent") != dict(parent):
                raise CallFailed(
                    f"The id of the child, {run}, is taken by a run that isn't one of {parent['run']}'s. "
                    f"Start the parent under another id."
                ) from None
            await self.wake([run])

    def cancelling(self, parent: str, step: int) -> Callable[..., Awaitable[None]]:
        """The function that this step of the parent calls, with the child."""
        return functools.partial(self._cancel, f"{parent}/{step}")

    async def _cancel(self, attempt: str, run: str) -> None:
        """Ask a child to end, and have it clean up here if nobody else has it in hand. A step that is called
        again asks for the same: the child isn't cancelled once more, while it cleans up."""
        if run in self._beginning:
            await self._beginning[run].wait()
        try:
            if await self._runtime.cancel(run, "its parent was cancelled", attempt=attempt):
                await self.wake([run])
        except UnknownRun:
            pass  # it was never started
        except UsageError:
            pass  # it has ended meanwhile

    def busy(self, children: Iterable[str]) -> bool:
        """Whether this process has one of these in hand, so that its end is near."""
        return any(self._runtime.has_in_hand(child) for child in children)

    async def wake(self, children: Iterable[str]) -> None:
        """Go on with the children of a run that goes on here, as far as they can and nobody else does it."""
        for child in children:
            try:
                await self._runtime.resume(child, wary=True)
            except RunBusy:
                continue
            except SnaprtError as error:
                logger.warning("Child run %s can't go on here, its parent waits for it: %s", child, error)

    async def tell(self, run: str, parent: Mapping[str, Any], outcome: Outcome | None) -> bool:
        """Put how a child ended, if it has, into its parent's inbox; says whether that is done. A store that
        fails is only logged: whoever resumes one of the two does it again."""
        if not isinstance(outcome, Completed | Failed | Cancelled):
            return False
        slot = child_slot(parent["step"])
        try:
            await self._runtime.put(parent["run"], slot, letter(outcome), by=run)
        except (AlreadyAnswered, UnknownRun):
            pass  # told before, or nobody is left to be told
        except SnaprtError as error:
            logger.warning("Run %s couldn't be told how its child %s ended: %s", parent["run"], run, error)
            return False
        return True


def letter(outcome: Completed | Failed | Cancelled) -> tuple[str, Any]:
    """What `child` takes in."""
    match outcome:
        case Completed(value=value):
            if travels(value):
                return "completed", value
            return "failed", NotRestorable(f"What it returned can't be rebuilt elsewhere: {shorten(value)}")
        case Cancelled(reason=reason):
            return "cancelled", reason
        case Failed(error=error):
            return "failed", error if travels(error) else SnaprtError(in_words(error))
