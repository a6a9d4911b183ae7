"""A lock inside an object that a library vouches for is made anew; a held one and any other is refused.
What a library makes once and remembers is that one after a load."""

from __future__ import annotations

import threading
from typing import Any, Generic, TypeVar

import pydantic
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


T = TypeVar("T")


class Box(pydantic.BaseModel, Generic[T]):
    content: T


class Item(pydantic.BaseModel):
    a: int


@pytest.mark.parametrize("argument", [int, Item, list[Item], int | None], ids=str)
def test_a_parametrised_model_is_the_one_that_its_model_gives(argument: Any) -> None:
    kind: Any = Box[argument]
    back, twice = state.load(state.dump([kind.model_construct(content=None), kind]).parts)
    assert type(back) is kind
    assert twice is kind


def test_a_parametrised_model_that_travels_by_value_is_the_one_that_its_model_gives() -> None:
    class Local(pydantic.BaseModel, Generic[T]):
        content: T

    class Part(pydantic.BaseModel):
        a: int

    saved = Local, Part, Local[int](content=1), Box[Part](content=Part(a=1))
    local, part, back, box = state.load(state.dump([*saved]).parts)
    assert local is not Local
    assert type(back) is local[int]
    assert type(back) is type(local[int](content=2))
    assert type(box) is Box[part]
    assert type(box.content) is part
    with pytest.raises(pydantic.ValidationError):
        local[int](content="no number")
