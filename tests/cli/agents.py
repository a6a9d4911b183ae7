"""Agents for the tests of the command line: importable, so that other processes find them by name."""

from __future__ import annotations

import asyncio
import atexit
import functools
import subprocess
import time
from pathlib import Path
from typing import Any

import snaprt


def note(ledger: str, line: str) -> None:
    """What really happened in the world."""
    with open(ledger, "a") as file:
        file.write(line + "\n")


@snaprt.tool(effect="read")
async def look(ledger: str, what: str) -> str:
    note(ledger, f"look {what}")
    return f"<{what}>"


@snaprt.tool
async def pay(ledger: str, cents: int, *, idempotency_key: str) -> str:
    note(ledger, f"pay {cents}")
    return f"paid {cents}"


@snaprt.tool(effect="read")
async def wait_for_file(ledger: str, path: str) -> str:
    """Ends when the file is there: how a test holds a tool in the middle of its work."""
    note(ledger, "wait")
    while not Path(path).exists():
        await asyncio.sleep(0.01)
    return "there"


@snaprt.tool
async def charge(ledger: str, path: str) -> str:
    """Changes the world, and then doesn't come back before the file is there."""
    note(ledger, "charge")
    while not Path(path).exists():
        await asyncio.sleep(0.01)
    return "charged"


@snaprt.tool(effect="read")
async def read_file(path: str) -> str:
    return Path(path).read_text()


@snaprt.agent(rules={"model": "small-1", "prompt": "Be kind."})
async def support(ledger: str, order: str = "A-17", cents: int = 100) -> dict[str, Any]:
    plan = snaprt.plan("look", "ask", "refund")
    plan.start("look")
    async with asyncio.TaskGroup() as group:
        first = group.create_task(look(ledger, order))
        second = group.create_task(look(ledger, "policy"))
    plan.done("look")
    plan.start("ask")
    answer = await snaprt.suspend({"question": f"Refund {order}?", "seen": [first.result(), second.result()]})
    plan.done("ask")
    if not answer["approved"]:
        plan.skip("refund", "refused")
        return {"paid": None}
    plan.start("refund")
    receipt = await pay(ledger, answer.get("cents", cents))
    plan.done("refund")
    return {"paid": receipt}


async def echo(*args: Any, **kwargs: Any) -> Any:
    return [list(args), kwargs]


async def two_questions() -> list[Any]:
    return list(await asyncio.gather(snaprt.suspend("Left?"), snaprt.suspend("Right?")))


async def complex_number() -> complex:
    return 3 + 4j


async def breaks(ledger: str) -> None:
    await look(ledger, "before")
    raise ZeroDivisionError("on purpose")


async def holds_a_file(ledger: str) -> str:
    with open(ledger, "a"):
        return await look(ledger, "while a file is open")


async def waits(ledger: str, path: str) -> str:
    plan = snaprt.plan("wait", "look")
    plan.start("wait")
    there = await wait_for_file(ledger, path)
    plan.done("wait")
    return there + await look(ledger, "after")


async def charges(ledger: str, path: str) -> str:
    return await charge(ledger, path)


async def asks_and_charges(ledger: str, path: str) -> str:
    await snaprt.suspend("Charge?")
    return await charge(ledger, path)


async def asks_beside_a_charge(ledger: str, path: str) -> list[str]:
    return list(await asyncio.gather(snaprt.suspend("Left?"), charge(ledger, path)))


async def reads(path: str) -> str:
    return await read_file(path)


async def sleeps_long() -> str:
    await asyncio.sleep(86_400)
    return "slept"


@snaprt.tool(effect="read")
def noisy_tool() -> None:
    print("from a tool")
    subprocess.run(["echo", "from a subprocess"], check=True)


async def noisy() -> str:
    print("from the agent")
    await noisy_tool()
    return "quiet at last"


async def spins() -> None:
    print("spinning", flush=True)
    while True:
        pass


async def cancels_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel("I gave up")
    await asyncio.sleep(1)


def not_async() -> None: ...


partly = functools.partial(echo, 1)


class Unshowable:
    """Like a record whose database is gone: to look at it fails."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class Unreadable(dict[str, Any]):
    """A mapping that can't be looked into."""

    def items(self) -> Any:
        raise RuntimeError("no items")

    __len__ = __iter__ = keys = items


async def returns_what_cannot_be_shown(which: str) -> Any:
    return _UNSHOWABLE[which]()


async def asks_what_cannot_be_shown(which: str) -> Any:
    return await snaprt.suspend({"it": _UNSHOWABLE[which](), Unshowable(): 1, "answers": ["7"]})


async def asks_only_what_cannot_be_shown(which: str) -> Any:
    return await snaprt.suspend(_UNSHOWABLE[which]())


_UNSHOWABLE: dict[str, Any] = {
    "int": lambda: 10**5000,
    "repr": Unshowable,
    "inside": lambda: {"a": [10**5000, Unshowable()]},
    "mapping": lambda: Unreadable(a=1),
}


def _never_ends(ledger: str) -> None:
    note(ledger, "begin")
    atexit.register(note, ledger, "left in good order")
    while True:
        time.sleep(0.05)


@snaprt.tool(effect="read", timeout=0.2)
def hangs(ledger: str) -> None:
    _never_ends(ledger)


@snaprt.tool(effect="read", timeout=0.2)
async def hangs_beside(ledger: str) -> None:
    await asyncio.to_thread(_never_ends, ledger)


@snaprt.tool(effect="idempotent")
def hangs_for_good(ledger: str, *, idempotency_key: str) -> None:
    _never_ends(ledger)


async def gives_up(ledger: str, beside: bool = False) -> str:
    try:
        await (hangs_beside(ledger) if beside else hangs(ledger))
    except TimeoutError:
        return "gave up"
    return "done"


async def never_gives_up(ledger: str) -> None:
    await hangs_for_good(ledger)
