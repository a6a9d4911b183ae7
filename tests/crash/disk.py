"""A local store on which a process can die between any two system calls, and in the middle of a write.

`snaprt.store.local` is used as it is; the `os` and `open` that it sees are these. A write that is to be torn
puts half of its bytes there before the process dies.
"""

from __future__ import annotations

import builtins
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from snaprt.store.local import LocalObjects
from tests.crash.world import World

FAST = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""Where the store lies: in memory if there is such a place, as it is torn, not synced."""

_CALLS = ("fsync", "link", "unlink")


class Disk(LocalObjects):
    """The local store, telling the world what arrives: at the moment at which its name is linked."""

    def __init__(self, folder: Path, world: World) -> None:
        super().__init__(str(folder))
        self._world = world
        self._process = world.process
        world.links = self._linked  # type: ignore[attr-defined]  # for the `os` below

    def _linked(self, path: Any) -> None:
        path = Path(path)
        self._world.arrived(str(path.relative_to(self._root)), path.read_bytes())


class _Os:
    """`os`, with a moment before each call that changes something, and after each link."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        if name not in _CALLS:
            return found

        def call(*args: Any) -> Any:
            self._world.passes(name)
            found(*args)
            if name == "link":
                self._world.links(args[1])  # type: ignore[attr-defined]
                self._world.passes("linked")

        return call


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
    ):
        yield
