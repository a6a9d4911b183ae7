"""Plays the runtime for a kernel, without any I/O: calls tools, answers questions, moves the clock.

A driven run is deterministic: the clock is a number that jumps when everybody waits, and what is open
is delivered one at a time, in the order that `choose` picks. With `save=True` the run is saved and
restored at every idle moment, and the old one released, so that a program driven both ways has to
show the same trace.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from snaprt.kernel import Answer, Ask, Call, CancelCall, Close, Closed, Kernel, Open, Opened, Result

TRACE: list[Any] = []
"""What driven programs note. A module's global isn't state, so a restored run goes on writing here."""


def note(*what: Any) -> None:
    TRACE.append(what[0] if len(what) == 1 else what)


class Clock:
    """Seconds since some epoch; moves when it is told to."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def first(open_things: list[Any]) -> int:
    return 0


class Driver:
    """Drives one kernel to its end. `answer` maps a suspension's payload to its answer."""

    def __init__(
        self,
        *,
        answer: Callable[[Any], Any] = lambda payload: payload,
        choose: Callable[[list[Any]], int] = first,
        save: bool = False,
        wait_for_timers: Callable[[], bool] = lambda: False,
    ) -> None:
        self.clock = Clock()
        self.answer = answer
        self.choose = choose
        self.save = save
        self.wait_for_timers = wait_for_timers
        self.open: list[Call | Ask] = []
        self.commands: list[Any] = []
        self.saves = 0
        self.shown: list[Any] = []
        """What was emitted and went out beside a state that was saved."""
        self.at_idle: Callable[[Kernel], None] | None = None

    def run(self, agent: Callable[..., Any], *args: Any, rules: dict[str, Any] | None = None) -> Kernel:
        kernel = Kernel("test-run", rules, clock=self.clock)
        kernel.start(agent, args)
        return self.drive(kernel)

    def outcome(self, agent: Callable[..., Any], *args: Any) -> Any:
        """The value of a run, or its exception raised."""
        kernel = self.run(agent, *args)
        if kernel.error is not None:
            raise kernel.error
        assert kernel.status == "completed"
        return kernel.value

    def drive(self, kernel: Kernel) -> Kernel:
        for _ in range(100_000):
            self.take(kernel, kernel.advance())
            if kernel.status != "running":
                return kernel
            if self.save:
                kernel = self.saved_and_restored(kernel)
            if self.at_idle is not None:
                self.at_idle(kernel)
            self.move(kernel)
        raise AssertionError("the run doesn't end")

    def saved_and_restored(self, kernel: Kernel) -> Kernel:
        parts = [bytes(part) for part in kernel.save().parts]
        self.shown += kernel.events
        kernel.release()
        self.saves += 1
        return self.restored(parts)

    def restored(self, parts: list[bytes]) -> Kernel:
        kernel = Kernel.load(parts, clock=self.clock)
        asks = [Ask(name, each.payload) for name, each in kernel.open_suspensions().items()]
        asks += [Ask(name, run) for name, run in kernel.open_children().items()]
        self.open = sorted([*kernel.pending_calls(), *asks], key=in_order)
        return kernel

    def take(self, kernel: Kernel, commands: list[Any]) -> None:
        self.commands += commands
        for command in commands:
            if isinstance(command, CancelCall):
                self.open = [
                    each for each in self.open if not isinstance(each, Call) or each.step != command.step
                ]
            elif isinstance(command, Open):
                kernel.deliver(Opened(command.stand_in))
            elif isinstance(command, Close):
                kernel.deliver(Closed(command.stand_in))
            else:
                self.open.append(command)
        still = {*kernel.open_suspensions(), *kernel.open_children()}
        self.open = [each for each in self.open if not isinstance(each, Ask) or each.suspension in still]
        self.open.sort(key=in_order)

    def move(self, kernel: Kernel) -> None:
        due = kernel.next_timer()
        if due is not None and due > self.clock.now and (not self.open or self.wait_for_timers()):
            self.clock.now = due
        elif self.open:
            self.deliver(kernel, self.open.pop(self.choose(self.open)))
        elif kernel.idle:
            raise AssertionError("the run waits for nothing that could come")

    def deliver(self, kernel: Kernel, thing: Call | Ask) -> None:
        if isinstance(thing, Ask):
            kernel.deliver(Answer(thing.suspension, self.answer(thing.payload)))
            return
        kwargs = dict(thing.kwargs)
        if thing.pass_key:
            kwargs["idempotency_key"] = thing.key
        try:
            value = thing.fn(*thing.args, **kwargs)
            if inspect.iscoroutine(value):
                value = run_coroutine(value)
        except Exception as error:
            kernel.deliver(Result(thing.step, error=error))
        else:
            kernel.deliver(Result(thing.step, value))


def in_order(thing: Call | Ask) -> tuple[bool, int, str]:
    """Calls by number, then questions by theirs: the same before and after a restore."""
    if isinstance(thing, Call):
        return False, thing.step, ""
    return True, len(thing.suspension), thing.suspension


def run_coroutine(coroutine: Any) -> Any:
    """An async tool of these tests awaits nothing."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("a tool of these tests awaits nothing")


def outcome(agent: Callable[..., Any], *args: Any, **options: Any) -> Any:
    return Driver(**options).outcome(agent, *args)


def shown(program: Callable[[], Any], driver: Driver) -> str:
    """What a program gives and notes when `driver` drives it."""
    TRACE.clear()
    return repr((driver.outcome(program), TRACE))
