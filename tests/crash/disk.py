"""A local store on which a process can die between any two system calls, and in the middle of a write.

`snaprt.store.local` and `packed` are used as they are; the `os` and `open` that they see are these. A write
that is to be torn puts half of its bytes there before the process dies.
"""

from __future__ import annotations

import builtins
import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from snaprt.store.local import LocalObjects
from snaprt.store.packed import MAGIC
from tests.crash.world import World

FAST = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""Where the store lies: in memory if there is such a place, as it is torn, not synced."""

_CALLS = ("fdatasync", "fsync", "link", "unlink")


class Disk(LocalObjects):
    """The local store, telling the world what arrives: at the moment at which its name is linked, or the last
    of its bytes is appended."""

    def __init__(self, folder: Path, world: World) -> None:
        super().__init__(str(folder))
        self._world = world
        self._process = world.process
        world.links = self._linked  # type: ignore[attr-defined]  # for the `os` below
        world.appends = self._appended  # type: ignore[attr-defined]

    def _linked(self, path: Any) -> None:
        path = Path(path)
        data = path.read_bytes()
        if data.startswith(MAGIC):
            data = data[64:-8]  # of the first record: behind the heads of the file and of its frame
        self._world.arrived(str(path.relative_to(self._root)), data)

    def _appended(self, descriptor: int, data: bytes) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        self._world.arrived(str(path.relative_to(self._root)), data)


class _Os:
    """`os`, with a moment before each call that changes something, and after each link."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        if name == "writev":
            return self._append
        if name not in _CALLS:
            return found

        def call(*args: Any) -> Any:
            self._world.passes(name)
            found(*args)
            if name == "link":
                self._world.links(args[1])  # type: ignore[attr-defined]
                self._world.passes("linked")

        return call

    def _append(self, descriptor: int, pieces: Sequence[bytes]) -> int:
        self._world.passes("append")
        whole = b"".join(pieces)
        written = os.write(descriptor, whole[: len(whole) // 2])
        self._world.passes("half appended")
        written += os.write(descriptor, whole[written:])
        self._world.appends(descriptor, pieces[1])  # type: ignore[attr-defined]
        self._world.passes("appended")
        return written


class _Torn:
    """A file whose every write has a moment in its middle."""

    def __init__(self, file: Any, world: World) -> None:
        self._file = file
        self._world = world

    def __enter__(self) -> _Torn:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def fileno(self) -> int:
        return int(self._file.fileno())

    def write(self, data: memoryview) -> int:
        half = len(data) // 2
        written: int = self._file.write(data[:half])
        self._world.passes("half written")
        return written + int(self._file.write(data[written:]))


@contextlib.contextmanager
def played(world: World) -> Iterator[None]:
    """While this lasts, the local store's system calls are moments."""

    def opened(where: Any, mode: str = "r", **options: Any) -> Any:
        file = builtins.open(where, mode, **options)  # noqa: SIM115 - the store closes it
        return _Torn(file, world) if "w" in mode else file

    with (
        mock.patch("snaprt.store.local.os", _Os(world)),
        mock.patch("snaprt.store.local.open", opened, create=True),
        mock.patch("snaprt.store.packed.os", _Os(world)),
    ):
        yield
