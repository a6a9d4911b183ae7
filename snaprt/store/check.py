"""The check of a whole run: reads every object and lists everything that is wrong with it.

Where reading stops at the first thing that doesn't prove right, this goes on: each record by itself, the
chain between those that can be read, every section, every blob that a section refers to, every answer.
Nothing is unpickled.
"""

from __future__ import annotations

from dataclasses import dataclass

from snaprt.errors import Damaged, SnaprtError, UnknownRun
from snaprt.records.keys import Keyring
from snaprt.records.leaves import Place
from snaprt.records.record import described, follows, starts
from snaprt.records.sections import Reference, references
from snaprt.store.failures import Removed
from snaprt.store.history import START, Buffer, History, is_record_name, missing, numbers_in, resized
from snaprt.store.inbox import Inbox
from snaprt.store.names import TOMBSTONE
from snaprt.store.objects import Objects


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong. `object` is its name below the run (`log/000000000003`)."""

    object: str
    text: str

    def __str__(self) -> str:
        return f"{self.object}: {self.text}"


@dataclass(frozen=True)
class Report:
    """What a check found. `records`, `blobs` (in records or alone) and `answers` were
    read and prove right; `unused` blobs harm
    nothing (a writer was stopped between a blob and its record). `bytes` is the size of all objects."""

    run: str
    problems: tuple[Problem, ...]
    records: int
    blobs: int
    answers: int
    unused: tuple[str, ...]
    bytes: int

    @property
    def whole(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def check(objects: Objects, run: str, keyring: Keyring) -> Report:
    """Reads a whole run. Raises StoreError if the store itself fails, UnknownRun if there is nothing of
    that run."""
    checking = _Check(objects, run, keyring)
    if f"log/{TOMBSTONE}" in checking.found:
        raise Removed(run, objects.url)
    if not checking.found and not checking.problems:
        raise UnknownRun(f"There is no run {run!r} at {objects.url}.")
    checking.records()
    checking.blobs()
    checking.answers()
    return checking.report()


class _Check(History):
    """A history that is read to its end, whatever is wrong with it."""

    def __init__(self, objects: Objects, run: str, keyring: Keyring):
        super().__init__(objects, run, keyring)
        self.problems: list[Problem] = []
        self.found = self.sizes()
        self.used: dict[str, int] = {}
        self.leaves: set[tuple[str, Place]] = set()
        self.answered = 0

    def _listed_in(self, folder: str) -> dict[str, int]:
        try:
            return super()._listed_in(folder)
        except Damaged as error:
            self._note(folder, str(error))
            return {}

    def records(self) -> None:
        """Each record by itself, then the chain between those whose heads hold."""
        inside = {name[4:]: size for name, size in self.found.items() if name.startswith("log/")}
        numbers = numbers_in(inside)
        self._newest = numbers[-1] if numbers else 0
        for name in inside:
            if not is_record_name(name):
                self._note(f"log/{name}", f"Object log/{name} of run {self.run!r} isn't one of snaprt's.")
        lost = list(missing(numbers, _SHOWN))
        for number in lost:
            self._note(_place(number), f"{described(self.run, number)} is missing.")
        if not numbers and not self.problems:
            self._note("log", f"Run {self.run!r} has no records.")
        for number in numbers:
            try:
                self._record_whole(number)
            except SnaprtError as error:
                self._note(_place(number), str(error))
        for number, head in sorted(self._heads.items()):
            before = self._heads.get(number - 1)
            try:
                if number == 1:
                    starts(head)
                if before is not None:
                    follows(head, before)
            except SnaprtError as error:
                self._note(_place(number), str(error))

    def _record_whole(self, number: int) -> None:
        data = memoryview(self._objects.read(self._record(number)))
        head = self._prove(number, bytes(data[:START]))
        self._heads[number] = head
        if len(data) != head.size:
            self._note(_place(number), resized(head, len(data)))
        for section in head.header.sections:
            try:
                start, end = head.place(section.name)
                stored: Buffer = data[start:end]
                if section.apart:
                    stored = self._fetch(section.sha256, section.size)
                    self.used[section.sha256] = section.size
                raw = self._raw(head, section.name, stored)
                for reference in references(section, raw, described(self.run, number))[0]:
                    if reference.place.stored:
                        self._leaf(number, reference)
                    else:
                        self.used[reference.name] = reference.length
            except SnaprtError as error:
                self._note(_place(number), str(error))

    def _leaf(self, user: int, reference: Reference) -> None:
        """A leaf inside of a record: what is wrong with it is wrong with that record."""
        number = reference.place.record
        if (reference.name, reference.place) in self.leaves:
            return
        try:
            self._inside(number, (reference,))
            self.leaves.add((reference.name, reference.place))
        except SnaprtError as error:
            self._note(_place(number if 0 < number <= user else user), str(error))

    def blobs(self) -> None:
        """Every blob, whether a record that can be read refers to it or not."""
        there = {name[6:] for name in self.found if name.startswith("blobs/")}
        for name in sorted(there | set(self.used)):
            try:
                self._fetch(name, self.used.get(name))
            except SnaprtError as error:
                self._note(f"blobs/{name}", str(error))

    def answers(self) -> None:
        """Every answer in the inbox."""
        inbox = Inbox(self._objects, self.run, self._keyring)
        for suspension in inbox.names():
            try:
                inbox.get(suspension)
                self.answered += 1
            except SnaprtError as error:
                self._note(f"inbox/{suspension}", str(error))

    def report(self) -> Report:
        """What was found."""
        faulty = {problem.object for problem in self.problems}
        return Report(
            run=self.run,
            problems=tuple(sorted(self.problems, key=lambda problem: problem.object)),
            records=sum(name.startswith("log/") and name not in faulty for name in self.found),
            blobs=sum(f"blobs/{name}" not in faulty for name in self.used) + len(self.leaves),
            answers=self.answered,
            unused=tuple(
                name[6:] for name in self.found if name.startswith("blobs/") and name[6:] not in self.used
            ),
            bytes=sum(self.found.values()),
        )

    def _note(self, where: str, what: str) -> None:
        problem = Problem(where, what)
        if problem not in self.problems:
            self.problems.append(problem)


# A forged name with a high number would otherwise be a list of that length.
_SHOWN = 100


def _place(number: int) -> str:
    return f"log/{number:012d}"
