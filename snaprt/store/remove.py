"""Removing a run: every byte of it goes, and what must stay is a sign that its id was used.

What must never be is a shorter log that looks whole (resumed, it would repeat effects), a new run that finds
an old answer or an old child, nor an owner who was paused, finds his next number free, and acts.
So first a **tombstone** is created in the log's folder, where the one listing that everybody makes shows it:
from then on the run is unknown, and its id is taken for ever. Then the rest goes, but for the names of those
records that somebody may still want to create: the first, the newest, and the first of each owner, by which
the one before him is fenced. They are emptied. Where that was interrupted it is done again.

That nobody works on the run meanwhile is the caller's to see to, who ends its log beforehand.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Sequence

from snaprt.errors import Damaged, WrongKey
from snaprt.records.keys import Keyring
from snaprt.store.failures import Removed
from snaprt.store.history import History, numbers_in
from snaprt.store.names import TOMBSTONE
from snaprt.store.objects import Objects, in_parallel

# How often a number behind the newest is tried, if somebody writes at the same moment.
_TRIES = 5


def remove(objects: Objects, run: str, keyring: Keyring) -> int:
    """Removes a run, whole or not, or what is left of it; gives the number of objects that are gone."""
    where = f"runs/{run}"
    log = f"{where}/log"
    before = objects.sizes(log)
    if TOMBSTONE not in before:
        with contextlib.suppress(FileExistsError, Removed):  # by somebody else, at the same moment
            fences = _fences(objects, run, keyring)
            objects.create(f"{log}/{TOMBSTONE}", json.dumps(fences).encode())
    kept = _kept(objects, log, numbers_in(before))
    # The log before the others: an owner who lives is to be fenced before what he reads is gone.
    count = _empty(objects, log, kept)
    if TOMBSTONE not in before:
        count = len(before)
    count += sum(_empty(objects, f"{where}/{folder}") for folder in ("inbox", "blobs"))
    if "lease" in objects.sizes(where):  # services don't say whether there was what they removed
        count += 1
        _gone(objects, f"{where}/lease")
    return count


def _fences(objects: Objects, run: str, keyring: Keyring) -> list[int] | None:
    """The numbers that somebody may want to create who doesn't know yet that he is fenced. None, that is
    all of them, if the log can't be read."""
    history = History(objects, run, keyring)
    try:
        history.refresh()
        headers = history.headers()
    except (Damaged, WrongKey):
        return None
    firsts = {header.epoch: header.number for header in reversed(headers)}
    return sorted({1, history.newest, *firsts.values()})


def _kept(objects: Objects, log: str, numbers: Sequence[int]) -> Collection[str]:
    """The names in a log's folder that stay."""
    try:
        fences = json.loads(objects.read(f"{log}/{TOMBSTONE}"))
    except ValueError:
        fences = None
    if not isinstance(fences, list):
        _fence_all(objects, log, numbers)
        fences = numbers_in(objects.sizes(log))
    return {TOMBSTONE, *(f"{number:012d}" for number in fences if isinstance(number, int))}


def _fence_all(objects: Objects, log: str, numbers: Sequence[int]) -> None:
    """Where no record could end a log, something else takes the number behind the newest."""
    for _ in range(_TRIES):
        sizes = objects.sizes(log)
        newest = max([*numbers_in(sizes), *numbers], default=0)
        if sizes.get(f"{newest:012d}") == 0:
            return  # done before
        with contextlib.suppress(FileExistsError, Damaged):
            objects.create(f"{log}/{newest + 1:012d}", b"")
            return


def _empty(objects: Objects, folder: str, kept: Collection[str] = ()) -> int:
    """Removes what is in a folder. Of what is kept, all but the tombstone is emptied."""
    sizes = objects.sizes(folder)
    emptied = [name for name, size in sorted(sizes.items()) if name in kept and name != TOMBSTONE and size]
    names = sorted(set(sizes) - set(kept))
    in_parallel(objects, lambda name: objects.replace(f"{folder}/{name}", b""), emptied, lambda name: 0)
    in_parallel(objects, lambda name: _gone(objects, f"{folder}/{name}"), names, lambda name: 0)
    if not kept:
        objects.remove_folder(folder)
    return len(emptied) + len(names)


def _gone(objects: Objects, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        objects.remove(name)
