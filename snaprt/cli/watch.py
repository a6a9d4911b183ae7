"""`snaprt watch`: a line for each thing that happens to a run, live, from any process that has the key.

What there is to tell is `Runtime.events`'; this file lays it out: the time, what happened, and to what.
Ctrl-C ends the watching, never the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from snaprt.cli import failures, output
from snaprt.cli.foreign import Text, one_line
from snaprt.cli.options import Debug, Json, RunId, Store, leave, settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from snaprt.runtime import RunEvent, Runtime

_VALUE = 300  # characters of a value in a line; `--json` has all that is kept

_STYLES = {
    "emitted": "cyan",
    "suspended": "yellow",
    "refused": "red",
    "failed": "red",
    "cancelling": "yellow",
    "called": "dim",
    "returned": "dim",
}


def watch(
    context: typer.Context,
    run_id: RunId,
    after: Annotated[
        int, typer.Option("--after", metavar="N", min=0, help="Only what came behind record N.")
    ] = 0,
    no_follow: Annotated[
        bool, typer.Option("--no-follow", help="Stop at what there is, instead of waiting for more.")
    ] = False,
    store: Store = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Watch a run: what happened and what happens, a line each, until it ends. Ctrl-C ends only the watching.

    Shows steps, questions, answers and what the agent emits (snaprt.emit), whichever process has the run in \
hand. Nothing is unpickled, and no agent code is needed. With --json each line has the number of its record: \
give the last one to --after, and nothing is told twice.

    [dim]snaprt watch support-1f0c
    snaprt watch support-1f0c --json --after 12
    snaprt watch support-1f0c --no-follow[/dim]
    """
    from snaprt.cli import session

    said = settings(context, store, as_json)
    out = Printed(as_json=said.as_json)

    async def work(runtime: Runtime) -> int:
        async def tell() -> None:
            async for event in runtime.events(run_id, after=after, follow=not no_follow):
                out.tell(event)

        with session.Signals(out) as signals:
            telling = asyncio.ensure_future(tell())
            asked = asyncio.ensure_future(signals.asked.wait())
            await asyncio.wait({telling, asked}, return_when=asyncio.FIRST_COMPLETED)
            asked.cancel()
            if not telling.done():
                telling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await telling
        return failures.COMPLETED

    leave(session.with_runtime(said, work, run=run_id))


class Printed:
    """Events on standard output: a line each, or an object each."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._out: Console = output.console()
        self._day = datetime.date.today()

    def close(self) -> None:
        """Nothing is drawn over."""

    def tell(self, event: RunEvent) -> None:
        if self._as_json:
            output.print_json(event_object(event))
            return
        day = datetime.datetime.fromtimestamp(event.at).date()
        if day != self._day:
            self._day = day
            output.put(self._out, Text(day.isoformat(), style="dim"))
        output.put(self._out, event_line(event))
        self._out.file.flush()


def event_line(event: RunEvent) -> Text:
    """`22:15:04  returned   step 1  look`"""
    time = datetime.datetime.fromtimestamp(event.at).strftime("%H:%M:%S")
    style = _STYLES.get(event.kind, "bold")
    what = _what(event).replace("\n", " ")
    text = Text.assemble((time, "dim"), "  ", (f"{event.kind:<11}", style), " ", what)
    text.rstrip()
    return text


def _what(event: RunEvent) -> str:
    """To what it happened, in one line. What isn't known says less; none of it can fail."""
    from snaprt.cli import views

    said = event.detail
    by = f" by {said['by']}" if said.get("by") else ""
    match event.kind:
        case "started":
            return str(said.get("agent")) + (
                f", a child of {said['parent']['run']}" if said.get("parent") else ""
            )
        case "resumed":
            return f"by process {said.get('pid', '?')} on {said.get('host', '?')}"
        case "called" | "returned" | "failed":
            return f"step {event.step}  {said.get('tool')}"
        case "emitted":
            return _line(event.value) + (f"  (step {event.step})" if event.step is not None else "")
        case "suspended":
            until = said.get("until")
            words = [*said.get("waiting", ()), *([] if until is None else [views.moment(until)])]
            # Of inboxes and children the record's head doesn't tell.
            return f"waits for {', '.join(words)}" if words else f"see snaprt show {event.run}"
        case "answered":
            return f"{said.get('suspension')}{by}"
        case "child_ended":
            return str(said.get("by"))
        case "refused":
            return f"an answer to {said.get('suspension')}{by}: {_line(said.get('refused'))}"
        case "received":
            return f"message {said.get('number')} in inbox {said.get('inbox')}{by}"
        case "cancelling":
            return f"asked{by}" + (f": {_line(said['reason'])}" if said.get("reason") else "")
        case "finished":
            return _end(said)
    return _line(dict(said)) if said else ""  # a kind that this version doesn't know


def _end(said: Mapping[str, Any]) -> str:
    more = said.get("error") or said.get("reason")
    if more is None and said.get("result") is not None:
        more = said["result"]
    return str(said.get("status")) + ("" if more is None else f": {_line(more)}")


def _line(value: Any) -> str:
    from snaprt.cli import views

    text = one_line(views.value_text(value).plain)
    return text if len(text) <= _VALUE else text[: _VALUE - 1] + "…"


def event_object(event: RunEvent) -> dict[str, Any]:
    """The same for `--json`; what an event doesn't have isn't there."""
    facts: dict[str, Any] = {
        "event": event.kind,
        "run": event.run,
        "record": event.record,
        "at": event.at,
    }
    if event.step is not None:
        facts["step"] = event.step
    if event.kind == "emitted":
        facts["value"] = event.value
    if event.detail:
        facts["detail"] = dict(event.detail)
    return facts
