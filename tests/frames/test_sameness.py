"""A seeded sample of the sameness fuzzer; CONTRIBUTING shows how to run the long one."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.frames import fuzz


def sample(first: int, count: int) -> int:
    suspensions = 0
    for seed in range(first, first + count):
        difference, outcome = fuzz.check(seed)
        assert difference is None, f"program {seed}: {difference}"
        suspensions += outcome.suspensions
    return suspensions


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", range(0, 300, 50))
def test_random_programs_do_not_notice_that_their_frames_are_replaced(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)
    assert sample(first, 50) > 400


@pytest.mark.filterwarnings("ignore")
def test_tracing_does_not_change_what_a_thawed_frame_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)
    before = sys.gettrace()

    def tracer(frame: Any, event: str, arg: Any) -> Any:
        frame.f_trace_opcodes = True
        return tracer

    sys.settrace(tracer)
    try:
        suspensions = sample(1000, 5)
    finally:
        sys.settrace(before)
    assert suspensions > 20


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", [11534, 12301, 20640])
def test_a_generator_that_a_traceback_keeps_alive_is_no_difference(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)
    assert sample(seed, 1) > 10


def test_two_runs_that_differ_are_told_apart() -> None:
    one, other = fuzz.Outcome([["a"], ["b"]]), fuzz.Outcome([["a"], ["c"]])
    assert fuzz.first_difference(one, one) is None
    assert "event 1" in (fuzz.first_difference(one, other) or "")
    assert "2 events undisturbed, 1" in (fuzz.first_difference(one, fuzz.Outcome([["a"]])) or "")
