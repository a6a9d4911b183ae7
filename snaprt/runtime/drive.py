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
worker threads (but for small records on a quick disk, while no tool runs).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import anyio
import anyio.lowlevel

from snaprt import state
from snaprt.errors import Diverged, NotRestorable, NotSerialisable, SnaprtError, Stalled
from snaprt.kernel import (
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
from snaprt.kernel.interrupts import is_ctrl_c
from snaprt.runtime.calls import Arrival, arrival
from snaprt.runtime.doubts import Doubt, Doubts, Retry, Settled
from snaprt.runtime.endings import ending
from snaprt.runtime.family import Family
from snaprt.runtime.hands import Hands
from snaprt.runtime.mail import CANCEL, Letter, Mail, opened
from snaprt.runtime.opened import OpenResources
from snaprt.runtime.outcomes import Outcome, Suspended, suspended
from snaprt.runtime.recording import Recorder
from snaprt.runtime.rerun import Rerun, as_called
from snaprt.runtime.threads import at_once

# A wall clock can be set while we wait for it; looking again this often (seconds) bounds the harm.
_LOOK_AT_CLOCK = 5.0


class Driver:
    """One run in hand. `drive()` returns when it has ended or left the process."""

    def __init__(
        self,
        recorder: Recorder,
        *,
        family: Family,
        owner: Mapping[str, Any],
        distant: float,
        look: float,
        lease: float,
        grace: float,
        clock: Callable[[], float] = time.time,
        only_effects: bool = False,
        restored: bool = False,
        rerun: Rerun | None = None,
    ) -> None:
        self.kernel: Kernel = recorder.kernel
        self.log = recorder.log
        self._recorder = recorder
        self._family = family
        self._owner = owner
        self._distant = distant
        self._lease = lease
        self._grace = grace
        self._clock = clock
        self._only_effects = only_effects
        self._rerun = rerun or Rerun()
        self._stop_by: float | None = None
        self._opened = OpenResources(recorder.log.run)
        self._hands = Hands(self.kernel, self._opened, recorder.events, family, self.poke)
        self._mail = Mail(self.log, self.kernel, patience=recorder.patience, every=look, at_once=restored)
        self._doubts = Doubts()
        self._held_back: list[Call] = []
        self._woken: set[str] = set()
        self._poke = anyio.Event()

    # --- from outside -------------------------------------------------------------------------

    def poke(self) -> None:
        """Something changed that the driver should look at."""
        self._poke.set()

    def look_soon(self) -> None:
        """Something was put into the inbox."""
        self._mail.look_soon()
        self.poke()

    @property
    def parent(self) -> str | None:
        """The run that waits to be told how this one ends."""
        return self._recorder.parent

    @property
    def got_on(self) -> bool:
        """Whether the run is further now than when it was taken in hand."""
        return self._recorder.got_on

    @property
    def draining(self) -> bool:
        """Whether the run is to leave the process."""
        return self._stop_by is not None

    def drain(self, grace: float | None = None) -> None:
        """Start nothing more; when what runs has ended, or after `grace` seconds, save and leave."""
        self._stop_by = time.monotonic() + (self._grace if grace is None else grace)
        self._recorder.stop_by = self._stop_by
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
                self._hands.begin(tools)
                tools.start_soon(self._keep_lease)
                try:
                    await self._opened.reopen(self.kernel.open_resources())
                    for call in again:
                        self._hands.start(call)
                    self._face(doubtful, asked or {})
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
        hands = self._hands
        while True:
            if self._poke.is_set():
                self._poke = anyio.Event()
            # What came in time counts, however late it is found: before a timer says that nothing came.
            if self.kernel.waits.overdue() or not (self.draining or self._mail.due_in()):
                await self._take_mail()
            await self._settle()
            if self.kernel.status != "running":
                return await self._finish()
            if self._rerun and not hands and self._nothing_near():
                raise Diverged(
                    f"Run {self.log.run} has {self._rerun.missing()} on record, and the agent didn't call "
                    "that when its lines ran again (save='effects'). They have to repeat themselves: take "
                    "what isn't repeatable into a tool, or save the agent always."
                )
            if hands.unanswered:
                calls, hands.unanswered = hands.unanswered, []
                self._face(calls, {})
                continue
            if hands.reconciled:
                settled, hands.reconciled = hands.reconciled, []
                for call, found in settled:
                    if isinstance(found, str):
                        self._doubts.ask(call, found, self.log.newest)
                    elif not (self.draining and isinstance(found, Retry)):  # else it stays in doubt
                        await self._act_on(call, found)
                continue
            if hands.arrived:
                await self._record()
                continue
            if self.draining and hands and time.monotonic() >= (self._stop_by or 0.0):
                hands.cut_off()
            if self.draining:
                leaving = not hands
            else:
                leaving = not hands and self._nothing_near() and not self._children_near()
                if leaving and (await self._take_mail() or await self._wake_children()):
                    continue
            if leaving:
                if (suspended := await self._leave()) is not None:
                    return suspended
                continue
            if self.draining or self._mail.due_in():
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
                if self.kernel.idle or self._hands.something or self.draining:
                    return  # what is ready to run is part of the state, so an agent that spins can leave too
                await anyio.sleep(0)  # the agent polls: let what it polls for arrive

    def _advance(self) -> Sequence[Command]:
        while True:
            try:
                return self.kernel.advance()
            except (SystemExit, KeyboardInterrupt) as raised:
                # The agent's own: the task fails with it, and its group and root again; this process
                # isn't the agent's to end.
                if is_ctrl_c(raised):
                    raise

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
            self._hands.start(call)

    async def _intend(self, calls: Sequence[Call]) -> None:
        """Say on record that these are about to be called."""
        if calls:
            await self._recorder.append(
                "intent",
                {
                    "steps": [call.step for call in calls],
                    "keys": [call.key for call in calls],
                    "tools": [call.tool for call in calls],
                },
                alone=not self._hands,
            )

    async def _record(self) -> None:
        """Write what arrived as one result, then hand it to the kernel."""
        arrived, self._hands.arrived = self._hands.arrived, []
        try:
            if not self._only_effects:
                self._recorder.dump()
        except NotSerialisable as error:
            # That the tools were called is recorded all the same; the agent is told at these very awaits.
            refused = state.dump((None, error), copied=True)
            arrived = [replace(item, value=None, error=error, dump=refused) for item in arrived]
        called = self._as_called(arrived)
        tools = {item.step: self.kernel.steps[item.step].tool for item in arrived}
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
                        "tool": tools[item.step],
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
            alone=not self._hands,
        )

    def _as_called(self, arrived: Sequence[Arrival]) -> dict[int, dict[str, Any]]:
        """What was called, where lines may run again and have to be held against it."""
        if not self._only_effects:
            return {}
        calls = {call.step: call for call in self.kernel.pending_calls()}
        return {item.step: as_called(calls[item.step]) for item in arrived if item.step in calls}

    async def _take_mail(self) -> bool:
        """Take in what others gave that the run waits for. Says whether there was anything."""
        letters = await self._mail.look(self._doubts.names())
        taken: list[Letter] = []
        for letter in letters:
            asked = letter.wanted.suspension
            if asked is not None and asked in self._doubts:
                value, _ = state.load(letter.given.data, joining=self.kernel.namespaces)
                await self._act_on(*self._doubts.resolve(asked, value))
            else:
                taken.append(letter)
        suspensions = [each.wanted.suspension for each in taken if each.wanted.suspension is not None]
        inboxes = [each.wanted.stream for each in taken if each.wanted.stream not in (None, CANCEL)]
        # Whoever isn't told of a refusal takes in nothing, and hears of it at the next look.
        if taken and self._dumped([], suspensions, [name for name in inboxes if name is not None]):
            await self._take(taken)
        return bool(letters)

    async def _take(self, letters: Sequence[Letter]) -> None:
        """Deliver these and say so on record. What can't be read here stops the driver, but not on the way
        to a cancellation."""
        taken, unread = [], None
        for letter in letters:
            try:
                taken.append(opened(self.kernel, letter))
            except NotRestorable as error:
                unread = error
        if unread is not None and not any(letter.wanted.stream == CANCEL for letter in letters):
            raise unread
        for each in taken:
            self.kernel.deliver(each.event)
        await self._recorder.append(
            "wake",
            {"taken": [each.told for each in taken]},
            values={
                f"value-{number}": each.dump for number, each in enumerate(taken) if each.dump is not None
            },
        )

    async def _leave(self) -> Suspended | None:
        """Write `suspend` and go; None when the state was refused, which the agent has yet to hear."""
        waits = self.kernel.waits
        until = self.kernel.next_timer()
        listening = list(waits.next_messages())
        open_waits = [each.id for each in waits.slots().values()]
        if not (self.draining or self._doubts.names() or open_waits or listening or until is not None):
            raise Stalled(
                f"Run {self.log.run} waits for something that can't come: no question is open, no timer runs "
                f"and no tool is in hand. Tasks: {'; '.join(self.kernel.where())}. The last record stays; "
                "mend the agent so that something sets the future or event that it awaits."
            )
        if not self._dumped([], open_waits, listening):
            return None
        asleep = suspended(self.kernel, self._doubts.questions())
        await self._recorder.append(
            "suspend",
            {
                "waiting": [item.suspension for item in asleep.waiting],
                "until": until,
                "unstarted": [call.step for call in self._held_back],
                "doubts": self._doubts.as_json(),
            },
            status="suspended",
            also_waiting=self._doubts.questions(),
            look=time.time() if self.draining else until,  # told to stop, it has more to do
        )
        return asleep

    async def _finish(self) -> Outcome:
        end = ending(self.kernel)
        # The last whole state stays what it is: a failed run goes on from there when it is tried again.
        await self._recorder.append(
            "finish",
            end.detail,
            values={"outcome": end.dump},
            status=end.status,
            with_state=False,
            look=time.time() if self._recorder.parent is not None else None,  # until its parent has been told
        )
        return end.outcome

    def _dumped(self, steps: Sequence[int], suspensions: Sequence[str], inboxes: Sequence[str] = ()) -> bool:
        """Dump; or have the refusal raised in the agent at these awaits, and say False.

        Where nobody is there to hear it (all sleep), it stops the runtime; the last record stays.
        """
        try:
            self._recorder.dump()
        except NotSerialisable as refusal:
            if not (steps or suspensions or inboxes):
                raise
            self.kernel.deliver(Refused(tuple(steps), tuple(suspensions), refusal, tuple(inboxes)))
            return False
        return True

    # --- doubts -------------------------------------------------------------------------------

    def _face(self, calls: Sequence[Call], asked: Mapping[int, Doubt]) -> None:
        """Of calls that may have happened: keep the questions that are out (`asked`, by step), have the hooks
        called of those that have one, and ask a person about the others."""
        for call in calls:
            if call.step in asked:
                self._doubts.keep(asked[call.step])
            elif call.reconcile is not None:
                self._hands.reconcile(call)
            else:
                self._doubts.ask(call, "the tool has no reconcile hook", self.log.newest)

    async def _act_on(self, call: Call, found: Settled | Retry) -> None:
        if isinstance(found, Retry):
            await self._intend([call])  # a new doubt about it is a new question
            self._hands.start(call)
        else:
            now = time.time()
            self._hands.arrived.append(
                arrival(call, found.value, found.error, now, now, self.kernel.namespaces)
            )

    def _cancel(self, step: int) -> None:
        """The agent gave up waiting for this call."""
        self._held_back = [call for call in self._held_back if call.step != step]
        self._doubts.drop(step)
        self._hands.cancel(step)

    # --- waiting ------------------------------------------------------------------------------

    def _nothing_near(self) -> bool:
        due = self.kernel.next_timer()
        return due is None or due > self._clock() + self._distant

    def _children_near(self) -> bool:
        return self._family.busy(self.kernel.open_children().values())

    async def _wake_children(self) -> bool:
        """Before the run leaves for want of a child: can one go on here? Its process may have died."""
        children = [child for child in self.kernel.open_children().values() if child not in self._woken]
        self._woken.update(children)
        await self._family.wake(children)
        return bool(children)

    async def _wait(self) -> None:
        """Until something changes, a timer is due, or it is time to look or to show something."""
        await anyio.lowlevel.checkpoint()  # a tool that takes no time needs no alarm
        if self._poke.is_set():
            return
        waits = [self._mail.due_in()] if not self.draining else []
        showing = self._recorder.events.due_in()
        if showing == 0.0 or self._recorder.unseen():
            await self._show()
            return
        if showing is not None:
            waits.append(showing)
        due = self.kernel.next_timer()
        if due is not None:
            waits.append(min(max(due - self._clock(), 0.0), _LOOK_AT_CLOCK))
        if self._stop_by is not None:
            waits.append(max(self._stop_by - time.monotonic(), 0.0))
        with anyio.move_on_after(min(waits, default=None)):
            await self._poke.wait()

    async def _show(self) -> None:
        """A record for questions that are asked while others work, or for events. What the agent emitted
        goes out with a state only; where that is refused it waits for the next one that isn't."""
        unseen = self._recorder.unseen()
        if unseen:
            if not self._dumped([], unseen):
                return
        else:
            try:
                self._recorder.dump()
            except NotSerialisable:
                self._recorder.events.postpone()
        if unseen or self._recorder.events.ready:
            await self._recorder.append("progress", {})

    async def _keep_lease(self) -> None:
        """Say every now and then that this process is alive; nothing depends on it but others' patience."""
        while True:
            await anyio.sleep(self._lease / 3)
            until = time.time() + self._lease
            await at_once(
                self.log.put_lease,
                {"owner": dict(self._owner), "epoch": self._recorder.epoch, "until": until},
                self._lease,
            )
