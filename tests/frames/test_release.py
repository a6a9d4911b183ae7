"""A released frame is gone: none of its code ran, and it holds nothing."""

from __future__ import annotations

import ctypes
import gc
import sys
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from snaprt import frames
from tests.frames.conftest import nap
from tests.frames.copier import Copier


class Marker:
    """Something to hold a weak reference to."""


class Noisy:
    def __init__(self, log: list[str]) -> None:
        self.log = log

    def __enter__(self) -> None:
        return None

    def __exit__(self, *error: Any) -> None:
        self.log.append("exit")

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, *error: Any) -> None:
        self.log.append("aexit")


async def guarded(log: list[str], held: object) -> None:
    try:
        with Noisy(log):
            async with Noisy(log):
                await nap(held)
    except GeneratorExit:
        log.append("except")
    finally:
        log.append("finally")


def test_nothing_of_a_released_coroutine_runs_and_nothing_stays() -> None:
    log: list[str] = []
    marker = Marker()
    alive = weakref.ref(marker)
    coroutine = guarded(log, marker)
    coroutine.send(None)
    for frame in frames.chain(coroutine):
        frames.release(frame)
    del marker, frame
    assert alive() is None
    with pytest.raises(RuntimeError, match="already awaited"):
        coroutine.send(None)
    del coroutine
    gc.collect()
    assert log == []


def test_a_released_async_generator_calls_no_hook_and_runs_nothing() -> None:
    log: list[Any] = []

    async def numbers(held: object) -> Any:
        try:
            yield held
        finally:
            log.append("finally")

    marker = Marker()
    alive = weakref.ref(marker)
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(lambda generator: log.append("first"), lambda generator: log.append("finalizer"))
    try:
        generator = numbers(marker)
        with pytest.raises(StopIteration):
            generator.asend(None).send(None)
        assert log == ["first"]
        thawed = Copier().replace(generator)
        assert frames.freeze(thawed).finalizer is not None
        frames.release(thawed)
        del generator, thawed, marker
        gc.collect()
    finally:
        sys.set_asyncgen_hooks(*hooks)
    assert log == ["first"]
    assert alive() is None


def test_a_thawed_async_generator_keeps_its_finalizer_and_calls_no_other_loops_hooks() -> None:
    log: list[str] = []

    async def numbers() -> Any:
        yield 1

    hooks = sys.get_asyncgen_hooks()
    try:
        sys.set_asyncgen_hooks(None, lambda generator: log.append("its own"))
        generator = numbers()
        with pytest.raises(StopIteration):
            generator.asend(None).send(None)
        sys.set_asyncgen_hooks(lambda generator: log.append("first"), lambda generator: log.append("foreign"))
        thawed = Copier().replace(generator)
        del generator
        assert log == []
        del thawed
        assert log == ["its own"]
    finally:
        sys.set_asyncgen_hooks(*hooks)


def test_a_coroutine_that_holds_itself_is_freed() -> None:
    async def selfish(marker: object) -> None:
        me = mine[0]
        await nap(me)

    marker = Marker()
    alive = weakref.ref(marker)
    mine: list[Any] = []
    mine.append(selfish(marker))
    mine[0].send(None)
    for frame in frames.chain(mine[0]):
        frames.release(frame)
    mine.clear()
    del marker, frame
    gc.collect()
    assert alive() is None


def test_what_never_started_is_released_without_a_warning() -> None:
    async def numbers() -> Any:
        yield 1

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        complaints: list[Any] = []
        hook, sys.unraisablehook = sys.unraisablehook, complaints.append
        try:
            for awaitable in (nap(), guarded([], 1), numbers().asend(None), numbers().aclose()):
                frames.release(awaitable)
            del awaitable
            gc.collect()
        finally:
            sys.unraisablehook = hook
    assert complaints == []


def test_a_handled_exception_goes_with_the_frame() -> None:
    class Error(Exception):
        pass

    async def handling() -> None:
        try:
            raise Error
        except Error:
            await nap()

    coroutine = handling()
    coroutine.send(None)
    frozen = frames.freeze(coroutine)
    assert type(frozen.handled) is Error
    alive = weakref.ref(frozen.handled)
    del frozen
    for frame in frames.chain(coroutine):
        frames.release(frame)
    del frame
    gc.collect()
    assert alive() is None


RUNS = 10_000


async def numbers(held: object) -> Any:
    yield await nap(held)


async def busy(held: object) -> Any:
    """Stands in an exception's handler, in a loop over an async generator, with a cell that is shared."""
    try:
        raise ValueError
    except ValueError:
        told = lambda: held  # noqa: E731  # a closure over the frame's cells is the point
        async for _ in numbers(told):
            await nap(held)


def a_run_comes_and_goes() -> None:
    """Suspend, freeze, thaw, let the original go, and then the copy, too."""
    root = busy(bytearray(10_000))
    root.send(None)
    root = Copier().replace(root)
    for frame in frames.chain(root):
        frames.release(frame)


def blocks_left(runs: int, run: Callable[[], None]) -> int:
    """How many memory blocks of the interpreter are in use after `runs` runs that weren't before.

    One object more that is kept for each run, or one reference that isn't given back, is at least one block.
    """
    for _ in range(200):  # code that is patched once, caches, free lists
        run()
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(runs):
        run()
    gc.collect()
    return sys.getallocatedblocks() - before


def test_memory_stays_flat_over_ten_thousand_suspended_and_released_runs() -> None:
    assert blocks_left(RUNS, a_run_comes_and_goes) < RUNS // 50


def test_one_reference_in_ten_runs_that_is_not_given_back_would_be_seen() -> None:
    count = 0

    def leaking() -> None:
        nonlocal count
        a_run_comes_and_goes()
        count += 1
        if count % 10 == 0:
            leaked = object()
            kept.append(id(leaked))
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(leaked))

    kept: list[int] = []
    try:
        assert blocks_left(RUNS // 10, leaking) > RUNS // 10 // 50
    finally:
        for address in kept:
            ctypes.pythonapi.Py_DecRef(ctypes.cast(address, ctypes.py_object))
