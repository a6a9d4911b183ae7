"""Agents for fleets of workers: they ask, sleep and pay; and one that takes its process with it."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import snaprt
from examples.refund import pay


async def errand(service: str, order: str, cents: int, seconds: float) -> dict[str, Any]:
    """Two questions, one sleep in which nobody has it in hand, one payment."""
    first = await snaprt.suspend({"question": f"Refund {order}?"})
    await asyncio.sleep(seconds)
    payment = await pay(service, order, cents)
    second = await snaprt.suspend({"question": "Was that right?"})
    return {"said": [first, second], "paid": payment["cents"]}


async def poison(question: str) -> None:
    """Whoever has this in hand dies of it."""
    await snaprt.suspend(question)
    os._exit(7)
