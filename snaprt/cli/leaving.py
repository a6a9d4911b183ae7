"""How a process of the command line ends: at once, also where a thread of a tool doesn't.

A thread can't be stopped. A sync tool that ran into its time limit, or into the end of the grace after
Ctrl-C, is abandoned: its run went on or left without it. Python would wait for its thread before the process
ends; somebody who resumes the run meanwhile, as they were told to, would have the tool at work in two
processes at once. So what such a process still has to say is said, and it ends. This file knows threads, and
nothing of runs.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NoReturn

_POOL = "snaprt host thread"
_OF_TOOLS = ("AnyIO worker thread", _POOL)
"""How the threads are called in which sync tools run, and what async ones give to `asyncio.to_thread`."""

_TO_END = 0.5  # seconds that threads with nothing to do get for it; they were told to


class HostThreads(ThreadPoolExecutor):
    """The event loop's own pool, which the end of the loop doesn't wait for either."""

    def __init__(self) -> None:
        super().__init__(thread_name_prefix=_POOL)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown(wait=False, cancel_futures=True)


def end_process(code: int) -> NoReturn:
    """End the process, which has to be ours, with that exit code."""
    if not _tools_at_work():
        raise SystemExit(code)
    atexit._run_exitfuncs()  # what modules do last, as writing out their logs; Python itself comes no more
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _tools_at_work() -> bool:
    until = time.monotonic() + _TO_END
    for thread in threading.enumerate():
        if thread.name.startswith(_OF_TOOLS):
            thread.join(max(until - time.monotonic(), 0))
            if thread.is_alive():
                return True
    return False
