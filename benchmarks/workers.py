"""Workers: what a resume costs, and what it costs to find the run that is due among many that sleep.

The runs wait for an answer and end with it. *Sleeping* runs wait for a time days ahead and lie there as a
process would have left them. Every request to the store is counted at its objects: the durable local store,
in memory where the system has such a place, so that the disk's syncs don't hide the rest. An idle look is
what a worker does every `poll` seconds when there is nothing to do.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import anyio

import snaprt
from benchmarks.measure import interleaved
from benchmarks.report import Table, main, seconds
from snaprt.records import Keyring
from snaprt.store import Store
from snaprt.store.local import LocalObjects

KEYRING = Keyring.from_bytes(b"the figures are the same with any")
FAST = "/dev/shm" if os.path.isdir("/dev/shm") else None
SLEEPING = (10, 100, 1_000, 10_000)
GOAL_SECONDS, GOAL_REQUESTS = 2.0, 50


async def agent(number: int) -> int:
    """Waits for a person."""
    answer: int = await snaprt.suspend({"number": number})
    return number + answer


class Counting:
    """A local store that counts what it is asked."""

    def __init__(self, folder: str) -> None:
        self._objects = LocalObjects(folder)
        self.asked: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._objects, name)
        if not callable(found) or name == "locate":
            return found

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.asked[name] += 1
            return found(*args, **kwargs)

        return counted


@asynccontextmanager
async def opened(objects: Counting) -> AsyncIterator[snaprt.Runtime]:
    """A runtime whose store these objects are."""
    with mock.patch("snaprt.store.store.open_objects", return_value=(objects, "local")):
        rt = await snaprt.Runtime("counted://", keyring=KEYRING).__aenter__()
    try:
        yield rt
    finally:
        await rt.__aexit__(None, None, None)


async def worked(objects: Counting, runs: range, concurrency: int, poll: float = 1.0) -> float:
    """Seconds until a worker has brought all of these to their end."""
    done = 0
    async with opened(objects) as rt:

        def tell(look: snaprt.Look) -> None:
            nonlocal done
            done += isinstance(look.outcome, snaprt.Completed)
            if done == len(runs):
                rt.drain()

        started = time.perf_counter()
        await rt.work(concurrency=concurrency, poll=poll, tell=tell)
    return time.perf_counter() - started


async def suspended(objects: Counting, runs: range) -> None:
    """Runs that wait for their answer."""
    async with opened(objects) as rt:
        for number in runs:
            await (await rt.start(agent, number, run_id=f"run-{number}")).outcome()


async def answered(objects: Counting, runs: range) -> None:
    """Answers them."""
    async with opened(objects) as rt:
        for number in runs:
            await rt.answer(f"run-{number}", 1)


def sleeping(objects: Counting, count: int) -> None:
    """Runs that sleep for days, each until another minute."""
    store = Store(objects, KEYRING, {"implementation": "benchmark"}, "local")
    detail = {"status": "suspended", "agent": "agent", "target": "-:-", "started": 0.0, "save": "always"}
    for number in range(count):
        until = time.time() + 86_400 + 61 * number
        store.create(f"sleeps-{number}").append("suspend", detail=detail, look=until)


async def found(objects: Counting, number: int) -> tuple[float, int]:
    """Seconds and requests from an answer to the end of its run, by a worker that had nothing to do."""
    told = anyio.Event()
    async with opened(objects) as rt, opened(objects) as person, anyio.create_task_group() as group:

        def tell(look: snaprt.Look) -> None:
            if look.outcome is not None:
                told.set()

        group.start_soon(lambda: rt.work(tell=tell))
        await anyio.sleep(2.5)  # it has become idle, and looks once a second
        await person.answer(f"run-{number}", 1)
        started, before = time.perf_counter(), objects.asked.total()
        await told.wait()
        took, requests = time.perf_counter() - started, objects.asked.total() - before
        rt.drain()
    return took, requests


def resumes(folder: Path, quick: bool) -> Table:
    """How many runs a worker brings to their end in a second."""
    count = 50 if quick else 200
    rows = []
    for concurrency in (1, 4, 16):
        objects = Counting(str(folder / f"resumes-{concurrency}"))
        runs = range(count)
        anyio.run(suspended, objects, runs)
        anyio.run(answered, objects, runs)
        objects.asked.clear()
        took = anyio.run(worked, objects, runs, concurrency)
        per_run = objects.asked.total() / count
        rows.append((str(concurrency), f"{count / took:.0f}", seconds(took / count), f"{per_run:.1f}"))
    return Table(
        f"One worker, {count} runs that were answered: each restored, answered, ended",
        ("runs at once", "runs a second", "for one", "store requests for one"),
        tuple(rows),
        ("local store in memory; on S3 the requests are what it takes, and more runs at once pay off",),
    )


def flat(folder: Path, quick: bool) -> Table:
    """What it costs to find work among runs that sleep."""
    stores: dict[int, Counting] = {}
    for count in SLEEPING[: 3 if quick else None]:
        stores[count] = objects = Counting(str(folder / f"sleeping-{count}"))
        anyio.run(suspended, objects, range(5))
        sleeping(objects, count)
    agendas = {
        count: Store(objects, KEYRING, {"implementation": "benchmark"}, "local").agenda
        for count, objects in stores.items()
    }
    idle = interleaved(
        {str(count): lambda agenda=agenda: agenda.due(time.time(), 100) for count, agenda in agendas.items()},
        5 if quick else 31,
    )
    rows = []
    for count, objects in stores.items():
        objects.asked.clear()
        agendas[count].due(time.time(), 100)
        looked = objects.asked.total()
        times, requests = zip(*(anyio.run(found, objects, number) for number in range(5)), strict=True)
        if max(requests) > GOAL_REQUESTS or max(times) > GOAL_SECONDS:
            raise SystemExit(f"{count} sleeping: {max(times):.2f} s and {max(requests)} requests")
        rows.append(
            (
                f"{count:,}",
                str(looked),
                seconds(idle[str(count)].cpu),
                str(round(statistics.median(requests))),
                seconds(statistics.median(times)),
                seconds(max(times)),
            )
        )
    return Table(
        "One worker and so many runs that sleep: an idle look, and from an answer to the end of its run",
        (
            "sleeping",
            "requests, idle look",
            "CPU, idle look",
            "requests, answer to end",
            "seconds",
            "at most",
        ),
        tuple(rows),
        (
            f"goal: at most {GOAL_REQUESTS} requests and {GOAL_SECONDS:.0f} s; it looks once a second",
            "requests from answer to end include the looks in vain before it",
        ),
    )


def run(quick: bool) -> list[Table]:
    """Both tables."""
    with tempfile.TemporaryDirectory(dir=FAST) as folder:
        return [resumes(Path(folder), quick), flat(Path(folder), quick)]


if __name__ == "__main__":
    main("workers")
