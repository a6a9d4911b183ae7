"""Functions in a `functools.lru_cache`, with what is in their caches.

A cached function that its module holds is that function, with that process's cache. Any other is made anew,
and its cache is filled by calling it: while that lasts, what it calls gives back the results that were known.
So its contents come in the order in which they will be forgotten, and nothing is computed; its counts of hits
and misses start again.

The cache itself is read through the garbage collector, which names each link's key and result in that order,
then the cache's own dict, the function and the mark between positional and named arguments. Where that isn't
so, the cache comes back empty, as it may be after any call.

This file must not know how the function itself travels (`functions`).
"""

from __future__ import annotations

import functools
import gc
import sys
from typing import Any, TypeAlias

from snaprt.state import modules
from snaprt.state.functions import attribute, found_by_name
from snaprt.state.reducers import Reduced, reducer
from snaprt.state.sessions import Dumping, loading

Entry: TypeAlias = "tuple[tuple[Any, ...], dict[str, Any], Any]"
"""Arguments, named ones, result."""

CACHED = type(functools.lru_cache(len))


@reducer(CACHED)
def reduce_cached(cached: Any, dumping: Dumping) -> Reduced:
    module, qualname = getattr(cached, "__module__", None), getattr(cached, "__qualname__", "<")
    if modules.importable(module):
        try:
            if attribute(sys.modules[module], qualname) is cached:
                return found_by_name, (module, qualname)
        except AttributeError:
            pass
    limits = cached.cache_parameters()
    made = make_cached, (limits["maxsize"], limits["typed"])
    names = {name: value for name, value in vars(cached).items() if name != "cache_parameters"}
    return (*made, (names, contents(cached)), None, None, fill_cached)


def contents(cached: Any) -> list[Entry]:
    """What is in the cache, what will be forgotten first in front."""
    limits, size = cached.cache_parameters(), cached.cache_info().currsize
    held = gc.get_referents(cached)
    at = 1 if limits["maxsize"] is None else 1 + 3 * size  # its type, and each link's key, result and type
    if not size or len(held) < at + 3 or type(held[at]) is not dict or len(held[at]) != size:
        return []
    cache, mark = held[at], held[at + 2]
    pairs = (
        list(cache.items())
        if limits["maxsize"] is None
        else list(zip(held[1:at:3], held[2:at:3], strict=True))
    )
    if {id(key) for key, _ in pairs} != set(map(id, cache)):
        return []
    return [(*_arguments(key, mark, limits["typed"]), result) for key, result in pairs]


def _arguments(key: Any, mark: object, typed: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a call was made with, from the key that the cache makes of it: the arguments, the mark, names and
    values, and if it tells types apart, those of all arguments. A single number or text is its own key."""
    if type(key) is not tuple:
        return (key,), {}
    marked = next((at for at, each in enumerate(key) if each is mark), None)
    if marked is None:
        return (key[: len(key) // 2] if typed else key), {}
    rest = key[marked + 1 :]
    count = (len(rest) - marked) // 3 if typed else len(rest) // 2
    return key[:marked], dict(zip(rest[: 2 * count : 2], rest[1 : 2 * count : 2], strict=True))


def make_cached(maxsize: int | None, typed: bool) -> Any:
    # A partial call can be told later what it calls, and adds no frame to those of Python.
    return functools.lru_cache(maxsize, typed)(functools.partial(len))


def fill_cached(cached: Any, state: tuple[dict[str, Any], list[Entry]]) -> None:
    names, entries = state
    calls = cached.__wrapped__
    vars(cached).update(names)
    calls.__setstate__((names["__wrapped__"], (), {}, {}))
    if entries:
        loading().finish.append(lambda: _recall(cached, calls, entries))


def _recall(cached: Any, calls: Any, entries: list[Entry]) -> None:
    function = calls.func
    results = iter([result for *_, result in entries])
    calls.__setstate__((lambda *args, **named: next(results), (), {}, {}))
    try:
        for args, named, _ in entries:
            cached(*args, **named)
    finally:
        calls.__setstate__((function, (), {}, {}))
