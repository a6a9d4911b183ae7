"""`Runtime`: start and resume runs, and drive them; what needs no agent's code is `Access`'s.

The public face of floor 3. What stands between a log and a kernel that goes on (changed rules, another
interpreter, a call in doubt) is decided in `restore.py`; driving is `drive.py`'s.

Each run in hand has a task of its own in the runtime's task group; one that is stopped by an error of the
store doesn't touch the others.
"""

from __future__ import annotations

import contextlib
import inspect
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Literal, Self

import anyio

from snaprt import state
from snaprt.errors import Fenced, NotSerialisable, RunBusy, UsageError
from snaprt.kernel import Kernel
from snaprt.records import Header, Keyring
from snaprt.runtime import mail, owning, restore, view
from snaprt.runtime.access import Access
from snaprt.runtime.agents import Agent, check_agent, name_of, rules_of, saves_of, target_of, today
from snaprt.runtime.calls import about
from snaprt.runtime.drive import Driver
from snaprt.runtime.endings import ended
from snaprt.runtime.family import Family
from snaprt.runtime.outcomes import Outcome, Suspended, suspended
from snaprt.runtime.recording import Recorder
from snaprt.runtime.run import Run
from snaprt.runtime.threads import for_store
from snaprt.runtime.worker import Look, Worker
from snaprt.store import Log

# For so many leases a run that may be what kills its process is in hand beside no other such run.
_TRIAL = 4.0


class Runtime(Access):
    """Runs agents with their state at `url` (any fsspec URL, or a folder).

    Use as `async with Runtime(url) as rt:`; leaving the block drains. All times are seconds:

    - `distant`: a run in which everything waits for a person, or for a time further away, leaves the process.
    - `look`: how often a run in hand looks for what other processes put into its inbox.
    - `lease`: for how long others take this process to be alive after its last sign. Shorter finds out sooner
      that a machine died; nothing but that depends on it.
    - `patience`: how long a store that fails is tried again before the run stops, resumable.
    - `grace`: how long running calls may take to end when the runtime drains.

    `clock` gives the seconds since the epoch by which agents sleep; tests give one that jumps.
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
        look: float = 2.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        for name, seconds in {
            "distant": distant,
            "look": look,
            "lease": lease,
            "patience": patience,
            "grace": grace,
        }.items():
            if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
                raise UsageError(f"{name}={seconds!r} is no number of seconds.")
        if lease == 0:
            raise UsageError("lease=0: nobody could be taken to be alive. Give a few seconds.")
        super().__init__(url, keyring, fencing, storage_options, patience, clock)
        self._distant = distant
        self._lease = lease
        self._grace = grace
        self._look = look
        self._family = Family(self)
        self._draining = False
        self._drivers: dict[str, Driver] = {}
        self._runs: dict[str, Run] = {}
        self._on_trial: dict[str, float] = {}
        self._workers: list[Worker] = []
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._open_store()
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
            self._close_store()

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
        run_id = run_id or f"{name_of(agent).replace('_', '-')}-{secrets.token_hex(4)}"
        return await self.begin(agent, args, kwargs, run_id)

    async def begin(
        self,
        agent: Agent,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        run_id: str,
        parent: Mapping[str, Any] | None = None,
    ) -> Run:
        """What `start` does; `parent` (its `run`, and the `step` that starts this one) is for a child."""
        store = self._open
        check_agent(agent)
        try:
            inspect.signature(agent).bind(*args, **kwargs)
        except TypeError as error:
            raise UsageError(
                f"Agent {name_of(agent)} can't be called with these arguments: {error}. "
                f"Its signature is {name_of(agent)}{inspect.signature(agent)}."
            ) from None
        kernel = Kernel(run_id, rules_of(agent), self._clock)
        about: dict[str, Any] = {
            "agent": name_of(agent),
            "target": target_of(agent),
            "started": time.time(),
            "save": saves_of(agent),
        }
        if parent is not None:
            about["parent"] = dict(parent)
        first = {
            "summary": [view.encode(kernel)],
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
            return self._drive(log, kernel, owner, epoch=0, claim=1, about=about)
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
        wary: bool = False,
    ) -> Run:
        """Take a run over and go on exactly where its log says it stood.

        `agent` is today's function where it can't be imported by name (a script); it is asked for its
        rules only. `steal` takes the run from an owner whose lease still holds: that one is fenced before its
        next effect. `retry` goes on with a failed run from its last whole state; what failed since is called
        again. `wary` leaves a run alone for a while over which one owner after the other died, and takes one
        such run at a time (RunBusy), as workers do. Nothing is written where there is nothing to do: a run
        that still waits is given back as Suspended. Raises UnknownRun, RunBusy, RulesChanged, CodeChanged,
        Damaged, WrongKey.
        """
        if rules not in (None, "recorded", "current"):
            raise UsageError(f"rules={rules!r} is neither 'recorded' nor 'current'.")
        if run_id in self._drivers:
            return self._runs[run_id]
        log: Log = await self._patiently("Reading the store", self._open.log, run_id)
        last = await self._patiently("Reading the store", log.header)
        if last.kind == "finish" and not (retry and last.detail["status"] == "failed"):
            outcome = ended(await self._patiently("Reading the store", log.read, last.number))
            if "parent" in last.detail:
                await self._family.tell(run_id, last.detail["parent"], outcome)
            return Run(self, run_id, outcome=outcome)
        if last.detail["status"] == "running" and not steal:
            await self._refuse_if_busy(log, last, wary)
        restore.check_interpreter(run_id, last.interpreter)

        restored = await self._patiently("Restoring", restore.restore, log, retry, self._clock)
        try:
            return await self._go_on(log, last, restored, today(last.detail["target"], agent), rules, wary)
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
        wary: bool,
    ) -> Run:
        """Decide what has to be decided first, claim the run and drive it."""
        kernel, run_id = restored.kernel, log.run
        change = restore.settle_rules(run_id, kernel.rules, agent, rules)
        if change is not None:
            kernel.rules = dict(change)
        children = list(kernel.open_children().values())
        await self._family.wake(children)
        asleep: Suspended | None = None
        if self._draining:
            asleep = self._waiting(kernel, restored)  # it would have to leave at once
        elif change is None and last.kind == "suspend" and not (restored.again or restored.fresh):
            asleep = await self._asleep(log, kernel, restored)
        if asleep is not None and not (children and self._family.busy(children)):
            kernel.release()
            return Run(self, run_id, outcome=asleep)

        about = restore.about(last)
        claim: dict[str, Any] = {"lease": self._lease, "doubts": last.detail.get("doubts", [])}
        claim["deaths"] = deaths = await self._patiently("Reading the store", restore.deaths, log)
        if said := last.detail.get("events"):
            claim["events"] = said  # should this process die, too, the next one has to know what was shown
        sections: dict[str, list[Any]] = {"summary": [view.encode(kernel)]}
        if change is not None:
            claim["rules"] = sorted(change)
            sections["rules"] = state.dump(dict(change), copied=True).parts
        if last.kind == "finish":
            claim["retry"] = True
        if wary and deaths > 1:
            self._try_alone(run_id, deaths)
        claim["owner"] = owner = owning.take()
        try:
            claimed = await self._patiently(
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
            self._on_trial.pop(run_id, None)
            if isinstance(error, Fenced):
                raise RunBusy(
                    f"Run {run_id} was taken by another process at the same moment. Let that one work, or "
                    f"look with `snaprt show {run_id}` and resume again."
                ) from error
            raise
        return self._drive(
            log,
            kernel,
            owner,
            epoch=last.epoch + 1,
            claim=claimed.header.number,
            about=about,
            restored=restored,
            said=said,
        )

    def _try_alone(self, run_id: str, deaths: int) -> None:
        """Of the runs over which several owners died, take one at a time; raises RunBusy for another.

        One of them may have killed the processes in which the others died, too: always taken up together,
        none of them would ever get on. A run that got on is cleared of that, and one that lived for some
        leases.
        """
        for other, since in self._on_trial.items():
            driver = self._drivers.get(other)
            if driver is None or (not driver.got_on and time.monotonic() < since + _TRIAL * self._lease):
                raise RunBusy(
                    f"Run {run_id} was in hand {deaths} times, and each time its process died before it got "
                    f"any further. It waits until it is known whether run {other}, in hand now, does that."
                )
        self._on_trial = {run_id: time.monotonic()}

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

    def poke(self, run_id: str) -> bool:
        """Have a run look at its inbox, if it is in hand here. Says whether it is."""
        if run_id in self._drivers:
            self._drivers[run_id].look_soon()
        return run_id in self._drivers

    def has_in_hand(self, run_id: str) -> bool:
        """Whether this runtime drives that run."""
        return run_id in self._drivers

    async def left(self, run_id: str) -> None:
        """Wait until a run that this runtime drives, if it does, has ended or left, however that went."""
        if run_id in self._runs:
            with contextlib.suppress(Exception):  # it belongs to whoever asks for the outcome
                await self._runs[run_id].outcome()

    # --- inside -------------------------------------------------------------------------------

    async def _asleep(self, log: Log, kernel: Kernel, restored: restore.Restored) -> Suspended | None:
        """What a suspended run goes on waiting for; None where an answer lies there or a timer is near."""
        if set(restored.asked) != {call.step for call in restored.doubtful}:
            return None
        asleep = self._waiting(kernel, restored)
        there = set(await self._patiently("Reading the store", log.answers))
        if there & set(mail.wanted(kernel, (each.suspension for each in restored.asked.values()))):
            return None
        if asleep.until is not None and asleep.until <= self._clock() + self._distant:
            return None
        return asleep

    @staticmethod
    def _waiting(kernel: Kernel, restored: restore.Restored) -> Suspended:
        """What a restored run waits for."""
        return suspended(kernel, tuple(doubt.question for doubt in restored.asked.values()))

    def _drive(
        self,
        log: Log,
        kernel: Kernel,
        owner: Mapping[str, Any],
        *,
        epoch: int,
        claim: int,
        about: Mapping[str, Any],
        restored: restore.Restored | None = None,
        said: Mapping[str, Any] | None = None,
    ) -> Run:
        recorder = Recorder(
            log, kernel, epoch=epoch, claim=claim, about=about, patience=self._patience, said=said
        )
        driver = Driver(
            recorder,
            family=self._family,
            owner=owner,
            distant=self._distant,
            look=self._look,
            clock=self._clock,
            lease=self._lease,
            grace=self._grace,
            only_effects=about["save"] == "effects",
            restored=restored is not None,
            rerun=None if restored is None else restored.rerun,
        )
        if self._draining:
            driver.drain()  # it is on record, and leaves at its first idle moment
        run = Run(self, log.run, driver)
        self._drivers[log.run], self._runs[log.run] = driver, run

        parent = about.get("parent")

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
                if parent is not None and await self._family.tell(log.run, parent, outcome):
                    await for_store(log.done)
                if not isinstance(outcome, Suspended):
                    # Its end cancelled these. Who waits for it finds that done, all the way down.
                    for child in [run for run, each in self._drivers.items() if each.parent == log.run]:
                        await self.left(child)
            except Exception as raised:
                # It belongs to whoever asks for the outcome; the other runs go on.
                error = raised
            except BaseException as raised:
                error = raised
                raise
            finally:
                owning.let_go(owner)
                del self._drivers[log.run], self._runs[log.run]
                self._on_trial.pop(log.run, None)
                run._end(outcome, error)
                if parent is not None:
                    self.poke(parent["run"])  # it may leave now, if it only waited for this one

        self._tasks.start_soon(work, name=f"run {log.run}")
        return run


def _dumped(agent: Agent, args: tuple[Any, ...], kwargs: dict[str, Any], rules: Any) -> state.Dump:
    """What a run starts from. Raises NotSerialisable that names the argument."""
    try:
        return state.dump((agent, args, kwargs, rules), copied=True)
    except NotSerialisable as refusal:
        names = {"state → [0]": f"agent {name_of(agent)}", "state → [3]": "its rules"}
        names |= {f"state → [1] → [{number}]": f"argument {number + 1}" for number in range(len(args))}
        names |= {f"state → [2] → [{name!r}]": f"argument {name!r}" for name in kwargs}
        for place, what in names.items():
            refusal = about(refusal, place, what)
        raise refusal from None
