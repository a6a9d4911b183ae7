"""What keeps a store in order: removing runs, and writing the agenda's hints anew.

A run is removed only when it has ended, or when somebody insists; and its log is ended first, by a record
like any other. So of a removal and a resume at the same moment one wins, and an owner that lives is fenced
before its next effect. This file works on logs and hints; it must not know how a run is driven.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from snaprt import state
from snaprt.errors import AlreadyAnswered, Damaged, Fenced, RunBusy, UnknownRun, UsageError, WrongKey
from snaprt.kernel.kernel import child_slot
from snaprt.records import Header
from snaprt.runtime.endings import ended
from snaprt.runtime.family import REMOVED, letter
from snaprt.runtime.outcomes import Suspended
from snaprt.runtime.patience import patiently
from snaprt.runtime.restore import about
from snaprt.store import Listed, Log, Removed, Store

# A hint of a run that isn't there may be one whose start is on its way: one nearer than this (seconds).
_STARTING = 3600.0
# How often a removal by force ends the log, if its owner writes at the same moment.
_TRIES = 5

ENDED = ("completed", "failed", "cancelled")


@dataclass(frozen=True)
class Reindexed:
    """What `reindex` did: how many runs it read, and how many hints it put and removed."""

    runs: int
    put: int
    removed: int


# --- removing -----------------------------------------------------------------------------------------


async def remove(
    store: Store,
    run: str,
    *,
    force: bool,
    patience: float,
    refuse_if_busy: Callable[[Log, Header], Awaitable[None]],
    put: Callable[..., Awaitable[None]],
) -> int:
    """Remove a run, or what is left of it; gives how many objects that were. `put` is Access.put.

    Raises UnknownRun; without `force` also UsageError for a run that hasn't ended, RunBusy for one whose
    owner seems to live, Damaged and WrongKey for one of which that can't be known.
    """
    log: Log | None = None
    last: Header | None = None
    gone: Removed | None = None
    try:
        log = await patiently("Reading the store", patience, store.log, run)
        last = await patiently("Reading the store", patience, log.header)
        if not force:
            await _refuse_unless_ended(log, last, refuse_if_busy)
        last = await _end(log, last, force, patience)
    except Removed as error:
        gone = error  # but for what was left, if that was interrupted
    except (Damaged, WrongKey) as error:
        if not force:
            kind = type(error)
            raise kind(
                f"{error} It isn't known whether it has ended; remove it with force=True (--force)."
            ) from error
    if log is not None:
        await _tell_parent(store, log, last, force, patience, put)
    count: int = await patiently(f"Removing run {run}", patience, store.remove, run)
    if gone is not None and not count:
        raise gone
    return count


async def _tell_parent(
    store: Store,
    log: Log,
    last: Header | None,
    force: bool,
    patience: float,
    put: Callable[..., Awaitable[None]],
) -> None:
    """Put how a run ended that is being removed into its parent's inbox, if whoever saw it end couldn't: the
    parent would wait for ever. `last`: its record before it was removed, if that could be read."""
    try:
        first: Header = await patiently("Reading the store", patience, log.header, 1)
    except (Damaged, WrongKey):
        return  # nor is it known whether it has a parent
    parent = first.detail.get("parent")
    if parent is None:
        return
    slot = child_slot(parent["step"])
    if await patiently("Reading the store", patience, store.has, parent["run"], slot):
        return
    how = REMOVED
    if last is not None and last.kind == "finish":
        try:
            outcome = ended(await patiently("Reading the store", patience, log.read, last.number))
            assert not isinstance(outcome, Suspended)
            how = letter(outcome)
        except Exception as error:  # whatever unpickling raises
            if not force:
                raise UsageError(
                    f"Run {log.run} isn't removed: its parent {parent['run']} wasn't told how it ended, and "
                    f"that can't be read here ({type(error).__name__}: {error}). Resume {log.run} where its "
                    "code is; or remove it with force=True (--force), and its parent is told that."
                ) from error
    # Whoever is told, was told, or can't wait any more.
    with contextlib.suppress(AlreadyAnswered, UnknownRun, Damaged, WrongKey):
        await put(parent["run"], slot, how, by=log.run)


async def _refuse_unless_ended(
    log: Log, last: Header, refuse_if_busy: Callable[[Log, Header], Awaitable[None]]
) -> None:
    status = last.detail["status"]
    if status in ENDED:
        return
    if status == "running":
        try:
            await refuse_if_busy(log, last)
        except RunBusy as busy:
            raise RunBusy(
                f"Run {log.run} is in the hands of an owner that seems to be alive, so it isn't removed. Let "
                "it end, or remove it with force=True (--force): its owner is then fenced before its next "
                "effect."
            ) from busy
    raise UsageError(
        f"Run {log.run} is {status} and hasn't ended, so it isn't removed. Let it end, or remove it with "
        f"force=True (--force); look first with `snaprt show {log.run}`."
    )


async def _end(log: Log, last: Header, force: bool, patience: float) -> Header:
    """End the log by a record, where somebody could still take the run in hand; gives the newest before."""
    for _ in range(_TRIES):
        if last.kind == "finish" and last.detail["status"] != "failed":
            return last
        status, reason = REMOVED
        try:
            await patiently(
                f"Ending run {log.run}",
                patience,
                log.append,
                "finish",
                detail={"status": status, "reason": reason, **about(last)},
                sections={"outcome": state.dump(REMOVED, copied=True).parts},
                epoch=last.epoch + 1,
                attempt=secrets.token_hex(8),
                look=None,
            )
            return last
        except Fenced as error:
            if not force:
                raise RunBusy(
                    f"Run {log.run} was taken by another process at the same moment, so it isn't removed."
                ) from error
            await patiently("Reading the store", patience, log.refresh)
            last = await patiently("Reading the store", patience, log.header)
    raise RunBusy(f"Run {log.run} is written to all the time, so it couldn't be ended. Try it again.")


# --- hints --------------------------------------------------------------------------------------------


def reindex(store: Store) -> Reindexed:
    """Put the hints of every run that has something to do, now or later, and remove those of runs that are no
    more. Reads each run's newest header. Raises StoreError."""
    agenda = store.agenda
    before = list(agenda.all())  # listed first: what is put meanwhile is nobody's to remove
    now = time.time()
    put = 0
    status: dict[str, str] = {}
    for listed in store.listing(slots=True):
        status[listed.run] = "damaged" if listed.header is None else listed.header.detail["status"]
        for when in _looks(listed, now):
            assert listed.header is not None
            agenda.at(listed.run, when, str(listed.header.number))
            put += 1
    old = [
        hint.name
        for hint in before
        if status.get(hint.run) in ("completed", "cancelled")
        or (hint.run not in status and (abs(hint.at - now) > _STARTING or store.removed(hint.run)))
    ]
    agenda.drop(old)
    return Reindexed(len(status), put, len(old))


def _looks(listed: Listed, now: float) -> list[float]:
    """When somebody should look at a run."""
    if listed.header is None:
        return []
    detail = listed.header.detail
    if detail["status"] in ENDED:
        return [now] if "parent" in detail else []  # it may have died before it told its parent
    if detail["status"] == "running":
        return [now]
    # What lies in the inbox may have been taken in long ago; a look tells.
    timer = detail.get("look", detail.get("until"))
    return [*([now] if listed.slots else []), *([] if timer is None else [timer])]
