"""`Access`: what any process that has the key can do with runs, without the agents' code.

Answering and sending, cancelling, seeing, proving, removing. Nothing here runs an agent or unpickles a
state; `Runtime` adds that. Stores are synchronous and are called in worker threads.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Literal

from snaprt import frames
from snaprt.errors import AlreadyAnswered, RunBusy, UsageError
from snaprt.kernel.questions import checked_name
from snaprt.records import Header, Keyring
from snaprt.runtime import housekeeping, mail, owning, restore, view
from snaprt.runtime.housekeeping import Reindexed
from snaprt.runtime.outcomes import RunInfo
from snaprt.runtime.patience import patiently
from snaprt.runtime.posting import letter, slot_for
from snaprt.runtime.watching import RunEvent, watch
from snaprt.store import Log, Store
from snaprt.store.check import Report

_OPENING = 3.0
"""Seconds for which a store that can't be opened is tried again."""


class Access:
    """The runs at one store."""

    def __init__(
        self,
        url: str,
        keyring: Keyring | None,
        fencing: Literal["on", "off"],
        storage_options: Mapping[str, Any] | None,
        patience: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.url = url
        self._keyring = keyring
        self._fencing = fencing
        self._storage_options = dict(storage_options or {})
        self._patience = patience
        self._clock = clock
        self._store: Store | None = None

    async def _open_store(self) -> None:
        # Somebody waits who may have mistyped an address: no long patience, and no lines before the error.
        self._store = await patiently(
            "Opening the store",
            min(self._patience, _OPENING),
            Store.open,
            self.url,
            keyring=self._keyring,
            fencing=self._fencing,
            storage_options=self._storage_options or None,
            interpreter=frames.interpreter(),
        )

    def _close_store(self) -> None:
        self._store = None

    def poke(self, run_id: str) -> bool:
        """Have a run look at its inbox, if it is in hand here. Says whether it is."""
        return False

    # --- what others put in -------------------------------------------------------------------

    async def answer(
        self,
        run_id: str,
        value: Any,
        *,
        suspension: str | None = None,
        by: str | None = None,
        early: bool = False,
    ) -> str:
        """Answer an open question; the first answer wins. Returns the suspension's id.

        Works from any process that has the key, without the agent's code. A run in hand takes it in at its
        next look (here, at once); others do when they are resumed. `by` says on record who answered; `early`
        lets `suspension` name a question that isn't asked yet. Raises UnknownRun, UnknownSuspension,
        AlreadyAnswered, NotSerialisable, and UsageError for what can't be an answer to the question.
        """
        log: Log = await self._patiently("Reading the store", self._open.log, run_id)
        summary = await self._patiently("Reading the store", log.summary)
        suspension, slot = slot_for(run_id, summary, suspension, value, now=self._clock(), early=early)
        await self._refuse_if_ended(log)
        try:
            await self.put(run_id, slot, value, by=by, log=log)
        except AlreadyAnswered:  # the slot isn't called like the question, if an answer was refused before
            raise AlreadyAnswered(
                f"Suspension {suspension!r} of run {run_id!r} has its answer already; the first one counts, "
                "and is taken in when the run is resumed."
            ) from None
        return suspension

    async def send(self, run_id: str, value: Any, *, inbox: str, by: str | None = None) -> int:
        """Put a message into a run's inbox, behind those that are there; gives its number, counted from 1.

        The run takes it in when a task of it reads that inbox, now or later. Raises UnknownRun, UsageError
        for a run that has ended, NotSerialisable.
        """
        try:
            checked_name(inbox, "an inbox")
        except ValueError as error:
            raise UsageError(str(error)) from None
        return await self._put_next(run_id, inbox, value, by)

    async def cancel(
        self, run_id: str, reason: str | None = None, *, by: str | None = None, attempt: str | None = None
    ) -> bool:
        """Ask a run to end: cancelled as asyncio cancels, with its cleanup, which may call tools.

        A run in hand takes it in at its next look (here, at once). One that sleeps does when it is resumed,
        by a worker or by whoever does that: gives True if nobody seems to have it in hand. Each request
        cancels once more; who doesn't know whether one arrived makes it again with the same `attempt`.
        Raises UnknownRun, UsageError for a run that has ended.
        """
        await self._put_next(run_id, mail.CANCEL, reason, by, attempt)
        if self.poke(run_id):
            return False
        log: Log = await self._patiently("Reading the store", self._open.log, run_id)
        last = await self._patiently("Reading the store", log.header)
        try:
            if last.detail["status"] == "running":
                await self._refuse_if_busy(log, last)
        except RunBusy:
            return False
        return True

    async def put(
        self, run_id: str, slot: str, value: Any, *, by: str | None = None, log: Log | None = None
    ) -> None:
        """Put a value into a slot of a run's inbox; the first one counts. Raises AlreadyAnswered."""
        data = letter(value, by)
        attempt = secrets.token_hex(16)
        log = log or await self._patiently("Reading the store", self._open.log, run_id)
        await self._patiently("Putting the answer", log.put_answer, slot, data, attempt)
        self.poke(run_id)

    async def _put_next(
        self, run_id: str, stream: str, value: Any, by: str | None, attempt: str | None = None
    ) -> int:
        data = letter(value, by)
        log: Log = await self._patiently("Reading the store", self._open.log, run_id)
        await self._refuse_if_ended(log)
        first = 1  # an attempt that was made before is found again
        if attempt is None:
            attempt = secrets.token_hex(16)
            first = await self._patiently("Reading the store", log.free_message, stream)
        number: int = await self._patiently("Putting it in", log.put_message, stream, first, data, attempt)
        self.poke(run_id)
        return number

    # --- many runs ----------------------------------------------------------------------------

    async def remove(self, run_id: str, *, force: bool = False) -> int:
        """Remove a run with all its objects; gives how many they were. There is no way back, and its id isn't
        used again.

        Raises UnknownRun; UsageError for a run that hasn't ended, RunBusy for one in a live owner's hands,
        Damaged and WrongKey for one of which neither can be known. `force` removes these, too: an owner is
        fenced before its next effect.
        """
        return await housekeeping.remove(
            self._open,
            run_id,
            force=force,
            patience=self._patience,
            refuse_if_busy=self._refuse_if_busy,
            put=self.put,
        )

    async def reindex(self) -> Reindexed:
        """Write the hints anew by which workers find runs. Reads every run's newest header, once."""
        done: Reindexed = await self._patiently("Reading the store", housekeeping.reindex, self._open)
        return done

    # --- seeing -------------------------------------------------------------------------------

    async def list(self) -> list[RunInfo]:
        """Every run at the store, the most recently changed first. Nothing is unpickled."""
        listed = await self._patiently("Listing the store", lambda: list(self._open.listing()))
        infos = [view.brief(each) for each in listed]
        return sorted(infos, key=lambda info: info.updated, reverse=True)

    async def show(self, run_id: str) -> RunInfo:
        """One run with its plan, steps, questions, and where its bytes lie. Nothing is unpickled."""
        info: RunInfo = await self._patiently(
            "Reading the store", view.full, await self._patiently("Reading the store", self._open.log, run_id)
        )
        return info

    async def about(self, run_id: str) -> Mapping[str, Any]:
        """What the first record of a run says of it."""
        log: Log = await self._patiently("Reading the store", self._open.log, run_id)
        header: Header = await self._patiently("Reading the store", log.header, 1)
        return header.detail

    async def events(self, run_id: str, *, after: int = 0, follow: bool = True) -> AsyncIterator[RunEvent]:
        """What has happened to a run and what happens, until it has ended: `async for event in
        rt.events(run)`.

        From any process that has the key; nothing is unpickled. `after` goes on behind a record that was
        seen; without `follow` it stops at what there is. Raises UnknownRun."""
        log: Log = await self._patiently("Reading the store", self._open.log, run_id)
        async for event in watch(log, after=after, follow=follow, patience=self._patience):
            yield event

    async def verify(self, run_id: str) -> Report:
        """Prove every record and blob of the run, and say which don't hold."""
        report: Report = await self._patiently("Reading the store", self._open.verify, run_id)
        return report

    # --- inside -------------------------------------------------------------------------------

    async def _patiently(self, what: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return await patiently(what, self._patience, fn, *args, **kwargs)

    @property
    def _open(self) -> Store:
        if self._store is None:
            raise UsageError("This Runtime isn't open. Use it as `async with snaprt.Runtime(url) as rt:`.")
        return self._store

    async def _refuse_if_ended(self, log: Log) -> None:
        """Raise UsageError for a run that takes nothing in any more."""
        status = (await self._patiently("Reading the store", log.header)).detail["status"]
        if status not in ("running", "suspended"):
            raise UsageError(
                f"Run {log.run} has ended ({status}): it takes nothing in any more. How it ended is shown by "
                f"`snaprt show {log.run}`."
            )

    async def _refuse_if_busy(self, log: Log, last: Header, wary: bool = False) -> None:
        """Raise RunBusy while the run's owner is taken to be alive; `wary`, while its death may be the run's
        doing, too."""
        claim = await self._patiently("Reading the store", restore.newest_claim, log)
        owner = claim.detail["owner"]
        deaths = restore.deaths(log)
        if wary and deaths > 1 and claim.detail["look"] > time.time():
            busy = RunBusy(
                f"Run {log.run} was in hand {deaths} times, and each time its process died before it got any "
                f"further. Workers leave it alone until {owning.clock(claim.detail['look'])}."
            )
            busy.until = claim.detail["look"]
            raise busy
        if owning.gone(owner):
            return
        until = last.time + claim.detail["lease"]
        lease = await self._patiently("Reading the store", log.get_lease)
        if lease.get("epoch") == claim.epoch:
            until = max(until, lease.get("until", 0.0))
        if until > time.time():
            busy = RunBusy(
                f"Run {log.run} is in the hands of {owning.named(owner)}, whose lease holds until "
                f"{owning.clock(until)}. Wait for that, or take the run with steal=True (--steal): the other "
                "process is then fenced before its next effect."
            )
            busy.until = until
            raise busy
