"""Names that become parts of paths: run ids and suspension ids. Nothing else goes into a path unchecked."""

from __future__ import annotations

import re

from snaprt.errors import StoreError

# The object in a log's folder that says that the run was removed. See remove.py.
TOMBSTONE = "removed"

# Safe as one path component on every filesystem and in every URL; never hidden, never `..`.
_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}")


def checked_run(run: str) -> str:
    """The run id, if it may be one. Raises StoreError."""
    return _checked(run, "run id")


def is_run(run: str) -> bool:
    """Whether a text may be a run id."""
    return _SAFE.fullmatch(run) is not None and not run.endswith(".")


is_slot = is_run
"""Whether a text may be a suspension id, or another slot of an inbox."""


def checked_suspension(suspension: str) -> str:
    """The suspension id, if it may be one. Raises StoreError."""
    return _checked(suspension, "suspension id")


def numbered(stream: str, number: int) -> str:
    """The slot of a stream's message, counted from 1."""
    return f"{stream}.m{number:012}"


def _checked(name: str, what: str) -> str:
    if not isinstance(name, str) or not is_run(name):
        raise StoreError(
            f"{name!r} can't be a {what}: use up to 128 letters, digits, '_', '-' and '.', starting with a "
            "letter, a digit or '_', and not ending with '.'."
        )
    return name
