"""Iterators keep their type, their position and what they share; nothing is called or consumed by a save."""

from __future__ import annotations

import itertools as it
import operator
import sys
import warnings
from collections import Counter, OrderedDict, defaultdict, deque

import pytest

import snaprt.state as state
from snaprt.errors import NotSerialisable


def twin(obj):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return state.load(state.dump(obj).parts)


class Letters:
    """Iterable through `__getitem__` alone."""

    def __getitem__(self, index):
        return "abcdefg"[index]

    def __len__(self):
        return 7


def numbers():
    yield from range(7)


def is_small(n):
    return n < 4


ITERATORS = {
    "list": lambda: iter(list("abcdefg")),
    "reversed list": lambda: reversed(list("abcdefg")),
    "tuple": lambda: iter(tuple("abcdefg")),
    "range": lambda: iter(range(7)),
    "long range": lambda: iter(range(2**70, 2**70 + 7)),
    "reversed range": lambda: reversed(range(7)),
    "ascii": lambda: iter("abcdefg"),
    "text": lambda: iter("äöüßéèê"),
    "bytes": lambda: iter(b"abcdefg"),
    "bytearray": lambda: iter(bytearray(b"abcdefg")),
    "sequence": lambda: iter(Letters()),
    "reversed sequence": lambda: reversed(Letters()),
    "deque": lambda: iter(deque("abcdefg")),
    "reversed deque": lambda: reversed(deque("abcdefg")),
    "keys": lambda: iter(dict.fromkeys("abcdefg", 1)),
    "values": lambda: iter(dict(zip("abcdefg", range(7), strict=True)).values()),
    "items": lambda: iter(dict(zip("abcdefg", range(7), strict=True)).items()),
    "reversed keys": lambda: reversed(dict.fromkeys("abcdefg", 1)),
    "reversed values": lambda: reversed(dict(zip("abcdefg", range(7), strict=True)).values()),
    "reversed items": lambda: reversed(dict(zip("abcdefg", range(7), strict=True)).items()),
    "defaultdict": lambda: iter(defaultdict(int, dict(zip("abcdefg", range(7), strict=True)))),
    "enumerate": lambda: enumerate("abcdefg", 5),
    "zip": lambda: zip("abcdefg", iter(range(7)), strict=True),
    "map": lambda: map(operator.add, range(7), range(7)),
    "filter": lambda: filter(None, [1, 2, 3, 0, 4, 5]),
    "enumerate of a generator": lambda: enumerate(numbers()),
    "map of a generator": lambda: map(str, numbers()),
    "zip of generators": lambda: zip(numbers(), numbers(), strict=False),
    "filter of a generator": lambda: filter(is_small, numbers()),
    "generator": numbers,
    "generator expression": lambda: (n * n for n in [1, 2, 3, 4, 5]),
    "count": lambda: it.count(5),
    "count by a fraction": lambda: it.count(0.5, 0.25),
    "count of large numbers": lambda: it.count(2**70, 3),
    "cycle": lambda: it.cycle([1, 2, 3]),
    "cycle of a generator": lambda: it.cycle(numbers()),
    "repeat": lambda: it.repeat("x", 6),
    "repeat for ever": lambda: it.repeat("x"),
    "accumulate": lambda: it.accumulate([1, 2, 3, 4, 5, 6]),
    "accumulate with function": lambda: it.accumulate([1, 2, 3, 4, 5, 6], operator.mul),
    "accumulate from": lambda: it.accumulate([1, 2, 3, 4, 5, 6], initial=100),
    "batched": lambda: (
        it.batched(numbers(), 2) if sys.version_info >= (3, 12) else iter([(0, 1), (2, 3), (4, 5)])
    ),
    "chain": lambda: it.chain("ab", [1, 2], numbers()),
    "chain.from_iterable": lambda: it.chain.from_iterable(["ab", "cd", numbers()]),
    "combinations": lambda: it.combinations("abcde", 3),
    "combinations of doubles": lambda: it.combinations("aabb", 2),
    "combinations_with_replacement": lambda: it.combinations_with_replacement("abcd", 3),
    "compress": lambda: it.compress("abcdefg", [1, 0, 1, 1, 1, 1, 0]),
    "dropwhile": lambda: it.dropwhile(is_small, [1, 2, 5, 1, 6, 2]),
    "filterfalse": lambda: it.filterfalse(is_small, [1, 5, 2, 6, 7, 8, 9]),
    "islice": lambda: it.islice(numbers(), 1, 6),
    "islice with steps": lambda: it.islice(range(30), 2, None, 4),
    "pairwise": lambda: it.pairwise(numbers()),
    "permutations": lambda: it.permutations("abcd", 3),
    "product": lambda: it.product("abc", [1, 2], repeat=2),
    "starmap": lambda: it.starmap(pow, [(2, 1), (2, 2), (2, 3), (2, 4), (2, 5)]),
    "takewhile": lambda: it.takewhile(is_small, [1, 2, 3, 3, 2, 9, 1]),
    "zip_longest": lambda: it.zip_longest("ab", range(5), fillvalue="-"),
}


@pytest.mark.parametrize("name", ITERATORS)
def test_an_iterator_goes_on_where_it_stood_however_often_it_is_saved(name):
    make = ITERATORS[name]
    expected = list(it.islice(make(), 8))
    for taken in range(len(expected) + 1):
        iterator = make()
        assert list(it.islice(iterator, taken)) == expected[:taken]
        again = twin(iterator)
        assert type(again) is type(iterator)
        # The copy goes on, and so does the original: saving took nothing from it.
        assert list(it.islice(again, 8 - taken)) == expected[taken:]
        assert list(it.islice(iterator, 8 - taken)) == expected[taken:]
    iterator = make()
    got = []
    for _ in expected:
        iterator = twin(iterator)
        got.append(next(iterator))
    assert got == expected


def test_a_hundred_saves_pile_nothing_up():
    for make in (
        lambda: it.chain([1] * 200, [2] * 200),
        lambda: it.accumulate([1] * 400),
        lambda: it.pairwise(iter(range(400))),
        lambda: it.zip_longest(range(400), range(3)),
        lambda: it.groupby([n // 50 for n in range(400)]),
        lambda: it.dropwhile(is_small, it.count()),
    ):
        iterator = make()
        next(iterator)
        size = len(bytes(state.dump(twin(iterator))))
        for _ in range(100):
            iterator = twin(iterator)
            next(iterator, None)
        assert len(bytes(state.dump(iterator))) < size * 1.5


def test_a_list_iterator_still_walks_its_own_list():
    items = [1, 2, 3]
    iterator = iter(items)
    next(iterator)
    again, iterator = twin((items, iterator))
    again.append(4)
    assert list(iterator) == [2, 3, 4]


def test_a_dict_iterator_still_notices_that_its_dict_changes():
    table = {1: "a", 2: "b", 3: "c"}
    iterator = iter(table.items())
    next(iterator)
    again, iterator = twin((table, iterator))
    assert next(iterator) == (2, "b")
    again[4] = "d"
    with pytest.raises(RuntimeError, match="changed size"):
        next(iterator)


def test_a_dict_iterator_whose_dict_changed_before_the_save_says_so_after_it():
    table = {1: "a", 2: "b", 3: "c"}
    iterator = iter(table)
    next(iterator)
    table[4] = "d"
    with pytest.raises(RuntimeError, match="changed size"):
        next(twin(iterator))


def test_a_dict_iterator_stays_right_when_its_dict_was_built_with_gaps():
    table = dict.fromkeys(range(9))
    del table[1], table[4]
    keys = iter(table)
    assert [next(keys), next(keys)] == [0, 2]
    assert list(twin(keys)) == [3, 5, 6, 7, 8]


def test_a_dict_iterator_that_cant_be_placed_is_refused():
    table = dict.fromkeys(range(6))
    keys = iter(table)
    assert (next(keys), next(keys)) == (0, 1)
    del table[1]
    table[9] = None
    with pytest.raises(NotSerialisable, match="keys were exchanged"):
        twin(keys)


def test_a_set_iterator_gives_exactly_the_elements_that_were_left():
    iterator = iter({"a", "b", "c", "d"})
    seen = [next(iterator)]
    again = twin(iterator)
    rest = list(iterator)
    assert list(again) == rest
    assert sorted(seen + rest) == ["a", "b", "c", "d"]


def test_an_ordered_dicts_iterator_gives_exactly_what_was_left():
    iterator = iter(OrderedDict.fromkeys("abc"))
    next(iterator)
    assert list(twin(iterator)) == ["b", "c"]


def test_tees_go_on_sharing_what_they_read():
    source = numbers()
    one, two = it.tee(source)
    assert [next(one), next(one), next(two)] == [0, 1, 0]
    one, two, source = twin((one, two, source))
    assert next(one) == 2
    assert next(source) == 3
    assert list(two) == [1, 2, 4, 5, 6]
    assert list(one) == [4, 5, 6]


def test_tees_far_apart_go_on_from_their_own_places():
    one, two = it.tee(iter(range(300)))
    for _ in range(170):
        next(one)
    for _ in range(3):
        next(two)
    one, two = twin(twin((one, two)))
    assert list(one) == list(range(170, 300))
    assert list(two) == list(range(3, 300))


def test_groups_and_their_groupby_go_on_together():
    calls = Counter()

    def key(n):
        calls[n] += 1
        return n // 3

    grouped = it.groupby(range(9), key)
    number, group = next(grouped)
    assert (number, next(group)) == (0, 0)
    grouped, group, calls_again = twin((grouped, group, calls))
    assert list(group) == [1, 2]
    number, group = next(grouped)
    assert (number, next(group)) == (1, 3)
    grouped, group, calls_again = twin((grouped, group, calls_again))
    assert [(number, list(items)) for number, items in grouped] == [(2, [6, 7, 8])]
    assert list(group) == []
    assert set(calls_again.values()) == {1}


CALLED = []


def call():
    CALLED.append(1)
    return len(CALLED)


def test_iter_of_a_callable_calls_nothing_when_saved_or_loaded():
    CALLED.clear()
    iterator = iter(call, 4)
    assert next(iterator) == 1
    again = twin(iterator)
    assert CALLED == [1]
    assert list(again) == [2, 3]
    assert list(twin(again)) == []


def test_views_stay_views_of_their_dict():
    table = {1: "a"}
    again, keys, values, items = twin((table, table.keys(), table.values(), table.items()))
    again[2] = "b"
    assert list(keys) == [1, 2]
    assert list(values) == ["a", "b"]
    assert list(items) == [(1, "a"), (2, "b")]


def test_a_generator_shared_by_two_iterators_stays_shared():
    source = numbers()
    pairs = zip(source, source, strict=False)
    source, pairs = twin((source, pairs))
    assert next(pairs) == (0, 1)
    assert next(source) == 2
    assert next(pairs) == (3, 4)
