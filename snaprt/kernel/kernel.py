"""The kernel: one run as a state machine. Events go in, commands come out; no I/O, no threads, no waiting.

Theory of operation. `start` makes the root task. `advance` steps the agent loop until nothing is ready and
returns the commands that the agent issued on the way. The runtime carries them out and `deliver`s what
came of them, in any order; each delivery wakes the awaits that stood for it at the next `advance`. Between
two calls of `advance` every task is parked, and that is when the run can be saved.

The end. When the root task is done, what `asyncio.run` does is done here: the remaining tasks are
cancelled, may clean up (with tools, too), and async generators are closed. Only then has the run a
status other than "running". SystemExit and KeyboardInterrupt raised by agent code leave from
`advance`, after the host's loop is in its place again, and fail the run if it was its root task's.

How a kernel is saved stands in `saving`; this file only says what belongs to it.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Callable, Mapping
from contextvars import Context
from dataclasses import replace
from typing import Any, Literal

from snaprt import state
from snaprt.kernel import saving
from snaprt.kernel.approvals import fit_approval
from snaprt.kernel.events import (
    KEY_PARAMETER,
    Answer,
    Ask,
    Call,
    Cancel,
    CancelCall,
    Close,
    Closed,
    Command,
    Event,
    Message,
    Mistaken,
    Open,
    Opened,
    Refused,
    Result,
    call_of,
)
from snaprt.kernel.loop import AgentLoop
from snaprt.kernel.plan import Plan
from snaprt.kernel.preview import PAYLOAD_LIMIT, in_words, preview
from snaprt.kernel.questions import fit
from snaprt.kernel.steps import Step, StepTexts, Suspension
from snaprt.kernel.tasks import AgentFuture, AgentTask, AskFuture, CallFuture
from snaprt.kernel.waits import Waits
from snaprt.kernel.whereabouts import parked_line
from snaprt.state import modules

Status = Literal["running", "completed", "failed", "cancelled"]

CHILD = "_child-"
"""How the suspensions begin that wait for the end of a child: a name that no agent can give."""

MANY_TURNS = 1000
"""Turns of the loop in one `advance`. An agent that polls (`while …: await sleep(0)`) is never idle; after
so many it gives its runtime a chance to deliver what it polls for. Far above what real work needs."""


class Kernel:
    """One run. `rules` are in force for it; `clock` gives seconds since the epoch."""

    def __init__(
        self, run: str, rules: Mapping[str, Any] | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.run = run
        self.rules: dict[str, Any] = dict(rules or {})
        self.loop = AgentLoop(clock)  # type: ignore[abstract]  # a table gives it the methods mypy misses
        self.loop.kernel = self
        self.plan = Plan()
        self.steps: dict[int, Step] = {}
        self.texts = StepTexts()
        self.waits = Waits(self.loop)
        self.status: Status = "running"
        self.value: Any = None
        """What the agent returned, once completed."""
        self.error: BaseException | None = None
        """What the agent raised, once failed or cancelled."""
        self.dirty = True
        """Whether anything of the state changed since it was last saved."""
        self.globals_met: dict[int, Any] = {}
        """Containers of modules that the saves of this run refer to (`state.dump`)."""
        self._root: AgentTask | None = None
        self._root_ended = False
        self._closer: AgentTask | None = None
        self._calls: dict[int, CallFuture] = {}
        self._handling: list[tuple[Open | Close, AgentFuture]] = []
        self._resources: list[weakref.ref[Any]] = []
        self._commands: list[Command] = []
        self._cancel_reason: str | None = None
        self.emitted = 0
        """How many events the agent has emitted."""
        self.events: list[dict[str, Any]] = []
        """Those that no record has yet. They aren't part of the state: they go out beside it."""

    # --- running ----------------------------------------------------------------------------------

    def start(
        self, agent: Callable[..., Any], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> None:
        """Make the root task. Nothing of the agent runs before `advance`, except a plain function that
        makes its coroutine. The agent starts in an empty context: the host's variables aren't its own."""
        if self._root is not None:
            raise RuntimeError(f"run {self.run} was started already")
        context = Context()
        with self.loop.stepping():
            coroutine = context.run(agent, *args, **(kwargs or {}))
            if not asyncio.iscoroutine(coroutine):
                raise TypeError(f"an agent has to be an async function; {agent!r} gave {coroutine!r}")
            self._root = AgentTask(coroutine, loop=self.loop, context=context)
            self._root.add_done_callback(self._note_root_end, context=Context())
        self.dirty = True

    def advance(self) -> list[Command]:
        """Step the agent until nothing is ready, timers due by the clock included, and give what it asks for.

        After `MANY_TURNS` turns it returns even if the agent isn't idle (see `idle`); advance again then."""
        if not self.idle:
            with self.loop.stepping():
                for _ in range(MANY_TURNS):
                    if not self.loop.has_work():
                        break
                    self.dirty = True
                    self.loop.turn()
                    self._go_on_ending()
                    if self.status != "running":
                        break
        commands, self._commands = self._commands, []
        return commands

    @property
    def idle(self) -> bool:
        """Whether `advance` has nothing to do before an event or a timer."""
        return self.status != "running" or not self.loop.has_work()

    def next_timer(self) -> float | None:
        """When, by the clock, the next timer is due; None if none is. The present when there is work."""
        if self.status != "running":
            return None
        if self.loop.has_work():
            return self.loop.time()
        return self.loop.next_timer()

    def deliver(self, event: Event) -> None:
        """Take an event in. What it wakes runs at the next `advance`.

        A result or an answer for something that isn't waited for any more (cancelled, or delivered before) is
        dropped. One for something that the run never asked for raises ValueError."""
        self.dirty = True
        match event:
            case Result():
                self._take_result(event)
            case Answer():
                self.waits.answer(event.suspension, event.value, event.by, event.at)
            case Mistaken():
                self.waits.mistake(event.suspension, event.why)
            case Message():
                self.waits.message(event.inbox, event.number, event.value)
            case Refused():
                self._take_refusal(event)
            case Opened() | Closed():
                self._take_handled(event)
            case Cancel():
                self._take_cancellation(event)

    # --- what the agent asks for (called by operations, on the agent loop) ------------------------

    def issue(
        self, tool: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], approval: str | None = None
    ) -> CallFuture:
        """A new step for a call of `tool`, and the future of its result. `approval`: how it was approved."""
        number = len(self.steps) + 1
        key = f"{self.run}/{number}"
        pass_key = tool.wants_key and KEY_PARAMETER not in kwargs
        call = call_of(number, tool, args, kwargs, key, pass_key)
        future = CallFuture(loop=self.loop, step=number)
        self.steps[number] = Step(
            id=number, tool=tool.name, effect=tool.effect, key=key, call=call, approval=approval
        )
        self._calls[number] = future
        self._commands.append(call)
        return future

    def ask(self, payload: Any, **options: Any) -> AskFuture:
        """A new question, and the future of its answer. The options are those of `Waits.open`."""
        future = self.waits.open(payload, **options)
        self._commands.append(Ask(future.suspension, payload))
        return future

    def await_child(self, run: str, step: int) -> AskFuture:
        """The future of how a child ended; `step` started it."""
        future = self.waits.open_child(child_slot(step), run)
        self._commands.append(Ask(future.suspension, run))
        return future

    def emit(self, value: Any) -> None:
        """Show `value` to whoever watches. It goes out with the next state that is saved, so it is shown
        once, also if the lines that emitted it have to run again."""
        self.emitted += 1
        self.events.append(
            {"n": self.emitted, "at": self.loop.time(), "value": preview(value, PAYLOAD_LIMIT)}
        )

    def open_resource(self, stand_in: Any) -> AgentFuture:
        """Have the real thing behind a stand-in opened; the future gives the stand-in when it is."""
        return self._handle(Open(stand_in))

    def close_resource(self, stand_in: Any) -> AgentFuture:
        """Have the real thing behind a stand-in closed."""
        return self._handle(Close(stand_in))

    def _handle(self, command: Open | Close) -> AgentFuture:
        future = self.loop.create_future()
        self._handling.append((command, future))
        self._commands.append(command)
        return future

    def call_cancelled(self, number: int) -> None:
        """Nobody waits for this step any more: its future was cancelled."""
        if self._calls.pop(number, None) is not None:
            self.steps[number] = replace(self.steps[number], status="cancelled", call=None)
            if not self._retract(lambda command: isinstance(command, Call) and command.step == number):
                self._commands.append(CancelCall(number))

    def ask_cancelled(self, name: str) -> None:
        """Nobody waits for this answer any more: its future was cancelled."""
        if self.waits.cancelled(name):
            self._retract(lambda command: isinstance(command, Ask) and command.suspension == name)

    def _retract(self, unwanted: Callable[[Command], bool]) -> bool:
        """Take back a command that nobody has seen yet; False if it was seen."""
        kept = [command for command in self._commands if not unwanted(command)]
        retracted = len(kept) < len(self._commands)
        self._commands = kept
        return retracted

    # --- what is open (for a runtime that took the run over) ---------------------------------------

    def pending_calls(self) -> list[Call]:
        """Calls that were issued and have no result yet."""
        calls = (self.steps[number].call for number in self._calls)
        return [call for call in calls if call is not None]

    def open_suspensions(self) -> dict[str, Suspension]:
        """Questions that have no answer yet, by id, oldest first."""
        return self.waits.of_kind("question")

    def open_children(self) -> dict[str, str]:
        """The runs whose end is waited for, by the suspension that does."""
        return {name: str(each.child) for name, each in self.waits.of_kind("child").items()}

    def judged(self, suspension: str, value: Any) -> Any:
        """An answer as the question's type has it. Raises WrongAnswer."""
        asked = self.waits.suspensions[suspension]
        if asked.approval is not None:
            return fit_approval(asked.approval.fn, asked.payload, value)
        return value if asked.expected is None else fit(asked.expected, value)

    def open_resources(self) -> list[Any]:
        """Stand-ins whose real things the agent has open: to be opened again before a loaded run goes on."""
        return [stand_in for known in self._resources if (stand_in := known()) is not None]

    def where(self) -> list[str]:
        """Where each task stands, for a person: `Task-2 at agent.py:41 in triage`."""
        tasks = sorted(asyncio.all_tasks(self.loop), key=_age)
        return [f"{task.get_name()} at {parked_line(task.get_coro()) or 'its end'}" for task in tasks]

    @property
    def namespaces(self) -> dict[str, dict[str, Any]]:
        """The namespace that the agent's own code lives in, where its module can't be imported (a script): by
        its name, as `state.load` takes it for what was dumped apart from this run's state."""
        frame = getattr(self._root.get_coro(), "cr_frame", None) if self._root is not None else None
        if frame is None or modules.owner(frame.f_globals) is not None:
            return {}
        return {frame.f_globals["__name__"]: frame.f_globals}

    @property
    def current_step(self) -> str | None:
        """What the run is at: the active step of its plan, else the newest open call or question."""
        if self.plan.active:
            return self.plan.active[-1]
        calls = self.pending_calls()
        if calls:
            return calls[-1].tool
        return next(reversed(self.open_suspensions()), None)

    def summary(self) -> dict[str, Any]:
        """The run as JSON, to be read without unpickling anything: current step, plan, steps with status and
        output, what it waits for with its payload, and the rules in force."""
        return {**self.brief(), "steps": [step.shown() for step in self.steps.values()]}

    def brief(self) -> dict[str, Any]:
        """The summary without its steps, of which there may be thousands (see `step_texts`)."""
        return {
            "run": self.run,
            "status": self.status,
            "current_step": self.current_step,
            "plan": [{"name": each.name, "status": each.status, "note": each.note} for each in self.plan],
            **self.waits.shown(),
            "rules": {name: preview(rule) for name, rule in self.rules.items()},
        }

    def step_texts(self) -> list[str]:
        """The steps of the summary, each as JSON."""
        return list(map(self.texts.of, self.steps.values()))

    # --- events -----------------------------------------------------------------------------------

    def _take_result(self, event: Result) -> None:
        if event.step not in self.steps:
            raise ValueError(f"run {self.run} has no step {event.step}")
        future = self._calls.pop(event.step, None)
        if future is None:
            return
        error = event.error
        self.steps[event.step] = replace(
            self.steps[event.step],
            status="done" if error is None else "failed",
            call=None,
            output=preview(event.value) if error is None else None,
            error=None if error is None else in_words(error),
            started=event.started,
            ended=event.ended,
            attempts=tuple(event.attempts),
        )
        if error is None:
            future.set_result(event.value)
        else:
            future.set_exception(error)

    def _take_cancellation(self, event: Cancel) -> None:
        if event.number is not None:
            if event.number <= self.waits.cancels:
                return
            self.waits.cancels = event.number
        self._cancel_reason = event.reason
        if self._root is not None:
            self._root.cancel(event.reason)

    def _take_refusal(self, event: Refused) -> None:
        words = in_words(event.error)
        for number in event.steps:
            if (call := self._calls.pop(number, None)) is not None:
                self.steps[number] = replace(self.steps[number], status="refused", call=None, error=words)
                call.set_exception(_another(event.error))
        for name in event.suspensions:
            self.waits.refuse(name, _another(event.error))
        for name in event.inboxes:
            self.waits.refuse_reader(name, _another(event.error))

    def _take_handled(self, event: Opened | Closed) -> None:
        stand_in = event.stand_in
        opened = isinstance(event, Opened)
        self._resources = [known for known in self._resources if known() is not stand_in]
        if opened and event.error is None:
            self._note_open(stand_in)
        wanted = Open if opened else Close
        waiting, self._handling = self._handling, []
        for command, future in waiting:
            if command.stand_in is not stand_in or not isinstance(command, wanted):
                self._handling.append((command, future))
            elif not future.done():
                if event.error is None:
                    future.set_result(stand_in if opened else None)
                else:
                    future.set_exception(event.error)

    # --- the end ----------------------------------------------------------------------------------

    def _note_root_end(self, root: Any) -> None:
        self._root_ended = True

    def _go_on_ending(self) -> None:
        root = self._root
        if root is None or not self._root_ended:
            return
        if self._closer is None:
            remaining = sorted(asyncio.all_tasks(self.loop), key=_age)
            for task in remaining:
                task.cancel()
            self._closer = AgentTask(close_down(self.loop, remaining), loop=self.loop, context=Context())
        elif self._closer.done():
            self._conclude(root)

    def _conclude(self, root: AgentTask) -> None:
        if root.cancelled():
            self.status = "cancelled"
            self.error = asyncio.CancelledError(*([self._cancel_reason] if self._cancel_reason else []))
        elif (error := root.exception()) is not None:
            self.status, self.error = "failed", error
        else:
            self.status, self.value = "completed", root.result()

    # --- leaving and coming back ------------------------------------------------------------------

    def save(self) -> state.Dump:
        """The whole state of the run, at any moment between two calls of `advance`; see `saving`.

        Raises NotSerialisable with the path to everything that can't travel; then `dirty` stays."""
        dump = saving.save(self)
        self.dirty = False
        return dump

    @classmethod
    def load(cls, parts: Any, clock: Callable[[], float] = time.time) -> Kernel:
        """The kernel that was saved as `parts`. Pending calls and questions aren't issued again by `advance`:
        they are `pending_calls()` and `open_suspensions()`; `open_resources()` want opening first.

        Raises CodeChanged, NotRestorable or Damaged, and then leaves nothing behind."""
        kernel = cls("", clock=clock)
        saving.put_in(kernel, parts)
        return kernel

    def release(self) -> None:
        """The run leaves this process: nothing of it runs any more, not even its `finally` blocks (it
        sleeps, it hasn't ended), and nothing is reported about it. What `summary` shows stays. Can be
        called again."""
        saving.let_go(self)
        self._commands.clear()
        self._calls.clear()
        self.waits.forget()
        self.steps = {number: replace(step, call=None) for number, step in self.steps.items()}
        self._handling, self._resources = [], []
        self._root = self._closer = None

    def _note_open(self, stand_in: Any) -> None:
        self._resources = [known for known in self._resources if known() is not stand_in]
        self._resources.append(weakref.ref(stand_in))


async def close_down(loop: AgentLoop, remaining: list[Any]) -> None:
    """What follows the end of the root task: wait for the cancelled tasks, close async generators."""
    await asyncio.gather(*remaining, return_exceptions=True)
    for task in remaining:
        if not task.cancelled() and task.exception() is not None:
            loop.call_exception_handler(
                {
                    "message": "unhandled exception while the run ended",
                    "exception": task.exception(),
                    "task": task,
                }
            )
    await loop.shutdown_asyncgens()


def child_slot(step: int) -> str:
    """Where the end of the child that this step started is put."""
    return f"{CHILD}{step}"


def _age(task: Any) -> int:
    """The order in which tasks were made; those that aren't ours have none."""
    return getattr(task, "_serial", 0)


def _another(error: BaseException) -> BaseException:
    """The same error for one more await. Raised twice, one object would mix up two tracebacks."""
    twin = type(error).__new__(type(error), *error.args)
    twin.args = error.args
    twin.__dict__.update(error.__dict__)
    return twin
