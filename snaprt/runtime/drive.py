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

Draining starts no new call, gives the running ones a grace, saves and leaves. A call that the grace cut off
stays pending in the state; its effect decides at the resume, as after a crash.

This file must not know people (command lines, formats of display) nor filesystems: `Log` is all it
sees of a store. It runs on asyncio and trio through anyio; the log is synchronous and is called in
worker threads.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from snaprt import state
from snaprt.errors import CallFailed, Diverged, NotSerialisable, SnaprtError, Stalled
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
from snaprt.runtime.calls import Arrival, Unanswered, about, apart, arrival, carry_out
from snaprt.runtime.doubts import Doubt, Retry, reconciled, verdict
from snaprt.runtime.opened import OpenResources
from snaprt.runtime.outcomes import Cancelled, Completed, Failed, Outcome, Suspended, Waiting
from snaprt.runtime.patience import patiently
from snaprt.runtime.recording import Recorder
from snaprt.runtime.rerun import Rerun, as_called
from snaprt.state.exceptions import format_exception

# A wall clock can be set while we wait for it; looking again this often (seconds) bounds the harm.
_LOOK_AT_CLOCK = 5.0


def _asked_to_cancel() -> bool:
    """Whether somebody cancelled this very task; else a tool let a cancellation of its own get out."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return False  # a trio host, which cancels by another exception
    return task is None or task.cancelling() > 0


class Driver:
    """One run in hand. `drive()` returns when it has ended or left the process."""

    def __init__(
        self,
        recorder: Recorder,
        *,
        owner: Mapping[str, Any],
        distant: float,
        lease: float,
        grace: float,
        only_effects: bool = False,
        rerun: Rerun | None = None,
    ) -> None:
        self.kernel: Kernel = recorder.kernel
        self.log = recorder.log
        self._recorder = recorder
        self._owner = owner
        self._distant = distant
        self._lease = lease
        self._grace = grace
        self._only_effects = only_effects
        self._rerun = rerun or Rerun()
        self._stop_by: float | None = None
        self._arrived: list[Arrival] = []
        self._in_hand: dict[int, anyio.CancelScope] = {}
        self._opened = OpenResources(recorder.log.run)
        self._held_back: list[Call] = []
        self._doubts: dict[str, Doubt] = {}
        self._unanswered: list[Call] = []
        self._poke = anyio.Event()
        self._tools: TaskGroup | None = None

    # --- from outside -------------------------------------------------------------------------

    def poke(self) -> None:
        """Something changed that the driver should look at: an answer, a drain."""
        self._poke.set()

    @property
    def draining(self) -> bool:
        """Whether the run is to leave the process."""
        return self._stop_by is not None

    def drain(self, grace: float | None = None) -> None:
        """Start nothing more; when what runs has ended, or after `grace` seconds, save and leave."""
        self._stop_by = time.monotonic() + (self._grace if grace is None else grace)
        self.poke()

    async def drive(
        self,
        *,
        again: Sequence[Call] = (),
        fresh: Sequence[Call] = (),
        doubtful: Sequence[Call] = (),
        asked: Mapping[int, Doubt] | None = None,
    ) -> Outcome:
        """Run until the end or a suspension.

        Of a restored state, `again` are calls that can simply be made again, `fresh` were issued but never
        announced, `doubtful` may have happened; `asked` names the questions that are out about those.
        Raises the SnaprtError that stopped the runtime.
        """
        outcome: Outcome | None = None
        stopped: SnaprtError | None = None
        try:
            async with anyio.create_task_group() as tools:
                self._tools = tools
                tools.start_soon(self._keep_lease)
                try:
                    await self._opened.reopen(self.kernel.open_resources())
                    for call in again:
                        self._start(call)
                    await self._face(doubtful, asked or {})
                    if fresh:
                        await self._announce(list(fresh), [])
                    outcome = await self._turns()
                except SnaprtError as error:
                    stopped = error
                tools.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self._opened.close_all()
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
            if self._rerun and not self._in_hand and self._nothing_near():
                raise Diverged(
                    f"Run {self.log.run} has {self._rerun.missing()} on record, and the agent didn't call "
                    "that when its lines ran again (save='effects'). They have to repeat themselves: take "
                    "what isn't repeatable into a tool, or save the agent always."
                )
            if self._unanswered:
                calls, self._unanswered = self._unanswered, []
                await self._face(calls, {})
                continue
            if self._arrived:
                await self._record()
                continue
            if self.draining and self._in_hand and time.monotonic() >= (self._stop_by or 0.0):
                self._cut_off()
            if not self._in_hand and (self.draining or self._nothing_near()):
                if not self.draining and await self._take_answers():
                    continue
                if (suspended := await self._leave()) is not None:
                    return suspended
                continue
            if not self.draining and self._questions() and await self._take_answers():
                continue
            await self._wait()

    async def _settle(self) -> None:
        """Step the kernel and follow its commands until it wants nothing new."""
        while True:
            commands = self._advance()
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
                        self.kernel.deliver(
                            Opened(command.stand_in, await self._opened.open(command.stand_in))
                        )
                    case Close():
                        self.kernel.deliver(
                            Closed(command.stand_in, await self._opened.close(command.stand_in))
                        )
            if calls or suspensions:
                await self._announce(calls, suspensions)
            elif results := self._rerun.next():
                for result in results:
                    self.kernel.deliver(result)
            elif not commands:
                if self.kernel.idle or self._arrived or self._unanswered or self.draining:
                    return  # what is ready to run is part of the state, so an agent that spins can leave too
                await anyio.sleep(0)  # the agent polls: let what it polls for arrive

    def _advance(self) -> Sequence[Command]:
        try:
            return self.kernel.advance()
        except SystemExit:
            # The agent's own `sys.exit`: the run fails with it, this process isn't the agent's to end.
            return self.kernel.advance()

    async def _announce(self, calls: list[Call], suspensions: list[str]) -> None:
        """Save the moment at which these were issued, then start the calls."""
        if self.kernel.status != "running":
            return
        calls = [call for call in calls if not self._rerun.takes(call)]
        effects = [call for call in calls if call.effect != "read"]
        if (effects or suspensions or not self._only_effects) and not self._dumped(
            [call.step for call in calls], suspensions
        ):
            return
        if self.draining:
            self._held_back += calls
            return
        await self._intend(effects)
        for call in calls:
            self._start(call)

    async def _intend(self, calls: Sequence[Call]) -> None:
        """Say on record that these are about to be called."""
        if calls:
            await self._recorder.append(
                "intent", {"steps": [call.step for call in calls], "keys": [call.key for call in calls]}
            )

    async def _record(self) -> None:
        """Write what arrived as one result, then hand it to the kernel."""
        arrived, self._arrived = self._arrived, []
        try:
            if not self._only_effects:
                self._recorder.dump()
        except NotSerialisable as error:
            # That the tools were called is recorded all the same; the agent is told at these very awaits.
            refused = state.dump((None, error))
            arrived = [replace(item, value=None, error=error, dump=refused) for item in arrived]
        called = self._as_called(arrived)
        for item in arrived:
            self.kernel.deliver(
                Result(
                    item.step,
                    item.value,
                    item.error,
                    started=item.started,
                    ended=item.ended,
                    attempts=item.attempts,
                )
            )
        await self._recorder.append(
            "result",
            {
                "steps": [
                    {
                        "step": item.step,
                        "ok": item.error is None,
                        "started": item.started,
                        "ended": item.ended,
                        "attempts": list(item.attempts),
                        **({"called": called[item.step]} if item.step in called else {}),
                    }
                    for item in arrived
                ]
            },
            values={f"value-{item.step}": item.dump for item in arrived},
        )

    def _as_called(self, arrived: Sequence[Arrival]) -> dict[int, dict[str, Any]]:
        """What was called, where lines may run again and have to be held against it."""
        if not self._only_effects:
            return {}
        calls = {call.step: call for call in self.kernel.pending_calls()}
        return {item.step: as_called(calls[item.step]) for item in arrived if item.step in calls}

    async def _take_answers(self) -> bool:
        """Take in the answers that lie in the inbox. Says whether there were any."""
        found = False
        for suspension in [*self._doubts, *self.kernel.open_suspensions()]:
            data = await patiently(
                f"Looking for an answer of run {self.log.run}",
                self._recorder.patience,
                self.log.get_answer,
                suspension,
            )
            if data is None:
                continue
            found = True
            value, by = state.load(data, joining=self.kernel.namespaces)
            if suspension in self._doubts:
                await self._resolve(self._doubts[suspension], value)
            elif self._dumped([], [suspension]):
                self.kernel.deliver(Answer(suspension, value, by))
                await self._recorder.append(
                    "wake", {"suspension": suspension, "by": by}, values={"answer": state.dump(value)}
                )
        return found

    async def _leave(self) -> Suspended | None:
        """Write `suspend` and go; None when the state was refused, which the agent has yet to hear."""
        waiting = self._questions()
        until = self.kernel.next_timer()
        if not self.draining and not waiting and until is None:
            raise Stalled(
                f"Run {self.log.run} waits for something that can't come: no question is open, no timer runs "
                f"and no tool is in hand. Tasks: {'; '.join(self.kernel.where())}. The last record stays; "
                "mend the agent so that something sets the future or event that it awaits."
            )
        if not self._dumped([], list(self.kernel.open_suspensions())):
            return None
        await self._recorder.append(
            "suspend",
            {
                "waiting": [item.suspension for item in waiting],
                "until": until,
                "unstarted": [call.step for call in self._held_back],
                "doubts": [doubt.as_json() for doubt in self._doubts.values()],
            },
            status="suspended",
            also_waiting=self._doubt_questions(),
            look=time.time() if self.draining else until,  # told to stop, it has more to do
        )
        return Suspended(self.log.run, waiting, until)

    async def _finish(self) -> Outcome:
        kernel, run = self.kernel, self.log.run
        error = kernel.error
        if kernel.status == "completed":
            try:
                value = state.dump(("completed", kernel.value))
            except NotSerialisable as refusal:
                error = about(refusal, "state → [1]", "the value that the agent returned")
            else:
                await self._end("completed", value, {"result": preview(kernel.value)})
                return Completed(run, kernel.value)
        if kernel.status == "cancelled":
            reason = str(error) if error is not None else ""
            await self._end("cancelled", state.dump(("cancelled", reason)), {"reason": reason})
            return Cancelled(run, reason)
        assert error is not None  # a failed kernel has its error
        text = format_exception(error)
        headline = "".join(traceback.format_exception_only(error)).strip()
        try:
            outcome = state.dump(("failed", error, text))
        except NotSerialisable:
            outcome = state.dump(("failed", SnaprtError(headline), text))
        await self._end("failed", outcome, {"error": headline, "traceback": text})
        return Failed(run, error, text)

    async def _end(self, status: str, outcome: state.Dump, detail: Mapping[str, Any]) -> None:
        # The last whole state stays what it is: a failed run goes on from there when it is tried again.
        await self._recorder.append(
            "finish", detail, values={"outcome": outcome}, status=status, with_state=False, look=None
        )

    def _dumped(self, steps: Sequence[int], suspensions: Sequence[str]) -> bool:
        """Dump; or have the refusal raised in the agent at these awaits, and say False.

        Where nobody is there to hear it (all sleep), it stops the runtime; the last record stays.
        """
        try:
            self._recorder.dump()
        except NotSerialisable as refusal:
            if not steps and not suspensions:
                raise
            self.kernel.deliver(Refused(tuple(steps), tuple(suspensions), refusal))
            return False
        return True

    # --- doubts -------------------------------------------------------------------------------

    async def _face(self, calls: Sequence[Call], asked: Mapping[int, Doubt]) -> None:
        """Settle calls that may have happened, or have the questions ready that a person is to answer."""
        for call in calls:
            doubt = asked.get(call.step)
            if doubt is None:
                found = await reconciled(call)
                if not isinstance(found, str):
                    await self._act_on(call, found)
                    continue
                doubt = Doubt(f"doubt-{call.step}-{self.log.newest}", call, found)
            self._doubts[doubt.suspension] = doubt

    async def _resolve(self, doubt: Doubt, answer: Any) -> None:
        found = verdict(doubt, answer)
        del self._doubts[doubt.suspension]
        await self._act_on(doubt.call, found)

    async def _act_on(self, call: Call, found: Any) -> None:
        if isinstance(found, Retry):
            await self._intend([call])  # a new doubt about it is a new question
            self._start(call)
        else:
            now = time.time()
            self._arrived.append(arrival(call, found.value, found.error, now, now, self.kernel.namespaces))

    def _doubt_questions(self) -> tuple[Waiting, ...]:
        return tuple(Waiting(name, doubt.payload) for name, doubt in self._doubts.items())

    def _questions(self) -> tuple[Waiting, ...]:
        mine = (Waiting(each.id, each.payload) for each in self.kernel.open_suspensions().values())
        return (*self._doubt_questions(), *mine)

    # --- tools ------------------------------------------------------------------

    def _start(self, call: Call) -> None:
        assert self._tools is not None
        call = apart(call, self.kernel.namespaces, self._opened.stand_ins)
        scope = self._in_hand[call.step] = anyio.CancelScope()
        self._tools.start_soon(self._carry_out, call, scope, name=f"{call.tool} (step {call.step})")

    async def _carry_out(self, call: Call, scope: anyio.CancelScope) -> None:
        try:
            with scope:
                came = await carry_out(call, self.kernel.namespaces)
                self._arrived.append(came)  # looked up now: the list was another one when the call began
        except Unanswered:
            self._unanswered.append(call)
        except asyncio.CancelledError:
            if _asked_to_cancel():
                raise
            error = CallFailed(f"{call.tool} (step {call.step}) was cancelled from inside.")
            now = time.time()
            self._arrived.append(arrival(call, None, error, now, now, {}))
        finally:
            self._in_hand.pop(call.step, None)
            self.poke()

    def _cancel(self, step: int) -> None:
        """The agent gave up waiting for this call."""
        self._held_back = [call for call in self._held_back if call.step != step]
        self._doubts = {name: doubt for name, doubt in self._doubts.items() if doubt.call.step != step}
        scope = self._in_hand.get(step)
        if scope is not None:
            scope.cancel()

    def _cut_off(self) -> None:
        """The grace is over: calls that still run stay pending in the state."""
        for scope in list(self._in_hand.values()):
            scope.cancel()
        self._in_hand.clear()

    # --- waiting ------------------------------------------------------------------------------

    def _nothing_near(self) -> bool:
        due = self.kernel.next_timer()
        return due is None or due > time.time() + self._distant

    async def _wait(self) -> None:
        waits = []
        due = self.kernel.next_timer()
        if due is not None:
            waits.append(min(max(due - time.time(), 0.0), _LOOK_AT_CLOCK))
        if self._stop_by is not None:
            waits.append(max(self._stop_by - time.monotonic(), 0.0))
        with anyio.move_on_after(min(waits, default=None)):
            await self._poke.wait()

    async def _keep_lease(self) -> None:
        """Say every now and then that this process is alive; nothing depends on it but others' patience."""
        while True:
            await anyio.sleep(self._lease / 3)
            until = time.time() + self._lease
            await anyio.to_thread.run_sync(
                self.log.put_lease,
                {"owner": dict(self._owner), "epoch": self._recorder.epoch, "until": until},
                self._lease,
            )
