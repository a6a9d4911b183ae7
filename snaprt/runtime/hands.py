"""The calls that a run has in hand: started on the host loop, each in a scope of its own, until they arrive.

What came of them lies in `arrived` (an outcome), `unanswered` (a write that outlasted its timeout) and
`reconciled` (what the hook of a call in doubt says) until the driver takes it. This file must not know the
log: when a call may start and when its outcome is delivered is the driver's protocol."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace

import anyio
import anyio.from_thread
from anyio.abc import TaskGroup

from snaprt.kernel import Call, Kernel
from snaprt.kernel.waiting import EMITTER, cancel_child, start_child
from snaprt.runtime.calls import Arrival, Unanswered, apart, carry_out
from snaprt.runtime.doubts import Retry, Settled, reconciled
from snaprt.runtime.emitting import Events
from snaprt.runtime.family import Family
from snaprt.runtime.opened import OpenResources


class Hands:
    """The calls of one run. `poke` tells the driver that something changed."""

    def __init__(
        self,
        kernel: Kernel,
        opened: OpenResources,
        events: Events,
        family: Family,
        poke: Callable[[], None],
    ) -> None:
        self.arrived: list[Arrival] = []
        self.unanswered: list[Call] = []
        self.reconciled: list[tuple[Call, Settled | Retry | str]] = []
        self._kernel = kernel
        self._opened = opened
        self._events = events
        self._family = family
        self._poke = poke
        self._scopes: dict[int, anyio.CancelScope] = {}
        self._tasks: TaskGroup | None = None

    def __bool__(self) -> bool:
        return bool(self._scopes)

    @property
    def something(self) -> bool:
        """Whether anything waits to be taken."""
        return bool(self.arrived or self.unanswered or self.reconciled)

    def begin(self, tasks: TaskGroup) -> None:
        """Calls run in this group from now on."""
        self._tasks = tasks

    def start(self, call: Call) -> None:
        assert self._tasks is not None
        call = self._of_the_family(apart(call, self._kernel.namespaces, self._opened.stand_ins))
        scope = self._scopes[call.step] = anyio.CancelScope()
        self._tasks.start_soon(self._carry_out, call, scope, name=f"{call.tool} (step {call.step})")

    def reconcile(self, call: Call) -> None:
        """Have the tool's hook say whether the call happened. It is in hand like a call: it may hang, too."""
        assert self._tasks is not None
        scope = self._scopes[call.step] = anyio.CancelScope()
        self._tasks.start_soon(self._reconcile, call, scope, name=f"reconcile {call.tool} (step {call.step})")

    async def _reconcile(self, call: Call, scope: anyio.CancelScope) -> None:
        try:
            with scope:
                found = await reconciled(call)
                self.reconciled.append((call, found))
        finally:
            self._scopes.pop(call.step, None)
            self._poke()

    def _of_the_family(self, call: Call) -> Call:
        """Steps that start or cancel a child are ours to carry out."""
        if call.fn is start_child:
            return replace(call, fn=self._family.starting(self._kernel.run, call.step))
        if call.fn is cancel_child:
            return replace(call, fn=self._family.cancelling(self._kernel.run, call.step))
        return call

    async def _carry_out(self, call: Call, scope: anyio.CancelScope) -> None:
        EMITTER.set(self._events.emitter(call.step, self._tell))  # of this task, and of threads it starts
        try:
            with scope:
                came = await carry_out(call, self._kernel.namespaces)
                self.arrived.append(came)  # looked up now: the list was another one when the call began
        except Unanswered:
            self.unanswered.append(call)
        finally:
            self._scopes.pop(call.step, None)
            self._poke()

    def _tell(self) -> None:
        """A tool emitted something, on the host loop or in a worker thread."""
        try:
            anyio.from_thread.run_sync(self._poke)
        except RuntimeError:  # not in a worker thread
            with contextlib.suppress(
                RuntimeError
            ):  # in a thread of its own: shown when the driver next looks
                self._poke()

    def cancel(self, step: int) -> None:
        """Nobody waits for this call any more."""
        self.unanswered = [call for call in self.unanswered if call.step != step]
        self.reconciled = [(call, found) for call, found in self.reconciled if call.step != step]
        scope = self._scopes.get(step)
        if scope is not None:
            scope.cancel()

    def cut_off(self) -> None:
        """The grace is over: calls that still run stay pending in the state."""
        for scope in list(self._scopes.values()):
            scope.cancel()
        self._scopes.clear()
