"""Containers by reference, and the head of a dump, which names them.

The C pickler shows exact dicts, lists and sets to nobody, and a `persistent_id` would be called for every
number and string (it makes a dump 1.6 times as long). But it looks into its memo first. So its memo is filled
beforehand with the containers that are globals of modules (but for the namespaces of packages, see
`met_spec`), each under an index far beyond any real one; a reference to one then stands in the stream as an
index that occurs nowhere else and is found by searching for two bytes. If the search finds one, the dump is
made again with these few containers under the first indexes of the memo, and the stream's head names them for
the load; they are remembered, so that the next dump is right at once. The head says how many memo entries to
count from.

This file must not know how any type is reduced, nor how a dump goes on behind its head.
"""

from __future__ import annotations

import io
import json
import pickle
import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from snaprt import frames
from snaprt.state import anchors

PROTOCOL = 5
MAGIC = b"SNAPST"
VERSION = 1
HEAD = struct.Struct("<6sBI")  # magic, version, length of the JSON behind it


def head(size: int, places: Sequence[Sequence[str]]) -> bytes:
    """What a dump starts with whose memo has `size` entries at first, the first ones these globals."""
    text = json.dumps(
        {"interpreter": frames.interpreter(), "memo": size, "held": places}, separators=(",", ":")
    ).encode()
    return HEAD.pack(MAGIC, VERSION, len(text)) + text


@lru_cache(maxsize=1)
def plain_head() -> bytes:
    """The same for a dump whose memo is empty at first."""
    return head(0, ())


_FAR = 0xFFF50000  # its upper half is two bytes that occur in no UTF-8 text
_FAR_BYTES = b"\xf5\xff"
_MOST = 0xFFFF

_HOLE = object()
"""What stands among the far ones for a container that a dump begins with, or that is no global any more."""

Met = dict[int, tuple[Any, str, str]]
"""Containers that dumps of one thing referred to, by id: the object, its module, its name. Whoever dumps that
thing again and again keeps this for it; another's would name modules that this one has nothing to do with."""

_stale: set[int] = set()
"""Containers that the index takes for globals and that were none when a dump referred to them."""


class Seeds:
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
            self._head = head(self.size, self._places)
        return self._head

    def found_in(self, streams: Iterable[bytes], met: Met) -> bool:
        """Whether a stream refers to containers by an index that only exists here. They go to `met`, for the
        next dump to begin with."""
        found: Met = {}
        for stream in streams:
            # Searching for one byte is ten times faster than for two, and no text has this one.
            at = stream.find(_FAR_BYTES[:1])
            while at >= 0:
                # LONG_BINGET, whose four bytes end with the two
                if at >= 3 and stream[at - 3] == ord("j") and stream[at + 1 : at + 2] == _FAR_BYTES[1:]:
                    index = stream[at - 2] | stream[at - 1] << 8
                    obj = self.far[index] if index < len(self.far) else _HOLE
                    if obj is not _HOLE:
                        place = anchors.index.container(obj)
                        if place is not None:
                            found[id(obj)] = (obj, *place)
                        else:
                            _stale.add(id(obj))
                            found[id(obj)] = (obj, "", "")
                at = stream.find(_FAR_BYTES[:1], at + 1)
        met.update(found)
        return bool(found)


class Again(Exception):  # it never leaves this floor
    """A container was met that the dump should have begun with; the next one does."""


def met_spec(spec: object, met: Met) -> None:
    """The spec of a package's module is in the state, so its namespace may be: that is a container of the
    module's like any other, but such namespaces are too many to begin every dump with. Raises Again."""
    namespace, module = anchors.index.specs[id(spec)]
    if id(namespace) not in met and anchors.holds(module, "__dict__", namespace):
        met[id(namespace)] = (namespace, module, "__dict__")
        raise Again


_pad: list[object] = []


def _pads(count: int) -> list[object]:
    while len(_pad) < count:
        _pad.append(object())
    return _pad[:count]


_often: Met = {}
"""Functions and classes that every state refers to."""


def often(*objects: Any) -> None:
    """Has these functions and classes, globals of their modules, stand in the head of every state: to meet
    them in the memo costs nothing, to refer to them by name takes a reducer and a look-up each time."""
    for obj in objects:
        _often[id(obj)] = (obj, obj.__module__, obj.__qualname__)


_made: dict[Any, Seeds] = {}
_made_of = -1  # the version of the index that they were made of
_KEPT = 16


def current(resolve: Mapping[str, object] | None, met: Met, copied: bool) -> Seeds:
    """The memo that a dump begins with: with these names, these containers met before, and `copied` if it is
    of a value, in which globals are copied like everything else; only namespaces never are."""
    global _made_of
    for known in (met, _often):
        for gone in [k for k, (obj, module, name) in known.items() if not anchors.holds(module, name, obj)]:
            del known[gone]
    containers = anchors.index.containers
    again = [at for at in _stale if at in containers and anchors.index.container(containers[at][0])]
    _stale.difference_update(again)
    if _made_of != anchors.index.version or len(_made) >= _KEPT:
        _made.clear()
        _made_of = anchors.index.version
    mine = [(n, v) for n, v in (resolve or {}).items() if type(v) in anchors.CONTAINERS]
    whole = bool(resolve) and not copied  # a state, as against a value or a coroutine
    held = tuple((at, module, name) for at, (_, module, name) in met.items())
    key = (whole, copied, held, frozenset(_stale), len(_often), tuple((n, id(v)) for n, v in mine))
    if key in _made:
        return _made[key]
    near = [v for _, v in mine]
    places = [["", n] for n, _ in mine]
    taken = {id(v) for v in near}
    for at, (obj, module, name) in [*(_often.items() if whole else ()), *met.items()]:
        if at not in taken:
            near.append(obj)
            places.append([module, name])
    taken.update(met)
    taken |= _stale
    # Those that stand elsewhere leave a hole: bytes of the state that only look like a reference are then
    # taken for one once, and not for the next container when the dump is made again.
    unseeded = anchors.index.unseeded
    far = [
        _HOLE if at in taken else obj
        for at, (obj, _, name) in containers.items()
        if at not in unseeded and not (copied and name != "__dict__")
    ]
    seeds = _made[key] = Seeds(near, far, places)
    return seeds


@lru_cache(maxsize=8)
def prologue(held: int, size: int) -> bytes:
    """A pickle that gives an unpickler's memo the entries which the pickler's memo began with.

    The unpickler's own `memo` attribute can't be used: CPython loses what is assigned to it.
    """
    body = b"".join(b"J" + struct.pack("<i", index) + b"Q\x94" for index in range(held))  # BINPERSID, MEMOIZE
    body += b"N" + b"\x94" * (size - held) + b"."
    return b"\x80\x05\x95" + struct.pack("<Q", len(body)) + body
