"""anyio's side tables: what it keeps about tasks and loops outside of them.

anyio's asyncio backend keeps each task's cancel scope in a weak dictionary of its module
(`_task_states`), and variables of a loop in another (`_run_vars`). Neither hangs off anything that is
saved, so a carrier takes out what belongs to a run's tasks and loop, and puts it back for the new ones.

The second table is also the only place where anyio can be stopped from starting worker threads in an
agent: it does so without asking the loop, but looks for its idle workers among the loop's variables.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from anyio.lowlevel import _run_vars  # private; there is no public way to a loop's variables

from ..errors import NotInAgent
from .whereabouts import calling_line

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


class AnyioTables:
    """The carrier (see `snaprt.state.carriers`)."""

    name = "anyio"
    module = _BACKEND

    def take(self, held: Callable[[object], bool]) -> Any:
        states = sys.modules[_BACKEND]._task_states
        tasks = {id(task): task for task in list(states) if held(task)}
        # anyio knows a parent by its id, which is another one after the load.
        entries = [(task, states[task], tasks.get(states[task].parent_id)) for task in tasks.values()]
        entries.sort(key=lambda entry: getattr(entry[0], "_serial", 0))
        variables = [
            (loop, dict(values)) for loop, values in list(_run_vars.items()) if values and held(loop)
        ]
        return (entries, variables) if entries or variables else None

    def put(self, entries: Any) -> None:
        states = sys.modules[_BACKEND]._task_states
        by_task, variables = entries
        for task, state, parent in by_task:
            state.parent_id = id(parent) if parent is not None else None
            states[task] = state
        for loop, values in variables:
            _run_vars.setdefault(loop, LoopVariables()).update(values)
