"""How runs, steps and results look to a person.

Functions from plain data to something rich can print. Text that comes from agents is never read as
markup. Nothing here prints, waits or asks a store.
"""

from __future__ import annotations

import datetime
import json
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table

from snaprt.cli.changes import as_json, text_of
from snaprt.cli.foreign import Text, one_line
from snaprt.kernel.interrupts import is_ctrl_c

if TYPE_CHECKING:
    from snaprt.runtime import RunInfo, Waiting
    from snaprt.store.check import Report

# Mark, mark where the terminal has no Unicode, and style, by status of a plan entry, a step or a run.
_MARKS: dict[str, tuple[str, str, str]] = {
    "done": ("✓", "+", "green"),
    "completed": ("✓", "+", "green"),
    "active": ("●", "*", "cyan"),
    "running": ("●", "*", "cyan"),
    "suspended": ("‖", "=", "yellow"),
    "failed": ("✗", "x", "red"),
    "cancelled": ("-", "-", "dim"),
    "skipped": ("-", "-", "dim"),
    "refused": ("✗", "x", "red"),
    "damaged": ("✗", "x", "red"),
}
_PENDING = ("○", ".", "dim")

_OUTPUT = 100  # characters of a step's output in a table; `--json` has all that is kept


class Marks:
    """The little signs before a status; plain ones where the output can't encode the others."""

    def __init__(self, encoding: str) -> None:
        self._column = 0 if encoding.lower().replace("-", "").startswith("utf") else 1

    def of(self, status: str) -> Text:
        mark = _MARKS.get(status, _PENDING)
        return Text(mark[self._column], style=mark[2])


def plan_line(plan: Iterable[Mapping[str, Any]], marks: Marks) -> Text:
    """`✓ look  ● ask  ○ refund`"""
    return Text("   ").join(plan_entry(entry, marks) for entry in plan)


def plan_entry(entry: Mapping[str, Any], marks: Marks) -> Text:
    note = f" ({one_line(str(entry['note']))})" if entry.get("note") else ""
    return Text.assemble(marks.of(entry["status"]), " ", one_line(str(entry["name"])), (note, "dim"))


def runs_table(runs: Sequence[RunInfo], marks: Marks, now: float) -> Table:
    """The table of `snaprt ls`: the newest first, children below their parents."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("run", overflow="fold", min_width=8)
    table.add_column("agent", overflow="ellipsis")
    table.add_column("status", no_wrap=True)
    table.add_column("at", overflow="ellipsis")
    table.add_column("waits for", max_width=_OUTPUT)
    table.add_column("age", justify="right", no_wrap=True)
    table.add_column("size", justify="right", no_wrap=True)
    for depth, info in families(runs):
        table.add_row(
            Text("  " * depth + info.run),
            Text(info.agent),
            Text.assemble(marks.of(info.status), " ", info.status),
            Text(info.current_step or ""),
            _cut(waits_for(info)),
            age(now - info.updated) if info.updated else "",
            size(info.bytes) if info.bytes else "",
        )
    return table


def waits_for(info: RunInfo) -> str:
    """In a few words: the questions' ids, or the time; for a run that can't be read, why."""
    if info.status == "damaged":
        return str(info.error)
    if info.status not in ("suspended", "running"):
        return ""
    until = info.until if info.status == "suspended" else None
    return ", ".join(awaited(info.waiting, info.listening, info.open_children, until))


def awaited(
    waiting: Sequence[Waiting], listening: Iterable[str], children: Iterable[str], until: float | None
) -> list[str]:
    """What a run waits for, in a word or two each. The time of a question stands for itself."""
    words = [each.suspension for each in waiting]
    words += [f"inbox {name}" for name in listening]
    words += as_started(children)
    if until is not None and not any(each.until == until for each in waiting):
        words.append(moment(until))
    return words


def as_started(children: Iterable[str]) -> list[str]:
    """Children by the steps that started them, which their ids end with."""
    return sorted(children, key=lambda run: (len(run), run))


def families(runs: Sequence[RunInfo]) -> Iterator[tuple[int, RunInfo]]:
    """Runs with their depth: each parent before its children, who come in the order in which they were
    started; families by what is newest in them. Whose parent isn't among the runs stands by itself."""
    there = {info.run for info in runs}
    below: dict[str | None, list[RunInfo]] = {}
    for info in runs:
        below.setdefault(info.parent if info.parent in there else None, []).append(info)

    def newest(info: RunInfo) -> float:
        return max([info.updated, *map(newest, below.get(info.run, ()))])

    def told(info: RunInfo, depth: int) -> Iterator[tuple[int, RunInfo]]:
        yield depth, info
        for child in sorted(below.get(info.run, ()), key=lambda child: child.started):
            yield from told(child, depth + 1)

    for info in sorted(below.get(None, ()), key=newest, reverse=True):
        yield from told(info, 0)


def steps_table(steps: Sequence[Mapping[str, Any]], marks: Marks) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("#", justify="right")
    table.add_column("tool", overflow="ellipsis", no_wrap=True)
    table.add_column("effect", no_wrap=True)
    table.add_column("status", no_wrap=True)
    table.add_column("took", justify="right", no_wrap=True)
    table.add_column("output", max_width=_OUTPUT)
    for step in steps:
        table.add_row(
            str(step["id"]),
            Text(str(step["tool"])),
            Text(str(step.get("effect") or "")),
            Text.assemble(marks.of(step["status"]), " ", step["status"]),
            _took(step),
            _cut(_one_line(step["error"] if step.get("error") is not None else step.get("output"))),
        )
    return table


def objects_table(info: RunInfo) -> Table:
    """Where the bytes lie: every object of the run, by its URL."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for url, length in info.objects:
        table.add_row(size(length), Text(locate(info, url)))
    return table


def locate(info: RunInfo, name: str) -> str:
    """The URL of an object of the run, which may be named relative to it."""
    return name if "://" in name else f"{info.where.rstrip('/')}/{name}"


def report_text(report: Report, marks: Marks) -> Text:
    """What `snaprt verify` found: one line that says all is proven, or every problem by its object."""
    counts = (
        f"{report.records} records, {report.blobs} blobs and {report.answers} answers, {size(report.bytes)}"
    )
    if report.whole:
        text = Text.assemble(marks.of("done"), f" {report.run} is whole: {counts}, every one proven.")
        if report.unused:
            text.append(f" {len(report.unused)} blobs belong to no record; they harm nothing.", style="dim")
        return text
    count = len(report.problems)
    lines = [
        Text.assemble(marks.of("failed"), f" {report.run} is damaged: {count} problem{'s' * (count != 1)}.")
    ]
    lines += [
        Text.assemble("  ", (problem.object, "bold"), f"  {problem.text}") for problem in report.problems
    ]
    lines.append(Text(f"  What proves right: {counts}.", style="dim"))
    return Text("\n").join(lines)


def report_object(report: Report) -> dict[str, Any]:
    """The same for `--json`."""
    return {
        "run": report.run,
        "status": "whole" if report.whole else "damaged",
        "problems": [{"object": problem.object, "text": problem.text} for problem in report.problems],
        "records": report.records,
        "blobs": report.blobs,
        "answers": report.answers,
        "unused": list(report.unused),
        "bytes": report.bytes,
    }


def indented(what: RenderableType, by: int = 2) -> Padding:
    """Set in from the left; long lines are wrapped there too."""
    return Padding(what, (0, 0, 0, by))


def resume_command(run: str, store: str | None) -> str:
    return shlex.join(["snaprt", "resume", run, *store_words(store)])


def store_words(store: str | None) -> list[str]:
    return [] if store is None else ["--store", store]


def payload_text(payload: Any) -> Text:
    """A question's payload: an object's keys one by one, texts of several lines as they are."""
    facts = entries(payload)
    if not facts or facts.keys() == {"preview", "size"}:
        return value_text(payload)
    lines: list[Text] = []
    for key, value in facts.items():
        label = Text(f"{one_line(key if isinstance(key, str) else text_of(key))}: ", style="cyan")
        if isinstance(value, str) and "\n" in value:
            body = "\n".join(f"  {line}".rstrip() for line in _bounded(value.strip("\n")).splitlines())
            lines.append(Text.assemble(label, "\n", body))
        elif isinstance(value, str):
            lines.append(Text.assemble(label, _bounded(value)))
        else:
            lines.append(Text.assemble(label, value_text(value)))
    return Text("\n").join(lines)


def entries(value: Any) -> dict[Any, Any] | None:
    """A mapping's entries; None for anything else, and for a mapping of an agent's own that can't be read."""
    try:
        return dict(value) if isinstance(value, Mapping) else None
    except BaseException as error:
        if is_ctrl_c(error):
            raise
        return None


def value_text(value: Any) -> Text:
    """A result: text as it is, JSON as JSON, anything else by its repr."""
    if isinstance(value, str):
        return Text(_bounded(value))
    if type(value) is dict and value.keys() == {"preview", "size"}:
        return Text.assemble(str(value["preview"]), (f" ({value['size']})", "dim"))  # as summaries shorten
    shown = as_json(value)
    if shown is not value:
        return Text(_bounded(shown["repr"]))
    flat = json.dumps(value, ensure_ascii=False)
    return Text(flat if len(flat) <= 100 else _bounded(json.dumps(value, ensure_ascii=False, indent=2)))


_MOST = 100_000
"""Characters of one value that a terminal is given; laying out more takes minutes and nobody reads it."""


def _bounded(text: str) -> str:
    if len(text) <= _MOST:
        return text
    return f"{text[:_MOST]}… ({len(text) - _MOST} more characters; --json has them all)"


def size(count: int) -> str:
    """Bytes as people read them; decimal units, as stores bill them."""
    if count < 1000:
        return f"{count} B"
    amount = float(count)
    for unit in ("KB", "MB", "GB", "TB"):
        amount /= 1000
        if amount < 999.5 or unit == "TB":
            break
    return f"{amount:.1f} {unit}" if amount < 99.95 else f"{amount:.0f} {unit}"


def age(seconds: float) -> str:
    """One unit is enough to tell now from yesterday."""
    seconds = max(seconds, 0)
    if seconds < 60:
        return f"{int(seconds)} s"
    if seconds < 3600:
        return f"{int(seconds / 60)} min"
    if seconds < 86_400:
        return f"{int(seconds / 3600)} h"
    return f"{int(seconds / 86_400)} d" if seconds < 365_250 * 86_400 else "more than 1000 years"


def elapsed(seconds: float) -> str:
    """`0:07`, `12:41`, `3:05:09`"""
    whole = int(max(seconds, 0))
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"


def moment(when: float) -> str:
    """Local time, to the second, as far as there is a calendar."""
    try:
        return datetime.datetime.fromtimestamp(when).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return "more than 1000 years from now"


def now() -> float:
    return time.time()


def _took(step: Mapping[str, Any]) -> str:
    started, ended = step.get("started"), step.get("ended")
    return "" if started is None or ended is None else f"{max(ended - started, 0):.2f} s"


def _cut(text: str) -> Text:
    """A cell of one line that gives way first where a table is too wide."""
    return Text(text, no_wrap=True, overflow="ellipsis")


def _one_line(value: Any) -> str:
    if value is None:
        return ""
    return one_line(value if isinstance(value, str) else value_text(value).plain)
