"""Runs asyncio programs of the `test` package on the agent loop, saved and restored between any two turns.

A test method that is a coroutine function (of an `IsolatedAsyncioTestCase`, or wrapped by a decorator that
runs it) becomes a task of a run, with its set-up, tear-down and clean-ups around it. After every turn of the
loop in which it stands at an await, idle or not, the run is saved, the old one released, and what was loaded
goes on. The test case itself travels in the state, by its class and its `__dict__`: the assertions that the
coroutine makes later are made on the restored one. The clock is a number that jumps to the next timer when
everybody waits.

`loop` is the same without saving. What fails there fails because of the agent loop and not of a restore.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import io
import signal
import traceback
import unittest
import warnings
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from snaprt import frames
from snaprt.errors import SnaprtError
from snaprt.kernel import Kernel
from snaprt.kernel import kernel as kernel_module
from tests.yardstick import loading
from tests.yardstick.inplace import LIMIT, Overtime, Told, each_test

TURNS = 3000
"""Turns of a loop after which a test doesn't end. The longest here takes some hundreds."""


def coroutine_method(test: unittest.TestCase) -> Callable[[], Any] | None:
    """The test's method as one that gives a coroutine; None if it isn't one."""
    method = getattr(test, test._testMethodName, None)
    if method is None:
        return None
    if inspect.iscoroutinefunction(method):
        return method
    function = inspect.unwrap(method.__func__) if inspect.ismethod(method) else None
    return function.__get__(test) if inspect.iscoroutinefunction(function) else None


async def play(test: Any, method: Callable[[], Any]) -> None:
    """The agent: all of one test."""
    isolated = isinstance(test, unittest.IsolatedAsyncioTestCase)
    try:
        test.setUp()
        if isolated:
            await test.asyncSetUp()
        try:
            await asyncio.create_task(method())  # a task of its own, whose coroutine tests look for
        finally:
            if isolated:
                await test.asyncTearDown()
            test.tearDown()
    finally:
        while test._cleanups:
            function, args, kwargs = test._cleanups.pop()
            done = function(*args, **kwargs)
            if inspect.isawaitable(done):
                await done


def run(
    name: str,
    how: str,
    only: set[str] | None,
    skip: set[str],
    tell: Callable[[dict[str, Any]], None],
    *,
    stretched: bool = False,
) -> None:
    """Run the coroutine methods of `test.<name>`; the others aren't told of."""
    kernel_module.MANY_TURNS = 1
    if stretched:
        loading.prepare(f"test.{name}")
    module = loading.load(name)
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    classes: set[type] = set()
    for test in each_test(suite):
        label = test.id().removeprefix(f"test.{name}.")
        if label in skip or (only is not None and label not in only) or coroutine_method(test) is None:
            continue
        if type(test) not in classes:
            classes.add(type(test))
            type(test).setUpClass()
        tell({"begins": label})
        tell(asdict(_one(test, label, how)))


def _one(test: unittest.TestCase, label: str, how: str) -> Told:
    told = Told(label, "failed")
    method = coroutine_method(test)
    assert method is not None
    for each in (type(test), method):
        if getattr(each, "__unittest_skip__", False):
            told.outcome, told.detail = "skipped", str(getattr(each, "__unittest_skip_why__", ""))
            return told
    test.__dict__.pop("_asyncioTestContext", None)  # of unittest's own runner, which isn't used

    def overtime(*_: Any) -> None:
        raise Overtime(f"more than {LIMIT} s")

    signal.signal(signal.SIGALRM, overtime)
    signal.alarm(LIMIT)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            error = _drive(test, method, told, saving=how == "saved")
    except (Exception, Overtime, asyncio.CancelledError) as unexpected:
        error = unexpected
    finally:
        signal.alarm(0)
    if getattr(method, "__unittest_expecting_failure__", False):
        error = None if error is not None else AssertionError("unexpected success")
    if isinstance(error, unittest.SkipTest):
        told.outcome, told.detail = "skipped", str(error)
    elif error is None:
        told.outcome = "passed"
    else:
        told.detail = "".join(traceback.format_exception(error))[-3000:]
    return told


def _stands_in(code: Any, kernel: Kernel) -> bool:
    """Whether the coroutine of the test waits: it has begun and hasn't ended."""
    for task in asyncio.all_tasks(kernel.loop):
        coro: Any = task.get_coro()
        if inspect.iscoroutine(coro) and frames.original_code(coro.cr_code) is code:
            return inspect.getcoroutinestate(coro) == inspect.CORO_SUSPENDED
    return False


def _drive(test: unittest.TestCase, method: Any, told: Told, *, saving: bool) -> BaseException | None:
    now = [1_000_000.0]

    def clock() -> float:
        return now[0]

    kernel = Kernel("yardstick", {}, clock=clock)
    kernel.start(play, (test, method))
    code = inspect.unwrap(method).__code__
    for _ in range(TURNS):
        kernel.advance()
        if kernel.status != "running":
            return kernel.error
        stands = _stands_in(code, kernel)
        told.suspensions += stands
        if saving and stands:
            refused = False
            try:
                parts = [bytes(part) for part in kernel.save().parts]
            except SnaprtError as refusal:
                told.refusals.append(f"{type(refusal).__name__}: {refusal}")
                refused = True
            else:
                kernel.release()
                kernel = Kernel.load(parts, clock=clock)
                told.frozen += 1
            if refused:
                gc.collect()  # what the refusal's traceback holds would outlive the test's own references
        due = kernel.next_timer()
        if due is None:
            raise AssertionError("the test waits for nothing that could come")
        now[0] = max(now[0], due)
    raise AssertionError(f"the test doesn't end within {TURNS} turns")
