"""Drive one run: the kernel on one side, its log and its tools on the other.

The driver keeps the write protocol of DESIGN.md and nothing else. One turn of `_turns`:

1. Step the kernel until nothing is ready. Every task is parked now.
2. If that issued calls or questions, dump the whole state *at once*. The bytes go out with the next
   record, but a handle that can't travel is refused here, in the awaits that were just issued, before
   any tool has started.
3. An `intent` with that state, if a call isn't a read. Then the tools start.
4. If nothing is in hand and every timer is far, take answers in, or write `suspend` and leave.
5. Wait for a tool, a timer or an answer. Write what arrived as one `result`, with the state if
   anything ran since it was last written; only then hand it to the kernel.

Results that arrive while a record is being written share the next one. State is dumped between
steps of the kernel only, so a record always holds a moment at which every frame stood still.

This file must not know people (command lines, formats of display) nor filesystems: `Log` is all it
sees of a store. It runs on asyncio and trio through anyio; the log is synchronous and is called in
worker threads.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from snaprt import state
from snaprt.errors import NotSerialisable, ResourceUnavailable, SnaprtError, Stalled
from snaprt.kernel import (
    Answer,
    Ask,
    Call,
    CancelCall,
    Close,
    Closed,
    Command,
    Kernel,
    Open,
    Opened,
    Refused,
    Result,
)
from snaprt.kernel.preview import preview
from snaprt.runtime import view
from snaprt.runtime.calls import Arrival, carry_out
from snaprt.runtime.outcomes import Cancelled, Completed, Failed, Outcome, Suspended, Waiting
from snaprt.state import resources
from snaprt.store import Log

# A wall clock can be set while we wait for it; looking again this often (seconds) bounds the harm.
_LOOK_AT_CLOCK = 5.0


class Driver:
    """One run in hand. `drive()` returns when it has ended or left the process."""

    def __init__(
        self, log: Log, kernel: Kernel, *, epoch: int, about: Mapping[str, Any], distant: float
    ) -> None:
        self.log = log
        self.kernel = kernel
        self.draining = False
        self._epoch = epoch
        self._about = dict(about)
        self._distant = distant
        self._unwritten: state.Dump | None = None
        self._arrived: list[Arrival] = []
        self._in_hand: dict[int, anyio.CancelScope] = {}
        self._opened: list[resources.StandIn] = []
        self._held_back: list[Call] = []
        self._poke = anyio.Event()
        self._tools: TaskGroup | None = None

    # --- from outside -------------------------------------------------------------------------

    def poke(self) -> None:
        """Something changed that the driver should look at: an answer, a drain."""
        self._poke.set()

    def drain(self) -> None:
        """Start nothing more; when what runs has ended, save and leave."""
        self.draining = True
        self.poke()

    async def drive(self, *, again: Sequence[Call] = (), fresh: Sequence[Call] = ()) -> Outcome:
        """Run until the end or a suspension.

        `again` are calls of a restored state whose intent is on record or that need none; `fresh` are
        calls that were issued but never announced. Raises the SnaprtError that stopped the runtime.
        """
        outcome: Outcome | None = None
        stopped: SnaprtError | None = None
        try:
            async with anyio.create_task_group() as tools:
                self._tools = tools
                try:
                    await self._reopen()
                    for call in again:
                        self._start(call)
                    if fresh:
                        await self._announce(list(fresh), [])
                    outcome = await self._turns()
                except SnaprtError as error:
                    stopped = error
                tools.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self._close_all()
            self.kernel.release()
        if stopped is not None:
            raise stopped
        assert outcome is not None  # the task group re-raises everything else
        return outcome

    # --- the protocol -------------------------------------------------------------------------

    async def _turns(self) -> Outcome:
        while True:
            self._poke = anyio.Event()
            await self._settle()
            if self.kernel.status != "running":
                return await self._finish()
            if self._arrived:
                await self._record()
                continue
            if not self._in_hand and (self.draining or self._nothing_near()):
                if not self.draining and await self._take_answers():
                    continue
                if (suspended := await self._leave()) is not None:
                    return suspended
                continue
            if self.kernel.open_suspensions() and await self._take_answers():
                continue
            await self._wait()

    async def _settle(self) -> None:
        """Step the kernel and follow its commands until it wants nothing new."""
        while True:
            commands: Sequence[Command] = self.kernel.advance()
            calls: list[Call] = []
            suspensions: list[str] = []
            for command in commands:
                match command:
                    case Call():
                        calls.append(command)
                    case Ask():
                        suspensions.append(command.suspension)
                    case CancelCall():
                        self._cancel(command.step)
                    case Open():
                        self.kernel.deliver(Opened(command.stand_in, await self._open(command.stand_in)))
                    case Close():
                        self.kernel.deliver(Closed(command.stand_in, await self._close(command.stand_in)))
            if calls or suspensions:
                await self._announce(calls, suspensions)
            elif not commands:
                if self.kernel.idle or self._arrived:
                    return
                await anyio.sleep(0)  # the agent polls: let what it polls for arrive

    async def _announce(self, calls: list[Call], suspensions: list[str]) -> None:
        """Save the moment at which these were issued, then start the calls."""
        if self.kernel.status != "running":
            return
        if not self._dumped([call.step for call in calls], suspensions):
            return
        if self.draining:
            self._held_back += calls
            return
        effects = [call for call in calls if call.effect != "read"]
        if effects:
            await self._append(
                "intent",
                {"steps": [call.step for call in effects], "keys": [call.key for call in effects]},
            )
        for call in calls:
            self._start(call)

    async def _record(self) -> None:
        """Write what arrived as one result, then hand it to the kernel."""
        arrived, self._arrived = self._arrived, []
        try:
            self._dump()
        except NotSerialisable as error:
            # That the tools were called is recorded all the same; the agent is told at these very awaits.
            refused = state.dump((None, error))
            arrived = [replace(item, value=None, error=error, dump=refused) for item in arrived]
        for item in arrived:
            self.kernel.deliver(
                Result(item.step, item.value, item.error, started=item.started, ended=item.ended)
            )
        await self._append(
            "result",
            {"steps": [{"step": i.step, "started": i.started, "ended": i.ended} for i in arrived]},
            values={f"value-{item.step}": item.dump for item in arrived},
        )

    async def _take_answers(self) -> bool:
        """Take in the answers that lie in the inbox. Says whether there were any."""
        found = False
        for suspension in sorted(self.kernel.open_suspensions()):
            data = await anyio.to_thread.run_sync(self.log.get_answer, suspension)
            if data is None:
                continue
            if not self._dumped([], [suspension]):
                return True
            value, by = state.load(data)
            self.kernel.deliver(Answer(suspension, value, by))
            await self._append(
                "wake", {"suspension": suspension, "by": by}, values={"answer": state.dump(value)}
            )
            found = True
        return found

    async def _leave(self) -> Suspended | None:
        """Write `suspend` and go; None when the state was refused, which the agent has yet to hear."""
        waiting = tuple(Waiting(item.id, item.payload) for item in self.kernel.open_suspensions().values())
        until = self.kernel.next_timer()
        if not self.draining and not waiting and until is None:
            raise Stalled(
                f"Run {self.log.run} waits for something that can't come: no question is open, no timer runs "
                "and no tool is in hand. Tasks: "
                + "; ".join(self.kernel.where())
                + ". The last record stays; mend the "
                "agent so that something sets the future or event that it awaits."
            )
        if not self._dumped([], [item.suspension for item in waiting]):
            return None
        if self._unwritten is not None or self._held_back:
            await self._append(
                "suspend",
                {
                    "waiting": [item.suspension for item in waiting],
                    "until": until,
                    "unstarted": [call.step for call in self._held_back],
                },
                status="suspended",
            )
        return Suspended(self.log.run, waiting, until)

    async def _finish(self) -> Outcome:
        kernel, run = self.kernel, self.log.run
        error = kernel.error
        if kernel.status == "completed":
            try:
                await self._append(
                    "finish",
                    {"result": preview(kernel.value)},
                    values={"outcome": state.dump(("completed", kernel.value))},
                    status="completed",
                )
            except NotSerialisable as refusal:
                error = refusal
            else:
                return Completed(run, kernel.value)
        if kernel.status == "cancelled":
            reason = str(error) if error is not None else ""
            await self._append(
                "finish",
                {"reason": reason},
                values={"outcome": state.dump(("cancelled", reason))},
                status="cancelled",
            )
            return Cancelled(run, reason)
        assert error is not None  # a failed kernel has its error
        text = "".join(traceback.format_exception(error))
        headline = "".join(traceback.format_exception_only(error)).strip()
        recorded = error
        try:
            state.dump(error)
        except NotSerialisable:
            recorded = SnaprtError(headline)
        await self._append(
            "finish",
            {"error": headline, "traceback": text},
            values={"outcome": state.dump(("failed", recorded, text))},
            status="failed",
        )
        return Failed(run, error, text)

    # --- the state and the log ----------------------------------------------------------------

    def _dump(self) -> None:
        """Have the state of this moment in `_unwritten`, unless it is in the log already."""
        if self.kernel.dirty:
            self._unwritten = None
            self._unwritten = self.kernel.save().detached()  # a tool may change a buffer before it is written

    def _dumped(self, steps: Sequence[int], suspensions: Sequence[str]) -> bool:
        """Dump; or have the refusal raised in the agent at these awaits, and say False.

        Where nobody is there to hear it (all sleep), it stops the runtime; the last record stays.
        """
        try:
            self._dump()
        except NotSerialisable as refusal:
            if not steps and not suspensions:
                raise
            self.kernel.deliver(Refused(tuple(steps), tuple(suspensions), refusal))
            return False
        return True

    async def _append(
        self,
        kind: str,
        detail: Mapping[str, Any],
        *,
        values: Mapping[str, state.Dump] | None = None,
        status: str = "running",
    ) -> None:
        sections: dict[str, list[Any]] = {"summary": [view.encode(self.kernel.summary())]}
        if self._unwritten is not None:
            sections["state"] = self._unwritten.parts
        for name, dump in (values or {}).items():
            sections[name] = dump.parts
        detail = {"status": status, **self._about, **detail}
        await anyio.to_thread.run_sync(
            lambda: self.log.append(kind, detail=detail, sections=sections, epoch=self._epoch)
        )
        self._unwritten = None

    # --- tools and resources ------------------------------------------------------------------

    def _start(self, call: Call) -> None:
        assert self._tools is not None
        scope = self._in_hand[call.step] = anyio.CancelScope()
        self._tools.start_soon(self._carry_out, call, scope, name=f"{call.tool} (step {call.step})")

    async def _carry_out(self, call: Call, scope: anyio.CancelScope) -> None:
        try:
            with scope:
                arrival = await carry_out(call)
                self._arrived.append(arrival)  # looked up now: the list was another one when the call began
        finally:
            self._in_hand.pop(call.step, None)
            self.poke()

    def _cancel(self, step: int) -> None:
        """The agent gave up waiting for this call."""
        self._held_back = [call for call in self._held_back if call.step != step]
        self._arrived = [item for item in self._arrived if item.step != step]
        scope = self._in_hand.get(step)
        if scope is not None:
            scope.cancel()

    async def _open(self, stand_in: resources.StandIn) -> BaseException | None:
        try:
            await resources.open_handle(stand_in)
        except Exception as error:
            return error
        self._opened.append(stand_in)
        return None

    async def _close(self, stand_in: resources.StandIn) -> BaseException | None:
        self._opened = [each for each in self._opened if each is not stand_in]
        try:
            await resources.close_handle(stand_in)
        except Exception as error:
            return error
        return None

    async def _reopen(self) -> None:
        """Open again what the restored agent holds, before any of it runs."""
        for stand_in in self.kernel.open_resources():
            error = await self._open(stand_in)
            if error is not None:
                raise ResourceUnavailable(
                    f"Run {self.log.run} holds the resource {stand_in!r}, and it can't be opened here: "
                    f"{error!r}. "
                    "The run stays as it was; mend that and resume again."
                ) from error

    async def _close_all(self) -> None:
        while self._opened:
            await self._close(self._opened[-1])

    # --- waiting ------------------------------------------------------------------------------

    def _nothing_near(self) -> bool:
        due = self.kernel.next_timer()
        return due is None or due > time.time() + self._distant

    async def _wait(self) -> None:
        due = self.kernel.next_timer()
        wait = _LOOK_AT_CLOCK if due is None else min(max(due - time.time(), 0.0), _LOOK_AT_CLOCK)
        with anyio.move_on_after(wait if due is not None else None):
            await self._poke.wait()
