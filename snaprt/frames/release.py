"""Letting go of a frame without running any of its code.

A suspended run sleeps, it hasn't ended: its `finally` blocks, `with` exits and `except GeneratorExit` must
not run when its objects leave this process. Garbage collection would run them, and so would `close`.
`release` marks the frame as completed, after which deallocation runs no code, and takes the frame's
references out of it at once: a generator has no way of its own to break a cycle through itself other than
being closed.

This is the one place that writes memory of a frame. What is written has been read and cross-checked before.
"""

from __future__ import annotations

import ctypes
from types import AsyncGeneratorType
from typing import Any

from snaprt.frames.awaitables import ASYNC_GENERATOR_AWAITABLES, CLOSED, INITIAL, read_state, write_state
from snaprt.frames.freeze import survey
from snaprt.frames.table import CLOSED_FLAG, EXC_VALUE, STATE_BYTE, Table, table

_NULL = {False: 0, True: 1}  # of a plain and of a tagged slot
_decref = ctypes.pythonapi.Py_DecRef if hasattr(ctypes, "pythonapi") else None


def release(obj: Any) -> None:
    """Drop the frame of `obj`: it is finished from now on, holds nothing, and none of its code has run.

    Only this one frame, not what it awaits. A no-op for a finished one; NotCapturable if it runs. An `asend`,
    `athrow` or `aclose` that hasn't begun can be released too, which keeps it from warning that it was never
    awaited.
    """
    numbers = table()
    if type(obj) in ASYNC_GENERATOR_AWAITABLES:
        if read_state(obj) == INITIAL:
            write_state(obj, CLOSED)
        return
    seen = survey(obj, numbers)
    if seen is None:
        return
    base = id(obj) + type(obj).__basicsize__
    frame = base - numbers.header
    owned = [
        value for word, value in zip(_present(seen.words, numbers.tagged), seen.values, strict=True) if word
    ]
    slots = (ctypes.c_uint64 * len(seen.words)).from_address(base)
    slots[:] = [_NULL[numbers.tagged]] * len(seen.words)
    if seen.lead.exc:
        ctypes.c_uint64.from_address(frame - EXC_VALUE).value = 0
        owned.append(seen.handled)
    _end(obj, numbers)
    assert _decref is not None
    for value in owned:  # `seen` still holds them all, so nothing is freed before the frame is consistent
        _decref(ctypes.py_object(value))


def _end(obj: Any, numbers: Table) -> None:
    """Have a frame whose slots are empty taken for one that has ended."""
    frame = id(obj) + type(obj).__basicsize__ - numbers.header
    state = ctypes.c_int8.from_address(frame - STATE_BYTE)
    if numbers.completed is not None:
        state.value = numbers.completed
        return
    # There is no state that says "ended, but not cleared". Closing what hasn't started clears it and runs
    # nothing, so that is what it says it is.
    state.value = numbers.created
    if type(obj) is not AsyncGeneratorType:
        obj.close()
        return
    closed = ctypes.c_byte.from_address(frame - CLOSED_FLAG)
    before, closed.value = closed.value, 1  # else the finalizer would be called
    frame_object = obj.ag_frame
    assert frame_object is not None
    frame_object.clear()
    closed.value = before


def _present(words: list[int], tagged: bool) -> list[bool]:
    """For each object in the slots, whether the slot owns a reference to it."""
    if not tagged:
        return [True for word in words if word]
    # Tag 1 marks a reference that isn't counted (to an immortal object, or borrowed from another slot).
    return [not word & 1 for word in words if word & 3 != 3 and word & ~3]
