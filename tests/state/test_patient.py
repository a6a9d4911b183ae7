"""Objects that are hashed by their contents and lie in a cycle through a set or dict."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

import snaprt.state as state
from snaprt.errors import NotRestorable


@dataclass(frozen=True)
class Node:
    name: str
    peers: set[Any] = field(default_factory=set, compare=False)
    table: dict[Any, Any] = field(default_factory=dict, compare=False)


def twin(value: Any) -> Any:
    return state.load(state.dump(value).parts)


def test_peers_that_hold_each_other_in_sets_come_back_whole() -> None:
    first, second = Node("a"), Node("b")
    first.peers.update({first, second, "text"})
    second.peers.add(first)
    one, other = twin([first, second])
    assert one.peers == {one, other, "text"}
    assert other.peers == {one}
    assert next(iter(other.peers)) is one


def test_entries_of_a_dict_keep_their_order_also_those_that_had_to_wait() -> None:
    node, other = Node("a"), Node("b")
    node.table.update({1: "one", node: "mine", 2: "two", other: node, 3: [node]})
    found = twin(node)
    assert list(found.table) == [1, found, 2, Node("b"), 3]
    assert found.table[found] == "mine"
    assert found.table[3][0] is found


def test_what_cant_wait_is_told() -> None:
    node = Node("a")
    node.table["all"] = frozenset([node])
    with pytest.raises(NotRestorable, match="has no attribute 'name'"):
        twin(node)
