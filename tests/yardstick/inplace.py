"""Runs one module of the `test` package in this process, test by test, and tells what became of each.

Three ways: `plain` runs the module as it is, `watched` with all of the watching and no freezing, `frozen`
with a freeze and thaw at each suspension. Always in a process of its own (see `worker`): a frame put back
wrongly could take the interpreter down with it.
"""

from __future__ import annotations

import contextlib
import gc
import io
import signal
import traceback
import unittest
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from snaprt import frames
from snaprt.errors import SnaprtError
from tests.yardstick import exchange, loading
from tests.yardstick.watch import Watch

LIMIT = 60
"""Seconds for one test. Only a few come near it while every instruction is watched."""

MANY = 20_000
"""Suspensions of one test that are frozen. One has half a million when stretched, all of one loop."""


@dataclass
class Told:
    """What became of one test."""

    test: str
    outcome: str  # passed, failed, skipped
    suspensions: int = 0
    frozen: int = 0
    missed: int = 0
    refusals: list[str] = field(default_factory=list)
    detail: str = ""


class Overtime(BaseException):
    pass


def each_test(suite: Any) -> Iterator[unittest.TestCase]:
    """The tests of a suite, one by one."""
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from each_test(each)
        else:
            yield each


def run(
    name: str,
    how: str,
    only: set[str] | None,
    skip: set[str],
    tell: Callable[[dict[str, Any]], None],
    *,
    stretched: bool = False,
    keep_frame_objects: bool = False,
) -> None:
    """Run the tests of `test.<name>`, and `tell` of each as a plain dict: before it runs, and after."""
    if how != "plain":
        loading.prepare(f"test.{name}" if stretched else None)
    module = loading.load(name)
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    getattr(module, "setUpModule", lambda: None)()
    gc.collect()
    gc.freeze()  # what is loaded by now needn't be gone through again after each of hundreds of tests
    try:
        seen: dict[str, int] = {}
        for test in each_test(suite):
            label = test.id().removeprefix(f"test.{name}.")
            seen[label] = seen.get(label, 0) + 1
            if seen[label] > 1:
                label += f"#{seen[label]}"
            if label not in skip and (only is None or label in only):
                tell({"begins": label})
                tell(asdict(_one(test, label, how, keep_frame_objects)))
    finally:
        getattr(module, "tearDownModule", lambda: None)()


def _one(test: unittest.TestCase, label: str, how: str, keep_frame_objects: bool) -> Told:
    told = Told(label, "failed")

    def act(obj: Any) -> None:
        if how != "frozen" or told.frozen == MANY:
            return
        code = frames.original_code(_code(obj))
        if not exchange.has_room(code):
            told.missed += 1  # code that the test compiled itself: there was no way to make room
            return
        try:
            exchange.exchange(obj, keep_frame_object=keep_frame_objects)
            told.frozen += 1
        except SnaprtError as error:
            told.refusals.append(str(error))

    result = _Result()
    watch = Watch(act)

    def overtime(*_: Any) -> None:
        raise Overtime(f"more than {LIMIT} s")

    signal.signal(signal.SIGALRM, overtime)
    signal.alarm(LIMIT)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            if how == "plain":
                unittest.TestSuite([test]).run(result)
            else:
                with watch:
                    unittest.TestSuite([test]).run(result)
    except Overtime as error:
        result.details.append(str(error))
        result.failed = True
    finally:
        signal.alarm(0)
    gc.collect()
    told.suspensions = watch.suspensions
    told.missed += watch.missed
    told.outcome = "failed" if result.failed else "skipped" if result.was_skipped else "passed"
    told.detail = "\n".join(result.details)
    return told


def _code(obj: Any) -> Any:
    return getattr(obj, "gi_code", None) or getattr(obj, "cr_code", None) or obj.ag_code


class _Result(unittest.TestResult):
    """Collects what went wrong as text."""

    def __init__(self) -> None:
        super().__init__()
        self.failed = self.was_skipped = False
        self.details: list[str] = []

    def _wrong(self, error: Any) -> None:
        self.failed = True
        self.details.append("".join(traceback.format_exception(*error))[-3000:])

    def addError(self, test: Any, err: Any) -> None:
        self._wrong(err)

    def addFailure(self, test: Any, err: Any) -> None:
        self._wrong(err)

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self._wrong(err)

    def addSkip(self, test: Any, reason: str) -> None:
        self.was_skipped = True
        self.details.append(reason)

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        pass

    def addUnexpectedSuccess(self, test: Any) -> None:
        self.failed = True
        self.details.append("unexpected success")
