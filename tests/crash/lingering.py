"""Agents that wait, in a tool, until a file is there: after they have paid, before, or in the middle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio

import snaprt
from examples import refund


@snaprt.tool(effect="read")
async def wait_for(file: str) -> None:
    """Leaves a sign that it waits: FILE.waiting."""
    Path(f"{file}.waiting").touch()
    while not Path(file).exists():
        await anyio.sleep(0.02)


async def refund_and_linger(agent: str, order: str, service: str, file: str) -> dict[str, Any]:
    """One agent awaits another: both are plain coroutines of the same run."""
    done: dict[str, Any] = await getattr(refund, agent)(order, service)
    await wait_for(file)
    return done


async def linger_and_refund(agent: str, order: str, service: str, file: str) -> dict[str, Any]:
    """Waits before anything is paid."""
    await wait_for(file)
    done: dict[str, Any] = await getattr(refund, agent)(order, service)
    return done


@snaprt.tool(effect="idempotent")
async def linger_and_pay(service: str, order: str, cents: int, file: str, *, idempotency_key: str) -> Any:
    """Is in the middle of its call until the file is there; only then it pays."""
    # In a tool, another tool is simply called.
    await wait_for(file)
    return await refund.pay_by_key(service, order, cents, idempotency_key=idempotency_key)


async def pay_at_last(order: str, service: str, file: str) -> dict[str, Any]:
    payment = await linger_and_pay(service, order, 4200, file)
    return {"refunded": payment["cents"]}
