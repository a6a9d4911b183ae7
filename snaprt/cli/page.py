"""One run, as `snaprt show` and the end of a followed run show it: what it asks and what an answer has to be,
what else it waits for, who answered before, its parent and children, and what to type next.

Every part that asks for something ends with the line to type. Like `views`, on which this is built, it makes
plain data into something rich can print; it must not know stores or runtimes, so the status of other runs is
handed in.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.table import Table

from snaprt.cli import views
from snaprt.cli.changes import as_json
from snaprt.cli.foreign import Text
from snaprt.cli.views import Marks, indented, moment, resume_command, store_words
from snaprt.runtime import shapes

if TYPE_CHECKING:
    from snaprt.runtime import RunInfo, Waiting

_LABEL = 10  # width of the left column


def run_page(
    info: RunInfo, marks: Marks, store: str | None, now: float, statuses: Mapping[str, str] | None = None
) -> list[RenderableType]:
    """The page of `snaprt show`, part by part. `statuses`: where parent and children stand, if known."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", min_width=_LABEL)
    grid.add_column(overflow="fold")
    grid.add_row("run", Text(info.run))
    grid.add_row("agent", Text(info.agent))
    grid.add_row("status", _status(info, marks))
    grid.add_row("started", f"{moment(info.started)}, {views.age(now - info.started)} ago")
    grid.add_row("newest", f"{moment(info.updated)}, {views.age(now - info.updated)} ago")
    if info.parent is not None:
        grid.add_row("parent", _relative(info.parent, marks, statuses or {}))
    for number, child in enumerate(views.as_started(info.children)):
        grid.add_row("" if number else "children", _relative(child, marks, statuses or {}))
    if info.plan:
        grid.add_row("plan", views.plan_line(info.plan, marks))
    for number, (name, text) in enumerate(sorted(info.rules.items())):
        grid.add_row("" if number else "rules", Text.assemble((f"{name}: ", "dim"), views.value_text(text)))
    parts: list[RenderableType] = [grid]
    if info.steps:
        parts += [Text("\nsteps", style="bold"), indented(views.steps_table(info.steps, marks))]
    if info.answered:
        parts += [Text("\nasked before", style="bold"), indented(_answered_table(info.answered))]
    if info.status in ("suspended", "running"):
        awaited = _awaited(info, store, now, statuses or {})
        parts += [Text("\nwaits for", style="bold"), *awaited] if awaited else []
    if info.status == "completed":
        parts += [Text("\nresult", style="bold"), indented(views.value_text(info.result))]
    if info.error:
        parts += [Text("\nerror", style="bold"), indented(Text(info.error, style="red"))]
    for number, (command, why) in enumerate(_next(info, store)):
        parts += [] if number else [Text("\nnext", style="bold")]
        parts.append(Text.assemble("  ", (command, "bold"), (f"   {why}", "dim")))
    parts += [
        Text(f"\nbytes  {info.records} records, {views.size(info.bytes)} at {info.where}", style="bold"),
        indented(views.objects_table(info)),
    ]
    return parts


def question(
    run: str, waiting: Waiting, store: str | None, among: Sequence[Waiting], now: float | None = None
) -> list[RenderableType]:
    """What the agent asks, what the answer has to be and until when, and the command that gives it."""
    only = len(among) == 1
    over = now is not None and waiting.until is not None and waiting.until <= now
    payload, answers = waiting.payload, possible_answers(waiting)
    facts = views.entries(payload)
    if facts is not None and len(facts) > 1:
        payload = {key: value for key, value in facts.items() if value is not answers}
    commands = [
        answer_command(run, store, None if only else waiting.suspension, answer) for answer in answers
    ]
    parts: list[RenderableType] = [
        *([] if only else [Text(f"  {waiting.suspension}:", style="bold yellow")]),
        indented(views.payload_text(payload)),
    ]
    if waiting.refused is not None:
        parts.append(indented(Text(f"the last answer was refused: {waiting.refused}", style="red")))
    if waiting.answer is not None:
        parts.append(indented(Text.assemble(("the answer is ", "dim"), shapes.short(waiting.answer))))
    if waiting.until is not None:
        parts.append(indented(_expires(waiting.until, now)))
    if over:
        return [*parts, Text(f"    {resume_command(run, store)}", style="bold")]
    return [
        *parts,
        Text("  answer with" + (" one of" if len(answers) > 1 else ""), style="dim"),
        *(Text("    " + command.replace("\n", " "), style="bold") for command in commands),
    ]


def others(
    run: str,
    store: str | None,
    *,
    waiting: Sequence[Waiting],
    until: float | None,
    listening: Iterable[str],
    children: Iterable[str],
    statuses: Mapping[str, str] | None = None,
) -> list[RenderableType]:
    """What a run waits for besides answers, each with the line to type."""
    parts: list[RenderableType] = []
    for inbox in listening:
        parts += [
            Text(f"  a message in its inbox {inbox!r}; put one in with", style="dim"),
            Text(f"    {send_command(run, store, inbox)}", style="bold"),
        ]
    for child in views.as_started(children):
        status = (statuses or {}).get(child)
        if status in ("completed", "failed", "cancelled"):
            what, command = f"is {status}; that is taken in with", resume_command(run, store)
        else:
            what = "hasn't ended; see what that waits for with"
            command = shlex.join(["snaprt", "show", child, *store_words(store)])
        parts += [
            Text(f"  its child {child}, which {what}", style="dim"),
            Text(f"    {command}", style="bold"),
        ]
    if until is not None and not any(each.until == until for each in waiting):
        parts += [
            Text(f"  {moment(until)}; a worker goes on then, or", style="dim"),
            Text(f"    {resume_command(run, store)}", style="bold"),
        ]
    return parts


def possible_answers(waiting: Waiting) -> list[str]:
    """What the payload itself says under `answers` (JSON, or its pattern); else what fits the type that is
    asked for; else an approval."""
    answers = (views.entries(waiting.payload) or {}).get("answers")
    if isinstance(answers, list) and answers and all(isinstance(answer, str) for answer in answers):
        return answers
    return ['{"approved": true}'] if waiting.answer is None else shapes.samples(waiting.answer)


def answer_command(run: str, store: str | None, suspension: str | None, answer: str) -> str:
    """The line to type. `store` is None when it needn't be said."""
    words = ["snaprt", "resume", run, "--answer", answer]
    if suspension is not None:
        words += ["--suspension", suspension]
    return shlex.join(words + store_words(store))


def send_command(run: str, store: str | None, inbox: str) -> str:
    """The line that puts a message in."""
    return shlex.join(["snaprt", "send", run, '"…"', "--inbox", inbox, *store_words(store)])


def watch_command(run: str, store: str | None) -> str:
    return shlex.join(["snaprt", "watch", run, *store_words(store)])


def _status(info: RunInfo, marks: Marks) -> Text:
    text = Text.assemble(marks.of(info.status), " ", info.status)
    if info.status == "suspended" and info.waiting:
        text.append(", waits for an answer")
    elif info.status == "suspended" and info.listening:
        text.append(", waits for a message")
    elif info.status == "suspended" and info.open_children:
        text.append(", waits for a child")
    elif info.status == "suspended" and info.until is not None:
        text.append(f" until {moment(info.until)}")
    elif info.status == "running":
        text.append(", or its process died: resuming it is safe", style="dim")
    if info.current_step:
        text.append(f", at {info.current_step!r}")
    return text


def _relative(run: str, marks: Marks, statuses: Mapping[str, str]) -> Text:
    status = statuses.get(run)
    return Text(run) if status is None else Text.assemble(run, "  ", marks.of(status), " ", status)


def _answered_table(answered: Sequence[Mapping[str, Any]]) -> Table:
    """Who answered which question, and when; or what else became of it."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for name in ("question", "status", "by", "at"):
        table.add_column(name, overflow="fold")
    for each in answered:
        table.add_row(
            Text(each["suspension"]),
            Text(each["status"]),
            Text(f"by {each['by']}" if each.get("by") else ""),
            "" if each.get("at") is None else moment(each["at"]),
        )
    return table


def _awaited(
    info: RunInfo, store: str | None, now: float, statuses: Mapping[str, str]
) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for waiting in info.waiting:
        if _answer_lies_there(info, waiting):
            parts += [
                Text(f"  {waiting.suspension}: its answer lies there and is taken in with", style="dim"),
                Text(f"    {resume_command(info.run, store)}", style="bold"),
            ]
        else:
            parts += question(info.run, waiting, store, info.waiting, now)
    return parts + others(
        info.run,
        store,
        waiting=info.waiting,
        until=info.until,
        listening=info.listening,
        children=info.open_children,
        statuses=statuses,
    )


def _answer_lies_there(info: RunInfo, waiting: Waiting) -> bool:
    """Whether it was answered already. After an answer that was refused this can't be told by its slot."""
    slot = f"/inbox/{waiting.suspension}"
    return waiting.refused is None and any(name.endswith(slot) for name, _ in info.objects)


def _next(info: RunInfo, store: str | None) -> list[tuple[str, str]]:
    """Lines to type that don't stand with what the run waits for."""
    run = info.run
    match info.status:
        case "running":
            return [
                (watch_command(run, store), "what it does, as it happens"),
                (resume_command(run, store), "if its process died"),
            ]
        case "failed":
            again = shlex.join(["snaprt", "resume", run, "--retry", *store_words(store)])
            return [(again, "go on from before it failed; what failed is called again")]
        case "suspended" if not (info.waiting or info.listening or info.open_children or info.until):
            return [(resume_command(run, store), "it was stopped and has more to do")]
    return []


def _expires(until: float, now: float | None) -> Text:
    text = f"until {moment(until)}"
    if now is None:
        text += ", then it goes on without an answer"
    elif until > now:
        text += f", in {views.age(until - now)}; then it goes on without an answer"
    else:
        text += ", which is over; it goes on without an answer with"
    return Text(text, style="dim")


def info_object(info: RunInfo) -> dict[str, Any]:
    """A run for `--json`; every value is one that JSON can say."""
    facts: dict[str, Any] = {
        "run": info.run,
        "status": info.status,
        "agent": info.agent,
        "started": info.started,
        "updated": info.updated,
        "current_step": info.current_step,
        "plan": info.plan,
        "steps": info.steps,
        "waiting": [waiting_object(item) for item in info.waiting],
        "until": info.until,
        "listening": list(info.listening),
        "answered": info.answered,
        "parent": info.parent,
        "children": list(info.children),
        "rules": dict(info.rules),
        "records": info.records,
        "bytes": info.bytes,
        "where": info.where,
    }
    if info.status == "completed":
        facts["result"] = as_json(info.result)
    if info.error is not None:
        facts["error"] = info.error
    if info.objects:
        facts["objects"] = [
            {"url": views.locate(info, name), "bytes": length} for name, length in info.objects
        ]
    return facts


def waiting_object(waiting: Waiting) -> dict[str, Any]:
    """An open question for `--json`; what it doesn't have isn't there."""
    more = {"answer": waiting.answer, "until": waiting.until, "refused": waiting.refused}
    return {
        "suspension": waiting.suspension,
        "payload": as_json(waiting.payload),
        **{name: value for name, value in more.items() if value is not None},
    }
