"""The lease of a run: a hint that its owner was alive a moment ago.

One object beside the log, overwritten by the owner every few seconds and signed like all others. It decides
nothing (the log does, by who creates the next record), so it is neither synced nor proven to be the newest.
"""

from __future__ import annotations

import contextlib
from typing import Any

from snaprt.errors import Damaged, StoreError, WrongKey
from snaprt.records.envelope import LEASE, seal, unseal
from snaprt.records.keys import Keyring
from snaprt.store.objects import Objects


def put_lease(objects: Objects, run: str, keyring: Keyring, lease: dict[str, Any]) -> None:
    """Says until when the owner is good for. What fails is left: the next one comes in seconds."""
    with contextlib.suppress(StoreError):
        objects.replace(f"runs/{run}/lease", seal(keyring, LEASE, {**lease, "run": run}))


def get_lease(objects: Objects, run: str, keyring: Keyring) -> dict[str, Any]:
    """The newest lease; empty if there is none, or it doesn't prove right."""
    try:
        data = objects.read(f"runs/{run}/lease")
        lease, _ = unseal(keyring, LEASE, data, f"The lease of run {run!r}")
    except (FileNotFoundError, Damaged, WrongKey):
        return {}
    return lease if lease.get("run") == run else {}
