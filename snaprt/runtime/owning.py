"""Who has a run in hand: owners, leases, and whether an owner is gone.

A lease says that an owner was alive a moment ago, by its own clock. It keeps a second process from taking a
run over by mistake, and nothing rests on it: what fences is that only one process can create the next
record. So a lease may be wrong in either direction without harm, and an owner that is *provably* gone (its
process has ended on this very machine, or it is this process and has let go) isn't waited for.

This file must not know records; it deals in plain JSON values that stand in their details.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from snaprt.store import lease_over

_LONGEST_REST = 3600.0
"""Seconds after which a run is looked at again, however many owners died over it."""

_in_hand: set[str] = set()
"""Tokens of the runs that this process has in hand now."""


def take() -> dict[str, Any]:
    """A new owner: this process, for one run. `let_go` when it leaves the run."""
    token = secrets.token_hex(8)
    _in_hand.add(token)
    return {**_process(os.getpid()), "token": token}


def let_go(owner: Mapping[str, Any]) -> None:
    """This process no longer has that run in hand."""
    _in_hand.discard(owner.get("token", ""))


def gone(owner: Mapping[str, Any]) -> bool:
    """Whether that owner provably can't act any more. False where that can't be known from here."""
    machine = owner.get("machine")
    pid = owner.get("pid")
    if not machine or machine != _machine() or not isinstance(pid, int):
        return False
    now = _began(pid)
    if now is None or now != owner.get("began"):
        return True
    return pid == os.getpid() and owner.get("token") not in _in_hand


def look_at(lease: float, deaths: int) -> float:
    """When to look whether an owner is still alive: after its lease.

    A run whose owners died, two or more in a row, may be what killed them: each time it is left alone for
    twice as long, so that it doesn't take one process after the other with it.
    """
    soon = lease_over(lease)
    return soon if deaths < 1 else max(soon, time.time() + min(lease * 2.0 ** (deaths + 1), _LONGEST_REST))


def named(owner: Mapping[str, Any]) -> str:
    """The owner as a person knows it."""
    return f"process {owner.get('pid', '?')} on {owner.get('host', '?')}"


def clock(at: float) -> str:
    """A moment as a person reads it, in this machine's zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _process(pid: int) -> dict[str, Any]:
    return {"host": socket.gethostname(), "pid": pid, "machine": _machine(), "began": _began(pid)}


@lru_cache(maxsize=1)
def _machine() -> str:
    """What process numbers mean: this boot of this kernel and the namespace of process ids. Empty if that
    can't be told; then nobody is ever provably gone."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _began(pid: int) -> str | None:
    """When a process began, in ticks since boot: with it a number that was used again isn't mistaken."""
    try:
        # The name in parentheses may hold anything, so count from behind it; a zombie can't act any more.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]
