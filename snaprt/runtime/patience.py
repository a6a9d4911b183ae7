"""Patience with a store that fails for a moment: try again with backoff, within a deadline, and say so.

Only `Transient` errors are tried again, those of which another try may get rid; but a disk that is full, or
rights that were taken away, are waited for by who has something to write that can't be had again. What is
called has to bear being called twice; reading does, and so does appending, since the log settles what an
earlier try left behind.
"""

from __future__ import annotations

import functools
import logging
import math
import time
from collections.abc import Callable
from typing import Any

import anyio
import tenacity

from snaprt.runtime.threads import for_store
from snaprt.store import Transient
from snaprt.store.failures import may_get_better

logger = logging.getLogger("snaprt")

_SHORT = 5.0  # seconds of patience of which nobody needs to be told
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 10.0  # seconds between tries; the store has its own quick ones beneath
_GLANCE = 0.2  # seconds after which it is seen that there is no more time


async def patiently(
    what: str, seconds: float | None, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> Any:
    """Call `fn` in a worker thread until it gives something or `seconds` have passed (None: for ever).

    `what` names it in the log: a warning for each failed try, an error where it is tried for ever, an
    information where patience is short.
    """

    call = functools.partial(fn, *args, **kwargs)
    level = logging.ERROR if seconds is None else logging.INFO if seconds <= _SHORT else logging.WARNING
    # Mostly it works at once, and then nothing of the machinery below is needed.
    try:
        return await for_store(call)
    except Transient as error:
        logger.log(level, "%s couldn't be done: %s", what, error)
        if seconds is not None and seconds <= 0:
            raise
        await anyio.sleep(_FIRST_PAUSE)

    tries = tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception_type(Transient),
        wait=tenacity.wait_random_exponential(_FIRST_PAUSE, _LONGEST_PAUSE),
        stop=tenacity.stop_never if seconds is None else tenacity.stop_after_delay(seconds),
        sleep=anyio.sleep,
        before_sleep=_saying(what, level),
        reraise=True,
    )
    return await tries(for_store, call)


async def insistently(
    what: str, stop_by: Callable[[], float | None], fn: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> Any:
    """The same for ever, whatever the store fails with, and said as an error: for what can't be had again.
    Ends with the last failure when it has to: `stop_by`, by the monotonic clock, may be set at any moment."""

    async def pause(seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := min(end, _or_never(stop_by())) - time.monotonic()) > 0:
            await anyio.sleep(min(left, _GLANCE))

    tries = tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception(may_get_better),
        wait=tenacity.wait_random_exponential(_FIRST_PAUSE, _LONGEST_PAUSE),
        stop=lambda _: time.monotonic() >= _or_never(stop_by()),
        sleep=pause,
        before_sleep=_saying(what, logging.ERROR),
        reraise=True,
    )
    return await tries(for_store, functools.partial(fn, *args, **kwargs))


def _or_never(moment: float | None) -> float:
    return math.inf if moment is None else moment


def _saying(what: str, level: int) -> Callable[[tenacity.RetryCallState], None]:
    def say(attempt: tenacity.RetryCallState) -> None:
        error = attempt.outcome.exception() if attempt.outcome is not None else None
        logger.log(
            level,
            "%s couldn't be done (try %d, after %.0f s): %s",
            what,
            attempt.attempt_number,
            attempt.seconds_since_start or 0.0,
            error,
        )

    return say
