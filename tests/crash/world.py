"""The world outside of every process, for the in-process crash matrix: what survives a crash and tells of it.

A schedule plays one run through a row of processes. Each is a `Process`: it counts its *moments* (a store
operation begins or has ended, an event goes into the kernel or comes out, a tool is about to pay or has
paid) and dies at the one that its plan names. To die is to raise `Crash` there and from then on
at every further moment, so that nothing of a dead process reaches the store or the world, whatever its
unwinding runs into. Then a new process takes the run over.

The world keeps what a dead process can't take back: the ledger of payments, the calls of each step, and
the lines of agent code that ran (`mark`). It watches the records that arrive at the store and notes what each
of them *seals*: a recorded step is not to be called again, and an agent line that ran before a recorded
result is not to run again. Whoever does is put down as a violation, at the moment it happens.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio.lowlevel

from snaprt.records.envelope import PREFIX
from snaprt.store.failures import Transient

CRASH, LOST, BUSY, DRAIN, CUT = "crash", "lost", "busy", "drain", "cut"
"""What a plan can do at a moment: kill the process; let a write arrive and its answer get lost; answer a
request with "try again" without doing it (these two mean nothing where no request is under way, and nothing
happens then); have the process drain, with time for its calls to end or none."""

# Records that hold, or follow at once upon, the moment at which every agent line so far had run.
_SEALS = ("intent", "result", "suspend", "wake", "finish")


class Crash(BaseException):
    """The process was killed here."""


class Process:
    """One life of the program: counts its moments and dies at the planned one."""

    def __init__(self, plan: Mapping[int, str] | None = None) -> None:
        self.plan = dict(plan or {})
        self.moment = 0
        self.dead = False
        self.seen: list[str] = []
        self.drain: Callable[[float | None], None] = lambda grace: None

    def passes(self, what: str) -> str | None:
        """A moment: raises Crash, or says what the store is to do with this request."""
        if self.dead:
            raise Crash(what)
        self.moment += 1
        self.seen.append(what)
        planned = self.plan.get(self.moment)
        if planned == CRASH:
            self.die(what)
        elif planned in (DRAIN, CUT):
            self.drain(None if planned == DRAIN else 0.0)
        return planned

    def die(self, what: str) -> None:
        self.dead = True
        raise Crash(what)


class World:
    """Ledger, calls and marks of one schedule, and the promises that were broken."""

    def __init__(self, seed: int, *, relaxed: bool = False) -> None:
        self.dice = random.Random(seed)
        self.relaxed = relaxed  # save="effects": only records with a state seal agent lines
        self.process = Process()
        self.ledger: list[tuple[str, int]] = []
        self.calls: Counter[str] = Counter()
        self.attempts: Counter[str] = Counter()
        self.notes: dict[str, Any] = {}
        self.violations: list[str] = []
        self.objects: dict[str, bytes] = {}
        self.mended = False
        self.records: Counter[str] = Counter()
        self._sealed_steps: set[str] = set()
        self._failed_steps: set[str] = set()
        self._marks: set[Any] = set()
        self._sealed_marks: set[Any] = set()
        self._open: set[str] = set()
        self._doubts: Counter[str] = Counter()

    # --- processes ----------------------------------------------------------------------------

    def begin(self, plan: Mapping[int, str] | None = None) -> Process:
        """The next process."""
        self.left()
        self.process = Process(plan)
        return self.process

    def left(self) -> None:
        """Nobody has the run in hand now. What was begun and never recorded is in doubt, and lines that ran
        since the last record may run again."""
        self._doubts.update(self._open)
        self._open.clear()
        self._marks.clear()

    def passes(self, what: str) -> None:
        self.process.passes(what)

    # --- what agents do -----------------------------------------------------------------------

    def mark(self, line: Any) -> None:
        """An agent line runs now."""
        if self.process.dead:
            return  # the interpreter clears away what was killed
        if line in self._sealed_marks:
            self.violations.append(f"agent line {line!r} ran again though a later result was recorded")
        if line in self._marks:
            self.violations.append(f"agent line {line!r} ran twice in one process")
        self._marks.add(line)

    # --- what tools do ------------------------------------------------------------------------

    async def pause(self) -> None:
        """A little time on the host, for others to go first."""
        for _ in range(self.dice.randrange(3)):
            await anyio.lowlevel.checkpoint()

    async def call(self, key: str, *, attempt: bool = False) -> None:
        """The call of a step reaches the world; or a further `attempt` of one that this process makes."""
        if self.process.dead:
            raise Crash("a tool")
        if key in self._sealed_steps:
            self.violations.append(f"step {key} was called again though its result was recorded")
        if not attempt or key not in self._open:
            self.calls[key] += 1
        self._open.add(key)
        await self.pause()
        self.passes("a tool was called")

    def pay(self, key: str, cents: int, *, honour: bool) -> str:
        """One payment, one row. A service that honours keys makes none for a key that it knows."""
        self.passes("before a payment")
        if not (honour and any(known == key for known, _ in self.ledger)):
            self.ledger.append((key, cents))
        self.passes("after a payment")
        return receipt(cents)

    # --- what arrives at the store ------------------------------------------------------------

    def arrived(self, name: str, data: bytes) -> None:
        """An object lasts now."""
        if "/log/" not in name:
            return
        header = json.loads(data[PREFIX.size : PREFIX.size + PREFIX.unpack_from(data)[4]])
        kind, run = header["kind"], header["run"]
        if kind in _SEALS and (not self.relaxed or header["state"] == header["number"]):
            self._sealed_marks |= self._marks
            self._marks.clear()
        if kind in ("start", "finish"):
            self.records[kind] += 1
        if kind == "result":
            keys = {f"{run}/{item['step']}": item["ok"] for item in header["detail"]["steps"]}
            self.violations += [f"step {key} was recorded twice" for key in keys if key in self._sealed_steps]
            self._sealed_steps |= keys.keys()
            self._open -= keys.keys()
            self._failed_steps |= {key for key, ok in keys.items() if not ok}
        if kind == "claim" and header["detail"].get("retry"):
            # The run is tried again from its last state: what failed since may be called once more.
            self._sealed_steps -= self._failed_steps
            self._doubts.update(self._failed_steps)
            self._failed_steps.clear()

    # --- the end ------------------------------------------------------------------------------

    def judge(self) -> list[str]:
        """Everything that was broken."""
        broken = list(self.violations)
        for key, count in self.calls.items():
            if count > 1 + self._doubts[key]:
                broken.append(
                    f"step {key} was called {count} times, and was in doubt {self._doubts[key]} times only"
                )
        if self.records != {"start": 1, "finish": 1 + self.mended}:
            broken.append(f"the log has {dict(self.records)}")
        for key, count in Counter(key for key, _ in self.ledger).items():
            if count != 1:
                broken.append(f"the ledger has {count} payments for {key}")
        return broken


def receipt(cents: int) -> str:
    return f"paid {cents}"


class Wire:
    """The objects of the store as one process reaches them: each operation is two moments."""

    def __init__(self, objects: Any, world: World) -> None:
        self._objects = objects
        self._world = world
        self._process = world.process
        self.url, self.way, self.parallel, self.near = objects.url, objects.way, 1, False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._objects, name)
        if name == "locate":
            return found

        def operation(*args: Any, **kwargs: Any) -> Any:
            planned = self._process.passes(f"before {name}")
            if planned == BUSY:
                raise Transient(f"{name} {args[0]!r}: try again")
            value = found(*args, **kwargs)
            if name == "create":
                self._world.arrived(args[0], args[1])
            if planned == LOST:
                raise Transient(f"{name} {args[0]!r}: no answer came")
            self._process.passes(f"after {name}")
            return value

        return operation


def watched(world: World, method: Callable[..., Any], what: str) -> Callable[..., Any]:
    """A method of the kernel with a moment before it: between every two events lies one."""

    def watching(*args: Any, **kwargs: Any) -> Any:
        world.passes(what)
        return method(*args, **kwargs)

    return watching


current: Sequence[World] = ()
"""The world of the schedule that runs now. Programs reach it as a global, so it is no part of any state."""


def world() -> World:
    return current[-1]
