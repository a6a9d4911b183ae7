"""Iterators of itertools, with position and type.

Up to CPython 3.13 they tell how they are pickled, though from 3.12 on with a deprecation warning; 3.14 lost
that, and `pairwise` and `batched` never could. Those are read from memory here: the fields of their C structs
are all pointers and integers of eight bytes. A pointer is taken for an object only if the garbage collector
names an object at that address among those that the iterator holds.

They are made again with what they are made with anyway, and no item is asked of an iterator below that hadn't
been asked already: what was taken and not yet given is put in front of the rest (`Then`), which a later dump
takes off again, so that nothing piles up from save to save.

This file must not know iterators of builtins (`iterators`).
"""

from __future__ import annotations

import copy
import ctypes
import gc
import itertools
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from snaprt.errors import NotCapturable
from snaprt.state.reducers import Reduced, reducer
from snaprt.state.sessions import Dumping, loading

_NOTHING: Any = object()


class Then:
    """An iterator that gives some items, and then those of another one."""

    __slots__ = ("first", "rest")

    def __init__(self, first: Iterable[Any], rest: Any) -> None:
        self.first = list(first)
        self.rest = rest

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self.first:
            return self.first.pop(0)
        return next(self.rest)


def _below(iterator: Any) -> tuple[list[Any], Any]:
    """An iterator as the items in front of it and what comes then."""
    first: list[Any] = []
    while type(iterator) is Then:
        first += iterator.first
        iterator = iterator.rest
    return first, iterator


def _joined(first: list[Any], rest: Any) -> Any:
    return Then(first, rest) if first else rest


@reducer(Then)
def reduce_then(then: Then, dumping: Dumping) -> Reduced:
    return Then, ((), None), _below(then), None, None, fill_then


def fill_then(then: Then, state: tuple[list[Any], Any]) -> None:
    then.first, then.rest = list(state[0]), state[1]


# --- up to 3.13 ------------------------------------------------------------------------------------

_TELLING = [
    *("accumulate", "chain", "combinations", "combinations_with_replacement", "compress", "count", "cycle"),
    *("dropwhile", "filterfalse", "islice", "permutations", "product", "repeat", "starmap", "takewhile"),
    *("zip_longest", "_tee", "_tee_dataobject"),
]


def reduce_telling(iterator: Any, dumping: Dumping) -> Reduced:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        reduced = iterator.__reduce__()
    if len(reduced) < 3 or reduced[2] is None:
        return rebuild, reduced[:2]
    return rebuild, reduced[:2], reduced[2], None, None, set_state


def rebuild(make: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return make(*args)


def set_state(iterator: Any, state: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        iterator.__setstate__(state)


if sys.version_info < (3, 14):
    for _name in _TELLING:
        reducer(getattr(itertools, _name))(reduce_telling)

# --- reading --------------------------------------------------------------------------------------

_HEAD = object.__basicsize__


def _read(iterator: Any, layout: str) -> list[Any]:
    """The fields of an iterator: O an object or _NOTHING, n an integer, i a C int, b a flag."""
    held = {id(obj): obj for obj in gc.get_referents(iterator)}
    fields: list[Any] = []
    for at, letter in enumerate(layout):
        address = id(iterator) + _HEAD + 8 * at
        if letter == "n":
            fields.append(ctypes.c_ssize_t.from_address(address).value)
        elif letter == "i":
            fields.append(ctypes.c_int.from_address(address).value)
        elif letter == "b":
            fields.append(bool(ctypes.c_uint8.from_address(address).value))
        else:
            pointer = ctypes.c_size_t.from_address(address).value
            if pointer and pointer not in held:
                raise NotCapturable(
                    f"Can't read {type(iterator).__name__}: it isn't laid out as on a proven interpreter."
                )
            fields.append(held[pointer] if pointer else _NOTHING)
    return fields


def _indices(iterator: Any, at: int, count: int) -> list[int]:
    address = ctypes.c_size_t.from_address(id(iterator) + _HEAD + 8 * at).value
    if not address:
        return []
    return list((ctypes.c_ssize_t * count).from_address(address))


def pairwise(first: list[Any], rest: Any) -> Any:
    return itertools.pairwise(_joined(first, rest))


@reducer(itertools.pairwise)
def reduce_pairwise(iterator: Any, dumping: Dumping) -> Reduced:
    below, old = _read(iterator, "OO")
    if below is _NOTHING:
        return pairwise, ([], iter(()))
    first, rest = _below(below)
    return pairwise, (first if old is _NOTHING else [old, *first], rest)


def batched(rest: Any, size: int, strict: bool) -> Any:
    make: Any = itertools.batched  # type: ignore[attr-defined]  # from 3.12 on
    return make(rest, size, strict=True) if strict else make(rest, size)


def reduce_batched(iterator: Any, dumping: Dumping) -> Reduced:
    below, size, *strict = _read(iterator, "Onb" if sys.version_info >= (3, 13) else "On")
    return batched, (iter(()) if below is _NOTHING else below, size, bool(strict and strict[0]))


if sys.version_info >= (3, 12):
    reducer(itertools.batched)(reduce_batched)


# --- groupby, whose own way to be pickled forgets in which group it is ----------------------------------

# A group's iterator is only alive as long as its `groupby` stands at that group;
# it is made by stepping into it.


_GROUP = type(next(itertools.groupby([0]))[1])


class _FirstKey:
    """A key function that knows the key of the item at hand, so that the user's isn't called for it again."""

    __slots__ = ("function", "known")

    def __init__(self, known: list[Any], function: Any) -> None:
        self.known = known
        self.function = function

    def __call__(self, item: Any) -> Any:
        if self.known:
            return self.known.pop()
        return item if self.function is None else self.function(item)


@reducer(_FirstKey)
def reduce_first_key(key: _FirstKey, dumping: Dumping) -> Reduced:
    return _FirstKey, (key.known, key.function)


@reducer(itertools.groupby)
def reduce_groupby(iterator: Any, dumping: Dumping) -> Reduced:
    below, function, target, current, value = _read(iterator, "OOOOO")
    if type(function) is _FirstKey and not function.known:
        function = function.function
    first, rest = _below(below)
    if value is _NOTHING:
        if target is _NOTHING:
            return groupby, (first, rest, function, False)
        # Within a group, whose last item has been given: an item nobody sees takes its place.
        return groupby, ([None, *first], rest, function, True, target, True)
    # `is` first, as groupby itself compares.
    inside = target is not _NOTHING and (target is current or bool(target == current))
    return groupby, ([value, *first], rest, function, inside, current)


def groupby(
    first: list[Any], rest: Any, function: Any, inside: bool, current: Any = _NOTHING, given: bool = False
) -> Any:
    key = function if current is _NOTHING else _FirstKey([current], function)
    iterator = itertools.groupby(_joined(first, rest), key)
    if inside:
        group = next(iterator)[1]
        loading().groups[id(iterator)] = (iterator, group)
        if given:
            next(group)
    return iterator


@reducer(_GROUP)
def reduce_group(group: Any, dumping: Dumping) -> Reduced:
    parent, _ = _read(group, "OO")
    current = ctypes.c_size_t.from_address(id(parent) + _HEAD + 40).value
    if current != id(group):
        return spent_group, ()
    return group_of, (parent,)


def group_of(parent: Any) -> Any:
    known = loading().groups.get(id(parent))
    return spent_group() if known is None else known[1]


def spent_group() -> Any:
    group = next(itertools.groupby([0]))[1]
    next(group)
    next(group, None)
    return group


# --- 3.14 and later -------------------------------------------------------------------------------


def reduce_count(iterator: Any, dumping: Dumping) -> Reduced:
    number, long, step = _read(iterator, "nOO")
    return itertools.count, (number if long is _NOTHING or number != sys.maxsize else long, step)


def reduce_repeat(iterator: Any, dumping: Dumping) -> Reduced:
    item, left = _read(iterator, "On")
    return itertools.repeat, (item,) if left < 0 else (item, left)


def reduce_chain(iterator: Any, dumping: Dumping) -> Reduced:
    source, active = _read(iterator, "OO")
    if source is _NOTHING:
        return chain, ([], iter(()))
    first, rest = _below(source)
    return chain, (first if active is _NOTHING else [active, *first], rest)


def chain(first: list[Any], rest: Any) -> Any:
    return itertools.chain.from_iterable(_joined(first, rest))


def reduce_islice(iterator: Any, dumping: Dumping) -> Reduced:
    below, following, stop, step, done = _read(iterator, "Onnnn")
    if below is _NOTHING:
        return islice, (iter(()), 0, 0, 1)
    return islice, (below, max(following - done, 0), None if stop < 0 else max(stop - done, 0), step)


def islice(below: Any, start: int, stop: int | None, step: int) -> Any:
    return itertools.islice(below, start if stop is None else min(start, stop), stop, step)


def reduce_takewhile(iterator: Any, dumping: Dumping) -> Reduced:
    function, below, stopped = _read(iterator, "OOi")
    return itertools.takewhile, (function, iter(()) if stopped else below)


def reduce_dropwhile(iterator: Any, dumping: Dumping) -> Reduced:
    function, below, started = _read(iterator, "OOi")
    return itertools.dropwhile, (drop_nothing if started else function, below)


def drop_nothing(item: object) -> bool:
    """What a `dropwhile` that has begun to give items asks of the rest."""
    return False


def reduce_two(iterator: Any, dumping: Dumping) -> Reduced:
    return type(iterator), tuple(_read(iterator, "OO"))


def reduce_accumulate(iterator: Any, dumping: Dumping) -> Reduced:
    total, below, function, initial = _read(iterator, "OOOO")
    function = None if function is _NOTHING else function
    if initial is not _NOTHING and initial is not None:
        return accumulate_from, (below, function, initial)
    first, rest = _below(below)
    return accumulate, (first, rest, function, *(() if total is _NOTHING else (total,)))


def accumulate_from(below: Any, function: Any, initial: Any) -> Any:
    return itertools.accumulate(below, function, initial=initial)


def accumulate(first: list[Any], rest: Any, function: Any, *total: Any) -> Any:
    iterator = itertools.accumulate(_joined([*total, *first], rest), function)
    if total:
        next(iterator)  # the first item is the total as it is; nothing is called for it
    return iterator


def reduce_cycle(iterator: Any, dumping: Dumping) -> Reduced:
    below, saved, index = _read(iterator, "OOn")
    if below is _NOTHING:
        return cycle, (saved, index, iter(()))
    return cycle, (saved, len(saved), _joined(*_below(below)))


def cycle(saved: list[Any], done: int, rest: Any) -> Any:
    iterator = itertools.cycle(Then(saved, rest))
    next(itertools.islice(iterator, done, done), None)
    return iterator


def reduce_zip_longest(iterator: Any, dumping: Dumping) -> Reduced:
    size = _read(iterator, "n")[0]
    below = ctypes.c_size_t.from_address(id(iterator) + _HEAD + 16).value
    tuples = [obj for obj in gc.get_referents(iterator) if id(obj) == below]
    if not tuples:
        raise NotCapturable("Can't read zip_longest: it isn't laid out as on a proven interpreter.")
    # Exhausted iterators are NULL in that tuple, so it must not be read as a tuple.
    held = {id(obj): obj for obj in gc.get_referents(tuples[0])}
    start = below + tuple.__basicsize__
    pointers = (ctypes.c_size_t * size).from_address(start)
    fill = _read(iterator, "nnnnO")[4]
    return zip_longest, (
        tuple(held[p] if p else iter(()) for p in pointers),
        None if fill is _NOTHING else fill,
    )


def zip_longest(iterators: tuple[Any, ...], fill: Any) -> Any:
    return itertools.zip_longest(*iterators, fillvalue=fill)


# Making one again means stepping to where it stood; this many steps take about half a second.
_STEPS = 20_000_000


def _stepping(make: Callable[..., Any], args: tuple[Any, ...], steps: int) -> Reduced:
    if steps > _STEPS:
        raise NotCapturable(
            f"Can't put {make.__name__} back after {steps} items: this interpreter only steps there "
            "one by one."
        )
    return step_to, (make, args, steps)


def step_to(make: Callable[..., Any], args: tuple[Any, ...], steps: int) -> Any:
    iterator = make(*args)
    next(itertools.islice(iterator, steps, steps), None)
    return iterator


def reduce_product(iterator: Any, dumping: Dumping) -> Reduced:
    pools, _, result, stopped = _read(iterator, "OnOi")
    if stopped:
        return itertools.product, ((),)
    rank = 0
    if result is not _NOTHING:
        for pool, index in zip(pools, _indices(iterator, 1, len(pools)), strict=True):
            rank = rank * len(pool) + index
        rank += 1
    return _stepping(itertools.product, pools, rank)


def reduce_combinations(iterator: Any, dumping: Dumping) -> Reduced:
    pool, _, result, size, stopped = _read(iterator, "OnOni")
    if stopped:
        return type(iterator), ((), 1)
    repeated = type(iterator) is itertools.combinations_with_replacement
    rank = 0
    if result is not _NOTHING:
        low = 0
        for at, index in enumerate(_indices(iterator, 1, size)):
            for skipped in range(low, index):
                left, places = len(pool) - skipped, size - at - 1
                rank += math.comb(left + places - 1, places) if repeated else math.comb(left - 1, places)
            low = index if repeated else index + 1
        rank += 1
    return _stepping(type(iterator), (pool, size), rank)


def reduce_permutations(iterator: Any, dumping: Dumping) -> Reduced:
    pool, _, _, result, size, stopped = _read(iterator, "OnnOni")
    if stopped:
        return type(iterator), ((), 1)
    rank = 0
    if result is not _NOTHING:
        left = list(range(len(pool)))
        for at, index in enumerate(_indices(iterator, 1, len(pool))[:size]):
            rank += left.index(index) * math.perm(len(left) - 1, size - at - 1)
            left.remove(index)
        rank += 1
    return _stepping(type(iterator), (pool, size), rank)


# What several `tee`s share is a list of items that one of them has still to give, and a link to the next such
# list. Each list comes back as a `tee` that stays at its beginning, and the others as copies that step on.


def reduce_tee(iterator: Any, dumping: Dumping) -> Reduced:
    shared, done = _read(iterator, "Oi")
    return tee, (shared, done)


def reduce_tee_list(shared: Any, dumping: Dumping) -> Reduced:
    below, _, link = _read(shared, "OnO")
    held = {id(obj): obj for obj in gc.get_referents(shared)}
    count = ctypes.c_int.from_address(id(shared) + _HEAD + 8).value
    pointers = (ctypes.c_size_t * count).from_address(id(shared) + _HEAD + 24)
    if any(pointer not in held for pointer in pointers):
        raise NotCapturable("Can't read tee: it isn't laid out as on a proven interpreter.")
    items = [held[pointer] for pointer in pointers]
    if link is not _NOTHING:
        return tee_list, (items, link, True)
    first, rest = _below(below)
    return tee_list, ([*items, *first], rest, False)


def tee_list(items: list[Any], rest: Any, linked: bool) -> Any:
    return itertools.tee(Then(items, copy.copy(rest) if linked else rest), 1)[0]


def tee(shared: Any, done: int) -> Any:
    iterator = copy.copy(shared)
    next(itertools.islice(iterator, done, done), None)
    return iterator


def _register_for_3_14() -> None:
    reducer(itertools.count)(reduce_count)
    reducer(itertools.repeat)(reduce_repeat)
    reducer(itertools.chain)(reduce_chain)
    reducer(itertools.islice)(reduce_islice)
    reducer(itertools.takewhile)(reduce_takewhile)
    reducer(itertools.dropwhile)(reduce_dropwhile)
    reducer(itertools.accumulate)(reduce_accumulate)
    reducer(itertools.cycle)(reduce_cycle)
    reducer(itertools.zip_longest)(reduce_zip_longest)
    reducer(itertools.product)(reduce_product)
    reducer(itertools.permutations)(reduce_permutations)
    reducer(itertools.combinations)(reduce_combinations)
    reducer(itertools.combinations_with_replacement)(reduce_combinations)
    reducer(type(itertools.tee([], 1)[0]))(reduce_tee)
    reducer(itertools._tee_dataobject)(  # type: ignore[attr-defined]  # what tees share has no public name
        reduce_tee_list
    )
    for kind in (itertools.filterfalse, itertools.starmap, itertools.compress):
        reducer(kind)(reduce_two)


if sys.version_info >= (3, 14):
    _register_for_3_14()
