"""Agents for the crash matrix, and what each has to come to whatever is killed.

Every agent marks its lines (`mark`): two marks of one run are never the same, so a mark that is seen twice
is a line that ran twice. Tools take the key of their step, by which the world counts their calls.

Most come to one value and are compared with an undisturbed run. Those that draw random numbers, read the
clock or go through sets can't be: they say what they saw, and `check` compares it with what the world was
told at that time.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import snaprt
from tests.crash.world import World, receipt, world


def mark(*line: Any) -> None:
    world().mark(line)


# --- tools ----------------------------------------------------------------------------------------


@snaprt.tool(effect="read")
async def read(what: Any, *, idempotency_key: str) -> str:
    """A question; the answer depends on the question alone."""
    await world().call(idempotency_key)
    return f"<{what}>"


@snaprt.tool(effect="read")
async def ask(what: Any, *, idempotency_key: str) -> None:
    """Let the world know what the agent saw. Before its result is recorded, another question may come
    instead: a question changes nothing, and no intent goes before it."""
    await world().call(idempotency_key)
    world().notes[idempotency_key] = what


@snaprt.tool(effect="idempotent")
async def tell(what: Any, *, idempotency_key: str) -> None:
    """The same by an effect: a repeat has to tell the same, as its intent holds the frames and arguments."""
    here = world()
    await here.call(idempotency_key)
    if here.notes.setdefault(idempotency_key, what) != what:
        here.violations.append(f"step {idempotency_key} told {here.notes[idempotency_key]!r}, then {what!r}")


@snaprt.tool
async def pay(cents: int, *, idempotency_key: str) -> str:
    """A write, at a service that ignores keys: every call is a payment."""
    await world().call(idempotency_key)
    paid = world().pay(idempotency_key, cents, honour=False)
    await world().pause()
    return paid


@snaprt.tool(effect="idempotent")
async def pay_by_key(cents: int, *, idempotency_key: str) -> str:
    """The same at a service that honours keys."""
    await world().call(idempotency_key)
    paid = world().pay(idempotency_key, cents, honour=True)
    await world().pause()
    return paid


async def look_in_ledger(key: str, cents: int) -> Any:
    world().passes("a reconcile hook")
    if any(known == key for known, _ in world().ledger):
        return snaprt.Done(receipt(cents))
    return snaprt.NotDone()


@snaprt.tool(reconcile=look_in_ledger)
async def pay_and_look(cents: int, *, idempotency_key: str) -> str:
    """A write whose outcome can be found out."""
    await world().call(idempotency_key)
    paid = world().pay(idempotency_key, cents, honour=False)
    await world().pause()
    return paid


def cannot_tell(key: str, cents: int) -> Any:
    return snaprt.Unknown()


@snaprt.tool(reconcile=cannot_tell)
async def pay_and_shrug(cents: int, *, idempotency_key: str) -> str:
    """A write whose service doesn't know: left to a person after all."""
    await world().call(idempotency_key)
    return world().pay(idempotency_key, cents, honour=False)


@snaprt.tool(effect="read")
async def breaks(what: str, *, idempotency_key: str) -> None:
    await world().call(idempotency_key)
    raise LookupError(f"no {what}")


@snaprt.tool
async def pay_and_jam(cents: int, *, idempotency_key: str) -> None:
    """The world changes, and the tool fails all the same: that it failed is its result."""
    await world().call(idempotency_key)
    world().pay(idempotency_key, cents, honour=False)
    raise RuntimeError("the printer jammed")


@snaprt.tool(effect="idempotent", retries=3)
async def flaky(cents: int, *, idempotency_key: str) -> str:
    """Fails twice, then works; and pays before it fails the second time."""
    here = world()
    await here.call(idempotency_key, attempt=True)
    here.attempts[idempotency_key] += 1
    if here.attempts[idempotency_key] == 1:
        raise ConnectionError("not now")
    paid = here.pay(idempotency_key, cents, honour=True)
    if here.attempts[idempotency_key] == 2:
        raise ConnectionError("the answer got lost")
    return paid


def above_ten(cents: int) -> bool:
    return cents > 10


@snaprt.tool(approval=above_ten, reconcile=look_in_ledger)
async def pay_if_allowed(cents: int, *, idempotency_key: str) -> str:
    await world().call(idempotency_key)
    return world().pay(idempotency_key, cents, honour=False)


# --- agents that come to one value ----------------------------------------------------------------


async def reads() -> list[str]:
    mark("start")
    seen = []
    for number in range(4):
        seen.append(await read(number))
        mark("read", number)
    return seen


async def parallel_reads() -> list[str]:
    async def both(number: int) -> str:
        mark("one", number)
        first = await read(number)
        mark("two", number)
        return first + await read(first)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(both(number)) for number in range(3)]
    mark("all")
    return [task.result() for task in tasks]


async def writes() -> list[str]:
    mark("start")
    paid = [await pay(1)]
    mark("one")
    paid.append(await read("between"))
    mark("two")
    paid.append(await pay(2))
    mark("three")
    return paid


async def idempotent_writes() -> list[str]:
    paid = []
    for cents in (1, 2, 3):
        mark("before", cents)
        paid.append(await pay_by_key(cents))
    mark("end")
    return paid


async def reconciled_writes() -> list[str]:
    paid = []
    for cents in (1, 2):
        mark("before", cents)
        paid.append(await pay_and_look(cents))
    paid.append(await pay_and_shrug(3))
    mark("end")
    return paid


async def parallel_writes() -> list[Any]:
    """Everything at once: one intent for three writes, and a read beside them that goes on meanwhile."""

    async def reading() -> list[str]:
        seen = []
        for number in range(3):
            seen.append(await read(number))
            mark("beside", number)
        return seen

    found = await asyncio.gather(pay(1), pay_by_key(2), pay_and_look(3), reading())
    mark("end")
    return list(found)


async def failing_tools() -> list[str]:
    """What a tool raises is its result: recorded, and raised again where it was awaited."""
    seen = []
    for what in ("tea", "sugar"):
        try:
            mark("try", what)
            await breaks(what)
        except LookupError as error:
            seen.append(str(error))
            seen.append(await read(what))  # while the exception is being handled
            mark("handled", what)
        finally:
            mark("finally", what)
    return seen


async def failing_agent() -> None:
    """Ends by an exception after a write; a resume gives the same failure and pays nothing."""
    mark("start")
    await pay_by_key(5)
    mark("paid")
    await breaks("milk")


@snaprt.tool(effect="read")
async def fetch(what: str, *, idempotency_key: str) -> str:
    """Can't be had before the world is mended."""
    await world().call(idempotency_key)
    if not world().mended:
        raise ConnectionError("no road")
    return f"<{what}>"


async def mended() -> list[str]:
    """Fails after a payment, and is tried again when the cause is mended: it goes on where it failed."""
    mark("start")
    paid = [await pay(9)]
    mark("paid")
    paid.append(await read("before"))
    mark("read")
    paid.append(await fetch("milk"))
    mark("fetched")
    paid.append(await pay_and_look(10))
    return paid


async def racing() -> str:
    """The first answer will do; what the others would have said isn't waited for."""
    for number in range(3):
        tasks = [asyncio.create_task(read((number, name))) for name in "ab"]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        mark("raced", number)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    return await pay_and_look(5)


async def jamming() -> list[str]:
    """A payment that was made by a call that failed. In doubt, a person says that it failed."""
    seen = []
    for cents in (1, 2):
        mark("before", cents)
        try:
            await pay_and_jam(cents)
        except (RuntimeError, snaprt.CallFailed) as error:
            mark("after", cents)
            seen.append(f"{cents}: the printer jammed" if "jammed" in str(error) else repr(error))
    return seen


async def retrying() -> list[str]:
    mark("start")
    paid = [await flaky(7)]
    mark("one")
    paid.append(await read("between"))
    paid.append(await flaky(8))
    mark("two")
    return paid


async def asking() -> list[Any]:
    """Two people are asked at once, and paid as they say."""

    async def one(name: str) -> Any:
        mark("ask", name)
        try:
            said = await snaprt.suspend({"ask": name, "answer": len(name)})
        finally:
            mark("answered", name)
        return await pay_and_look(said)

    paid = await asyncio.gather(one("Ada"), one("Blaise"))
    mark("end")
    return [*paid, await snaprt.suspend({"ask": "all right?", "answer": True})]


async def approvals() -> list[str]:
    """Below ten nobody is asked; 11 is approved, 12 refused, 13 becomes 3."""
    paid = []
    for cents in (1, 11, 12, 13):
        mark("before", cents)
        try:
            paid.append(await pay_if_allowed(cents))
        except snaprt.Rejected as no:
            mark("rejected", cents)
            paid.append(f"rejected: {no}")
        mark("after", cents)
    return paid


async def parallel_approvals() -> list[str]:
    paid = await asyncio.gather(*[pay_if_allowed(cents) for cents in (11, 13, 14)])
    mark("end")
    return list(paid)


async def in_words() -> dict[str, str]:
    """A plan, a queue, workers that wait for one another: asyncio as people write it."""
    plan = snaprt.plan("fill", "work")
    queue: asyncio.Queue[int] = asyncio.Queue(2)
    done: dict[str, str] = {}

    async def worker(name: str) -> None:
        while True:
            number = await queue.get()
            done[str(number)] = await read(number)
            mark("worked", number)
            queue.task_done()

    workers = [asyncio.create_task(worker(name)) for name in "ab"]
    async with plan.step("fill"):
        for number in range(5):
            await queue.put(number)
            mark("put", number)
    async with plan.step("work"):
        await queue.join()
    for each in workers:
        each.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    mark("end")
    return dict(sorted(done.items()))


async def timers() -> list[str]:
    """Waits short enough to stay in the process, between reads and across them."""
    seen = [await read("before")]
    mark("one")
    try:
        async with asyncio.timeout(0.002):
            mark("waiting")
            await asyncio.Event().wait()
    except TimeoutError:
        mark("timed out")
        seen.append(await read("after"))
    slow, quick = asyncio.create_task(asyncio.sleep(60)), asyncio.create_task(_paid_soon())
    await asyncio.wait({slow, quick}, return_when=asyncio.FIRST_COMPLETED)
    mark("first")
    slow.cancel()
    return [*seen, quick.result()]


async def _paid_soon() -> str:
    await asyncio.sleep(0.001)
    mark("soon")
    return await pay_by_key(4)


@snaprt.agent(save="effects")
async def relaxed() -> list[Any]:
    """State with effects and questions only: reads between may be fed again to lines that run again."""
    seen: list[Any] = []
    for number in range(3):
        mark("read", number)
        seen.append(await read(number))
    seen.append(await pay_and_look(len(seen)))
    mark("paid")
    for number in range(3, 6):
        seen.append(await read(number))
        mark("read", number)
    return seen


# --- agents that no two runs of are the same --------------------------------------------------------


async def draws() -> list[Any]:
    """What was drawn before a record is never drawn again."""
    told = []
    for number in range(3):
        drawn = random.random()
        mark("drawn", number)
        told.append(drawn)
        await ask(drawn)
        told.append(drawn := random.getrandbits(64))
        await asyncio.gather(tell(drawn), tell(told[0]))
        told.append(told[0])
    return told


async def clocks() -> list[Any]:
    told = []
    for number in range(4):
        now = time.time_ns()
        mark("read the clock", number)
        told.append(now)
        await (ask(now) if number % 2 else tell(now))
    return told


@dataclass(eq=False)
class Thing:
    """Hashed by where it lies in memory: a set of these has another order in every process."""

    name: str


async def sets() -> list[Any]:
    told = []
    for thing in {Thing(name) for name in "abcdef"}:
        mark("thing", thing.name)
        told.append(thing.name)
        await tell(thing.name)
    things = {Thing(name): name for name in "xyz"}
    for thing in set(things):
        told.append(things[thing])
        await ask(thing.name)
    return told


def tells_what_the_world_heard(here: World, value: list[Any]) -> None:
    heard = [here.notes[key] for key in sorted(here.notes, key=lambda key: int(key.rpartition("/")[2]))]
    assert value == heard


def tells_every_thing_once(here: World, value: list[Any]) -> None:
    tells_what_the_world_heard(here, value)
    assert sorted(value) == sorted("abcdefxyz")


@dataclass(frozen=True)
class Program:
    """An agent of the matrix. `check` stands in for the comparison with an undisturbed run."""

    agent: Callable[[], Awaitable[Any]]
    payments: tuple[int, ...] = ()
    check: Callable[[World, Any], None] | None = None
    relaxed: bool = False
    mend: bool = False  # it fails, and is tried again after the world was mended

    @property
    def name(self) -> str:
        return getattr(self.agent, "__name__", "?")


PROGRAMS = [
    Program(reads),
    Program(parallel_reads),
    Program(writes, (1, 2)),
    Program(idempotent_writes, (1, 2, 3)),
    Program(reconciled_writes, (1, 2, 3)),
    Program(parallel_writes, (1, 2, 3)),
    Program(failing_tools),
    Program(failing_agent, (5,)),
    Program(jamming, (1, 2)),
    Program(mended, (9, 10), mend=True),
    Program(racing, (5,)),
    Program(retrying, (7, 8)),
    Program(asking, (3, 6)),
    Program(approvals, (1, 3, 11)),
    Program(parallel_approvals, (3, 11, 14)),
    Program(in_words),
    Program(timers, (4,)),
    Program(relaxed, (3,), relaxed=True),
    Program(draws, check=tells_what_the_world_heard),
    Program(clocks, check=tells_what_the_world_heard),
    Program(sets, check=tells_every_thing_once),
]
