"""The two halves of a frozen frame: its shell, plain data, and the user's objects that fill it.

This file knows no interpreter detail. A `Shell` says everything about a frame that can be said without the
user's objects, so that an object in the same position can be made before (and without) its values: a frame
may hold itself through a task, a closure or a list, and such cycles need the object first.

Both are named tuples: a save makes one of each for every frame, and a frozen dataclass of fourteen fields
takes eight times as long to make.
"""

from __future__ import annotations

from types import CodeType
from typing import Any, Literal, NamedTuple

Kind = Literal["coroutine", "generator", "async_generator"]
Status = Literal["created", "suspended", "finished"]

# Letters of a pattern, one a slot.
VALUE = "v"
NULL = "-"
LASTI = "i"
INDEX = "n"


class Shell(NamedTuple):
    """Plain, picklable, hashable facts of a frame that don't refer to any object of the user.

    `offset` is the byte offset, in the original code, of the YIELD_VALUE where the frame is suspended (0
    when it isn't). `slots` has a letter for each local slot (VALUE or NULL), `stack` one for each entry
    of the value stack (VALUE, NULL, LASTI or INDEX); `lastis` are the instruction indices, in code units of
    the original code, that stand at the LASTI entries, and `indices` say at the INDEX entries how far loops
    over the lists and tuples below them have come. The last four are for async generators: hooks were called;
    `aclose` began; an `asend`, `athrow` or `aclose` is under way; a finalizer of a loop is set.
    """

    kind: Kind
    status: Status
    name: str
    qualname: str
    offset: int = 0
    slots: str = ""
    stack: str = ""
    lastis: tuple[int, ...] = ()
    indices: tuple[int, ...] = ()
    handled: bool = False
    hooks: bool = False
    closed: bool = False
    running: bool = False
    finalizer: bool = False


class Frozen(NamedTuple):
    """A frame at rest: its shell, its code and the objects it holds.

    `code` is the original code, also if the frame was thawed before. `globals` is the dict of the
    function's module (empty for a finished frame, which has let go of it). `values` are the bound local
    slots and then the value stack in order, without NULLs and without lastis; a cell stands as the cell
    object itself. `handled` is the exception that the frame is handling, `finalizer` the loop's finalizer
    of an async generator.
    """

    shell: Shell
    code: CodeType
    globals: dict[str, Any]
    values: tuple[Any, ...]
    handled: BaseException | None = None
    finalizer: Any = None
