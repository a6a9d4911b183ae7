"""Saving large states, against the bare `zstd(pickle.dumps(state))`: goal at most 1.3 times its time.

The state stands in the locals of an agent that waits for a tool. *Save* is everything that writing a
record means: the kernel's dump with its frames and its look for handles, the summary, compression,
digests, the chain and the MAC, through the log and into objects that are counted and dropped. The bare
contender has none of these, and no record. A *next save* follows one turn of conversation later, against
what the saves before it left. The second table does the same with the durable local store, and the bare
contender writes a synced file.
"""

from __future__ import annotations

import itertools
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import snaprt
from benchmarks.durable import bare, write_synced
from benchmarks.measure import Times, interleaved
from benchmarks.report import Table, main, ratio, seconds, size
from benchmarks.states import KINDS, Writer, state
from snaprt import frames
from snaprt.kernel import Kernel
from snaprt.records import Keyring
from snaprt.store import Log, Store

GOAL = 1.3
SIZES = {"1 MB": (1_000_000, 31), "100 MB": (100_000_000, 5)}
KEY = "5b" * 32  # the figures are the same with any


@snaprt.tool(effect="read")
async def think(count: int) -> str:
    """Stands for a model call."""
    raise AssertionError("nobody carries it out here")


async def agent(held: dict[str, Any]) -> int:
    """Waits for the model with a large state in its locals."""
    rounds, words = 0, ["first", "second"]
    for word in words:
        rounds += len(await think(len(held["messages"])) + word)
    return rounds


def parked(held: dict[str, Any]) -> Kernel:
    """A run of the agent that waits for its tool."""
    kernel = Kernel("benchmark", {"model": "scripted"})
    kernel.start(agent, (held,))
    kernel.advance()
    return kernel


class Counted:
    """Objects that keep the size of what they are given, and nothing of it."""

    url, way, parallel = "counted://", "dropped", 4

    def __init__(self) -> None:
        self.bytes: dict[str, int] = {}

    def create(self, name: str, data: bytes) -> None:
        """Takes a record."""
        self.bytes[name] = len(data)

    def put(self, name: str, pieces: Iterable[bytes]) -> None:
        """Takes a blob."""
        self.bytes[name] = sum(map(len, pieces))

    def settle(self, folder: str) -> None:
        """Nothing to make last."""

    def sizes(self, folder: str) -> dict[str, int]:
        """What is there."""
        start = folder + "/"
        return {name[len(start) :]: each for name, each in self.bytes.items() if name.startswith(start)}

    def reader(self, name: str) -> IO[bytes]:
        """Nothing can be read back."""
        raise FileNotFoundError(name)

    read = part = starts = folders = remove = locate = reader


def save(kernel: Kernel, log: Log) -> int:
    """What the runtime does to have the state of this moment on record; the bytes it added."""
    dumped = kernel.save()
    summary = json.dumps(kernel.summary(), separators=(",", ":")).encode()
    return log.append("result", detail={}, sections={"summary": [summary], "state": dumped.parts}).size


@contextmanager
def folder() -> Iterator[Path]:
    """A folder on the disk that temporary files go to (set TMPDIR to choose another)."""
    found = Path(tempfile.mkdtemp(prefix="snaprt-bench-"))
    try:
        yield found
    finally:
        shutil.rmtree(found)


def growing(held: dict[str, Any], kernel: Kernel, log: Log, added: list[int]) -> Callable[[], None]:
    """A next save: one turn more each time."""
    writer = Writer(1)

    def call() -> None:
        held["messages"] += writer.exchange()
        added.append(save(kernel, log))

    return call


def measured(held: dict[str, Any], new_log: Callable[[], Log], plain: Callable[[], int], rounds: int) -> Any:
    """Times of the bare contender, of first saves and of next saves, and the bytes that each stored."""
    kernel = parked(held)
    packed, first, later = [0], [0], list[int]()
    log = new_log()
    save(kernel, log)

    def alone() -> None:
        packed[0] = plain()

    def whole() -> None:
        first[0] = save(kernel, new_log())

    found = interleaved({"bare": alone, "first": whole, "next": growing(held, kernel, log, later)}, rounds)
    kernel.release()
    return found, packed[0], first[0], sorted(later)[len(later) // 2]


def run(quick: bool) -> list[Table]:
    """Two tables: without disk, and on the durable local store."""
    keyring = Keyring.from_texts([KEY])
    interpreter = frames.interpreter()
    rows: list[tuple[str, ...]] = []
    disk: list[tuple[str, ...]] = []
    missed = []
    for (label, (bytes_, rounds)), (kind, words) in itertools.product(SIZES.items(), KINDS.items()):
        rounds = 3 if quick else rounds
        held = state(kind, bytes_)
        number = itertools.count()

        def counted() -> Log:
            objects: Any = Counted()
            return Log(objects, f"run-{next(number)}", keyring, interpreter, lambda: None)  # noqa: B023

        found, packed, first, later = measured(held, counted, lambda: len(bare(held)), rounds)  # noqa: B023
        rows.append(_row(f"{label}, {words}", found, packed, first, later))
        if found["first"].wall > GOAL * found["bare"].wall:
            missed.append(f"{label}, {words}")
        with folder() as place:
            store = Store.open(str(place / "store"), keyring=keyring, interpreter=interpreter)
            found, packed, first, later = measured(
                held,
                lambda: store.create(f"run-{next(number)}"),  # noqa: B023
                lambda: write_synced(place / "state", bare(held)),  # noqa: B023
                rounds,
            )
        disk.append(_row(f"{label}, {words}", found, packed, first, later))
    columns = (
        "",
        "zstd(pickle)",
        "first save",
        "its CPU",
        "next save",
        "zstd(pickle)",
        "first save",
        "next save",
    )
    verdict = "Met by every row." if not missed else f"MISSED by: {'; '.join(missed)}."
    return [
        Table(
            "Saving a state, without disk",
            columns,
            tuple(rows),
            (
                f"Goal: a first save takes at most {ratio(GOAL)} the time of zstd(pickle). {verdict}",
                "In brackets: times as much as zstd(pickle), which runs on one core; a save packs on two. "
                "*Its CPU* compares the time of all cores together. The last three columns are stored bytes.",
            ),
        ),
        Table("Saving a state on the durable local store, against a synced file", columns, tuple(disk)),
    ]


def _row(name: str, found: dict[str, Times], packed: int, first: int, later: int) -> tuple[str, ...]:
    plain = found["bare"]

    def against(times: Times) -> str:
        return f"{seconds(times.wall)} ({ratio(times.wall / plain.wall)})"

    return (
        *(name, seconds(plain.wall), against(found["first"]), ratio(found["first"].cpu / plain.cpu)),
        *(against(found["next"]), size(packed), size(first), size(later)),
    )


if __name__ == "__main__":
    main("saving")
