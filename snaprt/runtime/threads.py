"""The worker threads of a runtime, in three kinds that never wait for each other.

anyio lets 40 threads run at once, whoever asks. A few blocking tools would use them up, and then a healthy
owner couldn't say any more that it is alive, nor write what the tools gave. So tools have threads of their
own, the store has, and a lease has its own. Code of users that asks anyio for a thread gets another one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

Value = TypeVar("Value")

_TOOLS = 1000
"""So many blocking tools run at once in a process; a thread that waits costs some ten KiB of memory."""
_STORE = 40
"""So many requests to the store are under way at once (anyio's number)."""

_tools: RunVar[anyio.CapacityLimiter] = RunVar("snaprt tools")
_store: RunVar[anyio.CapacityLimiter] = RunVar("snaprt store")


async def for_tool(call: Callable[[], Value]) -> Value:
    """Call code of users. A thread can't be stopped; one that nobody waits for any more ends by itself."""
    return await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=_of(_tools, _TOOLS))


async def for_store(fn: Callable[..., Value], /, *args: Any, **kwargs: Any) -> Value:
    """Make a request to the store."""
    return await anyio.to_thread.run_sync(partial(fn, *args, **kwargs), limiter=_of(_store, _STORE))


async def at_once(fn: Callable[..., Value], /, *args: Any) -> Value:
    """Call what mustn't wait for anybody else's thread."""
    return await anyio.to_thread.run_sync(partial(fn, *args), limiter=anyio.CapacityLimiter(1))


def _of(kind: RunVar[anyio.CapacityLimiter], most: int) -> anyio.CapacityLimiter:
    try:
        return kind.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(most)
        kind.set(limiter)
        return limiter
