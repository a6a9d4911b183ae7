"""A run's log on fsspec, and a local store that is durable and atomic. Floor 2.

Knows where records lie and who may write them; neither pickles nor what a record means.
"""

from snaprt.store.check import Problem, Report
from snaprt.store.failures import Transient
from snaprt.store.log import Log, Stored
from snaprt.store.store import Listed, Store

__all__ = ["Listed", "Log", "Problem", "Report", "Store", "Stored", "Transient"]
