"""From an exception to one paragraph on standard error and an exit code.

| code | means |
|---|---|
| 0 | the run completed, or is suspended |
| 1 | the run failed, or was cancelled |
| 2 | wrong usage: a target, argument, run, question, store or key that can't be used as given |
| 3 | refused: busy, fenced, changed, damaged, not serialisable, in doubt |
| 130 | a second Ctrl-C, or one where no run is followed (143 for SIGTERM); a run is kept all the same |
"""

from __future__ import annotations

import asyncio
import difflib
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from snaprt import errors
from snaprt.kernel.interrupts import is_ctrl_c

if TYPE_CHECKING:
    from snaprt.runtime import Failed

COMPLETED = 0
FAILED = 1
USAGE = 2
REFUSED = 3
INTERRUPTED = 130
BROKEN_PIPE = 141

_USAGE: tuple[type[BaseException], ...] = (
    errors.UsageError,
    errors.UnknownRun,
    errors.UnknownSuspension,
    errors.RunExists,
    errors.MissingExtra,
    errors.MissingKey,
)


class StoreNotOpened(errors.StoreError):
    """The store given on the command line can't be opened: wrong usage, unlike one that fails later."""


def exit_code(error: BaseException) -> int:
    """The code for an error that kept the command from doing its work."""
    return USAGE if isinstance(error, (*_USAGE, StoreNotOpened)) else REFUSED


def agent_exit_code(error: BaseException) -> int:
    """The code for a run that ended with `error`. State that can't travel is a refusal of ours."""
    return REFUSED if isinstance(error, errors.NotSerialisable) else FAILED


def words(error: BaseException) -> str:
    """The text of an exception, also of one whose own `__str__` fails."""
    try:
        return str(error).strip()
    except BaseException as failure:
        if is_ctrl_c(failure):
            raise
        return f"(its text can't be had: {type(failure).__name__})"


def paragraph(error: BaseException) -> str:
    """What to tell a person, notes included."""
    return " ".join([_introduced(error), *map(str, getattr(error, "__notes__", ()))])


def _introduced(error: BaseException) -> str:
    """Errors of the family are written for people; others are introduced."""
    text = words(error)
    if isinstance(error, errors.SnaprtError):
        return text or type(error).__name__
    if isinstance(error, ModuleNotFoundError):
        return (
            f"The run needs the module {error.name!r}, which isn't importable here: its agent travels by "
            "reference. Go to the folder it stands in, or install it, and try again; the run is unharmed."
        )
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"Unexpected {said}. Run the command again with --debug to see where it comes from."


def unknown_run(run: str, runs: Sequence[str], store: str) -> errors.UnknownRun:
    """Like the store's own error, with the runs that might have been meant."""
    near = difflib.get_close_matches(run, runs, n=3, cutoff=0.5)
    near += [other for other in runs if run and other.startswith(run) and other not in near][: 3 - len(near)]
    if near:
        hint = f"Did you mean {' or '.join(near)}?"
    elif len(runs) == 1:
        hint = f"The only one there is {runs[0]}."
    elif runs:
        hint = f"`snaprt ls` lists the {len(runs)} that are there."
    else:
        hint = "There are no runs at all: check --store and SNAPRT_STORE."
    return errors.UnknownRun(f"There's no run {run!r} at {store}. {hint}")


def agent_paragraph(failed: Failed) -> str:
    """A failed run: the agent's exception and the line of the agent's own code that it passed last."""
    said = words(failed.error)
    what = f"{type(failed.error).__name__}: {said}" if said else type(failed.error).__name__
    if isinstance(failed.error, errors.NotSerialisable):
        return f"Run {failed.run} can't be saved. {said}"
    lines = [line for line in _FRAME.findall(failed.traceback) if not line[0].startswith(_OURS)]
    where = f", at {lines[-1][0]}:{lines[-1][1]} in {lines[-1][2]}" if lines else ""
    return f"Run {failed.run} failed with {what}{where}. --debug shows the agent's traceback."


_FRAME = re.compile(r'^\s*(?:\| )*File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
# Frames of the runtime and of asyncio are true but of no use to somebody who looks for their own line.
_OURS = (os.path.dirname(errors.__file__) + os.sep, os.path.dirname(asyncio.__file__) + os.sep)
