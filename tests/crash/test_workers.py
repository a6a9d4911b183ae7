"""Workers are killed at random while they share runs: every run comes to its end, and each payment is one.

    python -m tests.crash.test_workers --runs 500 --workers 4 [--s3]      # one is killed every second

The runs ask, sleep and pay (errands.py); a process of its own plays the people who answer. The service
ignores idempotency keys, so that a second payment would be a second row. A worker that was killed is
replaced by a new one, as whatever keeps processes running would.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import Any

import anyio
import pytest

import snaprt
from tests.crash.errands import errand, poison
from tests.crash.lives import Place, bucket, forks
from tests.crash.service import Service, payments

pytestmark = pytest.mark.skipif(os.name != "posix", reason="there is no SIGKILL on this system")

LEASE = 1.0  # seconds; short, so that what a killed worker had is soon taken up
DISTANT = 0.2  # seconds; a sleep leaves its process


def _work(environment: Mapping[str, str], url: str, concurrency: int) -> None:
    """A worker's process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(environment)

    async def work() -> None:
        async with snaprt.Runtime(url, lease=LEASE, distant=DISTANT) as rt:
            await rt.work(concurrency=concurrency, poll=0.2)

    anyio.run(work)


class Fleet:
    """So many workers, each a process; one that died is replaced by `mend`."""

    def __init__(self, place: Place, workers: int, concurrency: int = 4) -> None:
        self._args = (
            {**place.environment, "SNAPRT_KEY": os.environ["SNAPRT_KEY"]},
            place.url,
            concurrency,
        )
        self.deaths = 0
        self._processes = [self._start() for _ in range(workers)]

    def _start(self) -> Any:
        process = forks.Process(target=_work, args=self._args, daemon=True)
        process.start()
        return process

    def kill(self, dice: random.Random) -> None:
        """Kills one, whichever."""
        process = dice.choice(self._processes)
        process.kill()
        process.join()

    def mend(self) -> None:
        for at, process in enumerate(self._processes):
            if not process.is_alive():
                self.deaths += 1
                self._processes[at] = self._start()

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()


@contextlib.contextmanager
def fleet(place: Place, workers: int, concurrency: int = 4) -> Iterator[Fleet]:
    """Workers for as long as the block lasts."""
    made = Fleet(place, workers, concurrency)
    try:
        yield made
    finally:
        made.end()


async def start(place: Place, service: Service, runs: int, dice: random.Random) -> None:
    """Starts the errands; each leaves with its first question."""
    async with snaprt.Runtime(place.url) as rt:
        for number in range(runs):
            args = ("A-17", 100 + number, dice.uniform(0.0, 3.0))
            outcome = await (await rt.start(errand, service.url, *args, run_id=f"errand-{number}")).outcome()
            assert isinstance(outcome, snaprt.Suspended)


async def answer(rt: snaprt.Runtime) -> Counter[str]:
    """Answers what is asked now, and counts the runs by where they stand."""
    infos = await rt.list()
    for info in infos:
        for waiting in info.waiting if info.status == "suspended" else ():
            with contextlib.suppress(snaprt.AlreadyAnswered, snaprt.UnknownSuspension):
                await rt.answer(info.run, f"yes to {waiting.suspension}", suspension=waiting.suspension)
    return Counter(info.status for info in infos)


async def played(place: Place, fleet: Fleet, runs: int, dice: random.Random, within: float) -> None:
    """Answers until all has ended, while one worker after the other is killed."""

    async def kills() -> None:
        while True:
            await anyio.sleep(1.0)
            fleet.kill(dice)
            fleet.mend()

    async with snaprt.Runtime(place.url) as rt, anyio.create_task_group() as killing:
        killing.start_soon(kills)
        with anyio.fail_after(within):
            while (await answer(rt))["completed"] < runs:
                await anyio.sleep(0.1)
        killing.cancel_scope.cancel()


async def results(place: Place, runs: int) -> list[Any]:
    async with snaprt.Runtime(place.url) as rt:
        outcomes = [await (await rt.resume(f"errand-{number}")).outcome() for number in range(runs)]
        for number in range(0, runs, 10):
            assert (await rt.verify(f"errand-{number}")).whole
    return [outcome.value if isinstance(outcome, snaprt.Completed) else outcome for outcome in outcomes]


def errands(place: Place, folder: Path, runs: int, workers: int, seed: int, within: float) -> int:
    """The whole story; gives how many workers died."""
    dice = random.Random(seed)
    with payments(folder, "--ignore-keys") as service:
        anyio.run(start, place, service, runs, dice)
        with fleet(place, workers) as several:
            anyio.run(played, place, several, runs, dice, within)
            deaths = several.deaths
        assert anyio.run(results, place, runs) == [
            {"said": ["yes to ask-1", "yes to ask-2"], "paid": 100 + number} for number in range(runs)
        ]
        paid = Counter(key.split("/")[0] for key, _, _ in service.rows())
    assert paid == {f"errand-{number}": 1 for number in range(runs)}
    return deaths


def test_runs_with_questions_and_sleeps_all_end_right_while_workers_are_killed(
    place: Place, tmp_path: Path
) -> None:
    assert errands(place, tmp_path, runs=16, workers=3, seed=1, within=240) > 0


def test_a_run_that_kills_its_process_is_left_alone_ever_longer_and_the_others_go_on(
    place: Place, tmp_path: Path
) -> None:
    async def begin() -> None:
        async with snaprt.Runtime(place.url) as rt:
            await (await rt.start(poison, "Shall I?", run_id="poison")).outcome()
            await rt.answer("poison", "yes")

    async def claims() -> int:
        async with snaprt.Runtime(place.url) as rt:
            return (await rt.show("poison")).records - 2  # its start and its suspend

    anyio.run(begin)
    with payments(tmp_path, "--ignore-keys") as service:
        anyio.run(start, place, service, 4, random.Random(1))
        with fleet(place, workers=2) as two:

            async def go() -> None:
                async with snaprt.Runtime(place.url) as rt:
                    with anyio.fail_after(120):
                        # It has to have died of it twice, or the pauses between aren't seen.
                        while (await answer(rt))["completed"] < 4 or two.deaths < 2:
                            two.mend()
                            await anyio.sleep(0.1)

            anyio.run(go)
        assert len(service.rows()) == 4
    # The claim, and the answer that was taken in, of the first; then a claim each.
    assert two.deaths <= anyio.run(claims) <= two.deaths + 2


def main() -> int:
    options = argparse.ArgumentParser(
        prog="python -m tests.crash.test_workers", description=__doc__.split("\n")[0]
    )
    options.add_argument("--runs", type=int, default=500)
    options.add_argument("--workers", type=int, default=4)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--s3", action="store_true", help="on a real S3 server instead of a local store")
    chosen = options.parse_args()
    os.environ.setdefault("SNAPRT_KEY", "the-key-of-the-tests-0123456789")
    began = monotonic()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        place = stack.enter_context(bucket()) if chosen.s3 else Place(f"{folder}/store")
        deaths = errands(place, Path(folder), chosen.runs, chosen.workers, chosen.seed, within=3600)
    print(
        f"{chosen.runs} runs by {chosen.workers} workers of which {deaths} were killed, "
        f"{monotonic() - began:.0f} s: every run ended right, every payment was made once"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
