"""Large states pass with little more memory than they take themselves."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.conftest import S3
from tests.store.memory import measure

SIZE = 200_000_000


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="the peak is measured with getrusage")
def test_a_large_state_is_saved_and_restored_with_less_than_three_times_its_size(tmp_path: Path) -> None:
    found = measure(SIZE, str(tmp_path))
    assert found["save"] < 3, found
    assert found["restore"] < 3, found


@pytest.mark.slow
@pytest.mark.s3
def test_the_same_holds_on_s3(s3: S3) -> None:
    found = measure(SIZE, s3.url)
    assert found["save"] < 3, found
    assert found["restore"] < 3, found
