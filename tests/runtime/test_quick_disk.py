"""A small record on a quick disk of this machine is written where the run is; everything else in a thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

import snaprt
from snaprt.store.failures import Transient
from snaprt.store.local import LocalObjects
from snaprt.store.log import Log

pytestmark = pytest.mark.anyio

IN_HAND: list[anyio.Event] = []


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@snaprt.tool(effect="read")
async def read(size: int = 1) -> bytes:
    """Bytes that no compression makes small."""
    return os.urandom(size)


@snaprt.tool
async def write() -> str:
    return "done"


@snaprt.tool(effect="read")
async def last_until_told() -> str:
    await IN_HAND[0].wait()
    return "told"


@snaprt.tool(effect="read")
async def tell() -> None:
    IN_HAND[0].set()


async def small() -> int:
    return sum([len(await read()) for _ in range(3)]) + len(await write())


async def large() -> int:
    return len(await read(1_000_000))


async def beside_another() -> str:
    import asyncio

    waiting = asyncio.ensure_future(last_until_told())
    await read()
    await tell()
    return await waiting


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each record in its order, whether it was written in the thread of the host loop."""
    seen: list[bool] = []
    create = LocalObjects.create

    def created(self: LocalObjects, name: str, data: bytes) -> None:
        if "/log/" in name:
            seen.append(threading.current_thread() is threading.main_thread())
        create(self, name, data)

    monkeypatch.setattr(LocalObjects, "create", created)
    return seen


@pytest.fixture
def took(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Has every record take so many seconds, as far as the log can tell."""

    def set_to(seconds: float) -> None:
        monkeypatch.setattr(
            Log, "_took", property(lambda self: seconds, lambda self, value: None), raising=False
        )

    return set_to


async def outcome(place: Path, agent: Callable[..., object]) -> object:
    IN_HAND[:] = [anyio.Event()]
    async with snaprt.Runtime(str(place)) as rt:
        return await (await rt.start(agent, run_id="r")).outcome()


async def test_small_records_of_a_run_that_waits_for_nothing_else_take_no_thread(
    tmp_path: Path, here: list[bool], took: Callable[[float], None]
) -> None:
    took(0.0)
    assert await outcome(tmp_path, small) == snaprt.Completed("r", 7)
    assert here == [False, *[True] * 5, False], "all but the first and the last"


async def test_on_a_disk_that_was_slow_the_last_time_they_do(
    tmp_path: Path, here: list[bool], took: Callable[[float], None]
) -> None:
    took(0.01)
    await outcome(tmp_path, small)
    assert not any(here)


async def test_large_records_do(tmp_path: Path, here: list[bool], took: Callable[[float], None]) -> None:
    took(0.0)
    await outcome(tmp_path, large)
    assert not any(here)


async def test_so_do_records_while_a_tool_runs(
    tmp_path: Path, here: list[bool], took: Callable[[float], None]
) -> None:
    took(0.0)
    assert await outcome(tmp_path, beside_another) == snaprt.Completed("r", "told")
    assert here[:2] == [False, False], "the start, and what was read while the other call was out"


async def test_a_record_that_fails_for_a_moment_is_tried_again_in_a_thread(
    tmp_path: Path, here: list[bool], took: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    took(0.0)
    monkeypatch.setattr("snaprt.store.log.PAUSES", (0.0,))
    create, failing = LocalObjects.create, [True]

    def fails_once(self: LocalObjects, name: str, data: bytes) -> None:
        create(self, name, data)
        if name.endswith("log/000000000002") and failing and failing.pop():
            raise Transient("the answer was lost")

    monkeypatch.setattr(LocalObjects, "create", fails_once)
    assert await outcome(tmp_path, small) == snaprt.Completed("r", 7)
    assert here[:4] == [False, True, False, True]
    async with snaprt.Runtime(str(tmp_path)) as rt:
        assert (await rt.verify("r")).whole
