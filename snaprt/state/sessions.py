"""What one dump, or one load, keeps while it runs.

A reducer may need the dump that it works for (has this module's namespace been sent already?), and a
function called by the unpickler may need its load (which frames are still to be primed?). `pickle` passes
neither, so a dump goes to the reducers as their second argument, and the load that runs in this thread is
`loading()`.

This file must not know how any type is reduced.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping
from types import CodeType, ModuleType
from typing import Any

from snaprt import frames
from snaprt.errors import CodeChanged


class Call:
    """In the stream: `function(*args)`, made once per load and shared by whoever holds this very `Call`.

    It stands for things that are found rather than carried: a code object, a module's globals.
    """

    __slots__ = ("args", "function")

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.function = function
        self.args = args


class Dumping:
    """One dump under way."""

    def __init__(
        self,
        resolve: Mapping[str, object] | None,
        hanging: Any = None,
        containers: dict[int, tuple[Any, str, str]] | None = None,
    ) -> None:
        self.named = {id(value): name for name, value in (resolve or {}).items()}
        self.hanging = hanging
        """The index of anchored objects (`anchors.Hanging`), or None: then nobody has looked yet."""
        self.containers = {} if containers is None else containers
        """Containers of modules that the dump begins with (`seeds.Met`)."""
        self.anchored: list[tuple[Any, Any]] = []
        """The anchored objects that stand in the dump as their places."""
        self.met: set[int] = set()
        """By id: what was offered to the reducers so far, which is all but exact builtins. The pickler's memo
        keeps it alive."""
        self.unfilled: list[tuple[object, Any, Any, Any]] = []
        """Frames met so far whose values aren't written yet. Writing them one by one from here keeps a
        chain of thousands of awaits flat: no pickler ever stands in one frame's values inside another's."""
        self.flat: Any = None
        """The queue of a flat dump (`flat.Flattening`), or None: objects are written with their contents."""
        self.weak: list[Any] = []
        """Weak containers met so far, whose entries are written last."""
        self.weak_references: list[tuple[object, object]] = []
        """Weak references and their targets, which something else in the dump has to hold."""
        self.placeholders = False
        """Set for the pass that finds out what a dump holds without its weak references."""
        self.sent: dict[int, set[str]] = {}
        """By namespace of a by-value module: the globals written already."""
        self.namespaces: dict[int, tuple[dict[str, Any], Call]] = {}
        """By id: the globals of by-value modules in the dump, and what stands in the stream for them."""
        self.classes: dict[int, type] = {}
        """By id: the classes that are written by value."""
        self.claimed: dict[int, dict[str, Any]] = {}
        """By id of a function: the globals that are written with it."""
        self.scans: dict[Hashable, Any] = {}
        """The searches from which matches of regular expressions came (`matches`)."""
        self._calls: dict[Hashable, Call] = {}
        self._kept: list[object] = []

    def call(self, key: Hashable, function: Callable[..., Any], *args: Any) -> Call:
        """The `Call` under this key, so that the load makes the call once."""
        found = self._calls.get(key)
        if found is None:
            found = self._calls[key] = Call(function, *args)
        return found

    def anchor(self, obj: object) -> Any:
        """The place where `obj` is anchored, if this dump looks for anchors and there is one."""
        place = self.hanging.place(obj) if self.hanging is not None else None
        if place is not None:
            self.anchored.append((obj, place))
        return place

    def known(self, key: Hashable) -> bool:
        return key in self._calls

    def keep(self, obj: object) -> None:
        """Holds a temporary for as long as the pickler's memo may hold its id."""
        self._kept.append(obj)


class Loading:
    """One load under way."""

    def __init__(
        self,
        resolve: Mapping[str, object] | None,
        interpreter: Mapping[str, Any],
        joining: Mapping[str, dict[str, Any]] | None = None,
    ) -> None:
        self.resolve = dict(resolve or {})
        self.joining = dict(joining or {})
        """By name: namespaces of by-value modules that are here already and that this load joins."""
        self.joined: set[int] = set()
        """Ids of classes that were found there and are whole."""
        self.frames: list[object] = []
        self.modules: list[ModuleType] = []
        self.finish: list[Callable[[], None]] = []
        """What is to be done once every object is there, in the order in which it was asked for."""
        self.first_tokens: dict[tuple[int, int], Any] = {}
        """By context and variable: the token of the first `set`, the only thing that can unset a variable."""
        self.groups: dict[int, tuple[Any, Any]] = {}
        """By `groupby`: itself, and the group that it is in."""
        self.scans: dict[Hashable, Any] = {}
        """The searches in which matches of regular expressions are found again (`matches`)."""
        self._saved = dict(interpreter)
        self._same: bool | None = None

    def require_same_interpreter(self, what: str) -> None:
        """Bytecode means something to the interpreter that made it, and to no other."""
        if self._same is None:
            self._same = self._saved == frames.interpreter()
        if not self._same:
            here = frames.interpreter()
            differ = sorted(k for k in {*here, *self._saved} if here.get(k) != self._saved.get(k))
            then = ", ".join(f"{k} {self._saved.get(k)}" for k in differ)
            now = ", ".join(f"{k} {here.get(k)}" for k in differ)
            raise CodeChanged(
                f"{what} was saved by another interpreter ({then}) than this one ({now}), and a suspended "
                "frame can't change interpreters; resume it with the one that saved it"
            )


class _Current(threading.local):
    def __init__(self) -> None:
        self.loads: list[Loading] = []


_current = _Current()


def loading() -> Loading:
    """The load that runs in this thread."""
    if not _current.loads:
        raise RuntimeError("snaprt state can only be unpickled by snaprt.loads or state.load")
    return _current.loads[-1]


def enter(load: Loading) -> None:
    _current.loads.append(load)


def leave() -> None:
    _current.loads.pop()


def code_name(code: CodeType) -> str:
    """How errors name a code object."""
    return f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"
