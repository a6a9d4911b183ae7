"""What code of users raises on the host, in a tool, a hook or a resource, is that code's failure.

It becomes a result, whatever class it has, and never ends the process, which may have other runs in hand.
Only two things pass: a cancellation by which the host ends the task, and a Ctrl-C. This file must not know
calls.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import anyio

from snaprt.errors import CallFailed, NotRestorable
from snaprt.kernel.interrupts import is_ctrl_c
from snaprt.kernel.preview import in_words

OF_LOOPS = (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit)
"""What means something else where it is raised than where it came from."""


def failure(error: BaseException, what: str) -> BaseException:
    """The failure that the agent is to get for what `what` raised, when it is known that it isn't more."""
    if isinstance(error, asyncio.CancelledError):
        failed = CallFailed(f"{what} was cancelled from inside.")
    elif isinstance(error, OF_LOOPS):
        failed = CallFailed(f"{what} raised {in_words(error)}.")
    else:
        return error
    failed.__cause__ = error
    return failed


def own(error: BaseException, what: str) -> BaseException:
    """The same on the host loop. Raises what isn't the code's own failure."""
    cancelled = anyio.get_cancelled_exc_class()
    if is_ctrl_c(error):
        raise error
    if issubclass(cancelled, asyncio.CancelledError):
        if isinstance(error, cancelled) and _asked_to_cancel():
            raise error
    elif isinstance(error, cancelled):
        raise error
    elif isinstance(error, BaseExceptionGroup) and (told := error.split(cancelled)[0]) is not None:
        raise told  # a nursery of trio's wraps the cancellation that the host has to get back
    return failure(error, what)


@contextlib.contextmanager
def rebuilding(what: str) -> Iterator[None]:
    """While this block runs, which awaits nothing, modules of users are imported and their classes' hooks
    called. Raises NotRestorable where one of them would end the process."""
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        if is_ctrl_c(error):
            raise
        raise NotRestorable(
            f"{what} can't be rebuilt here: {in_words(error)} was raised on the way{place_of(error)}. Mend "
            "that, and resume the run again."
        ) from error


def place_of(error: BaseException) -> str:
    """Where it was raised, in parentheses, for the end of a sentence."""
    trace = error.__traceback__
    if trace is None or isinstance(error, SyntaxError):  # whose words have its place
        return ""
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f" ({trace.tb_frame.f_code.co_filename}:{trace.tb_lineno})"


def _asked_to_cancel() -> bool:
    """Whether somebody cancelled this very task; else a tool let a cancellation of its own get out."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
