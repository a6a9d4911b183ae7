"""CPython's own asyncio tests as a yardstick: its async test methods as agents.

    python -m tests.kernel.yardstick [--show]

Every `async def test_…` of the modules below (where this Python has its `test` package) runs three times:
on asyncio's loop, on the agent loop, and on the agent loop with a save and restore at every idle moment. A
test that passes on the first has to pass on the others, or stand in `CANT` with the reason.

The test case object is part of the state that is saved, as `self` in a local of its coroutine.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import inspect
import logging
import sys
import unittest
from collections.abc import Callable, Iterator

from .driver import Driver

MODULES = [
    "test_asyncio.test_locks",
    "test_asyncio.test_queues",
    "test_asyncio.test_taskgroups",
    "test_asyncio.test_timeouts",
    "test_asyncio.test_waitfor",
    "test_asyncio.test_futures2",
    "test_asyncio.test_staggered",
    "test_asyncio.test_pep492",
    "test_asyncio.test_eager_task_factory",
    "test_asyncio.test_context",
    "test_asyncio.test_tasks",
    "test_asyncio.test_threads",
    "test_contextlib_async",
    "test_coroutines",
    "test_asyncgen",
]

CANT: dict[str, str] = {
    "test_asyncio.test_threads.": "runs code in threads, which the agent loop refuses",
}
"""Beginning of a test's name → why it can't hold."""


def cases() -> Iterator[tuple[str, type[unittest.TestCase], str]]:
    """Names, classes and methods of CPython's async tests."""
    for name in MODULES:
        try:
            module = importlib.import_module(f"test.{name}")
        except ImportError:
            continue
        for case in vars(module).values():
            if not (isinstance(case, type) and issubclass(case, unittest.TestCase)):
                continue
            for method in dir(case):
                if method.startswith("test_") and inspect.iscoroutinefunction(getattr(case, method)):
                    yield f"{name}.{case.__name__}.{method}", case, method


async def as_agent(case: type[unittest.TestCase], method: str) -> None:
    """One test method, with what its case sets up, as `IsolatedAsyncioTestCase` would run it."""
    test = case(method)
    test.setUp()
    if hasattr(test, "asyncSetUp"):
        await test.asyncSetUp()
    try:
        # In a task of its own, as there: some look at the coroutine of the current task.
        await asyncio.create_task(getattr(test, method)())
    finally:
        if hasattr(test, "asyncTearDown"):
            await test.asyncTearDown()
        test.tearDown()


def on_asyncio(case: type[unittest.TestCase], method: str) -> None:
    result = unittest.TestResult()
    case(method).run(result)
    if not result.wasSuccessful() or result.skipped:
        raise AssertionError("fails or is skipped on asyncio itself")


def on_the_agent_loop(case: type[unittest.TestCase], method: str) -> None:
    Driver().outcome(as_agent, case, method)


def saved(case: type[unittest.TestCase], method: str) -> None:
    Driver(save=True).outcome(as_agent, case, method)


def holds(
    way: Callable[[type[unittest.TestCase], str], None], case: type[unittest.TestCase], method: str
) -> str:
    """The empty string, or what went wrong."""
    try:
        way(case, method)
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return ""


def why_not(name: str) -> str | None:
    """The reason that is known for a test that can't hold."""
    return next((reason for beginning, reason in CANT.items() if name.startswith(beginning)), None)


WAYS = {"on the agent loop": on_the_agent_loop, "saved": saved}


def measure() -> tuple[dict[str, int], dict[str, str]]:
    """How many tests hold each way, and what went wrong with those that don't."""
    counts = {"on asyncio": 0, **dict.fromkeys(WAYS, 0)}
    wrong = {}
    for name, case, method in cases():
        if holds(on_asyncio, case, method):
            continue
        counts["on asyncio"] += 1
        for words, way in WAYS.items():
            said = holds(way, case, method)
            if said:
                wrong[f"{name} {words}"] = said
            else:
                counts[words] += 1
    return counts, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--show", action="store_true", help="say what went wrong with each")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    counts, wrong = measure()
    for name, said in wrong.items():
        reason = why_not(name)
        if arguments.show or reason is None:
            print(f"{name}: {reason or said[:300]}")
    print(sys.version.split()[0], *(f"{words}: {count}" for words, count in counts.items()), sep="  ")
    sys.exit(1 if any(why_not(name) is None for name in wrong) else 0)


if __name__ == "__main__":
    main()
