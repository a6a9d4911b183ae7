"""Random asyncio programs, undisturbed and saved at every idle moment: the same trace, or it's a bug.

    python -m tests.kernel.fuzz --programs 5000 --seed 1
    python -m tests.kernel.fuzz --programs 5000 --seed 1 --people     # see `fuzz_people`

A program is a tree of small classes, `Node`s, made from a seed: what a coroutine does next, with its children
nested in it. `run` interprets it on the agent loop, so the frames that are saved are those of the interpreter
below, one per nesting, with everything that asyncio puts between. The driver delivers results and
answers in a random order of its own seed and lets timers win at random, so every program is also a
schedule. Both runs of a pair get the same schedule.

Sets are kept small: the order in which a set of tasks iterates depends on the size its table had, which no
pickle keeps, and asyncio itself promises none.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import snaprt.kernel as k

from .driver import TRACE, Driver, note
from .programs import color, fetch, store

Kind = str


@dataclass(frozen=True)
class Node:
    """One thing to do. `n` names it in the trace; `value` is a number whose meaning depends on the kind."""

    kind: Kind
    n: int
    value: int = 0
    children: tuple[Node, ...] = field(default=())

    def __str__(self) -> str:
        inner = ", ".join(map(str, self.children))
        return f"{self.kind}#{self.n}({self.value}{': ' + inner if inner else ''})"


class Shared:
    """What the tasks of one program share."""

    def __init__(self) -> None:
        self.queues = [asyncio.Queue(1), asyncio.LifoQueue(2), asyncio.PriorityQueue()]
        self.lock = asyncio.Lock()
        self.semaphore = asyncio.BoundedSemaphore(2)
        self.event = asyncio.Event()
        self.condition = asyncio.Condition()
        self.tasks: list[asyncio.Task[Any]] = []
        self.turns = 0


class Oops(Exception):
    pass


# --- making programs ------------------------------------------------------------------------------

LEAVES = [
    "sleep",
    "yield",
    "fetch",
    "fetch",
    "store",
    "fail_fetch",
    "ask",
    "put",
    "get",
    "event",
    "wait_event",
    "raise",
    "cancel_some",
    "color",
    "future",
    "partial",
]
BRANCHES = [
    "sequence",
    "sequence",
    "loop",
    "try",
    "finally",
    "handler",
    "gather",
    "gather_exceptions",
    "group",
    "wait",
    "wait_first",
    "as_completed",
    "timeout",
    "wait_for",
    "shield",
    "spawn",
    "lock",
    "semaphore",
    "condition",
    "manager",
    "generator",
    "iterate",
    "cells",
    "swallow",
    "plan",
    "comprehension",
    "except_star",
]


def make(rng: random.Random, depth: int, count: list[int], leaves: Sequence[Kind] = LEAVES) -> Node:
    """A random program; `count` numbers its nodes."""
    count[0] += 1
    n = count[0]
    if depth == 0 or count[0] > 60 or rng.random() < 0.12:
        return Node(rng.choice(leaves), n, rng.randrange(4))
    kind = rng.choice(BRANCHES)
    many = kind in ("sequence", "gather", "gather_exceptions", "group", "wait", "wait_first", "as_completed")
    size = rng.randint(2, 3) if many else 2 if kind in ("try", "finally", "handler", "except_star") else 1
    children = tuple(make(rng, depth - 1, count, leaves) for _ in range(size))
    return Node(kind, n, rng.randrange(4), children)


# --- running them ---------------------------------------------------------------------------------


async def run(node: Node, shared: Shared) -> Any:
    """Do what a node says; notes its beginning and its end."""
    note("+", node.n, node.kind)
    shared.turns += 1
    if shared.turns > 400:
        raise Oops("enough")
    try:
        result = await KINDS[node.kind](node, shared)
    except BaseException as error:
        note("!", node.n, type(error).__name__, str(error)[:40])
        raise
    note("-", node.n, repr(result)[:60])
    return result


KINDS: dict[Kind, Callable[[Node, Shared], Any]] = {}


def kind(fn: Callable[[Node, Shared], Any]) -> Callable[[Node, Shared], Any]:
    KINDS[fn.__name__.rstrip("_")] = fn
    return fn


@kind
async def sleep(node: Node, shared: Shared) -> Any:
    return await asyncio.sleep(0.25 * node.value + node.n / 1024, node.n)


@kind
async def yield_(node: Node, shared: Shared) -> Any:
    for _ in range(node.value):
        await asyncio.sleep(0)


KINDS["fetch"] = lambda node, shared: fetch(f"{node.n}")
KINDS["store"] = lambda node, shared: store(node.n)


@kind
async def fail_fetch(node: Node, shared: Shared) -> Any:
    try:
        return await fetch(f"{node.n}", fail=True)
    except LookupError as error:
        if node.value == 0:
            raise
        await asyncio.sleep(0.5)
        return str(error)


@kind
async def ask(node: Node, shared: Shared) -> Any:
    return await k.suspend(node.n)


@kind
async def put(node: Node, shared: Shared) -> Any:
    async with asyncio.timeout(3):
        await shared.queues[node.value % 3].put(node.n)


@kind
async def get(node: Node, shared: Shared) -> Any:
    return await asyncio.wait_for(shared.queues[node.value % 3].get(), 2)


@kind
async def event(node: Node, shared: Shared) -> Any:
    shared.event.set() if node.value else shared.event.clear()


@kind
async def wait_event(node: Node, shared: Shared) -> Any:
    return await asyncio.wait_for(shared.event.wait(), 1 + node.value)


@kind
async def raise_(node: Node, shared: Shared) -> Any:
    raise (Oops, ValueError, KeyError, asyncio.CancelledError)[node.value](node.n)


@kind
async def cancel_some(node: Node, shared: Shared) -> Any:
    if not shared.tasks:
        return None
    return shared.tasks[node.n % len(shared.tasks)].cancel(f"by {node.n}")


@kind
async def color_(node: Node, shared: Shared) -> Any:
    before = color.get()
    token = color.set(f"color {node.n}")
    await asyncio.sleep(0.125)
    after = color.get()
    if node.value:
        color.reset(token)
    return before, after


@kind
async def future(node: Node, shared: Shared) -> Any:
    waiting: Any = asyncio.Future() if node.value % 2 else asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.5 + node.value, _set_unless_done, waiting, node.n)
    waiting.add_done_callback(lambda done: note("callback", node.n, done.cancelled()))
    return await waiting


def _set_unless_done(waiting: Any, value: Any) -> None:
    if not waiting.done():
        waiting.set_result(value)


@kind
async def partial(node: Node, shared: Shared) -> Any:
    """Awaits inside partially evaluated calls, displays, operators and strings."""
    values = [node.n, await asyncio.sleep(0.1, 2), *[await fetch("in a display")]]
    text = f"{node.n}-{await asyncio.sleep(0.1, 'x')!r:>6}"
    total = sum([1, 2, await asyncio.sleep(0.1, 3)], node.n * await asyncio.sleep(0.1, 4))
    return max(str(values), text, await fetch("last"), key=len), total, {"k": await asyncio.sleep(0, 1)}


@kind
async def sequence(node: Node, shared: Shared) -> Any:
    return [await run(child, shared) for child in node.children]


@kind
async def loop(node: Node, shared: Shared) -> Any:
    got = []
    for turn, name in enumerate(sorted({"a": 1, "b": 2, "c": 3})[: node.value]):
        got.append((turn, name, await run(node.children[0], shared)))
    return got


@kind
async def try_(node: Node, shared: Shared) -> Any:
    try:
        return await run(node.children[0], shared)
    except (Oops, ValueError, LookupError) as error:
        return type(error).__name__, await run(node.children[1], shared), sys.exc_info()[0] is type(error)


@kind
async def finally_(node: Node, shared: Shared) -> Any:
    try:
        return await run(node.children[0], shared)
    finally:
        note("finally", node.n)
        await run(node.children[1], shared)


@kind
async def handler(node: Node, shared: Shared) -> Any:
    try:
        raise Oops(node.n)
    except Oops as error:
        got = await run(node.children[0], shared)
        try:
            raise ValueError from error
        except ValueError as second:
            return got, await run(node.children[1], shared), repr(second.__cause__)


@kind
async def except_star(node: Node, shared: Shared) -> Any:
    got: list[Any] = []
    try:
        async with asyncio.TaskGroup() as group:
            for child in node.children:
                group.create_task(run(child, shared))
    except* Oops as errors:
        got.append(("oops", len(errors.exceptions), await fetch("handling")))
    except* (ValueError, LookupError) as errors:
        await asyncio.sleep(0.5)
        got.append(("other", len(errors.exceptions)))
    return got


@kind
async def gather(node: Node, shared: Shared) -> Any:
    return await asyncio.gather(*[run(child, shared) for child in node.children])


@kind
async def gather_exceptions(node: Node, shared: Shared) -> Any:
    return repr(
        await asyncio.gather(*[run(child, shared) for child in node.children], return_exceptions=True)
    )


@kind
async def group(node: Node, shared: Shared) -> Any:
    async with asyncio.TaskGroup() as tasks:
        made = [tasks.create_task(run(child, shared), name=f"t{child.n}") for child in node.children]
        await asyncio.sleep(0.25 * node.value)
    return [task.result() for task in made]


@kind
async def wait(node: Node, shared: Shared) -> Any:
    made = [asyncio.create_task(run(child, shared)) for child in node.children]
    done, pending = await asyncio.wait(made, timeout=1 + node.value)
    for task in made:
        if task in pending:
            task.cancel()
    await asyncio.gather(*made, return_exceptions=True)
    return sorted(made.index(task) for task in done)


@kind
async def wait_first(node: Node, shared: Shared) -> Any:
    made = [asyncio.create_task(run(child, shared)) for child in node.children]
    try:
        how = asyncio.FIRST_EXCEPTION if node.value % 2 else asyncio.FIRST_COMPLETED
        done, _ = await asyncio.wait(made, return_when=how)
        return sorted(made.index(task) for task in done)
    finally:
        for task in made:
            task.cancel("first")
        await asyncio.gather(*made, return_exceptions=True)


@kind
async def as_completed(node: Node, shared: Shared) -> Any:
    # Sleeping first keeps apart what a set would else put in an order of its own.
    async def later(place: int, child: Node) -> Any:
        await asyncio.sleep(place / 8)
        return await run(child, shared)

    made = [asyncio.create_task(later(place, child)) for place, child in enumerate(node.children)]
    got: list[Any] = []
    try:
        if sys.version_info >= (3, 13) and node.value % 2:
            async for each in asyncio.as_completed(made, timeout=5):
                got.append(await each)
        else:
            for each in asyncio.as_completed(made, timeout=5):
                got.append(await each)
    finally:
        for task in made:
            task.cancel()
        await asyncio.gather(*made, return_exceptions=True)
    return got


@kind
async def timeout(node: Node, shared: Shared) -> Any:
    try:
        async with asyncio.timeout(0.5 + node.value) as limit:
            return await run(node.children[0], shared)
    except TimeoutError:
        return "timed out", limit.expired()


@kind
async def wait_for(node: Node, shared: Shared) -> Any:
    try:
        return await asyncio.wait_for(run(node.children[0], shared), 0.4 + node.value)
    except TimeoutError:
        return "timed out"


@kind
async def shield(node: Node, shared: Shared) -> Any:
    inner = asyncio.create_task(run(node.children[0], shared))
    shared.tasks.append(inner)
    return await asyncio.shield(inner)


@kind
async def spawn(node: Node, shared: Shared) -> Any:
    task = asyncio.create_task(run(node.children[0], shared))
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    shared.tasks.append(task)
    await asyncio.sleep(0.5 * node.value)
    return task.done()


@kind
async def lock(node: Node, shared: Shared) -> Any:
    async with asyncio.timeout(20):
        await shared.lock.acquire()
    try:
        async with asyncio.timeout(4):
            return await run(node.children[0], shared)
    finally:
        shared.lock.release()


@kind
async def semaphore(node: Node, shared: Shared) -> Any:
    async with asyncio.timeout(15), shared.semaphore:
        return await run(node.children[0], shared)


@kind
async def condition(node: Node, shared: Shared) -> Any:
    result = await run(node.children[0], shared)
    async with shared.condition:
        shared.condition.notify_all()
        if node.value:
            try:
                async with asyncio.timeout(node.value):
                    await shared.condition.wait()
            except TimeoutError:
                note("nobody notified", node.n)
    return result


@asynccontextmanager
async def managed(n: int) -> AsyncIterator[int]:
    await asyncio.sleep(0.1)
    try:
        yield n
    except Oops:
        note("manager swallows", n)
        await asyncio.sleep(0.1)
    finally:
        note("manager leaves", n, await fetch("leaving"))


@contextmanager
def counted(n: int) -> Any:
    note("in", n)
    try:
        yield n
    finally:
        note("out", n)


@kind
async def manager(node: Node, shared: Shared) -> Any:
    with counted(node.n) as outer:
        async with managed(node.n) as inner:
            return outer, inner, await run(node.children[0], shared)
    return "swallowed"


async def numbers(node: Node, shared: Shared) -> AsyncGenerator[Any, None]:
    try:
        for n in range(node.value + 1):
            yield n, await run(node.children[0], shared)
            await asyncio.sleep(0.1)
    finally:
        note("generator ends", node.n)


@kind
async def generator(node: Node, shared: Shared) -> Any:
    got = []
    # Closed here: one that is merely dropped ends when the garbage collector finds it, in no two runs alike.
    async with aclosing(numbers(node, shared)) as source:
        async for each in source:
            got.append(each)
            if len(got) > 2:
                break
            await asyncio.sleep(0.1)
    return got


@kind
async def iterate(node: Node, shared: Shared) -> Any:
    def plain() -> Any:
        for n in range(3):
            note("plain", n)
            yield n

    got = []
    for n, letter in zip(plain(), map(str.upper, "abc"), strict=True):
        got.append((n, letter))
        if n == node.value:
            got.append(await run(node.children[0], shared))
    return got


@kind
async def cells(node: Node, shared: Shared) -> Any:
    total = 0

    async def add(n: int) -> None:
        nonlocal total
        total += n
        await asyncio.sleep(0.1)
        total += n

    await add(1)
    result = await run(node.children[0], shared)
    await asyncio.gather(add(2), add(3))
    return total, result


@kind
async def swallow(node: Node, shared: Shared) -> Any:
    """Puts up with one cancellation, as it shouldn't."""
    try:
        return await run(node.children[0], shared)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        assert task is not None
        if node.value == 0:
            note("uncancel", task.uncancel())
            return "swallowed"
        await asyncio.sleep(0.5)
        raise


@kind
async def plan(node: Node, shared: Shared) -> Any:
    mine = k.plan(f"step {node.n}")
    async with mine.step(f"step {node.n}"):
        return await run(node.children[0], shared)


@kind
async def comprehension(node: Node, shared: Shared) -> Any:
    return [
        (n, await run(node.children[0], shared))
        for n in range(node.value % 3)
        if await asyncio.sleep(0.1, True)
    ]


async def program(root: Node) -> Any:
    """The agent: runs the tree and then gives what else was spawned a while."""
    shared = Shared()
    try:
        return await run(root, shared)
    finally:
        if shared.tasks:
            await asyncio.wait(shared.tasks, timeout=3)


# --- comparing ------------------------------------------------------------------------------------


def plain_driver(rng: random.Random, save: bool) -> Driver:
    return Driver(
        save=save,
        choose=lambda open_things: rng.randrange(len(open_things)),
        wait_for_timers=lambda: rng.random() < 0.3,
        answer=lambda payload: f"answer {payload}",
    )


@dataclass(frozen=True)
class Dialect:
    """What programs are made of, and who drives them."""

    leaves: Sequence[Kind]
    driver: Callable[[random.Random, bool], Driver]
    least: int = 1
    """How many nodes a program has at least."""


PLAIN = Dialect(LEAVES, plain_driver)


def play(root: Node, seed: int, *, save: bool, dialect: Dialect = PLAIN) -> tuple[str, int]:
    """Everything that can be seen of one run, and how often it was saved."""
    TRACE.clear()
    driver = dialect.driver(random.Random(seed), save)
    kernel = driver.run(program, root)
    events = [*driver.shown, *kernel.events]
    seen = [kernel.status, repr(kernel.value), repr(kernel.error), kernel.summary(), events, *TRACE]
    # As with `asyncio.run`, a task that was made while the run ended may be left. Dropped, it would end when
    # the garbage collector finds it, in the trace of another run.
    kernel.release()
    return "\n".join(map(str, seen)), driver.saves


def difference(seed: int, dialect: Dialect = PLAIN) -> tuple[str | None, int]:
    """What differs between the two runs of a seed (None if nothing does), and how often it was saved."""
    rng = random.Random(seed)
    count = [0]
    while count[0] < dialect.least:
        count = [0]
        root = make(rng, 5, count, dialect.leaves)
    expected, _ = play(root, seed, save=False, dialect=dialect)
    try:
        got, saves = play(root, seed, save=True, dialect=dialect)
    except Exception:
        return f"seed {seed}: {root}\n{traceback.format_exc()}", 0
    if got == expected:
        return None, saves
    lines, others = expected.splitlines(), got.splitlines()
    place = next(
        (n for n, pair in enumerate(zip(lines, others, strict=False)) if pair[0] != pair[1]),
        min(len(lines), len(others)),
    )
    return (
        f"seed {seed}: {root}\nfirst difference at line {place}:\n"
        f"  undisturbed {lines[place : place + 3]}\n  saved       {others[place : place + 3]}"
    ), saves


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--script", action="store_true", help="save what is of this file by value (slower)")
    parser.add_argument("--people", action="store_true", help="with questions, inboxes, children, cancels")
    arguments = parser.parse_args()
    if __name__ == "__main__" and not arguments.script:
        from tests.kernel import fuzz  # what is of __main__ is saved by value

        return fuzz.main()
    for name in ("asyncio", "snaprt.kernel"):  # programs leave exceptions unretrieved, and machines are busy
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    dialect = PLAIN
    if arguments.people:
        from tests.kernel.fuzz_people import PEOPLE

        dialect = PEOPLE
    saves = differences = 0
    for seed in range(arguments.seed, arguments.seed + arguments.programs):
        found, count = difference(seed, dialect)
        saves += count
        if found is not None:
            differences += 1
            print(found, flush=True)
    print(f"{arguments.programs} programs, {saves} saves and restores, {differences} differences")
    sys.exit(1 if differences else 0)


if __name__ == "__main__":
    main()
