"""Objects on a local disk: durable, atomic, and exactly one winner.

An object is written to a file of its own in `tmp/`, synced, and linked to its name: `link` fails if the
name is taken, so of all who create one name one succeeds, and a name never shows half an object, whatever
the process or the machine does. Then the folder is synced, and so is the parent of every folder that was
made: only then has the object been created. A record is two syncs, and the first of a run a few cheap ones
more.

Files left in `tmp/` by writers that died are invisible, and removed when a store is first written to and
they are old.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO

from snaprt.errors import StoreError
from snaprt.store.failures import explain
from snaprt.store.objects import Buffer

# No writer needs so long between two pieces of one object; a file untouched since then is left over.
_STALE = 3600.0
_PIECE = 1 << 20
# How often a folder is made for a hint, of which others may remove it while it is still empty.
_TRIES = 5
# Filesystems without hard links (FAT, some network mounts) say one of these.
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


class LocalObjects:
    """Objects under a folder of this machine (a network mount will do if it has hard links and keeps their
    promise)."""

    parallel = 4
    way: str | None = "link"

    def __init__(self, root: str):
        self._root = Path(os.path.abspath(root))
        self.url = self._root.as_uri()
        self._known: set[Path] = set()
        self._swept = False

    def locate(self, name: str) -> str:
        return (self._root / name).as_uri()

    def read(self, name: str) -> bytes:
        with self.reader(name) as file:
            return self._read(file, name, -1)

    def part(self, name: str, start: int, end: int) -> bytes:
        with self.reader(name) as file:
            file.seek(start)
            return self._read(file, name, end - start)

    def starts(self, names: Sequence[str], size: int) -> list[bytes]:
        return [self.part(name, 0, size) for name in names]

    def reader(self, name: str) -> AbstractContextManager[IO[bytes]]:
        try:
            return open(self._root / name, "rb")
        except FileNotFoundError:
            raise
        except OSError as error:
            raise explain(error, self.url, f"reading {name}") from error

    def create(self, name: str, data: bytes) -> None:
        target = self._root / name
        try:
            made = self._folder(target.parent)
            self._write(target, (data,))
            _sync(target.parent)
            self._last(made)
        except FileExistsError:
            raise
        except OSError as error:
            raise explain(error, self.url, f"writing {name}") from error

    def put(self, name: str, pieces: Iterable[Buffer]) -> None:
        target = self._root / name
        try:
            made = self._folder(target.parent)
            with contextlib.suppress(FileExistsError):  # the same content, by its name
                self._write(target, pieces)
            self._last(made)
        except OSError as error:
            raise explain(error, self.url, f"writing {name}") from error

    def replace(self, name: str, data: bytes) -> None:
        target = self._root / name
        beside = self._root / "tmp" / f"{os.getpid()}-{secrets.token_hex(8)}"
        try:
            beside.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "wb") as file:
                file.write(data)
            self._move(beside, target)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(beside)
            raise explain(error, self.url, f"writing {name}") from error

    def _move(self, source: Path, target: Path) -> None:
        for _ in range(_TRIES):
            with contextlib.suppress(FileNotFoundError):  # no folder yet, or one that was removed just now
                os.replace(source, target)
                return
            with contextlib.suppress(FileNotFoundError):
                self._folder(target.parent)
        os.replace(source, target)

    def settle(self, folder: str) -> None:
        try:
            _sync(self._root / folder)
        except OSError as error:
            raise explain(error, self.url, f"writing {folder}") from error

    def sizes(self, folder: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for entry in self._entries(folder):
            # What vanishes between listing and looking was never an object of ours.
            try:
                if entry.is_file() and not entry.name.startswith("."):
                    found[entry.name] = entry.stat().st_size
            except FileNotFoundError:
                continue
            except OSError as error:
                raise explain(error, self.url, f"looking at {folder}/{entry.name}") from error
        return found

    def folders(self, folder: str) -> list[str]:
        return sorted(entry.name for entry in self._entries(folder) if entry.is_dir())

    def remove(self, name: str) -> None:
        try:
            os.unlink(self._root / name)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise explain(error, self.url, f"removing {name}") from error

    def remove_folder(self, folder: str) -> None:
        with contextlib.suppress(OSError):
            os.rmdir(self._root / folder)
            self._known.discard(self._root / folder)

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self._root / folder) as entries:
                return list(entries)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise explain(error, self.url, f"listing {folder}") from error

    def _read(self, file: IO[bytes], name: str, size: int) -> bytes:
        try:
            return file.read(size)
        except OSError as error:
            raise explain(error, self.url, f"reading {name}") from error

    def _write(self, target: Path, pieces: Iterable[Buffer]) -> None:
        """One file, synced and linked to its name. Raises FileExistsError if the name is taken."""
        folder = self._root / "tmp"
        if not self._swept:  # what lies there needn't last, nor does the folder
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._sweep(folder)
        new = folder / f"{os.getpid()}-{secrets.token_hex(8)}"
        # Readable by the owner alone: state is private, even where the folder isn't.
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(descriptor, "wb", buffering=0) as file:
                for piece in pieces:
                    view = memoryview(piece)
                    while view:  # an unbuffered write may take less than all
                        view = view[file.write(view[:_PIECE]) :]
                os.fsync(file.fileno())
            try:
                os.link(new, target)
            except FileExistsError:
                raise
            except OSError as error:
                if error.errno in _NO_LINKS:
                    raise StoreError(
                        f"The store {self.url} lies on a filesystem without hard links ({error.strerror}), "
                        "by which a record is created only if absent. Use another folder."
                    ) from error
                raise
        finally:
            os.unlink(new)

    def _folder(self, folder: Path) -> list[Path]:
        """Makes a folder and those above it; gives those that `_last` must make last, the lowest first."""
        if folder in self._known:
            return []
        inside = [folder, *folder.parents]
        missing = [path for path in inside if not path.is_dir()]
        for path in reversed(missing):
            with contextlib.suppress(FileExistsError):
                path.mkdir(mode=0o700)
        # Those inside of the store are synced even if they were there: another process may have made them
        # and not have synced them yet, and what we write into them must last.
        ours = {path for path in inside if path == self._root or self._root in path.parents}
        return [path for path in inside if path in missing or path in ours - self._known]

    def _last(self, folders: Iterable[Path]) -> None:
        """Syncs folders into their parents. After the file and its folder: a filesystem with a journal has
        written them with those, and has nothing left to do."""
        for folder in folders:
            _sync(folder.parent)
            self._known.add(folder)

    def _sweep(self, folder: Path) -> None:
        if self._swept:
            return
        self._swept = True
        limit = time.time() - _STALE
        for entry in self._entries("tmp"):
            with contextlib.suppress(FileNotFoundError):
                if entry.stat().st_mtime < limit:
                    os.unlink(entry.path)


def _sync(folder: Path) -> None:
    if os.name == "nt":
        return  # Windows syncs directory entries with their files and opens no folders
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
