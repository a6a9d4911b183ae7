"""Agents that wait for people, messages, times and other runs: importable, for other processes too."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
import pydantic

import snaprt
from tests.runtime.agents import look_up, note


class Decision(pydantic.BaseModel):
    """What a reviewer says."""

    approved: bool
    cents: Annotated[int, pydantic.Field(ge=0, le=10_000)] = 0
    note: str = ""

    @pydantic.model_validator(mode="after")
    def _says_why(self) -> Decision:
        if not self.approved and not self.note:
            raise ValueError("a refusal says why")
        return self


@snaprt.tool(effect="read")
async def takes_long(ledger: str, seconds: float) -> str:
    """As long as that, or until the test lets it end (`enough`)."""
    with anyio.move_on_after(seconds):
        while not Path(f"{ledger}.enough").exists():
            await anyio.sleep(0.01)
    note(ledger, "took long")
    return "long"


async def typed() -> Any:
    decision = await snaprt.suspend({"text": "pay?"}, answer=Decision)
    return type(decision).__name__, decision.approved, decision.cents, decision.note


async def choice() -> Any:
    return await snaprt.suspend("which?", answer=Literal["left", "right"])


async def patient(seconds: float) -> Any:
    return await snaprt.suspend("anybody?", timeout=seconds, default="nobody")


async def impatient(seconds: float) -> Any:
    try:
        return await snaprt.suspend("anybody?", timeout=timedelta(seconds=seconds))
    except TimeoutError as error:
        return f"{type(error).__name__}: {error}"


async def named() -> Any:
    first = await snaprt.suspend("first", name="review")
    second = await snaprt.suspend("second", name="review")
    return first, second


async def same_names() -> Any:
    """Tasks that ask under one name at once."""

    async def ask(what: str) -> Any:
        return what, await snaprt.suspend(what, name="review")

    return await asyncio.gather(ask("a"), ask("b"), ask("c"))


async def cleans_up_at_leisure(ledger: str) -> None:
    try:
        await snaprt.suspend("never answered")
    finally:
        await takes_long(ledger, 60)


async def gives_up_in_time(ledger: str) -> str:
    """Lets the child end its cleanup only when it has gone on itself."""
    try:
        async with asyncio.timeout(0.05):
            await snaprt.child(cleans_up_at_leisure, ledger)
    except TimeoutError:
        await look_up(ledger, "went on")
        enough(ledger)
        return "timed out"
    return "done"


def enough(ledger: str) -> None:
    """Have `takes_long` end."""
    Path(f"{ledger}.enough").touch()


async def ask_while_working(ledger: str) -> Any:
    async with asyncio.TaskGroup() as group:
        work = group.create_task(takes_long(ledger, 60))
        asked = group.create_task(snaprt.suspend("meanwhile?"))
    return work.result(), asked.result()


async def looped(ledger: str, times: int) -> Any:
    """Asks again and again, with a call before each question."""
    got = []
    for n in range(times):
        seen = await look_up(ledger, f"turn {n}")
        got.append((seen, await snaprt.suspend({"turn": n})))
    return got


async def chat(count: int) -> Any:
    heard = []
    async for message in snaprt.inbox("chat"):
        heard.append(message)
        if len(heard) == count:
            return heard


async def chats(count: int) -> Any:
    """Two readers of one inbox."""
    box = snaprt.inbox("chat")

    async def read() -> list[Any]:
        return [await box.get() for _ in range(count)]

    return await asyncio.gather(read(), read())


async def chat_with_patience() -> Any:
    """Gives up waiting, and finds the message later all the same."""
    try:
        async with asyncio.timeout(0.05):
            return await snaprt.inbox("chat").get()
    except TimeoutError:
        await snaprt.suspend("shall I go on?")
        return "late", await snaprt.inbox("chat").get()


async def until(when: datetime) -> float:
    await snaprt.sleep_until(when)
    return asyncio.get_running_loop().time()


async def two_timers() -> list[str]:
    """A sleep that ends inside its timeout, both of which are long over when the run wakes late."""
    seen = []
    try:
        async with asyncio.timeout(200):
            await asyncio.sleep(100)
            seen.append("slept")
    except TimeoutError:
        seen.append("timed out")
    return seen


async def cleans_up(ledger: str) -> Any:
    try:
        await snaprt.suspend("wait for ever?")
    except asyncio.CancelledError as error:
        note(ledger, f"cancelled {error}")
        await look_up(ledger, "cleanup")
        raise


async def stubborn() -> Any:
    for n in range(2):
        with contextlib.suppress(asyncio.CancelledError):
            await snaprt.suspend(n)
    return "still here"


@snaprt.tool(approval=True)
async def pay_approved(ledger: str, cents: int, *, idempotency_key: str) -> str:
    note(ledger, f"pay {cents} {idempotency_key}")
    return f"paid {cents}"


async def pays_thrice(ledger: str) -> Any:
    """Three equal calls at once, each of which has to be approved."""
    got = await asyncio.gather(*(pay_approved(ledger, 100) for _ in range(3)), return_exceptions=True)
    return [str(each) for each in got]


# --- children -------------------------------------------------------------------------------------


async def leaf(ledger: str, what: str, ask: bool) -> str:
    seen = await look_up(ledger, what)
    if ask:
        seen += str(await snaprt.suspend({"leaf": what}))
    return seen


async def parent(ledger: str, ask: bool) -> Any:
    async with asyncio.TaskGroup() as group:
        one = group.create_task(snaprt.child(leaf, ledger, "one", ask))
        two = group.create_task(snaprt.child(leaf, ledger, what="two", ask=False))
    return one.result(), two.result()


async def broken(ledger: str) -> None:
    await look_up(ledger, "broken")
    raise LookupError("the child's own")


async def parent_of_broken(ledger: str) -> Any:
    try:
        await snaprt.child(broken, ledger)
    except LookupError as error:
        return str(error)


async def parent_of_cleaner(ledger: str) -> Any:
    await snaprt.child(cleans_up, ledger)


async def grandparent_of_cleaner(ledger: str) -> Any:
    return await snaprt.child(parent_of_cleaner, ledger)


async def cleans_up_slowly(ledger: str) -> Any:
    try:
        await snaprt.suspend("wait for ever?")
    finally:
        note(ledger, f"cleaned up: {await snaprt.suspend('how?')}")


async def parent_of_slow_cleaner(ledger: str) -> Any:
    await snaprt.child(cleans_up_slowly, ledger)


async def parent_that_hears(ledger: str) -> Any:
    try:
        await snaprt.child(cleans_up, ledger)
    except snaprt.ChildCancelled as error:
        return str(error)


# --- events ---------------------------------------------------------------------------------------


@snaprt.tool(effect="read")
async def counts(ledger: str, upto: int) -> int:
    for n in range(upto):
        snaprt.emit({"count": n})
        await anyio.sleep(0)
    note(ledger, "counted")
    return upto


@snaprt.tool(effect="read")
def counts_in_a_thread(ledger: str, upto: int) -> int:
    for n in range(upto):
        snaprt.emit(f"thread {n}")
    note(ledger, "counted")
    return upto


async def shows(ledger: str) -> Any:
    snaprt.emit("begin")
    await counts(ledger, 3)
    snaprt.emit("middle")
    await counts_in_a_thread(ledger, 2)
    await snaprt.suspend("go on?")
    snaprt.emit("end")
    return "done"


RELEASED: list[bool] = []
"""Something in it lets `halfway` end."""


@snaprt.tool(effect="read")
async def halfway() -> None:
    snaprt.emit("half")
    while not RELEASED:
        await anyio.sleep(0.01)


async def works() -> None:
    await halfway()
