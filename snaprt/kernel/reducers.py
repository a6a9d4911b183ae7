"""How tasks, futures, handles and the loop itself travel.

Tasks hold coroutines whose frames hold task groups that hold the tasks: everything here is part of
cycles. So each object is made empty first, with what its hash needs, and gets its content when all of
it is there. The loop and the kernel aren't part of a dump at all; they stand in it by name.

Futures of the C class occur on an agent loop too, where a library derives from it (`gather` does) or calls
`asyncio.Future()`; they show enough of themselves to be made again. A C *task* doesn't, and is refused.
"""

from __future__ import annotations

import asyncio
import gc
from asyncio import Handle, TimerHandle
from typing import Any

from snaprt.kernel import tasks
from snaprt.kernel.anyio_tables import MADE_BY_BACKENDS, AnyioTables, reduce_made_by_backend
from snaprt.kernel.loop import AgentLoop
from snaprt.kernel.tasks import AgentFuture, AgentTask, AskFuture, CallFuture
from snaprt.state import carriers, handles, reducers, sessions
from snaprt.state.kinds import Kind

_LEFT_BEHIND = frozenset({"_exception_tb", "_source_traceback"})
"""Attributes of a future that don't travel: tracebacks. Their text goes with the exception."""


# --- our own --------------------------------------------------------------------------------------


def _reduce_future(future: Any) -> Any:
    content = {name: value for name, value in vars(future).items() if name not in _LEFT_BEHIND}
    return make_future, (type(future), future._serial), content, None, None, fill_future


def make_future(kind: Any, serial: int) -> Any:
    future = kind.__new__(kind)
    future._serial = serial
    # Until it is filled it is a task that waits for nothing; that's no reason to report it if the load fails.
    future._log_destroy_pending = False
    return future


def fill_future(future: Any, content: dict[str, Any]) -> None:
    future.__dict__.clear()
    future.__dict__.update(content)
    if content.get("_exception") is not None:
        future._exception_tb = None
    if isinstance(future, AgentTask) and not future.done():
        # Not before everything is there: of a load that fails nothing stays, and nobody hears.
        told = future._log_destroy_pending
        future._log_destroy_pending = False

        def begin() -> None:
            future._log_destroy_pending = told
            tasks._tables._register_task(future)

        sessions.loading().finish.append(begin)


# --- handles --------------------------------------------------------------------------------------


def _reduce_handle(handle: Any) -> Any:
    content = (handle._callback, handle._args, handle._cancelled, handle._loop, handle._repr, handle._context)
    return make_handle, (), content, None, None, fill_handle


def make_handle() -> Handle:
    return Handle.__new__(Handle)


def fill_handle(handle: Any, content: tuple[Any, ...]) -> None:
    (
        handle._callback,
        handle._args,
        handle._cancelled,
        handle._loop,
        handle._repr,
        handle._context,
    ) = content
    handle._source_traceback = None


def _reduce_timer(timer: Any) -> Any:
    _, _, content, *_ = _reduce_handle(timer)
    return make_timer, (timer._when,), (content, timer._scheduled), None, None, fill_timer


def make_timer(when: float) -> TimerHandle:
    timer: Any = TimerHandle.__new__(TimerHandle)
    timer._when = when  # its hash
    return timer  # type: ignore[no-any-return]  # Any, to reach what typeshed doesn't list


def fill_timer(timer: Any, content: tuple[Any, bool]) -> None:
    inherited, timer._scheduled = content
    fill_handle(timer, inherited)


# --- C futures ------------------------------------------------------------------------------------


def _reduce_c_future(future: Any) -> Any:
    # The C class has a dictionary but no `__dict__`; this is the way to it.
    names: Any = object.__getstate__(future)
    content = {
        "state": future._state,
        "result": future._result if future._state == "FINISHED" and future._exception is None else None,
        "exception": future._exception,
        "callbacks": list(future._callbacks or ()),
        "unretrieved": future._log_traceback,
        "cancel_message": future._cancel_message,
        "blocking": future._asyncio_future_blocking,
        "names": names or {},
    }
    return make_c_future, (type(future), future._loop), content, None, None, fill_c_future


def make_c_future(kind: Any, loop: Any) -> Any:
    future = kind.__new__(kind)
    asyncio.Future.__init__(future, loop=loop)
    return future


def fill_c_future(future: Any, content: dict[str, Any]) -> None:
    # The base class's methods: `_GatheringFuture.cancel` would cancel its children.
    if content["state"] == "CANCELLED":
        asyncio.Future.cancel(future, content["cancel_message"])
    elif content["exception"] is not None:
        asyncio.Future.set_exception(future, content["exception"])
        if not content["unretrieved"]:
            future._log_traceback = False
    elif content["state"] == "FINISHED":
        asyncio.Future.set_result(future, content["result"])
    else:
        for callback, context in content["callbacks"]:
            asyncio.Future.add_done_callback(future, callback, context=context)
        future._cancel_message = content["cancel_message"]
    future._asyncio_future_blocking = content["blocking"]
    for name, value in content["names"].items():
        setattr(future, name, value)


def _reduce_future_iterator(iterator: Any) -> Any:
    for held in gc.get_referents(iterator):
        if isinstance(held, asyncio.Future):
            return make_future_iterator, (held,)
    return iter, ((),)  # it has given its result


def make_future_iterator(future: Any) -> Any:
    """A new one does what one that waits half-way would do: it looks at the future when it is resumed."""
    return asyncio.Future.__await__(future)


def _future_iterator_type() -> type:
    class _NoLoop(asyncio.AbstractEventLoop):
        def get_debug(self) -> bool:
            return False

    future: Any = asyncio.Future(loop=_NoLoop())  # type: ignore[abstract]  # it is never asked for more
    return type(future.__await__())


# --- registration ---------------------------------------------------------------------------------


def _is_c_task(task: Any) -> bool:
    return not isinstance(task, AgentTask)


def register() -> None:
    """Tell the state floor how all of this travels. Done once, when the kernel is imported."""
    handles.allow(AgentLoop)
    for kind in (AgentFuture, CallFuture, AskFuture, AgentTask):
        reducers.register(kind, _reduce_future)
    reducers.register(Handle, _reduce_handle)
    reducers.register(TimerHandle, _reduce_timer)
    reducers.register(asyncio.Future, _reduce_c_future, subclasses=True)
    reducers.register(_future_iterator_type(), _reduce_future_iterator)
    handles.register(
        Kind(
            "task made by asyncio.Task itself",
            (asyncio.Task,),
            "make it with asyncio.create_task or a task group, whose tasks travel",
            when=_is_c_task,
        )
    )
    for made in MADE_BY_BACKENDS:
        reducers.register(made, reduce_made_by_backend, subclasses=True)
    carriers.register(AnyioTables())
