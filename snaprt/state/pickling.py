"""Dump a state: the picklers, and the order in which they are tried.

1. The C pickler, with `reducer_override` for everything that isn't an exact plain builtin.
2. If that met something that can't travel: the same again, with *anchored* objects by reference (`anchors`).
3. dill's pickler, which is pure Python and 10 to 20 times slower, with the same overrides: for types that
   only dill knows, and for graphs too deep for a C stack, which it writes flat (`flat`).
4. Then it is refused, and a slow walk (`paths`) lists everything that can't travel, with the paths to it.

**Frames last.** A frame's values aren't written where the frame is met but afterwards, from a queue, each as
a pickle of its own in the same stream under the same memo. So a chain of 5,000 awaits needs no recursion.

Containers that are globals of modules travel by reference (`seeds`); values that need none of all this are
pickled as they are (`plain`). `unpickling` reads what is written here.

What this file must not know: how any type is reduced (`reducers`), runs, stores.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from snaprt import frames
from snaprt.errors import (
    NotCapturable,
    NotRestorable,
    SnaprtError,
    UnsupportedInterpreter,
)
from snaprt.state import (
    anchors,
    carriers,
    classes,
    flat,
    plain,
    reducers,
    seeds,
    sessions,
    suspended,
    weak,
)
from snaprt.state.handles import refuse
from snaprt.state.parts import Part, Sink
from snaprt.state.sessions import Dumping


@dataclass(frozen=True)
class Dump:
    """A dumped state.

    `parts` are bytes-like. One of `LEAF` (64 KiB) or more is a large leaf, shorter ones are the stream around
    them. A leaf may be a view of a live buffer (a bytearray, an array), uncopied: store the parts before the
    state runs on, or take `detached()`.
    """

    parts: list[Part]

    def detached(self) -> Dump:
        """The same with nothing in it that can still change."""
        return Dump([p if _fixed(p) else bytes(p) for p in self.parts])

    def __bytes__(self) -> bytes:
        return b"".join(self.parts)


def _fixed(part: Part) -> bool:
    return isinstance(part, bytes) or (isinstance(part, memoryview) and isinstance(part.obj, bytes))


class Refused(Exception):  # never leaves this floor
    """Something that can't travel was met; the slow walk will say where."""


class _Overrides:
    """What both picklers do differently from `pickle`."""

    dumping: Dumping

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is sessions.Call:
            return obj.function, obj.args
        dumping = self.dumping
        key = id(obj)
        dumping.met.add(key)
        if key in dumping.named:
            return named, (dumping.named[key],)
        index = anchors.index
        if key in index.instances:
            place = index.instance(obj)
            if place is not None:
                if key in index.specs:
                    seeds.met_spec(obj, dumping.containers)
                return anchors.global_, place
        if index.known and key in index.known:
            deep = index.anchored(obj)
            if deep is not None:
                return anchors.resolve, deep
        kind = refuse(obj)
        if kind is not None:
            deep = dumping.anchor(obj)
            if deep is not None and anchors.lasting(deep):
                return anchors.resolve, deep
            raise Refused(f"{type(obj).__qualname__}: {kind.name}")
        reduce = reducers.find(type(obj))
        if reduce is None:
            return NotImplemented if dumping.flat is None else dumping.flat.empty(obj)
        return reduce(obj, dumping)


class _Fast(_Overrides, pickle.Pickler):
    def __init__(self, sink: Sink, dumping: Dumping) -> None:
        super().__init__(sink, seeds.PROTOCOL)
        self.dumping = dumping


def named(name: str) -> Any:
    """What the load was told stands under that name."""
    resolve = sessions.loading().resolve
    if name not in resolve:
        raise NotRestorable(f"the state refers to {name!r} of its surroundings, and the load wasn't given it")
    return resolve[name]


# --- dump -----------------------------------------------------------------------------------------


def dump(
    root: object,
    *,
    resolve: Mapping[str, object] | None = None,
    met: seeds.Met | None = None,
    copied: bool = False,
) -> Dump:
    """Writes `root` and everything it reaches, frames included, without disturbing any of it.

    Objects in `resolve` travel as their name. `met` is kept by who dumps the same thing again and again: the
    containers of modules that its dumps refer to. `copied`: what is dumped is a value by itself (a result, an
    answer), in which containers that are globals of modules are copied like all others.
    Raises NotSerialisable with every offender and the path to it.
    """
    with anchors.index.lock:
        anchors.index.refresh()
        if not resolve and (stream := plain.pickled(root, copied)) is not None:
            return Dump([seeds.plain_head(), stream])
        return _by_any_way(root, Way(resolve, {} if met is None else met, copied))


@dataclass(frozen=True)
class Way:
    """What a dump was asked for: the arguments of `dump`."""

    resolve: Mapping[str, object] | None
    met: seeds.Met
    copied: bool


def _by_any_way(root: object, way: Way) -> Dump:
    failure: Exception
    try:
        return _dump(root, way, _Fast, None)
    except Exception as error:
        failure = error
    hanging = anchors.Hanging()
    if not isinstance(failure, RecursionError):
        for packages in (False, True):
            if packages:
                hanging.look_into_packages()
            try:
                return _dump(root, way, _Fast, hanging)
            except Exception as error:
                failure = error
            if isinstance(failure, (Refused, NotCapturable)):
                break  # what packages hold on to is no reason to take a handle for theirs
    if not isinstance(failure, (Refused, NotCapturable)):
        hanging.look_into_packages()
        try:
            return _dump(root, way, _thorough(), hanging)
        except Exception as error:
            failure = error
    raise _refusal(root, way, failure) from failure


def _refusal(root: object, way: Way, failure: Exception) -> Exception:
    from snaprt.state import paths

    if isinstance(failure, (NotCapturable, UnsupportedInterpreter)):
        try:
            if type(root) in suspended.FRAMES:
                frames.freeze(root)
        except SnaprtError as error:
            return error  # there is no path to speak of: it is the coroutine itself
    travels = paths.copied_by_reference if way.copied else paths.by_reference
    return paths.refusal(paths.find(root, resolve=way.resolve, travels=travels, failure=failure))


def _dump(root: object, way: Way, pickler: Any, hanging: anchors.Hanging | None) -> Dump:
    while True:
        seeded = seeds.current(way.resolve, way.met, way.copied)
        dumping = Dumping(way.resolve, hanging, way.met)
        sink = Sink()
        out = pickler(sink, dumping)
        out.memo = seeded.memo(plain=pickler is not _Fast)
        try:
            _write(out, root, dumping)
        except seeds.Again:
            continue
        parts = sink.finish()
        if not seeded.found_in(sink.streams, way.met):
            break
    if dumping.weak_references:
        _check_weak(root, way, pickler, hanging, dumping, seeded)
    for obj, place in dumping.anchored:
        anchors.index.known[id(obj)] = (obj, place)
    return Dump([seeded.head(), *parts])


def _write(out: Any, root: object, dumping: Dumping) -> None:
    if dumping.flat is not None:
        dumping.flat.direct([root])
    out.dump(root)
    _drain(out, dumping)
    sent: dict[int, set[int]] = {}
    carried: dict[str, Any] = {}
    carrying = carriers.active()
    # What is written may hold more of what the tables are about, so they are asked until nothing is new.
    met = _Held(out, dumping)
    fresh = bool(dumping.weak or carrying)
    while fresh:
        fresh = False
        for container in list(dumping.weak):
            seen = sent.setdefault(id(container), set())
            entries = [e for e in weak.entries(container, met) if _entry_key(e) not in seen]
            if entries:
                fresh = True
                seen.update(map(_entry_key, entries))
                dumping.keep(entries)
                out.dump((WEAK, container, entries))
                _drain(out, dumping)
        for carrier in carrying:
            taken = carrier.take(met)
            if taken is not None and carried.get(carrier.name) != _outline(taken):
                fresh = True
                carried[carrier.name] = _outline(taken)
                dumping.keep(taken)
                out.dump((CARRIED, carrier.name, taken))
                _drain(out, dumping)
    held = classes.held(dumping)
    if held:
        out.dump((HELD, held))
        _drain(out, dumping)
    out.dump(None)


def _drain(out: Any, dumping: Dumping) -> None:
    queue = dumping.flat
    while dumping.unfilled or (queue is not None and queue.waiting):
        if queue is not None:
            out.dump((CONTENTS, tuple(queue.take())))
        batch, dumping.unfilled = dumping.unfilled, []
        if queue is not None:
            for _, values, _, _ in batch:
                queue.direct(values)
        out.dump((FILL, tuple(batch)))


def _outline(entries: Any) -> Any:
    """What tells whether a carrier took the same entries as before: who is in them, two containers deep."""
    if type(entries) is dict:
        entries = list(entries.items())
    if type(entries) not in (list, tuple):
        return type(entries)
    return [tuple(map(id, e)) if type(e) in (list, tuple) else id(e) for e in entries]


def _entry_key(entry: Any) -> int:
    return id(entry[0]) if type(entry) is tuple and len(entry) == 2 else id(entry)


FILL, WEAK, CARRIED, CONTENTS, HELD = range(5)  # what follows the root in the stream, until a None


class _Held:
    """Whether the dump so far holds an object by itself, or needn't because a module does."""

    def __init__(self, out: Any, dumping: Dumping) -> None:
        self._out = out
        self._met = dumping.met

    def __call__(self, obj: object) -> bool:
        if id(obj) in self._met or anchors.lives_elsewhere(obj):
            return True
        # Of all that can be referred to weakly, only exact sets never reach a reducer. A memo can only be
        # copied whole, which is slow.
        return type(obj) in (set, frozenset) and id(obj) in self._out.memo.copy()


def _check_weak(
    root: object,
    way: Way,
    pickler: Any,
    hanging: anchors.Hanging | None,
    dumped: Dumping,
    seeded: seeds.Seeds,
) -> None:
    dumping = Dumping(way.resolve, hanging, way.met)
    dumping.placeholders = True
    out = pickler(Sink(), dumping)
    out.memo = seeded.memo(plain=pickler is not _Fast)
    _write(out, root, dumping)
    held = _Held(out, dumping)
    for reference, target in dumped.weak_references:
        if not held(target):
            raise Refused(
                f"{type(reference).__qualname__} to a {type(target).__qualname__} outside the state"
            )


# --- the thorough way -------------------------------------------------------------------------------

# What a flat dump may still nest: tuples, and what a class's own `__reduce__` gives. Deeper than pickle's own
# default allows, and far from the end of a C stack.
_NESTING = 5_000


@lru_cache(maxsize=1)
def _thorough() -> Any:
    import dill  # type: ignore[import-untyped]  # dill has no types

    class _Thorough(_Overrides, dill.Pickler):  # type: ignore[misc]  # dill has no types
        def __init__(self, sink: Sink, dumping: Dumping) -> None:
            super().__init__(sink, seeds.PROTOCOL)
            self.dumping = dumping
            dumping.flat = flat.Flattening()

        def dump(self, obj: Any) -> None:
            limit = sys.getrecursionlimit()
            sys.setrecursionlimit(max(limit, _NESTING))
            try:
                super().dump(obj)
            finally:
                sys.setrecursionlimit(limit)

    return _Thorough
