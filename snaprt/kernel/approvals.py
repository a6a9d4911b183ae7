"""Approvals: a person looks at a call before it is made.

The question is a suspension whose payload is the tool and exactly its arguments. These are kept apart
from the agent's own objects: whatever the agent does to a list it passed, what was approved is what is
called. An approval holds for this call only, since the question is this call's. The answers:

    {"approved": true}                                      call it as asked
    {"approved": true, "kwargs": {"cents": 4}}              change these arguments, by name; the others stay
    {"approved": true, "args": ["eve", 5]}                  change all positional ones; the others stay
    {"approved": true, "args": [...], "kwargs": {...}}      call it with exactly these instead
    {"approved": false, "reason": "..."}                    raise `Rejected` in the agent

Nothing that an answer doesn't name is changed, unless it gives both. What the tool can't be called with is no
answer: the question stays open.

This file must not know the loop or the kernel.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from snaprt.errors import Rejected
from snaprt.kernel.events import KEY_PARAMETER
from snaprt.kernel.questions import WrongAnswer

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


def fit_approval(fn: Callable[..., Any], question: dict[str, Any], answer: Any) -> Any:
    """`answer` if it is one to such a question about a call of `fn`. Raises WrongAnswer."""
    wrong = mistake(answer)
    if wrong is not None:
        raise WrongAnswer(wrong)
    if answer["approved"] and ("args" in answer or "kwargs" in answer):
        try:
            edited(fn, question, answer)
        except TypeError as error:
            raise WrongAnswer(str(error)) from None
    return answer


def edited(fn: Callable[..., Any], question: dict[str, Any], answer: dict[str, Any]) -> Arguments:
    """The arguments of the call with what the answer changes. Raises TypeError for what `fn` can't be called
    with."""
    if "args" in answer and "kwargs" in answer:
        args, kwargs = list(answer["args"]), dict(answer["kwargs"])
    else:
        args, kwargs = list(answer.get("args", question["args"])), dict(question["kwargs"])
        if len(args) < len(question["args"]):
            raise TypeError(
                f'"args" has {len(args)} of {len(question["args"])} positional arguments: give all of '
                'them, or those to change by their names in "kwargs"'
            )
        names = _positional(fn)
        for name, value in answer.get("kwargs", {}).items():
            if name in names[: len(args)]:
                args[names.index(name)] = value
            else:
                kwargs[name] = value
    _check(fn, args, kwargs)
    return tuple(args), kwargs


def _positional(fn: Callable[..., Any]) -> list[str]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    signature = _signature(fn)
    return (
        []
        if signature is None
        else [each.name for each in signature.parameters.values() if each.kind in kinds]
    )


def _check(fn: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> None:
    signature = _signature(fn)
    if signature is None:
        return
    given = {KEY_PARAMETER: "", **kwargs} if KEY_PARAMETER in signature.parameters else kwargs
    try:
        signature.bind(*args, **given)
    except TypeError as error:
        shown = [each for name, each in signature.parameters.items() if name != KEY_PARAMETER]
        raise TypeError(
            f"the tool can't be called with that: {error} (its parameters are "
            f"{', '.join(str(each) for each in shown) or 'none'})"
        ) from None


def _signature(fn: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError):  # some builtins have none
        return None


def approved(
    fn: Callable[..., Any], question: dict[str, Any], answer: Any
) -> tuple[tuple[Any, ...], dict[str, Any], str]:
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
    if "args" not in answer and "kwargs" not in answer:
        return tuple(question["args"]), dict(question["kwargs"]), "as asked"
    return *edited(fn, question, answer), "edited"


def _apart(value: Any) -> Any:
    """The same value with containers of its own; what isn't a plain container is the object itself."""
    kind = type(value)
    if kind is dict:
        return {key: _apart(each) for key, each in value.items()}
    if kind in (list, tuple, set):
        return kind(_apart(each) for each in value)
    return value
