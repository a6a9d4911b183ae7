"""The crash matrix: kill a run everywhere, let others take it over, and compare with an undisturbed one.

    python -m tests.crash.matrix --schedules 20000 --seed 7        # as many as time allows
    python -m tests.crash.matrix --only writes --seed 7 --number 311   # one again, that failed

First each program is crashed once at each of its moments: at every store operation (before it and after
it), between every two kernel events, around every payment; and each write is made to lose its answer or to
be turned away. Then random schedules kill the same run up to four times. On a local disk, `--disk`,
the moments are system calls: records torn in the middle of a write, not yet linked, linked and not
yet synced.

Everything is decided by the seed: the host loop is asyncio's with a clock that jumps when everybody waits,
and the runtime's worker threads are played inline. What plays the person answers questions by their
payload, and settles doubts by looking into the ledger.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import logging
import random
import selectors
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import anyio.lowlevel

import snaprt
from snaprt.kernel import Kernel
from snaprt.store.log import Log
from tests.crash import disk, world
from tests.crash.programs import PROGRAMS, Program
from tests.crash.world import BUSY, CRASH, CUT, DRAIN, LOST, Wire, World, receipt, watched
from tests.store.held import KEYRING, Held

RUN = "r"
MOST_LIVES = 40  # a schedule names at most four deaths; many more lives mean that the run doesn't get on
PROMISED = (snaprt.AlreadyAnswered,)  # what a person may hear whose answer arrived and was not acknowledged


@dataclass(frozen=True)
class Schedule:
    """One run's fate: what happens at which moment of its first process, of its second, and so on."""

    program: Program
    seed: int
    lives: tuple[Mapping[int, str], ...] = ()
    disk: bool = False

    def __str__(self) -> str:
        return f"{self.program.name} seed={self.seed} lives={[dict(life) for life in self.lives]}"


# --- a host in which nothing is left to chance ----------------------------------------------------


class _Jumping(selectors.SelectSelector):
    """Doesn't wait: the clock of the loop jumps to when somebody is due."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        found = super().select(0)
        if not found and timeout:
            self.now += timeout
        return found


class Host(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


async def _inline(fn: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """A worker thread's part, played here; others get some time before it begins and after it ends."""
    await anyio.lowlevel.checkpoint()
    with anyio.CancelScope(shield=True):
        await world.world().pause()
        value = fn(*args)
        await world.world().pause()
    return value


@contextlib.contextmanager
def _played(here: World, objects: Any) -> Iterator[None]:
    """The product as it is, on our store, with moments between the kernel's events."""
    with contextlib.ExitStack() as stack:
        patch = functools.partial(mock.patch.object)
        stack.enter_context(mock.patch("anyio.to_thread.run_sync", _inline))
        opened = mock.Mock(side_effect=lambda *_: (objects(), "held"))
        stack.enter_context(mock.patch("snaprt.store.store.open_objects", opened))
        stack.enter_context(
            mock.patch("snaprt.store.store.Log", functools.partial(Log, pause=lambda seconds: None))
        )
        for name in ("advance", "deliver"):
            method = getattr(Kernel, name)
            stack.enter_context(patch(Kernel, name, watched(here, method, f"the kernel's {name}")))
        world.current = [here]
        try:
            yield
        finally:
            world.current = ()


# --- the person ---------------------------------------------------------------------------------------


def _answer(here: World, payload: Any) -> Any:
    """What the person says to a question."""
    if "in_doubt" in payload:
        asked = payload["in_doubt"]
        paid = [cents for key, cents in here.ledger if key == asked["key"]]
        if not paid:
            return {"retry": True}
        return (
            {"fail": "the printer jammed"} if asked["tool"] == "pay_and_jam" else {"done": receipt(paid[0])}
        )
    if "approve" in payload:
        cents = payload["args"][0]
        if cents == 12:
            return {"approved": False, "reason": "too much"}
        return {"approved": True, "args": [3], "kwargs": {}} if cents == 13 else {"approved": True}
    return payload["answer"]


# --- one schedule -------------------------------------------------------------------------------------


async def _live(here: World, schedule: Schedule) -> Any:
    """One process: starts the run or takes it over, answers what is asked, until it ends, leaves or dies."""
    async with snaprt.Runtime("held://store", keyring=KEYRING) as rt:
        here.process.drain = rt.drain
        try:
            run = await rt.resume(RUN)
        except snaprt.UnknownRun:
            run = await rt.start(schedule.program.agent, run_id=RUN)
        while isinstance(outcome := await run.outcome(), snaprt.Suspended | snaprt.Failed):
            here.left()
            if isinstance(outcome, snaprt.Failed):
                if not schedule.program.mend:
                    break
                here.mended = True
                run = await rt.resume(RUN, retry=True)
                continue
            waiting = list(outcome.waiting)
            if not waiting or rt._draining:
                break  # it was drained: nobody is asked, or nothing would come of an answer here
            here.dice.shuffle(waiting)
            for each in waiting[: here.dice.randint(1, len(waiting))]:
                with contextlib.suppress(*PROMISED):
                    await rt.answer(RUN, _answer(here, each.payload), suspension=each.suspension)
            run = await rt.resume(RUN)
        return outcome


def play(schedule: Schedule, folder: Path | None = None) -> tuple[World, Any, list[str]]:
    """Play a schedule to its end. The world, the outcome, and what each life went through."""
    here = World(schedule.seed, relaxed=schedule.program.relaxed)
    held = Held(here.objects)
    lives = iter(schedule.lives)
    seen: list[str] = []

    def objects() -> Any:
        return disk.Disk(folder, here) if folder is not None else Wire(held, here)

    with _played(here, objects), disk.played(here) if folder is not None else contextlib.nullcontext():
        for _ in range(MOST_LIVES):
            process = here.begin(next(lives, {}))
            with asyncio.Runner(loop_factory=Host) as runner:
                try:
                    outcome = runner.run(_live(here, schedule))
                except BaseException:
                    if not process.dead:
                        raise
                else:
                    if not isinstance(outcome, snaprt.Suspended):
                        return here, outcome, [*seen, *process.seen]
            seen += process.seen
    raise AssertionError(f"the run doesn't end in {MOST_LIVES} lives")


def _end(outcome: Any) -> Any:
    if isinstance(outcome, snaprt.Failed):
        return "failed", type(outcome.error).__name__, str(outcome.error)
    return outcome


def broken(schedule: Schedule, here: World, outcome: Any, undisturbed: Any) -> list[str]:
    """Every promise that this schedule broke."""
    found = here.judge()
    program = schedule.program
    paid = tuple(sorted(cents for _, cents in here.ledger))
    if paid != program.payments:
        found.append(f"the ledger has payments of {paid}, not of {program.payments}")
    if program.check is None:
        if _end(outcome) != _end(undisturbed):
            found.append(f"the run came to {_end(outcome)}, undisturbed it comes to {_end(undisturbed)}")
    elif not isinstance(outcome, snaprt.Completed):
        found.append(f"the run came to {outcome}")
    else:
        try:
            program.check(here, outcome.value)
        except AssertionError as error:
            found.append(f"the run came to {outcome.value}, and the world heard {dict(here.notes)}: {error}")
    return found


# --- many schedules -----------------------------------------------------------------------------------


@dataclass
class Report:
    """What many schedules came to."""

    played: int = 0
    crashes: int = 0
    moments: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


def singles(
    program: Program, seed: int, moments: Sequence[str], *, on_disk: bool = False
) -> Iterator[Schedule]:
    """One crash at each moment of an undisturbed run, and each store operation failing without a crash."""
    for moment, what in enumerate(moments, 1):
        yield Schedule(program, seed, ({moment: CRASH},), on_disk)
        if what in ("a tool was called", "the kernel's deliver"):
            yield Schedule(program, seed, ({moment: DRAIN},), on_disk)
            yield Schedule(program, seed, ({moment: CUT},), on_disk)
        if not on_disk and what in ("before create", "before put", "before read", "before part"):
            yield Schedule(program, seed, ({moment: BUSY},))
            if what == "before create":
                yield Schedule(program, seed, ({moment: LOST},))
                yield Schedule(program, seed, ({moment: LOST, moment + 3: CRASH},))
                # The read that would tell who wrote the record fails, too; and a storm, longer than the quick
                # tries of a write, so that the whole append is made again.
                yield Schedule(program, seed, ({moment: LOST, moment + 2: BUSY},))
                yield Schedule(
                    program, seed, ({moment: LOST, **dict.fromkeys(range(moment + 1, moment + 6), BUSY)},)
                )


def randomly(program: Program, number: int, moments: int, *, on_disk: bool = False) -> Schedule:
    """A schedule of up to four deaths, with lost answers and busy stores on the way."""
    dice = random.Random(number)
    lives = []
    for _ in range(dice.randint(1, 4)):
        life = {dice.randint(1, moments): dice.choice((LOST, BUSY)) for _ in range(dice.randrange(3))}
        end = dice.choice((CRASH, CRASH, CRASH, DRAIN, CUT))
        lives.append(life | {dice.randint(1, max(2, moments // dice.choice((1, 2, 4)))): end})
    return Schedule(program, number, tuple(lives), on_disk)


def run(
    programs: Sequence[Program],
    schedules: int,
    seed: int,
    *,
    on_disk: bool = False,
    random_only: bool = False,
    number: int | None = None,
) -> Report:
    """All single crashes of each program, then random schedules up to `schedules` altogether."""
    report = Report()
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # what was killed leaves tasks that never end
    logging.getLogger("snaprt").setLevel(logging.CRITICAL)  # it says loudly what is done to it here
    plain: dict[str, tuple[Any, list[str]]] = {}

    def one(schedule: Schedule) -> None:
        with tempfile.TemporaryDirectory(dir=disk.FAST) if on_disk else contextlib.nullcontext() as folder:
            try:
                here, outcome, seen = play(schedule, Path(folder) if folder else None)
                found = broken(schedule, here, outcome, plain[schedule.program.name][0])
            except Exception as error:
                found, seen = [f"{type(error).__name__}: {error}"], []
        report.played += 1
        report.crashes += len(schedule.lives)
        report.moments.update(seen)
        report.failures += [f"{schedule}: {each}" for each in found]

    for program in programs:
        with tempfile.TemporaryDirectory(dir=disk.FAST) if on_disk else contextlib.nullcontext() as folder:
            here, outcome, seen = play(
                Schedule(program, seed, disk=on_disk), Path(folder) if folder else None
            )
        plain[program.name] = outcome, seen
        assert not (found := broken(Schedule(program, seed), here, outcome, outcome)), (program.name, found)
    if number is not None:
        for program in programs:
            one(randomly(program, number, len(plain[program.name][1]), on_disk=on_disk))
        return report
    for program in () if random_only else programs:
        for schedule in singles(program, seed, plain[program.name][1], on_disk=on_disk):
            if report.played >= schedules:
                return report
            one(schedule)
    at = seed * 1_000_000
    while report.played < schedules:
        program = programs[at % len(programs)]
        one(randomly(program, at, len(plain[program.name][1]), on_disk=on_disk))
        at += 1
    return report


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.crash.matrix", description=__doc__.split("\n")[0])
    options.add_argument("--schedules", type=int, default=4000)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--only", action="append", metavar="PROGRAM")
    options.add_argument("--number", type=int, help="play one random schedule again, by its seed")
    options.add_argument("--disk", action="store_true", help="on a local store; moments are system calls")
    chosen = options.parse_args()
    programs = [each for each in PROGRAMS if not chosen.only or each.name in chosen.only]
    start = time.monotonic()
    report = run(programs, chosen.schedules, chosen.seed, on_disk=chosen.disk, number=chosen.number)
    for failure in report.failures[:20]:
        print("BROKEN", failure)
    print(
        f"{report.played} schedules, {report.crashes} crashes planned, {sum(report.moments.values())} "
        f"moments, {len(report.failures)} broken promises, {time.monotonic() - start:.1f} s"
    )
    for what, count in report.moments.most_common():
        print(f"  {count:8}  {what}")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
