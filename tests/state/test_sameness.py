"""A seeded sample of the sameness fuzzer by way of dumps; CONTRIBUTING shows how to run the long one."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest

from tests.frames import fuzz
from tests.frames.world import World, nap
from tests.state import dumped


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", [0, 20, 40])
def test_random_programs_do_not_notice_that_they_are_dumped_and_loaded(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)
    outcomes = []
    for seed in range(first, first + 20):
        difference, outcome = fuzz.check(seed, "dumped")
        assert difference is None, f"program {seed}: {difference}"
        assert not outcome.refused
        outcomes.append(outcome)
    assert sum(outcome.suspensions for outcome in outcomes) > 200
    assert sum(outcome.frames for outcome in outcomes) > 800


@pytest.mark.filterwarnings("ignore")
def test_a_generator_that_only_a_traceback_holds_is_no_difference() -> None:
    difference, outcome = fuzz.check(4733, "dumped")
    assert difference is None
    assert outcome.suspensions > 10


def test_a_program_that_holds_what_no_dump_takes_is_counted_by_what_that_is() -> None:
    async def holding(held: Any) -> None:
        await nap(1)

    coro = holding(threading.Lock())
    coro.send(None)
    world = World(0)
    with pytest.raises(dumped.Refused, match="thread lock"):
        dumped.Dumper(world, world.names(), None).replace(coro)
    coro.close()
