"""The agent that `snaprt demo` runs: it looks into an order, asks a person, refunds.

Ordinary asyncio code of an importable module; to see what snaprt asks of an agent, read this. What
the tools really did stands in a ledger, a file beside the run that snaprt knows nothing of: it is how
the tour proves that nothing was called twice.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import Any

import snaprt

_ORDERS = {"A-17": {"item": "a kettle", "cents": 4200, "customer": "Ada"}}


def _note(ledger: str, tool: str, key: str | None = None) -> None:
    with open(ledger, "a", encoding="utf-8") as file:
        file.write(json.dumps({"tool": tool, "process": os.getpid(), "key": key}) + "\n")


@snaprt.tool(effect="read")
async def fetch_order(ledger: str, order: str) -> dict[str, Any]:
    _note(ledger, "fetch_order")
    await asyncio.sleep(0.3)  # a tool is on the real event loop: this stands for a request
    return _ORDERS[order]


@snaprt.tool(effect="read")
def fetch_policy(ledger: str) -> str:
    _note(ledger, "fetch_policy")
    time.sleep(0.2)  # a sync tool runs in a thread
    return "Refunds within 30 days need one approval."


@snaprt.tool(effect="read")
async def fetch_parcel(ledger: str, order: str) -> str:
    _note(ledger, "fetch_parcel")
    await asyncio.sleep(0.4)
    return "arrived broken"


@snaprt.tool  # effect="write", as nothing else is said: never silently twice
async def pay_back(ledger: str, order: str, cents: int, *, idempotency_key: str = "") -> str:
    _note(ledger, "pay_back", idempotency_key)
    return f"{cents / 100:.2f} euros paid back"


@snaprt.tool(effect="idempotent")
async def tell_customer(ledger: str, name: str, text: str) -> str:
    _note(ledger, "tell_customer")
    return f"told {name}: {text}"


RULES = {"model": "none: plain code", "prompt": "Be fair to the customer."}


@snaprt.agent(rules=RULES)  # type: ignore[untyped-decorator]  # it is typed to take any callable
async def refund(ledger: str, order: str = "A-17") -> str:
    """Handle one complaint."""
    plan = snaprt.plan("look", "settle", "ask", "refund", "tell")

    plan.start("look")
    async with asyncio.TaskGroup() as group:
        found = group.create_task(fetch_order(ledger, order))
        policy = group.create_task(fetch_policy(ledger))
        parcel = group.create_task(fetch_parcel(ledger, order))
    plan.done("look")

    plan.start("settle")
    await asyncio.sleep(1.0)  # a durable timer: its time goes on while no process has the run
    plan.done("settle")

    plan.start("ask")
    facts = found.result()
    told = f"The parcel of {facts['customer']} ({facts['item']}) {parcel.result()}"
    question = f"{told}. Refund {facts['cents'] / 100:.2f} euros?"
    answer = await snaprt.suspend({"question": question, "policy": policy.result()})
    plan.done("ask")
    if not answer["approved"]:
        plan.skip("refund")
        plan.start("tell")
        refused: str = await tell_customer(ledger, facts["customer"], "we can't refund this one")
        plan.done("tell")
        return refused

    plan.start("refund")
    receipt = await pay_back(ledger, order, facts["cents"])
    plan.done("refund")
    plan.start("tell")
    sent: str = await tell_customer(ledger, facts["customer"], receipt)
    plan.done("tell")
    return sent
