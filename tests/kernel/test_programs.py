"""The agent loop runs asyncio programs as asyncio does."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from typing import Any

import pytest

from .driver import TRACE, Driver
from .programs import PROGRAMS

WITHOUT_OPERATIONS = [
    program
    for program in PROGRAMS
    if program.__name__ not in ("suspensions_and_plan", "tools_one_after_the_other", "eager_tasks")
]


class JumpingSelector(selectors.SelectSelector):
    """Instead of waiting, moves the loop's clock."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.now += timeout or 0
        return super().select(0)


def run_on_asyncio(program: Callable[[], Any]) -> Any:
    selector = JumpingSelector()

    def make() -> asyncio.AbstractEventLoop:
        loop = asyncio.SelectorEventLoop(selector)
        loop.time = lambda: selector.now  # type: ignore[method-assign]
        return loop

    with asyncio.Runner(loop_factory=make) as runner:
        return runner.run(program())


@pytest.mark.parametrize("program", WITHOUT_OPERATIONS, ids=lambda program: program.__name__)
def test_a_program_gives_what_it_gives_on_asyncio(program: Callable[[], Any]) -> None:
    TRACE.clear()
    expected = run_on_asyncio(program), sorted(map(repr, TRACE))
    TRACE.clear()
    assert (Driver().outcome(program), sorted(map(repr, TRACE))) == expected
