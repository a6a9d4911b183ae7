"""What the fuzzer's programs do with people, messages, times and other runs, and who plays those.

    python -m tests.kernel.fuzz --people --programs 5000 --seed 1

The programs are those of `fuzz` with more leaves: questions with a type, a time, a name; readers of inboxes;
moments of the wall clock; children; events. `Crowd` answers, now and then wrongly at first; has messages
ready for whoever reads; tells how children ended; and cancels the whole run at random. The run that is saved
is told old answers, messages and cancellations once more, too, which has to change nothing.
"""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime
from typing import Any, Literal

import pydantic

import snaprt.kernel as k
from snaprt.kernel.kernel import Kernel
from snaprt.kernel.questions import WrongAnswer
from snaprt.kernel.waiting import cancel_child, start_child

from .driver import Driver, in_order, note
from .fuzz import LEAVES, Dialect, Node, Oops, Shared, kind


class Verdict(pydantic.BaseModel):
    """An answer with a type of its own."""

    n: int
    good: bool = True


@kind
async def ask_in_time(node: Node, shared: Shared) -> Any:
    return await k.suspend(node.n, timeout=0.3 + node.value, default=("nobody", node.n))


@kind
async def ask_or_raise(node: Node, shared: Shared) -> Any:
    try:
        return await k.suspend(node.n, timeout=0.3 + node.value, name=f"late-{node.value % 2}")
    except TimeoutError as error:
        if node.value == 0:
            raise Oops(str(error)) from error
        return str(error)


@kind
async def ask_typed(node: Node, shared: Shared) -> Any:
    expected: Any = (Verdict, list[int], Literal["yes", "no"], dict[str, float])[node.value]
    got = await k.suspend({"typed": node.value, "n": node.n}, answer=expected)
    assert not isinstance(expected, type) or type(got) is expected
    return got


@kind
async def ask_named(node: Node, shared: Shared) -> Any:
    return await k.suspend(("named", node.n), name="review")


@kind
async def ask_many(node: Node, shared: Shared) -> Any:
    return await asyncio.gather(*[k.suspend((node.n, each), name=f"of-{node.n}") for each in range(3)])


@kind
async def hear(node: Node, shared: Shared) -> Any:
    async with asyncio.timeout(0.5 + node.value):
        return await k.inbox(f"box-{node.value % 2}").get()


@kind
async def hear_some(node: Node, shared: Shared) -> Any:
    heard = []
    async for message in k.inbox(f"box-{node.value % 2}"):
        heard.append(message)
        k.emit({"heard": heard})
        if len(heard) > node.value:
            break
    return heard


@kind
async def until(node: Node, shared: Shared) -> Any:
    now = asyncio.get_running_loop().time()
    return await k.sleep_until(datetime.fromtimestamp(now + node.value + node.n / 1024, UTC))


@kind
async def show(node: Node, shared: Shared) -> Any:
    for each in range(node.value + 1):
        k.emit({"node": node.n, "each": each})
        await asyncio.sleep(0.1 * each)


async def other(how: int, n: int) -> str:
    """An agent that never runs here: `Crowd` says how it ended."""
    raise AssertionError((how, n))


@kind
async def child(node: Node, shared: Shared) -> Any:
    try:
        return await k.child(other, node.value, node.n)
    except asyncio.CancelledError:
        note("left its child", node.n)
        raise


LEAVES_WITH_PEOPLE = [
    *LEAVES,
    "ask_in_time",
    "ask_or_raise",
    "ask_typed",
    "ask_typed",
    "ask_named",
    "ask_many",
    "hear",
    "hear",
    "hear_some",
    "until",
    "show",
    "child",
    "child",
]

_TYPED: tuple[Any, ...] = ({"n": 7, "good": False}, [1, 2], "no", {"x": 0.5})


class Crowd(Driver):
    """Plays the runtime and everybody outside. `rng` decides, so two runs with one seed are told the same."""

    def __init__(self, rng: random.Random, save: bool) -> None:
        super().__init__(
            save=save,
            choose=lambda open_things: rng.randrange(len(open_things)),
            wait_for_timers=lambda: rng.random() < 0.3,
        )
        self.rng = rng
        self.cancels = 0
        self.old: list[k.Event] = []
        self.again = random.Random(0)
        self.children: dict[str, tuple[int, int]] = {}

    def move(self, kernel: Kernel) -> None:
        if self.save and self.old and self.again.random() < 0.5:
            kernel.deliver(self.again.choice(self.old))
        if self.rng.random() < 0.03 and self.cancels < 3:
            self.cancels += 1
            self.tell(kernel, k.Cancel(f"cancel {self.cancels}", self.cancels))
            return
        # A message lies there for whoever waits for one.
        wanted = kernel.waits.next_messages()
        ready: list[Any] = [k.Message(name, number, f"{name} {number}") for name, number in wanted.items()]
        if ready and (self.rng.random() < 0.3 or (not self.open and kernel.next_timer() is None)):
            self.tell(kernel, self.rng.choice(ready))
            return
        super().move(kernel)

    def tell(self, kernel: Kernel, event: k.Event) -> None:
        self.old.append(event)
        kernel.deliver(event)

    def deliver(self, kernel: Kernel, thing: k.Call | k.Ask) -> None:
        if isinstance(thing, k.Ask):
            self.answered(kernel, thing)
        elif thing.fn is start_child:
            _, (how, n), _ = thing.args
            run = f"{kernel.run}.{thing.step}"
            self.children[run] = how, n
            kernel.deliver(k.Result(thing.step, run))
        elif thing.fn is cancel_child:
            note("cancelled", *thing.args)
            kernel.deliver(k.Result(thing.step, None))
        else:
            super().deliver(kernel, thing)

    def answered(self, kernel: Kernel, thing: k.Ask) -> None:
        if thing.suspension in kernel.open_children():
            self.tell(kernel, k.Answer(thing.suspension, self.end_of(thing.payload), thing.payload, 1.0))
            return
        payload = thing.payload
        typed = isinstance(payload, dict) and "typed" in payload
        value = f"answer {payload}"
        if typed and self.rng.random() < 0.6:
            value = _TYPED[payload["typed"]]
        try:
            value = kernel.judged(thing.suspension, value)
        except WrongAnswer as wrong:
            kernel.deliver(k.Mistaken(thing.suspension, str(wrong)))
            self.open.append(thing)  # it is asked on
            self.open.sort(key=in_order)
        else:
            self.tell(kernel, k.Answer(thing.suspension, value, "ana", self.clock.now))

    def end_of(self, run: str) -> tuple[str, Any]:
        how, n = self.children[run]
        if how == 3:
            return "cancelled", "by hand"
        return ("failed", Oops(f"child {n}")) if how == 2 else ("completed", n)


PEOPLE = Dialect(LEAVES_WITH_PEOPLE, Crowd, least=15)
