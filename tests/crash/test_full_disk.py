"""A disk that is full or read-only stops a run with a clear error, shows nothing half-written, and the run
goes on when that is mended.

A full disk is a real one of a megabyte where mounting is allowed; and everywhere a limit on the size of
files, under which a write stops after some of its bytes just the same.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

import snaprt

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="there are no mounts and limits of that kind"),
]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@dataclass(frozen=True)
class Disk:
    """A store on a disk that can be filled, and given room again, at any moment."""

    url: str
    fill: Callable[[], None]
    make_room: Callable[[], None]


def mounted(place: Path) -> None:
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("mounting a small filesystem needs root on Linux")
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"this system lets nobody mount: {done.stderr.strip()}")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    mounted(place)
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.fixture(params=["disk", "limit"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    if request.param == "disk":
        place: Path = request.getfixturevalue("small")
        filler = place / "filler"

        def fill() -> None:
            with open(filler, "wb", buffering=0) as file:
                try:
                    while True:
                        file.write(bytes(4096))
                except OSError:
                    return

        yield Disk(str(place / "store"), fill, lambda: filler.unlink(missing_ok=True))
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(size: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))

    yield Disk(str(tmp_path / "store"), lambda: limit(300), lambda: limit(soft))
    limit(soft)


# Module globals aren't state: what happened in the world, and the disk that a tool fills on the way.
PAID: list[str] = []
FILL: list[Callable[[], None]] = []


@snaprt.tool(effect="read")
async def look(number: int) -> bytes:
    """Some bytes that no compression makes small."""
    return os.urandom(100_000)


@snaprt.tool(effect="read")
async def the_disk_fills_up() -> str:
    if FILL:
        FILL.pop()()
    return "read"


async def was_paid(key: str) -> object:
    return snaprt.Done("paid") if key in PAID else snaprt.NotDone()


@snaprt.tool(reconcile=was_paid)
async def pay_while_the_disk_fills_up(*, idempotency_key: str) -> str:
    PAID.append(idempotency_key)
    if FILL:
        FILL.pop()()
        return os.urandom(6000).hex()  # more than fits into the last page of a file, which is no full disk's
    return "paid"


async def fills_at_a_read() -> tuple[int, str, str]:
    held = await look(1)
    seen = await the_disk_fills_up()
    return len(held), seen, await pay_while_the_disk_fills_up()


async def fills_at_a_payment() -> tuple[int, str]:
    held = await look(1)
    return len(held), await pay_while_the_disk_fills_up()


async def fills_before_a_blob() -> int:
    await the_disk_fills_up()
    held = await look(1)
    await look(2)
    return len(held)


@pytest.fixture(autouse=True)
def nothing_paid() -> None:
    PAID.clear()
    FILL.clear()


@pytest.mark.parametrize(
    ("agent", "value"),
    [
        (fills_at_a_read, (100_000, "read", "paid")),
        (fills_at_a_payment, (100_000, "paid")),
        (fills_before_a_blob, 100_000),
    ],
)
async def test_a_full_disk_stops_the_run_and_room_lets_it_end(
    disk: Disk, agent: Callable[..., object], value: object, caplog: pytest.LogCaptureFixture
) -> None:
    FILL.append(disk.fill)
    async with snaprt.Runtime(disk.url, patience=0.5) as rt:
        run = await rt.start(agent, run_id="r")
        await until_said(caplog, "no space is left")
        run.drain(0)  # what a tool gave would be tried on
        with pytest.raises(snaprt.StoreError, match=r"no space is left.*Nothing half-written is visible"):
            await run.outcome()
        assert (await rt.verify("r")).whole
        assert (await rt.show("r")).status == "running"
    disk.make_room()
    async with snaprt.Runtime(disk.url) as rt:
        assert (await rt.verify("r")).whole
        assert await (await rt.resume("r")).outcome() == snaprt.Completed("r", value)
        assert (await rt.verify("r")).whole
    assert len(PAID) == (0 if agent is fills_before_a_blob else 1)


@pytest.mark.parametrize(
    ("agent", "value"),
    [(fills_at_a_payment, (100_000, "paid")), (fills_before_a_blob, 100_000)],
)
async def test_what_a_tool_gave_outlasts_a_full_disk(
    disk: Disk, agent: Callable[..., object], value: object, caplog: pytest.LogCaptureFixture
) -> None:
    FILL.append(disk.fill)
    async with snaprt.Runtime(disk.url, patience=0.0) as rt:
        run = await rt.start(agent, run_id="r")
        await until_said(caplog, "no space is left")
        disk.make_room()
        outcome = await run.outcome()
        assert isinstance(outcome, snaprt.Completed)
        if agent is fills_before_a_blob:
            assert outcome.value == value
        assert (await rt.verify("r")).whole
    assert len(PAID) == (agent is fills_at_a_payment)


async def until_said(caplog: pytest.LogCaptureFixture, what: str) -> None:
    with anyio.fail_after(60):
        while what not in caplog.text:
            await anyio.sleep(0.01)


async def test_a_run_that_finds_the_disk_full_is_not_there_at_all(disk: Disk) -> None:
    async with snaprt.Runtime(disk.url, patience=0.5) as rt:
        await (await rt.start(fills_before_a_blob, run_id="before")).outcome()
        disk.fill()
        with pytest.raises(snaprt.StoreError, match="no space is left"):
            await rt.start(fills_before_a_blob, run_id="r")
        assert [each.run for each in await rt.list()] == ["before"]
        with pytest.raises(snaprt.UnknownRun):
            await rt.resume("r")
        disk.make_room()
        done = await (await rt.start(fills_before_a_blob, run_id="r")).outcome()
        assert done == snaprt.Completed("r", 100_000)


async def test_a_full_disk_takes_no_answer_and_room_lets_it_be_given(disk: Disk) -> None:
    async with snaprt.Runtime(disk.url, patience=0.5) as rt:
        await (await rt.start(asks, run_id="r")).outcome()
        disk.fill()
        with pytest.raises(snaprt.StoreError, match="no space is left"):
            await rt.answer("r", "yes" * 200)
        disk.make_room()
        await rt.answer("r", "yes")
        assert await (await rt.resume("r")).outcome() == snaprt.Completed("r", "yes")


async def asks() -> object:
    return await snaprt.suspend("well?")


@pytest.fixture
def frozen(small: Path) -> Iterator[tuple[str, Callable[[bool], None]]]:
    """A store on a disk that can be made read-only."""

    def freeze(on: bool) -> None:
        subprocess.run(["mount", "-o", f"remount,{'ro' if on else 'rw'}", str(small)], check=True)

    yield str(small / "store"), freeze
    freeze(False)


async def test_a_read_only_store_can_be_looked_at_and_says_why_nothing_goes_on(
    frozen: tuple[str, Callable[[bool], None]],
) -> None:
    url, freeze = frozen
    async with snaprt.Runtime(url) as rt:
        await (await rt.start(asks, run_id="r")).outcome()
        await rt.answer("r", "yes")
    freeze(True)
    async with snaprt.Runtime(url, patience=0.5) as rt:
        assert (await rt.show("r")).status == "suspended"
        assert (await rt.verify("r")).whole
        for refused in (rt.resume("r"), rt.start(asks, run_id="s"), rt.answer("r", "no", suspension="ask-1")):
            with pytest.raises(snaprt.StoreError, match="read-only filesystem"):
                await refused
        assert [each.run for each in await rt.list()] == ["r"]
    freeze(False)
    async with snaprt.Runtime(url) as rt:
        assert await (await rt.resume("r")).outcome() == snaprt.Completed("r", "yes")


async def test_a_disk_that_becomes_read_only_under_a_run_stops_it_resumable(
    frozen: tuple[str, Callable[[bool], None]], caplog: pytest.LogCaptureFixture
) -> None:
    url, freeze = frozen
    FILL.append(lambda: freeze(True))
    async with snaprt.Runtime(url, patience=0.5) as rt:
        run = await rt.start(fills_at_a_payment, run_id="r")
        await until_said(caplog, "read-only filesystem")
        run.drain(0)
        with pytest.raises(snaprt.StoreError, match="read-only filesystem"):
            await run.outcome()
    freeze(False)
    async with snaprt.Runtime(url) as rt:
        assert await (await rt.resume("r")).outcome() == snaprt.Completed("r", (100_000, "paid"))
    assert len(PAID) == 1
