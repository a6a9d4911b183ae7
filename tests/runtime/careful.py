"""Agents whose calls fail, are in doubt, need approval or take their time."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import anyio

import snaprt
from tests.runtime.agents import note


def told(ledger: str) -> str:
    """What the test says about the world: the text of a file beside the ledger."""
    path = Path(ledger + ".told")
    return path.read_text() if path.exists() else ""


def look_at_payment(key: str, ledger: str, cents: int) -> Any:
    note(ledger, f"reconcile {key}")
    said = told(ledger)
    if said == "paid":
        return snaprt.Done(f"paid {cents} before")
    return snaprt.NotDone() if said == "not paid" else snaprt.Unknown()


@snaprt.tool(reconcile=look_at_payment)
async def pay(ledger: str, cents: int, *, idempotency_key: str) -> str:
    note(ledger, f"pay {cents} {idempotency_key}")
    return f"paid {cents}"


@snaprt.tool
async def pay_blindly(ledger: str, cents: int, *, idempotency_key: str) -> str:
    note(ledger, f"pay {cents} {idempotency_key}")
    return f"paid {cents}"


@snaprt.tool(effect="idempotent")
async def put(ledger: str, what: str, *, idempotency_key: str) -> str:
    note(ledger, f"put {what} {idempotency_key}")
    return what


@snaprt.tool(approval=lambda ledger, basket: sum(basket) > 100)
async def buy(ledger: str, basket: list[int]) -> int:
    note(ledger, f"buy {basket}")
    return sum(basket)


@snaprt.tool(effect="read", retries=2)
async def flaky(ledger: str) -> str:
    note(ledger, "flaky")
    if Path(ledger).read_text().count("flaky") < 3:
        raise OSError("down")
    return "up"


@snaprt.tool(effect="read", timeout=0.05)
async def slow(ledger: str) -> None:
    note(ledger, "slow")
    await anyio.sleep_forever()


@snaprt.tool
async def takes_its_time(ledger: str) -> str:
    note(ledger, "began")
    while told(ledger) != "end":  # as long as the test wants
        await anyio.sleep(0.01)
    note(ledger, "ended")
    return "done"


@snaprt.tool(effect="read")
async def broken(ledger: str) -> str:
    note(ledger, "broken")
    if told(ledger) != "mended":
        raise OSError("the cause isn't mended")
    return "mended"


async def pays(ledger: str) -> str:
    return await pay(ledger, 7)


async def pays_blindly(ledger: str) -> str:
    try:
        return await pay_blindly(ledger, 7)
    except snaprt.CallFailed as error:
        return f"told: {error}"


async def puts(ledger: str) -> str:
    return await put(ledger, "x")


async def shops(ledger: str, *items: int) -> Any:
    basket = list(items)

    async def meddle() -> None:
        basket.append(1_000_000)

    call = asyncio.create_task(buy(ledger, basket))
    await asyncio.sleep(0)
    await asyncio.create_task(meddle())
    try:
        return await call
    except snaprt.Rejected as error:
        return f"rejected: {error}"


async def insists(ledger: str) -> str:
    return await flaky(ledger)


async def is_patient(ledger: str) -> str:
    try:
        await slow(ledger)
    except TimeoutError:
        return "timed out"
    return "never"


async def waits_for_the_world(ledger: str) -> str:
    return await takes_its_time(ledger)


async def fails_until_mended(ledger: str) -> str:
    first = await put(ledger, "first")
    return f"{first} {await broken(ledger)}"


@snaprt.tool(effect="read")
async def roll(ledger: str, sides: int) -> int:
    note(ledger, f"roll {sides}")
    return sides


@snaprt.agent(save="effects")
async def reads_much(ledger: str) -> list[Any]:
    first = await asyncio.gather(roll(ledger, 4), roll(ledger, 6))
    again = [await roll(ledger, sides) for sides in (8, 12 if told(ledger) != "otherwise" else 20)]
    return [first, again, await put(ledger, "x")]


@snaprt.tool(effect="read")
async def exits(ledger: str) -> None:
    sys.exit("the tool's own")


@snaprt.tool(effect="read")
async def cancels_itself(ledger: str) -> None:
    raise asyncio.CancelledError


@snaprt.tool(effect="read")
async def returns_a_file(ledger: str) -> Any:
    return open(ledger)


async def meets_exits(ledger: str) -> list[str]:
    met = []
    for call in (exits, cancels_itself, returns_a_file):
        try:
            await call(ledger)
        except (SystemExit, snaprt.SnaprtError) as error:
            met.append(f"{type(error).__name__}: {error}")
    return met


async def exits_itself(ledger: str) -> None:
    sys.exit(3)


async def returns_handle(ledger: str) -> Any:
    return [open(ledger)]


async def fails_after_a_wait(ledger: str) -> None:
    try:
        raise KeyError("first")
    except KeyError:
        await snaprt.suspend("go on?")
        raise


@snaprt.tool(effect="read")
async def spoils(ledger: str, basket: list[int]) -> list[int]:
    note(ledger, f"got {basket}")
    await anyio.sleep(0.05)
    note(ledger, f"still {basket}")
    basket.append(99)
    return basket


async def shares(ledger: str) -> list[Any]:
    basket = [1]
    call = asyncio.create_task(spoils(ledger, basket))
    await asyncio.sleep(0.01)
    basket.append(2)  # another task's doing, while the tool runs
    returned = await call
    return [basket, returned, returned is basket]


async def spins(ledger: str) -> None:
    while told(ledger) != "stop":
        await asyncio.sleep(0)


@snaprt.tool(timeout=0.05, retries=3)
def pays_slowly(ledger: str) -> str:
    note(ledger, "pay")
    while told(ledger) != "end":  # a thread can't be stopped: the payment happens all the same
        time.sleep(0.01)
    return "paid"


async def pays_with_a_timeout(ledger: str) -> str:
    return await pays_slowly(ledger)
