"""Replaces every frame that a coroutine reaches by a thawed copy, everything else staying the same object.

A stand-in for a pickler in tests of this floor: it goes through frames, cells, containers and instances,
and keeps one copy for each frame. The originals are released.
"""

from __future__ import annotations

import contextlib
import random
from types import AsyncGeneratorType, CellType, CoroutineType, FunctionType, GeneratorType, MethodType
from typing import Any

from snaprt import frames

FRAMES = (CoroutineType, GeneratorType, AsyncGeneratorType)
ITERATORS = (enumerate, zip, map, filter)
HOLDERS = (contextlib._GeneratorContextManager, contextlib._AsyncGeneratorContextManager)


class Copier:
    """One replacement of all frames. `holders` are further types whose attributes may hold frames."""

    def __init__(self, holders: tuple[type, ...] = ()) -> None:
        self.holders = (*HOLDERS, *holders)
        self.memo: dict[int, tuple[Any, Any]] = {}
        self.pairs: list[tuple[Any, Any]] = []

    def replace(self, root: Any, order: random.Random | None = None) -> Any:
        """The copy of `root`; its frames stand where the originals stood, and those are released."""
        new = self.copy(root)
        if order is not None:
            order.shuffle(self.pairs)
        before = [(old, frames.freeze(old).shell) for old, _ in self.pairs]
        for (_, copy), (_, shell) in zip(self.pairs, before, strict=True):
            unprimed = frames.freeze(copy).shell
            assert unprimed == shell, (unprimed, shell)
        for _, copy in self.pairs:
            frames.prime(copy)
        for (_, copy), (_, shell) in zip(self.pairs, before, strict=True):
            primed = frames.freeze(copy).shell
            assert primed == shell, (primed, shell)
        for old, _ in self.memo.values():
            if isinstance(old, FRAMES) or type(old).__name__.startswith("async_generator_"):
                frames.release(old)
        return new

    def copy(self, value: Any) -> Any:
        known = self.memo.get(id(value))
        if known is not None:
            return known[1]
        if isinstance(value, FRAMES):
            return self.frame(value)
        if frames.is_opaque(value):
            make, args = frames.take_apart(value)
            return self.once(value, lambda: make(*[self.copy(arg) for arg in args]))
        if isinstance(value, ITERATORS):
            made = value.__reduce__()
            return self.once(value, lambda: made[0](*[self.copy(arg) for arg in made[1]]))
        if type(value) is tuple:
            items = [self.copy(item) for item in value]
            if all(new is old for new, old in zip(items, value, strict=True)):
                return value
            return self.once(value, lambda: tuple(items))
        self.memo[id(value)] = (value, value)
        if type(value) is CellType:
            with contextlib.suppress(ValueError):
                value.cell_contents = self.copy(value.cell_contents)
        elif type(value) is list:
            value[:] = [self.copy(item) for item in value]
        elif type(value) is dict:
            for key, item in value.items():
                value[key] = self.copy(item)
        elif type(value) is FunctionType:
            for cell in value.__closure__ or ():
                self.copy(cell)
        elif type(value) is MethodType:
            self.copy(value.__self__)
        elif isinstance(value, self.holders):
            for name, item in vars(value).items():
                setattr(value, name, self.copy(item))
        return value

    def once(self, value: Any, make: Any) -> Any:
        new = make()
        if id(value) not in self.memo:
            self.memo[id(value)] = (value, new)
        return self.memo[id(value)][1]

    def frame(self, value: Any) -> Any:
        frozen = frames.freeze(value)
        new = frames.make(frozen.shell, frozen.code, frozen.globals)
        self.memo[id(value)] = (value, new)
        self.pairs.append((value, new))
        values = tuple([self.copy(item) for item in frozen.values])
        frames.fill(new, values, frozen.handled, frozen.finalizer)
        return new
