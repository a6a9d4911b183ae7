"""What goes into the kernel and what comes out: small frozen classes, nothing else.

The kernel is a state machine. The runtime hands it *events* (a tool returned, a person answered) and
gets *commands* (call this tool, show this question). Neither side sees more of the other than the
classes of this file, so a test can play the runtime and deliver anything in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Effect = Literal["write", "read", "idempotent"]
"""What a tool does to the world; DESIGN.md says what each means for a call in doubt."""

KEY_PARAMETER = "idempotency_key"
"""The parameter by which a tool asks for the idempotency key of its call."""

EFFECTS: tuple[Effect, ...] = ("write", "read", "idempotent")


# --- commands: kernel → runtime -------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """Call `fn(*args, **kwargs)` outside the agent, await it if it's awaitable, and deliver a `Result`."""

    step: int
    tool: str
    """The tool's name, for people."""
    fn: Callable[..., Any] = field(repr=False)
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    effect: Effect
    key: str
    """The idempotency key: made of run and step, never of arguments."""
    pass_key: bool = False
    """Whether `idempotency_key=key` is to be passed along."""
    reconcile: Callable[..., Any] | None = field(default=None, repr=False)
    """`reconcile(key, *args, **kwargs)`, asked where a write may have happened."""
    retries: int = 0
    """How many attempts may follow a failed one, inside this step."""
    timeout: float | None = None
    """Seconds that one attempt may take."""
    declared: Any = field(default=None, repr=False, compare=False)
    """What was declared about the function (`operations.Tool`). It is what travels: a restored run calls the
    function of this process, not a copy of the one that was there."""

    def __reduce__(self) -> Any:
        return call_of, (self.step, self.declared, self.args, self.kwargs, self.key, self.pass_key)


def call_of(
    step: int, declared: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], key: str, pass_key: bool
) -> Call:
    """The call of a declared tool."""
    return Call(
        step=step,
        tool=declared.name,
        fn=declared.fn,
        args=args,
        kwargs=kwargs,
        effect=declared.effect,
        key=key,
        pass_key=pass_key,
        reconcile=declared.reconcile,
        retries=declared.retries,
        timeout=declared.timeout,
        declared=declared,
    )


@dataclass(frozen=True)
class CancelCall:
    """Nobody in the agent waits for this step any more; stop its tool if that's possible."""

    step: int


@dataclass(frozen=True)
class Ask:
    """Show `payload` to whoever answers for the run, and deliver an `Answer` when there is one."""

    suspension: str
    payload: Any


@dataclass(frozen=True)
class Open:
    """Open the real thing behind a resource's stand-in, then deliver `Opened`."""

    stand_in: Any


@dataclass(frozen=True)
class Close:
    """Close the real thing behind a resource's stand-in, then deliver `Closed`."""

    stand_in: Any


Command = Call | CancelCall | Ask | Open | Close


# --- what a reconcile hook says -------------------------------------------------------------------


@dataclass(frozen=True)
class Done:
    """The call happened and gave `value`."""

    value: Any = None


@dataclass(frozen=True)
class NotDone:
    """The call didn't happen: it can be made."""


@dataclass(frozen=True)
class Unknown:
    """The other side doesn't say; a person is asked."""


# --- events: runtime → kernel ---------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """A tool returned `value`, or raised `error`. `started` and `ended` are seconds since the epoch."""

    step: int
    value: Any = None
    error: BaseException | None = None
    started: float | None = None
    ended: float | None = None
    attempts: tuple[Mapping[str, Any], ...] = ()
    """The attempts that failed before the last, as JSON."""


@dataclass(frozen=True)
class Answer:
    """Somebody (`by`) answered a suspension."""

    suspension: str
    value: Any = None
    by: str | None = None
    at: float | None = None
    """When, in seconds since the epoch."""


@dataclass(frozen=True)
class Mistaken:
    """What was given as an answer is none. The question stays open; the next answer goes to its new slot."""

    suspension: str
    why: str


@dataclass(frozen=True)
class Message:
    """Message number `number` of a stream, counted from 1. They come in order."""

    inbox: str
    number: int
    value: Any = None


@dataclass(frozen=True)
class Refused:
    """State couldn't be saved: `error` is raised at exactly the awaits of these steps, suspensions and
    streams."""

    steps: Iterable[int]
    suspensions: Iterable[str]
    error: BaseException
    inboxes: Iterable[str] = ()


@dataclass(frozen=True)
class Cancel:
    """Somebody asks the run to end: its root task is cancelled, and may clean up.

    Requests are numbered where they come through an inbox; one that was taken in is dropped."""

    reason: str | None = None
    number: int | None = None


@dataclass(frozen=True)
class Opened:
    """The resource behind `stand_in` is open (it was bound by the runtime), or couldn't be (`error`)."""

    stand_in: Any
    error: BaseException | None = None


@dataclass(frozen=True)
class Closed:
    """The resource behind `stand_in` is closed; `error` says what closing it raised, if it did."""

    stand_in: Any
    error: BaseException | None = None


Event = Result | Answer | Mistaken | Message | Refused | Cancel | Opened | Closed
