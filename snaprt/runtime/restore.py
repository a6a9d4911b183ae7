"""What stands between a log and a kernel that goes on: decisions, and what was recorded after the state.

A resume takes the newest whole state and feeds it the results and answers recorded after it; `feed`
does that. Before it, a person may have to decide: rules that differ from today's, another
interpreter, calls in doubt. Each is refused in one paragraph that says both sides and what to say.
This file must not know how a run is driven.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Literal

from snaprt import frames, state
from snaprt.errors import CodeChanged, Damaged, RulesChanged
from snaprt.kernel import Answer, Call, Kernel, Result
from snaprt.records import Record
from snaprt.runtime.agents import Agent, rules_of
from snaprt.runtime.outcomes import Cancelled, Completed, Failed, Outcome

Rules = Mapping[str, Any]


def settle_rules(
    run_id: str, recorded: Rules, agent: Agent | None, choice: Literal["recorded", "current"] | None
) -> Rules | None:
    """The rules to go on with where they are to be changed, else None. Raises RulesChanged undecided."""
    if agent is None:
        return None
    current = rules_of(agent)
    if current == dict(recorded) or choice == "recorded":
        return None
    if choice == "current":
        return current
    lines: list[str] = []
    for name in sorted({*recorded, *current}):
        then, now = recorded.get(name), current.get(name)
        if then != now:
            lines += difflib.unified_diff(
                _text(then).splitlines(),
                _text(now).splitlines(),
                f"{name} (recorded)",
                f"{name} (today)",
                lineterm="",
            )
    raise RulesChanged(
        f"The rules of run {run_id} differ from today's. Say rules='recorded' (--rules recorded) to go on "
        "under the recorded ones, or rules='current' (--rules current) to change over.\n" + "\n".join(lines)
    )


def _text(rule: Any) -> str:
    return "" if rule is None else rule if isinstance(rule, str) else repr(rule)


def check_interpreter(run_id: str, recorded: Mapping[str, Any]) -> None:
    """Raise CodeChanged where the frames of a state can't be read by this interpreter."""
    here = frames.interpreter()
    if dict(recorded) != here:
        raise CodeChanged(
            f"Run {run_id} was saved by {_interpreter(recorded)}, this is {_interpreter(here)}: its frames "
            "fit that interpreter only. Resume it with that one."
        )


def _interpreter(facts: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in facts.items())


def in_doubt_text(run_id: str, calls: list[Call]) -> str:
    """What a person needs to decide about calls that may have happened."""
    names = "; ".join(f"step {call.step}: {call.tool} with key {call.key}" for call in calls)
    return (
        f"Run {run_id} stopped between announcing a call and recording its result, so it may or may not have "
        f"happened: {names}. Look at the other side by that key. To call again, resume with in_doubt='retry' "
        "(--in-doubt retry)."
    )


def which_question(run_id: str, waiting: Any, asked: str | None = None) -> str:
    """Say which questions are open where an answer didn't name exactly one of them."""
    names = ", ".join(item["suspension"] for item in waiting)
    if not names:
        return f"Run {run_id} waits for no answer. Look with `snaprt show {run_id}`."
    if asked is None:
        return f"Run {run_id} has several questions open: {names}. Say which with suspension= (--suspension)."
    return f"Run {run_id} has no open question {asked!r}. Open: {names}."


def feed(kernel: Kernel, record: Record) -> None:
    """Give a restored kernel what was recorded after its state."""
    detail = record.header.detail
    if record.header.kind == "wake":
        kernel.deliver(Answer(detail["suspension"], _value(record, "answer"), detail["by"]))
        return
    for item in detail["steps"]:
        value, error = _value(record, f"value-{item['step']}")
        kernel.deliver(Result(item["step"], value, error, started=item["started"], ended=item["ended"]))


def _value(record: Record, section: str) -> Any:
    if section not in record.sections:
        raise Damaged(
            f"Record {record.header.number} of run {record.header.run} is a {record.header.kind} without "
            f"its section {section!r}."
        )
    return state.load(record.sections[section])


def ended(record: Record) -> Outcome:
    """How a finished run ended, from its last record."""
    run = record.header.run
    status, *rest = _value(record, "outcome")
    if status == "completed":
        return Completed(run, rest[0])
    if status == "cancelled":
        return Cancelled(run, rest[0])
    return Failed(run, rest[0], rest[1])
