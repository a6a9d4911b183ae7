"""What stands between a log and a kernel that goes on: decisions, and what was recorded after the state.

A resume takes the newest whole state and feeds it the results and answers recorded after it; `feed`
does that. Before it, a person may have to decide: rules that differ from today's, another
interpreter, calls in doubt. Each is refused in one paragraph that says both sides and what to say.
This file must not know how a run is driven.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from snaprt import frames, state
from snaprt.errors import CodeChanged, Damaged, RulesChanged
from snaprt.kernel import Call, Kernel, Result
from snaprt.records import Header, Record
from snaprt.runtime import mail
from snaprt.runtime.agents import Agent, rules_of
from snaprt.runtime.doubts import Doubt
from snaprt.runtime.failing import rebuilding
from snaprt.runtime.rerun import Recorded, Rerun
from snaprt.store import Log

Rules = Mapping[str, Any]


def settle_rules(
    run_id: str, recorded: Rules, agent: Agent | None, choice: Literal["recorded", "current"] | None
) -> Rules | None:
    """The rules to go on with where they are to be changed, else None. Raises RulesChanged undecided."""
    if agent is None:
        return None
    current = rules_of(agent)
    if _same(current, recorded) or choice == "recorded":
        return None
    if choice == "current":
        return current
    lines: list[str] = []
    for name in sorted({*recorded, *current}):
        then, now = _text(recorded.get(name)), _text(current.get(name))
        if then != now:
            lines += difflib.unified_diff(
                then.splitlines(),
                now.splitlines(),
                f"{name} (recorded)",
                f"{name} (today)",
                lineterm="",
            )
    raise RulesChanged(
        f"The rules of run {run_id} differ from today's. Say rules='recorded' (--rules recorded) to go on "
        "under the recorded ones, or rules='current' (--rules current) to change over.\n" + "\n".join(lines)
    )


def _same(current: Rules, recorded: Rules) -> bool:
    # By their text: a NaN isn't equal to itself, and a rule's type may not know what equal means.
    return {k: _text(v) for k, v in current.items()} == {k: _text(v) for k, v in recorded.items()}


def _text(rule: Any) -> str:
    return "" if rule is None else rule if isinstance(rule, str) else repr(rule)


def about(header: Header) -> dict[str, Any]:
    """What every record says of its run, and the next one has to say again."""
    names = ("agent", "target", "started", "save", "parent")
    return {name: header.detail[name] for name in names if name in header.detail}


def check_interpreter(run_id: str, recorded: Mapping[str, Any]) -> None:
    """Raise CodeChanged where the frames of a state can't be read by this interpreter."""
    here = frames.interpreter()
    if dict(recorded) != here:
        raise CodeChanged(
            f"Run {run_id} was saved by {_interpreter(recorded)}, this is {_interpreter(here)}: its frames "
            "fit that interpreter only. Resume it with that one."
        )


def _interpreter(facts: Mapping[str, Any]) -> str:
    """`CPython 3.11 (64 bit, GIL, magic 3495)`"""
    name = {"cpython": "CPython"}.get(str(facts.get("implementation")), str(facts.get("implementation")))
    gil = "GIL" if facts.get("gil") else "no GIL"
    return f"{name} {facts.get('version')} ({facts.get('pointer')} bit, {gil}, magic {facts.get('magic')})"


@dataclass(frozen=True)
class Restored:
    """A kernel as its log says it stands, and what is to become of the calls that have no result.

    `again`: call them again (they change nothing, can be repeated, or failed and are tried anew). `fresh`:
    were never announced. `doubtful`: may have happened; `asked` has the questions about them that are out.
    """

    kernel: Kernel
    again: list[Call]
    fresh: list[Call]
    doubtful: list[Call]
    asked: dict[int, Doubt]
    rerun: Rerun


def restore(log: Log, retry: bool = False, clock: Callable[[], float] = time.time) -> Restored:
    """The newest whole state with everything fed that was recorded after it.

    Errors recorded before a `retry` (this one, or one that the log tells of) are void: those steps are called
    again. Raises CodeChanged, NotRestorable, Damaged, WrongKey.
    """
    with rebuilding(f"Run {log.run}"):
        return _restored(log, retry, clock)


def _restored(log: Log, retry: bool, clock: Callable[[], float]) -> Restored:
    newest = log.newest_state()
    since = newest.header.number if newest is not None else 1
    headers = log.headers(since)
    if newest is not None:
        kernel = Kernel.load(newest.sections["state"], clock)
    else:
        agent, args, kwargs, rules = section(log.read(1), "agent")
        kernel = Kernel(log.run, rules, clock)
        kernel.start(agent, args, kwargs)
    try:
        return _fed(log, kernel, headers, since, retry)
    except BaseException:
        kernel.release()  # or its cleanup would run here, in a process that doesn't own the run
        raise


def _fed(log: Log, kernel: Kernel, headers: list[Header], since: int, retry: bool) -> Restored:
    last = headers[-1]
    retries = [header.number for header in headers if header.detail.get("retry")]
    void = last.number + 1 if retry else max(retries, default=0)
    failed: set[int] = set()
    again_later: list[list[Recorded]] = []
    for header in headers:
        if header.kind in ("result", "wake"):
            failed |= feed(kernel, log.read(header.number), again_later, void=header.number < void)
    for header in headers:
        if "rules" in header.detail and header.number > since:
            kernel.rules = section(log.read(header.number), "rules", kernel)
    unstarted = set(last.detail.get("unstarted", ()))
    pending = kernel.pending_calls()
    fresh = [call for call in pending if call.step in unstarted]
    known = [call for call in pending if call.step not in unstarted]
    doubtful = [call for call in known if call.effect == "write" and call.step not in failed]
    again = [call for call in known if call.effect != "write" or call.step in failed]
    by_step = {call.step: call for call in doubtful}
    asked = {
        said["step"]: Doubt(said["suspension"], by_step[said["step"]], said["note"])
        for said in last.detail.get("doubts", ())
        if said["step"] in by_step
    }
    return Restored(kernel, again, fresh, doubtful, asked, Rerun(again_later))


def newest_claim(log: Log) -> Header:
    """The header by which the run's owner took it, which his later records name; elder ones don't."""
    number: int = log.newest
    while (header := log.header(number)).kind not in ("start", "claim"):
        number = header.detail.get("claim", number - 1)
    return header


def deaths(log: Log) -> int:
    """How many owners in a row died over this run without having got it any further."""
    number: int = log.newest
    while (header := log.header(number)).kind == "intent":
        number -= 1
    return header.detail.get("deaths", 0) + 1 if header.kind in ("start", "claim") else 0


def feed(
    kernel: Kernel, record: Record, again_later: list[list[Recorded]], *, void: bool = False
) -> set[int]:
    """Give a restored kernel what was recorded after its state. Errors that are void are left out; gives
    their steps. Results of steps that the state doesn't know go to `again_later`."""
    detail = record.header.detail
    if record.header.kind == "wake":
        for number, told in enumerate(detail["taken"]):
            name = f"value-{number}"
            mail.again(kernel, told, section(record, name, kernel) if name in record.sections else None)
        return set()
    failed = set()
    unknown: list[Recorded] = []
    for item in detail["steps"]:
        if void and not item["ok"]:
            failed.add(item["step"])
            continue
        value, error = section(record, f"value-{item['step']}", kernel)
        result = Result(
            item["step"],
            value,
            error,
            started=item["started"],
            ended=item["ended"],
            attempts=tuple(item["attempts"]),
        )
        if item["step"] in kernel.steps:
            kernel.deliver(result)
        else:
            unknown.append(Recorded(result, item.get("called", {})))
    again_later.append(unknown)
    return failed


def section(record: Record, name: str, kernel: Kernel | None = None) -> Any:
    """What a section of a record holds. Raises Damaged if there is none."""
    if name not in record.sections:
        raise Damaged(
            f"Record {record.header.number} of run {record.header.run} is a {record.header.kind} without "
            f"its section {name!r}."
        )
    return state.load(record.sections[name], joining=kernel.namespaces if kernel is not None else None)
