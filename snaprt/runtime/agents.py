"""What the runtime asks of an agent: that it is one, its name, its rules, and where it lives today.

An agent is any `async def`, also a partial or method of one; `@snaprt.agent` only hangs rules on it.
This file must not know runs or logs.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

from snaprt.errors import UsageError
from snaprt.kernel.interrupts import is_ctrl_c
from snaprt.runtime.failing import rebuilding

Agent = Callable[..., Any]


def check_agent(agent: Any) -> None:
    """Raise UsageError unless `agent` is an `async def` (or a partial or method of one)."""
    if not inspect.iscoroutinefunction(agent):
        kind = (
            "an async generator function"
            if inspect.isasyncgenfunction(agent)
            else f"a {type(agent).__name__}"
        )
        raise UsageError(
            f"{name_of(agent)} is {kind}, not an agent: an agent is a plain `async def` function. "
            "Write it as `async def`, or call it from one."
        )


def _bare(agent: Any) -> Any:
    while isinstance(agent, functools.partial):
        agent = agent.func
    return agent


def name_of(agent: Any) -> str:
    """The agent's short name, as people see it."""
    agent = _bare(agent)
    return str(getattr(agent, "__name__", type(agent).__name__))


def target_of(agent: Any) -> str:
    """`module:qualname`, by which `today` looks for it."""
    agent = _bare(agent)
    return f"{getattr(agent, '__module__', '?')}:{getattr(agent, '__qualname__', name_of(agent))}"


def rules_of(agent: Any) -> dict[str, Any]:
    """The rules that `@snaprt.agent(rules=…)` gave to this function; none without it."""
    mark = getattr(_bare(agent), "__snaprt_agent__", None) or {}
    rules = mark.get("rules") or {}
    try:
        found = rules() if callable(rules) else rules
    except BaseException as error:
        if is_ctrl_c(error):
            raise
        raise UsageError(f"The rules of agent {name_of(agent)} can't be had: {error!r}.") from error
    if not isinstance(found, Mapping) or not all(isinstance(name, str) for name in found):
        raise UsageError(
            f"The rules of agent {name_of(agent)} are {found!r}; rules are a mapping from names to texts, or "
            "to anything that prints the same tomorrow."
        )
    for name, rule in found.items():
        if getattr(type(rule), "__repr__", None) is object.__repr__:
            raise UsageError(
                f"Rule {name!r} of agent {name_of(agent)} is {rule!r}, which says something else in every "
                "process. Give its name or version instead."
            )
    return dict(found)


def saves_of(agent: Any) -> str:
    """When the agent's state is saved: "always", or only with its "effects"."""
    return str((getattr(_bare(agent), "__snaprt_agent__", None) or {}).get("save", "always"))


def today(target: str, agent: Agent | None) -> Agent | None:
    """Today's function of a recorded agent, or None where it can't be had by name."""
    if agent is not None:
        return agent
    module, _, qualname = target.partition(":")
    if "<locals>" in qualname:
        return None
    found: Any = sys.modules.get(module)
    if found is None:
        try:
            with rebuilding(f"The module {module} of the agent"):
                found = importlib.import_module(module)
        except (ImportError, ValueError):
            return None
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found if callable(found) else None
