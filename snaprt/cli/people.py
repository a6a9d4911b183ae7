"""The commands that put something into a run from outside: `answer`, `send` and `cancel`.

None needs the agent's code for that. What they put lies in the run's inbox, where whoever has the run in hand
finds it, or takes the run up next; each says who that is, and what to type if it is nobody.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Annotated

import typer

from snaprt.cli import failures, output
from snaprt.cli.options import Debug, Early, Json, RunId, Store, Suspension, leave, settings
from snaprt.errors import RunBusy, SnaprtError, UsageError

if TYPE_CHECKING:
    from snaprt.cli.session import Settings
    from snaprt.runtime import Run, RunInfo, Runtime


class CancelLies(SnaprtError):
    """A request to cancel was put, and the run can't be taken up here to carry it out."""


def answer(
    context: typer.Context,
    run_id: RunId,
    text: Annotated[
        str, typer.Argument(metavar="JSON", help="The answer; - reads standard input.", show_default=False)
    ],
    suspension: Suspension = None,
    early: Early = False,
    store: Store = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Answer a question and leave; whoever resumes the run takes it in. Needs no agent code.

    An answer of the wrong type is refused here, and the question stays open. The first answer counts.

    [dim]snaprt answer support-1f0c '{"approved": true}'
    snaprt answer support-1f0c '"after lunch"' --suspension ask-2
    snaprt answer support-1f0c '"ship it"' --suspension review --early[/dim]
    """
    from snaprt.cli import session, values, views

    said = settings(context, store, as_json)
    values.check_early(early, suspension)
    value = values.parse_json(text, "The answer")

    async def work(runtime: Runtime) -> int:
        answered = await runtime.answer(run_id, value, suspension=suspension, by=session.who(), early=early)
        if said.as_json:
            output.print_json({"event": "answered", "run": run_id, "suspension": answered})
        else:
            command = views.resume_command(run_id, said.said_store)
            asked = not early or suspension in {
                each.suspension for each in (await runtime.show(run_id)).waiting
            }
            what = "is answered" if asked else "has its answer, for when it is asked"
            output.say(f"{answered} of {run_id} {what}. Go on with\n  {command}")
        return failures.COMPLETED

    leave(session.with_runtime(said, work, run=run_id))


async def in_doubt(runtime: Runtime, run: str, suspension: str | None, *, looked: bool = False) -> str | None:
    """The question about a call in doubt that a verdict answers; None where only a resume can tell whether
    there is one, and that hasn't `looked` yet. UsageError where nothing is in doubt."""
    from snaprt.cli import views

    info = await runtime.show(run)
    waiting = [each.suspension for each in info.waiting]
    doubts = [name for name in waiting if name.startswith(_DOUBT)]
    if suspension in doubts:
        return suspension
    if suspension is not None and not suspension.startswith(_DOUBT):
        raise UsageError(
            f"{suspension} is no question about a call in doubt, and --in-doubt decides only those. Give "
            "your answer to it with --answer."
        )
    if suspension is None and len(doubts) == 1:
        return doubts[0]
    if doubts:
        meant = f"Its calls in doubt are {', '.join(doubts)}: say which with --suspension."
        raise UsageError(f"Run {run} waits for no {suspension}. {meant}" if suspension else meant)
    if not looked and any(step["status"] == "pending" for step in info.steps):
        return None
    awaited = views.waits_for(info)
    raise UsageError(
        f"No call of run {run} is in doubt, so there's nothing for --in-doubt to decide. "
        + (
            f"It waits for {awaited}; a question is answered with --answer."
            if awaited
            else f"It is {info.status}."
        )
    )


_DOUBT = "doubt-"
"""How the ids of such questions begin; no name that an agent can give does."""


def send(
    context: typer.Context,
    run_id: RunId,
    text: Annotated[
        str, typer.Argument(metavar="JSON", help="The message; - reads standard input.", show_default=False)
    ],
    inbox: Annotated[
        str,
        typer.Option(
            "--inbox", metavar="NAME", help="Which one: NAME as in snaprt.inbox(NAME).", show_default=False
        ),
    ],
    store: Store = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Put a message into an inbox of a run and leave. Needs no agent code.

    Messages are read in order, each once, also those that come before anybody reads. A run at work finds \
them in seconds; one that sleeps does when it is resumed, by a worker or by hand.

    [dim]snaprt send support-1f0c '"also look at order A-18"' --inbox chat
    echo '{"stop": true}' | snaprt send support-1f0c - --inbox chat[/dim]
    """
    from snaprt.cli import session, values, views

    said = settings(context, store, as_json)
    value = values.parse_json(text, "The message")

    async def work(runtime: Runtime) -> int:
        number = await runtime.send(run_id, value, inbox=inbox, by=session.who())
        if said.as_json:
            output.print_json({"event": "sent", "run": run_id, "inbox": inbox, "number": number})
            return failures.COMPLETED
        info = await runtime.show(run_id)
        text = f"Message {number} lies in inbox {inbox!r} of {run_id}. {_who_reads(info, inbox)}"
        if info.status == "suspended":
            text += f" Go on with\n  {views.resume_command(run_id, said.said_store)}"
        output.say(text)
        return failures.COMPLETED

    leave(session.with_runtime(said, work, run=run_id))


def cancel(
    context: typer.Context,
    run_id: RunId,
    reason: Annotated[
        str | None,
        typer.Option(
            "--reason", metavar="TEXT", help="Why: the agent and the record get it.", show_default=False
        ),
    ] = None,
    request: Annotated[
        bool,
        typer.Option("--request", help="Only ask; a worker or a later resume carries it out."),
    ] = False,
    store: Store = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Ask a run to end: it is cancelled as asyncio cancels, and cleans up, for which it may call tools.

    A run that somebody has in hand is told within seconds. One that nobody has is resumed here, so that it \
cleans up; with --request that is left to a worker. Its children are cancelled with it.

    [dim]snaprt cancel support-1f0c --reason "the customer called it off"
    snaprt cancel support-1f0c --request[/dim]
    """
    from snaprt.cli import session
    from snaprt.cli import target as targets

    said = settings(context, store, as_json)
    targets.add_working_directory()

    async def work(runtime: Runtime) -> int:
        nobody = await runtime.cancel(run_id, reason, by=session.who())
        if request or not nobody:
            _tell_asked(said, run_id, nobody=nobody)
            return failures.COMPLETED

        async def take() -> Run:
            try:
                return await runtime.resume(run_id)
            except RunBusy:
                raise
            except (SnaprtError, ImportError) as error:
                raise CancelLies(
                    f"The request to cancel lies in {run_id}'s inbox, but the run can't be taken up here to "
                    f"clean up: {failures.paragraph(error)} There's no need to ask again: a worker or "
                    f"`snaprt resume {run_id}` carries it out where the run can be taken up."
                ) from error

        try:
            await session.follow(runtime, take, said.screen(), said.url, resumed=True)
        except RunBusy:  # somebody took it up at this very moment, and finds the request there
            _tell_asked(said, run_id, nobody=False)
        return failures.COMPLETED

    leave(session.with_runtime(said, work, run=run_id))


def _tell_asked(said: Settings, run: str, *, nobody: bool) -> None:
    from snaprt.cli import page, views

    if said.as_json:
        output.print_json({"event": "cancelling", "run": run, "in_hand": not nobody})
    elif nobody:
        output.say(
            f"{run} is asked to end. Nobody has it in hand: a worker carries that out, or\n"
            f"  {views.resume_command(run, said.said_store)}"
        )
    else:
        output.say(
            f"{run} is asked to end. Whoever has it in hand is told within seconds; see it happen with\n"
            f"  {page.watch_command(run, said.said_store)}"
        )


def _who_reads(info: RunInfo, inbox: str) -> str:
    """When the message will be read, and whether another inbox may have been meant."""
    if inbox in info.listening:
        return "The run waits for it."
    if info.status == "running":
        return "The run takes it in when it reads that inbox."
    elsewhere = f"listens to {', '.join(info.listening)}" if info.listening else "listens to no inbox"
    near = difflib.get_close_matches(inbox, info.listening, n=1)
    meant = f" Did you mean {near[0]}?" if near else ""
    return f"It is kept until the run reads that inbox; now it {elsewhere}.{meant}"
