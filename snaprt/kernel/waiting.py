"""What agent code calls to wait for people, messages, times and other runs: `suspend`, `inbox`,
`sleep_until`, `child`; and `emit`, which shows how far it is.

As in `operations`, nothing here keeps the kernel: it is found through the running loop at the moment of the
call. These frames are part of saved states.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, ParamSpec, TypeVar

from snaprt.errors import ChildCancelled, OutsideAgent
from snaprt.kernel.operations import Tool, current_kernel, kernel_for
from snaprt.kernel.questions import checked_name
from snaprt.kernel.waits import NoDefault

P = ParamSpec("P")
R = TypeVar("R")

_FOR_EVER = 1000 * 366 * 86_400
"""Seconds. Calendars don't reach much further."""

EMITTER: ContextVar[Callable[[Any], None] | None] = ContextVar("snaprt emitter", default=None)
"""What `emit` calls in a tool: the runtime sets it around each call."""


async def suspend(
    payload: Any = None,
    *,
    answer: Any = None,
    timeout: float | timedelta | None = None,
    default: Any = NoDefault,
    name: str | None = None,
) -> Any:
    """Show `payload` to a person (or whoever answers) and wait for the answer, minutes or months.

    Returns the answer. Other tasks of the agent go on meanwhile; when everything waits, the run leaves
    the process.

    - `answer`: the type that the answer has to have, anything pydantic can check (`bool`, `Literal["a",
      "b"]`, a model, …). A wrong answer is refused with what was expected, and the question stays open.
    - `timeout`: seconds (or a timedelta) to wait; then `default` is returned, or TimeoutError raised. An
      answer given in time counts, however late the run wakes.
    - `name`: so that somebody can answer before the question is asked. Used again in a run it becomes
      `name.2`, `name.3`, …; without it questions are `ask-1`, `ask-2`, ….

    Raises `OutsideAgent` where no agent runs, ValueError and TypeError for options that aren't any.
    """
    if name is not None:
        checked_name(name, "a question")
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if seconds is not None and not 0 < seconds < _FOR_EVER:
        raise ValueError(
            f"a question's timeout is some seconds, not {timeout!r}; without one it is asked for ever"
        )
    return await kernel_for("snaprt.suspend").ask(
        payload, name=name, expected=answer, timeout=seconds, default=default
    )


class Inbox:
    """A stream of messages that outside processes put in: `async for message in snaprt.inbox("chat")`.

    In order, each delivered once, to one reader. What comes while the run sleeps waits for it.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = checked_name(name, "an inbox")

    def __repr__(self) -> str:
        return f"snaprt.inbox({self.name!r})"

    def __aiter__(self) -> Inbox:
        return self

    async def __anext__(self) -> Any:
        return await self.get()

    async def get(self) -> Any:
        """The next message."""
        return await kernel_for("snaprt.inbox").waits.stream(self.name).queue.get()


def inbox(name: str) -> Inbox:
    """The run's inbox of that name. Others put messages in with `Runtime.send` or `snaprt send`.

    Raises ValueError for what can't be a name; reading it raises `OutsideAgent` where no agent runs.
    """
    return Inbox(name)


async def sleep_until(when: datetime) -> None:
    """Sleep until a moment, which has to say its zone: a durable timer by the wall clock, so that it ends
    when clocks show that time, also if they were set meanwhile. Raises ValueError for a naive datetime."""
    if not isinstance(when, datetime) or when.tzinfo is None or when.utcoffset() is None:
        raise ValueError(f"{when!r} doesn't say which moment it is: give a datetime with a time zone")
    target = when.timestamp()
    loop = kernel_for("snaprt.sleep_until").loop
    # The loop's own time never goes back; where the clock was set back, the moment is further off.
    while (left := target - loop.wall_time()) > 0:
        await asyncio.sleep(left)


def emit(value: Any) -> None:
    """Show `value` to whoever watches the run (`snaprt watch`, `Runtime.events`), from an agent or a tool.

    Values are shown as JSON, as questions are. Nothing is shown twice, also if the process died and lines or
    a step had to run again. Raises `OutsideAgent` elsewhere."""
    kernel = current_kernel()
    if kernel is not None:
        kernel.emit(value)
        return
    emitter = EMITTER.get()
    if emitter is None:
        raise OutsideAgent("`snaprt.emit` was called where neither an agent nor a tool runs.")
    emitter(value)


# --- children -------------------------------------------------------------------------------------


def start_child(agent: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Stands for the step that starts a child, which the runtime carries out."""
    raise OutsideAgent("a child can only be started by a runtime")


def cancel_child(run: str) -> None:
    """Stands for the step that cancels a child, which the runtime carries out."""
    raise OutsideAgent("a child can only be cancelled by a runtime")


async def child(agent: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Run another agent as a run of its own, and wait for its result, for as long as it takes.

    The child has its own log, `<run>.<step>`, and sees nothing of this agent but its arguments. Its exception
    is raised here; cancelling this await cancels it. Raises `ChildCancelled` if somebody else cancelled it,
    `OutsideAgent` where no agent runs.
    """
    kernel = kernel_for("snaprt.child")
    named = getattr(agent, "__qualname__", repr(agent))
    starting = kernel.issue(Tool(start_child, "idempotent", f"child {named}"), (agent, args, kwargs), {})
    step, run = starting.step, child_run(kernel.run, starting.step)
    del kernel
    try:
        await starting
        status, outcome = await kernel_for("snaprt.child").await_child(run, step)
    except asyncio.CancelledError:
        stopping = Tool(cancel_child, "idempotent", f"cancel child {named}")
        asking = kernel_for("snaprt.child").issue(stopping, (run,), {})
        while not asking.done():  # another cancellation doesn't take the request back
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(asking)
        asking.result()
        raise
    if status == "failed":
        raise outcome
    if status == "cancelled":
        raise ChildCancelled(f"Child {run} was cancelled{f': {outcome}' if outcome else ''}.")
    return outcome  # type: ignore[no-any-return]  # what the child's agent returned


def child_run(parent: str, step: int) -> str:
    """The id of the child that this step of its parent starts: the same whenever it is started."""
    return f"{parent}.{step}"
