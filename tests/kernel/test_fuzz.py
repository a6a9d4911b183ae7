"""A seeded sample of the fuzzer; CONTRIBUTING.md shows how to run more of it."""

from __future__ import annotations

import logging

import pytest

from .fuzz import difference


@pytest.mark.parametrize("block", range(5))
def test_random_programs_saved_at_every_idle_moment_show_the_trace_of_the_undisturbed(
    block: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL + 1, "asyncio")  # programs leave exceptions unretrieved
    saves = 0
    for seed in range(block * 30, block * 30 + 30):
        found, count = difference(seed)
        assert found is None, found
        saves += count
    assert saves > 100
