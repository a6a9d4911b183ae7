"""Plain values: what most tools give back, pickled without any machinery.

A small tree of exact builtins has nothing in it that could be refused, found by its name, or written last.
To walk it takes less time than to set up a dump. Whatever else is met, or if there is too much of it, the
value isn't plain.

This file must not know what a dump does with the others.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import Any

from snaprt.state import anchors
from snaprt.state.parts import LEAF, Part
from snaprt.state.seeds import PROTOCOL, plain_head

# Roughly bytes. Far below a leaf, which has to be a part of its own, and not so deep that a C stack ends.
_MOST = 8 << 10
_EACH = 16
_ATOMS = frozenset({int, float, complex, bool, type(None)})
_TEXTS = frozenset({str, bytes})
_ROWS = frozenset({list, tuple, set, frozenset})


def pickled(value: object, copied: bool) -> bytes | None:
    """The stream of a dump of this value, up to its last None; None if it isn't plain. `copied`: containers
    that are globals are copied like others."""
    if not _plain(value, {} if copied else anchors.index.containers):
        return None
    stream = pickle.dumps(value, PROTOCOL) + _END
    return stream if len(stream) < LEAF else None


_END = pickle.dumps(None, PROTOCOL)


def is_plain(dump: Sequence[Part]) -> bool:
    """Whether these are the parts of such a dump, as they were made: head and stream."""
    return len(dump) == 2 and dump[0] is plain_head()


def _plain(value: object, by_reference: Mapping[int, object]) -> bool:
    left = _MOST
    met: set[int] = set()
    waiting: list[Any] = [value]
    while waiting:
        each = waiting.pop()
        kind = type(each)
        left -= _EACH
        if kind in _TEXTS:
            left -= len(each)
        elif kind not in _ATOMS:
            if id(each) in met:
                continue
            if id(each) in by_reference or (kind is not dict and kind not in _ROWS):
                return False
            met.add(id(each))
            if len(each) * _EACH > left:
                return False
            waiting.extend(each)
            if kind is dict:
                waiting.extend(each.values())
        if left < 0:
            return False
    return True
