"""The agenda of a store: hints that say when somebody should look at a run.

Finding work mustn't mean reading every run, so whoever leaves something to do leaves a hint as well, an
object whose name says it all:

    agenda/now/<run>~<second>~<slot>                         put then; something went into its inbox
    agenda/<YYYY-MM-DD>/<HH>/<MM>/<run>~<second>~<record>    look then: a timer, or a lease that is over

A worker lists what is due and nothing more: a handful of requests, however many runs sleep. A hint is put
*before* what it announces, so that no crash lies between; it is removed by who has looked. The slot of a
hint tells whether what it announced has arrived: one that was looked at too early is kept. The record makes
the name of a later hint another one, so that removing an old one never takes a new one away.

Hints decide nothing. A forged one costs a look, a lost one is written again by `snaprt reindex`; so what a
store refuses here is let go, and nothing is signed or synced. Only where it fails for a moment, whoever is
about to leave something to do hears of it, and tries again: nobody would look at that run for ever. This file
must not know what a run waits for.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from snaprt.errors import StoreError
from snaprt.store.failures import Transient
from snaprt.store.names import is_run, is_slot
from snaprt.store.objects import Objects

FOLDER = "agenda"
NOW = f"{FOLDER}/now"

# A name has to fit in the 255 bytes that filesystems give it, beside a run of 128 and a second of 10.
_LONGEST_SLOT = 114
# What lies further away than gmtime can say is as good as never.
_NEVER = 253_402_300_799
# A folder that is past for so many seconds and empty is removed. More than clocks differ by.
_PAST = 120.0
# What an object of the agenda holds: some stores don't like empty ones.
_BYTES = b"hint\n"


@dataclass(frozen=True)
class Hint:
    """One object of the agenda. `at` is the second at which to look, or at which it was put; `what` the
    slot of the inbox, the number of a record, or whatever its writer wants to find there again."""

    name: str
    run: str
    at: int
    what: str

    @property
    def announces(self) -> bool:
        """Whether it says that something was put into the run's inbox."""
        return self.name.startswith(f"{NOW}/")

    @property
    def slot(self) -> str | None:
        """What was put there; None where the hint doesn't say."""
        return self.what if self.announces and is_slot(self.what) else None


@dataclass(frozen=True)
class Due:
    """What a look at the agenda found: hints that are due, and when the next one of this minute is."""

    hints: list[Hint]
    following: float | None


def lease_over(lease: float, now: float | None = None) -> float:
    """When to look whether an owner with a lease of so many seconds is still alive.

    The next multiple of the lease after its end: so the owner moves its hint once a lease, not at every sign
    of life.
    """
    end = (time.time() if now is None else now) + lease
    return (end // lease + 1) * lease


class Agenda:
    """The hints of one store. Safe to use from several threads."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def now(self, run: str, slot: str | None = None) -> None:
        """Have somebody look at the run at once: something is about to be put into that slot of its inbox.
        Raises Transient."""
        if slot is None or len(slot) > _LONGEST_SLOT:
            slot = f"-{secrets.token_hex(4)}"
        self._put(f"{NOW}/{run}~{int(time.time())}~{slot}")

    def at(self, run: str, when: float, what: str) -> str:
        """Have somebody look at the run at that time. Gives the hint's name. Raises Transient."""
        name = self.name(run, when, what)
        self._put(name)
        return name

    def name(self, run: str, when: float, what: str) -> str:
        """What a hint for that time is called."""
        second = math.ceil(min(max(when, 0.0), _NEVER))  # who looks a moment too early looks in vain
        return f"{_minute(second)}/{run}~{second}~{what}"

    def drop(self, names: Iterable[str]) -> None:
        """Remove hints. Those that others removed are no matter."""
        for name in names:
            with contextlib.suppress(StoreError, FileNotFoundError):
                self._objects.remove(name)

    def put_off(self, names: Iterable[str], run: str, when: float, what: str) -> bool:
        """Have somebody look at the run at that time instead of when these hints say. They are removed only
        when the other lies there; says whether it does."""
        name = self.name(run, when, what)
        with contextlib.suppress(Transient):
            if self._put(name):
                self.drop(other for other in names if other != name)
                return True
        return False

    def due(self, now: float, most: int, wanted: Callable[[Hint], bool] = lambda hint: True) -> Due:
        """The hints that are due and wanted, those of inboxes first; where there are more than `most`, some.

        Raises StoreError.
        """
        found = [hint for hint in self._hints(NOW) if wanted(hint)]
        following: float | None = None
        for folder in self._minutes(until=now):
            if len(found) >= most:
                break
            hints = self._hints(folder)
            if not hints:
                self._tidy(folder, now)
            later = [hint.at for hint in hints if hint.at > now]
            following = min(later, default=following)
            found += [hint for hint in hints if hint.at <= now and wanted(hint)]
        return Due(found, following)

    def all(self) -> Iterator[Hint]:
        """Every hint there is."""
        yield from self._hints(NOW)
        for folder in self._minutes(until=None):
            yield from self._hints(folder)

    def _put(self, name: str) -> bool:
        """Says whether the store took it. Raises Transient where another try may help."""
        try:
            self._objects.replace(name, _BYTES)
        except Transient:
            raise
        except (StoreError, FileNotFoundError):
            return False
        return True

    def _hints(self, folder: str) -> list[Hint]:
        """The hints in a folder; what isn't named as one is none."""
        found = (_read(f"{folder}/{name}") for name in sorted(self._objects.sizes(folder)))
        return [hint for hint in found if hint is not None]

    def _minutes(self, until: float | None) -> Iterator[str]:
        """The folders of minutes that have begun, oldest first; all, if no time is given."""
        last = None if until is None else _minute(int(until))
        for day in self._begun(FOLDER, last):
            hours = self._begun(day, last)
            for hour in hours:
                minutes = self._begun(hour, last)
                yield from minutes
                if not minutes and until is not None:
                    self._tidy(f"{hour}/59", until)
            if not hours and until is not None:
                self._tidy(f"{day}/23/59", until)

    def _begun(self, folder: str, last: str | None) -> list[str]:
        paths = [f"{folder}/{name}" for name in self._objects.folders(folder)]
        return [path for path in paths if path != NOW and (last is None or path <= last)]

    def _tidy(self, minute: str, now: float) -> None:
        """Removes the folder of an empty minute that is past, and those above it if it was their last."""
        if minute >= _minute(int(now - _PAST)):
            return
        with contextlib.suppress(StoreError, FileNotFoundError):
            while minute != FOLDER and not self._objects.folders(minute):
                self._objects.remove_folder(minute)
                minute = minute.rpartition("/")[0]


class OwnHint:
    """The one hint of a run in hand, moved by its owner as the run goes on."""

    def __init__(self, agenda: Agenda, run: str) -> None:
        self._agenda = agenda
        self._run = run
        self._lock = threading.Lock()
        self._name: str | None = None
        self._next: tuple[str | None, bool] | None = None
        self._number = 0
        self._moves = False

    def before(self, when: float | None, number: int, *, moves: bool) -> None:
        """A record is about to be written after which somebody should look at that time (None: never).
        `moves`: for as long as its owner gives signs of life, that time moves on."""
        name = None if when is None else self._agenda.at(self._run, when, str(number))
        with self._lock:
            self._number = number
            self._next = (name, moves)

    def after(self, old: str | None) -> None:
        """That record lasts: the hint of before has done its part, and so has that of the record before."""
        with self._lock:
            if self._next is None:
                return
            done = {self._name, old}
            self._name, self._moves = self._next
            self._next = None
            done -= {None, self._name}
        self._agenda.drop(name for name in done if name is not None)

    def move(self, when: float) -> None:
        """The owner is alive: somebody should look at that time instead."""
        with self._lock:
            if not self._moves or self._name is None:
                return
            name = self._agenda.name(self._run, when, str(self._number))
            if name == self._name:
                return
            if self._agenda.put_off((self._name,), self._run, when, str(self._number)):
                self._name = name


def _minute(second: int) -> str:
    return time.strftime(f"{FOLDER}/%Y-%m-%d/%H/%M", time.gmtime(second))


def _read(name: str) -> Hint | None:
    run, _, rest = name.rpartition("/")[2].partition("~")
    at, _, what = rest.partition("~")
    if not is_run(run) or not what or not (at.isascii() and at.isdecimal() and len(at) <= 12):
        return None
    return Hint(name, run, int(at), what)
