"""Locks that libraries keep inside their plain objects, and that may be made anew.

A thread lock is a handle, but many libraries hang one on an object that is plain otherwise, for users with
several threads. Agent code runs on one thread and is saved between its steps, so such a lock is free then and
a new one is as good, *where we know what it guards*: each type here was read and is vouched for by name.
A lock that is held all the same is refused like any other.

This file knows names only; no library is imported for it.
"""

from __future__ import annotations

import copyreg
import threading
from typing import Any

from snaprt.state.reducers import Reduced, by_name
from snaprt.state.sessions import Call, Dumping

VOUCHED = {
    # Guards a run's cancellation flag and its list of tokens against other threads; never held over an await.
    "pydantic_ai._cancel:RunCancellation": "_lock",
    "pydantic_ai._cancel:CancellationToken": "_lock",
}

_KINDS: dict[type, Any] = {type(threading.Lock()): threading.Lock, type(threading.RLock()): threading.RLock}


def _free(lock: Any) -> bool:
    owned = getattr(lock, "_is_owned", None)  # an RLock lets its own thread in again, so it is asked first
    if (owned is not None and owned()) or not lock.acquire(blocking=False):
        return False
    lock.release()
    return True


def vouch(name: str, attribute: str) -> None:
    """Let the lock in `attribute` of objects of the type `name` ("module:qualname") be made anew."""

    @by_name(name)
    def reduce(obj: Any, dumping: Dumping) -> Reduced:
        lock = getattr(obj, attribute, None)
        make = _KINDS.get(type(lock))
        if make is None or not _free(lock):
            return NotImplemented
        state = {**obj.__dict__, attribute: Call(make)}
        return copyreg.__newobj__, (type(obj),), state  # type: ignore[attr-defined]  # pickle's own name for it


for _name, _attribute in VOUCHED.items():
    vouch(_name, _attribute)
