"""Freezing reads a frame as it is, or refuses; it never disturbs and never guesses."""

from __future__ import annotations

import gc
import sys
from typing import Any

import pytest

from snaprt import frames
from snaprt.errors import CodeChanged, NotCapturable, UnsupportedInterpreter
from snaprt.frames import codes, patch, table
from tests.frames.conftest import nap


async def waiting(first: object, *, second: object = 2) -> Any:
    local = [first, second]
    return [local, await nap("here")]


def suspended(*args: Any) -> Any:
    coroutine = waiting(*args)
    coroutine.send(None)
    return coroutine


def finish(coroutine: Any, value: object = None) -> Any:
    with pytest.raises(StopIteration) as stop:
        coroutine.send(value)
    return stop.value.value


def test_a_frozen_frame_has_the_very_objects_of_the_original() -> None:
    marker = object()
    coroutine = suspended(marker)
    frozen = frames.freeze(coroutine)
    assert frozen.values[0] is marker
    assert frozen.values[2] is coroutine.cr_frame.f_locals["local"]
    assert frozen.code is waiting.__code__
    assert frozen.globals is globals()
    assert finish(coroutine, "got") == [[marker, 2], "got"]


def test_freezing_leaves_no_reference_behind() -> None:
    marker = object()
    coroutine = suspended(marker)
    before = sys.getrefcount(marker)
    frames.freeze(coroutine)
    assert sys.getrefcount(marker) == before
    frames.release(coroutine)


def test_created_and_finished_objects_are_frozen_as_such() -> None:
    created = waiting(1)
    copy = frames.thaw(frames.freeze(created))
    assert frames.freeze(copy) == frames.freeze(created)
    assert copy.send(None) == "here"
    assert finish(copy, "x") == [[1, 2], "x"]
    done = frames.thaw(frames.freeze(copy))
    assert frames.freeze(done).shell.status == "finished"
    with pytest.raises(RuntimeError, match="already awaited"):
        done.send(None)
    created.close()


def test_a_running_frame_is_refused() -> None:
    caught: list[BaseException] = []

    def itself() -> Any:
        try:
            frames.freeze(generator)
        except NotCapturable as error:
            caught.append(error)
        yield

    generator = itself()
    next(generator)
    assert "running" in str(caught[0])


def test_what_has_no_frame_is_refused() -> None:
    with pytest.raises(NotCapturable, match="only coroutines"):
        frames.freeze(iter([1]))


def test_an_object_without_values_is_refused_until_it_is_filled() -> None:
    original = suspended("a")
    frozen = frames.freeze(original)
    made = frames.make(frozen.shell, frozen.code, frozen.globals)
    with pytest.raises(NotCapturable, match="not filled"):
        frames.freeze(made)
    with pytest.raises(NotCapturable, match="not filled"):
        frames.prime(made)
    frames.fill(made, frozen.values)
    assert frames.freeze(made) == frozen
    frames.prime(made)
    assert frames.freeze(made) == frozen
    frames.release(original)  # it shares the frame that both await
    assert finish(made, 1) == [["a", 2], 1]


def test_thawing_again_starts_from_the_original_code() -> None:
    coroutine = suspended("a")
    sizes = set()
    for _ in range(5):
        thawed = frames.thaw(frames.freeze(coroutine))
        sizes.add(len(thawed.cr_code.co_code))
        assert frames.original_code(thawed.cr_code) is waiting.__code__
        frames.release(coroutine)
        coroutine = thawed
    assert len(sizes) == 1
    frames.release(coroutine)


def test_a_layout_that_disagrees_with_the_collector_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    coroutine = suspended("a")
    real = gc.get_referents
    monkeypatch.setattr(gc, "get_referents", lambda obj: [*real(obj)[:-1], object()])
    with pytest.raises(NotCapturable, match="differ"):
        frames.freeze(coroutine)
    monkeypatch.undo()
    frames.release(coroutine)


def test_a_shell_that_does_not_fit_the_code_is_refused() -> None:
    coroutine = suspended("a")
    frozen = frames.freeze(coroutine)

    async def other(first: object) -> None:
        await nap(first)

    def generator() -> Any:
        yield

    for code in (other.__code__, generator.__code__):
        with pytest.raises(CodeChanged):
            frames.make(frozen.shell, code, frozen.globals)
    made = frames.make(frozen.shell, frozen.code, frozen.globals)
    with pytest.raises(CodeChanged):
        frames.fill(made, frozen.values[:-1])
    frames.release(made)
    frames.release(coroutine)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda patch: patch.setattr(table, "TABLES", {}), "no proven frame table"),
        (lambda patch: patch.setattr(table, "magic", lambda: 1), "magic"),
        (lambda patch: patch.setattr(table, "gil_build", lambda: False), "free-threaded"),
        (lambda patch: patch.setattr(table.sys.implementation, "name", "pypy"), "isn't CPython"),
        (lambda patch: patch.setattr(table.struct, "calcsize", lambda form: 4), "64-bit"),
    ],
)
def test_an_unproven_interpreter_is_refused_with_the_reason(
    change: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "_verdict", None)
    with monkeypatch.context() as changed:
        change(changed)
        with pytest.raises(UnsupportedInterpreter, match=reason):
            frames.supported()


def test_a_digest_ignores_lines_and_sees_what_runs() -> None:
    def digest(source: str, name: str = "f", filename: str = "one.py") -> str:
        namespace: dict[str, Any] = {}
        exec(compile(source, filename, "exec"), namespace)
        return frames.code_digest(namespace[name].__code__)

    same = digest("def f(a):\n    return a in {1, 2, 'x'}\n")
    assert digest("\n\n\ndef f(a):\n    return a in {1, 2, 'x'}\n", filename="two.py") == same
    assert digest("def f(a):\n    return a in {1, 2, 'y'}\n") != same
    assert digest("def f(b):\n    return b in {1, 2, 'x'}\n") != same
    assert digest("def f():\n    return 1\n") != digest("def f():\n    return True\n")
    assert digest("def f():\n    return 0.0\n") != digest("def f():\n    return -0.0\n")


def test_patched_code_has_the_digest_of_its_original() -> None:
    coroutine = suspended("a")
    thawed = frames.thaw(frames.freeze(coroutine))
    assert thawed.cr_code is not waiting.__code__
    assert frames.code_digest(thawed.cr_code) == frames.code_digest(waiting.__code__)
    frames.release(coroutine)
    frames.release(thawed)


def test_what_is_remembered_of_code_is_bounded() -> None:
    gc.collect()
    others = len(codes.origins)  # code that earlier tests left alive, which stays known
    for number in range(patch.CACHE + 300):
        namespace: dict[str, Any] = {}
        exec(f"def f(a):\n    yield a + {number}\n", namespace)
        generator = namespace["f"](1)
        next(generator)
        frames.release(frames.thaw(frames.freeze(generator)))
        frames.release(generator)
        del generator, namespace
    gc.collect()
    assert len(codes.origins) <= patch.CACHE + others
    assert len(patch._cache) == patch.CACHE
