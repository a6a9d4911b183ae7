"""A bounded sample of the yardstick, and that the yardstick itself would notice a fault."""

from __future__ import annotations

import ast
import unittest
from types import GeneratorType
from typing import Any

import pytest

from snaprt import frames
from snaprt.errors import NotCapturable
from tests.yardstick import exchange, loading, stretch
from tests.yardstick.modules import installed
from tests.yardstick.reasons import known
from tests.yardstick.watch import Watch

pytestmark = pytest.mark.skipif(
    not installed("test_generators"), reason="this installation of Python has no `test` package"
)

# (way, module, at least so many tests hold): each version has more; see docs/yardstick.md.
SAMPLE = [
    ("as written", "test_yield_from", 25),
    ("as written", "test_asyncgen", 40),
    ("as written", "test_coroutines", 20),
    ("stretched", "test_except_star", 50),
    ("stretched", "test_with", 40),
    ("agent loop", "test_asyncio.test_taskgroups", 25),
    ("agent loop", "test_asyncio.test_queues", 15),
    ("agent loop", "test_asyncio.test_timeouts", 20),
    ("agent loop, stretched", "test_asyncio.test_timeouts", 25),
]


@pytest.mark.parametrize(
    ("way", "module", "least"), SAMPLE, ids=lambda value: str(value).replace(", ", "-").replace(" ", "-")
)
def test_cpythons_own_tests_hold_when_frozen_at_each_suspension(way: str, module: str, least: int) -> None:
    from tests.yardstick.measure import measure

    done = measure(module, way)
    assert not done.unexplained
    assert done.held >= least
    assert done.frozen >= done.held


def test_an_exchange_keeps_the_object_and_replaces_its_frame() -> None:
    def counting(limit: int) -> Any:
        for at in range(limit):
            got = yield at
            assert got is None or got == at

    generator = counting(3)
    assert next(generator) == 0
    frame, code = generator.gi_frame, generator.gi_code
    exchange.exchange(generator)
    assert generator.gi_frame is not frame
    assert generator.gi_code is not code
    assert frames.original_code(generator.gi_code) is code
    assert [generator.send(0), *generator] == [1, 2]


def test_an_exchange_of_a_thaw_that_mixes_up_values_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def two(first: object, second: object) -> Any:
        yield
        yield first, second

    thaw = frames.thaw

    def mixed_up(frozen: frames.Frozen) -> Any:
        values = frozen.values[1], frozen.values[0]
        return thaw(frames.Frozen(frozen.shell, frozen.code, frozen.globals, values))

    monkeypatch.setattr(frames, "thaw", mixed_up)
    generator = two("a", "b")
    next(generator)
    with pytest.raises(AssertionError, match="differs"):
        exchange.exchange(generator)
    assert next(generator) == ("a", "b")


def test_every_suspension_is_handed_over_once() -> None:
    seen: list[str] = []
    source = """
def inner():
    yield 1
    yield 2
def outer():
    yield from inner()
async def stream():
    yield 1
    yield 2
async def consumer():
    async for _ in stream():
        await pause()
def use():
    for _ in outer():
        pass
    coroutine = consumer()
    try:
        while True:
            coroutine.send(None)
    except StopIteration:
        pass
"""
    import types

    @types.coroutine
    def pause() -> Any:
        yield

    names: dict[str, Any] = {"pause": pause}
    exec(loading.compiled(source, "<a test>"), names)

    def act(obj: Any) -> None:
        seen.append(obj.__qualname__)
        exchange.exchange(obj)

    with Watch(act) as watch:
        names["use"]()
    # `pause` stands in this file, which isn't a subject of the watch.
    assert sorted(seen) == ["consumer"] * 2 + ["inner"] * 2 + ["outer"] * 2 + ["stream"] * 2
    assert (watch.suspensions, watch.missed) == (8, 0)


def test_a_suspension_inside_a_consumer_in_c_is_counted_as_missed_unless_fed() -> None:
    for compiler, expected in ((compile, 4), (loading.compiled, 0)):
        names: dict[str, Any] = {loading.NAME: loading.feed}
        exec(compiler("def use():\n    return list(each for each in range(4))", "<a test>", "exec"), names)
        with Watch(lambda obj: None) as watch:
            assert names["use"]() == [0, 1, 2, 3]
        assert watch.missed == expected


def test_a_stretched_method_suspends_after_each_statement_of_each_block() -> None:
    source = """
class Tests(unittest.TestCase):
    def test_blocks(self):
        '''A docstring stays one.'''
        with self.subTest():
            x = 1
            try:
                raise ExceptionGroup("", [ValueError()])
            except* ValueError:
                x = 2
            finally:
                x += 1
        self.assertEqual(x, 3)
"""
    tree = stretch.Stretching().visit(ast.parse(source))
    names: dict[str, Any] = {"unittest": unittest, stretch.NAME: lambda function: function}
    exec(compile(tree, "<a test>", "exec"), names)
    generator = names["Tests"]("test_blocks").test_blocks()
    assert type(generator) is GeneratorType
    assert [each.gi_frame.f_lineno for each in [generator] for _ in each] == [6, 10, 12, 7, 5, 13]
    assert names["Tests"].test_blocks.__doc__ == "A docstring stays one."


def test_a_reason_counts_only_for_the_failure_that_it_was_read_from() -> None:
    failure = "Failed example:\n    g.gi_code is f.__code__\nExpected:\n    True\nGot:\n    False\n"
    assert known("test_generators", "__test__.syntax", failure)
    assert known("test_generators", "__test__.syntax", failure.replace("gi_code", "gi_frame")) is None
    assert known("test_genexps", "__test__.syntax", failure) is None
    assert known("test_generators", "__test__.syntax", "AssertionError: 1 != 2") is None


def test_a_frame_that_runs_is_refused_and_left_as_it_was() -> None:
    def refused() -> Any:
        with pytest.raises(NotCapturable, match="running"):
            exchange.exchange(generator)
        yield "done"

    generator = refused()
    assert list(generator) == ["done"]
