"""The slow walk: every offender in a state, each with the shortest path to it.

A pickler stops at the first thing that it can't take and doesn't know where it stands. So after a
refusal `find` walks the same objects again, breadth first, in the way a pickler would reach them, and
says for each offender where it hangs in words of the user's program: task, file, line, function,
variable, attribute, index.

    agent.py:41 in triage: local 'client' → .session → ['pool'] → [3]: socket.socket

What it must not know: how anything is written or restored. It takes two things from the pickler that
calls it: `travels(obj)`, whether an object goes by reference (then nothing under it is saved, so it isn't
walked), and `reduce(obj)`, what a reducer of ours would make of it. The children of the types that people
meet in their code are named here; the rest is walked through its reduce value, whose parts are named
after the attributes they come from.

The queue holds steps that know their parent, so no path is built before it's needed, and recursion has
no limit. A frame that is awaited by another, and a task's frame, begin their path anew: where such a
frame stands says more than how it was reached. Everything seen is kept alive until the walk ends,
because ids tell what was seen.
"""

from __future__ import annotations

import collections
import sys
import types
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from snaprt.errors import NotCapturable, NotSerialisable, UnsupportedInterpreter
from snaprt.state import anchors, handles, modules, reducers, sessions, weak
from snaprt.state.branches import LEAVES, Reduce, Step, Unpicklable, branches, said
from snaprt.state.handles import UNPICKLABLE, WEAK_REFERENCE, Offender
from snaprt.state.kinds import Kind

Travels = Callable[[Any], bool]


def find(
    root: object,
    *,
    resolve: Mapping[str, object] | None = None,
    travels: Travels | None = None,
    reduce: Reduce | None = None,
    failure: BaseException | None = None,
) -> list[Offender]:
    """Every offender that a dump of `root` would hold, nearest first, each once.

    `resolve` holds objects that travel as names. `travels(obj)` says what else goes by reference (default:
    `by_reference`). `reduce(obj)` gives a reduce value, or NotImplemented to leave the object to pickle's own
    ways (default: the table of `reducers`). `failure` is what the pickler met: if the walk finds nothing, it
    is reported as an offender itself, so that a refusal never comes without one.
    """
    anchors.index.refresh()
    walk = _Walk(resolve or {}, travels or by_reference, reduce or _reduce(resolve or {}))
    walk.run(root)
    if not walk.offenders and isinstance(failure, RecursionError):
        walk.report_depth()
    if not walk.offenders and failure is not None:
        walk.offenders.append(
            Offender(
                "state", handles.type_name(type(root)), UNPICKLABLE.hint, UNPICKLABLE.name, said(failure)
            )
        )
    return walk.offenders


def refusal(offenders: list[Offender]) -> NotSerialisable:
    """The error that names them all: how many, one line each with its hint, and what to do next."""
    count = len(offenders)
    things = "1 thing in this state" if count == 1 else f"{count} things in this state"
    lines = [f"{things} can't travel to another process, so nothing was saved; the last good state stays."]
    for offender in offenders:
        because = f" ({offender.reason})" if offender.reason else ""
        lines.append(f"  {offender}{because}\n      {offender.kind}: {offender.hint}.")
    lines.append("Mend the code at these places and the run can be saved at this await.")
    return NotSerialisable("\n".join(lines), offenders)


def by_reference(obj: object) -> bool:
    """Whether `obj` is a module's own, so that a dump holds its name instead: a module, a class or function
    that is found under its name, or a global of an importable module."""
    if isinstance(obj, types.ModuleType):
        return modules.importable(obj.__name__)
    if type(obj) in anchors.CONTAINERS:
        held = anchors.index.containers.get(id(obj))
        return held is not None and held[0] is obj
    if issubclass(type(obj), (type, types.FunctionType, types.BuiltinFunctionType)):
        return _is_found(obj)
    return anchors.index.instance(obj) is not None or anchors.index.anchored(obj) is not None


def copied_by_reference(obj: object) -> bool:
    """The same for a value by itself, in which containers are copied, but for namespaces."""
    if type(obj) in anchors.CONTAINERS:
        return by_reference(obj) and anchors.index.containers[id(obj)][2] == "__dict__"
    return by_reference(obj)


def _is_found(obj: Any) -> bool:
    name = obj.__globals__.get("__name__") if type(obj) is types.FunctionType else obj.__module__
    if name is None or not (modules.importable(name) or obj.__module__ == "builtins"):
        return False
    found: Any = sys.modules.get(name)
    for part in obj.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is obj


def _reduce(resolve: Mapping[str, object]) -> Reduce:
    """What the pickler's table of reducers says."""
    dumping = sessions.Dumping(resolve)

    def reduce(obj: Any) -> Any:
        reducer = reducers.find(type(obj))
        return NotImplemented if reducer is None else reducer(obj, dumping)

    return reduce


_FRAME = Kind(
    "frame that can't be captured",
    (types.GeneratorType,),
    "let it finish, or suspend it at an await or a yield, before the state is saved",
)


_DEEP = Kind(
    "data nested too deeply",
    (tuple,),
    "nest it in lists, dicts or plain objects, which may be of any depth, or keep it flat",
)
_SHOWN = 6  # steps of the path to it; the thousands that follow look alike

_WEAK_CONTAINERS = (weakref.WeakSet, weakref.WeakKeyDictionary, weakref.WeakValueDictionary)
_WEAK: tuple[type, ...] = (weakref.ref, weakref.ProxyType, weakref.CallableProxyType)
_PROXIES = _WEAK[1:]


def _weak_target(weak: Any) -> object:
    """What a weak reference or proxy refers to (for a method: whose it is); None if that is gone."""
    if type(weak) in _PROXIES:
        try:
            return weak.__repr__.__self__  # a proxy has no other way to its target
        except ReferenceError:
            return None
    target = weak()
    return target.__self__ if target is not None and type(weak) is weakref.WeakMethod else target


class _Walk:
    def __init__(self, resolve: Mapping[str, object], travels: Travels, reduce: Reduce) -> None:
        self.offenders: list[Offender] = []
        self._resolved = {id(obj) for obj in resolve.values()}
        self._travels = travels
        self._reduce = reduce
        self._seen: dict[int, Any] = {}
        self._last: tuple[Step, Any] | None = None
        self._weak: list[tuple[Step, object, object]] = []
        self._weak_containers: list[tuple[Step, Any]] = []
        self._followed: set[tuple[int, int]] = set()
        self._queue: collections.deque[tuple[Step, Any]] = collections.deque()

    def run(self, root: object) -> None:
        self._queue.append((Step(None, "state"), root))
        while self._queue or self._follow_weak():
            step, obj = self._queue.popleft()
            if type(obj) in LEAVES or id(obj) in self._seen:
                continue
            self._seen[id(obj)] = obj
            self._last = step, obj
            if id(obj) in self._resolved or self._goes_by_reference(obj):
                continue
            kind = handles.refuse(obj)
            if kind is not None:
                self._report(step, obj, kind)
                continue
            self._expand(step, obj)
        for step, reference, target in self._weak:
            if not self._held(target):
                self._report(step, reference, WEAK_REFERENCE, f"to a {handles.type_name(type(target))}")

    def _follow_weak(self) -> bool:
        """Goes on with the entries of weak containers that travel because something else holds them."""
        for step, container in self._weak_containers:
            for entry in weak.entries(container, self._held):
                mark = id(container), id(entry[0]) if type(entry) is tuple else id(entry)
                if type(entry) is tuple and mark not in self._followed:
                    self._followed.add(mark)
                    self._queue.extend(branches(step, {entry[0]: entry[1]}, None))  # type: ignore[arg-type]  # a dict is no leaf
        return bool(self._queue)

    def _held(self, obj: object) -> bool:
        return id(obj) in self._seen or self._goes_by_reference(obj)

    def report_depth(self) -> None:
        """Reports what is nested deepest, for a pickler that ran out of stack."""
        if self._last is None:
            return
        step, obj = self._last
        way = [step]
        while (above := way[-1].parent) is not None:
            way.append(above)
        start = way[-1] if len(way) <= _SHOWN else way[-_SHOWN]
        self.offenders.append(
            Offender(
                f"{start.path()} → …",
                handles.type_name(type(obj)),
                _DEEP.hint,
                _DEEP.name,
                f"{len(way)} levels down",
            )
        )

    def _expand(self, step: Step, obj: object) -> None:
        try:
            if issubclass(type(obj), BaseException):
                self._reduce(obj)  # its parts are walked by their names, but its own ways may fail
            if issubclass(type(obj), _WEAK):
                target = _weak_target(obj)
                if target is not None:
                    self._weak.append((step, obj, target))
                    if type(obj) in (weakref.ref, weakref.KeyedRef):
                        self._queue.append((Step(step, "its callback"), obj.__callback__))  # type: ignore[attr-defined]  # all have one
                return
            if type(obj) in _WEAK_CONTAINERS:
                self._weak_containers.append((step, obj))
                return
            children = branches(step, obj, self._reduce)
            if isinstance(children, Unpicklable):
                self._report(step, obj, children.kind, children.reason)
            else:
                self._queue.extend(children)
        except handles.NotNow as error:
            self._report(step, obj, error.kind, said(error))
        except (NotCapturable, UnsupportedInterpreter) as error:
            self._report(step, obj, _FRAME, said(error))
        except Exception as error:
            # Whatever a user's __reduce_ex__ raises, the pickler meets it too.
            self._report(step, obj, UNPICKLABLE, said(error))

    def _goes_by_reference(self, obj: object) -> bool:
        try:
            return self._travels(obj)
        except Exception:
            return False

    def _report(self, step: Step, obj: object, kind: Kind, reason: str = "") -> None:
        self.offenders.append(
            Offender(step.path(), handles.type_name(type(obj)), kind.hint, kind.name, reason)
        )
