"""anyio's side tables: what it keeps about tasks and loops outside of them.

anyio's asyncio backend keeps each task's cancel scope in a weak dictionary of its module
(`_task_states`), and variables of a loop in another (`_run_vars`). Neither hangs off anything that is
saved, so a carrier takes out what belongs to a run's tasks and loop, and puts it back for the new ones.

The second table is also the only place where anyio can be stopped from starting worker threads in an
agent: it does so without asking the loop, but looks for its idle workers among the loop's variables.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any

import anyio
from anyio.lowlevel import _run_vars  # private; there is no public way to a loop's variables

from snaprt.errors import NotInAgent
from snaprt.kernel.whereabouts import calling_line

_BACKEND = "anyio._backends._asyncio"
_OF_THREADS = frozenset({"_threadpool_idle_workers", "_threadpool_workers"})


class LoopVariables(dict[Any, Any]):
    """anyio's variables of an agent loop; refuses those of its thread pool."""

    def __missing__(self, variable: Any) -> Any:
        if variable._name in _OF_THREADS:
            raise NotInAgent(
                f"{calling_line()}: anyio.to_thread runs code in a thread, which agent code can't do. "
                "Make it a tool (@snaprt.tool), or use `await snaprt.step(fn, *args)`."
            )
        raise KeyError(variable)


def watch(loop: Any) -> None:
    """Have anyio keep its variables of this loop where they can be watched."""
    _run_vars[loop] = LoopVariables()


MADE_BY_BACKENDS = (
    anyio.CancelScope,
    anyio.CapacityLimiter,
    anyio.Condition,
    anyio.Event,
    anyio.Lock,
    anyio.Semaphore,
)
"""Classes whose `__new__` asks the running backend for an object of another class, and wants arguments.
Making a restored one goes around it."""


def reduce_made_by_backend(thing: Any) -> Any:
    return make_plain, (type(thing),), object.__getstate__(thing), None, None, fill_plain


def make_plain(kind: Any) -> Any:
    return object.__new__(kind)


def fill_plain(thing: Any, content: Any) -> None:
    """`content` is what `object.__getstate__` gave: a dictionary, or a pair of that and the slots."""
    names, slots = content if isinstance(content, tuple) else (content, None)
    for name, value in {**(names or {}), **(slots or {})}.items():
        setattr(thing, name, value)


class Entries:
    """What the tables hold of one run."""

    __slots__ = ("__weakref__", "tasks", "variables")

    def __init__(
        self, tasks: list[tuple[Any, Any, Any]], variables: list[tuple[Any, dict[Any, Any]]]
    ) -> None:
        self.tasks = tasks
        """Task, anyio's state of it, and the task that anyio calls its parent."""
        self.variables = variables
        """Loop, and anyio's variables of it."""

    def owners(self) -> list[int]:
        return [id(entry[0]) for entry in (*self.tasks, *self.variables)]


class AnyioTables:
    """The carrier (see `snaprt.state.carriers`)."""

    name = "anyio"
    module = _BACKEND

    def __init__(self) -> None:
        self._last: Callable[[], Entries | None] = lambda: None

    def take(self, held: Callable[[object], bool]) -> Entries | None:
        states = sys.modules[_BACKEND]._task_states
        tasks = {id(task): task for task in list(states) if held(task)}
        # anyio knows a parent by its id, which is another one after the load.
        entries = [(task, states[task], tasks.get(states[task].parent_id)) for task in tasks.values()]
        entries.sort(key=lambda entry: getattr(entry[0], "_serial", 0))
        variables = [
            (loop, dict(values)) for loop, values in list(_run_vars.items()) if values and held(loop)
        ]
        found = Entries(entries, variables)
        last = self._last()
        # Asked again in the same dump, there is nothing to say unless more tasks were met meanwhile.
        if not found.owners() or (last is not None and held(last) and last.owners() == found.owners()):
            return None
        self._last = weakref.ref(found)
        return found

    def put(self, entries: Entries) -> None:
        states = sys.modules[_BACKEND]._task_states
        for task, state, parent in entries.tasks:
            state.parent_id = id(parent) if parent is not None else None
            states[task] = state
        for loop, values in entries.variables:
            _run_vars.setdefault(loop, LoopVariables()).update(values)
