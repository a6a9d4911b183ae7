"""`Runtime`: start, resume and answer runs at a store, and see where they stand.

The public face of floor 3. What stands between a log and a kernel that goes on (changed rules, another
interpreter, a call in doubt) is decided in `restore.py`; driving is `drive.py`'s.

Stores are synchronous and are called in worker threads. Each run in hand has a task of its own in
the runtime's task group; one that is stopped by an error of the store doesn't touch the others.
"""

from __future__ import annotations

import functools
import inspect
import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Literal, Self

import anyio
import anyio.to_thread

from snaprt import frames, state
from snaprt.errors import Fenced, InDoubt, RunBusy, UnknownSuspension, UsageError
from snaprt.kernel import Call, Kernel
from snaprt.records import Keyring, Record
from snaprt.runtime import restore, view
from snaprt.runtime.agents import Agent, check_agent, name_of, rules_of, target_of, today
from snaprt.runtime.drive import Driver
from snaprt.runtime.outcomes import Outcome, RunInfo, Suspended, Waiting
from snaprt.store import Log, Store
from snaprt.store.check import Report


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

    def progress(self) -> dict[str, Any]:
        """The five fields as they are now, without touching the store: for showing to a person."""
        return {} if self._driver is None else self._driver.kernel.summary()

    def drain(self) -> None:
        """Start no new call; save and leave when the running ones have ended."""
        if self._driver is not None:
            self._driver.drain()

    def _end(self, outcome: Outcome | None, error: BaseException | None) -> None:
        self._outcome, self._error = outcome, error
        self._ended.set()


class Runtime:
    """Runs agents with their state at `url` (any fsspec URL, or a folder).

    `distant` (seconds): a run in which everything waits for a person, or for a time further away than
    this, leaves the process. Use as `async with Runtime(url) as rt:`; leaving the block drains: nothing
    new is started, what runs is waited for, and each run is saved and suspended.
    """

    def __init__(
        self,
        url: str,
        *,
        keyring: Keyring | None = None,
        fencing: Literal["on", "off"] = "on",
        storage_options: Mapping[str, Any] | None = None,
        distant: float = 30.0,
    ) -> None:
        self.url = url
        self._keyring = keyring
        self._fencing = fencing
        self._storage_options = dict(storage_options or {})
        self._distant = distant
        self._store: Store | None = None
        self._drivers: dict[str, Driver] = {}
        self._runs: dict[str, Run] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._store = await _in_thread(
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
        return await self._stack.__aexit__(kind, error, where)

    def drain(self) -> None:
        """Let every run in hand be saved and leave, when its running calls have ended."""
        for driver in self._drivers.values():
            driver.drain()

    # --- runs ---------------------------------------------------------------------------------

    async def start(self, agent: Agent, *args: Any, run_id: str | None = None, **kwargs: Any) -> Run:
        """Start a run of `agent(*args, **kwargs)`; its id is `run_id`, or the agent's name and a random part.

        Raises UsageError for something that isn't an `async def` or doesn't take these arguments,
        RunExists, NotSerialisable for arguments that can't travel, StoreError.
        """
        check_agent(agent)
        try:
            inspect.signature(agent).bind(*args, **kwargs)
        except TypeError as error:
            raise UsageError(
                f"Agent {name_of(agent)} can't be called with these arguments: {error}. "
                f"Its signature is {name_of(agent)}{inspect.signature(agent)}."
            ) from None
        run_id = run_id or f"{name_of(agent).replace('_', '-')}-{secrets.token_hex(4)}"
        rules = rules_of(agent)
        kernel = Kernel(run_id, rules)
        about = {"agent": name_of(agent), "started": time.time()}
        detail = {
            **about,
            "status": "running",
            "target": target_of(agent),
        }
        sections = {
            "summary": [view.encode(kernel.summary())],
            "agent": state.dump((agent, args, kwargs)).parts,
        }
        log: Log = await _in_thread(self._open.create, run_id)
        await _in_thread(log.append, "start", detail=detail, sections=sections)
        kernel.start(agent, args, kwargs)
        return self._drive(log, kernel, epoch=0, about=about)

    async def resume(
        self,
        run_id: str,
        *,
        agent: Agent | None = None,
        rules: Literal["recorded", "current"] | None = None,
        in_doubt: Literal["retry"] | None = None,
    ) -> Run:
        """Take a run over and go on exactly where its log says it stood.

        `agent` is today's function where it can't be imported by name (a script); it is asked for its
        rules only. Nothing is written where there is nothing to do: a run that still waits is given
        back as Suspended. Raises UnknownRun, RunBusy (another process took it at the same moment),
        RulesChanged, CodeChanged, InDoubt, Damaged, WrongKey.
        """
        if run_id in self._drivers:
            return self._runs[run_id]
        log: Log = await _in_thread(self._open.log, run_id)
        headers = await _in_thread(log.headers)
        first, last = headers[0], headers[-1]
        if last.kind == "finish":
            return Run(run_id, outcome=restore.ended(await _in_thread(log.read, last.number)))
        about = {key: first.detail[key] for key in ("agent", "started")}
        restore.check_interpreter(run_id, last.interpreter)

        newest: Record | None = await _in_thread(log.newest_state)
        if newest is None:
            target, args, kwargs = state.load((await _in_thread(log.read, first.number)).sections["agent"])
            summary = await _in_thread(log.summary)
            kernel = Kernel(run_id, summary.get("rules") or {})
            since = first.number
        else:
            kernel = Kernel.load(newest.sections["state"])
            since = newest.header.number
        current = today(first.detail.get("target", ""), agent)
        change = restore.settle_rules(run_id, kernel.rules, current, rules)
        if change is not None:
            kernel.rules = change
        if newest is None:
            kernel.start(target, args, kwargs)

        for header in headers:
            if header.number >= since and header.kind in ("result", "wake"):
                restore.feed(kernel, await _in_thread(log.read, header.number))
        unstarted = set(last.detail.get("unstarted", ()))
        pending = kernel.pending_calls()
        fresh = [call for call in pending if call.step in unstarted]
        again = [call for call in pending if call.step not in unstarted]
        doubtful = [call for call in again if call.effect == "write"]
        if doubtful and in_doubt != "retry":
            raise InDoubt(restore.in_doubt_text(run_id, doubtful))

        if change is None and last.kind == "suspend" and not pending:
            asleep = await self._asleep(log, kernel)
            if asleep is not None:
                kernel.release()
                return Run(run_id, outcome=asleep)
        try:
            await _in_thread(
                log.append,
                "claim",
                detail={"status": "running", **about, "owner": f"{socket.gethostname()}:{os.getpid()}"}
                | ({"rules": dict(change)} if change is not None else {}),
                sections={"summary": [view.encode(kernel.summary())]},
                epoch=last.epoch + 1,
            )
        except Fenced as error:
            raise RunBusy(
                f"Run {run_id} was taken by another process at the same moment. Let that one work, or look "
                f"with `snaprt show {run_id}` and resume again."
            ) from error
        return self._drive(log, kernel, epoch=last.epoch + 1, about=about, again=again, fresh=fresh)

    async def answer(
        self, run_id: str, value: Any, *, suspension: str | None = None, by: str | None = None
    ) -> str:
        """Answer an open question; the first answer wins. Returns the suspension's id.

        Works from any process that has the key, without the agent's code. A run that this runtime has
        in hand takes it in at once; others do when they are resumed. Raises UnknownRun,
        UnknownSuspension, AlreadyAnswered, NotSerialisable.
        """
        log: Log = await _in_thread(self._open.log, run_id)
        summary = await _in_thread(log.summary)
        waiting = [item["suspension"] for item in summary.get("waiting", ())]
        if suspension is None:
            if len(waiting) != 1:
                raise UnknownSuspension(restore.which_question(run_id, summary.get("waiting", ())))
            suspension = waiting[0]
        elif suspension not in waiting:
            raise UnknownSuspension(restore.which_question(run_id, summary.get("waiting", ()), suspension))
        data = b"".join(state.dump((value, by)).parts)
        await _in_thread(log.put_answer, suspension, data)
        if run_id in self._drivers:
            self._drivers[run_id].poke()
        return suspension

    # --- seeing -------------------------------------------------------------------------------

    async def list(self) -> list[RunInfo]:
        """Every run at the store, the most recently changed first. Nothing is unpickled."""
        listed = await _in_thread(lambda: list(self._open.listing()))
        infos = [view.brief(each) for each in listed]
        return sorted(infos, key=lambda info: info.updated, reverse=True)

    async def show(self, run_id: str) -> RunInfo:
        """One run with its plan, steps, questions, and where its bytes lie. Nothing is unpickled."""
        return await _in_thread(view.full, await _in_thread(self._open.log, run_id))

    async def verify(self, run_id: str) -> Report:
        """Prove every record and blob of the run, and say which don't hold."""
        return await _in_thread(self._open.verify, run_id)

    # --- inside -------------------------------------------------------------------------------

    @property
    def _open(self) -> Store:
        if self._store is None:
            raise UsageError("This Runtime isn't open. Use it as `async with snaprt.Runtime(url) as rt:`.")
        return self._store

    async def _asleep(self, log: Log, kernel: Kernel) -> Suspended | None:
        """What a suspended run goes on waiting for; None where an answer lies there or a timer is near."""
        questions = kernel.open_suspensions()
        answered = set(await _in_thread(log.answers))
        until = kernel.next_timer()
        if answered & set(questions) or (until is not None and until <= time.time() + self._distant):
            return None
        return Suspended(log.run, tuple(Waiting(each.id, each.payload) for each in questions.values()), until)

    def _drive(
        self,
        log: Log,
        kernel: Kernel,
        *,
        epoch: int,
        about: Mapping[str, Any],
        again: list[Call] | None = None,
        fresh: list[Call] | None = None,
    ) -> Run:
        driver = Driver(log, kernel, epoch=epoch, about=about, distant=self._distant)
        run = Run(log.run, driver)
        self._drivers[log.run], self._runs[log.run] = driver, run

        async def work() -> None:
            outcome: Outcome | None = None
            error: BaseException | None = None
            try:
                outcome = await driver.drive(again=again or (), fresh=fresh or ())
            except Exception as raised:
                # It belongs to whoever asks for the outcome; the other runs go on.
                error = raised
            except BaseException as raised:
                error = raised
                raise
            finally:
                del self._drivers[log.run], self._runs[log.run]
                run._end(outcome, error)

        self._tasks.start_soon(work, name=f"run {log.run}")
        return run


async def _in_thread(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    return await anyio.to_thread.run_sync(functools.partial(fn, *args, **kwargs))
