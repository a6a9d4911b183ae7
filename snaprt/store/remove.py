"""Removing a run: every object of it, in an order in which nothing that is left can be taken for a run.

What must never be is a shorter log that looks whole (resumed, it would repeat effects), nor an old answer
that lies in the inbox of a new run of that id. So first goes what lies beside the log, then its first record,
without which it is Damaged for everybody and no new run of that id can begin, then the others. Where that
was interrupted it is removed again. That nobody works on the run meanwhile is the caller's to see to, who
ends its log beforehand.
"""

from __future__ import annotations

import contextlib

from snaprt.store.objects import Objects, in_parallel


def remove(objects: Objects, run: str) -> int:
    """Removes a run, whole or not; gives the number of its objects."""
    where = f"runs/{run}"
    count = sum(_empty(objects, f"{where}/{folder}") for folder in ("inbox", "blobs"))
    count += _gone(objects, f"{where}/lease")
    count += _empty(objects, f"{where}/log", first=f"{1:012d}")
    objects.remove_folder(where)
    return count


def _empty(objects: Objects, folder: str, first: str | None = None) -> int:
    names = sorted(objects.sizes(folder))
    if first in names:
        names.remove(first)
        _gone(objects, f"{folder}/{first}")
    in_parallel(objects, lambda name: _gone(objects, f"{folder}/{name}"), names, lambda name: 0)
    objects.remove_folder(folder)
    return len(names) + (first is not None)


def _gone(objects: Objects, name: str) -> bool:
    with contextlib.suppress(FileNotFoundError):
        objects.remove(name)
        return True
    return False
