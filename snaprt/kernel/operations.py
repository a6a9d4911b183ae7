"""What agent code calls to act: tools, `step`, `plan`, `rules`, the `agent` mark. `waiting` has the rest.

Each is a future of the agent loop plus a command to the runtime. None of them knows the runtime, and
none keeps the kernel: it is found through the running loop at the moment of the call, so a frame that
waits here holds nothing but its arguments. These frames are part of saved states, and a state knows its
code by digest: the less stands in them the better.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, ParamSpec, TypeVar, overload

from snaprt.errors import OutsideAgent
from snaprt.kernel.approvals import approved, needs_approval, request
from snaprt.kernel.events import EFFECTS, KEY_PARAMETER, Effect
from snaprt.kernel.loop import AgentLoop
from snaprt.kernel.plan import Plan
from snaprt.state.modules import importable

P = ParamSpec("P")
R = TypeVar("R")
AgentFn = TypeVar("AgentFn", bound=Callable[..., Any])


def current_kernel() -> Any:
    """The kernel of the agent that runs here and now, or None."""
    loop = asyncio._get_running_loop()
    return loop.kernel if isinstance(loop, AgentLoop) else None


def kernel_for(operation: str) -> Any:
    """The same, for an operation that is nothing without one. Raises OutsideAgent."""
    kernel = current_kernel()
    if kernel is None:
        raise OutsideAgent(
            f"`{operation}` was called where no agent runs. It works only in the code of an agent that a "
            "snaprt.Runtime runs, not in a tool, a thread or a plain asyncio program."
        )
    return kernel


# --- tools ----------------------------------------------------------------------------------------


class Tool:
    """A function that touches the world, and what is declared about it.

    Found again by name where its module can be imported; that is why it stands on the wrapper that
    `tool` puts in the function's place (`__snaprt_tool__`).
    """

    __slots__ = ("approval", "effect", "fn", "name", "reconcile", "retries", "timeout", "wants_key")

    def __init__(
        self,
        fn: Callable[..., Any],
        effect: Effect,
        name: str | None = None,
        *,
        reconcile: Callable[..., Any] | None = None,
        approval: bool | Callable[..., bool] = False,
        retries: int = 0,
        timeout: float | None = None,
    ) -> None:
        if effect not in EFFECTS:
            raise ValueError(f"a tool's effect is one of {', '.join(EFFECTS)}, not {effect!r}")
        if not callable(fn):
            raise TypeError(f"a tool has to be something that can be called, not {fn!r}")
        if retries < 0 or (timeout is not None and timeout <= 0):
            raise ValueError(f"retries can't be negative nor a timeout zero: {retries=} {timeout=}")
        self.fn = fn
        self.reconcile = reconcile
        self.approval = approval
        self.retries = retries
        self.timeout = timeout
        self.effect: Effect = effect
        self.name = name or _name_of(fn)
        self.wants_key = KEY_PARAMETER in _parameters(fn)

    def __repr__(self) -> str:
        return f"<Tool {self.name} effect={self.effect}>"

    def __reduce__(self) -> Any:
        module = getattr(self.fn, "__module__", None)
        qualname = getattr(self.fn, "__qualname__", None)
        if isinstance(module, str) and isinstance(qualname, str) and importable(module):
            try:
                if tool_named(module, qualname) is self:
                    return tool_named, (module, qualname)
            except (AttributeError, TypeError):
                pass  # declared where no name leads to it
        return _tool_again, (
            (self.fn, self.effect, self.name),
            {name: getattr(self, name) for name in ("reconcile", "approval", "retries", "timeout")},
        )


def _tool_again(args: tuple[Any, ...], options: dict[str, Any]) -> Tool:
    return Tool(*args, **options)


def tool_named(module: str, qualname: str) -> Tool:
    """The declaration of the tool of that name, as it stands in this process."""
    found: Any = importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    declared = getattr(found, "__snaprt_tool__", None)
    if not isinstance(declared, Tool):
        what = "isn't there any more" if found is None else "isn't a tool any more"
        raise TypeError(
            f"{module}:{qualname} {what}, and a run waits for a call of it; bring it back to go on"
        )
    return declared


def _name_of(fn: Callable[..., Any]) -> str:
    inner: Any = fn
    while isinstance(inner, functools.partial):
        inner = inner.func
    return getattr(inner, "__qualname__", None) or type(inner).__qualname__


def _parameters(fn: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(fn).parameters
    except (TypeError, ValueError):  # some builtins have none
        return {}


@overload
def tool(fn: Callable[P, Awaitable[R]], /) -> Callable[P, Awaitable[R]]: ...
@overload
def tool(fn: Callable[P, R], /) -> Callable[P, Awaitable[R]]: ...
@overload
def tool(
    *,
    effect: Effect = ...,
    name: str | None = ...,
    reconcile: Callable[..., Any] | None = ...,
    approval: bool | Callable[..., bool] = ...,
    retries: int = ...,
    timeout: float | None = ...,
) -> Callable[[Callable[..., Any]], Any]: ...
@overload
def tool(
    fn: Callable[..., Any],
    /,
    *,
    effect: Effect = ...,
    name: str | None = ...,
    reconcile: Callable[..., Any] | None = ...,
    approval: bool | Callable[..., bool] = ...,
    retries: int = ...,
    timeout: float | None = ...,
) -> Any: ...


def tool(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    effect: Effect = "write",
    name: str | None = None,
    reconcile: Callable[..., Any] | None = None,
    approval: bool | Callable[..., bool] = False,
    retries: int = 0,
    timeout: float | None = None,
) -> Any:
    """Make a function, sync or async, a tool: an `async def` that agents can await.

    In an agent a call becomes a step: recorded, done outside the agent loop, its result or exception
    delivered at the await. Anywhere else the function is simply called. A parameter named `idempotency_key`
    is filled in from run and step unless the caller gives it, and doesn't show in the signature.

    - `effect`: what a repeat would do: "write" (the default), "read" or "idempotent".
    - `name`: for people; defaults to the function's.
    - `reconcile(key, *args, **kwargs)`: asked where a write may have happened (the process died between
      calling and recording); returns `Done(value)`, `NotDone()` or `Unknown()`. Without it a person is asked.
    - `approval`: whether a person has to approve the call, or a function of its arguments that says so.
      The run suspends with exactly these arguments; a refusal raises `Rejected`.
    - `retries`: attempts that may follow a failed one, with growing pauses, inside the one step.
    - `timeout`: seconds for one attempt; then it raises TimeoutError.
    """
    options: dict[str, Any] = {
        "reconcile": reconcile, "approval": approval, "retries": retries, "timeout": timeout,
    }  # fmt: skip
    if fn is None:
        return lambda fn: tool(fn, effect=effect, name=name, **options)
    declared = Tool(fn, effect, name, **options)

    @functools.wraps(fn)
    async def call(*args: Any, **kwargs: Any) -> Any:
        return await _perform(declared, args, kwargs)

    call.__snaprt_tool__ = declared  # type: ignore[attr-defined]  # a mark on a function
    if declared.wants_key:
        _hide_key(call, fn)
    return call


def _hide_key(wrapper: Callable[..., Any], fn: Callable[..., Any]) -> None:
    """Frameworks offer a function's parameters to a model; the key isn't the model's to choose."""
    signature = inspect.signature(fn)
    shown = [each for name, each in signature.parameters.items() if name != KEY_PARAMETER]
    wrapper.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]  # PEP 362
    wrapper.__annotations__ = {
        name: each for name, each in getattr(fn, "__annotations__", {}).items() if name != KEY_PARAMETER
    }


def _perform(declared: Tool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Awaitable[Any]:
    kernel = current_kernel()
    if kernel is not None:
        if needs_approval(declared.approval, args, kwargs):
            return _when_approved(declared, args, kwargs)
        future: Awaitable[Any] = kernel.issue(declared, args, kwargs)
        return future
    return _simply_call(declared.fn, args, kwargs)


async def _when_approved(declared: Tool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    question = request(declared.name, args, kwargs)
    answer = await kernel_for("approval").ask(question, approval=declared)
    args, kwargs, how = approved(declared.fn, question, answer)
    return await kernel_for("approval").issue(declared, args, kwargs, how)


async def _simply_call(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    value = fn(*args, **kwargs)
    return await value if inspect.isawaitable(value) else value


class _StepOperation:
    """`await snaprt.step(fn, *args, **kwargs)`: call any function as a step, without declaring it.

    All arguments after `fn` are the function's own. The effect is `"write"`, which is never repeated
    silently; say `step.read(fn, …)` or `step.idempotent(fn, …)` for the others. A function that is a
    tool already keeps the effect that it declares.
    """

    async def __call__(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return await _perform(_declared(fn, "write"), args, kwargs)

    async def read(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """A step that changes nothing: in doubt it is called again."""
        return await _perform(_declared(fn, "read"), args, kwargs)

    async def idempotent(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """A step that may be repeated with the same `idempotency_key`."""
        return await _perform(_declared(fn, "idempotent"), args, kwargs)

    def __reduce__(self) -> str:
        return "step"  # there is one, and it is found by its name


step = _StepOperation()


def _declared(fn: Callable[..., Any], effect: Effect) -> Tool:
    found = getattr(fn, "__snaprt_tool__", None)
    return found if isinstance(found, Tool) else Tool(fn, effect)


# --- the other operations -------------------------------------------------------------------------


def plan(*names: str) -> Plan:
    """The run's plan, with `names` added at its end where it doesn't have them yet."""
    found: Plan = kernel_for("snaprt.plan").plan
    found.add(*[name for name in dict.fromkeys(names) if name not in found])
    return found


def rules() -> dict[str, Any]:
    """The rules in force: the model, prompt and versions under which the run decides. A copy."""
    return dict(kernel_for("snaprt.rules").rules)


def agent(
    fn: Any = None,
    /,
    *,
    rules: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None,
    save: Literal["always", "effects"] = "always",
) -> Any:
    """Mark an `async def` as an agent, with the rules under which it decides. Returns it unchanged.

    `save="effects"` saves state with intents and suspends only, for huge state and cheap reads: a crash then
    runs the agent's lines since the last one again, with the recorded results fed in their order. That
    stretch has to be repeatable; a call that differs from its record raises `Diverged`.
    """
    if save not in ("always", "effects"):
        raise ValueError(f'an agent is saved "always" or with its "effects", not {save!r}')

    def mark(marked: AgentFn) -> AgentFn:
        if not callable(marked):
            raise TypeError(f"an agent has to be an async function, not {marked!r}")
        marked.__snaprt_agent__ = {  # type: ignore[attr-defined]  # a mark on a function
            "rules": rules if callable(rules) else dict(rules or {}),
            "save": save,
        }
        return marked

    return mark if fn is None else mark(fn)
