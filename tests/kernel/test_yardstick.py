"""CPython's own async tests hold on the agent loop, saved at every idle moment or not."""

from __future__ import annotations

import logging

import pytest

from .yardstick import measure, why_not


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # CPython's tests provoke warnings
def test_cpythons_own_async_tests_hold_or_have_a_known_reason(caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("test.test_asyncio", reason="this Python comes without its test package")
    caplog.set_level(logging.CRITICAL + 1)
    counts, wrong = measure()
    assert {name: said for name, said in wrong.items() if why_not(name) is None} == {}
    assert counts["saved"] > 150
