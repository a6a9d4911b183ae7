"""The records of a run in one file: one winner a number, a torn one is skipped, damage is never skipped, and
a run may be taken to where nothing can be appended."""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from snaprt.errors import Damaged, Fenced, RunExists, SnaprtError, UnknownRun, WrongKey
from snaprt.store import packed
from snaprt.store.local import LocalObjects
from tests.store.places import opened

ROOT = Path(__file__).parents[2]
FOLDER = "runs/r/log"
HEAD, CHECK = 32, 8

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="records are files of their own on this system"
)


def name(number: int) -> str:
    return f"{FOLDER}/{number:012d}"


def content(number: int, size: int = 60) -> bytes:
    return (f"record {number} ".encode() * size)[:size]


def made(place: Path, *numbers: int) -> LocalObjects:
    """A store with these records."""
    objects = LocalObjects(str(place))
    for number in numbers:
        objects.create(name(number), content(number))
    return objects


def records(place: Path) -> dict[int, bytes]:
    """What somebody sees who opens the store now."""
    objects = LocalObjects(str(place))
    found = {int(each): objects.read(f"{FOLDER}/{each}") for each in objects.sizes(FOLDER)}
    assert {number: len(data) for number, data in found.items()} == {
        int(each): size for each, size in objects.sizes(FOLDER).items()
    }
    return found


def pack_of(place: Path) -> Path:
    return place / name(1)


def expected(*numbers: int) -> dict[int, bytes]:
    return {number: content(number) for number in numbers}


@pytest.fixture
def filed(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Makes every filesystem one on which nothing is appended, or takes that back."""

    def switch(on: bool) -> None:
        known = (lambda folder: False) if on else packed.appends_in_one_step
        monkeypatch.setattr("snaprt.store.local.appends_in_one_step", known)

    return switch


def test_records_lie_in_the_file_of_the_first_and_each_can_be_had_by_its_name(tmp_path: Path) -> None:
    objects = made(tmp_path, 1, 2, 3)
    assert os.listdir(tmp_path / FOLDER) == ["000000000001"]
    assert records(tmp_path) == expected(1, 2, 3)
    assert objects.part(name(2), 3, 9) == content(2)[3:9]
    assert objects.part(name(2), 50, 99) == content(2)[50:]
    assert objects.part(name(2), 99, 120) == b""
    assert objects.starts([name(3), name(1)], 5) == [content(3)[:5], content(1)[:5]]
    with objects.reader(name(2)) as file:
        assert file.read() == content(2)
    url, _, where = objects.locate(name(2)).partition("#bytes=")
    assert url == pack_of(tmp_path).as_uri()
    start, end = map(int, where.split("-"))
    assert pack_of(tmp_path).read_bytes()[start:end] == content(2)
    for number in (4, 0):
        with pytest.raises(FileNotFoundError):
            objects.read(name(number))
    with pytest.raises(FileExistsError):
        objects.create(name(2), b"another")
    assert records(tmp_path) == expected(1, 2, 3)


def test_a_reader_sees_what_others_append(tmp_path: Path) -> None:
    objects = made(tmp_path, 1)
    reader = LocalObjects(str(tmp_path))
    assert list(reader.sizes(FOLDER)) == ["000000000001"]
    objects.create(name(2), content(2))
    assert reader.read(name(2)) == content(2)
    LocalObjects(str(tmp_path)).create(name(3), content(3))
    assert objects.read(name(3)) == content(3)
    assert len(reader.sizes(FOLDER)) == 3


@pytest.mark.parametrize("zeros", [0, 1, 700, 5000], ids="cut before {} zeros".format)
def test_a_record_torn_at_any_byte_is_not_there_and_the_next_is(tmp_path: Path, zeros: int) -> None:
    made(tmp_path, 1, 2)
    whole = pack_of(tmp_path).read_bytes()
    made(tmp_path, 3)
    torn = pack_of(tmp_path).read_bytes()[len(whole) :]
    last = len(torn) - (2 if zeros else 1)  # of a check's last byte nobody can say whether it was to be zero
    for cut in range(last + 1):
        place = tmp_path / str(cut)
        shutil.copytree(tmp_path / "runs", place / "runs")
        pack_of(place).write_bytes(whole + torn[:cut] + bytes(zeros))
        assert records(place) == expected(1, 2), cut
        other = {3: b"another's", 4: content(4)}
        for number, data in other.items():
            LocalObjects(str(place)).create(name(number), data)
        assert records(place) == expected(1, 2) | other, cut
        shutil.rmtree(place)


def test_of_torn_records_in_a_row_all_are_skipped(tmp_path: Path) -> None:
    made(tmp_path, 1)
    whole = pack_of(tmp_path).read_bytes()
    frame = whole[32:]
    with open(pack_of(tmp_path), "ab") as file:
        file.write(frame[:40] + frame[:20] + frame[:4] + frame[:20] + frame[:70])
    made(tmp_path, 2)
    with open(pack_of(tmp_path), "ab") as file:
        file.write(frame[:-1])
    made(tmp_path, 3)
    assert records(tmp_path) == expected(1, 2, 3)


def test_of_two_torn_records_in_a_row_both_are_skipped_wherever_they_end(tmp_path: Path) -> None:
    made(tmp_path, 1)
    whole = pack_of(tmp_path).read_bytes()
    made(tmp_path, 2)
    frame = pack_of(tmp_path).read_bytes()[len(whole) :]
    for first in range(1, len(frame), 3):
        for second in range(8, len(frame), 3):
            pack_of(tmp_path).write_bytes(whole + frame[:first] + frame[:second])
            assert records(tmp_path) == expected(1), (first, second)


def test_a_record_that_stops_in_the_middle_of_its_write_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = made(tmp_path, 1)
    write = os.writev
    monkeypatch.setattr(os, "writev", lambda where, pieces: write(where, [b"".join(pieces)[:50]]))
    with pytest.raises(SnaprtError, match=r"no space is left.*50 of 100 bytes"):
        objects.create(name(2), content(2))
    monkeypatch.setattr(os, "writev", write)
    assert records(tmp_path) == expected(1)
    objects.create(name(2), content(2))
    assert records(tmp_path) == expected(1, 2)


def flipped(place: Path, whole: bytes, at: int, bit: int) -> None:
    changed = bytearray(whole)
    changed[at] ^= 1 << bit
    pack_of(place).write_bytes(changed)


def test_a_flip_of_any_bit_of_any_byte_is_refused_or_changes_nothing(tmp_path: Path) -> None:
    # With records of everything that a pack may hold: whole ones, torn ones, and one that lost its race.
    made(tmp_path, 1, 2)
    whole = pack_of(tmp_path).read_bytes()
    frame = whole[-100:]
    lost = packed._Frames(whole[8:24]).framed(2, b"too late")
    pack_of(tmp_path).write_bytes(whole + b"".join(lost) + frame[:70])
    made(tmp_path, 3, 4)
    whole = pack_of(tmp_path).read_bytes()
    good = expected(1, 2, 3, 4)
    assert records(tmp_path) == good
    data = {at for each in good.values() for at in range(whole.index(each), whole.index(each) + len(each))}
    refused: list[str] = []
    for at in range(len(whole)):
        for bit in range(8):
            flipped(tmp_path, whole, at, bit)
            try:
                found = records(tmp_path)
            except Damaged as error:
                refused.append(str(error))
                continue
            if at < 8:  # the magic of the file: it is a record by itself, and proves to be none, above
                assert found == {1: pack_of(tmp_path).read_bytes()}
            elif at in data:  # proven by the record's own signature, above
                assert found.keys() == good.keys()
            else:
                assert found == good, f"byte {at} bit {bit}"
    assert len(refused) > 8 * 200
    assert all(f"{pack_of(tmp_path)} is damaged at byte " in each for each in refused)


def test_a_log_with_a_flipped_byte_is_reported_and_not_read(tmp_path: Path) -> None:
    log = opened(str(tmp_path)).create("r")
    for number in range(1, 4):
        log.append("start" if number == 1 else "result", sections={"values": [b"v%d" % number]})
    path = tmp_path / "runs/r/log/000000000001"
    whole = path.read_bytes()
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 1 << at % 8
        path.write_bytes(changed)
        report = opened(str(tmp_path)).verify("r")
        assert not report.whole, at
        with pytest.raises((Damaged, WrongKey)):
            read_all(tmp_path)


def read_all(place: Path) -> None:
    log = opened(str(place)).log("r")
    for header in log.headers():
        log.read(header.number)


def test_bytes_that_were_no_record_are_refused_with_their_place(tmp_path: Path) -> None:
    made(tmp_path, 1, 2)
    whole = pack_of(tmp_path).read_bytes()
    for foreign in (b"x" * 200, b"x", whole[32:], bytes(10) + b"x", struct.pack("<8sQQ8s", b"", 3, 1, b"")):
        pack_of(tmp_path).write_bytes(whole + foreign)
        if foreign == whole[32:]:
            assert records(tmp_path) == expected(1, 2), "records once more, which lost"
        elif not foreign.strip(b"\0"):
            assert records(tmp_path) == expected(1, 2)
        else:
            with pytest.raises(Damaged, match=f"at byte {len(whole)}"):
                records(tmp_path)
            with pytest.raises(Damaged, match=f"at byte {len(whole)}"):
                made(tmp_path, 3)


def test_a_record_right_behind_a_torn_one_stands_there_twice(tmp_path: Path) -> None:
    # Else a torn start and a damaged head behind it would look like one start that is longer.
    made(tmp_path, 1)
    frame = pack_of(tmp_path).read_bytes()[32:]
    with open(pack_of(tmp_path), "ab") as file:
        file.write(frame[:33])
    made(tmp_path, 2)
    assert pack_of(tmp_path).read_bytes().count(content(2)) == 2
    made(tmp_path, 3)
    assert pack_of(tmp_path).read_bytes().count(content(3)) == 1


RACER = """
import json, sys
from snaprt.store.local import LocalObjects
objects = LocalObjects(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
won = []
for number in range(2, 202):
    try:
        objects.create(f"runs/r/log/{number:012d}", f"{sys.argv[2]} {number}".encode() * 30)
        won.append(number)
    except FileExistsError:
        pass
print(json.dumps(won))
"""


def test_of_two_processes_that_race_for_two_hundred_numbers_one_wins_each(tmp_path: Path) -> None:
    made(tmp_path, 1)
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(tmp_path), who],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for who in "ab"
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("\n")
        racer.stdin.flush()
    won = [json.loads(racer.communicate(timeout=120)[0]) for racer in racers]
    assert sorted(won[0] + won[1]) == list(range(2, 202))
    found = records(tmp_path)
    for who, numbers in zip("ab", won, strict=True):
        for number in numbers:
            assert found[number] == f"{who} {number}".encode() * 30


STOPPED = """
import os, signal, sys
from snaprt.store.local import LocalObjects
objects = LocalObjects(sys.argv[1])
objects.sizes("runs/r/log")
call = getattr(os, sys.argv[2])
def stopped(*args):
    if sys.argv[3] == "before":
        os.kill(os.getpid(), signal.SIGSTOP)
        return call(*args)
    found = call(*args)
    os.kill(os.getpid(), signal.SIGSTOP)
    return found
setattr(os, sys.argv[2], stopped)
try:
    objects.create("runs/r/log/000000000002", b"the stopped one's")
    print("won")
except FileExistsError:
    print("lost")
"""


@pytest.mark.parametrize(
    ("call", "when", "wins"),
    [("writev", "before", False), ("writev", "after", True), ("fdatasync", "after", True)],
)
def test_a_stopped_writer_holds_nobody_up_and_finds_its_fate_when_it_wakes(
    tmp_path: Path, call: str, when: str, wins: bool
) -> None:
    objects = made(tmp_path, 1)
    writer = subprocess.Popen(
        [sys.executable, "-c", STOPPED, str(tmp_path), call, when],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert os.WIFSTOPPED(os.waitpid(writer.pid, os.WUNTRACED)[1])
    try:
        if wins:
            with pytest.raises(FileExistsError):
                objects.create(name(2), b"the other's")
        else:
            objects.create(name(2), b"the other's")
        objects.create(name(3), content(3))
    finally:
        os.kill(writer.pid, signal.SIGCONT)
    assert writer.communicate(timeout=60)[0] == ("won\n" if wins else "lost\n")
    assert records(tmp_path) == {
        1: content(1),
        2: b"the stopped one's" if wins else b"the other's",
        3: content(3),
    }


def test_a_log_that_lost_is_fenced_and_one_whose_answer_was_lost_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(str(tmp_path)).create("r").append("start")
    first, second = (opened(str(tmp_path)).log("r") for _ in range(2))
    first._pause = lambda seconds: None
    sync, failed = os.fdatasync, [True]

    def faulty(descriptor: int) -> None:
        if failed and failed.pop():
            raise OSError(5, "Input/output error")
        sync(descriptor)

    monkeypatch.setattr(os, "fdatasync", faulty)
    assert first.append("result", sections={"values": [b"ours"]}).header.number == 2
    with pytest.raises(Fenced):
        second.append("result")
    second.refresh()
    assert second.read(2).sections["values"] == [b"ours"]
    assert second.append("result").header.number == 3
    assert second.verify().whole


# --- where nothing is appended ------------------------------------------------------------------------


def test_a_run_that_is_taken_to_a_network_mount_goes_on_there_and_comes_back(
    tmp_path: Path, filed: Callable[[bool], None]
) -> None:
    made(tmp_path, 1, 2)
    filed(True)
    assert records(tmp_path) == expected(1, 2), "everywhere it can be read"
    away = made(tmp_path, 3, 4)
    for number in (2, 3):
        with pytest.raises(FileExistsError):
            away.create(name(number), b"another")
    assert records(tmp_path) == expected(1, 2, 3, 4)
    assert sorted(os.listdir(tmp_path / FOLDER))[1:3] == ["000000000003", "000000000004"]
    filed(False)
    back = made(tmp_path, 5)
    for number in (2, 4, 5):
        with pytest.raises(FileExistsError):
            back.create(name(number), b"another")
    assert records(tmp_path) == expected(1, 2, 3, 4, 5)
    assert pack_of(tmp_path).read_bytes().endswith(content(2) + pack_of(tmp_path).read_bytes()[-8:])


def test_a_run_that_began_with_files_goes_on_with_files(
    tmp_path: Path, filed: Callable[[bool], None]
) -> None:
    filed(True)
    made(tmp_path, 1, 2)
    filed(False)
    made(tmp_path, 3)
    assert sorted(os.listdir(tmp_path / FOLDER)) == [f"{number:012d}" for number in (1, 2, 3)]
    assert records(tmp_path) == expected(1, 2, 3)


@pytest.mark.parametrize(
    "moment", ["before it looks", "before its write", "before its sync", "before it asks", "after"]
)
@pytest.mark.parametrize("same", [True, False], ids=["for one number", "for two"])
def test_one_who_appends_while_another_closes_the_pack_wins_or_loses_for_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, same: bool
) -> None:
    made(tmp_path, 1)
    appending = LocalObjects(str(tmp_path))
    away = LocalObjects(str(tmp_path))
    away._appends = lambda folder: False  # type: ignore[method-assign]
    won: dict[str, bool] = {}

    def create(who: str, objects: LocalObjects, number: int) -> None:
        try:
            objects.create(name(number), who.encode())
            won[who] = True
        except FileExistsError:
            won[who] = False

    def other(*_: object) -> None:
        monkeypatch.undo()
        create("away", away, 2 if same else 3)

    if moment == "before its write":
        write = os.writev
        monkeypatch.setattr(os, "writev", lambda *args: (other(), write(*args))[1])
    elif moment == "before its sync":
        sync = os.fdatasync
        monkeypatch.setattr(os, "fdatasync", lambda *args: (other(), sync(*args))[1])
    elif moment != "after":
        exists = os.path.exists
        which = packed.END if moment == "before it looks" else packed.CLOSED

        def asked(path: str | Path) -> bool:
            if Path(path).name == which:
                other()
            return exists(path)

        monkeypatch.setattr(os.path, "exists", asked)
    create("here", appending, 2)
    if moment == "after":
        other()
    found = records(tmp_path)
    if same:
        assert sorted(won.values()) == [False, True]
        assert found == {1: content(1), 2: next(who.encode() for who in won if won[who])}
    else:
        assert won == {"here": True, "away": True}
        assert found == {1: content(1), 2: b"here", 3: b"away"}


def test_what_was_appended_behind_the_end_of_a_closed_pack_never_counts(
    tmp_path: Path, filed: Callable[[bool], None]
) -> None:
    made(tmp_path, 1)
    frames = packed._Frames(pack_of(tmp_path).read_bytes()[8:24])
    filed(True)
    made(tmp_path, 2)
    with open(pack_of(tmp_path), "ab") as file:
        for number in (2, 3):
            file.write(b"".join(frames.framed(number, b"late")))
    assert records(tmp_path) == expected(1, 2)
    made(tmp_path, 3)
    assert records(tmp_path) == expected(1, 2, 3)


def test_a_closed_pack_that_lost_bytes_is_damaged(tmp_path: Path, filed: Callable[[bool], None]) -> None:
    made(tmp_path, 1, 2)
    filed(True)
    made(tmp_path, 3)
    whole = pack_of(tmp_path).read_bytes()
    pack_of(tmp_path).write_bytes(whole[:-1])
    with pytest.raises(Damaged, match="closed"):
        records(tmp_path)
    pack_of(tmp_path).write_bytes(whole)
    (tmp_path / FOLDER / packed.END).write_bytes(b"soon")
    with pytest.raises(Damaged, match="doesn't tell where"):
        records(tmp_path)


@pytest.mark.parametrize("taken_away", [False, True])
def test_of_a_run_that_was_removed_no_byte_is_left_and_nobody_appends_to_it(
    tmp_path: Path, filed: Callable[[bool], None], taken_away: bool
) -> None:
    store = opened(str(tmp_path))
    log = store.create("r")
    log.append("start")
    knows_one = opened(str(tmp_path)).log("r")
    knows_one.header()
    log.append("result")
    starting = opened(str(tmp_path))._log("r")  # looked before there was a run
    if taken_away:
        filed(True)
        opened(str(tmp_path)).log("r").append("result")
        filed(False)
        log.refresh()
        log.header()
    assert store.remove("r") == 2 + taken_away
    sizes = {name: os.path.getsize(tmp_path / FOLDER / name) for name in os.listdir(tmp_path / FOLDER)}
    assert sizes.pop("removed") > 0
    assert set(sizes.values()) == {0}
    for late in (knows_one, log):
        with pytest.raises(Fenced):
            late.append("result")
    with pytest.raises(RunExists):
        starting.append("start")
    with pytest.raises(RunExists, match="aren't used twice"):
        opened(str(tmp_path)).create("r")
    with pytest.raises(UnknownRun, match="was removed"):
        opened(str(tmp_path)).log("r")
    assert {name: os.path.getsize(tmp_path / FOLDER / name) for name in sizes} == sizes


def test_an_owner_who_has_the_pack_open_while_it_is_removed_is_fenced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(str(tmp_path))
    owner = store.create("r")
    owner.append("start")
    other = opened(str(tmp_path))
    ends = other.log("r")
    append = packed._append

    def removed_before(descriptor: int, pieces: Sequence[bytes]) -> int:
        monkeypatch.setattr(packed, "_append", append)
        ends.append("finish", epoch=1)
        other.remove("r")
        return append(descriptor, pieces)

    monkeypatch.setattr(packed, "_append", removed_before)
    with pytest.raises(Fenced):
        owner.append("result")
    assert set(os.listdir(tmp_path / FOLDER)) == {"000000000001", "removed"}


MOUNTS = """\
21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
22 21 0:5 / /mnt/with\\040space rw - nfs4 server:/export rw
23 21 0:6 / /mnt/local rw,noatime shared:2 master:1 - xfs /dev/vdb rw
24 23 0:7 / /mnt/local rw - fuse.sshfs you@there: rw
25 21 0:8 / /mnt/loc rw - tmpfs tmpfs rw
"""


def test_the_filesystem_is_the_one_that_is_mounted_closest_above(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    asked = {
        "/home/me/.snaprt": True,
        "/mnt/with space/store": False,
        "/mnt/local/store": False,  # hidden by what was mounted there later
        "/mnt/loc/store": True,
        "/mnt/locality": True,
    }
    assert {path: packed.appends_in_one_step(Path(path), mounts) for path in asked} == asked
    assert not packed.appends_in_one_step(tmp_path, tmp_path / "no such file"), "unknown is no"
