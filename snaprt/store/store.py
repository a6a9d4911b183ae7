"""A store: a place at a URL where runs have their logs.

Opens the filesystem behind a URL with the options that truth needs (no listing cache, no shared instance),
picks the objects for it, sees to the probe before the first write, and lists runs. What a log does is in
log.py.
"""

from __future__ import annotations

import asyncio
import functools
import os
import platform
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

import fsspec  # type: ignore[import-untyped]  # fsspec ships no types
import fsspec.core  # type: ignore[import-untyped]
import fsspec.utils  # type: ignore[import-untyped]

from snaprt.errors import MissingExtra, RunExists, SnaprtError, StoreError, UnknownRun
from snaprt.records.keys import Keyring
from snaprt.records.record import Header
from snaprt.store.agenda import Agenda
from snaprt.store.check import Report, check
from snaprt.store.failures import EXTRAS, Removed, explain
from snaprt.store.local import LocalObjects
from snaprt.store.log import Log
from snaprt.store.names import TOMBSTONE, checked_run
from snaprt.store.objects import WAYS, FsspecObjects, Objects
from snaprt.store.probe import probe, remembered
from snaprt.store.remove import remove

_LOCAL = ("file", "local")
# These keep no listings and hand options that they don't know to clients that refuse them.
_WITHOUT_LISTINGS_CACHE = ("sftp", "ssh", "webdav", "webdavs")


@dataclass(frozen=True)
class Listed:
    """A run as a listing shows it: its newest header and summary, or why they can't be shown."""

    run: str
    header: Header | None
    summary: Mapping[str, Any]
    error: SnaprtError | None = None
    slots: Sequence[str] = ()  # of its inbox, if they were asked for


class Store:
    """A place where runs have their logs. Made by `Store.open`; safe to use from several threads."""

    def __init__(self, objects: Objects, keyring: Keyring, interpreter: Mapping[str, Any], endpoint: str):
        self.url = objects.url
        self.agenda = Agenda(objects)
        self._objects = objects
        self._keyring = keyring
        self._interpreter = interpreter
        self._endpoint = endpoint
        self._lock = threading.Lock()
        self._probed = objects.way is None  # fencing="off" was said

    @classmethod
    def open(
        cls,
        url: str | os.PathLike[str],
        *,
        keyring: Keyring | None = None,
        fencing: Literal["on", "off"] = "on",
        storage_options: Mapping[str, Any] | None = None,
        interpreter: Mapping[str, Any] | None = None,
    ) -> Store:
        """The store at a URL of any fsspec filesystem, or at a path.

        `storage_options` go to the filesystem; `interpreter` into the header of each record. Nothing is
        written before the first record. Raises StoreError (MissingExtra) if the URL can't be used,
        MissingKey without a key.
        """
        if fencing not in ("on", "off"):
            raise StoreError(f'fencing must be "on" or "off", not {fencing!r}.')
        keyring = keyring or Keyring.default()
        found = interpreter or {
            "implementation": sys.implementation.name,
            "version": platform.python_version(),
        }
        objects, endpoint = open_objects(os.fspath(url), fencing == "on", dict(storage_options or {}))
        store = cls(objects, keyring, found, endpoint)
        store._greet()
        return store

    def _greet(self) -> None:
        """One read: says at once whether the place answers, and learns whether it was probed before."""
        if remembered(self._objects, self._keyring, self._endpoint):
            self._probed = True

    def _ready(self) -> None:
        if self._probed:
            return
        with self._lock:
            if not self._probed:
                probe(self._objects, self._keyring, self._endpoint)
                self._probed = True

    def runs(self) -> list[str]:
        """The ids of all runs here, and of those that were removed."""
        return self._objects.folders("runs")

    def removed(self, run: str) -> bool:
        """Whether there was a run of that id and it was removed."""
        return TOMBSTONE in self._objects.sizes(f"runs/{checked_run(run)}/log")

    def has(self, run: str, slot: str) -> bool:
        """Whether something lies in that slot of the run's inbox, as a hint says. Proves nothing of
        it."""
        try:
            self._objects.part(f"runs/{run}/inbox/{slot}", 0, 1)
        except FileNotFoundError:
            return False
        return True

    def create(self, run: str) -> Log:
        """The empty log of a new run; its first append makes it. Raises RunExists, here or there, also
        for the id of a run that was removed."""
        names = self._objects.sizes(f"runs/{checked_run(run)}/log")
        if TOMBSTONE in names:
            raise RunExists(
                f"The id {run!r} was used at {self.url} by a run that was removed. Ids aren't used twice, as "
                "the idempotency keys made of them would be, too. Give another id."
            )
        if names:
            raise RunExists(f"There is already a run {run!r} at {self.url}.")
        return self._log(run)

    def log(self, run: str) -> Log:
        """The log of a run that is here. Raises UnknownRun."""
        log = self._log(run)
        try:
            log.refresh()
        except Removed:
            raise
        except UnknownRun as error:
            raise UnknownRun(f"{error} {self._others(run)}") from None
        return log

    def verify(self, run: str) -> Report:
        """Reads a whole run, however damaged, and lists everything that is wrong with it. Raises
        UnknownRun."""
        try:
            return check(self._objects, checked_run(run), self._keyring)
        except Removed:
            raise
        except UnknownRun as error:
            raise UnknownRun(f"{error} {self._others(run)}") from None

    def remove(self, run: str) -> int:
        """Removes a run, whole or not, or what is left of it; gives how many objects that were. Nobody may
        be at work on it."""
        return remove(self._objects, checked_run(run), self._keyring)

    def listing(self, *, slots: bool = False) -> Iterator[Listed]:
        """Every run with its newest header and summary, by id, and what its inbox has, if that is asked for.
        Reads one head and one summary a run, unpickles nothing, and shows a damaged run as such."""
        runs = self.runs()
        look = functools.partial(self._listed, slots=slots)
        if self._objects.parallel == 1 or len(runs) < 2:
            found: Iterable[Listed | None] = map(look, runs)
            yield from (each for each in found if each is not None)
            return
        with ThreadPoolExecutor(self._objects.parallel, thread_name_prefix="snaprt-list") as pool:
            found = pool.map(look, runs)
            yield from (each for each in found if each is not None)

    def _listed(self, run: str, *, slots: bool) -> Listed | None:
        """None for a run that was removed, and for a folder without any record: a start that didn't get that
        far."""
        try:
            log = self._log(run)
            log.refresh()
            return Listed(run, log.header(), log.summary(), slots=log.answers() if slots else ())
        except UnknownRun:
            return None
        except SnaprtError as error:
            return Listed(run, None, {}, error)

    def _log(self, run: str) -> Log:
        return Log(self._objects, checked_run(run), self._keyring, self._interpreter, self._ready)

    def _others(self, run: str) -> str:
        runs = [each for each in self.runs() if each != run]
        if not runs:
            return "There are no runs at all; is that the right store?"
        near = [each for each in get_close_matches(run, runs, 3) if not self.removed(each)]
        return f"Did you mean {' or '.join(map(repr, near))}?" if near else f"It has {len(runs)} others."


def open_objects(url: str, fenced: bool, options: dict[str, Any]) -> tuple[Objects, str]:
    """The objects at a URL and the endpoint that they are reached through. Raises StoreError."""
    if not url:
        raise StoreError("The store's URL is empty. Give a path or a URL such as s3://bucket/prefix.")
    if "::" in url:
        raise StoreError(
            f"The store {url} is a chain of filesystems; a cache or archive between would show stale logs. "
            f"Give the URL of the last one alone."
        )
    protocol = fsspec.utils.get_protocol(url)
    if protocol in _LOCAL:
        meant = url.partition(":")[0].lower()
        if meant in WAYS and meant not in _LOCAL:
            raise StoreError(
                f"The store {url} names a folder, and looks like a URL of {meant}://. Write it with both "
                f"slashes; or as ./{url} if the folder is meant."
            )
        path = fsspec.core.strip_protocol(url)
        if os.path.exists(path) and not os.path.isdir(path):
            raise StoreError(f"The store {url} is a file; a store is a folder.")
        return LocalObjects(path), "local"
    if fenced and protocol not in WAYS:
        if protocol not in fsspec.available_protocols():
            raise StoreError(
                f"The store {url} has an unknown protocol, {protocol!r}. Use a path, s3://, gs://, az://, "
                f"sftp://, webdav:// or memory://."
            )
        raise StoreError(
            f"The store {url}: no way is known to create an object only if it is absent through "
            f"{protocol!r}, so two processes could own one run. Use a path or s3://, for one; or in Python "
            f'Runtime(url, fencing="off"), if never more than one works on it.'
        )
    if protocol in ("s3", "s3a"):
        # By default botocore waits a minute for a connection and tries five times, and s3fs five times
        # around that: too long to tell somebody of a mistyped address.
        patience = {
            "connect_timeout": 10,
            "read_timeout": 60,
            "retries": {"max_attempts": 1, "mode": "standard"},
        }
        options["config_kwargs"] = {**patience, **options.get("config_kwargs", {})}
    if protocol not in _WITHOUT_LISTINGS_CACHE:
        options["use_listings_cache"] = False
    try:
        fs, root = fsspec.core.url_to_fs(url, skip_instance_cache=True, **options)
    except ImportError as error:
        package, command = EXTRAS.get(protocol, (error.name or "a package", f"pip install {error.name}"))
        raise MissingExtra(
            f"The store {url} needs {package}, which isn't installed here. Do: {command}"
        ) from error
    except Exception as error:
        raise explain(error, url, "opening it") from error
    if protocol in ("s3", "s3a"):
        fs.close_session = _close_where_it_lives
    if not root.strip("/") and protocol != "memory":
        raise StoreError(f"The store {url} names no bucket or folder.")
    return FsspecObjects(fs, root, url, protocol, fenced=fenced), _endpoint(fs, protocol)


def _close_where_it_lives(loop: Any, session: Any) -> None:
    """s3fs closes a client that is dropped on whatever loop runs where the garbage is collected. That is the
    host's then, and fails there. This is called in its place."""
    if loop is not None and loop.is_running():
        asyncio.run_coroutine_threadsafe(session.__aexit__(None, None, None), loop)


def _endpoint(fs: Any, protocol: str) -> str:
    """What the probe's outcome holds for: the same bucket may be reached through a gateway that lies."""
    named = getattr(fs, "endpoint_url", None)
    if named is None and protocol in ("s3", "s3a"):
        named = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    return f"{protocol} {named or 'default'}"
