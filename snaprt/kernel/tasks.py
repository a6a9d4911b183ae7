"""Tasks and futures of the agent loop: asyncio's own, in Python, so that their state is in sight.

The C classes hide what a task waits for and what it will do next. Ours derive from the pure-Python
`_PyFuture` and `_PyTask` that every CPython ships beside them. Libraries ask `isinstance(x, asyncio.Future)`
(anyio does before it cancels), so `__class__` says what they mean to ask; `type()` tells the truth.

A task's step is written here rather than inherited, for three reasons: from 3.14 on the inherited one keeps
the current task in Python tables that `asyncio.current_task()` doesn't read; an await of a foreign
future must name the line and the mend; and one step for all versions means one thing to save. asyncio's
names for it (`Task.__step`, mangled) are kept, since `_PyTask.__init__` schedules it by that name.

Every task and future has a serial number in its loop, which is its hash: a set of tasks iterates in
the same order in every process, as far as sets go.
"""

from __future__ import annotations

import asyncio
import inspect
from asyncio import futures, tasks
from collections.abc import Coroutine, Generator
from contextvars import Context
from typing import TYPE_CHECKING, Any

from snaprt.errors import NotInAgent
from snaprt.kernel.whereabouts import parked_line

if TYPE_CHECKING:
    from snaprt.kernel.loop import AgentLoop

    class _PyFuture(asyncio.Future[Any]):
        _state: str
        _callbacks: list[Any]

    class _PyTask(asyncio.Task[Any]):
        _state: str
        _callbacks: list[Any]
        _context: Context
        _coro: Any
        _must_cancel: bool
        _log_destroy_pending: bool
        _fut_waiter: asyncio.Future[Any] | None
        _cancel_message: Any
        _cancelled_exc: BaseException | None

        def __init__(self, coro: Any, **options: Any) -> None: ...
        def _make_cancelled_error(self) -> BaseException: ...

    class _Tables:
        """The functions by which asyncio is told of tasks that aren't its own."""

        @staticmethod
        def _enter_task(loop: Any, task: Any) -> None: ...
        @staticmethod
        def _leave_task(loop: Any, task: Any) -> None: ...
        @staticmethod
        def _register_task(task: Any) -> None: ...
        @staticmethod
        def _register_eager_task(task: Any) -> None: ...
        @staticmethod
        def _unregister_eager_task(task: Any) -> None: ...
        @staticmethod
        def _swap_current_task(loop: Any, task: Any) -> Any: ...

    _tables = _Tables
else:
    _PyFuture = futures._PyFuture
    _PyTask = tasks._PyTask
    _tables = tasks

_PENDING = "PENDING"


class Awaited(Generator[Any, Any, Any]):
    """The iterator of `await future`. asyncio's Python class has a generator there: one more frame to be
    saved with every task that waits. Like it, this takes what is sent and lets go of it."""

    __slots__ = ("_future",)

    def __init__(self, future: Any) -> None:
        self._future = future

    def __next__(self) -> Any:
        future = self._future
        try:
            if future is None:
                raise StopIteration
            if not future.done():
                if future._asyncio_future_blocking:
                    raise RuntimeError("await wasn't used with future")
                future._asyncio_future_blocking = True
                return future
            self._future = None
            # Not by `future.result`, whose frame the traceback would hold, and that frame the future.
            if future._exception is None:
                raise StopIteration(future.result())
            future._Future__log_traceback = False
            if isinstance(future._exception, StopIteration):  # it would end the await as a value does
                raise RuntimeError("a future raised StopIteration") from future._exception
            raise future._exception.with_traceback(future._exception_tb)
        finally:
            # The traceback holds this frame, too: no cycle through it.
            self = future = None  # type: ignore[assignment]  # forgotten, not used

    def send(self, value: Any) -> Any:
        return self.__next__()

    def throw(self, kind: Any, value: Any = None, traceback: Any = None, /) -> Any:
        self._future = None
        error = value if isinstance(value, BaseException) else kind
        if not isinstance(error, BaseException):
            error = kind() if value is None else kind(value)
        try:
            raise error if traceback is None else error.with_traceback(traceback)
        finally:
            self = error = value = kind = traceback = None  # type: ignore[assignment]  # as above

    def close(self) -> None:
        self._future = None


class AgentFuture(_PyFuture):
    """What `loop.create_future()` gives."""

    @property  # type: ignore[misc]  # deliberate, see the module
    def __class__(self) -> type:
        return asyncio.Future

    def __init__(self, *, loop: AgentLoop) -> None:
        self._serial = loop.next_serial()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._serial

    def __await__(self) -> Any:
        return Awaited(self)

    __iter__ = __await__


class CallFuture(AgentFuture):
    """The future behind a step: cancelling it tells the kernel that nobody waits any more."""

    def __init__(self, *, loop: AgentLoop, step: int) -> None:
        super().__init__(loop=loop)
        self.step = step

    def cancel(self, msg: Any = None) -> bool:
        cancelled = super().cancel(msg)
        if cancelled:
            self._loop.kernel.call_cancelled(self.step)  # type: ignore[attr-defined]  # always our own loop
        return cancelled


class AskFuture(AgentFuture):
    """The future behind a suspension; cancelling it closes the suspension."""

    def __init__(self, *, loop: AgentLoop, suspension: str) -> None:
        super().__init__(loop=loop)
        self.suspension = suspension

    def cancel(self, msg: Any = None) -> bool:
        cancelled = super().cancel(msg)
        if cancelled:
            self._loop.kernel.ask_cancelled(self.suspension)  # type: ignore[attr-defined]  # our own loop
        return cancelled


def _error_of(future: Any) -> BaseException | None:
    try:
        future.result()
    except BaseException as error:
        return error
    finally:
        future = None  # the traceback holds this frame
    return None


class AgentTask(_PyTask):
    """What `loop.create_task()` gives."""

    @property  # type: ignore[misc]  # deliberate, see the module
    def __class__(self) -> type:
        return asyncio.Task

    def __init__(
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        loop: AgentLoop | None = None,
        name: object = None,
        context: Context | None = None,
        eager_start: bool = False,
    ) -> None:
        if loop is None:
            loop = asyncio.get_running_loop()  # type: ignore[assignment]  # checked on the next line
        # A serial before anything else: `_PyTask.__init__` already puts the task into a set.
        self._serial = loop.next_serial()  # type: ignore[union-attr]
        if name is None:
            name = loop.next_task_name()  # type: ignore[union-attr]
        options: dict[str, Any] = {"eager_start": True} if eager_start else {}
        super().__init__(coro, loop=loop, name=str(name), context=context, **options)
        if not self.done():
            # 3.14's `_PyTask` tells only the Python tables of itself; `asyncio.all_tasks` reads the others.
            _tables._register_task(self)

    def __hash__(self) -> int:
        return self._serial

    def __await__(self) -> Any:
        return Awaited(self)

    __iter__ = __await__

    # The names of the next three are those that `_PyTask.__init__` uses, as Python mangles them.

    def _Task__eager_start(self) -> None:
        previous = _tables._swap_current_task(self._loop, self)
        _tables._register_eager_task(self)
        try:
            self._context.run(self._drive, None)
        finally:
            _tables._unregister_eager_task(self)
            _tables._swap_current_task(self._loop, previous)
            if self.done():
                self._coro = None
            else:
                _tables._register_task(self)

    def _Task__step(self, exc: BaseException | None = None) -> None:
        if self.done():
            raise asyncio.InvalidStateError(f"step of a task that is done: {self!r}")
        if self._must_cancel:
            self._must_cancel = False
            if not isinstance(exc, asyncio.CancelledError):
                exc = self._make_cancelled_error()
        self._fut_waiter = None
        _tables._enter_task(self._loop, self)
        try:
            self._drive(exc)
        finally:
            _tables._leave_task(self._loop, self)
            # The traceback of an exception that the task keeps holds these frames: no cycle through them.
            self = exc = None  # type: ignore[assignment]  # forgotten, not used

    def _Task__wakeup(self, future: asyncio.Future[Any]) -> None:
        error: BaseException | None = None
        try:
            if issubclass(type(future), _PyFuture) and not future.cancelled():
                # Not by `result`, whose frame the traceback would hold, and that frame the future.
                error = future.exception()
                if error is not None:
                    error = error.with_traceback(future._exception_tb)  # type: ignore[attr-defined]  # private
            else:
                error = _error_of(future)
            self._Task__step(error)
        finally:
            self = future = error = None  # type: ignore[assignment]  # as in the step

    def _drive(self, exc: BaseException | None) -> None:
        """Run the coroutine to its next await, and see to it that it is woken from there."""
        coro = self._coro
        try:
            awaited = coro.send(None) if exc is None else coro.throw(exc)
        except StopIteration as stop:
            if self._must_cancel:
                # Cancelled while it returned: the cancellation wins, as in asyncio.
                self._must_cancel = False
                _PyFuture.cancel(self, msg=self._cancel_message)
            else:
                _PyFuture.set_result(self, stop.value)
        except asyncio.CancelledError as cancelled:
            self._cancelled_exc = cancelled
            _PyFuture.cancel(self)
        except (KeyboardInterrupt, SystemExit) as leaving:
            _PyFuture.set_exception(self, leaving)
            raise
        except BaseException as error:
            _PyFuture.set_exception(self, error)
        else:
            self._park(awaited)
        finally:
            self = coro = exc = None  # type: ignore[assignment]  # as in the step

    def _park(self, awaited: Any) -> None:
        if awaited is None:  # a bare yield, as `asyncio.sleep(0)` does
            self._loop.call_soon(self._Task__step, context=self._context)
            return
        wrong = self._wrong_with(awaited)
        if wrong is not None:
            self._loop.call_soon(self._Task__step, wrong, context=self._context)
            return
        awaited._asyncio_future_blocking = False
        awaited.add_done_callback(self._Task__wakeup, context=self._context)
        self._fut_waiter = awaited
        if self._must_cancel and awaited.cancel(msg=self._cancel_message):
            self._must_cancel = False

    def _wrong_with(self, awaited: Any) -> BaseException | None:
        blocking = getattr(awaited, "_asyncio_future_blocking", None)
        if blocking is None:
            if inspect.isgenerator(awaited):
                return RuntimeError(
                    f"yield was used instead of yield from for generator in task {self!r} with {awaited!r}"
                )
            return RuntimeError(f"Task got bad yield: {awaited!r}")
        if awaited.get_loop() is not self._loop:
            return NotInAgent(
                f"{parked_line(self._coro)} awaits {awaited!r}, which belongs to another event loop. "
                "Only futures of the agent loop can be awaited in an agent: put what makes it into a tool "
                "(@snaprt.tool), or use `await snaprt.step(fn, *args)`."
            )
        if not blocking:
            return RuntimeError(f"yield was used instead of yield from in task {self!r} with {awaited!r}")
        if awaited is self:
            return RuntimeError(f"Task cannot await on itself: {self!r}")
        return None
