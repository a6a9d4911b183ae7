"""Carry one tool call out on the host loop, and make its outcome fit to be recorded.

Async tools are awaited where they are, on asyncio or trio; sync ones run in a worker thread, so that
a blocking client never holds up the agent. What a tool declares about retries and timeouts happens here,
inside the step: the agent sees one call, `show` every attempt. This file must not know the log: it
turns a `Call` into an `Arrival`, and the driver decides when that is written.

An exception of a tool is a result like any other. Clients hang live things on theirs (a response, a
socket); such attributes are taken off and named in a note, so that `except HTTPError` in the agent
sees the same exception before and after a restore.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import anyio
import tenacity

from snaprt import state
from snaprt.errors import NotRestorable, NotSerialisable
from snaprt.kernel import Call
from snaprt.kernel.preview import in_words
from snaprt.runtime import threads
from snaprt.runtime.failing import OF_LOOPS, failure, own
from snaprt.state import paths, resources

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0  # seconds between the attempts of one step


class Unanswered(Exception):  # it never leaves the runtime
    """A write took longer than its timeout: it may have happened, or may happen yet."""


class _TooLong(TimeoutError):
    """Our own timeout, as opposed to one that a tool raises."""


@dataclass(frozen=True)
class Arrival:
    """The outcome of a step, on its way into the log. Times are seconds since the epoch; `dump` is the
    pair of value and error as it is recorded; `attempts` has the ones that failed before the last."""

    step: int
    value: Any
    error: BaseException | None
    started: float
    ended: float
    dump: state.Dump
    attempts: tuple[Mapping[str, Any], ...] = ()


Namespaces = Mapping[str, dict[str, Any]]
"""The by-value namespaces of the run (`Kernel.namespaces`)."""

_PLAIN = (str, int, float, complex, bool, bytes, type(None))


def apart(call: Call, namespaces: Namespaces, stand_ins: Sequence[resources.StandIn]) -> Call:
    """The call with arguments of its own: what the record says is what the tool gets, whatever the agent's
    other tasks do meanwhile, and what a tool does to them stays with it, with or without a restore.

    Arguments that hold things of the agent loop can't be taken apart and are passed as they are.
    """
    if all(type(each) in _PLAIN for each in (*call.args, *call.kwargs.values())):
        return call
    resolve = {f"stand-in {number}": each for number, each in enumerate(stand_ins)}
    try:
        dump = state.dump((call.args, dict(call.kwargs)), resolve=resolve, copied=True)
        args, kwargs = state.load(dump.parts, resolve=resolve, joining=namespaces)
    except (NotSerialisable, NotRestorable):
        return call
    return replace(call, args=args, kwargs=kwargs)


async def carry_out(call: Call, namespaces: Namespaces) -> Arrival:
    """Call the tool and return what came of it. Cancellation passes through.

    Raises Unanswered for a `write` that outlasted its timeout: calling it again could do it twice, and to
    call it failed could lose it.
    """
    started = time.time()
    failed: list[Mapping[str, Any]] = []
    value: Any = None
    error: BaseException | None = None
    kwargs = dict(call.kwargs)
    if call.pass_key:
        kwargs["idempotency_key"] = call.key
    args, kwargs = resources.real(call.args), resources.real(kwargs)

    try:
        if call.retries:
            value = await _patiently(call, failed, args, kwargs)
        else:
            value = await _within(call.timeout, call.fn, args, kwargs)
    except _TooLong as raised:
        if call.effect == "write":
            raise Unanswered from raised
        error = TimeoutError(str(raised))
    except BaseException as raised:  # a tool's own failure, not this process's end
        error = own(raised, f"{call.tool} (step {call.step})")
    return arrival(call, value, error, started, time.time(), namespaces, tuple(failed))


async def _patiently(
    call: Call, failed: list[Mapping[str, Any]], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call the tool until it doesn't fail, as often as it allows; `failed` gets the attempts that did."""

    def note(attempt: tenacity.RetryCallState) -> None:
        raised = attempt.outcome.exception() if attempt.outcome is not None else None
        words = in_words(raised) if raised is not None else ""
        failed.append({"attempt": attempt.attempt_number, "ended": time.time(), "error": words})

    tries = tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception(lambda error: _may_try_again(call, error)),
        stop=tenacity.stop_after_attempt(call.retries + 1),
        wait=tenacity.wait_random_exponential(_FIRST_PAUSE, _LONGEST_PAUSE),
        sleep=anyio.sleep,
        before_sleep=note,
        reraise=True,
    )
    return await tries(_within, call.timeout, call.fn, args, kwargs)


async def _within(
    seconds: float | None, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    if seconds is None:
        return await invoke(fn, args, kwargs)
    with anyio.move_on_after(seconds) as scope:
        return await invoke(fn, args, kwargs)
    assert scope.cancelled_caught  # else it has returned
    raise _TooLong(f"no answer within {seconds:g} s")


def _may_try_again(call: Call, error: BaseException) -> bool:
    if isinstance(error, _TooLong):
        return call.effect != "write"
    return isinstance(error, Exception | SystemExit)


def arrival(
    call: Call,
    value: Any,
    error: BaseException | None,
    started: float,
    ended: float,
    namespaces: Namespaces,
    attempts: tuple[Mapping[str, Any], ...] = (),
) -> Arrival:
    """An outcome in a form that can be recorded; what can't travel is said in the agent, not dropped.

    The agent gets what comes out of the record, so that it can't tell whether it was restored in between, and
    what can't be rebuilt is known now and not at a resume.
    """
    value, error, dump = _travelling(call, value, error)
    if error is not None or type(value) not in _PLAIN:
        try:
            value, error = state.load(dump.parts, joining=namespaces)
        except NotRestorable as failure:
            value, error = None, failure
            dump = _dump(value, error)
    return Arrival(call.step, value, error, started, ended, dump, attempts)


def is_async(fn: Callable[..., Any]) -> bool:
    """Whether calling `fn` gives an awaitable, as far as can be said without calling it."""
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004


async def invoke(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function on the host, async or sync (in a worker thread), and give its value."""
    if is_async(fn):
        return await fn(*args, **kwargs)

    def call() -> Any:
        try:
            return fn(*args, **kwargs)
        except OF_LOOPS as raised:  # neither a Ctrl-C nor a cancellation reaches a worker thread
            raise failure(raised, str(getattr(fn, "__qualname__", fn))) from raised

    value = await threads.for_tool(call)
    # A sync function may hand back an awaitable (a decorated coroutine function does).
    return await value if inspect.isawaitable(value) else value


def about(refusal: NotSerialisable, place: str, what: str) -> NotSerialisable:
    """The same refusal, with the `place` of a dump said as people know it."""
    offenders = [
        replace(offender, path=offender.path.replace(place, what, 1)) for offender in refusal.offenders
    ]
    return paths.refusal(offenders)


def _dump(value: Any, error: BaseException | None) -> state.Dump:
    return state.dump((value, error), copied=True).detached()  # the tool may keep and change what it returned


def _travelling(
    call: Call, value: Any, error: BaseException | None
) -> tuple[Any, BaseException | None, state.Dump]:
    """The outcome in a form that can be recorded; what can't is said in the agent, not dropped."""
    try:
        return value, error, _dump(value, error)
    except NotSerialisable as refusal:
        refusal = about(refusal, "state → [0]", f"what {call.tool} (step {call.step}) returned")
        refusal = about(refusal, "state → [1]", f"the exception of {call.tool} (step {call.step})")
        error = refusal if error is None else _without_handles(error, refusal)
        return None, error, _dump(None, error)


def _without_handles(error: BaseException, refusal: NotSerialisable) -> BaseException:
    """Take off `error` the attributes that can't travel; give the refusal where that isn't enough."""
    dropped = []
    for name, attribute in list(vars(error).items()):
        try:
            state.dump(attribute, copied=True)
        except NotSerialisable:
            delattr(error, name)
            dropped.append(name)
    # Causes and contexts come from inside the client as a rule; their text stays in the traceback.
    error.__cause__ = error.__context__ = None
    if dropped:
        error.add_note(
            f"snaprt: {', '.join(dropped)} held a handle and could not be recorded with this exception"
        )
    try:
        state.dump(error, copied=True)
    except NotSerialisable:
        return refusal
    return error
