"""The pickle stream as a list of parts, and back.

A state is mostly small objects with a few large leaves (text, bytes, buffers) among them. The pickler
hands every leaf of 64 KiB or more to its file in a call of its own, uncopied; `Sink` keeps those apart
from the stream around them, and `Source` gives them back to the unpickler where they stood. So a large
leaf can be stored once under its digest however often the stream around it changes, and nothing is
doubled in memory on the way.

This file must not know what is pickled. The rule for whoever stores parts: **a part of `LEAF` bytes or
more is a leaf, a shorter one is stream**; the stream between two leaves is cut to make that true, and
any cut is undone by reading the parts one after the other.

A frame of the pickle protocol is about 64 KiB too, so size alone doesn't tell a leaf: the write before a
leaf ends with the opcode that announces its exact length.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, TypeAlias

Part: TypeAlias = "bytes | bytearray | memoryview"

LEAF = 64 * 1024
"""What the C pickler's own limit for an unbuffered write is (`_FRAME_SIZE_TARGET`)."""

_SLICE = 32 * 1024  # well under LEAF, so that stream is never taken for a leaf

# Opcodes that announce a payload, by the width of the length behind them (pickle protocol 5).
_WIDE = (b"\x8d", b"\x8e", b"\x96")  # BINUNICODE8, BINBYTES8, BYTEARRAY8
_NARROW = (b"X", b"B")  # BINUNICODE, BINBYTES


class Sink:
    """A file for a pickler; `finish()` gives the parts."""

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._small: list[bytes] = []
        self._last: Any = b""
        self.streams: list[bytes] = []
        """The stream between the leaves, in pieces of which none ends within an opcode; complete after
        `finish`."""

    def write(self, data: Any) -> None:
        if type(data) is not bytes:
            data = memoryview(data)
            if data.ndim != 1 or data.format != "B":
                data = data.cast("B") if data.c_contiguous else _raw(data)
        if len(data) >= LEAF and _announces(self._last, len(data)):
            self._flush()
            self._parts.append(data)
            self._last = data
            return
        # The pure-Python pickler hands out views of a buffer that it then throws away.
        piece = data if type(data) is bytes else bytes(data)
        if len(piece) < _SLICE:
            self._small.append(piece)
        else:  # a frame of the pickle; joining these would double a large state
            self._flush()
            self._cut(piece)
        self._last = piece

    def finish(self) -> list[Part]:
        self._flush()
        return self._parts

    def _flush(self) -> None:
        small, self._small = self._small, []
        if small:
            self._cut(small[0] if len(small) == 1 else b"".join(small))

    def _cut(self, piece: bytes) -> None:
        self.streams.append(piece)
        if len(piece) < LEAF:
            self._parts.append(piece)
        else:
            view = memoryview(piece)
            self._parts += (view[at : at + _SLICE] for at in range(0, len(piece), _SLICE))


def _raw(view: memoryview) -> memoryview:
    """The bytes of a Fortran-ordered buffer, as they lie in memory."""
    import pickle

    return pickle.PickleBuffer(view).raw()


def _announces(last: Any, size: int) -> bool:
    tail = bytes(last[-9:])
    if tail[-9:-8] in _WIDE and tail[-8:] == struct.pack("<Q", size):
        return True
    return tail[-5:-4] in _NARROW and size < 1 << 32 and tail[-4:] == struct.pack("<I", size)


class Source:
    """A file for an unpickler, over parts that are let go of as soon as they are read."""

    def __init__(self, parts: Iterable[Part]) -> None:
        self._parts: Iterator[Part] = iter(parts)
        self._here: memoryview = memoryview(b"")
        self._at = 0

    def push(self, data: Part) -> None:
        """Puts bytes in front of what is to be read."""
        self._parts = chain((data, self._here[self._at :]), self._parts)
        self._here, self._at = memoryview(b""), 0

    def read(self, size: int) -> Any:
        here, at = self._here, self._at
        if at + size <= len(here):
            self._at = at + size
            if at == 0 and size == len(here) and isinstance(here.obj, bytes) and len(here.obj) == size:
                return here.obj
            return bytes(here[at : self._at])
        taken = []
        while size:
            piece = self._take(size)
            if not len(piece):
                break
            taken.append(piece)
            size -= len(piece)
        if len(taken) == 1:
            whole = taken[0]
            if isinstance(whole.obj, bytes) and len(whole.obj) == len(whole):
                return whole.obj
        return b"".join(taken)

    def readinto(self, into: Any) -> int:
        view = memoryview(into).cast("B")
        done = 0
        while done < len(view):
            piece = self._take(len(view) - done)
            if not len(piece):
                break
            view[done : done + len(piece)] = piece
            done += len(piece)
        return done

    def readline(self) -> bytes:
        """Only protocol 0 reads lines; the stream is never of it."""
        line = bytearray()
        while not line.endswith(b"\n"):
            piece = self._take(1)
            if not len(piece):
                break
            line += piece
        return bytes(line)

    def _take(self, size: int) -> memoryview:
        while self._at >= len(self._here):
            part = next(self._parts, None)
            if part is None:
                return memoryview(b"")
            self._here, self._at = memoryview(part), 0
            if self._here.format != "B" or self._here.ndim != 1:
                self._here = self._here.cast("B")
        piece = self._here[self._at : self._at + size]
        self._at += len(piece)
        return piece
