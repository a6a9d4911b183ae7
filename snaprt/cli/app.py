"""The commands, their options and their help; and `run_command_line`, which turns every end into a code.

`--store`, `--json` and `--debug` are taken before the command and after it. A command's function only
collects what was said; the work is done by the files beside this one, which are imported when
needed, so that `snaprt --help` answers at once.
"""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import nullcontext, suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

import snaprt
from snaprt.cli import failures, fleet, keeping, output, people, watch
from snaprt.cli.foreign import Text, visible
from snaprt.cli.options import Debug, Early, Json, RunId, Store, Suspension, TakesNumbers, leave
from snaprt.cli.options import settings as settings_of
from snaprt.errors import SnaprtError, UsageError

if TYPE_CHECKING:
    from snaprt.runtime import Run, Runtime

_EPILOG = """\
[bold]The store[/bold] is --store, else SNAPRT_STORE, else ./.snaprt: a folder or any fsspec URL, as \
s3://bucket/agents.

[bold]The key[/bold] that signs records is SNAPRT_KEY, the same on every machine that shares a store; \
without it, a key file is made at first use.

[bold]Exit codes:[/bold] 0 completed or suspended, 1 the run failed, 2 wrong usage, 3 refused (busy, \
changed, damaged, not serialisable). Ctrl-C and SIGTERM save the run and exit with 0; a second one \
leaves at once.

[bold]To begin:[/bold] snaprt demo
"""

app = typer.Typer(
    name="snaprt",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_EPILOG,
    pretty_exceptions_enable=False,
)


class RulesChoice(StrEnum):
    """Which rules a resumed run goes on under, where today's differ."""

    recorded = "recorded"
    current = "current"


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"snaprt {snaprt.__version__}")
        raise typer.Exit


@app.callback()
def before(
    context: typer.Context,
    store: Store = None,
    as_json: Json = False,
    debug: Debug = False,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave."),
    ] = False,
) -> None:
    """Run an agent, suspend it with its whole state, go on anywhere.

    [dim]snaprt run agents:support order=A-17
    snaprt resume support-1f0c --answer '{"approved": true}'[/dim]
    """
    context.obj = (store, as_json)


@app.command()
def run(
    context: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET", help="module:function or path/to/file.py:function", show_default=False
        ),
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE", help="Arguments: JSON where it parses, else text.", show_default=False
        ),
    ] = None,
    document: Annotated[
        str | None,
        typer.Option(
            "--input",
            metavar="JSON",
            help="Arguments as an object (by name) or array (by position); - reads standard input.",
            show_default=False,
        ),
    ] = None,
    store: Store = None,
    run_id: Annotated[
        str | None,
        typer.Option(
            "--run-id", metavar="ID", help="The new run's id; made up if not given.", show_default=False
        ),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Start an agent and follow it until it ends, or waits for an answer and leaves the process.

    TARGET is an async def: of a module, found as python -m would, or of a file, whose code then travels \
with the run, so that it can be resumed where the file doesn't exist.

    --json tells of every step and change of plan; its last line has run, status (completed, suspended, \
failed, cancelled or refused), result or error, and in suspended runs waiting: [{suspension, payload, and \
where it has them answer (a JSON Schema), until, refused}], listening and children.

    [dim]snaprt run agents:support order=A-17 cents=4200
    snaprt run examples/release_notes.py:release_notes repo=. --store s3://acme/agents[/dim]
    """
    from snaprt.cli import session, values
    from snaprt.cli import target as targets

    settings = settings_of(context, store, as_json)
    args, kwargs = values.agent_arguments(arguments or [], document)
    agent = targets.load_agent(target)
    fitted, named = values.fit_arguments(agent, target, args, kwargs, session.taken_keywords())

    async def work(runtime: Runtime) -> int:
        async def take() -> Run:
            return await runtime.start(agent, *fitted, run_id=run_id, **named)

        return await session.follow(runtime, take, settings.screen(), settings.url, resumed=False)

    leave(session.with_runtime(settings, work, creates=True, run=run_id))


@app.command()
def resume(
    context: typer.Context,
    run_id: RunId,
    answer: Annotated[
        str | None,
        typer.Option(
            "--answer",
            metavar="JSON",
            help="Answer its question first; - reads standard input.",
            show_default=False,
        ),
    ] = None,
    suspension: Suspension = None,
    early: Early = False,
    rules: Annotated[
        RulesChoice | None,
        typer.Option("--rules", help="Go on under these rules, where today's differ.", show_default=False),
    ] = None,
    in_doubt: Annotated[
        str | None,
        typer.Option(
            "--in-doubt",
            metavar="VERDICT",
            help="On a call that may have happened: 'done VALUE', 'retry' or 'fail REASON'.",
            show_default=False,
        ),
    ] = None,
    steal: Annotated[
        bool, typer.Option("--steal", help="Take the run from an owner whose lease still holds.")
    ] = False,
    retry: Annotated[
        bool, typer.Option("--retry", help="Go on with a failed run; what failed is called again.")
    ] = False,
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent",
            metavar="TARGET",
            help="Where today's rules stand, for a run of a file.",
            show_default=False,
        ),
    ] = None,
    store: Store = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Go on with a run exactly where it stood, in this process.

    [dim]snaprt resume support-1f0c --answer '{"approved": true, "cents": 4200}'[/dim]
    """
    from snaprt.cli import session, values
    from snaprt.cli import target as targets

    settings = settings_of(context, store, as_json)
    if suspension is not None and answer is None and in_doubt is None:
        raise UsageError("--suspension says which question --answer is for: give --answer as well.")
    if early and answer is None:
        raise UsageError("--early is for --answer: give --answer and --suspension NAME as well.")
    values.check_early(early, suspension)
    if in_doubt is not None and answer is not None:
        raise UsageError("--in-doubt is an answer too: give --answer or --in-doubt.")
    value = None if answer is None else values.parse_json(answer, "--answer")
    verdict = None if in_doubt is None else values.parse_verdict(in_doubt)
    targets.add_working_directory()
    today = None if agent is None else targets.load_agent(agent)

    async def work(runtime: Runtime) -> int:
        async def take() -> Run:
            if answer is not None:
                await runtime.answer(run_id, value, suspension=suspension, by=session.who(), early=early)
            if verdict is not None:
                about = await people.in_doubt(runtime, run_id, suspension)
                if about is None:
                    # Right after a crash nobody has looked yet which calls are in doubt; a resume does.
                    await (await runtime.resume(run_id, agent=today, steal=steal)).outcome()
                    about = await people.in_doubt(runtime, run_id, suspension, looked=True)
                await runtime.answer(run_id, verdict, suspension=about, by=session.who())
            try:
                return await runtime.resume(
                    run_id,
                    agent=today,
                    rules=None if rules is None else rules.value,
                    steal=steal,
                    retry=retry,
                )
            except Exception as refusal:
                if answer is not None or verdict is not None:
                    refusal.add_note("Your answer is kept: leave it out when you resume.")
                raise

        return await session.follow(runtime, take, settings.screen(), settings.url, resumed=True)

    leave(session.with_runtime(settings, work, run=run_id))


app.command("answer", cls=TakesNumbers)(people.answer)
app.command("send", cls=TakesNumbers)(people.send)
app.command("cancel")(people.cancel)
app.command("watch")(watch.watch)
app.command("ls")(keeping.list_runs)


@app.command()
def show(
    context: typer.Context, run_id: RunId, store: Store = None, as_json: Json = False, debug: Debug = False
) -> None:
    """Show a run: plan, steps, what it waits for and what to type next, who answered before, its parent and
    children, its rules, where its bytes lie. Nothing is unpickled.

    [dim]snaprt show support-1f0c[/dim]
    """
    from snaprt.cli import page, session, views

    settings = settings_of(context, store, as_json)

    async def work(runtime: Runtime) -> int:
        info = await runtime.show(run_id)
        if settings.as_json:
            output.print_json(page.info_object(info))
        else:
            out = output.console()
            statuses = await session.statuses(runtime, [*filter(None, [info.parent]), *info.children])
            marks = views.Marks(out.encoding)
            output.put(out, *page.run_page(info, marks, settings.said_store, views.now(), statuses))
        return failures.COMPLETED

    leave(session.with_runtime(settings, work, run=run_id))


@app.command()
def verify(
    context: typer.Context, run_id: RunId, store: Store = None, as_json: Json = False, debug: Debug = False
) -> None:
    """Prove every record and blob of a run: signature, digest, order. Exit code 3 if one doesn't hold.

    [dim]snaprt verify support-1f0c[/dim]
    """
    from snaprt.cli import session, views

    settings = settings_of(context, store, as_json)

    async def work(runtime: Runtime) -> int:
        report = await runtime.verify(run_id)
        if settings.as_json:
            output.print_json(views.report_object(report))
        else:
            out = output.console()
            output.put(out, views.report_text(report, views.Marks(out.encoding)))
        return failures.COMPLETED if report.whole else failures.REFUSED

    leave(session.with_runtime(settings, work, run=run_id))


app.command("worker")(fleet.worker)
app.command("rm")(keeping.remove)
app.command("prune")(keeping.prune)
app.command("reindex")(keeping.reindex)


@app.command()
def demo(
    context: typer.Context,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Approve without asking.")] = False,
    store: Store = None,
    debug: Debug = False,
) -> None:
    """See it work: an agent is killed, suspended, and goes on in three processes. No network, ten seconds.

    [dim]snaprt demo --yes[/dim]
    """
    from snaprt.cli.demo import tour

    settings = settings_of(context, store, False)
    leave(tour(settings, approve=yes))


# --- from every end to a code -----------------------------------------------------------------------


def run_command_line(words: list[str] | None = None) -> int:
    """Run one command line and return its exit code. Errors become one paragraph on standard error."""
    words = sys.argv[1:] if words is None else words
    said = words[: words.index("--")] if "--" in words else words
    debug, as_json = "--debug" in said, "--json" in said
    if sys.stdout is None:  # closed by whoever started us
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # for the rest of the process
    for stream in (sys.stdout, sys.stderr):
        # An agent's text may hold what this terminal's encoding can't say; better "?" than a crash.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        asks = not words or not {"-h", "--help", "--version"}.isdisjoint(said)
        with output.only_json() if as_json else output.for_help() if asks else nullcontext():
            code = _invoke(words, debug=debug, as_json=as_json)
        with output.writing():
            sys.stdout.flush()
        return code
    except output.OutputLost as lost:
        _give_up_output()
        _say(str(lost))
        return failures.REFUSED
    except (BrokenPipeError, SystemExit):
        # typer exits for its own part on a broken pipe, and in this mode for nothing else.
        # Whoever read us has enough (`| head`).
        _give_up_output()
        return failures.BROKEN_PIPE


def _give_up_output() -> None:
    """Python would complain once more when it closes standard output."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _invoke(words: list[str], *, debug: bool, as_json: bool) -> int:
    try:
        # What typer returns in this mode is the code given to Exit, or the command's own value: None.
        command = typer.main.get_command(app)
        code: Any = command.main(args=words, prog_name="snaprt", standalone_mode=False)
        return code if isinstance(code, int) else failures.COMPLETED
    except (KeyboardInterrupt, typer.Abort):
        return failures.INTERRUPTED
    except (BrokenPipeError, output.OutputLost):
        raise
    except SystemExit as error:
        if error.__context__ is not None and isinstance(error.__context__, BrokenPipeError | OSError):
            raise  # typer's own way out of a broken pipe
        return _tell(
            UsageError(
                f"A module that the run needs left with sys.exit({error.code!r}) while it was "
                "imported. It has to be importable without doing that; the run is unharmed."
            ),
            debug=debug,
            as_json=as_json,
        )
    except Exception as error:
        return _tell(error, debug=debug, as_json=as_json)


def _tell(error: Exception, *, debug: bool, as_json: bool) -> int:
    if hasattr(error, "format_message"):  # typer's own: an option or argument that can't be
        return _tell_misuse(error)
    from snaprt.cli import screen, session

    if isinstance(error, session.Interrupted):
        _say(str(error))
        return failures.INTERRUPTED
    if isinstance(error, session.AgentFailed):
        failed = error.failed
        if debug:
            sys.stderr.write(visible(failed.traceback))
        _say(failures.agent_paragraph(failed))
        return failures.agent_exit_code(failed.error)
    told = isinstance(error, session.Told)
    cause: BaseException = error.error if isinstance(error, session.Told) else error
    if debug:
        sys.stderr.write(visible("".join(traceback.format_exception(cause))))
    _say(failures.paragraph(cause))  # first: the other may find that nothing can be written there
    if as_json and not told:
        screen.JsonLines().refused(None, cause)
    return failures.exit_code(cause)


def _tell_misuse(error: Any) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "snaprt"
    text = str(error.format_message()).rstrip()
    if text:
        _say(f"{text}{'' if text.endswith(('.', '?')) else '.'} See `{path} --help`.")
    elif context is not None:  # no arguments at all: the help is the answer
        sys.stderr.write(context.get_help() + "\n")
    return failures.USAGE


def _say(text: str) -> None:
    with suppress(OSError):  # there's no third place to say it
        output.console(stderr=True).print(Text.assemble(("snaprt: ", "bold red"), text), soft_wrap=True)


__all__ = ["SnaprtError", "app", "run_command_line"]
