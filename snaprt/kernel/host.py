"""Being the running loop of a thread that already runs another one.

The agent loop is stepped inside a callback of the host's loop, which may be asyncio's or trio's.
While it steps, everything that asks "which loop runs here" must find the agent loop: asyncio's running
loop, the current task (one slot per *thread* from CPython 3.14 on, so that the host's own task has to
leave it), the async generator hooks of the thread, and the name that sniffio and anyio read. All of it
is put back exactly as it was, also when agent code raises SystemExit or KeyboardInterrupt.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_sniffed: Any
try:
    # anyio asks sniffio, where that is installed; its thread-local wins over everything else it looks at.
    from sniffio import thread_local as _sniffed
except ImportError:
    _sniffed = None

# From 3.14 on the current task is a slot of the thread rather than an entry in a table by loop.
_ONE_TASK_PER_THREAD = sys.version_info >= (3, 14)


def _swap_current_task(loop: asyncio.AbstractEventLoop, task: Any) -> Any:
    # Private, but the only door to the slot that `asyncio.current_task` reads.
    return asyncio.tasks._swap_current_task(loop, task)  # type: ignore[attr-defined]  # typeshed has no private names


@contextmanager
def running(
    loop: asyncio.AbstractEventLoop,
    firstiter: Callable[[Any], None],
    finalizer: Callable[[Any], None],
) -> Iterator[None]:
    """Make `loop` the running loop of this thread for the duration of the block."""
    host = asyncio._get_running_loop()
    host_task = None
    if _ONE_TASK_PER_THREAD and host is not None:
        host_task = _swap_current_task(host, None)
    hooks = sys.get_asyncgen_hooks()
    library = _sniffed.name if _sniffed is not None else None
    try:
        asyncio._set_running_loop(loop)
        sys.set_asyncgen_hooks(firstiter=firstiter, finalizer=finalizer)
        if _sniffed is not None:
            _sniffed.name = "asyncio"
        yield
    finally:
        if _sniffed is not None:
            _sniffed.name = library
        sys.set_asyncgen_hooks(*hooks)
        asyncio._set_running_loop(host)
        if host_task is not None:
            _swap_current_task(host, host_task)  # type: ignore[arg-type]  # there is a host if it has a task
