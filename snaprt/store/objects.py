"""Objects: what a log needs of a filesystem, and nothing more.

An object is created once under a name and never changed. This file has the interface and the part that
speaks fsspec; the durable local disk is local.py. Neither knows what objects mean.

The heart is `create`: of all who create one name, exactly one succeeds, and nobody sees half an object.
Each filesystem has its own way to that, and several say they have one and don't (fsspec's local and memory
`mode="create"` look first and write then; sshfs ignores it), so the ways stand in a table and what isn't in
it is refused. Listing caches are off: a stale listing is a wrong answer here.
"""

from __future__ import annotations

import contextlib
import io
import secrets
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from typing import IO, Any, Protocol, TypeVar

from snaprt.store.failures import beyond_end, explain, lost_race, missing_bucket

Buffer = bytes | bytearray | memoryview
Item = TypeVar("Item")
Result = TypeVar("Result")

# Pieces of a blob are sent in parts of this size: S3 takes 10,000 parts, so a blob may have 80 GB.
_BLOCK = 8 << 20
# Up to here an object is one request.
ONE_REQUEST = 16 << 20


def in_parallel(
    objects: Objects, work: Callable[[Item], Result], items: Sequence[Item], size: Callable[[Item], int]
) -> list[Result]:
    """Does the work for every item, in order of the items, as many at once as the objects are worth.

    Large ones go one after the other: each is a stream of several requests that keeps the line busy by
    itself, and many at once would hold many buffers.
    """
    results: dict[int, Result] = {}
    small = [index for index, item in enumerate(items) if size(item) <= ONE_REQUEST]
    if len(small) > 1 and objects.parallel > 1:
        with ThreadPoolExecutor(objects.parallel, thread_name_prefix="snaprt-store") as pool:
            results.update(zip(small, pool.map(lambda index: work(items[index]), small), strict=True))
    return [results[index] if index in results else work(item) for index, item in enumerate(items)]


class Objects(Protocol):
    """A folder of objects at a URL. Names are relative, with `/`. Safe to use from several threads.

    All methods raise FileNotFoundError for what isn't there and StoreError (Transient where another try may
    help) for whatever else goes wrong.
    """

    url: str
    way: str | None  # how `create` is done; None: not known to be safe
    parallel: int  # how many requests at once are worth it
    near: bool  # a disk of this machine: how long a write takes is known from the last one

    def read(self, name: str) -> bytes:
        """A whole object."""

    def starts(self, names: Sequence[str], size: int) -> list[bytes]:
        """The first `size` bytes of each, in order."""

    def part(self, name: str, start: int, end: int) -> bytes:
        """Bytes `start` to `end` of an object."""

    def reader(self, name: str) -> AbstractContextManager[IO[bytes]]:
        """An object to be read piece by piece."""

    def create(self, name: str, data: bytes) -> None:
        """Creates the object, whole, if the name is free. Raises FileExistsError if it isn't."""

    def put(self, name: str, pieces: Iterable[Buffer]) -> None:
        """Writes an object whose name says its content: whole or not at all; who else does it writes the
        same."""

    def replace(self, name: str, data: bytes) -> None:
        """Writes a hint, anew if it is there: whole, but not synced. Nothing of a log is ever
        replaced, but for records that are emptied as their run is removed."""

    def settle(self, folder: str) -> None:
        """Makes what was put into a folder last."""

    def sizes(self, folder: str) -> dict[str, int]:
        """Name within the folder and size of every object in it; empty if there is no such folder."""

    def folders(self, folder: str) -> list[str]:
        """Names of the folders in it; empty if there is no such folder."""

    def remove(self, name: str) -> None:
        """Removes an object: a hint, or one of a run that is removed as a whole. Nothing of a log that is to
        be used again ever is."""

    def remove_folder(self, folder: str) -> None:
        """Removes a folder in which no objects are, where folders are more than a part of names. One that
        isn't there, or isn't empty, is left as it is."""

    def locate(self, name: str) -> str:
        """The URL of an object."""


def _mode_create(fs: Any, path: str, data: bytes) -> None:
    fs.pipe_file(path, data, mode="create")


def _open_x(fs: Any, path: str, data: bytes) -> None:
    fs.makedirs(path.rpartition("/")[0], exist_ok=True)
    with fs.open(path, "xb") as file:
        file.write(data)


def _move_in(fs: Any, path: str, data: bytes) -> None:
    # webdav4's exclusive open looks first and writes then. A MOVE that says "Overwrite: F" is the server's
    # to decide (RFC 4918, 9.9.4), and the record is whole when it gets its name.
    beside = f"{path}.{secrets.token_hex(8)}.part"
    fs.makedirs(path.rpartition("/")[0], exist_ok=True)
    fs.pipe_file(beside, data)
    try:
        fs.client.move(beside, path, overwrite=False)
    except BaseException:
        fs.rm_file(beside)
        raise


_memory_lock = threading.Lock()


def _locked(fs: Any, path: str, data: bytes) -> None:
    # A memory filesystem lives in one process, so a lock of the process is enough.
    with _memory_lock:
        if fs.exists(path):
            raise FileExistsError(path)
        fs.pipe_file(path, data)


def look_first(fs: Any, path: str, data: bytes) -> None:
    """For fencing="off" alone: two at once may both succeed."""
    if fs.exists(path):
        raise FileExistsError(path)
    parent = path.rpartition("/")[0]
    if parent:
        fs.makedirs(parent, exist_ok=True)
    fs.pipe_file(path, data)


# How to create only if absent, by protocol. Memory and s3 (SeaweedFS) race in this project's tests on every
# run. SFTP (asyncssh's server) and WebDAV (wsgidav) were raced by hand in November 2026, GCS and Azure
# against emulators when the design was made. The probe shows wherever they are used that the condition
# isn't ignored; that it is decided in one step is what an entry here stands for.
WAYS: dict[str, tuple[str, Callable[[Any, str, bytes], None]]] = {
    "s3": ("If-None-Match", _mode_create),
    "s3a": ("If-None-Match", _mode_create),
    "gs": ("generation match", _mode_create),
    "gcs": ("generation match", _mode_create),
    "az": ("overwrite=False", _mode_create),
    "abfs": ("overwrite=False", _mode_create),
    "abfss": ("overwrite=False", _mode_create),
    "sftp": ("exclusive open", _open_x),
    "ssh": ("exclusive open", _open_x),
    "webdav": ("MOVE without overwriting", _move_in),
    "webdavs": ("MOVE without overwriting", _move_in),
    "memory": ("lock of the process", _locked),
}
# Of these, range reads were seen to give wrong bytes: objects are read whole.
_WITHOUT_RANGES = {"sftp", "ssh"}
# Of these, an object that is being written is visible: blobs are written beside and renamed.
# Neither do they say why an exclusive open failed ("Failure"): it is asked whether the name is taken.
_VISIBLE_WRITES = {"sftp", "ssh", "webdav", "webdavs"}


class FsspecObjects:
    """Objects through any fsspec filesystem."""

    def __init__(self, fs: Any, root: str, url: str, protocol: str, *, fenced: bool):
        self.url = url.rstrip("/")
        self.way: str | None = None
        self._create: Callable[[Any, str, bytes], None] = look_first
        if fenced:
            self.way, self._create = WAYS[protocol]
        self.parallel = 1 if protocol == "memory" else 8
        self.near = False
        self._fs = fs
        self._root = root.rstrip("/")
        # s3fs asks for the size first unless it is told to read in one request.
        self._whole = {"max_concurrency": 1} if protocol in ("s3", "s3a") else {}
        self._ranges = protocol not in _WITHOUT_RANGES
        self._vague = protocol in _VISIBLE_WRITES
        self._beside = protocol not in WAYS or protocol in _VISIBLE_WRITES

    def locate(self, name: str) -> str:
        return f"{self.url}/{name}"

    def read(self, name: str) -> bytes:
        try:
            return bytes(self._fs.cat_file(self._path(name), **self._whole))
        except Exception as error:
            raise self._error(error, f"reading {name}") from error

    def part(self, name: str, start: int, end: int) -> bytes:
        if not self._ranges:
            return self.read(name)[start:end]
        try:
            return bytes(self._fs.cat_file(self._path(name), start=start, end=end))
        except Exception as error:
            if beyond_end(error):
                return b""
            raise self._error(error, f"reading {name}") from error

    def starts(self, names: Sequence[str], size: int) -> list[bytes]:
        if len(names) == 1 or not self._ranges:
            return [self.part(name, 0, size) for name in names]
        paths = [self._path(name) for name in names]
        try:
            found = self._fs.cat_ranges(paths, [0] * len(paths), [size] * len(paths), on_error="return")
        except Exception as error:
            raise self._error(error, "reading a log") from error
        for name, data in zip(names, found, strict=True):
            if isinstance(data, BaseException) and not beyond_end(data):
                raise self._error(data, f"reading {name}") from data
        return [b"" if isinstance(data, BaseException) else bytes(data) for data in found]

    def reader(self, name: str) -> AbstractContextManager[IO[bytes]]:
        try:
            if not self._ranges:
                return closing(io.BytesIO(self.read(name)))
            return self._fs.open(  # type: ignore[no-any-return]  # fsspec is untyped
                self._path(name), "rb", block_size=_BLOCK, cache_type="readahead"
            )
        except Exception as error:
            raise self._error(error, f"reading {name}") from error

    def create(self, name: str, data: bytes) -> None:
        try:
            self._create(self._fs, self._path(name), data)
        except Exception as error:
            if lost_race(error) or (self._vague and self._there(name)):
                raise FileExistsError(name) from error
            raise self._error(error, f"writing {name}") from error

    def _there(self, name: str) -> bool:
        try:
            return bool(self._fs.exists(self._path(name)))
        except Exception:
            return False  # then the error that led here is the one to tell

    def put(self, name: str, pieces: Iterable[Buffer]) -> None:
        path = self._path(name)
        target = path
        try:
            if self._beside:
                target = f"{path}.part"
                self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            held: list[Buffer] = []
            size = 0
            rest = iter(pieces)
            for piece in rest:
                held.append(piece)
                size += len(piece)
                if size > ONE_REQUEST:
                    break
            if size <= ONE_REQUEST:
                self._fs.pipe_file(target, b"".join(held))
            else:
                with self._fs.open(target, "wb", block_size=_BLOCK) as file:
                    while held:
                        file.write(held.pop(0))
                    for piece in rest:
                        file.write(piece)
            if self._beside:
                self._rename(target, path, name)
        except Exception as error:
            raise self._error(error, f"writing {name}") from error

    def replace(self, name: str, data: bytes) -> None:
        try:
            if self._beside:
                self._fs.makedirs(self._path(name).rpartition("/")[0], exist_ok=True)
            self._fs.pipe_file(self._path(name), data)
        except Exception as error:
            raise self._error(error, f"writing {name}") from error

    def _rename(self, source: str, path: str, name: str) -> None:
        try:
            self._fs.mv(source, path)
        except Exception:
            # Some refuse to rename onto a name that is taken. Then the blob is there, by an earlier try.
            if not self._there(name):
                raise
            self._fs.rm_file(source)

    def settle(self, folder: str) -> None:
        """Services answer when an object lasts."""

    def sizes(self, folder: str) -> dict[str, int]:
        return {
            name: int(entry.get("size") or 0)
            for name, entry in self._entries(folder)
            if entry["type"] != "directory" and not name.startswith(".") and not name.endswith(".part")
        }

    def folders(self, folder: str) -> list[str]:
        return sorted(name for name, entry in self._entries(folder) if entry["type"] == "directory")

    def remove(self, name: str) -> None:
        try:
            self._fs.rm_file(self._path(name))
        except Exception as error:
            raise self._error(error, f"removing {name}") from error

    def remove_folder(self, folder: str) -> None:
        if self._beside:  # else folders are parts of names, and gone with the last object
            with contextlib.suppress(Exception):
                self._fs.rmdir(self._path(folder))

    def _entries(self, folder: str) -> list[tuple[str, dict[str, Any]]]:
        path = self._path(folder)
        try:
            found = self._fs.ls(path, detail=True)
        except FileNotFoundError as error:
            if missing_bucket(error):
                raise explain(error, self.url, "listing it") from error
            return []
        except Exception as error:
            raise self._error(error, f"listing {folder}") from error
        entries = ((str(entry["name"]).rstrip("/").rpartition("/")[2], entry) for entry in found)
        return [(name, entry) for name, entry in entries if name and name != folder.rpartition("/")[2]]

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _error(self, error: BaseException, doing: str) -> Exception:
        if isinstance(error, FileNotFoundError) and not missing_bucket(error):
            return FileNotFoundError(str(error))
        return explain(error, self.url, "opening it" if doing.startswith("reading probes/") else doing)
