"""`Runtime`: start, resume and answer runs at a store, and see where they stand.

The public face of floor 3. What stands between a log and a kernel that goes on (changed rules, another
interpreter, a call in doubt) is decided in `restore.py`; driving is `drive.py`'s.

Stores are synchronous and are called in worker threads. Each run in hand has a task of its own in
the runtime's task group; one that is stopped by an error of the store doesn't touch the others.
"""

from __future__ import annotations

import inspect
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Literal, Self

import anyio
import anyio.to_thread

from snaprt import frames, state
from snaprt.errors import Fenced, NotSerialisable, RunBusy, UsageError
from snaprt.kernel import Kernel
from snaprt.records import Header, Keyring
from snaprt.runtime import answers, housekeeping, owning, restore, view
from snaprt.runtime.agents import Agent, check_agent, name_of, rules_of, saves_of, target_of, today
from snaprt.runtime.calls import about
from snaprt.runtime.drive import Driver
from snaprt.runtime.housekeeping import Reindexed
from snaprt.runtime.outcomes import Outcome, RunInfo, Suspended, Waiting
from snaprt.runtime.patience import patiently
from snaprt.runtime.recording import Recorder
from snaprt.runtime.worker import Look, Worker
from snaprt.store import Log, Store
from snaprt.store.check import Report

_OPENING = 3.0
"""Seconds for which a store that can't be opened is tried again."""


class Run:
    """A run that this process has in hand, or that it found ended."""

    def __init__(self, run: str, driver: Driver | None = None, outcome: Outcome | None = None) -> None:
        self.id = run
        self._driver = driver
        self._outcome = outcome
        self._error: BaseException | None = None
        self._ended = anyio.Event()
        if outcome is not None:
            self._ended.set()

    async def outcome(self) -> Outcome:
        """Wait until the run has ended or left the process, and say how.

        Raises the SnaprtError (Fenced, StoreError, …) that made this process stop; the run itself is
        then as its log says, and can be resumed.
        """
        await self._ended.wait()
        if self._error is not None:
            raise self._error
        assert self._outcome is not None  # set before the event is
        return self._outcome

    @property
    def in_hand(self) -> bool:
        """Whether this process took the run in hand; else it was found ended, or still waiting."""
        return self._driver is not None

    def progress(self) -> dict[str, Any]:
        """The five fields as they are now, without touching the store: for showing to a person."""
        return {} if self._driver is None else self._driver.kernel.summary()

    def drain(self, grace: float | None = None) -> None:
        """Start no new call; save and leave when the running ones have ended, or after `grace` seconds."""
        if self._driver is not None:
            self._driver.drain(grace)

    def _end(self, outcome: Outcome | None, error: BaseException | None) -> None:
        self._outcome, self._error = outcome, error
        self._ended.set()


class Runtime:
    """Runs agents with their state at `url` (any fsspec URL, or a folder).

    Use as `async with Runtime(url) as rt:`; leaving the block drains. All times are seconds:

    - `distant`: a run in which everything waits for a person, or for a time further away, leaves the process.
    - `lease`: for how long others take this process to be alive after its last sign. Shorter finds out sooner
      that a machine died; nothing but that depends on it.
    - `patience`: how long a store that fails is tried again before the run stops, resumable.
    - `grace`: how long running calls may take to end when the runtime drains.
    """

    def __init__(
        self,
        url: str,
        *,
        keyring: Keyring | None = None,
        fencing: Literal["on", "off"] = "on",
        storage_options: Mapping[str, Any] | None = None,
        distant: float = 30.0,
        lease: float = 30.0,
        patience: float = 60.0,
        grace: float = 10.0,
    ) -> None:
        for name, seconds in {
            "distant": distant,
            "lease": lease,
            "patience": patience,
            "grace": grace,
        }.items():
            if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
                raise UsageError(f"{name}={seconds!r} is no number of seconds.")
        if lease == 0:
            raise UsageError("lease=0: nobody could be taken to be alive. Give a few seconds.")
        self.url = url
        self._keyring = keyring
        self._fencing = fencing
        self._storage_options = dict(storage_options or {})
        self._distant = distant
        self._lease = lease
        self._patience = patience
        self._grace = grace
        self._store: Store | None = None
        self._draining = False
        self._drivers: dict[str, Driver] = {}
        self._runs: dict[str, Run] = {}
        self._workers: list[Worker] = []
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
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
        await self._stack.__aenter__()
        self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> bool | None:
        self.drain()
        if isinstance(error, Exception):
            # The block failed, the runs didn't: they are saved first, and the error goes on as it came
            # rather than in a group.
            kind = error = where = None
        try:
            return await self._stack.__aexit__(kind, error, where)
        finally:
            self._store = None

    def drain(self, grace: float | None = None) -> None:
        """Start no new call in any run in hand; when the running ones have ended, or after the grace
        (seconds), save each run and let it leave."""
        self._draining = True
        for worker in self._workers:
            worker.stop()
        for driver in self._drivers.values():
            driver.drain(grace)

    # --- runs ---------------------------------------------------------------------------------

    async def start(self, agent: Agent, /, *args: Any, run_id: str | None = None, **kwargs: Any) -> Run:
        """Start a run of `agent(*args, **kwargs)`; its id is `run_id`, or the agent's name and a random part.

        Raises UsageError for something that isn't an `async def` or doesn't take these arguments,
        RunExists, NotSerialisable for arguments that can't travel, StoreError.
        """
        store = self._open
        check_agent(agent)
        try:
            inspect.signature(agent).bind(*args, **kwargs)
        except TypeError as error:
            raise UsageError(
                f"Agent {name_of(agent)} can't be called with these arguments: {error}. "
                f"Its signature is {name_of(agent)}{inspect.signature(agent)}."
            ) from None
        run_id = run_id or f"{name_of(agent).replace('_', '-')}-{secrets.token_hex(4)}"
        kernel = Kernel(run_id, rules_of(agent))
        about = {
            "agent": name_of(agent),
            "target": target_of(agent),
            "started": time.time(),
            "save": saves_of(agent),
        }
        first = {
            "summary": [view.encode(kernel.summary())],
            "agent": _dumped(agent, args, kwargs, kernel.rules).parts,
        }
        owner = owning.take()
        try:
            log: Log = await self._patiently("Reading the store", store.create, run_id)
            detail = {"status": "running", **about, "owner": owner, "lease": self._lease}
            await self._patiently(
                f"Starting run {run_id}",
                log.append,
                "start",
                detail=detail,
                sections=first,
                attempt=secrets.token_hex(8),
                look=owning.look_at(self._lease, 0),
            )
        except BaseException:
            owning.let_go(owner)
            raise
        kernel.start(agent, args, kwargs)
        try:
            return self._drive(log, kernel, owner, epoch=0, about=about)
        except BaseException:
            kernel.release()
            raise

    async def resume(
        self,
        run_id: str,
        *,
        agent: Agent | None = None,
        rules: Literal["recorded", "current"] | None = None,
        steal: bool = False,
        retry: bool = False,
    ) -> Run:
        """Take a run over and go on exactly where its log says it stood.

        `agent` is today's function where it can't be imported by name (a script); it is asked for its
        rules only. `steal` takes the run from an owner whose lease still holds: that one is fenced before its
        next effect. `retry` goes on with a failed run from its last whole state; what failed since is called
        again. Nothing is written where there is nothing to do: a run that still waits is given back as
        Suspended. Raises UnknownRun, RunBusy, RulesChanged, CodeChanged, Damaged, WrongKey.
        """
        if rules not in (None, "recorded", "current"):
            raise UsageError(f"rules={rules!r} is neither 'recorded' nor 'current'.")
        if run_id in self._drivers:
            return self._runs[run_id]
        log: Log = await self._patiently("Reading the store", self._open.log, run_id)
        last = await self._patiently("Reading the store", log.header)
        if last.kind == "finish" and not (retry and last.detail["status"] == "failed"):
            return Run(
                run_id,
                outcome=restore.ended(await self._patiently("Reading the store", log.read, last.number)),
            )
        if last.detail["status"] == "running" and not steal:
            await self._refuse_if_busy(log, last)
        restore.check_interpreter(run_id, last.interpreter)

        restored = await self._patiently("Restoring", restore.restore, log, retry)
        try:
            return await self._go_on(log, last, restored, today(last.detail["target"], agent), rules)
        except BaseException:
            # Released rather than dropped: its cleanup would run here, in a process that doesn't own the run.
            restored.kernel.release()
            raise

    async def _go_on(
        self,
        log: Log,
        last: Header,
        restored: restore.Restored,
        agent: Agent | None,
        rules: Literal["recorded", "current"] | None,
    ) -> Run:
        """Decide what has to be decided first, claim the run and drive it."""
        kernel, run_id = restored.kernel, log.run
        change = restore.settle_rules(run_id, kernel.rules, agent, rules)
        if change is not None:
            kernel.rules = dict(change)
        asleep: Suspended | None = None
        if self._draining:
            asleep = self._waiting(kernel, restored)  # it would have to leave at once
        elif change is None and last.kind == "suspend" and not (restored.again or restored.fresh):
            asleep = await self._asleep(log, kernel, restored)
        if asleep is not None:
            kernel.release()
            return Run(run_id, outcome=asleep)

        about = {key: last.detail[key] for key in ("agent", "target", "started", "save")}
        owner = owning.take()
        claim = {"owner": owner, "lease": self._lease, "doubts": last.detail.get("doubts", [])}
        claim["deaths"] = deaths = await self._patiently("Reading the store", restore.deaths, log)
        sections: dict[str, list[Any]] = {"summary": [view.encode(kernel.summary())]}
        if change is not None:
            claim["rules"] = sorted(change)
            sections["rules"] = state.dump(dict(change)).parts
        if last.kind == "finish":
            claim["retry"] = True
        try:
            await self._patiently(
                f"Claiming run {run_id}",
                log.append,
                "claim",
                detail={"status": "running", **about, **claim},
                sections=sections,
                epoch=last.epoch + 1,
                attempt=secrets.token_hex(8),
                look=owning.look_at(self._lease, deaths),
            )
        except BaseException as error:
            owning.let_go(owner)
            if isinstance(error, Fenced):
                raise RunBusy(
                    f"Run {run_id} was taken by another process at the same moment. Let that one work, or "
                    f"look with `snaprt show {run_id}` and resume again."
                ) from error
            raise
        return self._drive(log, kernel, owner, epoch=last.epoch + 1, about=about, restored=restored)

    async def answer(
        self, run_id: str, value: Any, *, suspension: str | None = None, by: str | None = None
    ) -> str:
        """Answer an open question; the first answer wins. Returns the suspension's id.

        Works from any process that has the key, without the agent's code. A run that this runtime has
        in hand takes it in at once; others do when they are resumed. Raises UnknownRun,
        UnknownSuspension, AlreadyAnswered, NotSerialisable, and UsageError for an answer that an approval
        or a call in doubt doesn't know.
        """
        log: Log = await self._patiently("Reading the store", self._open.log, run_id)
        waiting = (await self._patiently("Reading the store", log.summary)).get("waiting", ())
        suspension = answers.check(run_id, waiting, suspension, value)
        data = b"".join(state.dump((value, by)).parts)
        attempt = secrets.token_hex(16)
        await self._patiently("Putting the answer", log.put_answer, suspension, data, attempt)
        if run_id in self._drivers:
            self._drivers[run_id].poke()
        return suspension

    def poke(self, run_id: str) -> bool:
        """Have a run look at its inbox, if it is in hand here. Says whether it is."""
        if run_id in self._drivers:
            self._drivers[run_id].poke()
        return run_id in self._drivers

    # --- many runs ----------------------------------------------------------------------------

    async def work(
        self,
        *,
        concurrency: int = 4,
        agents: Sequence[str] | None = None,
        poll: float = 1.0,
        tell: Callable[[Look], None] | None = None,
    ) -> None:
        """Resume runs whose answer came, whose time is due, or whose owner died, until `drain` is called.

        At most `concurrency` are in hand at once. With `agents`, modules, only runs of agents in these are
        taken. `poll`: seconds between two looks at the store when there is nothing to do. `tell` hears of
        every run that is taken up, of its outcome, and of failures, which are tried again with growing
        pauses (without it, failures are logged). As many workers as wanted may work on one store. Raises
        UsageError, StoreError.
        """
        worker = Worker(self, self._open, concurrency=concurrency, agents=agents, poll=poll, tell=tell)
        if self._draining:
            return
        self._workers.append(worker)
        try:
            await worker.run()
        finally:
            self._workers.remove(worker)

    async def remove(self, run_id: str, *, force: bool = False) -> int:
        """Remove a run with all its objects; gives how many they were. There is no way back.

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

    async def _refuse_if_busy(self, log: Log, last: Header) -> None:
        """Raise RunBusy while the run's owner is taken to be alive."""
        claim = await self._patiently("Reading the store", restore.newest_claim, log)
        owner = claim.detail["owner"]
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

    async def _asleep(self, log: Log, kernel: Kernel, restored: restore.Restored) -> Suspended | None:
        """What a suspended run goes on waiting for; None where an answer lies there or a timer is near."""
        if set(restored.asked) != {call.step for call in restored.doubtful}:
            return None
        asleep = self._waiting(kernel, restored)
        answered = set(await self._patiently("Reading the store", log.answers))
        if answered & {each.suspension for each in asleep.waiting}:
            return None
        if asleep.until is not None and asleep.until <= time.time() + self._distant:
            return None
        return asleep

    @staticmethod
    def _waiting(kernel: Kernel, restored: restore.Restored) -> Suspended:
        """What a restored run waits for."""
        questions = [Waiting(doubt.suspension, doubt.payload) for doubt in restored.asked.values()]
        questions += [Waiting(each.id, each.payload) for each in kernel.open_suspensions().values()]
        return Suspended(kernel.run, tuple(questions), kernel.next_timer())

    def _drive(
        self,
        log: Log,
        kernel: Kernel,
        owner: Mapping[str, Any],
        *,
        epoch: int,
        about: Mapping[str, Any],
        restored: restore.Restored | None = None,
    ) -> Run:
        recorder = Recorder(log, kernel, epoch=epoch, about=about, patience=self._patience)
        driver = Driver(
            recorder,
            owner=owner,
            distant=self._distant,
            lease=self._lease,
            grace=self._grace,
            only_effects=about["save"] == "effects",
            rerun=None if restored is None else restored.rerun,
        )
        if self._draining:
            driver.drain()  # it is on record, and leaves at its first idle moment
        run = Run(log.run, driver)
        self._drivers[log.run], self._runs[log.run] = driver, run

        async def work() -> None:
            outcome: Outcome | None = None
            error: BaseException | None = None
            try:
                if restored is None:
                    outcome = await driver.drive()
                else:
                    outcome = await driver.drive(
                        again=restored.again,
                        fresh=restored.fresh,
                        doubtful=restored.doubtful,
                        asked=restored.asked,
                    )
            except Exception as raised:
                # It belongs to whoever asks for the outcome; the other runs go on.
                error = raised
            except BaseException as raised:
                error = raised
                raise
            finally:
                owning.let_go(owner)
                del self._drivers[log.run], self._runs[log.run]
                run._end(outcome, error)

        self._tasks.start_soon(work, name=f"run {log.run}")
        return run


def _dumped(agent: Agent, args: tuple[Any, ...], kwargs: dict[str, Any], rules: Any) -> state.Dump:
    """What a run starts from. Raises NotSerialisable that names the argument."""
    try:
        return state.dump((agent, args, kwargs, rules))
    except NotSerialisable as refusal:
        names = {"state → [0]": f"agent {name_of(agent)}", "state → [3]": "its rules"}
        names |= {f"state → [1] → [{number}]": f"argument {number + 1}" for number in range(len(args))}
        names |= {f"state → [2] → [{name!r}]": f"argument {name!r}" for name in kwargs}
        for place, what in names.items():
            refusal = about(refusal, place, what)
        raise refusal from None
