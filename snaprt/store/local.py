"""Objects on a local disk: durable, atomic, and exactly one winner.

An object is written to a file of its own in `tmp/`, synced, and linked to its name: `link` fails if the
name is taken, so of all who create one name one succeeds, and a name never shows half an object, whatever
the process or the machine does. Then the folder is synced, and so is the parent of every folder that was
made: only then has the object been created.

Where the filesystem allows it, a run's records lie in one file and are appended to it (packed.py): a record
is one sync then, and two elsewhere; the first of a run a few cheap ones more. Whoever asks here sees objects
by name in both cases, and a store may be moved between such places.

Files left in `tmp/` by writers that died are invisible, and removed when a store is first written to and
they are old.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import IO

from snaprt.errors import Damaged, StoreError
from snaprt.store.failures import explain
from snaprt.store.names import TOMBSTONE
from snaprt.store.objects import Buffer
from snaprt.store.packed import CLOSED, END, FIRST, Pack, appends_in_one_step, is_pack, new_file, record_of

# No writer needs so long between two pieces of one object; a file untouched since then is left over.
_STALE = 3600.0
_PIECE = 1 << 20
# How often a folder is made for a hint, of which others may remove it while it is still empty.
_TRIES = 5
# Of so many logs it is remembered what lies where.
_PACKS = 1000
# Filesystems without hard links (FAT, some network mounts) say one of these.
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


class LocalObjects:
    """Objects under a folder of this machine (a network mount will do if it has hard links and keeps their
    promise)."""

    parallel = 4
    near = True
    way: str | None = "link"

    def __init__(self, root: str):
        self._root = Path(os.path.abspath(root))
        self.url = self._root.as_uri()
        self._known: set[Path] = set()
        self._swept = False
        self._packs: OrderedDict[str, Pack | None] = OrderedDict()  # by log folder
        self._appending: dict[int, bool] = {}  # by device
        self._lock = threading.Lock()

    def locate(self, name: str) -> str:
        path, at, size = self._place(name)
        return path.as_uri() if size is None else f"{path.as_uri()}#bytes={at}-{at + size}"

    def read(self, name: str) -> bytes:
        path, at, size = self._place(name)
        return self._read(path, name, at, -1 if size is None else size)

    def part(self, name: str, start: int, end: int) -> bytes:
        path, at, size = self._place(name)
        if size is not None:
            start, end = min(start, size), min(end, size)
        return self._read(path, name, at + start, end - start)

    def starts(self, names: Sequence[str], size: int) -> list[bytes]:
        return [self.part(name, 0, size) for name in names]

    def reader(self, name: str) -> AbstractContextManager[IO[bytes]]:
        path, _, size = self._place(name)
        if size is not None:
            return closing(io.BytesIO(self.read(name)))
        try:
            return open(path, "rb")
        except FileNotFoundError:
            raise
        except OSError as error:
            raise explain(error, self.url, f"reading {name}") from error

    def create(self, name: str, data: bytes) -> None:
        record = record_of(name)
        try:
            if record is None:
                self._create(self._root / name, (data,))
            else:
                self._create_record(*record, data)
        except FileExistsError:
            raise
        except OSError as error:
            raise explain(error, self.url, f"writing {name}") from error

    def _create_record(self, folder: str, number: int, data: bytes) -> None:
        pack = self._pack(folder)
        if pack is not None:
            self._sweep()
            try:
                if pack.append(number, data):
                    return
            except (FileNotFoundError, Damaged):
                self._refuse_if_removed(folder)
                raise
        self._refuse_if_removed(folder)
        target = self._root / folder / f"{number:012d}"
        made = self._folder(target.parent)
        packed = pack is None and number == 1 and self._appends(target.parent)
        self._create(target, new_file(data) if packed else (data,), made)

    def _refuse_if_removed(self, folder: str) -> None:
        """Nothing is appended to the log of a run that was removed, which hasn't its pack any more."""
        if os.path.exists(self._root / folder / TOMBSTONE):
            raise FileExistsError(errno.EEXIST, "The run was removed", folder)

    def _create(self, target: Path, pieces: Iterable[Buffer], made: Sequence[Path] = ()) -> None:
        made = [*made, *self._folder(target.parent)]
        self._write(target, pieces)
        _sync(target.parent)
        self._last(made)

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
            record = record_of(name)
            if record is not None:  # one of a run that is being removed: what was packed in it is no more
                with self._lock:
                    self._packs.pop(record[0], None)
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
        if TOMBSTONE in found and folder.endswith("/log"):
            with self._lock:
                self._packs.pop(folder, None)
            return found
        pack = self._pack(folder, anew=True) if FIRST in found and folder.endswith("/log") else None
        if pack is None:
            return found
        try:
            packed = {f"{number:012d}": size for number, size in pack.sizes().items()}
        except OSError as error:
            raise explain(error, self.url, f"reading {folder}/{FIRST}") from error
        return {name: size for name, size in found.items() if name not in (FIRST, CLOSED, END)} | packed

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

    def _read(self, path: Path, name: str, start: int, size: int) -> bytes:
        try:
            with open(path, "rb") as file:
                file.seek(start)
                return file.read(size)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise explain(error, self.url, f"reading {name}") from error

    def _place(self, name: str) -> tuple[Path, int, int | None]:
        """The file that an object lies in, where, and its size, which is None if the file is its own."""
        record = record_of(name)
        try:
            pack = self._pack(record[0]) if record is not None else None
            if record is not None and pack is not None:
                place = pack.place(record[1])
                if place is not None:
                    return pack.path, *place
                if record[1] == 1:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise explain(error, self.url, f"reading {name}") from error
        return self._root / name, 0, None

    def _pack(self, folder: str, *, anew: bool = False) -> Pack | None:
        """The pack that a log's records lie in; None if there is no record yet, or they are files of their
        own. `anew`: look again, as the run may be another of that name."""
        with self._lock:
            if folder in self._packs and not (anew and self._packs[folder] is None):
                self._packs.move_to_end(folder)
                return self._packs[folder]
        place = self._root / folder
        packed = is_pack(place / FIRST)
        if packed is None:
            return None
        pack = None
        if packed:
            create = lambda name, data: self._create(place / name, (data,))  # noqa: E731
            pack = Pack(place, create, growing=self._appends(place))
        with self._lock:
            pack = self._packs[folder] = self._packs.get(folder) or pack
            while len(self._packs) > _PACKS:
                self._packs.popitem(last=False)
            return pack

    def _appends(self, folder: Path) -> bool:
        device = os.stat(folder).st_dev
        if device not in self._appending:
            self._appending[device] = appends_in_one_step(folder)
        return self._appending[device]

    def _write(self, target: Path, pieces: Iterable[Buffer]) -> None:
        """One file, synced and linked to its name. Raises FileExistsError if the name is taken."""
        self._sweep()
        new = self._root / "tmp" / f"{os.getpid()}-{secrets.token_hex(8)}"
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
        if folder in self._known and folder.is_dir():  # removed with its run, it may be made again
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

    def _sweep(self) -> None:
        if self._swept:
            return
        # What lies there needn't last, nor does the folder.
        (self._root / "tmp").mkdir(mode=0o700, parents=True, exist_ok=True)
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
