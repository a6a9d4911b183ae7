"""What the runtime adds to a step: an agent with a small state that calls tools one after the other.

A read costs one record, a write two (its intent before the call, its result after), each synced before
the agent goes on. The bare contenders do what the disk asks of any such system, with nothing around it:
files of the same size, each synced, linked to its name, its folder synced; and commits of the same bytes
to SQLite with `synchronous=FULL`. Rounds are interleaved. `/dev/shm`, where there is one, shows what is
left without a disk.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import sqlite3
import statistics
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import snaprt
from benchmarks.durable import write_synced
from benchmarks.report import Table, main, ratio, seconds, size
from snaprt.records import Keyring

STEPS = 40
ROUNDS = 7
SIDE_BY_SIDE = 16
KEYRING = Keyring.from_texts(["5b" * 32])
_numbers = itertools.count()


@snaprt.tool(effect="read")
async def look(number: int) -> int:
    """A read that costs nothing."""
    return number + 1


@snaprt.tool
async def change(number: int) -> int:
    """A write that costs nothing."""
    return number + 1


@snaprt.agent(rules={"model": "none"})
async def reads(count: int) -> int:
    """Reads one after the other."""
    number = 0
    for _ in range(count):
        number = await look(number)
    return number


@snaprt.agent(rules={"model": "none"})
async def writes(count: int) -> int:
    """Writes one after the other."""
    number = 0
    for _ in range(count):
        number = await change(number)
    return number


async def one_run(runtime: snaprt.Runtime, agent: Any, count: int) -> str:
    """A run from start to finish; its id."""
    name = f"run-{next(_numbers)}"
    outcome = await (await runtime.start(agent, count, run_id=name)).outcome()
    assert isinstance(outcome, snaprt.Completed), outcome
    assert outcome.value == count
    return name


def bare_files(folder: Path, count: int, data: bytes) -> float:
    """Seconds for so many durable files."""
    folder.mkdir(parents=True, exist_ok=True)
    start = perf_counter()
    for _ in range(count):
        write_synced(folder / f"{next(_numbers):012d}", data)
    return perf_counter() - start


def sqlite(folder: Path, count: int, data: bytes) -> float:
    """Seconds for so many commits of the same bytes."""
    connection = sqlite3.connect(folder / "rows.sqlite", isolation_level=None)
    connection.execute("pragma journal_mode=wal")
    connection.execute("pragma synchronous=full")
    connection.execute("create table if not exists log (number integer primary key, data blob)")
    start = perf_counter()
    for _ in range(count):
        connection.execute("insert into log (data) values (?)", (data,))
    took = perf_counter() - start
    connection.close()
    return took


@dataclass(frozen=True)
class Found:
    """Medians, in seconds a step by the wall and of all cores; records and bytes of one run of each."""

    wall: dict[str, float]
    cpu: dict[str, float]
    records: dict[str, int]
    size: dict[str, int]


async def measured(place: Path, steps: int, rounds: int) -> Found:
    """Runs everybody in turn."""
    wall: dict[str, list[float]] = defaultdict(list)
    cpu: dict[str, list[float]] = defaultdict(list)
    records, sizes = {}, {}
    async with snaprt.Runtime(str(place / "store"), keyring=KEYRING) as runtime:
        for agent in (reads, writes):
            shown = await runtime.show(await one_run(runtime, agent, steps))
            records[agent.__name__], sizes[agent.__name__] = shown.records, shown.bytes
        data = os.urandom(sizes["reads"] // records["reads"])
        for _ in range(rounds):
            for name, agent, runs in (
                ("reads", reads, 1),
                ("writes", writes, 1),
                ("many", reads, SIDE_BY_SIDE),
            ):
                cores, start = process_time(), perf_counter()
                await asyncio.gather(*(one_run(runtime, agent, steps) for _ in range(runs)))
                wall[name].append((perf_counter() - start) / (steps * runs))
                cpu[name].append((process_time() - cores) / (steps * runs))
            wall["file"].append(bare_files(place / "bare", steps, data) / steps)
            wall["sqlite"].append(sqlite(place, steps, data) / steps)
    middle = statistics.median
    return Found(
        {name: middle(taken) for name, taken in wall.items()},
        {name: middle(taken) for name, taken in cpu.items()},
        records,
        sizes,
    )


def run(quick: bool) -> list[Table]:
    """A table for the disk, and one for memory where there is some to write to."""
    tables = [_table("on the disk", _at(Path(tempfile.gettempdir()), quick), bare=True)]
    memory = Path("/dev/shm")
    if os.access(memory, os.W_OK):
        tables.append(_table("in /dev/shm, where syncing is free", _at(memory, quick), bare=False))
    return tables


def _at(parent: Path, quick: bool) -> Found:
    place = Path(tempfile.mkdtemp(prefix="snaprt-bench-", dir=parent))
    try:
        return asyncio.run(measured(place, STEPS, 3 if quick else ROUNDS))
    finally:
        shutil.rmtree(place)


def _table(words: str, found: Found, *, bare: bool) -> Table:
    per_step = {name: count / STEPS for name, count in found.records.items()}
    names = {
        "reads": ("a read step", per_step["reads"]),
        "writes": ("a write step", per_step["writes"]),
        "many": (f"a read step, {SIDE_BY_SIDE} runs at once", per_step["reads"]),
    }
    if bare:
        names["file"] = ("bare: a durable file of a record's size", 1)
        names["sqlite"] = ("bare: a commit of SQLite, synchronous=FULL", 1)
    rows = []
    for name, (text, records) in names.items():
        took = found.wall[name]
        cells = [
            text,
            seconds(took),
            seconds(found.cpu[name]) if name in found.cpu else "",
            f"{records / took:.0f}",
        ]
        if bare:
            cells.append(ratio(took / records / found.wall["file"]))
        rows.append(tuple(cells))
    each = size(found.size["reads"] / found.records["reads"])
    notes = [
        f"Runs of {STEPS} steps; {found.records['reads']} records for the reads, {found.records['writes']} "
        f"for the writes, start and finish included; {each} a record.",
    ]
    columns = ["", "time a step", "its CPU", "records a second"]
    if bare:
        columns.append("a record, of a bare file")
        notes.append("The last column compares the time for one record with that for one bare durable file.")
    return Table(f"Steps one after the other, {words}", tuple(columns), tuple(rows), tuple(notes))


if __name__ == "__main__":
    main("steps")
