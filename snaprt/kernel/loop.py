"""The agent loop: an asyncio event loop without I/O that can be saved whenever nobody runs on it.

It is what `asyncio.get_running_loop()` gives inside an agent. It has callbacks, timers, tasks, futures
and async generators, and refuses everything else (`noio`). It never runs by itself: the kernel asks
for one `turn()` after the other until nothing is ready, and then every task is parked.

Time. `time()` is wall time, because a timer has to mean the same in the process that fires it next
month. Wall clocks jump back, and another machine's may be behind; the loop's time never does. When the
clock is found behind, the difference is added from then on, until the next load finds it caught up.

Order. Callbacks run first come, first served; timers by time and then by age. Both orders are
part of the state, so a restored loop goes on in the same order.

This file doesn't know steps, suspensions or how anything is saved.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
import threading
import time
import weakref
from asyncio import Handle, TimerHandle
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from time import perf_counter
from typing import TYPE_CHECKING, Any, NoReturn, TypeVarTuple

from snaprt.errors import NotInAgent
from snaprt.kernel import anyio_tables, host
from snaprt.kernel.noio import without_io
from snaprt.kernel.tasks import AgentFuture, AgentTask
from snaprt.kernel.whereabouts import calling_line, parked_line

if TYPE_CHECKING:
    from snaprt.kernel.kernel import Kernel

_Ts = TypeVarTuple("_Ts")

_asyncio_log = logging.getLogger("asyncio")  # where asyncio reports, so where people look
_log = logging.getLogger("snaprt.kernel")

_POLLS = frozenset({("anyio._backends._asyncio", "CancelScope._deliver_cancellation")})
"""Callbacks that put themselves back each turn until somebody else has moved. Alone they're no work:
anyio retries a cancellation this way for as long as a shielded task cleans up, and on a loop that counted
it as work such a run could never be idle."""

_LATE = 1.0
"""Seconds after which a due timer is late: the run or its machine slept, this wasn't the loop's own work."""

_HELD_BACK = 100
"""Turns for which a late timer waits until nothing else is ready, so that an agent that spins can't stop
it."""

_FEW_CANCELLED = 100
"""Cancelled timers that may lie in the heap before it is swept (asyncio allows as many)."""


def _callback_of(handle: Handle) -> Any:
    return handle._callback  # type: ignore[attr-defined]  # private; a Handle shows it nowhere else


def _is_poll(handle: Handle) -> bool:
    function = getattr(_callback_of(handle), "__func__", None)
    return function is not None and (function.__module__, function.__qualname__) in _POLLS


@without_io
class AgentLoop(asyncio.AbstractEventLoop):
    """See the module. `kernel` is the kernel that owns the loop."""

    kernel: Kernel

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.slow_callback_duration = 0.1
        """Seconds that one step may take before it is warned about; asyncio's name and default."""
        self.silent = False
        """Set when the run has left: nothing is reported any more."""
        self._clock = clock
        self._offset = 0.0
        self._latest = clock()
        self._ready: deque[Handle] = deque()
        self._timers: list[tuple[float, int, TimerHandle]] = []
        self._cancelled_timers = 0
        self._serial = 0
        self._task_names = 0
        self._task_factory: Any = None
        self._exception_handler: Any = None
        self._debug = False
        self._generators: list[weakref.ref[Any]] = []
        self._generators_shut = False
        self._orphans: deque[Any] = deque()
        self._stepping_in: int | None = None
        self._held_back = 0
        self._closed = False
        self._only_polled = False
        anyio_tables.watch(self)

    def __repr__(self) -> str:
        return f"<AgentLoop running={self.is_running()} closed={self._closed}>"

    # --- time -------------------------------------------------------------------------------------

    def time(self) -> float:
        """Seconds since the epoch; never goes back."""
        now = self._clock() + self._offset
        if now < self._latest:
            self._offset += self._latest - now
            now = self._latest
        self._latest = now
        return now

    def wall_time(self) -> float:
        """Seconds since the epoch as the clock says now, which may have been set back."""
        return self._clock()

    def next_timer(self) -> float | None:
        """When, by the clock that was given, the nearest timer is due."""
        while self._timers and self._timers[0][2].cancelled():
            self._forget(heapq.heappop(self._timers)[2])
            self._cancelled_timers -= 1
        if not self._timers or self._timers[0][0] == math.inf:
            return None  # who sleeps for ever isn't woken by a timer
        return self._timers[0][0] - self._offset

    # --- callbacks and timers ---------------------------------------------------------------------

    def call_soon(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> Handle:
        self._check_open()
        self._check_thread()
        if not callable(callback) or asyncio.iscoroutine(callback):
            raise TypeError(f"a callable object was expected by call_soon(), got {callback!r}")
        handle = Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> Handle:
        """As `call_soon`, from agent code. There are no threads in an agent: others get `NotInAgent`, also
        between steps, when nobody would notice what they add."""
        self._check_open()
        if self._stepping_in != threading.get_ident():
            self._refuse_thread()
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> TimerHandle:
        if delay is None:
            raise TypeError("delay must not be None")
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> TimerHandle:
        if when is None:
            raise TypeError("when must not be None")
        if math.isnan(when):
            raise ValueError("Invalid delay: NaN (not a number)")  # CPython 3.13's words: it is never due
        self._check_open()
        self._check_thread()
        if not callable(callback):
            raise TypeError(f"a callable object was expected by call_at(), got {callback!r}")
        timer = TimerHandle(when, callback, args, self, context)
        timer._scheduled = True  # type: ignore[attr-defined]  # asyncio's own mark of a timer in the heap
        heapq.heappush(self._timers, (when, self.next_serial(), timer))
        return timer

    def _timer_handle_cancelled(self, timer: TimerHandle) -> None:
        # Called by `TimerHandle.cancel`.
        if not timer._scheduled:  # type: ignore[attr-defined]  # as above
            return
        self._cancelled_timers += 1
        if self._cancelled_timers > max(_FEW_CANCELLED, len(self._timers) // 2):
            self.sweep_timers(but=timer)

    def sweep_timers(self, but: TimerHandle | None = None) -> None:
        """Drop the cancelled timers (and the one being cancelled now). The others keep their order."""
        kept = []
        for entry in self._timers:
            if entry[2] is but or entry[2].cancelled():
                self._forget(entry[2])
            else:
                kept.append(entry)
        heapq.heapify(kept)
        self._timers = kept
        self._cancelled_timers = 0

    @staticmethod
    def _forget(timer: TimerHandle) -> None:
        timer._scheduled = False  # type: ignore[attr-defined]  # as above

    # --- tasks and futures ------------------------------------------------------------------------

    def next_serial(self) -> int:
        """A number for the next task, future or timer: its place in every order that has to be kept."""
        self._serial += 1
        return self._serial

    def next_task_name(self) -> str:
        # asyncio counts per process; a run that moves between processes has to count for itself.
        self._task_names += 1
        return f"Task-{self._task_names}"

    def create_future(self) -> AgentFuture:
        return AgentFuture(loop=self)

    def create_task(
        self,
        coro: Any,
        *,
        name: object = None,
        context: Context | None = None,
        **options: Any,
    ) -> Any:
        """A task for `coro`. `options` are those of the running CPython, such as `eager_start` on 3.14."""
        self._check_open()
        if self._task_factory is None:
            return AgentTask(coro, loop=self, name=name, context=context, **options)
        given: dict[str, Any] = dict(options)
        if context is not None:
            given["context"] = context
        task = self._task_factory(self, coro, **given)
        if name is not None:
            task.set_name(name)
        return task

    def set_task_factory(self, factory: Any) -> None:
        if factory is not None and not callable(factory):
            raise TypeError("task factory must be a callable or None")
        eager = getattr(asyncio, "eager_task_factory", None)
        if factory is not None and factory is eager:
            # asyncio's own factory makes C tasks, whose state is hidden; ours is made by the same recipe.
            factory = asyncio.create_eager_task_factory(AgentTask)  # type: ignore[attr-defined]  # ≥ 3.12
        self._task_factory = factory

    def get_task_factory(self) -> Any:
        return self._task_factory

    # --- running ----------------------------------------------------------------------------------

    @contextmanager
    def stepping(self) -> Iterator[None]:
        """While this block runs, this is the running loop of the thread (see `host`)."""
        if self._stepping_in is not None:
            raise RuntimeError("the agent loop is being stepped already")
        self._stepping_in = threading.get_ident()
        try:
            with host.running(self, self._first_iteration, self._finalise_generator):
                yield
        finally:
            self._stepping_in = None

    def has_work(self) -> bool:
        """Whether a turn would run anything that counts."""
        if self._orphans:
            return True
        if self._ready and not (self._only_polled and all(map(_is_poll, self._ready))):
            return True
        due = self.next_timer()
        return due is not None and due + self._offset <= self.time()

    def turn(self) -> None:
        """Run what is ready now, once: due timers join the queue, and what callbacks add waits for the
        next turn. KeyboardInterrupt and SystemExit of agent code leave from here, as they leave
        `asyncio.run`; the rest of the queue stays as it is."""
        while self._orphans:
            self._close_generator(self._orphans.popleft(), Context())
        self._take_due_timers()
        only_polled = True
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            if handle.cancelled():
                continue
            only_polled = only_polled and _is_poll(handle)
            self._run(handle)
            del handle  # as in `_run`
        self._only_polled = only_polled

    def _take_due_timers(self) -> None:
        """Timers that are due join the queue. Of those that are late, since the run slept or the machine did,
        only the earliest, and when nothing else is ready: each may do what it would have done in time, such
        as leave the `timeout` whose timer is late as well."""
        now = self.time()
        late: float | None = None
        while self.next_timer() is not None and self._timers[0][0] <= now:
            when = self._timers[0][0]
            if late is not None and when > late:
                break
            if when < now - _LATE and late is None:
                if self._ready and self._held_back < _HELD_BACK:
                    self._held_back += 1
                    return
                late = when
            timer = heapq.heappop(self._timers)[2]
            self._forget(timer)
            self._ready.append(timer)
        self._held_back = 0

    def _run(self, handle: Handle) -> None:
        callback = _callback_of(handle)  # the handle may be cancelled while it runs, and forgets it then
        began = perf_counter()
        handle._run()
        took = perf_counter() - began
        if took > self.slow_callback_duration:
            self._warn_of_slowness(callback, took)
        # An exception that a task keeps holds the frames of its traceback, and those their callers: this one.
        handle = callback = None  # type: ignore[assignment]  # dropped here and not used again

    def _warn_of_slowness(self, callback: Any, took: float) -> None:
        owner = getattr(callback, "__self__", None)
        if isinstance(owner, AgentTask):
            where = parked_line(owner.get_coro()) or f"the end of {owner.get_coro()!r}"
            what = f"task {owner.get_name()!r}, up to {where},"
        else:
            code = getattr(getattr(callback, "__func__", callback), "__code__", None)
            where = f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else ""
            what = f"callback {callback!r}{where}"
        _log.warning(
            "%s held the agent loop for %.2f s, and nothing else of the run could move. "
            "Make what takes long a tool (@snaprt.tool).",
            what,
            took,
        )

    def is_running(self) -> bool:
        return self._stepping_in is not None

    def is_closed(self) -> bool:
        return self._closed

    def leave(self) -> None:
        """The run has left this loop: nothing runs on it or is reported by it any more."""
        self.silent = True
        self._closed = True
        self._ready.clear()
        self._timers.clear()
        self._orphans.clear()
        self._generators.clear()
        self._task_factory = self._exception_handler = None

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the agent loop is closed: its run has ended or left this process")

    def _check_thread(self) -> None:
        if self._stepping_in is not None and self._stepping_in != threading.get_ident():
            self._refuse_thread()

    @staticmethod
    def _refuse_thread() -> NoReturn:
        raise NotInAgent(
            f"{calling_line()} calls into the agent loop from another thread. There are no threads in an "
            "agent: make what runs there a tool (@snaprt.tool) and await it."
        )

    # --- async generators -------------------------------------------------------------------------

    def _first_iteration(self, generator: Any) -> None:
        if any(known() is generator for known in self._generators):
            return  # a restored one, already in its place
        self._generators = [known for known in self._generators if known() is not None]
        self._generators.append(weakref.ref(generator))

    def _finalise_generator(self, generator: Any) -> None:
        """Called by the interpreter when a generator is dropped half-way, in whatever thread does that."""
        if self._closed:
            return
        if self._stepping_in == threading.get_ident():
            self.call_soon(self._close_generator, generator, None)
        else:
            self._orphans.append(generator)

    def _close_generator(self, generator: Any, context: Context | None) -> None:
        AgentTask(generator.aclose(), loop=self, context=context)

    def live_generators(self) -> list[Any]:
        """Async generators that were begun and not yet dropped, oldest first."""
        return [generator for known in self._generators if (generator := known()) is not None]

    async def shutdown_asyncgens(self) -> None:
        self._generators_shut = True
        closing = self.live_generators()
        self._generators.clear()
        outcomes = await asyncio.gather(*[each.aclose() for each in closing], return_exceptions=True)
        for outcome, generator in zip(outcomes, closing, strict=True):
            if isinstance(outcome, Exception):
                self.call_exception_handler(
                    {
                        "message": "an error occurred during closing of "
                        f"asynchronous generator {generator!r}",
                        "exception": outcome,
                        "asyncgen": generator,
                    }
                )

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """There is none."""

    # --- reports ----------------------------------------------------------------------------------

    def get_exception_handler(self) -> Any:
        return self._exception_handler

    def set_exception_handler(self, handler: Any) -> None:
        if handler is not None and not callable(handler):
            raise TypeError(f"a callable object or None is expected, got {handler!r}")
        self._exception_handler = handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Log an error that nobody took, on the logger that asyncio uses."""
        lines = [context.get("message") or "Unhandled exception in event loop"]
        lines += [
            f"{key}: {context[key]!r}" for key in sorted(context) if key not in ("message", "exception")
        ]
        error = context.get("exception")
        _asyncio_log.error("\n".join(lines), exc_info=error if error is not None else False)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.silent:
            return
        try:
            if self._exception_handler is None:
                self.default_exception_handler(context)
                return
            # A handler of the agent's own sees the context variables of what went wrong, as since 3.12.
            wrong = context.get("task") or context.get("future") or context.get("handle")
            its_context = getattr(wrong, "get_context", lambda: None)()
            if its_context is None:
                self._exception_handler(self, context)
            else:
                its_context.run(self._exception_handler, self, context)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:
            _asyncio_log.error("Exception in the exception handler for %r", context, exc_info=True)

    def get_debug(self) -> bool:
        return self._debug

    def set_debug(self, enabled: bool) -> None:
        self._debug = enabled
