"""Putting something into a run's inbox, from any process that has the key: checked as far as that goes
without the agent's code, since what lies in a slot counts for ever.

Questions of snaprt itself (an approval, a call in doubt) know their answers, those with a type show its JSON
Schema, and others take anything. This file must not know who takes in what is put.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from snaprt import state
from snaprt.errors import (
    AlreadyAnswered,
    NotRestorable,
    NotSerialisable,
    UnknownSuspension,
    UsageError,
)
from snaprt.kernel.approvals import mistake
from snaprt.kernel.questions import is_name
from snaprt.runtime.doubts import misread
from snaprt.runtime.owning import clock
from snaprt.runtime.shapes import short

_LONGEST = 200
"""Characters of a wrong answer that are said back."""


def letter(value: Any, by: str | None) -> bytes:
    """What is put into a slot. Raises NotSerialisable, and NotRestorable for a value that can be written and
    not be read: whoever waits for it could never go on."""
    parts = state.dump((value, by), copied=True).parts
    state.load(parts)
    return b"".join(parts)


def travels(value: Any) -> bool:
    """Whether a value can be put into a slot."""
    try:
        letter(value, None)
    except (NotSerialisable, NotRestorable):
        return False
    return True


def slot_for(
    run: str,
    summary: Mapping[str, Any],
    suspension: str | None,
    value: Any,
    *,
    now: float,
    early: bool = False,
) -> tuple[str, str]:
    """The question that `value` answers, and the slot of its answer; `summary` is what the run's log says.

    `now` is in seconds since the epoch, by the run's clock. `early`: also a question by name that wasn't
    asked yet. Raises UnknownSuspension, AlreadyAnswered, and UsageError for a value that can't be its answer.
    """
    questions = {item["suspension"]: item for item in summary.get("waiting") or ()}
    if suspension is None and len(questions) == 1:
        suspension = next(iter(questions))
    if suspension is None or suspension not in questions:
        for closed in summary.get("answered") or ():
            if closed["suspension"] == suspension:
                raise AlreadyAnswered(_closed(run, closed))
        if early and suspension is not None and _may_be_asked(suspension):
            return suspension, suspension
        raise UnknownSuspension(_which(run, list(questions), suspension))
    question = questions[suspension]
    if question.get("until") is not None and question["until"] < now:
        raise AlreadyAnswered(
            f"The time of {suspension} of run {run} was over at {clock(question['until'])}: when the run is "
            "next resumed it goes on without an answer."
        )
    wrong, expected = _wrong(question, value)
    if wrong is not None:
        raise UsageError(
            f"{_said(value)} doesn't answer {suspension} of run {run}: {wrong}. Answer {expected}."
        )
    return suspension, question.get("slot", suspension)


def _may_be_asked(suspension: str) -> bool:
    """Whether an agent can ask under this id: a name, or a name used again."""
    name, dot, times = suspension.partition(".")
    return is_name(name) and (not dot or (times.isdecimal() and times == str(int(times)) and int(times) > 1))


def _wrong(question: Mapping[str, Any], value: Any) -> tuple[str | None, str]:
    """What is wrong with an answer, if anything, and what it should be."""
    if question.get("approval"):
        known = '{"approved": true}, {"approved": false, "reason": "…"} or {"approved": true, "kwargs": {…}}'
        return mistake(value), known
    if question["suspension"].startswith("doubt-"):  # no name that an agent can give
        return misread(value), '{"done": VALUE}, {"retry": true} or {"fail": "REASON"}'
    schema = question.get("answer")
    if schema is None or not _is_json(value):
        return None, ""  # a value that is no JSON is held against the type itself, where that is
    return unfit(schema, value), f"what fits {short(schema)}"


def unfit(schema: Mapping[str, Any], value: Any) -> str | None:
    """What is wrong with a value by its JSON Schema; None if it fits."""
    import jsonschema  # type: ignore[import-untyped]  # ships no types; and only answers with a type need it

    checks = jsonschema.Draft202012Validator(_common(schema))
    worst = jsonschema.exceptions.best_match(checks.iter_errors(value))
    if worst is None:
        return None
    place = worst.json_path.removeprefix("$").lstrip(".")
    return f"{f'{place}: ' if place else ''}{worst.message}"


def _common(schema: Any) -> Any:
    """A schema without what pydantic and jsonschema understand differently, so that no right answer is
    refused here: patterns are those of Rust there, and multiples of a fraction aren't counted alike."""
    if isinstance(schema, list):
        return [_common(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        name: {key: _common(each) for key, each in rule.items()}
        if name in ("properties", "$defs", "patternProperties") and isinstance(rule, Mapping)
        else _common(rule)
        for name, rule in schema.items()
        if name not in ("pattern", "multipleOf", "format") and name not in ("enum", "const")
    } | {name: schema[name] for name in ("enum", "const") if name in schema}


def _said(value: Any) -> str:
    """A value as it was given, as far as it fits into a sentence."""
    text = json.dumps(value, ensure_ascii=False) if _is_json(value) else repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _is_json(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_json, value))
    if isinstance(value, dict):
        return all(type(name) is str and _is_json(each) for name, each in value.items())
    return value is None or type(value) in (str, int, float, bool)


def _closed(run: str, closed: Mapping[str, Any]) -> str:
    name, at = closed["suspension"], closed.get("at")
    when = f" at {clock(at)}" if at is not None else ""
    if closed["status"] == "answered":
        by = f" by {closed['by']}" if closed.get("by") else ""
        return f"{name} of run {run} was answered{by}{when}; the first answer counts."
    if closed["status"] == "expired":
        return f"The time of {name} of run {run} is over{when}: the run went on without an answer."
    return f"{name} of run {run} isn't waited for any more: it was {closed['status']}."


def _which(run: str, names: list[str], asked: str | None) -> str:
    if asked is not None and _may_be_asked(asked):
        early = " To answer it before it is asked, say early=True (--early)."
    else:
        early = ""
    if not names:
        return f"Run {run} waits for no answer. Look with `snaprt show {run}`.{early}"
    listed = ", ".join(names)
    if asked is None:
        return f"Run {run} has several questions open: {listed}. Say which with suspension= (--suspension)."
    return f"Run {run} has no open question {asked!r}. Open: {listed}.{early}"
