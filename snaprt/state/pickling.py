"""Dump and load of a state: the pickler, and the order in which it is used.

`dump` goes from fast to thorough:

1. The C pickler, with `reducer_override` for everything that isn't an exact plain builtin. 2. If that met
something that can't travel: the same again, with *anchored* objects by reference (`anchors`). 3. dill's
pickler, which is pure Python and 10 to 20 times slower, with the same overrides: for types that only
   dill knows, and for graphs too deep for a C stack, which it writes flat (`flat`).
4. Then it is refused, and a slow walk (`paths`) lists everything that can't travel, with the paths to it.

**Frames last.** A frame's values aren't written where the frame is met but afterwards, from a queue, each as
a pickle of its own in the same stream under the same memo. So a chain of 5,000 awaits needs no recursion.

**Containers by reference.** The C pickler shows exact dicts, lists and sets to nobody, and a `persistent_id`
would be called for every number and string (it makes a dump 1.6 times as long). But it looks into its memo
first. So its memo is filled beforehand with the containers that are globals of modules, each under an index
far beyond any real one; a reference to one then stands in the stream as an index that occurs nowhere else and
is found by searching for two bytes. If the search finds one, the dump is made again with these few containers
under the first indexes of the memo, and the stream's head names them for the load; they are remembered, so
that the next dump is right at once. The head says how many memo entries to count from.

What this file must not know: how any type is reduced (`reducers`), runs, stores.
"""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import struct
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from snaprt import frames
from snaprt.errors import (
    CodeChanged,
    Damaged,
    NotCapturable,
    NotRestorable,
    SnaprtError,
    UnsupportedInterpreter,
)
from snaprt.state import anchors, carriers, flat, reducers, sessions, suspended, weak
from snaprt.state.handles import refuse
from snaprt.state.parts import Part, Sink, Source
from snaprt.state.sessions import Dumping, Loading

PROTOCOL = 5
MAGIC = b"SNAPST"
VERSION = 1

_HEAD = struct.Struct("<6sBI")  # magic, version, length of the JSON behind it


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
        dumping = self.dumping
        key = id(obj)
        dumping.met.add(key)
        if key in dumping.named:
            return named, (dumping.named[key],)
        index = anchors.index
        if key in index.instances:
            place = index.instance(obj)
            if place is not None:
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
        super().__init__(sink, PROTOCOL)
        self.dumping = dumping


def named(name: str) -> Any:
    """What the load was told stands under that name."""
    resolve = sessions.loading().resolve
    if name not in resolve:
        raise NotRestorable(f"the state refers to {name!r} of its surroundings, and the load wasn't given it")
    return resolve[name]


# --- dump -----------------------------------------------------------------------------------------


def dump(root: object, *, resolve: Mapping[str, object] | None = None) -> Dump:
    """Writes `root` and everything it reaches, frames included, without disturbing any of it.

    Objects in `resolve` travel as their name. Raises NotSerialisable with every offender and the path to it.
    """
    anchors.index.refresh()
    failure: Exception
    try:
        return _dump(root, resolve, _Fast, None)
    except Exception as error:
        failure = error
    hanging = anchors.Hanging()
    if not isinstance(failure, RecursionError):
        for packages in (False, True):
            if packages:
                hanging.look_into_packages()
            try:
                return _dump(root, resolve, _Fast, hanging)
            except Exception as error:
                failure = error
            if isinstance(failure, (Refused, NotCapturable)):
                break  # what packages hold on to is no reason to take a handle for theirs
    if not isinstance(failure, (Refused, NotCapturable)):
        hanging.look_into_packages()
        try:
            return _dump(root, resolve, _thorough(), hanging)
        except Exception as error:
            failure = error
    raise _refusal(root, resolve, failure) from failure


def _refusal(root: object, resolve: Mapping[str, object] | None, failure: Exception) -> Exception:
    from snaprt.state import paths

    if isinstance(failure, (NotCapturable, UnsupportedInterpreter)):
        try:
            if type(root) in suspended.FRAMES:
                frames.freeze(root)
        except SnaprtError as error:
            return error  # there is no path to speak of: it is the coroutine itself
    return paths.refusal(paths.find(root, resolve=resolve, failure=failure))


def _dump(
    root: object, resolve: Mapping[str, object] | None, pickler: Any, hanging: anchors.Hanging | None
) -> Dump:
    while True:
        seeds = _seeds(resolve)
        dumping = Dumping(resolve, hanging)
        sink = Sink()
        out = pickler(sink, dumping)
        out.memo = seeds.memo(plain=pickler is not _Fast)
        _write(out, root, dumping)
        parts = sink.finish()
        found = seeds.found_in(sink.streams)
        if not found:
            break
        _hot.update(found)
    if dumping.weak_references:
        _check_weak(root, resolve, pickler, hanging, dumping)
    for obj, place in dumping.anchored:
        anchors.index.known[id(obj)] = (obj, place)
    return Dump([seeds.head(), *parts])


def _write(out: Any, root: object, dumping: Dumping) -> None:
    if dumping.flat is not None:
        dumping.flat.direct([root])
    out.dump(root)
    _drain(out, dumping)
    sent: dict[int, set[int]] = {}
    carried: dict[str, Any] = {}
    carrying = carriers.active()
    # What is written may hold more of what the tables are about, so they are asked until nothing is new.
    held = _Held(out, dumping)
    fresh = bool(dumping.weak or carrying)
    while fresh:
        fresh = False
        for container in list(dumping.weak):
            seen = sent.setdefault(id(container), set())
            entries = [e for e in weak.entries(container, held) if _entry_key(e) not in seen]
            if entries:
                fresh = True
                seen.update(map(_entry_key, entries))
                dumping.keep(entries)
                out.dump((WEAK, container, entries))
                _drain(out, dumping)
        for carrier in carrying:
            taken = carrier.take(held)
            if taken is not None and carried.get(carrier.name) != _outline(taken):
                fresh = True
                carried[carrier.name] = _outline(taken)
                dumping.keep(taken)
                out.dump((CARRIED, carrier.name, taken))
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


FILL, WEAK, CARRIED, CONTENTS = 0, 1, 2, 3  # what follows the root in the stream, until a None


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
    resolve: Mapping[str, object] | None,
    pickler: Any,
    hanging: anchors.Hanging | None,
    dumped: Dumping,
) -> None:
    dumping = Dumping(resolve, hanging)
    dumping.placeholders = True
    out = pickler(Sink(), dumping)
    _write(out, root, dumping)
    held = _Held(out, dumping)
    for reference, target in dumped.weak_references:
        if not held(target):
            raise Refused(
                f"{type(reference).__qualname__} to a {type(target).__qualname__} outside the state"
            )


# --- containers that are globals --------------------------------------------------------------------

_FAR = 0xFFF50000  # its upper half is two bytes that occur in no UTF-8 text
_FAR_BYTES = b"\xf5\xff"
_MOST = 0xFFFF

_HOLE = object()
"""What stands among the far ones for a container that a dump begins with, or that is no global any more."""

_hot: dict[int, tuple[Any, str, str]] = {}
"""Containers that dumps of this process referred to, by id: the object, its module, its name."""
_stale: set[int] = set()


class _Seeds:
    """The memo that a dump begins with."""

    def __init__(self, near: list[Any], far: list[Any], places: list[list[str]]) -> None:
        self.near = near
        self.far = far[:_MOST]
        self._places = places
        size = 64
        while size < len(near) + len(self.far):
            size *= 2
        self.size = size
        memo = {id(obj): (index, obj) for index, obj in enumerate(near)}
        memo.update((id(obj), (_FAR + index, obj)) for index, obj in enumerate(self.far) if obj is not _HOLE)
        # The unpickler counts its memo's entries, so their number must be the same; a power of two keeps
        # it from changing with every import, and with it all references in the stream.
        memo.update((id(pad), (_FAR + _MOST, pad)) for pad in _pads(size - len(memo)))
        self._template = pickle.Pickler(io.BytesIO(), PROTOCOL)
        self._template.memo = memo
        self._memo = memo
        self._head: bytes | None = None

    def memo(self, *, plain: bool = False) -> Any:
        return dict(self._memo) if plain else self._template.memo

    def head(self) -> bytes:
        if self._head is None:
            text = json.dumps(
                {"interpreter": frames.interpreter(), "memo": self.size, "held": self._places},
                separators=(",", ":"),
            ).encode()
            self._head = _HEAD.pack(MAGIC, VERSION, len(text)) + text
        return self._head

    def found_in(self, streams: Iterable[bytes]) -> dict[int, tuple[Any, str, str]]:
        """The containers that a stream refers to by an index that only exists here."""
        found = {}
        for stream in streams:
            # Searching for one byte is ten times faster than for two, and no text has this one.
            at = stream.find(_FAR_BYTES[:1])
            while at >= 0:
                # LONG_BINGET, whose four bytes end with the two
                if at >= 3 and stream[at - 3] == ord("j") and stream[at + 1 : at + 2] == _FAR_BYTES[1:]:
                    index = stream[at - 2] | stream[at - 1] << 8
                    obj = self.far[index] if index < len(self.far) else _HOLE
                    if obj is not _HOLE:
                        _, module, name = anchors.index.containers[id(obj)]
                        if _is_global(obj, module, name):
                            found[id(obj)] = (obj, module, name)
                        else:
                            _stale.add(id(obj))
                            found[id(obj)] = (obj, "", "")
                at = stream.find(_FAR_BYTES[:1], at + 1)
        return found


def _is_global(obj: Any, module: str, name: str) -> bool:
    holder = sys.modules.get(module)
    if holder is None:
        return False
    return obj is (holder.__dict__ if name == "__dict__" else holder.__dict__.get(name))


_pad: list[object] = []


def _pads(count: int) -> list[object]:
    while len(_pad) < count:
        _pad.append(object())
    return _pad[:count]


_last_seeds: tuple[Any, _Seeds] | None = None


def _seeds(resolve: Mapping[str, object] | None) -> _Seeds:
    global _last_seeds
    for gone in [k for k, (obj, module, name) in _hot.items() if not _is_global(obj, module, name)]:
        del _hot[gone]
    mine = [(n, v) for n, v in (resolve or {}).items() if type(v) in anchors.CONTAINERS]
    key = (anchors.index.version, tuple(_hot), len(_stale), tuple((n, id(v)) for n, v in mine))
    if _last_seeds is not None and _last_seeds[0] == key:
        return _last_seeds[1]
    near = [v for _, v in mine]
    places = [["", n] for n, _ in mine]
    taken = {id(v) for v in near}
    for at, (obj, module, name) in _hot.items():
        if at not in taken:
            near.append(obj)
            places.append([module, name])
    taken.update(_hot)
    taken |= _stale
    # Those that stand elsewhere leave a hole: bytes of the state that only look like a reference are then
    # taken for one once, and not for the next container when the dump is made again.
    far = [_HOLE if at in taken else entry[0] for at, entry in anchors.index.containers.items()]
    seeds = _Seeds(near, far, places)
    _last_seeds = (key, seeds)
    return seeds


# --- the thorough way -------------------------------------------------------------------------------

# What a flat dump may still nest: tuples, and what a class's own `__reduce__` gives. Deeper than pickle's own
# default allows, and far from the end of a C stack.
_NESTING = 5_000


@lru_cache(maxsize=1)
def _thorough() -> Any:
    import dill  # type: ignore[import-untyped]  # dill has no types

    class _Thorough(_Overrides, dill.Pickler):  # type: ignore[misc]  # dill has no types
        def __init__(self, sink: Sink, dumping: Dumping) -> None:
            super().__init__(sink, PROTOCOL)
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


# --- load -----------------------------------------------------------------------------------------


class _Unpickler(pickle.Unpickler):
    held: list[Any]

    def persistent_load(self, pid: Any, /) -> Any:
        """One of the containers that the head of the stream names; only `_prologue` asks."""
        return self.held[pid]

    def find_class(self, module: str, name: str, /) -> Any:
        try:
            return super().find_class(module, name)
        except ImportError as error:
            raise CodeChanged(
                f"the state needs {module}:{name}, and module {module!r} can't be imported here ({error}); "
                "install it, or start from where it can be imported"
            ) from error
        except AttributeError:
            raise CodeChanged(
                f"the state needs {module}:{name}, and {module} has nothing of that name now; "
                "bring it back to go on"
            ) from None


def load(
    parts: Iterable[Part] | Part,
    *,
    resolve: Mapping[str, object] | None = None,
    joining: Mapping[str, dict[str, Any]] | None = None,
) -> Any:
    """Rebuilds what `dump` wrote; every frame stands where it stood.

    `joining` has namespaces of by-value modules, by name, that are in this process already: what was dumped
    apart from a state (a result, an answer) then gets that state's classes, so that `isinstance` holds.

    The bytes must be known to be good: whoever stores them verifies them first. Raises CodeChanged if this
    process has other code, NotRestorable if an object can't be rebuilt here, Damaged if the bytes aren't a
    state after all. Then no frame of it is left behind.
    """
    source = Source([parts] if isinstance(parts, (bytes, bytearray, memoryview)) else parts)
    head = _read_head(source)
    load = Loading(resolve, head["interpreter"], joining)
    sessions.enter(load)
    try:
        root = _read(source, head, load)
    except BaseException as error:
        for frame in load.frames:
            with contextlib.suppress(SnaprtError):
                frames.release(frame)
        if isinstance(error, SnaprtError) or not isinstance(error, Exception):
            raise
        if isinstance(error, (pickle.UnpicklingError, EOFError)):
            raise Damaged(
                f"these bytes aren't a whole snaprt state ({error}); nothing of them was used"
            ) from error
        raise NotRestorable(
            f"an object of the state can't be rebuilt here: {type(error).__name__}: {error}"
        ) from error
    finally:
        sessions.leave()
    return root


def _read_head(source: Source) -> dict[str, Any]:
    start = source.read(_HEAD.size)
    if len(start) != _HEAD.size or start[:6] != MAGIC:
        raise Damaged("these bytes aren't a snaprt state")
    _, version, size = _HEAD.unpack(start)
    if version != VERSION:
        raise Damaged(f"this is a snaprt state of format {version}, and this snaprt reads format {VERSION}")
    try:
        head = json.loads(bytes(source.read(size)))
        if not (isinstance(head["memo"], int) and 0 <= head["memo"] <= 1 << 24):
            raise ValueError(head["memo"])
        return {
            "interpreter": dict(head["interpreter"]),
            "memo": head["memo"],
            "held": [(str(module), str(name)) for module, name in head["held"]],
        }
    except (ValueError, TypeError, KeyError) as error:
        raise Damaged(f"the head of this snaprt state can't be read ({error})") from error


def _read(source: Source, head: dict[str, Any], load: Loading) -> Any:
    unpickler = _Unpickler(source)
    unpickler.held = [
        anchors.global_(module, name) if module else named(name) for module, name in head["held"]
    ]
    source.push(_prologue(len(unpickler.held), head["memo"]))
    unpickler.load()
    root = unpickler.load()
    carried: dict[str, Any] = {}
    contents: list[tuple[Any, ...]] = []
    while (item := unpickler.load()) is not None:
        if item[0] == FILL:
            for obj, values, handled, finalizer in item[1]:
                frames.fill(obj, values, handled, finalizer)
        elif item[0] == CONTENTS:
            contents += item[1]
        elif item[0] == WEAK:
            weak.fill(item[1], item[2])
        else:
            carried[item[1]] = item[2]
    for content in contents:
        flat.fill(content)
    for frame in load.frames:
        frames.prime(frame)
    for finish in load.finish:
        finish()
    for name, entries in carried.items():
        carrier = carriers.find(name)
        if carrier is None:
            raise NotRestorable(f"the state holds entries of carrier {name!r}, which isn't registered here")
        carrier.put(entries)
    return root


@lru_cache(maxsize=8)
def _prologue(held: int, size: int) -> bytes:
    """A pickle that gives an unpickler's memo the entries which the pickler's memo began with.

    The unpickler's own `memo` attribute can't be used: CPython loses what is assigned to it.
    """
    body = b"".join(b"J" + struct.pack("<i", index) + b"Q\x94" for index in range(held))  # BINPERSID, MEMOIZE
    body += b"N" + b"\x94" * (size - held) + b"."
    return b"\x80\x05\x95" + struct.pack("<Q", len(body)) + body
