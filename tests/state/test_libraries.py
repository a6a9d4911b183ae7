"""A lock inside an object that a library vouches for is made anew; a held one and any other is refused."""

from __future__ import annotations

import threading

import pytest

import snaprt
from snaprt import state
from snaprt.state import libraries


class Vouched:
    def __init__(self) -> None:
        self.guard = threading.RLock()
        self.name = "kept"


class Unvouched(Vouched):
    pass


libraries.vouch(f"{__name__}:Vouched", "guard")


def test_a_free_lock_is_made_anew_where_its_type_is_vouched_for() -> None:
    saved = Vouched()
    [twice, again] = state.load(state.dump([saved, saved]).parts)
    assert twice is again
    assert twice.name == "kept"
    assert type(twice.guard) is type(saved.guard)
    assert twice.guard is not saved.guard
    assert twice.guard.acquire(blocking=False)


def test_a_held_lock_is_refused_all_the_same() -> None:
    saved = Vouched()
    with saved.guard, pytest.raises(snaprt.NotSerialisable, match=r"\.guard: threading\.RLock"):
        state.dump(saved)


def test_a_subclass_is_not_vouched_for() -> None:
    with pytest.raises(snaprt.NotSerialisable, match=r"\.guard: threading\.RLock"):
        state.dump(Unvouched())
