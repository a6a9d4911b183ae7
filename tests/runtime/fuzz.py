"""Random programs, undisturbed in one runtime and shared by workers that die: the same, or it's a bug.

    python -m tests.runtime.fuzz --programs 5000 --seed 1

Both plays of a pair have everything of the product: runtimes, workers, logs on a store in memory, the agenda.
They run on a host loop whose clock jumps when everybody waits, with worker threads played inline. The world
(answers, wrong answers, messages, cancellations) acts by that clock, on what the programs tell it of
themselves, so its order doesn't depend on who runs them. Programs are confluent by construction, see
`fuzz_programs`; what may differ is the order in which tasks go on at one moment, so all is compared by node.

Undisturbed, one runtime keeps every run in hand as long as it can, and nothing is ever restored but what
waits for a person alone. Disturbed, one or two workers at a time take up what the agenda says; each may die
between any two store operations, kernel events or payments, drain, or lose answers of the store; others
follow. At the end the outcomes of all runs, what they emitted (each once, in order), and the ledger of
payments are held against each other; and no write may have been made again.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import heapq
import logging
import random
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any
from unittest import mock

import anyio
import anyio.lowlevel

import snaprt
from snaprt.kernel import Kernel
from snaprt.store.agenda import Agenda, Hint
from snaprt.store.log import Log
from tests.crash.matrix import Host
from tests.crash.world import BUSY, CRASH, CUT, DRAIN, LOST, Process, Wire
from tests.runtime import fuzz_programs
from tests.runtime.fuzz_programs import EPOCH, SLOT, Node, Outside, begins, make, program, slot_of
from tests.store.held import KEYRING, Held, store

ROOT = "r"
LEASE = 40.0
MOST_DEATHS = 2
"""In one slot: who takes over what killed others waits for twice as long each time."""
MOST_TURNS = 200_000
"""Of the host loop, in one play: hundreds of times what one takes."""
FOREVER = 1e9
LOUD = ("asyncio", "snaprt", "snaprt.kernel")
"""Programs leave exceptions unretrieved, and what was killed leaves tasks that never end."""
SILENT = logging.CRITICAL + 1

_process: ContextVar[Process | None] = ContextVar("the process whose task this is", default=None)


class WallHost(Host):
    """A host loop by whose clock everything goes."""

    turns = 0

    def wall(self) -> float:
        return EPOCH + self.time()

    def _run_once(self) -> None:
        self.turns += 1
        if self.turns > MOST_TURNS:
            raise RuntimeError("this goes on and on")
        super()._run_once()  # type: ignore[misc]  # asyncio's own, one turn


class Life(Process):
    """One process. Of what only reads lists, nothing is its moment: most of what a worker does is that."""

    def passes(self, what: str) -> str | None:
        if what.endswith(("sizes", "folders", "starts", "part")) and not self.dead:
            return None
        return super().passes(what)


class Play(Outside):
    """One run of a program, from its start to the end of all its runs."""

    def __init__(self, root: Node, seed: int) -> None:
        super().__init__()
        self.root = root
        self.dice = random.Random(seed)
        self.held = Held()
        self.agenda = Agenda(self.held)
        self.asked = self._asked
        self.moment = _moment
        self.now = time.time  # the loop's, while the play lasts
        self.acts: list[tuple[int, int, str, str, int]] = []
        self.known: set[tuple[Any, ...]] = set()
        self.runs: dict[str, tuple[int, int]] = {}
        self.news = asyncio.Event()
        self.stir = asyncio.Event()
        self.deaths: Counter[int] = Counter()
        self.lives = 0
        self.late: list[str] = []

    # --- the world ----------------------------------------------------------------------------

    def _asked(self, node: Node, run: str, what: str, count: int) -> None:
        """An agent tells that it waits, or that it is a run."""
        now = slot_of(self.now())
        if self.now() - begins(now) > 0.9 * SLOT:
            self.late.append(f"{what} of {run} came {self.now() - begins(now):.0f} s late")
        if what == "run":
            self.runs.setdefault(run, (node.n, now))
        elif (node.n, run, what, now) not in self.known:
            self.known.add((node.n, run, what, now))
            self.acts_in(node.slot(now, worlds=True), node.n, run, what, count)

    async def act(self, desk: snaprt.Runtime, n: int, run: str, what: str, count: int) -> None:
        """What somebody outside does. Some come too late: that depends on the program alone."""
        with contextlib.suppress(snaprt.AlreadyAnswered, snaprt.UnknownSuspension, snaprt.UsageError):
            match what:
                case "answer":
                    await self._answer(desk, run, n, f"answer {n}")
                case "verdict":
                    await self._answer(desk, run, n, {"n": n})
                case "mistake":
                    await self._answer(desk, run, n, {"n": -1})
                    self.acts_in(slot_of(self.now()) + self.root.period, n, run, "verdict", 0)
                case "early":
                    name = f"early-{n}" if count == 1 else f"early-{n}.{count}"
                    await desk.answer(run, f"early {n}", suspension=name, early=True)
                case "message" | "messages":
                    for each in range(1 if what == "message" else 3):
                        await desk.send(run, [n, each], inbox=f"box-{n}")
                case "cancel":
                    await desk.cancel(run, "by hand")

    async def _answer(self, desk: snaprt.Runtime, run: str, n: int, value: Any) -> None:
        for each in (await desk.show(run)).waiting:
            if each.payload == {"n": n}:
                await desk.answer(run, value, suspension=each.suspension, by="ana")

    def acts_in(self, *act: Any) -> None:
        """The world will act: slot, node, run, what and count."""
        heapq.heappush(self.acts, act)
        self.news.set()

    @contextlib.asynccontextmanager
    async def world(self, desk: snaprt.Runtime) -> AsyncIterator[None]:
        """What the world does when its time has come happens, while the block lasts."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._acts, desk)
            yield
            group.cancel_scope.cancel()

    async def _acts(self, desk: snaprt.Runtime) -> None:
        while True:
            pause = begins(self.acts[0][0]) - self.now() if self.acts else None
            if pause is None or pause > 0:
                await _either(self.news, pause)
                continue
            what = heapq.heappop(self.acts)[1:]
            if pause < -SLOT / 2:
                self.late.append(f"the world did {what} late")
            await self.act(desk, *what)
            self.stir.set()

    # --- undisturbed --------------------------------------------------------------------------

    async def in_one_runtime(self) -> dict[str, Any]:
        options: Any = dict.fromkeys(("distant", "look", "lease"), FOREVER)
        async with self.runtime(**options) as rt, self.world(rt):
            await rt.start(program, self.root, run_id=ROOT)
            self.plan_cancellation()
            while unfinished := self.unfinished():
                for run in unfinished:
                    if not rt.has_in_hand(run):
                        await rt.resume(run)
                # Runs in hand end by themselves, others not before somebody acts.
                assert rt._drivers or self.acts or self.stir.is_set(), (
                    f"nobody will ever look at {unfinished}"
                )
                await _either(self.stir, SLOT if rt._drivers else None)
                await anyio.sleep(1.0)
            return await self.found(rt)

    # --- disturbed ----------------------------------------------------------------------------

    async def by_workers(self) -> dict[str, Any]:
        async with self.runtime() as desk, self.world(desk):
            while not self.unfinished(started=False):
                await self.live(self.starts)
            self.plan_cancellation()
            while self.unfinished():
                await self.settle_doubts(desk)
                if self.due():
                    async with anyio.create_task_group() as shift:
                        for _ in range(self.dice.randint(1, 2)):
                            shift.start_soon(self.live, self.works)
                    continue
                following = min((hint.at for hint in self.agenda.all()), default=None)
                if following is None and not self.acts:
                    raise AssertionError(f"nobody will ever look at {self.unfinished()}")
                await _either(self.stir, max(following - self.now(), 0.01) if following is not None else None)
            return await self.found(desk)

    async def live(self, what: Callable[[snaprt.Runtime], Any]) -> None:
        """One process, to its end."""
        process = Life(self.fate())
        self.lives += 1
        _process.set(process)
        distant = self.dice.choice((0.0, 1.0, LEASE, 1.5 * SLOT))
        try:
            async with self.runtime(lease=LEASE, distant=distant, look=200.0, grace=30.0) as rt:
                process.drain = rt.drain
                await what(rt)
        except BaseException:
            if not process.dead:
                raise
            self.deaths[slot_of(self.now())] += 1
        finally:
            _process.set(None)

    def fate(self) -> dict[int, str]:
        """What happens to a process, by its moments."""
        dice = self.dice
        plan = {dice.randint(1, 100): dice.choice((LOST, BUSY)) for _ in range(dice.choice((0, 0, 1, 2)))}
        if self.deaths[slot_of(self.now())] < MOST_DEATHS and dice.random() < 0.7:
            plan[dice.randint(1, dice.choice((10, 30, 80)))] = dice.choice((CRASH, CRASH, CRASH, DRAIN, CUT))
        return plan

    async def starts(self, rt: snaprt.Runtime) -> None:
        with contextlib.suppress(snaprt.RunExists):
            await rt.start(program, self.root, run_id=ROOT)
        while rt._drivers:
            await anyio.sleep(20.0)

    async def works(self, rt: snaprt.Runtime) -> None:
        async with anyio.create_task_group() as group:
            # For every run there is: one that a busy worker has no hand free for would be late.
            group.start_soon(functools.partial(rt.work, concurrency=self.dice.randint(8, 10), poll=60.0))
            await self.idle(rt)
            rt.drain()

    async def idle(self, rt: snaprt.Runtime) -> None:
        """Wait until there is nothing to do."""
        since = self.now()
        while rt._drivers or (self.due() and not rt._draining):
            if rt._drivers:
                since = self.now()
            assert self.now() < since + SLOT / 2, f"nobody does what is due: {self.due()}"
            await anyio.sleep(20.0)

    def due(self) -> list[Hint]:
        """What a worker could do now."""
        now = self.now()
        return [
            hint
            for hint in self.agenda.due(now, 1000).hints
            if not hint.announces or f"runs/{hint.run}/inbox/{hint.slot}" in self.held.data
        ]

    async def settle_doubts(self, desk: snaprt.Runtime) -> None:
        """A person looks into the ledger for what may have happened."""
        for run in self.unfinished():
            for each in (await desk.show(run)).waiting:
                if isinstance(each.payload, dict) and "in_doubt" in each.payload:
                    asked = each.payload["in_doubt"]
                    paid = self.ledger.get(asked["key"])
                    value = {"done": f"paid {paid[0]}"} if paid else {"retry": True}
                    with contextlib.suppress(snaprt.AlreadyAnswered):
                        await desk.answer(run, value, suspension=each.suspension)

    # --- both ---------------------------------------------------------------------------------

    def plan_cancellation(self) -> None:
        """Some programs are cancelled as a whole."""
        value = self.root.children[1].value + self.root.children[0].value
        if value == 2:
            for turn in range(1 + self.root.children[0].value):
                slot = self.root.period * (turn + 1) - 1
                self.acts_in(slot, -1, ROOT, "cancel", 0)

    def runtime(self, **options: Any) -> snaprt.Runtime:
        return snaprt.Runtime("held://store", keyring=KEYRING, clock=self.now, **options)

    def objects(self) -> tuple[Any, str]:
        """The store as the process reaches it that opens it."""
        shim: Any = SimpleNamespace(process=_process.get() or Process(), arrived=lambda name, data: None)
        return Wire(self.held, shim), "held"

    def unfinished(self, *, started: bool = True) -> list[str]:
        """Runs that haven't ended; or all there are."""
        at = store(self.held)
        runs = at.runs()
        return [run for run in runs if not started or at.log(run).header().kind != "finish"]

    async def found(self, rt: snaprt.Runtime) -> dict[str, Any]:
        """Everything that has to be the same."""
        result: dict[str, Any] = {}
        for run in sorted(self.runs, key=lambda run: (*self.runs[run], len(run), run)):
            n, slot = self.runs[run]
            # Told apart by node and slot: the number of the step that started a child depends on the order.
            place = f"{n}@{slot}"
            while place in result:
                place += "+"
            outcome = await (await rt.resume(run)).outcome()
            events: dict[int, list[Any]] = {}
            async for event in rt.events(run, follow=False):
                if event.kind == "emitted":
                    events.setdefault(event.value[0], []).append(event.value[1:])
            result[place] = {"outcome": _end(outcome), "emitted": events}
        result["ledger"] = sorted(self.ledger.values())
        result["paid again"] = self.again
        result["late"] = self.late
        return result


_CHILD = re.compile(r"\br(\.\d+)+")
"""A child's id has the number of the step that started it, and so depends on the order of steps."""


async def _either(event: asyncio.Event, seconds: float | None) -> None:
    """Wait until it is set, or for so long."""
    with anyio.move_on_after(seconds):
        await event.wait()
    event.clear()


def _end(outcome: Any) -> Any:
    match outcome:
        case snaprt.Completed(value=value):
            return "completed", value
        case snaprt.Failed(error=error):
            return "failed", _CHILD.sub("a child", repr(error))
        case snaprt.Cancelled(reason=reason):
            return "cancelled", reason
    return repr(outcome)


def _moment(what: str) -> None:
    process = _process.get()
    if process is not None:
        process.passes(what)


def _watched(method: Callable[..., Any], what: str) -> Callable[..., Any]:
    def watching(*args: Any, **kwargs: Any) -> Any:
        _moment(what)
        return method(*args, **kwargs)

    return watching


async def _inline(fn: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """A worker thread's part; others get some time before it begins and after it ends."""
    await anyio.lowlevel.checkpoint()
    with anyio.CancelScope(shield=True):
        value = fn(*args)
        await anyio.lowlevel.checkpoint()
    return value


@contextlib.contextmanager
def _played(host: WallHost) -> Iterator[None]:
    """The product as it is, on the clock of a host loop, with moments between the kernel's events."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch("anyio.to_thread.run_sync", _inline))
        stack.enter_context(mock.patch("time.time", host.wall))
        stack.enter_context(mock.patch("time.monotonic", host.time))
        stack.enter_context(mock.patch("snaprt.store.store.open_objects", _objects))
        stack.enter_context(mock.patch("snaprt.runtime.drive._LOOK_AT_CLOCK", FOREVER))
        quick = functools.partial(Log, pause=lambda seconds: None)
        stack.enter_context(mock.patch("snaprt.store.store.Log", quick))
        for name in ("advance", "deliver"):
            method = getattr(Kernel, name)
            stack.enter_context(mock.patch.object(Kernel, name, _watched(method, f"the kernel's {name}")))
        yield


def _objects(*_: Any) -> tuple[Any, str]:
    here = fuzz_programs.outside()
    assert isinstance(here, Play)
    return here.objects()


def play(root: Node, seed: int, *, disturbed: bool) -> tuple[dict[str, Any], int]:
    """Everything that can be seen of one program, and how many processes had a part in it."""
    random.seed(seed)  # workers draw what to do first
    with asyncio.Runner(loop_factory=WallHost) as runner:
        host: Any = runner.get_loop()
        with _played(host):
            one = Play(root, seed)
            fuzz_programs._current.append(one)
            try:
                seen = runner.run(one.by_workers() if disturbed else one.in_one_runtime())
            finally:
                fuzz_programs._current.pop()
    return seen, one.lives


def difference(seed: int) -> tuple[str | None, int]:
    """What differs between the two plays of a seed (None if nothing does), and the lives of the second."""
    root = make(random.Random(seed))
    try:
        expected, _ = play(root, seed, disturbed=False)
        got, lives = play(root, seed, disturbed=True)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return f"seed {seed}: {root}\n{traceback.format_exc()}", 0
    if got == expected:
        return None, lives
    lines = [f"seed {seed}: {root}"]
    for place in sorted({*expected, *got}):
        lines += _lines(place, expected.get(place), got.get(place))
    return "\n".join(lines), lives


def _lines(place: str, expected: Any, got: Any) -> Iterator[str]:
    if expected == got:
        return
    if isinstance(expected, dict) and isinstance(got, dict):
        for name in sorted({*expected, *got}, key=str):
            yield from _lines(f"{place} {name}", expected.get(name), got.get(name))
    else:
        yield f"  {place}:\n    undisturbed {expected!r}\n    disturbed   {got!r}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--programs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if __name__ == "__main__":
        from tests.runtime import fuzz  # what is of __main__ is saved by value

        return fuzz.main()
    for name in LOUD:
        logging.getLogger(name).setLevel(SILENT)
    began = time.process_time()
    lives = differences = 0
    for seed in range(arguments.seed, arguments.seed + arguments.programs):
        found, count = difference(seed)
        lives += count
        if found is not None:
            differences += 1
            print(found, flush=True)
    print(
        f"{arguments.programs} programs, {lives} lives, {differences} differences, "
        f"{time.process_time() - began:.0f} s"
    )
    sys.exit(1 if differences else 0)


if __name__ == "__main__":
    main()
