"""The programs of the runtime's fuzzer: trees of small classes that an agent interprets. See `fuzz`.

Time is cut into *slots*, and slots into rounds, in which each node of a program owns two: in one its timers
end, in the other the world does what the node waits for. Whoever waits, waits for the next slot that is
theirs; so no two things happen in one slot but what one caused the other. What delays a fleet (a poll, a
retry, a dead owner's lease) is far shorter than a slot. That makes programs confluent: they come to the same,
in the same slots, whoever runs them. Only `together` has things happen at once, and those don't race.

What an agent does is emitted, with its node and slot. This file must not know who drives its agents.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

import anyio
import pydantic

import snaprt
from snaprt.kernel import Done, NotDone
from snaprt.kernel.operations import current_kernel

EPOCH, SLOT = 1_900_000_000.0, 2000.0


class Oops(Exception):
    """What programs raise."""


@dataclass(frozen=True)
class Node:
    """One thing to do. `value` is a number whose meaning depends on the kind."""

    kind: str
    n: int
    value: int
    period: int
    children: tuple[Node, ...] = field(default=())

    def __str__(self) -> str:
        inner = ", ".join(map(str, self.children))
        return f"{self.kind}#{self.n}({self.value}{': ' + inner if inner else ''})"

    def slot(self, now: int, *, worlds: bool = False) -> int:
        """The next slot after `now` that is this node's, or the world's for it."""
        phase = 2 * self.n + worlds
        return now + 1 + (phase - now - 1) % self.period


class Outside:
    """What a program's tools touch and who is told that it waits: the world of one play."""

    def __init__(self) -> None:
        self.ledger: dict[str, tuple[int, int]] = {}
        self.again: list[str] = []
        self.asked: Callable[[Node, str, str, int], None] = lambda node, run, what, count: None
        self.moment: Callable[[str], None] = lambda what: None
        self.now: Callable[[], float] = lambda: EPOCH

    def pay(self, key: str, n: int, *, honour: bool) -> str:
        self.moment("before a payment")
        if key in self.ledger and not honour:
            self.again.append(key)
        self.ledger.setdefault(key, (n, slot_of(self.now())))
        self.moment("after a payment")
        return f"paid {n}"


_current: list[Outside] = [Outside()]
"""A global, and so no part of any state."""


def outside() -> Outside:
    return _current[-1]


def slot_of(now: float) -> int:
    return int((now - EPOCH + 1.0) // SLOT)  # a sum of floats may come to a little less than a slot's begin


def begins(slot: int) -> float:
    return EPOCH + slot * SLOT


def here() -> int:
    """The slot in which the agent is."""
    return slot_of(asyncio.get_running_loop().time())


def name_of_run() -> str:
    kernel = current_kernel()
    assert kernel is not None
    return kernel.run


def waits(node: Node, what: str, count: int = 0) -> None:
    """Tell the world. Lines that run again after a crash tell it again, in the same slot."""
    outside().asked(node, name_of_run(), what, count)


def note(node: Node, *what: Any) -> None:
    snaprt.emit([node.n, here(), *what])


# --- tools ----------------------------------------------------------------------------------------


@snaprt.tool(effect="read")
async def look(n: int) -> str:
    await anyio.lowlevel.checkpoint()
    outside().moment("a read")
    return f"<{n}>"


@snaprt.tool(effect="read")
async def fails(n: int) -> str:
    outside().moment("a read")
    raise Oops(n)


@snaprt.tool(effect="read")
async def shows(n: int, slot: int) -> str:
    for each in range(3):
        snaprt.emit([n, slot, "tool", each])
        await anyio.lowlevel.checkpoint()
        outside().moment("between two events")
    return "shown"


async def _well_into(slot: int) -> None:
    """So that whatever comes with this slot finds the tool at work."""
    await anyio.sleep(max(begins(slot) + SLOT / 2 - outside().now(), 0.0))


@snaprt.tool(effect="read")
async def looks_until(n: int, slot: int) -> str:
    await _well_into(slot)
    return f"<late {n}>"


@snaprt.tool
async def pay(n: int, *, idempotency_key: str) -> str:
    return outside().pay(idempotency_key, n, honour=False)


@snaprt.tool
async def pay_later(n: int, slot: int, *, idempotency_key: str) -> str:
    await _well_into(slot)
    return outside().pay(idempotency_key, n, honour=False)


@snaprt.tool(effect="idempotent")
async def pay_by_key(n: int, *, idempotency_key: str) -> str:
    return outside().pay(idempotency_key, n, honour=True)


def _was_paid(key: str, n: int) -> Done | NotDone:
    outside().moment("a reconcile hook")
    return Done(f"paid {n}") if key in outside().ledger else NotDone()


@snaprt.tool(reconcile=_was_paid)
async def pay_and_prove(n: int, *, idempotency_key: str) -> str:
    return outside().pay(idempotency_key, n, honour=False)


# --- making programs ------------------------------------------------------------------------------

QUIET = [
    "read",
    "write",
    "keyed",
    "proven",
    "shouts",
    "emits",
    "ask",
    "ask_in_time",
    "ask_typed",
    "nap",
]
"""What never fails, and shares nothing: several at once may be done in any order."""
LEAVES = [
    *QUIET,
    "read_fails",
    "slow_read",
    "slow_write",
    "until",
    "ask_or_raise",
    "early",
    "hear",
    "mailbox",
    "mailbox",
    "readers",
    "raises",
]
BRANCHES = [
    "sequence",
    "sequence",
    "loop",
    "tries",
    "cleans",
    "group",
    "gathers",
    "race",
    "limit",
    "together",
    "together",
    "child",
    "child",
]
_TWO = ("sequence", "group", "gathers", "race")


def make(dice: random.Random, most: int = 12) -> Node:
    """A random program."""
    count = [0]
    period = 3 * most + 20

    def node(depth: int) -> Node:
        count[0] += 1
        n, value = count[0], dice.randrange(4)
        if depth == 0 or count[0] >= most:
            return Node(dice.choice(LEAVES), n, value, period)
        kind = dice.choice(BRANCHES)
        if kind == "together":
            leaves = []
            for _ in range(dice.randint(2, 3)):
                count[0] += 1
                leaves.append(Node(dice.choice(QUIET), count[0], dice.randrange(4), period))
            return Node(kind, n, value, period, tuple(leaves))
        size = 2 if kind in (*_TWO, "tries", "cleans") else 1
        return Node(kind, n, value, period, tuple(node(depth - 1) for _ in range(size)))

    root = node(4)
    return Node("sequence", 0, 0, period, (root, node(1)))


# --- the agent ------------------------------------------------------------------------------------


class Shared:
    """What the tasks of one run share."""

    def __init__(self) -> None:
        self.named: Counter[int] = Counter()


async def program(root: Node) -> Any:
    """The agent of every run, children included."""
    waits(root, "run")
    return await run(root, Shared())


async def run(node: Node, shared: Shared) -> Any:
    note(node, "+", node.kind)
    try:
        result = await KINDS[node.kind](node, shared)
    except BaseException as error:
        note(node, "!", type(error).__name__)
        raise
    note(node, "-", repr(result))
    return result


async def apart(node: Node, shared: Shared) -> Any:
    """The same from a slot of its own on, so that it races with nobody."""
    await asyncio.sleep(left(node))
    return await run(node, shared)


def left(node: Node) -> float:
    """Seconds until the node's next slot."""
    return begins(node.slot(here())) - asyncio.get_running_loop().time()


KINDS: dict[str, Callable[[Node, Shared], Any]] = {
    "read": lambda node, shared: look(node.n),
    "read_fails": lambda node, shared: fails(node.n),
    "slow_read": lambda node, shared: looks_until(node.n, here() + 1),
    "slow_write": lambda node, shared: pay_later(node.n, here() + 1),
    "write": lambda node, shared: pay(node.n),
    "keyed": lambda node, shared: pay_by_key(node.n),
    "proven": lambda node, shared: pay_and_prove(node.n),
    "shouts": lambda node, shared: shows(node.n, here()),
    "nap": lambda node, shared: asyncio.sleep(left(node), "slept"),
}


def kind(fn: Callable[[Node, Shared], Any]) -> Callable[[Node, Shared], Any]:
    KINDS[fn.__name__] = fn
    return fn


@kind
async def emits(node: Node, shared: Shared) -> Any:
    for each in range(node.value + 1):
        note(node, "agent", each)
        await asyncio.sleep(0)


@kind
async def until(node: Node, shared: Shared) -> Any:
    await snaprt.sleep_until(datetime.fromtimestamp(begins(node.slot(here())), UTC))


@kind
async def raises(node: Node, shared: Shared) -> Any:
    raise Oops(node.n)


@kind
async def ask(node: Node, shared: Shared) -> Any:
    waits(node, "answer")
    return await snaprt.suspend({"n": node.n})


@kind
async def ask_in_time(node: Node, shared: Shared) -> Any:
    if node.value:
        waits(node, "answer")
    return await snaprt.suspend({"n": node.n}, timeout=left(node), default="nobody")


@kind
async def ask_or_raise(node: Node, shared: Shared) -> Any:
    if node.value > 1:
        waits(node, "answer")
    try:
        return await snaprt.suspend({"n": node.n}, timeout=left(node), name=f"q{node.n}")
    except TimeoutError as error:
        raise Oops("in time") from error


class Verdict(pydantic.BaseModel):
    """An answer with a type that only the agent's own code can judge."""

    n: int

    @pydantic.field_validator("n")
    @classmethod
    def _counts(cls, n: int) -> int:
        if n < 0:
            raise ValueError("less than nothing")
        return n


@kind
async def ask_typed(node: Node, shared: Shared) -> Any:
    waits(node, "mistake" if node.value % 2 else "verdict")
    expected: Any = Verdict if node.value < 2 else Verdict | Literal["none"]
    return await snaprt.suspend({"n": node.n}, answer=expected)


@kind
async def early(node: Node, shared: Shared) -> Any:
    """A question that may be answered before it is asked."""
    waits(node, "early", shared.named[node.n] + 1)
    if node.value:
        await asyncio.sleep(left(node))
    shared.named[node.n] += 1
    return await snaprt.suspend({"n": node.n}, name=f"early-{node.n}")


@kind
async def hear(node: Node, shared: Shared) -> Any:
    if node.value:
        waits(node, "message")
    try:
        async with asyncio.timeout(left(node)):
            return await snaprt.inbox(f"box-{node.n}").get()
    except TimeoutError:
        return "silence"


@kind
async def mailbox(node: Node, shared: Shared) -> Any:
    """Messages that come before, while and after somebody reads."""
    waits(node, "messages")
    heard: list[Any] = []
    if node.value % 2:
        await asyncio.sleep(left(node))
    async for message in snaprt.inbox(f"box-{node.n}"):
        heard.append(message)
        note(node, "heard", message)
        if node.value > 1:
            await pay_by_key(node.n)
        if len(heard) == 3:
            return heard


@kind
async def readers(node: Node, shared: Shared) -> Any:
    """Two readers of one inbox."""
    waits(node, "messages")
    box = snaprt.inbox(f"box-{node.n}")

    async def read(count: int) -> list[Any]:
        return [await box.get() for _ in range(count)]

    one, two = await asyncio.gather(read(1), read(2))
    return sorted(one + two)


@kind
async def sequence(node: Node, shared: Shared) -> Any:
    return [await run(child, shared) for child in node.children]


@kind
async def loop(node: Node, shared: Shared) -> Any:
    return [(turn, await run(node.children[0], shared)) for turn in range(1 + node.value % 3)]


@kind
async def tries(node: Node, shared: Shared) -> Any:
    try:
        return await run(node.children[0], shared)
    except* Oops as errors:
        got = len(errors.exceptions)
        note(node, "caught", got)
        await run(node.children[1], shared)
    return "mended"


@kind
async def cleans(node: Node, shared: Shared) -> Any:
    try:
        return await run(node.children[0], shared)
    finally:
        note(node, "finally")
        await run(node.children[1], shared)


@kind
async def group(node: Node, shared: Shared) -> Any:
    async with asyncio.TaskGroup() as tasks:
        made = [tasks.create_task(apart(child, shared)) for child in node.children]
    return [task.result() for task in made]


@kind
async def gathers(node: Node, shared: Shared) -> Any:
    got = await asyncio.gather(*[apart(child, shared) for child in node.children], return_exceptions=True)
    return list(map(repr, got))


@kind
async def race(node: Node, shared: Shared) -> Any:
    made = [asyncio.create_task(apart(child, shared)) for child in node.children]
    try:
        done, _ = await asyncio.wait(made, return_when=asyncio.FIRST_COMPLETED)
        return [made.index(task) for task in made if task in done]
    finally:
        for task in made:
            task.cancel()
        await asyncio.gather(*made, return_exceptions=True)


@kind
async def limit(node: Node, shared: Shared) -> Any:
    try:
        async with asyncio.timeout(left(node)):
            return await run(node.children[0], shared)
    except TimeoutError:
        return "timed out"


@kind
async def together(node: Node, shared: Shared) -> Any:
    async with asyncio.TaskGroup() as tasks:
        made = [tasks.create_task(run(child, shared)) for child in node.children]
    return [task.result() for task in made]


@kind
async def child(node: Node, shared: Shared) -> Any:
    """A run of its own; the world cancels some."""
    return await snaprt.child(program, Node("inner", node.n, node.value, node.period, node.children))


@kind
async def inner(node: Node, shared: Shared) -> Any:
    if node.value == 0:
        waits(node, "cancel")
    return await run(node.children[0], shared)
