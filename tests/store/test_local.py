"""The local store: what is written lasts, what isn't whole is never seen, and a disk that can't is said to
be one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from snaprt.errors import StoreError
from snaprt.store import Store
from snaprt.store.local import LocalObjects
from tests.store.held import KEYRING
from tests.store.places import opened


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What was asked of the operating system, in order: links, appends, and syncs by path."""
    seen: list[tuple[str, str]] = []
    sync, datasync, link, write = os.fsync, os.fdatasync, os.link, os.writev

    def fsync(descriptor: int) -> None:
        seen.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))
        sync(descriptor)

    def fdatasync(descriptor: int) -> None:
        seen.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))
        datasync(descriptor)

    def writev(descriptor: int, pieces: list[bytes]) -> int:
        seen.append(("append", os.readlink(f"/proc/self/fd/{descriptor}")))
        return write(descriptor, pieces)

    def linked(source: str, target: str) -> None:
        link(source, target)
        seen.append(("link", str(target)))

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "link", linked)
    monkeypatch.setattr(os, "fdatasync", fdatasync)
    monkeypatch.setattr(os, "writev", writev)
    return seen


needs_proc = pytest.mark.skipif(
    not os.path.isdir("/proc/self/fd"), reason="paths of descriptors come from /proc"
)


@needs_proc
def test_an_object_is_synced_before_it_has_its_name_and_its_folder_after(
    tmp_path: Path, calls: list[tuple[str, str]]
) -> None:
    objects = LocalObjects(str(tmp_path / "a" / "b"))
    objects.create("runs/r/log/1", b"data")
    link = calls.index(("link", str(tmp_path / "a/b/runs/r/log/1")))
    before, after = calls[:link], calls[link + 1 :]
    assert before[-1][1].startswith(str(tmp_path / "a/b/tmp/")), "the file itself"
    folders = ["a/b/runs/r/log", "a/b/runs/r", "a/b/runs", "a/b", "a", ""]
    assert after == [("sync", str(tmp_path / folder)) for folder in folders], "and each that was made"


SMALL = {"state": [b"x" * 1000]}
LARGE = {"state": [b"x" * 100_000, b"y" * 300_000, b"z" * 1_000_000]}


@needs_proc
def test_an_append_costs_one_sync(tmp_path: Path, calls: list[tuple[str, str]]) -> None:
    log = opened(str(tmp_path)).create("r")
    log.append("start")
    for sections in (SMALL, LARGE):
        calls.clear()
        log.append("result", sections=sections)
        first = str(tmp_path / "runs/r/log/000000000001")
        assert calls == [("append", first), ("sync", first)], "however many leaves are new"


@needs_proc
def test_an_append_costs_two_syncs_and_one_link_where_records_are_files(
    tmp_path: Path, calls: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("snaprt.store.local.appends_in_one_step", lambda folder: False)
    log = opened(str(tmp_path)).create("r")
    log.append("start")
    for sections in (SMALL, LARGE):
        calls.clear()
        log.append("result", sections=sections)
        assert [what for what, _ in calls] == ["sync", "link", "sync"], "however many leaves are new"


@needs_proc
def test_another_process_makes_last_what_it_found_made(tmp_path: Path, calls: list[tuple[str, str]]) -> None:
    LocalObjects(str(tmp_path / "s")).create("runs/r/log/1", b"data")
    calls.clear()
    objects = LocalObjects(str(tmp_path / "s"))
    objects.create("runs/r/log/2", b"data")
    assert {path for what, path in calls if what == "sync"} >= {
        str(tmp_path / folder) for folder in ("", "s", "s/runs", "s/runs/r", "s/runs/r/log")
    }
    calls.clear()
    objects.create("runs/r/log/3", b"data")
    assert [what for what, _ in calls] == ["sync", "link", "sync"], "once"


@needs_proc
def test_blobs_last_before_the_record_that_refers_to_them(
    tmp_path: Path, calls: list[tuple[str, str]]
) -> None:
    log = opened(str(tmp_path)).create("r")
    log.append("start")
    calls.clear()
    log.append("result", sections={"state": [bytes(5_000_000), b"x" * 5_000_000]})
    kinds = [(what, Path(path).parent.name if what == "link" else Path(path).name) for what, path in calls]
    folder = kinds.index(("sync", "blobs"))
    assert [kind for kind in kinds[:folder] if kind[0] == "link"] == [("link", "blobs")] * 2
    assert kinds.index(("append", "000000000001")) > folder


def test_what_others_left_half_written_is_invisible_and_goes_when_it_is_old(tmp_path: Path) -> None:
    store = opened(str(tmp_path))
    store.create("r").append("start")
    old, new = tmp_path / "tmp" / "1-dead", tmp_path / "tmp" / "2-alive"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 7200,) * 2)
    (tmp_path / "runs" / "r" / "log" / ".hidden").write_bytes(b"half")
    log = opened(str(tmp_path)).log("r")
    assert log.newest == 1
    log.append("result")
    assert not old.exists()
    assert new.exists(), "somebody may be writing it"
    assert store.runs() == ["r"]
    assert log.verify().whole


def test_nothing_stays_in_tmp_when_a_write_succeeds_or_loses(tmp_path: Path) -> None:
    objects = LocalObjects(str(tmp_path))
    objects.create("a", b"1")
    with pytest.raises(FileExistsError):
        objects.create("a", b"2")
    assert objects.read("a") == b"1"
    assert os.listdir(tmp_path / "tmp") == []


@pytest.mark.skipif(os.name != "posix", reason="file modes mean nothing on this system")
def test_states_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    opened(str(tmp_path / "store")).create("r").append("start", sections={"state": [bytes(100_000)]})
    for path in (tmp_path / "store").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


LIMITED = """
import random
import resource
import sys

from snaprt.errors import StoreError
from tests.store.places import opened

log = opened(sys.argv[1]).create("r")
log.append("start")
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
noise = random.Random(1)
for sections in ({"values": [noise.randbytes(60_000)]}, {"state": [noise.randbytes(200_000)]}):
    try:
        log.append("result", sections=sections)
    except StoreError as error:
        print(error)
    assert list(log.sizes()) == ["log/000000000001"] and log.verify().whole
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
log.append("finish")
print(sorted(log.sizes()))
print(log.verify().whole)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no file size limits of a process")
def test_a_write_that_stops_in_the_middle_shows_nothing_and_the_run_goes_on(tmp_path: Path) -> None:
    # A limit on the size of files stops a real write after some of its bytes, as a full disk does.
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        timeout=60,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 4, done.stderr
    for line in lines[:2]:
        assert "no space is left" in line
        assert "Nothing half-written is visible" in line
    assert lines[2] == "['log/000000000001', 'log/000000000002']"
    assert lines[3] == "True"
    assert os.listdir(tmp_path / "tmp") == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real filesystem of one megabyte."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("mounting a small filesystem needs root on Linux")
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"this system lets nobody mount: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_is_said_to_be_full_and_room_mends_it(small_disk: Path) -> None:
    log = opened(str(small_disk / "store")).create("r")
    log.append("start")
    filler = small_disk / "filler"
    filler.write_bytes(bytes(900_000))
    with pytest.raises(StoreError, match=r"failed while writing blobs?.*no space is left|no space is left"):
        log.append("result", sections={"state": [os.urandom(300_000)]})
    assert log.verify().whole
    filler.unlink()
    assert log.append("result", sections={"state": [os.urandom(300_000)]}).header.number == 2
    assert log.verify().whole


def test_a_read_only_disk_can_be_read_and_says_that_it_cannot_be_written(small_disk: Path) -> None:
    opened(str(small_disk / "store")).create("r").append("start", sections={"summary": [b'{"a": 1}']})
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    log = opened(str(small_disk / "store")).log("r")
    assert log.summary() == {"a": 1}
    with pytest.raises(StoreError, match="read-only filesystem"):
        log.append("result")
    assert log.newest == 1


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="is a file; a store is a folder"):
        opened(str(tmp_path / "file"))
    with pytest.raises(StoreError, match="Not a directory"):
        opened(str(tmp_path / "file" / "below")).create("r").append("start")


def test_a_relative_store_stays_where_it_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store.open(".snaprt", keyring=KEYRING)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    store.create("r").append("start")
    assert (tmp_path / ".snaprt" / "runs" / "r").is_dir()
    file = (tmp_path / ".snaprt/runs/r/log/000000000001").as_uri()
    assert store.log("r").url(1).startswith(f"{file}#bytes=64-"), "and says where in it the record lies"


def test_nothing_is_written_by_looking(tmp_path: Path) -> None:
    store = opened(str(tmp_path / "store"))
    assert store.runs() == []
    assert list(store.listing()) == []
    assert not store.removed("r")
    assert not (tmp_path / "store").exists()
