"""The options that commands share, and what every command does with them first and last.

Imported with every command line, so it imports little itself.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, cast

import typer
from typer.core import TyperCommand

from snaprt.errors import UsageError

if TYPE_CHECKING:
    from snaprt.cli.session import Settings

Store = Annotated[
    str | None,
    typer.Option(
        "--store", metavar="URL", help="Where runs lie: a folder or an fsspec URL.", show_default=False
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line on standard output.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
RunId = Annotated[
    str, typer.Argument(metavar="RUN", help="The run's id, as `snaprt ls` shows it.", show_default=False)
]
Suspension = Annotated[
    str | None,
    typer.Option(
        "--suspension", metavar="ID", help="Which question, where several are open.", show_default=False
    ),
]
Early = Annotated[
    bool,
    typer.Option("--early", help="--suspension names a question that isn't asked yet."),
]


class TakesNumbers(TyperCommand):
    """A command with JSON among its arguments: -5 is a number there, and no option is called so."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # A blank before it means nothing in JSON, and the parser takes no option for it.
        end = args.index("--") if "--" in args else len(args)
        shown = [f" {word}" if _NEGATIVE.match(word) else word for word in args[:end]]
        return super().parse_args(ctx, shown + args[end:])


_NEGATIVE = re.compile(r"-\.?\d")


def settings(context: typer.Context, store: str | None, as_json: bool) -> Settings:
    """What was said of store and output, before the command or after it."""
    from snaprt.cli.session import Settings

    outer_store, outer_json = cast("tuple[str | None, bool]", context.obj)
    by_option = store if store is not None else outer_store
    if by_option == "":
        raise UsageError("--store is empty: give a folder or a URL.")
    return Settings(
        store=by_option or os.environ.get("SNAPRT_STORE") or None,
        store_by_option=by_option is not None,
        as_json=as_json or outer_json,
    )


def leave(code: int) -> NoReturn:
    """End the command with that exit code."""
    raise typer.Exit(code)
