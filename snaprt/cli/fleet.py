"""`snaprt worker`: the command that takes up what is due, and how it tells of that.

A signal asks it to stop: runs in hand are saved, and the next worker takes them up at once.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from snaprt.cli import failures, output
from snaprt.cli.foreign import one_line
from snaprt.cli.options import Debug, Json, Store, leave, settings

if TYPE_CHECKING:
    from snaprt.runtime import Look, Outcome, Runtime


def worker(
    context: typer.Context,
    concurrency: Annotated[
        int, typer.Option("--concurrency", metavar="N", help="So many runs are in hand at once.")
    ] = 4,
    agents: Annotated[
        list[str] | None,
        typer.Option(
            "--agents",
            metavar="MODULE",
            help="Only runs whose agents stand in this module; may be said again.",
            show_default=False,
        ),
    ] = None,
    poll: Annotated[
        float,
        typer.Option("--poll", metavar="SECONDS", help="How often to look when there is nothing to do."),
    ] = 1.0,
    store: Store = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Resume runs whose answer came, whose time is due, or whose process died, until a signal comes.

    Start as many as wanted, on as many machines as wanted: they share the runs of the store, and what one \
left when it died another takes up. Run it where the agents' modules can be imported. What can't be taken up \
is tried again, with growing pauses.

    [dim]snaprt worker --store s3://acme/agents
    snaprt worker --concurrency 20 --agents acme.support --agents acme.billing[/dim]
    """
    from snaprt.cli import session
    from snaprt.cli import target as targets

    said = settings(context, store, as_json)
    targets.add_working_directory()
    view = Told(as_json=said.as_json)

    async def work(runtime: Runtime) -> int:
        with session.Signals(view) as signals:
            working = asyncio.ensure_future(
                runtime.work(concurrency=concurrency, agents=agents, poll=poll, tell=view.tell)
            )
            asked = asyncio.ensure_future(signals.asked.wait())
            gone = asyncio.ensure_future(view.gone.wait())
            try:
                await asyncio.sleep(0)  # what can't be as it was said shows at its first step
                if not working.done():
                    view.begins(said.url, concurrency)
                await asyncio.wait({working, asked, gone}, return_when=asyncio.FIRST_COMPLETED)
                if not working.done():
                    view.stopping(session.GRACE)
                    runtime.drain(session.GRACE)
                await working
            finally:
                asked.cancel()
                gone.cancel()
        if view.lost is not None:
            raise view.lost
        view.ends()
        return failures.COMPLETED

    leave(session.with_runtime(said, work, creates=True))


class Told:
    """What a worker tells: a line for each run that it takes up, leaves, or can't take up."""

    def __init__(self, *, as_json: bool) -> None:
        self.gone = asyncio.Event()  # nobody listens any more
        self.lost: Exception | None = None  # why
        self._as_json = as_json
        self._out = output.console()
        self._completed = 0

    def close(self) -> None:
        """Nothing is drawn over."""

    def begins(self, where: str, concurrency: int) -> None:
        some = "one run" if concurrency == 1 else f"up to {concurrency} runs"
        self._say(
            {"event": "working", "where": where, "concurrency": concurrency},
            f"working at {where}, {some} at a time; Ctrl-C saves what is in hand and stops",
        )

    def stopping(self, grace: float) -> None:
        self._say(
            {"event": "stopping", "grace": grace},
            f"stopping: waits up to {grace:.0f} s for tools to end (Ctrl-C again leaves at once; nothing is "
            "lost)",
        )

    def ends(self) -> None:
        self._say({"event": "stopped"}, "stopped; the next worker goes on")

    def tell(self, look: Look) -> None:
        from snaprt.cli import views

        run = look.run
        if look.kind == "took":
            self._say({"event": "took", "run": run, "why": look.why}, f"took {run} ({look.why})")
        elif look.outcome is not None:
            from snaprt.cli.screen import outcome_object

            self._say(outcome_object(look.outcome), _line(look.outcome))
        else:
            from snaprt.cli.screen import error_object

            error = look.error or RuntimeError()
            facts: dict[str, Any] = {"event": "refused", "run": run, "error": error_object(error)}
            text = f"couldn't go on with {run}: {failures.paragraph(error)}"
            if look.again is not None:
                facts["again"] = look.again
                text += f" Tries again at {views.moment(look.again)}."
            self._say(facts, text)

    def _say(self, facts: dict[str, Any], text: str) -> None:
        try:
            if self._as_json:
                output.print_json(facts)
            else:
                below = text.replace("\n", "\n" + " " * 10)  # no line but the first looks like one of ours
                self._out.print(f"{time.strftime('%H:%M:%S')}  {below}", soft_wrap=True)
                self._out.file.flush()
        except (BrokenPipeError, output.OutputLost) as error:
            self.lost = error
            self.gone.set()


def _line(outcome: Outcome) -> str:
    from snaprt.cli import views
    from snaprt.runtime import Cancelled, Failed, Suspended

    match outcome:
        case Suspended(run=run, waiting=waiting, until=until, listening=listening, children=children):
            waits = views.awaited(waiting, listening, children, until)
            return f"suspended {run}" + (f", waits for {', '.join(waits)}" if waits else "")
        case Failed():
            return f"failed {failures.agent_paragraph(outcome)}"
        case Cancelled(run=run, reason=reason):
            return f"cancelled {run}" + (f": {one_line(reason)}" if reason else "")
        case _:
            return f"completed {outcome.run}"
