"""A frozen and thawed frame put in the place of the one it was made from, inside the same object.

Tests of the interpreter hold their generators by name, in lists and on the stacks of C functions, and no
reference to an object can be replaced everywhere. So the *object* stays and the *frame* in it goes: the
object is frozen, a copy is made of the frozen frame (`make`, `fill`, `prime`), and the two objects exchange
the memory of their embedded frames. From then on the object stands in the thawed frame; the old one lies in
the copy, and is let go of by `frames.release`, as the frames of a suspended run are.

What is exchanged is all that a real thaw replaces: handled exception, origin or finalizer, flags, code,
function, position, frame object, locals and stack. A frame object that somebody holds goes with the old
frame, as it would in life. This file writes memory and belongs to tests only; snaprt itself never does this.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from types import AsyncGeneratorType, CodeType, CoroutineType, GeneratorType
from typing import Any

from snaprt import frames
from snaprt.frames.table import LEAD, table

KINDS = (GeneratorType, CoroutineType, AsyncGeneratorType)
SUSPENDABLE = 0x20 | 0x80 | 0x200  # code flags: generator, coroutine, async generator

# Where the pointer to the frame object lies in a frame, and the pointer back in a frame object.
_FRAME_OBJECT = 40 if sys.version_info < (3, 12) else 48
_BACK = 24
_CODE = 16 if sys.version_info < (3, 12) else None  # 3.11 keeps the code in the object as well

_widened: dict[int, CodeType] = {}


def widen(code: CodeType) -> CodeType:
    """The same code with room for one more stack entry in functions that have no local slot at all.

    The thawed frame of such a function has one slot more than the original (see `Patched.extra_slot`), and
    the object that takes it in was allocated for the original. Everything else fits as it is.
    """
    consts = tuple(widen(item) if isinstance(item, CodeType) else item for item in code.co_consts)
    slotless = not (code.co_varnames or code.co_cellvars or code.co_freevars)
    wider = slotless and code.co_flags & SUSPENDABLE
    if not wider and all(new is old for new, old in zip(consts, code.co_consts, strict=True)):
        return code
    code = code.replace(co_consts=consts, co_stacksize=code.co_stacksize + (2 if wider else 0))
    if wider:
        _widened[id(code)] = code
    return code


def has_room(code: CodeType) -> bool:
    """Whether an object of this (original) code can take a thawed frame in."""
    return bool(code.co_varnames or code.co_cellvars or code.co_freevars) or id(code) in _widened


def suspended(obj: Any) -> bool | None:
    """True for an object that waits at a yield or await, False for one that doesn't, None if it runs."""
    if type(obj) is GeneratorType:
        running, frame, started = obj.gi_running, obj.gi_frame, obj.gi_suspended
    elif type(obj) is CoroutineType:
        running, frame, started = obj.cr_running, obj.cr_frame, obj.cr_suspended
    else:
        frame = obj.ag_frame
        state = ctypes.c_int8.from_address(id(obj) + obj.__class__.__basicsize__ - table().header - 5).value
        running, started = state in table().executing, state in table().suspended
    if running:
        return None
    return frame is not None and started


def exchange(obj: Any, *, keep_frame_object: bool = False) -> None:
    """Freeze `obj`, thaw a copy, put the copy's frame into `obj`, release the old frame.

    With `keep_frame_object` a frame object stays where it is and speaks for the thawed frame, which no real
    thaw could do: it tells whether a test fails for nothing but that. Raises what `frames` raises when it
    refuses; `obj` is then as it was.
    """
    frozen = frames.freeze(obj)
    copy = frames.thaw(frozen)
    again = frames.freeze(copy)
    if not _same(again, frozen):
        raise AssertionError(f"the thawed frame differs: {again.shell} is not {frozen.shell}")
    collecting = gc.isenabled()
    gc.disable()  # half-way through the exchange both objects hold the same references
    try:
        _swap(obj, copy, keep_frame_object)
    finally:
        if collecting:
            gc.enable()
    frames.release(copy)


def _same(one: frames.Frozen, other: frames.Frozen) -> bool:
    """Equal shells, and the very same objects. (`==` of two `Frozen` would call the `__eq__` of the user.)"""
    return (
        one.shell == other.shell
        and one.code is other.code
        and one.globals is other.globals
        and one.handled is other.handled
        and list(map(id, one.values)) == list(map(id, other.values))
    )


def _swap(one: Any, other: Any, keep_frame_object: bool) -> None:
    numbers = table()
    header = numbers.header
    bases = [id(each) + type(each).__basicsize__ for each in (one, other)]
    tops = []
    for base in bases:
        at = base - header + numbers.top
        if numbers.top_is_pointer:
            tops.append((ctypes.c_uint64.from_address(at).value - base) // 8)
        else:
            tops.append(ctypes.c_int.from_address(at).value)
    size = LEAD + header + 8 * max(tops)
    starts = [base - header - LEAD for base in bases]
    contents = [ctypes.string_at(start, size) for start in starts]
    ctypes.memmove(starts[0], contents[1], size)
    ctypes.memmove(starts[1], contents[0], size)
    if _CODE is not None:
        fields = [ctypes.c_uint64.from_address(id(each) + _CODE) for each in (one, other)]
        fields[0].value, fields[1].value = fields[1].value, fields[0].value
    if keep_frame_object:
        fields = [ctypes.c_uint64.from_address(base - header + _FRAME_OBJECT) for base in bases]
        fields[0].value, fields[1].value = fields[1].value, fields[0].value
    for base, top in zip(bases, reversed(tops), strict=True):
        frame = base - header
        if numbers.top_is_pointer:
            ctypes.c_uint64.from_address(frame + numbers.top).value = base + 8 * top
        frame_object = ctypes.c_uint64.from_address(frame + _FRAME_OBJECT).value
        if frame_object:
            ctypes.c_uint64.from_address(frame_object + _BACK).value = frame


def owner(frame: Any) -> Any:
    """The generator, coroutine or async generator that a frame object of suspendable code stands for."""
    flags = frame.f_code.co_flags
    kind: type = CoroutineType if flags & 0x80 else AsyncGeneratorType if flags & 0x200 else GeneratorType
    embedded = ctypes.c_uint64.from_address(id(frame) + _BACK).value
    address = embedded + table().header - kind.__basicsize__
    return ctypes.cast(address, ctypes.py_object).value
