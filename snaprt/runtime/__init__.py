"""Floor 3: drives the kernel with tools and a store, on asyncio and trio hosts."""

from snaprt.runtime.housekeeping import Reindexed
from snaprt.runtime.outcomes import Cancelled, Completed, Failed, Outcome, RunInfo, Suspended, Waiting
from snaprt.runtime.run import Run
from snaprt.runtime.runtime import Runtime
from snaprt.runtime.watching import RunEvent
from snaprt.runtime.worker import Look

__all__ = [
    "Cancelled",
    "Completed",
    "Failed",
    "Look",
    "Outcome",
    "Reindexed",
    "Run",
    "RunEvent",
    "RunInfo",
    "Runtime",
    "Suspended",
    "Waiting",
]
