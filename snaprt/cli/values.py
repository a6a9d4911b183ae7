"""From words on a command line to Python values: JSON, `key=value`, an agent's arguments.

Pure functions; whatever can't be understood is a `UsageError` that says where.
"""

from __future__ import annotations

import inspect
import json
import math
import re
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any

from snaprt.errors import UsageError
from snaprt.store import names


def parse_json(text: str, what: str) -> Any:
    """The value of `text` as strict JSON; `-` reads it from standard input. `what` names it in errors."""
    try:
        if text == "-":
            what = f"{what} (standard input)"
            text = sys.stdin.read()
        return _loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}" if "\n" in text else f"column {error.colno}"
        raise UsageError(
            f"{what} isn't JSON: {error.msg} at {where} of {_short(text)}.{_advice(text)}"
        ) from None
    except ValueError as error:
        raise UsageError(f"{what} isn't JSON: {error}.") from None
    except RecursionError:
        raise UsageError(f"{what} is nested too deeply to be read as JSON.") from None


def check_early(early: bool, suspension: str | None) -> None:
    """An answer to a question that isn't asked yet has to name it."""
    if early and suspension is None:
        raise UsageError(
            "--early is for a question that isn't asked yet: say which with --suspension NAME, the name in "
            "snaprt.suspend(…, name=NAME)."
        )
    if early and suspension is not None and not names.is_slot(suspension):
        raise UsageError(
            f"No question can be called {_short(suspension)}: a name has up to 100 letters, digits, '-' and "
            "'_', and when it is asked again a '.' and how often, as in review.2."
        )


def parse_duration(text: str, what: str) -> float:
    """Seconds, from a number with its unit: 90s, 15m, 12h, 7d."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text, re.ASCII)
    if found is None:
        raise UsageError(
            f"{what} {text!r} isn't a length of time: write a number and s, m, h or d, as in 15m or 30d."
        )
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86_400}[found[2]]


def parse_pairs(words: Sequence[str]) -> dict[str, Any]:
    """Keyword arguments from `key=value` words. A value that is JSON is taken as such, else as text."""
    kwargs: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key.isidentifier():
            raise UsageError(
                f"{word!r} isn't an argument: write key=value, as in order=A-17, with a Python name as key."
            )
        if key in kwargs:
            raise UsageError(f"The argument {key!r} is given twice.")
        try:
            kwargs[key] = _loads(text)
        except (ValueError, RecursionError):
            kwargs[key] = text
    return kwargs


def agent_arguments(words: Sequence[str], document: str | None) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments from `key=value` words and `--input`.

    An object gives keyword arguments, an array positional ones. A key that stands in both is refused
    rather than guessed.
    """
    kwargs = parse_pairs(words)
    if document is None:
        return [], kwargs
    value = parse_json(document, "--input")
    if isinstance(value, list):
        return value, kwargs
    if not isinstance(value, dict):
        raise UsageError(
            f"--input has to be a JSON object (keyword arguments) or array (positional ones), not "
            f"{_kind(value)}."
        )
    both = sorted(value.keys() & kwargs.keys())
    if both:
        raise UsageError(f"{', '.join(both)}: given both in --input and as key=value. Give it once.")
    return [], {**value, **kwargs}


def fit_arguments(
    agent: Callable[..., Any],
    name: str,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    taken: Collection[str] = (),
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Give the arguments in the agent's own order; refuse what it doesn't take, before a run exists.

    They go by position where that can be; what has to go by keyword can't have a name of `taken`,
    which are the keywords of whoever passes the arguments on.
    """
    signature = inspect.signature(agent)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        takes = ", ".join(str(parameter) for parameter in signature.parameters.values()) or "no arguments"
        raise UsageError(f"{name} can't be called like this: {error}. It takes: {takes}.") from None
    both = sorted(bound.kwargs.keys() & set(taken))
    if both:
        raise UsageError(
            f"{name} takes {both[0]!r} by keyword, and that is a keyword of the runtime's own. "
            "Give the parameter another name."
        )
    return bound.args, bound.kwargs


def _loads(text: str) -> Any:
    """Strict JSON: every number in it is one, and not what Python makes of those that it can't hold."""
    return json.loads(text, parse_constant=_no_constant, parse_float=_finite)


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is larger than any number that can be held")
    return number


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} has no place in JSON")


def _advice(text: str) -> str:
    """The mistake people make most: text without its quotes, which the shell has eaten."""
    bare = text.strip()
    if bare and bare[0] not in '{["' and not bare[0].isdigit():
        return f" Text needs quotes of its own: '{json.dumps(bare, ensure_ascii=False)}'."
    if bare[:1] == "{" and "'" in bare:
        return " JSON wants double quotes; keep the shell's single ones around the whole."
    return ""


def _short(text: str) -> str:
    one_line = " ".join(text.split())
    return repr(one_line if len(one_line) <= 60 else one_line[:57] + "…")


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    return {bool: "a boolean", str: "a string", int: "a number", float: "a number"}[type(value)]


def parse_verdict(text: str) -> dict[str, Any]:
    """What a person says about a call in doubt: `done VALUE`, `retry` or `fail REASON`."""
    word, _, rest = text.strip().partition(" ")
    if word == "retry" and not rest:
        return {"retry": True}
    if word == "fail" and rest.strip():
        return {"fail": rest.strip()}
    if word == "done":
        return {"done": parse_json(rest, "--in-doubt done VALUE") if rest.strip() else None}
    raise UsageError(
        f"--in-doubt {text!r} is none of: 'done VALUE' (it happened; VALUE is its result as JSON), 'retry' "
        "(it didn't; call it), 'fail REASON' (raise that in the agent)."
    )
