"""A run's log on fsspec, and a local store that is durable and atomic. Floor 2.

Knows where records lie and who may write them; neither pickles nor what a record means.
"""

from snaprt.store.agenda import Agenda, Hint, lease_over
from snaprt.store.check import Problem, Report
from snaprt.store.failures import Removed, Transient
from snaprt.store.log import Log, Stored
from snaprt.store.store import Listed, Store

__all__ = [
    "Agenda",
    "Hint",
    "Listed",
    "Log",
    "Problem",
    "Removed",
    "Report",
    "Store",
    "Stored",
    "Transient",
    "lease_over",
]
