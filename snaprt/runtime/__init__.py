"""Floor 3: drives the kernel with tools and a store, on asyncio and trio hosts."""

from snaprt.runtime.outcomes import Cancelled, Completed, Failed, Outcome, RunInfo, Suspended, Waiting
from snaprt.runtime.runtime import Run, Runtime

__all__ = ["Cancelled", "Completed", "Failed", "Outcome", "Run", "RunInfo", "Runtime", "Suspended", "Waiting"]
