"""Agents for the runtime's tests: importable, so that another process finds them by name."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import snaprt


def note(ledger: str, line: str) -> None:
    """Append a line to the ledger: what really happened in the world, whoever remembers it."""
    with open(ledger, "a") as file:
        file.write(line + "\n")


@snaprt.tool(effect="read")
async def look_up(ledger: str, what: str) -> str:
    note(ledger, f"look {what}")
    return f"<{what}>"


@snaprt.tool(effect="read")
def look_up_sync(ledger: str, what: str) -> str:
    note(ledger, f"look {what}")
    return f"<{what}>"


@snaprt.tool
async def pay(ledger: str, cents: int, *, idempotency_key: str) -> str:
    note(ledger, f"pay {cents} {idempotency_key}")
    return f"paid {cents}"


@snaprt.tool(effect="read")
async def fails(ledger: str) -> None:
    note(ledger, "fails")
    raise LookupError("no such order")


@snaprt.agent(rules={"model": "small-1", "prompt": "Be kind.\nBe brief."})
async def support(ledger: str, order: str) -> dict[str, Any]:
    plan = snaprt.plan("look", "ask", "refund")
    plan.start("look")
    async with asyncio.TaskGroup() as group:
        first = group.create_task(look_up(ledger, order))
        second = group.create_task(look_up_sync(ledger, "policy"))
    plan.done("look")
    plan.start("ask")
    seen = [first.result(), second.result()]
    answer = await snaprt.suspend({"order": order, "seen": seen})
    plan.done("ask")
    receipt = None
    if answer["approved"]:
        receipt = await pay(ledger, answer["cents"])
    plan.done("refund")
    return {"seen": seen, "receipt": receipt, "rules": dict(snaprt.rules()), "pid": os.getpid()}


async def two_questions(ledger: str) -> list[Any]:
    async def ask(name: str) -> Any:
        seen = await look_up(ledger, name)
        try:
            return name, seen, await snaprt.suspend({"name": name})
        finally:
            await look_up(ledger, f"after {name}")

    return await asyncio.gather(ask("left"), ask("right"))


async def recovers(ledger: str) -> str:
    try:
        await fails(ledger)
    except LookupError as error:
        answer = await snaprt.suspend(str(error))
        return f"{answer}: {error!r} {type(error.__context__).__name__}"
    return "never"


async def holds_a_file(ledger: str) -> str:
    with open(ledger, "a") as handle:
        try:
            await look_up(ledger, "while the file is open")
        except snaprt.NotSerialisable as refusal:
            return str(refusal)
        return f"not refused: {handle}"


async def sleeps(ledger: str, seconds: float) -> str:
    await look_up(ledger, "before")
    await asyncio.sleep(seconds)
    return await look_up(ledger, "after")


async def breaks(ledger: str) -> None:
    await look_up(ledger, "before")
    raise ZeroDivisionError("on purpose")


async def many_reads(ledger: str, count: int) -> int:
    return len(await asyncio.gather(*(look_up(ledger, str(number)) for number in range(count))))


async def stalls() -> None:
    await asyncio.Event().wait()


async def never_runs(ledger: Path) -> None:
    note(str(ledger), "ran")
