"""Agents that wait for people, messages and other runs, for the tests of the command line."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Literal

import snaprt
from tests.cli.agents import look, note, wait_for_file
from tests.runtime.people import Decision


async def reviewed() -> Any:
    decision = await snaprt.suspend({"text": "Pay?"}, answer=Decision)
    return decision.cents if decision.approved else decision.note


async def which_way() -> Any:
    """A question with a name, a choice and a time."""
    ways = Literal["left", "right"]
    return await snaprt.suspend("Which way?", answer=ways, timeout=timedelta(days=2), name="way")


async def asked_in_turn() -> Any:
    return [await snaprt.suspend("First?", name="first"), await snaprt.suspend("Second?", name="second")]


async def chat() -> Any:
    heard = []
    async for message in snaprt.inbox("chat"):
        if message == "bye":
            return heard
        heard.append(message)


async def cleans_up(ledger: str) -> Any:
    try:
        await snaprt.suspend("For ever?")
    except asyncio.CancelledError as error:
        note(ledger, f"cancelled {error}")
        await look(ledger, "cleanup")
        raise


async def goes_on(ledger: str) -> Any:
    """Takes a cancellation in and isn't ended by it."""
    try:
        await snaprt.suspend("For ever?")
    except asyncio.CancelledError:
        return "still here"


async def family() -> Any:
    return await asyncio.gather(snaprt.child(reviewed), snaprt.child(which_way))


@snaprt.tool(effect="read")
async def counts(upto: int) -> int:
    for number in range(upto):
        snaprt.emit({"count": number})
    return upto


async def shows(ledger: str) -> Any:
    snaprt.emit("begin")
    await counts(2)
    answer = await snaprt.suspend("Go on?")
    snaprt.emit(None)
    return answer


async def shows_then_waits(ledger: str, path: str) -> Any:
    snaprt.emit("working")
    return await wait_for_file(ledger, path)
