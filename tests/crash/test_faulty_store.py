"""Runs end right through a network that delays, cuts, answers 503 and loses answers after the write."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import S3
from tests.crash.lives import Place
from tests.crash.proxy import FAULTS, drive


@pytest.mark.s3
@pytest.mark.slow
def test_runs_through_a_faulty_network_end_right_and_pay_once(s3: S3, tmp_path: Path) -> None:
    proxy, lives = drive(Place(s3.url, s3.environment), tmp_path, 24, seed=1, rate=0.15)
    assert all(proxy.happened[fault] for fault in FAULTS), proxy.happened
    assert lives < 2 * 24, "the store's faults are ridden out, as a rule, and don't stop a run"
