"""Whatever is killed, whenever: the run comes to what it comes to undisturbed, and nothing happens twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from snaprt.kernel import Kernel
from snaprt.runtime import restore
from tests.crash.matrix import run
from tests.crash.programs import PROGRAMS


def only(*names: str) -> list[Any]:
    found = [each for each in PROGRAMS if each.name in names]
    assert len(found) == len(names)
    return found


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_run_comes_through_a_crash_at_every_moment_and_through_thousands_at_random() -> None:
    report = run(PROGRAMS, 3900, seed=1)
    assert report.failures == []
    assert report.played == 3900
    # Every kind of moment was really there to die at.
    wanted = {
        "before create",
        "after create",
        "before read",
        "the kernel's advance",
        "the kernel's deliver",
        "a tool was called",
        "before a payment",
        "after a payment",
        "a reconcile hook",
    }
    assert wanted <= set(report.moments)


@pytest.mark.parametrize("name", [each.name for each in PROGRAMS])
def test_a_run_comes_through_crashes_in_the_middle_of_a_local_write(name: str) -> None:
    report = run(only(name), 12, seed=2, on_disk=True, random_only=True)
    assert report.failures == []
    assert {"half written", "link", "linked", "fsync", "unlink"} <= set(report.moments)


# --- the matrix has teeth -----------------------------------------------------------------------------


def test_it_notices_a_doubtful_write_that_is_simply_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    pending = Kernel.pending_calls
    monkeypatch.setattr(
        Kernel,
        "pending_calls",
        lambda kernel: [_as_a_read(call) for call in pending(kernel)],
    )
    report = run(only("writes"), 25, seed=3, random_only=True)
    assert any("payments for" in each for each in report.failures)


def _as_a_read(call: Any) -> Any:
    object.__setattr__(call, "effect", "read")
    return call


def test_it_notices_a_recorded_result_that_is_not_fed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore, "feed", lambda *args, **kwargs: set())
    report = run(only("reads"), 30, seed=3, random_only=True)
    assert any("was called again though its result was recorded" in each for each in report.failures)


def test_it_notices_a_state_that_is_older_than_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Kernel, "save", _first_state_only(Kernel.save))
    report = run(only("draws"), 30, seed=3, random_only=True)
    assert any("ran again though a later result was recorded" in each for each in report.failures)


def _first_state_only(save: Callable[[Kernel], Any]) -> Callable[[Kernel], Any]:
    def stale(kernel: Kernel) -> Any:
        kernel.first = getattr(kernel, "first", None) or save(kernel)  # type: ignore[attr-defined]
        kernel.dirty = False
        return kernel.first  # type: ignore[attr-defined]

    return stale


def test_the_same_seed_plays_the_same_schedules() -> None:
    first, again = (run(only("parallel_writes"), 20, seed=5, random_only=True) for _ in range(2))
    assert first == again
    assert first.played == 20
