"""The command that measures memory: saves a state of large leaves in one process and restores it in another.

    python -m tests.store.memory 1000        # 1 GB; prints the peaks of both as multiples of the state

The state is bytes, an array and text, as an agent would hold them, and goes the whole way: pickled by hand as
`snaprt.state` cuts it (each large leaf a part of its own), appended, read back, unpickled leaf by leaf.
"""

from __future__ import annotations

import array
import json
import pickle
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.store.places import opened


def make(size: int) -> dict[str, Any]:
    """A state of about so many bytes: three parts that don't shrink, one that does."""
    dice = random.Random(1)
    quarter = size // 4
    words = [dice.randbytes(3).hex() for _ in range(4096)]
    line = " ".join(words) + "\n"
    return {
        "bytes": dice.randbytes(quarter),
        "array": array.array("q", dice.randbytes(quarter // 8 * 8)),
        "text": line * (quarter // len(line)),
        "several": [dice.randbytes(quarter // 50) for _ in range(50)],
    }


class Cut:
    """A file for a pickler: large writes become parts of their own, small ones are joined."""

    def __init__(self) -> None:
        self.parts: list[Any] = []

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self.parts.append(data if view.nbytes >= 65536 else bytes(data))
        return view.nbytes


class Parts:
    """A file for an unpickler over parts that are let go of as they are read."""

    def __init__(self, parts: list[Any]):
        self._parts = [memoryview(part) for part in reversed(parts)]
        parts.clear()

    def readinto(self, target: Any) -> int:
        view = memoryview(target).cast("B")
        done = 0
        while done < len(view) and self._parts:
            piece = self._parts[-1][: len(view) - done]
            view[done : done + len(piece)] = piece
            self._advance(len(piece))
            done += len(piece)
        return done

    def read(self, size: int) -> bytes:
        data = bytearray(size)
        return bytes(data[: self.readinto(data)])

    def readline(self) -> bytes:
        found = bytearray()
        while self._parts and not found.endswith(b"\n"):
            found += self.read(1)
        return bytes(found)

    def _advance(self, size: int) -> None:
        self._parts[-1] = self._parts[-1][size:]
        while self._parts and not self._parts[-1]:
            self._parts.pop()


def peak() -> int:
    """The most memory that this process had, in bytes."""
    try:
        # Unlike ru_maxrss this starts anew with the program: a child of a large process isn't large.
        status = Path("/proc/self/status").read_text()
    except OSError:
        found = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return found if sys.platform == "darwin" else found * 1024
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def child(what: str, url: str, size: int) -> None:
    """Saves or restores, and prints the peak before and after."""
    if what == "save":
        state = make(size)
        file = Cut()
        before = peak()
        pickle.Pickler(file, protocol=5).dump(state)
        opened(url).create("big").append("start", sections={"state": file.parts})
    else:
        log = opened(url).log("big")
        before = peak()
        record = log.newest_state()
        assert record is not None
        state = pickle.Unpickler(Parts(record.sections["state"])).load()  # type: ignore[arg-type]  # C wants less
        after = peak()
        assert state == make(size)
        print(json.dumps({"before": before, "peak": after}))
        return
    print(json.dumps({"before": before, "peak": peak()}))


def measure(size: int, url: str) -> dict[str, float]:
    """Peaks of saving and restoring as multiples of the state's size."""
    found: dict[str, float] = {}
    for what in ("save", "restore"):
        done = subprocess.run(
            [sys.executable, "-m", "tests.store.memory", what, url, str(size)],
            capture_output=True,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        found[what] = json.loads(done.stdout)["peak"] / size
    return found


if __name__ == "__main__":
    if len(sys.argv) == 4:
        child(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            print(measure(int(sys.argv[1]) * 1_000_000, folder))
