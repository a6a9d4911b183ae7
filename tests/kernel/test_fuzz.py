"""A seeded sample of the fuzzer; CONTRIBUTING.md shows how to run more of it."""

from __future__ import annotations

import logging

import pytest

from .fuzz import PLAIN, Dialect, difference
from .fuzz_people import PEOPLE


@pytest.mark.parametrize("block", range(5))
def test_random_programs_saved_at_every_idle_moment_show_the_trace_of_the_undisturbed(
    block: int, caplog: pytest.LogCaptureFixture
) -> None:
    _sample(PLAIN, block, caplog)


@pytest.mark.parametrize("block", range(3))
def test_so_do_those_that_wait_for_people_messages_times_and_children_and_are_cancelled(
    block: int, caplog: pytest.LogCaptureFixture
) -> None:
    _sample(PEOPLE, block, caplog)


def _sample(dialect: Dialect, block: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1, "asyncio")  # programs leave exceptions unretrieved
    saves = 0
    for seed in range(block * 30, block * 30 + 30):
        found, count = difference(seed, dialect)
        assert found is None, found
        saves += count
    assert saves > 100
