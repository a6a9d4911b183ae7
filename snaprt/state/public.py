"""`dumps`, `loads` and `release`: one suspended coroutine, as pickle would have it.

The bytes carry their own digest, so that damaged or foreign ones are refused before anything is unpickled. It
is no signature: like pickles, load only what you trust (a run's records are signed by the `records` floor).
"""

from __future__ import annotations

import hashlib
from typing import Any

from snaprt import frames
from snaprt.errors import Damaged
from snaprt.state import pickling, suspended, unpickling

_MAGIC = b"snaprt\x00\x01"
_DIGEST = 16


def dumps(coro: Any) -> bytes:
    """The whole state of a suspended coroutine (or generator, or async generator) as bytes.

    The coroutine stays as it is and can go on. Raises NotSerialisable if it holds what can't travel,
    NotCapturable if it can't be frozen now, TypeError for anything but a coroutine or generator.
    """
    _check(coro, "dumps")
    payload = bytes(pickling.dump(coro))
    return b"".join((_MAGIC, hashlib.blake2b(payload, digest_size=_DIGEST).digest(), payload))


def loads(data: Any) -> Any:
    """The coroutine that `dumps` wrote, standing where it stood.

    Raises Damaged for bytes that `dumps` didn't write, CodeChanged if its code isn't here as it was saved,
    NotRestorable if one of its objects can't be rebuilt here.
    """
    view = memoryview(data).cast("B") if not isinstance(data, bytes) else memoryview(data)
    start = len(_MAGIC) + _DIGEST
    if len(view) < start or bytes(view[: len(_MAGIC)]) != _MAGIC:
        raise Damaged("these bytes weren't written by snaprt.dumps")
    payload = view[start:]
    if hashlib.blake2b(payload, digest_size=_DIGEST).digest() != bytes(view[len(_MAGIC) : start]):
        raise Damaged("these bytes were written by snaprt.dumps, but aren't whole or were changed since")
    return unpickling.load(payload)


def release(coro: Any) -> None:
    """Drops a suspended coroutine, and every frame that it holds, without running any of their code.

    `finally` blocks, `with` exits and `except GeneratorExit` don't run: the run hasn't ended, it sleeps.
    Raises TypeError for anything but a coroutine or generator.
    """
    _check(coro, "release")
    for frame in suspended.held_frames(coro):
        frames.release(frame)


def _check(coro: Any, function: str) -> None:
    if type(coro) not in suspended.FRAMES:
        raise TypeError(f"snaprt.{function} takes a coroutine, not {type(coro).__name__}")
