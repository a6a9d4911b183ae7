"""The worker: takes up runs whose answer came, whose time is due, or whose owner died.

One loop. It lists what the store's agenda says is due (a handful of requests, however many runs sleep), in
random order, so that workers on one store seldom meet, and looks at so many runs at a time as it was told. To
look is to resume: the log fences, so two that look at one run do no harm. Then the hints that said so
are removed, but for those that came before what they announce.

    somebody has the run in hand    look again when its lease is over
    it can't be taken up            look again in 30 s, a minute, two … an hour; how often is in its name
    it killed its process           whoever claimed it has put that look far off beforehand, and the record of
                                    the claim says until when (`owning.look_at`)

So a worker keeps nothing between two looks but names it needn't look at for some seconds, and those are
bounded: it may be killed at any time, and another goes on. This file must not know what a run waits for.
"""

from __future__ import annotations

import importlib
import logging
import random
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import anyio
from anyio.abc import TaskGroup

from snaprt.errors import Fenced, RunBusy, SnaprtError, UnknownRun, UsageError
from snaprt.kernel.interrupts import is_ctrl_c
from snaprt.kernel.preview import in_words
from snaprt.runtime.failing import place_of
from snaprt.runtime.outcomes import Outcome
from snaprt.runtime.patience import patiently
from snaprt.runtime.threads import for_store
from snaprt.store import Hint, Removed, Store

if TYPE_CHECKING:
    from snaprt.runtime.runtime import Runtime

Result = TypeVar("Result")

logger = logging.getLogger("snaprt")

# Seconds. How soon a worker lists again when it has just found something, as a part of `poll`.
_SOON = 1 / 16
# What was announced comes within this time; a hint without it is older, and then it won't come any more.
_ON_ITS_WAY = 60.0
_NEVER_CAME = 600.0
# How long a name rests that couldn't be followed yet: at first, and at most.
_REST, _LONGEST_REST = 0.25, 30.0
# How long after a failure a run is tried again: at first, and at most.
_AGAIN, _LONGEST_AGAIN = 30.0, 3600.0
# So many resting names are remembered. Who is forgotten is looked at once too often.
_RESTING = 10_000
# Of what is due, so many for each run at a time are taken from one listing; others take theirs meanwhile.
_SHARE = 25

_FAILURES = re.compile(r"f(\d{1,3})", re.ASCII)


@dataclass(frozen=True)
class Look:
    """What a worker tells of a run: that it `took` it up and why; that the run `left` it, with its outcome or
    because another process took it; or that it `failed` to go on with it, for so many `tries`, and tries
    `again` then (seconds since the epoch)."""

    kind: Literal["took", "left", "failed"]
    run: str
    why: str = ""
    outcome: Outcome | None = None
    error: Exception | None = None
    again: float | None = None
    tries: int = 0


class Worker:
    """One worker of a runtime. `run` returns when the runtime drains and the runs have left."""

    def __init__(
        self,
        runtime: Runtime,
        store: Store,
        *,
        concurrency: int,
        agents: Sequence[str] | None,
        poll: float,
        tell: Callable[[Look], None] | None,
    ) -> None:
        if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
            raise UsageError(
                f"concurrency={concurrency!r}: give how many runs may be in hand at once, 1 or more."
            )
        if isinstance(poll, bool) or not isinstance(poll, int | float) or not poll > 0:
            raise UsageError(f"poll={poll!r}: give the seconds between two looks at the store, more than 0.")
        self._runtime = runtime
        self._store = store
        self._agenda = store.agenda
        self._concurrency = concurrency
        self._agents = None if agents is None else frozenset(agents)
        self._poll = poll
        self._tell = tell or _log
        self._looking: set[str] = set()
        self._resting: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._stopped = False
        self._finding = anyio.CancelScope()
        self._freed = anyio.Event()

    def stop(self) -> None:
        """Look at nothing more."""
        self._stopped = True
        self._finding.cancel()

    async def run(self) -> None:
        """Work until `stop`. Raises UsageError for a module of agents that can't be imported, StoreError
        when the store refuses."""
        for module in self._agents or ():
            _import(module)
        stopped: SnaprtError | None = None
        async with anyio.create_task_group() as looks:
            try:
                with self._finding:
                    await self._find(looks)
            except SnaprtError as error:
                stopped = error  # raised as it is, when the runs in hand have left
        if stopped is not None:
            raise stopped

    async def _find(self, looks: TaskGroup) -> None:
        queue: list[tuple[str, list[Hint]]] = []
        idle, waits, listed = self._poll * _SOON, 0.0, float("-inf")
        while not self._stopped:
            self._freed = anyio.Event()
            # While some wait for a place here, others take theirs: now and then that is looked at anew.
            if anyio.current_time() >= listed + (self._poll if queue else waits):
                queue, following = await self._due()
                idle = self._poll * _SOON if queue else min(idle * 2, self._poll)
                waits = idle * random.uniform(0.8, 1.0)  # many workers started at once needn't list at once
                if following is not None:
                    waits = min(waits, max(following - time.time(), 0.0))
                listed = anyio.current_time()
            while queue and len(self._looking) < self._concurrency:
                run, hints = queue.pop()
                self._looking.add(run)
                looks.start_soon(self._look, run, hints, name=f"look at {run}")
            ready = listed + (self._poll if queue else waits)
            with anyio.move_on_after(max(ready - anyio.current_time(), 0.0)):
                await self._freed.wait()

    # --- finding ------------------------------------------------------------------------------

    async def _due(self) -> tuple[list[tuple[str, list[Hint]]], float | None]:
        """Runs that are due, in random order, with what says so; and when the next one is."""
        now = time.time()
        while self._resting and next(iter(self._resting.values()))[0] < now - 2 * _LONGEST_REST:
            self._resting.popitem(last=False)
        most = self._concurrency * _SHARE
        looking = set(self._looking)  # what is listed of these may be over when the list is here
        due = await patiently("Looking for work", None, self._agenda.due, now, most, self._wanted)
        runs: dict[str, list[Hint]] = {}
        for hint in due.hints:
            runs.setdefault(hint.run, []).append(hint)
        for run in [run for run in runs if self._runtime.poke(run) or run in looking]:
            self._rest(runs.pop(run))
        found = list(runs.items())
        random.shuffle(found)
        return found[:most], due.following

    def _wanted(self, hint: Hint) -> bool:
        return self._resting.get(hint.name, (0.0, 0.0))[0] <= time.time()

    def _rest(self, hints: Iterable[Hint], longest: float = _LONGEST_REST) -> None:
        """Leave these for a moment, each time for twice as long."""
        for hint in hints:
            pause = min(self._resting.pop(hint.name, (0.0, _REST / 2))[1] * 2, longest)
            self._resting[hint.name] = (time.time() + pause, pause)
            if len(self._resting) > _RESTING:
                self._resting.popitem(last=False)

    # --- looking ------------------------------------------------------------------------------

    async def _look(self, run: str, hints: list[Hint]) -> None:
        try:
            await self._follow(run, hints)
        except RunBusy as busy:
            await self._leave_to_owner(run, hints, busy)
        except Removed:
            await self._drop(hints)
        except UnknownRun:
            # Its start is on its way.
            await self._drop(hint for hint in hints if hint.at < time.time() - _NEVER_CAME)
            self._rest(hints)
        except Fenced as error:
            self._tell(Look("left", run, error=error))  # it goes on elsewhere
        except Exception as error:
            await self._try_again(run, hints, error)
        finally:
            self._looking.discard(run)
            self._freed.set()

    async def _follow(self, run: str, hints: list[Hint]) -> None:
        arrived = [hint for hint in hints if await self._has_arrived(hint)]
        if not arrived:
            await self._drop(hint for hint in hints if hint.at < time.time() - _NEVER_CAME)
            self._rest(hints)
            return
        if self._agents is not None and not await self._is_ours(run):
            self._rest(hints, longest=_NEVER_CAME)
            return
        began = time.time()
        taken = await self._runtime.resume(run, wary=True)
        if self._stopped and not taken.in_hand:
            return
        if taken.in_hand:
            self._tell(Look("took", run, why=_why(arrived)))
        # Not before: until it was claimed, these hints are all that tells of the run.
        done = [hint for hint in arrived if _is_done(hint, began)]
        until = None if taken.in_hand else getattr(await taken.outcome(), "until", None)
        if until is not None and not all(hint.announces for hint in done):
            await self._put_off(done, run, until, "timer")  # by this clock it isn't time yet
        else:
            await self._drop(done)
        self._rest(hint for hint in hints if hint not in done)
        if taken.in_hand:
            self._tell(Look("left", run, outcome=await taken.outcome()))

    async def _has_arrived(self, hint: Hint) -> bool:
        """Whether what a hint announces lies in the inbox; those of a time have come with it."""
        if hint.slot is None:
            return True
        return bool(await self._ask(self._store.has, hint.run, hint.slot))

    async def _is_ours(self, run: str) -> bool:
        assert self._agents is not None
        log = await self._ask(self._store.log, run)
        header = await self._ask(log.header)
        return header.detail["target"].partition(":")[0] in self._agents

    async def _leave_to_owner(self, run: str, hints: list[Hint], busy: RunBusy) -> None:
        """Somebody else has it. What came just now he may take in, or leave behind at any moment; for
        everything else it is time when his lease is over."""
        now = time.time()
        if busy.until is None:
            young = hints
        else:
            young = [hint for hint in hints if hint.announces and now - hint.at < _ON_ITS_WAY]
            await self._put_off([hint for hint in hints if hint not in young], run, busy.until + 1, "busy")
        self._rest(young)

    async def _try_again(self, run: str, hints: list[Hint], error: Exception) -> None:
        before = [int(found[1]) for hint in hints if (found := _FAILURES.fullmatch(hint.what))]
        times = max(before, default=0) + 1
        again = time.time() + min(_AGAIN * 2.0 ** (times - 1), _LONGEST_AGAIN)
        self._tell(Look("failed", run, error=error, again=again, tries=times))
        await self._put_off(hints, run, again, f"f{times}")

    # --- hints --------------------------------------------------------------------------------

    async def _put_off(self, hints: Sequence[Hint], run: str, until: float, what: str) -> None:
        if hints:
            names = [hint.name for hint in hints]
            await self._ask(self._agenda.put_off, names, run, until, what)

    async def _drop(self, hints: Iterable[Hint]) -> None:
        names = [hint.name for hint in hints]
        if names:
            await self._ask(self._agenda.drop, names)

    @staticmethod
    async def _ask(fn: Callable[..., Result], /, *args: Any) -> Result:
        return await for_store(fn, *args)


def _is_done(hint: Hint, began: float) -> bool:
    """Whether a look that began then was late enough for everything that the hint announces."""
    return not hint.announces or hint.slot is not None or hint.at < began - _ON_ITS_WAY


def _log(look: Look) -> None:
    """What is told where nobody listens: failures. The first is a warning; the same follows at every further
    try, until somebody mends it."""
    if look.error is None or look.again is None:
        return
    what = str(look.error)
    if not isinstance(look.error, SnaprtError):
        what = f"{type(look.error).__name__}: {what}"
    logger.log(
        logging.WARNING if look.tries == 1 else logging.INFO,
        "Run %s couldn't be taken up (try %d; the next is in %.0f s): %s Look with `snaprt show %s`.",
        look.run,
        look.tries,
        look.again - time.time(),
        what,
        look.run,
    )


def _why(hints: Sequence[Hint]) -> str:
    """In a few words, why a run was looked at."""
    slots = [hint.slot or "inbox" for hint in hints if hint.announces]
    if slots:
        return ", ".join(sorted(set(slots)))
    return "tried again" if any(_FAILURES.fullmatch(hint.what) for hint in hints) else "its time"


def _import(module: str) -> None:
    try:
        if not all(module.split(".")):
            raise ImportError("that isn't a module's whole name")
        importlib.import_module(module)
    except ImportError as error:
        raise UsageError(
            f"The module {module!r} of agents can't be imported here: {error}. Name it as `import` does, and "
            "start the worker in the folder it stands in, or install it."
        ) from error
    except BaseException as error:
        if is_ctrl_c(error):
            raise
        raise UsageError(
            f"The module {module!r} of agents can't be imported here: it raised {in_words(error)}"
            f"{place_of(error)}. Mend that, and start the worker again."
        ) from error
