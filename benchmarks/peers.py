"""The other ways to freeze a frame, each behind the same four functions; and why one couldn't be tried.

- livekit-durable reads and writes the frame with a C extension. Functions have to be wrapped, so the
  programs are loaded a second time, under another module name, with every function wrapped.
- pyteleport reads the frame with Cython, makes bytecode that restores it, and knows generators only.
  Importing it changes dill's table of types for the whole process, so it is imported here alone. What it
  restores stands where it stood only after the next `send`, whose value it loses.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import inspect
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import snaprt
from benchmarks import programs
from snaprt import frames


@dataclass(frozen=True)
class Contender:
    """One way to freeze: the programs as it wants them, and what it does with one at rest."""

    name: str
    programs: ModuleType
    coroutines: bool
    freeze: Callable[[Any], Any]
    thaw: Callable[[Any], Any]
    dumps: Callable[[Any], bytes]
    loads: Callable[[bytes], Any]


@dataclass(frozen=True)
class Missing:
    """A contender that isn't here, and why."""

    name: str
    why: str


def ours() -> Contender:
    """This package."""
    return Contender("snaprt", programs, True, frames.freeze, frames.thaw, snaprt.dumps, snaprt.loads)


def livekit_durable() -> Contender | Missing:
    """livekit-durable, or why not."""
    name = _called("livekit-durable")
    try:
        from livekit.durable.function import DurableFunction, durable
    except Exception as error:  # a compiled extension can fail in any way
        return Missing(name, _why(error))

    wrapped = _again("benchmarks.programs_wrapped")
    for key, value in list(vars(wrapped).items()):
        if inspect.iscoroutinefunction(value) or inspect.isgeneratorfunction(value):
            setattr(wrapped, key, durable(value))
    assert isinstance(wrapped.tally, DurableFunction)

    def thaw(frozen: tuple[type, dict[str, Any]]) -> Any:
        cls, state = frozen
        obj: Any = object.__new__(cls)
        obj.__setstate__(state)
        return obj

    return Contender(
        *(name, wrapped, True),
        freeze=lambda obj: (type(obj), obj.__getstate__()),
        thaw=thaw,
        dumps=lambda obj: pickle.dumps(obj, 5),
        loads=pickle.loads,
    )


def pyteleport() -> Contender | Missing:
    """pyteleport, or why not."""
    name = _called("pyteleport")
    try:
        import dill
        from pyteleport.dill_tools import unpickle_generator
        from pyteleport.morph import morph_stack
        from pyteleport.snapshot import snapshot
    except Exception as error:
        return Missing(name, _why(error))

    def freeze(generator: Any) -> Any:
        found = snapshot(reference_frame=generator.gi_frame)
        return morph_stack(found, flags=inspect.CO_GENERATOR, tos=None)

    return Contender(
        *(name, programs, False),
        freeze=freeze,
        thaw=unpickle_generator,
        dumps=dill.dumps,
        loads=dill.loads,
    )


def _again(name: str) -> ModuleType:
    """The programs as a module of their own."""
    spec = importlib.util.spec_from_file_location(name, programs.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _called(package: str) -> str:
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return package


def _why(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
