"""Replaces a suspended program by what a dump of it gives back: the sameness fuzzer's way with `--dump`.

The whole graph goes through bytes, and the old one is released before the new one is there. What belongs to
the test's world (its functions, its trace, its futures) stays what it is and travels as its name. So does the
program's own module where it can be imported; else it goes by value, as a script's does.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import CellType, FunctionType, ModuleType
from typing import Any

from snaprt import frames, state
from snaprt.errors import NotSerialisable
from tests.frames.world import World

NAME = "program"


class Importer:
    """Finds the one module that programs by reference are, so that it passes for importable."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(NAME, self, origin="<program>") if name == NAME else None  # type: ignore[arg-type]  # it loads nothing


class Refused(Exception):
    """The state refuses something that the program holds, as it is meant to. The argument says what."""


class Dumper:
    """The dumps of one run. `module` is the program's, and by reference if it is given."""

    def __init__(self, world: World, names: dict[str, Any], module: ModuleType | None) -> None:
        self.world, self.module = world, module
        self.fixed = {"world": world} | dict(_belongings(names))

    def replace(self, root: Any) -> tuple[Any, int]:
        """What a load gives for the dump of `root`, which is released; and how many frames it held."""
        named = self.fixed | {f"future {at}": future for at, future in enumerate(self.world.open)}
        if self.module is not None:
            named |= _cells(vars(self.module))
        try:
            data = bytes(state.dump(root, resolve=named))
        except NotSerialisable as refusal:
            raise Refused(", ".join(sorted({each.kind for each in refusal.offenders}))) from None
        held = state.held_frames(root, outside=named.values())
        for frame in held:
            frames.release(frame)
        return state.load(data, resolve=named), len(held)


def importable(code: Any) -> ModuleType:
    """The module of a program that travels by reference, in place of the one before."""
    if not any(isinstance(finder, Importer) for finder in sys.meta_path):
        sys.meta_path.append(Importer())  # type: ignore[arg-type]  # as much of a finder as is asked for
    sys.modules.pop(NAME, None)
    module = ModuleType(NAME)
    module.__spec__ = ModuleSpec(NAME, Importer(), origin="<program>")  # type: ignore[arg-type]  # it loads nothing
    module.__file__ = code.co_filename
    sys.modules[NAME] = module
    return module


def _belongings(names: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The functions and classes of the world, with what their methods and wrappers close over."""
    seen: set[int] = set()
    waiting = [(f"world.{name}", value) for name, value in names.items()]
    while waiting:
        name, value = waiting.pop()
        if id(value) in seen or not isinstance(value, (FunctionType, CellType, type)):
            continue
        seen.add(id(value))
        yield name, value
        if isinstance(value, type):
            waiting += [(f"{name}.{key}", inner) for key, inner in vars(value).items()]
        elif isinstance(value, CellType):
            waiting.append((f"{name} contents", value.cell_contents))
        else:
            waiting += [(f"{name} cell {at}", cell) for at, cell in enumerate(value.__closure__ or ())]


def _cells(namespace: dict[str, Any]) -> dict[str, Any]:
    """What the functions of a module close over, which the module goes on sharing with its frames."""
    return {
        f"{name} cell {at}": cell
        for name, function in namespace.items()
        if isinstance(function, FunctionType)
        for at, cell in enumerate(function.__closure__ or ())
    }
