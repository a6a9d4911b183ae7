"""A real process is killed by SIGKILL wherever it stands; whoever takes the run over pays no second time.

    python -m tests.crash.test_killed --runs 300 --seed 5 [--s3]      # at random times, as often as wanted

The ledger is the payments service's, a process of its own: what it holds is what happened. Three agents
differ in what a payment in doubt leads to (examples/refund.py). Those that ask, the service or a person,
pay at a service that ignores idempotency keys, so that every duplicate would show.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import anyio
import pytest

import snaprt
from tests.crash.lives import At, Life, Place, bucket, ended
from tests.crash.service import Service, payments

pytestmark = pytest.mark.skipif(os.name != "posix", reason="there is no SIGKILL on this system")

AGENTS = {"refund": "--ignore-keys", "refund_by_key": None, "refund_by_person": "--ignore-keys"}


@dataclass(frozen=True)
class Shop:
    """An agent, and the service that it pays at."""

    agent: str
    service: Service

    def args(self, order: str = "A-17") -> tuple[str, str]:
        return order, self.service.url


@pytest.fixture(params=list(AGENTS))
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    flag = AGENTS[request.param]
    with payments(tmp_path, *([flag] if flag else [])) as service:
        yield Shop(f"examples.refund:{request.param}", service)


def paid(shop: Shop, run: str) -> list[tuple[str, int]]:
    """Orders and cents of what was paid for a run."""
    return [(order, cents) for key, order, cents in shop.service.rows() if key.startswith(f"{run}/")]


def assert_paid_once(place: Place, shop: Shop, run: str, said: dict[str, Any]) -> None:
    """The agent came to what it comes to undisturbed, the ledger agrees, and every record proves right."""
    assert said["outcome"] == "Completed", said
    assert said["value"]["refunded"] == 4200
    assert paid(shop, run) == [("A-17", 4200)]

    async def report() -> Any:
        async with snaprt.Runtime(place.url) as rt:
            return await rt.verify(run)

    assert anyio.run(report).whole


def test_killed_at_every_record_boundary_it_pays_once(place: Place, shop: Shop) -> None:
    record, was_killed = 0, True
    while was_killed:
        record += 1
        for when in ("before", "after"):
            run = f"{when}-{record}"
            with Life(place, run, shop.agent, shop.args(), dies=At(record, when)) as life:
                was_killed = life.said() is None
            assert_paid_once(place, shop, run, ended(place, run, shop.agent, shop.args()))
    assert record > 4, "start, a result or two, intent, result, finish: each was a boundary"


def test_killed_again_and_again_it_gets_on_and_pays_once(place: Place, shop: Shop) -> None:
    said, lives = None, 0
    while said is None:
        lives += 1
        # Who takes a run over writes a claim, and announces anew a payment that wasn't made: two records that
        # get it no further. So a life has two, three or four.
        with Life(place, "r", shop.agent, shop.args(), dies=At(2 + lives % 3, "after")) as life:
            said = life.said()
    assert_paid_once(place, shop, "r", said)
    assert lives > 1


def test_killed_at_random_times_it_pays_once(place: Place, shop: Shop) -> None:
    at_random_times(place, shop, 8, seed=11)


def at_random_times(place: Place, shop: Shop, runs: int, seed: int) -> None:
    """Three lives of each run are killed at any time within that of an undisturbed one."""
    started = monotonic()
    ended(place, "undisturbed", shop.agent, shop.args())
    whole = monotonic() - started
    dice = random.Random(seed)
    for number in range(runs):
        run = f"r{number}"
        for _ in range(3):
            with Life(place, run, shop.agent, shop.args()) as life:
                life.process.join(dice.uniform(0, whole))
                life.kill()
        assert_paid_once(place, shop, run, ended(place, run, shop.agent, shop.args()))


@pytest.mark.parametrize("agent", list(AGENTS))
def test_killed_one_second_after_a_payment_whose_answer_is_still_out_it_pays_once(
    place: Place, tmp_path: Path, agent: str
) -> None:
    """The question that this project begins with: what does the retry do? Here, the call is in doubt."""
    flag = AGENTS[agent]
    with payments(tmp_path, "--delay", "3", *([flag] if flag else [])) as service:
        shop = Shop(f"examples.refund:{agent}", service)
        with Life(place, "r", shop.agent, shop.args()) as life:
            one_second_after_the_payment(life, service)
            life.kill()
        assert_paid_once(place, shop, "r", ended(place, "r", shop.agent, shop.args()))


def test_killed_one_second_after_a_payment_that_was_recorded_it_pays_once(
    place: Place, shop: Shop, tmp_path: Path
) -> None:
    """Here the run has gone on, and waits for something else when it is killed."""
    flag = tmp_path / "flag"
    name = shop.agent.rpartition(":")[2]
    args = (name, *shop.args(), str(flag))
    with Life(place, "r", "tests.crash.lingering:refund_and_linger", args) as life:
        one_second_after_the_payment(life, shop.service)
        life.kill()
    flag.touch()
    assert_paid_once(place, shop, "r", ended(place, "r", "tests.crash.lingering:refund_and_linger", args))


def one_second_after_the_payment(life: Life, service: Service) -> None:
    while not service.rows():
        life.process.join(0.02)
        assert life.process.is_alive()
    life.process.join(1.0)
    assert life.process.is_alive()


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.crash.test_killed")
    options.add_argument("--runs", type=int, default=100, help="of each of the three agents")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--s3", action="store_true", help="on a real S3 server instead of a local store")
    chosen = options.parse_args()
    os.environ.setdefault("SNAPRT_KEY", "the-key-of-the-tests-0123456789")
    for agent, flag in AGENTS.items():
        start = monotonic()
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            place = stack.enter_context(bucket()) if chosen.s3 else Place(f"{folder}/store")
            service = stack.enter_context(payments(Path(folder), *([flag] if flag else [])))
            at_random_times(place, Shop(f"examples.refund:{agent}", service), chosen.runs, chosen.seed)
        print(f"{agent}: {chosen.runs} runs, each killed three times, paid once; {monotonic() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
