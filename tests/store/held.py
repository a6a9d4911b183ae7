"""Objects held in a dictionary: a store whose every byte a test can see, change and count, without any
I/O."""

from __future__ import annotations

import io
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, closing
from typing import IO

from snaprt.records import Keyring
from snaprt.store.store import Store

KEYRING = Keyring.from_bytes(b"the-key-of-the-tests-0123456789")


class Held:
    """Implements `snaprt.store.objects.Objects`. `before` and `after` a create may raise, to play a faulty
    network."""

    url = "held://store"
    way: str | None = "dictionary"
    parallel = 1
    near = False

    def __init__(self, data: dict[str, bytes] | None = None):
        self.data: dict[str, bytes] = {} if data is None else data
        self.asked: Counter[str] = Counter()
        self.before: Callable[[str], None] = lambda name: None
        self.after: Callable[[str], None] = lambda name: None
        self._lock = threading.Lock()

    def locate(self, name: str) -> str:
        return f"{self.url}/{name}"

    def read(self, name: str) -> bytes:
        self.asked["read"] += 1
        try:
            return self.data[name]
        except KeyError:
            raise FileNotFoundError(name) from None

    def starts(self, names: Sequence[str], size: int) -> list[bytes]:
        return [self.part(name, 0, size) for name in names]

    def part(self, name: str, start: int, end: int) -> bytes:
        return self.read(name)[start:end]

    def reader(self, name: str) -> AbstractContextManager[IO[bytes]]:
        return closing(io.BytesIO(self.read(name)))

    def create(self, name: str, data: bytes) -> None:
        self.asked["create"] += 1
        self.before(name)
        with self._lock:
            if name in self.data:
                raise FileExistsError(name)
            self.data[name] = bytes(data)
        self.after(name)

    def put(self, name: str, pieces: Iterable[bytes | bytearray | memoryview]) -> None:
        self.asked["put"] += 1
        self.data[name] = b"".join(pieces)

    def replace(self, name: str, data: bytes) -> None:
        self.asked["replace"] += 1
        self.data[name] = data

    def settle(self, folder: str) -> None:
        pass

    def _inside(self, folder: str) -> list[str]:
        names = list(self.data)  # in one step: other threads write meanwhile
        return [name[len(folder) + 1 :] for name in names if name.startswith(folder + "/")]

    def sizes(self, folder: str) -> dict[str, int]:
        self.asked["list"] += 1
        there = {name: self.data.get(f"{folder}/{name}") for name in self._inside(folder) if "/" not in name}
        return {name: len(data) for name, data in there.items() if data is not None}

    def folders(self, folder: str) -> list[str]:
        self.asked["list"] += 1
        return sorted({name.partition("/")[0] for name in self._inside(folder) if "/" in name})

    def remove(self, name: str) -> None:
        self.asked["remove"] += 1
        if self.data.pop(name, None) is None:
            raise FileNotFoundError(name)

    def remove_folder(self, folder: str) -> None:
        pass


def store(held: Held, keyring: Keyring = KEYRING) -> Store:
    """A store on these objects, probed."""
    return Store(held, keyring, {"implementation": "test"}, "held")
