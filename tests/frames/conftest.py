"""Constructs to suspend in, and ways to drive them, for tests of this floor."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from tests.frames.copier import Copier


@types.coroutine
def nap(value: object = None) -> Any:
    """Suspend once; what is sent in is the result."""
    return (yield value)


def steps(
    begin: Callable[[], Any], *, replace: bool, throw: dict[int, BaseException] | None = None
) -> list[Any]:
    """What a coroutine yields and returns; with `replace`, all its frames are thawed copies at each step."""
    root, seen, sent = begin(), [], None
    while True:
        if replace:
            root = Copier().replace(root)
        error = (throw or {}).get(len(seen))
        try:
            seen.append(root.throw(error) if error is not None else root.send(sent))
        except StopIteration as stop:
            return [*seen, ("returned", stop.value)]
        except Exception as raised:
            return [*seen, ("raised", repr(raised))]
        sent = len(seen)
