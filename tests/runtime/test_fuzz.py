"""A seeded sample of the runtime's fuzzer; CONTRIBUTING.md shows how to run more of it."""

from __future__ import annotations

import pytest

from tests.runtime import fuzz


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    for name in fuzz.LOUD:
        caplog.set_level(fuzz.SILENT, name)


@pytest.mark.parametrize("block", range(3))
def test_programs_shared_by_workers_that_die_come_to_what_they_come_to_undisturbed(block: int) -> None:
    lives = 0
    for seed in range(block * 15, block * 15 + 15):
        found, count = fuzz.difference(seed)
        assert found is None, found
        lives += count
    assert lives > 50
