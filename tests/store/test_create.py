"""Of all who create one object, exactly one wins: threads and processes, on every kind of store that runs
here."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pytest

from snaprt.errors import StoreError
from snaprt.records import Keyring
from snaprt.store import Store
from snaprt.store.objects import FsspecObjects, Objects
from tests.conftest import S3
from tests.store.held import KEYRING, Held
from tests.store.places import memory_url, opened, race, race_to_create


@pytest.fixture(params=["local", "files", "memory", pytest.param("s3", marks=pytest.mark.s3)])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, dict[str, Any]]:
    """A fresh store's URL and options. "files" is a local one whose records are files of their own."""
    if request.param == "files":
        monkeypatch.setattr("snaprt.store.local.appends_in_one_step", lambda folder: False)
    if request.param in ("local", "files"):
        return str(tmp_path / "store"), {}
    if request.param == "memory":
        return memory_url(), {}
    s3: S3 = request.getfixturevalue("s3")
    return f"{s3.url}/agents", dict(s3.storage_options)


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, Any]]:
    """The same, of the kinds that several processes can share."""
    if request.param == "local":
        return str(tmp_path / "store"), {}
    s3: S3 = request.getfixturevalue("s3")
    return f"{s3.url}/agents", dict(s3.storage_options)


RACERS = 4


def in_threads(prepare: Callable[[str], Callable[[], list[int]]]) -> list[list[int]]:
    """Racers that each prepare by themselves and are let go at once."""
    gate = threading.Barrier(RACERS)

    def racer(index: int) -> list[int]:
        run = prepare(f"racer-{index}")
        gate.wait()
        return run()

    with ThreadPoolExecutor(RACERS) as pool:
        return list(pool.map(racer, range(RACERS)))


def in_processes(place: tuple[str, dict[str, Any]], which: str, rounds: int) -> list[list[int]]:
    """The same, each in a process."""
    racers = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.store.places",
                place[0],
                json.dumps(place[1]),
                f"racer-{i}",
                str(rounds),
                which,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        for i in range(RACERS)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("\n")
        racer.stdin.flush()
    return [json.loads(racer.communicate(timeout=120)[0]) for racer in racers]


def one_winner_each(place: tuple[str, dict[str, Any]], won: list[list[int]]) -> None:
    """Every record was won once, by the one that it names, and the log is whole."""
    log = opened(*place).log("raced")
    numbers = sorted(number for each in won for number in each)
    assert numbers == list(range(2, log.newest + 1)), "every number has one winner"
    assert len(numbers) <= RACERS * (ROUNDS - 1) + 1, (
        "all wanted the first, so the others lost a round at least"
    )
    for index, each in enumerate(won):
        for number in each:
            record = log.read(number)
            assert record.header.detail == {"by": f"racer-{index}"}
            assert b"".join(record.sections["values"]) == f"racer-{index}".encode() * 50
    assert log.verify().whole


ROUNDS = 25


def test_threads_that_append_to_one_run_never_both_win(place: tuple[str, dict[str, Any]]) -> None:
    opened(*place).create("raced").append("start")

    def prepare(who: str) -> Callable[[], list[int]]:
        log = opened(*place).log("raced")
        return lambda: race(log, who, ROUNDS)

    one_winner_each(place, in_threads(prepare))


def test_processes_that_append_to_one_run_never_both_win(shared: tuple[str, dict[str, Any]]) -> None:
    opened(*shared).create("raced").append("start")
    one_winner_each(shared, in_processes(shared, "append", ROUNDS))


def test_threads_that_create_one_run_or_answer_one_suspension_have_one_winner(
    place: tuple[str, dict[str, Any]],
) -> None:
    def prepare(who: str) -> Callable[[], list[int]]:
        store = opened(*place)
        return lambda: race_to_create(store, who, 10)

    won = in_threads(prepare)
    assert sorted(turn for each in won for turn in each) == list(range(-10, 10))


def test_processes_that_create_one_run_or_answer_one_suspension_have_one_winner(
    shared: tuple[str, dict[str, Any]],
) -> None:
    won = in_processes(shared, "create", 10)
    assert sorted(turn for each in won for turn in each) == list(range(-10, 10))
    store = opened(*shared)
    for turn in range(10):
        by = store.log(f"new-{turn}").header().detail["by"]
        assert turn in won[int(str(by)[-1])]


@pytest.mark.parametrize("folder", ["watched", "runs/watched/log"])
def test_a_name_is_never_seen_before_its_object_is_whole(
    place: tuple[str, dict[str, Any]], folder: str
) -> None:
    url, options = place
    store = opened(url, options)
    store.create("first").append("start")
    objects: Objects = store._objects  # the floor beneath, where half an object could be seen
    data = bytes(range(256)) * 4000
    seen: list[int] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            seen.extend(objects.sizes(folder).values())
            for name in objects.sizes(folder):
                seen.append(len(objects.read(f"{folder}/{name}")))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        for turn in range(1, 21):
            objects.create(f"{folder}/{turn:012d}", data)
    finally:
        done.set()
        watcher.join()
    seen.extend(objects.sizes(folder).values())
    assert set(seen) == {len(data)}


class Careless(fsspec.get_filesystem_class("memory")):  # type: ignore[misc]  # fsspec is untyped
    """A filesystem whose service takes the condition and ignores it, as rclone's S3 server does."""

    store: dict[str, Any] = {}  # noqa: RUF012  # MemoryFileSystem keeps its objects in a class attribute
    pseudo_dirs = [""]  # noqa: RUF012

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        super().pipe_file(path, value, mode="overwrite", **kwargs)


class Forgetful(Careless):
    """One that refuses the second create and does it all the same."""

    store: dict[str, Any] = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        was = self.exists(path)
        super().pipe_file(path, value, **kwargs)
        if was:
            raise FileExistsError(path)


class Refusing(Careless):
    """One that says that every name is taken, as a service without the condition may."""

    store: dict[str, Any] = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        raise FileExistsError(path)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (Careless, "a second create of the same name succeeded"),
        (Forgetful, "changed the object all the same"),
        (Refusing, "a name nobody can have used is taken"),
    ],
)
def test_a_store_that_lies_about_create_is_refused_before_anything_is_written(
    kind: type[Any], says: str
) -> None:
    fs = kind(skip_instance_cache=True)
    store = Store(FsspecObjects(fs, "/root", "s3://lying", "s3", fenced=True), KEYRING, {}, "here")
    for _ in range(2):  # a bad outcome isn't remembered as a good one
        with pytest.raises(StoreError, match=f'{says}.*fencing="off"'):
            store.create("run").append("start")
    assert store.runs() == []
    assert [path for path in fs.find("/root") if "try-" in path] == []


def test_a_lying_store_is_used_where_its_user_says_that_there_is_no_other_process() -> None:
    objects = FsspecObjects(Careless(skip_instance_cache=True), "/alone", "s3://lying", "s3", fenced=False)
    store = Store(objects, KEYRING, {}, "here")
    store.create("run").append("start")
    assert store.log("run").verify().whole


def test_the_outcome_of_the_probe_is_remembered_and_another_endpoint_is_probed_anew() -> None:
    held = Held()

    def creates() -> int:
        return held.asked["create"]

    Store(held, KEYRING, {}, "one").create("a").append("start")
    first = creates()
    assert first == 4, "two to try, one to remember, one record"
    store = Store(held, KEYRING, {}, "one")
    store._greet()
    store.create("b").append("start")
    assert creates() == first + 1
    other = Store(held, KEYRING, {}, "two")
    other._greet()
    other.create("c").append("start")
    assert creates() == first + 1 + 4


def test_an_outcome_signed_by_somebody_else_is_not_believed() -> None:
    held = Held()
    stranger = Keyring.from_bytes(b"a-key-of-somebody-else-0123456789")
    Store(held, stranger, {}, "one").create("a").append("start")
    held.asked.clear()
    ours = Store(held, KEYRING, {}, "one")
    ours._greet()
    ours.create("b").append("start")
    assert held.asked["create"] == 4
