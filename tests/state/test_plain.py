"""Plain values travel without any machinery, and nobody can tell."""

from __future__ import annotations

import collections
import socket
from typing import Any

import pytest

from snaprt import state
from snaprt.errors import NotSerialisable
from snaprt.state import plain

LIMITS = {"words": 3}


def travelled(value: Any) -> Any:
    return state.load(state.dump(value).parts)


PLAIN = {
    "a message": {"role": "assistant", "content": "words " * 20, "calls": [], "usage": {"in": 3, "out": 4.5}},
    "the pair of a result": ({"text": "x", "n": [1, 2, (3, None)]}, None),
    "sets and bytes": [{1, 2}, frozenset({"a"}), b"bytes", True, 1j],
    "text beyond ASCII": ["é", "\ud800", "😀"],
}


@pytest.mark.parametrize("value", PLAIN.values(), ids=PLAIN)
def test_a_plain_value_is_pickled_as_it_is_and_comes_back_equal(value: Any) -> None:
    assert plain.pickled(value, False) is not None
    found = travelled(value)
    assert found == value
    assert repr(found) == repr(value)


def test_what_stands_at_two_places_or_in_itself_does_so_again() -> None:
    shared = ["both"]
    found = travelled((shared, {"again": shared}))
    assert found[0] is found[1]["again"]
    circle: list[Any] = [1]
    circle.append(circle)
    found = travelled(circle)
    assert found[1] is found


def test_a_container_that_a_module_has_stays_that_very_one() -> None:
    for value in (LIMITS, [LIMITS], {"limits": (LIMITS,)}):
        state.dump(value)
        assert plain.pickled(value, False) is None
    assert travelled([1, LIMITS])[1] is LIMITS


NOT_PLAIN = {
    "a subclass": collections.OrderedDict(a=1),
    "a subclass within": [collections.Counter("aab")],
    "a buffer": bytearray(b"can change"),
    "an instance": [ValueError("x")],
    "a long text": "x" * 100_000,
    "many": list(range(10_000)),
    "a key": {collections.namedtuple("Key", "a")(1): 2},  # a subclass of tuple is what's wanted
}


@pytest.mark.parametrize("value", NOT_PLAIN.values(), ids=NOT_PLAIN)
def test_whatever_else_there_is_takes_the_usual_way(value: Any) -> None:
    assert plain.pickled(value, False) is None


def test_a_handle_deep_in_plain_values_is_found_and_refused() -> None:
    with socket.socket() as handle, pytest.raises(NotSerialisable, match=r"\['a'\] → \[1\]: socket"):
        state.dump({"a": [1, handle]})


def test_values_nested_deeper_than_a_stack_travel() -> None:
    value: list[Any] = []
    for _ in range(5000):
        value = [value]
    found, depth = travelled(value), 0
    while found:
        found, depth = found[0], depth + 1
    assert depth == 5000
