"""Approvals: a person looks at a call before it is made.

The question is a suspension whose payload is the tool and exactly its arguments. These are kept apart
from the agent's own objects: whatever the agent does to a list it passed, what was approved is what is
called. An approval holds for this call only, since the question is this call's. The answers:

    {"approved": true}                                            call it as asked
    {"approved": true, "args": [...], "kwargs": {...}}            call it with these instead
    {"approved": false, "reason": "..."}                          raise `Rejected` in the agent

This file must not know the loop or the kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from snaprt.errors import Rejected

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def needs_approval(
    approval: bool | Callable[..., bool], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    """Whether a call with these arguments has to be approved."""
    return bool(approval(*args, **kwargs)) if callable(approval) else approval


def request(tool: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The payload of the question."""
    return {"approve": tool, "args": [_apart(each) for each in args], "kwargs": _apart(kwargs)}


def mistake(answer: Any) -> str | None:
    """What is wrong with an answer to such a question; None if it is one."""
    if not isinstance(answer, dict) or not isinstance(answer.get("approved"), bool):
        return 'it has no "approved", true or false'
    if unknown := sorted(set(answer) - {"approved", "reason", "args", "kwargs"}):
        return f"it has {', '.join(map(repr, unknown))}, which an approval doesn't"
    if not isinstance(answer.get("args", []), list):
        return '"args" is no list'
    kwargs = answer.get("kwargs", {})
    if not isinstance(kwargs, dict) or not all(isinstance(name, str) for name in kwargs):
        return '"kwargs" is no object'
    return None


def approved(question: dict[str, Any], answer: Any) -> tuple[tuple[Any, ...], dict[str, Any], str]:
    """The arguments to call with, and "as asked" or "edited". Raises Rejected."""
    wrong = mistake(answer)
    if wrong is not None:
        raise Rejected(
            f"The call of {question['approve']} wasn't approved: {answer!r} is no approval, {wrong}."
        )
    if not answer["approved"]:
        raise Rejected(
            answer.get("reason") or f"The call of {question['approve']} was rejected, without a reason."
        )
    edited = "args" in answer or "kwargs" in answer
    args = answer.get("args", question["args"])
    kwargs = answer.get("kwargs", question["kwargs"])
    return tuple(args), dict(kwargs), "edited" if edited else "as asked"


def _apart(value: Any) -> Any:
    """The same value with containers of its own; what isn't a plain container is the object itself."""
    kind = type(value)
    if kind is dict:
        return {key: _apart(each) for key, each in value.items()}
    if kind in (list, tuple, set):
        return kind(_apart(each) for each in value)
    return value
