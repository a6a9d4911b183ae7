"""Where a followed run is told about: JSON lines, plain lines, or a live display on a terminal.

All three are told the same four things by `session`: it started, this is how it stands, it ended like
this, it was refused like that. Everything goes to standard output, as one story that can be piped;
only errors go to standard error.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table

from snaprt.cli import page, views
from snaprt.cli.changes import Summary, as_json, changes
from snaprt.cli.failures import words
from snaprt.cli.foreign import Text, one_line
from snaprt.cli.output import console, print_json, put
from snaprt.runtime import Cancelled, Completed, Failed, Suspended

if TYPE_CHECKING:
    from snaprt.runtime import Outcome

# More running tools than this don't help a person to see what goes on.
_SHOWN_TOOLS = 8


class Screen(Protocol):
    """What `session` tells. After `close` nothing of it is drawn over any more."""

    interval: float  # seconds between two looks at the run

    def started(self, run: str, where: str, *, resumed: bool) -> None: ...
    def progress(self, run: str, now: Summary) -> None: ...
    def stopping(self, run: str, grace: float) -> None: ...
    def ended(self, outcome: Outcome) -> None: ...
    def interrupted(self, run: str) -> None: ...
    def refused(self, run: str | None, error: BaseException) -> None: ...
    def close(self) -> None: ...


def screen(*, as_lines_of_json: bool, store: str | None) -> Screen:
    """The one that fits. `store` is what commands shown to the person need to say, if anything."""
    if as_lines_of_json:
        return JsonLines()
    out = console()
    return Terminal(out, store) if out.is_terminal and not out.is_dumb_terminal else Lines(out, store)


class JsonLines:
    """One object a line: `started`, `step`, `plan`, and last `outcome`."""

    interval = 0.05

    def __init__(self) -> None:
        self._seen: Summary = {}

    def started(self, run: str, where: str, *, resumed: bool) -> None:
        print_json({"event": "resumed" if resumed else "started", "run": run, "where": where})

    def progress(self, run: str, now: Summary) -> None:
        for event in changes(run, self._seen, now):
            print_json(event)
        self._seen = now

    def stopping(self, run: str, grace: float) -> None:
        print_json({"event": "stopping", "run": run, "grace": grace})

    def ended(self, outcome: Outcome) -> None:
        print_json(outcome_object(outcome))

    def interrupted(self, run: str) -> None:
        print_json(
            {"event": "outcome", "run": run, "status": "suspended", "waiting": [], "interrupted": True}
        )

    def refused(self, run: str | None, error: BaseException) -> None:
        print_json({"event": "outcome", "run": run, "status": "refused", "error": error_object(error)})

    def close(self) -> None:
        pass


class Lines:
    """For a person whose output goes to a file or a pipe."""

    interval = 0.1

    def __init__(self, out: Console, store: str | None) -> None:
        self._out = out
        self._store = store
        self._marks = views.Marks(out.encoding)
        self._seen: Summary = {}
        self._began = time.monotonic()

    def started(self, run: str, where: str, *, resumed: bool) -> None:
        self._began = time.monotonic()
        self._print(Text.assemble("resumed " if resumed else "started ", (run, "bold"), f" at {where}"))

    def progress(self, run: str, now: Summary) -> None:
        for event in changes(run, self._seen, now):
            self._print(self._line(event))
        self._seen = now

    def stopping(self, run: str, grace: float) -> None:
        tools = sum(step["status"] == "pending" for step in self._seen.get("steps") or ())
        wait = (
            f"up to {grace:.0f} s for {tools} tool{'s' * (tools != 1)} to end"
            if tools
            else "to save its state"
        )
        self._print(
            Text(f"stopping: waits {wait} (Ctrl-C again leaves at once; nothing is lost)", style="yellow")
        )

    def ended(self, outcome: Outcome) -> None:
        took = f" after {views.elapsed(time.monotonic() - self._began)}"
        for part in _ending(outcome, self._marks, self._store, took):
            self._print(part)

    def interrupted(self, run: str) -> None:
        self._print(
            Text.assemble(
                ("interrupted", "yellow"),
                f": {run} is kept as it stood. Go on with\n  ",
                (views.resume_command(run, self._store), "bold"),
            )
        )

    def refused(self, run: str | None, error: BaseException) -> None:
        pass  # the paragraph on standard error says it all

    def close(self) -> None:
        pass

    def _print(self, what: RenderableType) -> None:
        put(self._out, what)

    def _line(self, event: dict[str, Any]) -> Text:
        stamp = Text(f"{views.elapsed(time.monotonic() - self._began):>6}  ", style="dim")
        if event["event"] == "plan":
            return Text.assemble(stamp, "plan  ", views.plan_line(event["plan"], self._marks))
        under_way = event["status"] == "pending"
        mark = self._marks.of("running" if under_way else event["status"])
        text = Text.assemble(stamp, mark, f" step {event['step']}  {one_line(event['tool'])}")
        said = event.get("error", event.get("output"))
        if not under_way:
            text.append(f"  {event['status']}", style="dim")
        if said is not None:
            words = one_line(views.value_text(said).plain)
            text.append(f": {words if len(words) <= 100 else words[:99] + '…'}")
        return text


class Terminal(Lines):
    """A live display: the plan with marks, the tools that run, the time; at the end it stays as it was."""

    def __init__(self, out: Console, store: str | None) -> None:
        super().__init__(out, store)
        self._live: Live | None = None
        self._spinner = Spinner("line", style="cyan")
        self._since: dict[int, float] = {}  # when a step was first seen to run
        self._stopping = False

    def progress(self, run: str, now: Summary) -> None:
        self._seen = now
        for step in now.get("steps") or ():
            self._since.setdefault(step["id"], time.monotonic())
        if self._live is None:
            # transient: a display cut off at the screen's height would stay cut off otherwise
            self._live = Live(
                console=self._out, get_renderable=self._picture, refresh_per_second=10, transient=True
            )
            self._live.start()

    def stopping(self, run: str, grace: float) -> None:
        self._stopping = True

    def close(self) -> None:
        """End the display, and leave what it showed last as plain text."""
        if self._live is not None:
            self._live.stop()
            self._live = None
            if self._seen.get("plan"):
                self._print(views.indented(views.plan_line(self._seen["plan"], self._marks)))

    def _picture(self) -> RenderableType:
        plan, steps = self._seen.get("plan") or (), self._seen.get("steps") or ()
        clock = views.elapsed(time.monotonic() - self._began)
        parts: list[RenderableType] = [views.indented(views.plan_entry(entry, self._marks)) for entry in plan]
        running = [step for step in steps if step["status"] == "pending"]
        table = Table.grid(padding=(0, 1))
        for step in running[:_SHOWN_TOOLS]:
            took = views.age(time.monotonic() - self._since[step["id"]])
            table.add_row(self._spinner, Text(one_line(str(step["tool"]))), Text(took, style="dim"))
        if running:
            parts.append(views.indented(table, 4))
        if len(running) > _SHOWN_TOOLS:
            more = Text(f"and {len(running) - _SHOWN_TOOLS} more tools", style="dim")
            parts.append(views.indented(more, 4))
        ended = sum(step["status"] != "pending" for step in steps)
        foot = Text(f"  {clock}", style="dim")
        if self._seen.get("current_step"):
            foot.append(f"  {one_line(str(self._seen['current_step']))}")
        if steps:
            foot.append(f"  {ended} of {len(steps)} steps", style="dim")
        if self._stopping:
            foot.append("  stopping when the tools have ended, or on Ctrl-C again", style="yellow")
        return Group(*parts, foot)


def outcome_object(outcome: Outcome) -> dict[str, Any]:
    """The last line of `--json`: run, status, and result or error, and what is waited for."""
    base = {"event": "outcome", "run": outcome.run}
    match outcome:
        case Completed(value=value):
            return base | {"status": "completed", "result": as_json(value)}
        case Suspended(waiting=waiting, until=until, listening=listening, children=children):
            asked = [page.waiting_object(item) for item in waiting]
            more = {"until": until, "listening": list(listening), "children": list(children)}
            return (
                base
                | {"status": "suspended", "waiting": asked}
                | {name: value for name, value in more.items() if value not in (None, [])}
            )
        case Failed(error=error, traceback=text):
            return base | {"status": "failed", "error": error_object(error) | {"traceback": text}}
        case Cancelled(reason=reason):
            return base | {"status": "cancelled", "error": {"type": "CancelledError", "message": reason}}


def error_object(error: BaseException) -> dict[str, str]:
    return {"type": type(error).__name__, "message": words(error)}


def _ending(outcome: Outcome, marks: views.Marks, store: str | None, took: str) -> list[RenderableType]:
    match outcome:
        case Completed(run=run, value=value):
            return [
                _headline(marks, "completed", run, took),
                *([] if value is None else [views.value_text(value)]),
            ]
        case Suspended(run=run, waiting=waiting, until=until, listening=listening, children=children) if (
            waiting or listening or children
        ):
            asks = "asks" if len(waiting) == 1 else f"asks {len(waiting)} questions"
            others = page.others(
                run, store, waiting=waiting, until=until, listening=listening, children=children
            )
            also = [Text("It also waits for")] if waiting and others else []
            return [
                _headline(marks, "suspended", run, f"{took}; it {asks if waiting else 'waits for'}:"),
                *(part for item in waiting for part in page.question(run, item, store, waiting, views.now())),
                *also,
                *others,
            ]
        case Suspended(run=run, until=until):
            sleeps = "" if until is None else f" until {views.moment(until)}"
            return [
                _headline(marks, "suspended", run, f"{took}; it sleeps{sleeps}. Then go on with"),
                Text("  " + views.resume_command(run, store), style="bold"),
            ]
        case Failed(run=run):
            return [_headline(marks, "failed", run, took)]
        case Cancelled(run=run, reason=reason):
            return [_headline(marks, "cancelled", run, took + (f": {one_line(reason)}" if reason else ""))]


def _headline(marks: views.Marks, status: str, run: str, rest: str) -> Text:
    mark = marks.of(status)
    return Text.assemble(mark, " ", (run, "bold"), " ", (status, mark.style), rest)
