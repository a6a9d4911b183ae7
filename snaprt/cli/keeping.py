"""The commands that keep a store in order: `ls`, `rm`, `prune` and `reindex`.

They are about many runs, of which some may be in the hands of others, so what goes wrong with one is said and
the others are seen to; the exit code is then that of what went wrong last.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from snaprt.cli import failures, output
from snaprt.cli.options import Debug, Json, Store, leave, settings
from snaprt.errors import SnaprtError, UsageError

if TYPE_CHECKING:
    from snaprt.runtime import RunInfo, Runtime


class Status(StrEnum):
    """Where a run can stand."""

    running = "running"
    suspended = "suspended"
    completed = "completed"
    failed = "failed"
    cancelled = "cancelled"
    damaged = "damaged"


_ENDED = (Status.completed, Status.failed, Status.cancelled)

Statuses = Annotated[
    list[Status] | None,
    typer.Option("--status", help="Only runs that are so; may be said again.", show_default=False),
]
AgentName = Annotated[
    str | None,
    typer.Option("--agent", metavar="NAME", help="Only runs of this agent.", show_default=False),
]
OlderThan = Annotated[
    str | None,
    typer.Option(
        "--older-than",
        metavar="AGE",
        help="Only runs unchanged for so long: 90s, 15m, 12h, 7d.",
        show_default=False,
    ),
]
Force = Annotated[
    bool,
    typer.Option("--force", help="Also runs that haven't ended, or that somebody has in hand."),
]


def list_runs(
    context: typer.Context,
    status: Statuses = None,
    agent: AgentName = None,
    older_than: OlderThan = None,
    store: Store = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List the runs of a store, the newest first.

    [dim]snaprt ls --store s3://acme/agents
    snaprt ls --status suspended --older-than 7d
    snaprt ls --json --status suspended | jq -r .run[/dim]
    """
    from snaprt.cli import page, session, views

    said = settings(context, store, as_json)
    age = _seconds(older_than)
    out = output.console()
    if said.store is None and session.is_missing(said.url):
        if not said.as_json:
            out.print(f"No runs yet at {said.url}. `snaprt run TARGET` starts one; try `snaprt demo` first.")
        return

    async def work(runtime: Runtime) -> int:
        there = await runtime.list()
        runs = await session.with_sizes(runtime, chosen(there, status, agent, age, views.now()))
        if said.as_json:
            for info in runs:
                output.print_json(page.info_object(info))
        elif runs:
            out.print(views.runs_table(runs, views.Marks(out.encoding), views.now()))
        else:
            others = f"; of {len(there)} runs none is so" if there else ""
            out.print(f"No runs {'' if there else 'yet '}at {said.url}{others}.")
        return failures.COMPLETED

    leave(session.with_runtime(said, work))


def remove(
    context: typer.Context,
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="Ids of runs, as `snaprt ls` shows them.", show_default=False),
    ],
    force: Force = False,
    store: Store = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Remove runs with everything they stored. There is no way back.

    A run that waits, sleeps or is at work is refused without --force. With it an owner that is at work \
notices before its next effect; what a waiting run waits for is lost.

    [dim]snaprt rm support-1f0c
    snaprt rm support-1f0c --force[/dim]
    """
    from snaprt.cli import session

    said = settings(context, store, as_json)
    for run in runs:
        session.checked_run(run)

    async def work(runtime: Runtime) -> int:
        return await _remove(runtime, runs, force=force, as_json=said.as_json)

    leave(session.with_runtime(said, work, run=runs[0] if len(runs) == 1 else None))


def prune(
    context: typer.Context,
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than",
            metavar="AGE",
            help="Runs unchanged for so long: 90s, 15m, 12h, 7d.",
            show_default=False,
        ),
    ],
    status: Statuses = None,
    agent: AgentName = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed, and stop.")] = False,
    force: Force = False,
    store: Store = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Remove old runs that have ended: completed, failed or cancelled ones, or those of --status.

    [dim]snaprt prune --older-than 30d --dry-run
    snaprt prune --older-than 7d --status failed --agent support[/dim]
    """
    from snaprt.cli import session, views

    said = settings(context, store, as_json)
    age = _seconds(older_than)
    wanted = list(status or _ENDED)
    open_ones = [each.value for each in wanted if each not in _ENDED]
    if open_ones and not force and not dry_run:
        raise UsageError(
            f"Runs that are {' or '.join(open_ones)} haven't ended, or nobody knows: what they would do "
            "is lost. Add --force if that is meant; --dry-run shows which they are."
        )

    async def work(runtime: Runtime) -> int:
        found = chosen(await runtime.list(), wanted, agent, age, views.now())
        if not dry_run:
            return await _remove(
                runtime, [info.run for info in found], force=force, as_json=said.as_json, total=True
            )
        for info in found:
            if said.as_json:
                output.print_json({"event": "would remove", "run": info.run, "status": info.status})
            else:
                output.say(
                    f"would remove {info.run}  ({info.status}, {views.age(views.now() - info.updated)} old)"
                )
        if not said.as_json:
            output.say(f"{len(found)} runs would be removed; without --dry-run they are.")
        return failures.COMPLETED

    leave(session.with_runtime(said, work))


def reindex(context: typer.Context, store: Store = None, as_json: Json = False, debug: Debug = False) -> None:
    """Write the hints anew by which workers find runs. Reads every run once; safe at any time.

    Needed after hints were lost: objects below agenda/ deleted, or a store copied without them.

    [dim]snaprt reindex --store s3://acme/agents[/dim]
    """
    from snaprt.cli import session

    said = settings(context, store, as_json)

    async def work(runtime: Runtime) -> int:
        done = await runtime.reindex()
        if said.as_json:
            output.print_json(
                {"event": "reindexed", "runs": done.runs, "put": done.put, "removed": done.removed}
            )
        else:
            output.say(
                f"{done.runs} runs read: {done.put} hints written, {done.removed} of runs that are done "
                "removed."
            )
        return failures.COMPLETED

    leave(session.with_runtime(said, work))


def chosen(
    runs: Sequence[RunInfo],
    status: Sequence[Status] | None,
    agent: str | None,
    older: float | None,
    now: float,
) -> list[RunInfo]:
    """The runs that are meant. Of one that can't be read neither agent nor age is known."""
    return [
        info
        for info in runs
        if (not status or info.status in status)
        and (agent is None or info.agent == agent)
        and (older is None or (info.updated > 0 and now - info.updated >= older))
    ]


async def _remove(
    runtime: Runtime, runs: Sequence[str], *, force: bool, as_json: bool, total: bool = False
) -> int:
    """Remove these; one that can't be is told, and the others are removed all the same."""
    stopped: list[SnaprtError] = []
    for run in runs:
        try:
            count = await runtime.remove(run, force=force)
        except SnaprtError as error:
            stopped.append(error)
            if len(runs) > 1:
                output.console(stderr=True).print(failures.paragraph(error), soft_wrap=True)
            continue
        if as_json:
            output.print_json({"event": "removed", "run": run, "objects": count})
        else:
            output.say(f"removed {run}: {count} objects")
    if total and not as_json:
        output.say(f"{len(runs) - len(stopped)} runs removed.")
    if stopped and len(runs) == 1:
        raise stopped[0]
    return failures.exit_code(stopped[-1]) if stopped else failures.COMPLETED


def _seconds(age: str | None) -> float | None:
    from snaprt.cli.values import parse_duration

    return None if age is None else parse_duration(age, "--older-than")
