"""An agent that has paid and doesn't end yet: it waits, in a tool, until a file is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio

import snaprt
from examples import refund


@snaprt.tool(effect="read")
async def wait_for(file: str) -> None:
    while not Path(file).exists():
        await anyio.sleep(0.02)


async def refund_and_linger(agent: str, order: str, service: str, file: str) -> dict[str, Any]:
    """One agent awaits another: both are plain coroutines of the same run."""
    done: dict[str, Any] = await getattr(refund, agent)(order, service)
    await wait_for(file)
    return done
