"""A run's plan: named steps with a status, changed by the agent while it runs and shown from outside.

A plan says what the agent means to do, in its own words; the *steps* of a run (calls of tools) are
what it did. The plan is part of the state and of every summary. It knows no loop and no kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Literal

PlanStatus = Literal["pending", "active", "done", "failed", "skipped"]


@dataclass(frozen=True)
class PlanStep:
    """One line of a plan."""

    name: str
    status: PlanStatus = "pending"
    note: str | None = None
    """Why it failed or was skipped, if somebody said so."""


class Plan:
    """Named steps in order. Names are unique; a name that isn't there raises `ValueError`."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._steps: list[PlanStep] = []
        self.add(*names)

    def __iter__(self) -> Iterator[PlanStep]:
        return iter(tuple(self._steps))

    def __len__(self) -> int:
        return len(self._steps)

    def __contains__(self, name: object) -> bool:
        return any(step.name == name for step in self._steps)

    def __repr__(self) -> str:
        return f"Plan({', '.join(f'{step.name}: {step.status}' for step in self._steps)})"

    @property
    def active(self) -> tuple[str, ...]:
        """Names of the steps under way, in the plan's order."""
        return tuple(step.name for step in self._steps if step.status == "active")

    def status(self, name: str) -> PlanStatus:
        return self._steps[self._place(name)].status

    # --- what happened to a step ------------------------------------------------------------------

    def start(self, name: str) -> None:
        self._mark(name, "active", None)

    def done(self, name: str) -> None:
        self._mark(name, "done", None)

    def fail(self, name: str, why: str | None = None) -> None:
        self._mark(name, "failed", why)

    def skip(self, name: str, why: str | None = None) -> None:
        self._mark(name, "skipped", why)

    def step(self, name: str) -> PlanBlock:
        """`with plan.step("draft"):` (or `async with`): active inside, done after, failed on an exception."""
        self._place(name)
        return PlanBlock(self, name)

    # --- changes of the plan ----------------------------------------------------------------------

    def add(self, *names: str) -> None:
        """New steps at the end."""
        for name in names:
            self._check_new(name)
            self._steps.append(PlanStep(name))

    def insert(self, name: str, *, before: str) -> None:
        """A new step before another one."""
        self._check_new(name)
        self._steps.insert(self._place(before), PlanStep(name))

    def remove(self, name: str) -> None:
        del self._steps[self._place(name)]

    def rename(self, name: str, to: str) -> None:
        place = self._place(name)
        if to != name:
            self._check_new(to)
            self._steps[place] = replace(self._steps[place], name=to)

    # --- inside -----------------------------------------------------------------------------------

    def _place(self, name: str) -> int:
        for place, step in enumerate(self._steps):
            if step.name == name:
                return place
        names = ", ".join(step.name for step in self._steps) or "none"
        raise ValueError(f"the plan has no step {name!r}; it has: {names}")

    def _check_new(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise ValueError(f"a step of a plan needs a name that is a text, not {name!r}")
        if name in self:
            raise ValueError(f"the plan has a step {name!r} already")

    def _mark(self, name: str, status: PlanStatus, note: str | None) -> None:
        place = self._place(name)
        self._steps[place] = replace(self._steps[place], status=status, note=note)


class PlanBlock:
    """What `Plan.step` gives: a `with` block around the work of one step."""

    def __init__(self, plan: Plan, name: str) -> None:
        self._plan = plan
        self._name = name

    def __enter__(self) -> Plan:
        self._plan.start(self._name)
        return self._plan

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._name not in self._plan:
            return  # removed meanwhile, which is the agent's right
        if error is None:
            if self._plan.status(self._name) == "active":  # else somebody said what became of it
                self._plan.done(self._name)
        else:
            self._plan.fail(self._name, f"{type(error).__name__}: {error}"[:200])

    async def __aenter__(self) -> Plan:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)
