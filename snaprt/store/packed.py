"""The records of a run in one file: appended, one winner a number, and nothing half-written is ever used.

A file of its own for each record costs two syncs, a link and three folder changes. Appending to one file and
syncing its data costs a third of that. So on filesystems that append in one step the first record's file,
`log/000000000001`, is a **pack** that takes the later records, too. As that name is linked like any other
object's, who makes the run is decided as everywhere.

A record in it is a **frame**: a head (marker, number, length, check), the data, the check again. Marker and
check are made with a random salt in the head of the file, so that no content can pretend to be a frame.

**Create only if absent, without a lock.** A frame is one `write` with O_APPEND, which the kernel does in one
step for all processes of the machine; then the data is synced; then all frames up to one's own are looked
at. The first of a number is the record. Whoever finds another before his own has lost, and his frame is
ignored for ever. There is nothing that a stopped process could hold.

**A writer that dies** leaves the start of a frame: it ends at the end of the file, at the next frame, or
(after a power cut) in zeros. That is skipped. Everything else that isn't a frame was one: then it is Damaged,
for to skip it could be to forget a record that was acknowledged. What the data is worth its own signature
tells; this file doesn't look at it.

**A pack that moves** to where appending isn't one step (a network mount, another system) is closed, and
later records are files of their own. First `log/closed` is created: whoever sees it after his sync goes and
looks for his fate in the next. Then `log/end` is created with the end of the last frame: frames before it
count, whatever comes behind never does. Two steps, so that every frame that was acknowledged without seeing
the first is before the end.

This file must not know what a record holds, nor how an object with a file of its own is made.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import struct
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from snaprt.errors import Damaged

MAGIC = b"\x89SNAPPK\n"
FIRST = f"{1:012d}"
CLOSED, END = "closed", "end"

_FILE = struct.Struct("<8s16s8s")  # magic, salt, check of both
_HEAD = struct.Struct("<8sQQ8s")  # marker, number, length, check of the three
_CHECK = 8
# Of a check's eight bytes so many zeros where they don't belong were never written; fewer may be damage.
_ZEROS = 2

_RECORD = re.compile(r"(.*/log)/(\d{12})", re.ASCII)
# Filesystems on which a write with O_APPEND is one step for all who have them mounted: they hold the file's
# lock from finding its end to having written. Others may, but nobody here has looked.
_APPENDING = {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"}


def record_of(name: str) -> tuple[str, int] | None:
    """The log folder and the number of a record, by its object's name; None for other objects."""
    found = _RECORD.fullmatch(name)
    return (found[1], int(found[2])) if found else None


def appends_in_one_step(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> bool:
    """Whether the filesystem of a folder is known to append in one step. Where that can't be said: no."""
    place = os.path.realpath(folder)
    kind, longest = "", -1
    try:
        lines = mounts.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return False
    for line in lines:
        before, _, behind = line.partition(" - ")
        point = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), before.split(" ")[4])
        inside = place == point or place.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= longest:  # of two at one point the later hides the earlier
            kind, longest = behind.split(" ")[0], len(point)
    return kind in _APPENDING


def new_file(data: bytes) -> tuple[bytes, ...]:
    """The bytes of a pack with its first record."""
    salt = secrets.token_bytes(16)
    return (_FILE.pack(MAGIC, salt, _check(salt, MAGIC)), *_Frames(salt).framed(1, data))


def is_pack(path: Path) -> bool | None:
    """Whether a log's first file is a pack; None if it isn't there."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(len(MAGIC)) == MAGIC
    except FileNotFoundError:
        return None


def _append(file: int, pieces: Sequence[bytes]) -> int:
    """One write, synced; gives where in the file it begins."""
    size = sum(map(len, pieces))
    written = os.writev(file, pieces)
    if written < size:  # the rest could land behind another's frame
        raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}: {written} of {size} bytes were written")
    end = os.lseek(file, 0, os.SEEK_CUR)
    os.fdatasync(file)
    return end - size


def _part(file: int, at: int, size: int) -> bytes:
    """More than one call may give."""
    pieces = []
    while size > 0 and (piece := os.pread(file, size, at)):
        pieces.append(piece)
        at, size = at + len(piece), size - len(piece)
    return b"".join(pieces)


def _check(salt: bytes, data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_CHECK, key=salt).digest()


class _Frames:
    """How frames look in a file with this salt."""

    def __init__(self, salt: bytes):
        self._salt = salt
        self.marker = _check(salt, b"marker")

    def framed(self, number: int, data: bytes) -> tuple[bytes, bytes, bytes]:
        start = self.marker + struct.pack("<QQ", number, len(data))
        check = _check(self._salt, start)
        return start + check, data, check

    def read(self, head: bytes) -> tuple[int, int, bytes] | None:
        """Number, length and check that a head tells; None if it isn't one."""
        if len(head) < _HEAD.size or not head.startswith(self.marker):
            return None
        _, number, length, check = _HEAD.unpack_from(head)
        return (number, length, check) if check == _check(self._salt, head[:24]) else None

    def cut(self, data: bytes) -> list[bytes]:
        """The pieces that begin with a marker, after whatever stands before the first."""
        first, *others = data.split(self.marker)
        return [first, *(self.marker + other for other in others)]


class Pack:
    """One such file. Safe to use from several threads.

    Its methods raise OSError as the system does, and Damaged with the place.
    """

    def __init__(self, folder: Path, create: Callable[[str, bytes], None], *, growing: bool):
        """`create` makes a small object in the folder, only if absent, that lasts. `growing`: whether the
        filesystem appends in one step."""
        self._folder = folder
        self.path = folder / FIRST
        self._closed = os.fspath(folder / CLOSED)
        self._create = create
        self._growing = growing
        self._lock = threading.RLock()
        self._frames: _Frames | None = None
        self._file = b""  # the head of the file: another one is looked at from its start
        self._known = 0  # up to here the frames are known
        self._end: int | None = None  # where the pack was closed for good
        self._places: dict[int, tuple[int, int]] = {}

    def sizes(self) -> dict[int, int]:
        """Number and size of every record in it."""
        with self._lock:
            self._look()
            return {number: size for number, (_, size) in self._places.items()}

    def place(self, number: int) -> tuple[int, int] | None:
        """Where the bytes of a record lie in the file, and how many; None if it isn't in it."""
        with self._lock:
            if number not in self._places:
                self._look()
            return self._places.get(number)

    def append(self, number: int, data: bytes) -> bool:
        """Creates a record, only if absent; when this returns, it lasts. Raises FileExistsError.

        False if the pack was closed, as it is where it can't grow: then the record has to become a file of
        its own.
        """
        with self._lock:
            if self._frames is None:
                self._look()
            start = self._write(number, data) if self._growing and self._end is None else None
            if not self._growing or os.path.exists(self._closed):
                self.close()
            place = self._places.get(number)
            if place is not None and place[0] != start:
                raise FileExistsError(self.path)
            return place is not None

    def _write(self, number: int, data: bytes) -> int:
        """Appends a frame and syncs it; gives where its data starts."""
        file = os.open(self.path, os.O_RDWR | os.O_APPEND)
        try:
            if os.pread(file, _FILE.size, 0) != self._file:  # another run has this name now
                self._look_at(file)
            assert self._frames is not None
            pieces = self._frames.framed(number, data)
            at = _append(file, pieces)
            if at == self._known and number not in self._places and self._end is None:
                self._places[number] = (at + _HEAD.size, len(data))
                self._known = at + sum(map(len, pieces))
            elif not self._look_at(file, at):
                # The start of a frame that somebody left lies right before this one. Were this one's head
                # damaged some day, the two would look like one start: so there is another to go on with.
                _append(file, pieces)
                self._look_at(file)
            return at + _HEAD.size
        finally:
            os.close(file)

    def close(self) -> None:
        """Has nothing more appended, by anybody. Records that were acknowledged stay."""
        with self._lock:
            if self._end is None:
                self._once(CLOSED, lambda: b"")
                self._look()
                self._once(END, lambda: b"%d\n" % self._known)
                self._look()

    def _once(self, name: str, content: Callable[[], bytes]) -> None:
        with contextlib.suppress(FileExistsError):  # another was first, and his word counts
            self._create(name, content())

    def _look(self) -> None:
        file = os.open(self.path, os.O_RDONLY)
        try:
            self._look_at(file)
        finally:
            os.close(file)

    def _look_at(self, file: int, mark: int = -1) -> bool:
        """Takes in the frames that were appended since the last time. Says whether a frame ends at `mark`."""
        start, size = os.pread(file, _FILE.size, 0), os.fstat(file).st_size
        if start != self._file or size < self._known:
            self._begin(start)
        if self._end is None and os.path.exists(self._folder / END):
            text = (self._folder / END).read_bytes()
            if not re.fullmatch(rb"\d{1,18}\n", text):
                raise Damaged(f"{self._folder / END} doesn't tell where {self.path} ends: {text[:40]!r}.")
            self._end = int(text)
            self._places = {n: place for n, place in self._places.items() if place[0] < self._end}
        size = size if self._end is None else min(size, self._end)
        marked = self._known == mark
        while self._known < size and (frame := self._take(file, size)) is not None:
            marked = marked or (frame and self._known == mark)
        if self._end is not None and self._known < self._end:
            raise self._damaged(self._known, f"it was closed at byte {self._end} and doesn't reach so far")
        return marked

    def _begin(self, start: bytes) -> None:
        self._places = {}
        self._end = None
        if len(start) < _FILE.size or start[:8] != MAGIC or _check(start[8:24], MAGIC) != start[24:]:
            raise self._damaged(0, "its head isn't one")
        self._frames = _Frames(start[8:24])
        self._file, self._known = start, _FILE.size

    def _take(self, file: int, size: int) -> bool | None:
        """Takes in what stands where the known ends, and says whether it is a frame. None if it may be one
        that is still being written."""
        assert self._frames is not None
        at = self._known
        head = self._frames.read(os.pread(file, _HEAD.size, at))
        if head is not None:
            number, length, check = head
            end = at + _HEAD.size + length + _CHECK
            if end <= size and os.pread(file, _CHECK, end - _CHECK) == check:
                self._places.setdefault(number, (at + _HEAD.size, length))
                self._known = end
                return True
        # What follows is rare, so it may read all that lies between.
        rest = _part(file, at, size - at)
        following = self._next(rest)
        gap = rest if following is None else rest[:following]
        if not all(map(self._torn, self._frames.cut(gap))):
            raise self._damaged(at, f"{len(gap)} bytes there aren't a record, nor the start of one")
        if following is None:
            return None
        self._known = at + following
        return False

    def _next(self, rest: bytes) -> int | None:
        """Where in these bytes, after their start, the next frame begins."""
        assert self._frames is not None
        at = rest.find(self._frames.marker, 1)
        while at >= 0 and self._frames.read(rest[at : at + _HEAD.size]) is None:
            at = rest.find(self._frames.marker, at + 1)
        return at if at >= 0 else None

    def _torn(self, gap: bytes) -> bool:
        """Whether these bytes, in which no other frame begins, are the start of one and, after a power cut,
        zeros."""
        assert self._frames is not None
        head = self._frames.read(gap[: _HEAD.size])
        if head is None:
            return self._begins(gap.rstrip(b"\0"))
        whole = _HEAD.size + head[1] + _CHECK
        if len(gap) < whole:
            return True
        # It is as long as a frame, and the check at its end is wrong: was that end never written?
        check = gap[whole - _CHECK : whole].rstrip(b"\0")
        return len(check) <= _CHECK - _ZEROS and head[2].startswith(check) and not gap[whole:].strip(b"\0")

    def _begins(self, start: bytes) -> bool:
        """Whether this can be the start of a head."""
        assert self._frames is not None
        marker = self._frames.marker
        return len(start) < _HEAD.size and start[: len(marker)] == marker[: len(start)]

    def _damaged(self, at: int, why: str) -> Damaged:
        return Damaged(f"{self.path} is damaged at byte {at}: {why}. Nothing from there on was used.")
