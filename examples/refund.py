"""A refund that is paid once, whatever is killed.

The agent looks the order up, decides by a policy, and pays through a real service (`payments.py`). Kill it
at any moment, even one second after the payment, and resume: the ledger has one payment.

    python examples/payments.py --delay 5 &
    snaprt run examples/refund.py:refund order=A-17 --run-id r1     # kill -9 it while it pays
    snaprt resume r1
    curl http://127.0.0.1:8042/payments

Three agents differ in what a payment in doubt (announced, and no result recorded) leads to:

- `refund` tells how to find out: `reconcile` asks the service by the payment's key, and snaprt goes on with
  what it says. Works with services that ignore keys, too.
- `refund_by_key` calls it idempotent: it is called again with the same key, and a service that honours
  keys gives the first payment again.
- `refund_by_person` says neither: the run suspends and asks a person, who looks into the ledger and
  answers `snaprt resume r1 --in-doubt 'done {"id": …}'`, `retry` or `'fail REASON'`.

More than 100.00 needs an approval in any case: `snaprt run examples/refund.py:refund order=B-2 --run-id r2`
suspends, and `snaprt resume r2 --answer '{"approved": true}'` lets exactly that payment happen.
"""

from __future__ import annotations

import asyncio
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Awaitable, Callable
from typing import Any

import snaprt

SERVICE = os.environ.get("PAYMENTS_URL", "http://127.0.0.1:8042")
MANNER = "Refund what the shop's policy says, at once; ask a person where it is much."
APPROVED_UP_TO = 5000  # cents; more needs a person
_TIMEOUT = 60.0  # seconds; the service may take its time


def _ask(service: str, path: str, body: Any = None, key: str | None = None) -> Any:
    """One request; JSON in, JSON out. What the service refuses is a RuntimeError with its reason."""
    request = urllib.request.Request(service + path)
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/json")
    if key is not None:
        request.add_header("Idempotency-Key", key)
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"the payments service says {error.code}: {error.read().decode()}") from None


@snaprt.tool(effect="read", retries=3)
def look_up(service: str, order: str) -> dict[str, Any]:
    """The order as the shop knows it."""
    found: dict[str, Any] = _ask(service, f"/orders/{urllib.parse.quote(order, safe='')}")
    return found


@snaprt.tool(effect="read", retries=3)
def policy(service: str) -> dict[str, int]:
    """What part of a price is given back, in percent."""
    found: dict[str, int] = _ask(service, "/policy")
    return found


def by_key(key: str, service: str, order: str, cents: int) -> Any:
    """Was it paid? The service knows payments by their key."""
    made = _ask(service, f"/payments?key={urllib.parse.quote(key, safe='')}")["payments"]
    return snaprt.Done(made[0]) if made else snaprt.NotDone()


def _large(service: str, order: str, cents: int) -> bool:
    return cents > APPROVED_UP_TO


def _pay(service: str, order: str, cents: int, key: str) -> dict[str, Any]:
    payment: dict[str, Any] = _ask(service, "/payments", {"order": order, "cents": cents}, key)
    return payment


@snaprt.tool(reconcile=by_key, approval=_large)
def pay(service: str, order: str, cents: int, *, idempotency_key: str) -> dict[str, Any]:
    """Pay. In doubt, `by_key` finds out whether it happened."""
    return _pay(service, order, cents, idempotency_key)


@snaprt.tool(effect="idempotent", approval=_large)
def pay_by_key(service: str, order: str, cents: int, *, idempotency_key: str) -> dict[str, Any]:
    """Pay. In doubt it is called again with the same key."""
    return _pay(service, order, cents, idempotency_key)


@snaprt.tool(approval=_large)
def pay_or_ask(service: str, order: str, cents: int, *, idempotency_key: str) -> dict[str, Any]:
    """Pay. In doubt a person decides."""
    return _pay(service, order, cents, idempotency_key)


async def _refund(order: str, service: str, pay: Callable[[str, str, int], Awaitable[Any]]) -> dict[str, Any]:
    plan = snaprt.plan("look", "decide", "pay")
    plan.start("look")
    async with asyncio.TaskGroup() as group:
        looking = group.create_task(look_up(service, order))
        percent = group.create_task(policy(service))
    found = looking.result()
    plan.done("look")

    plan.start("decide")
    due = found["cents"] * percent.result()["delivered" if found["delivered"] else "not delivered"] // 100
    plan.done("decide")

    plan.start("pay")
    try:
        payment = await pay(service, order, due)
    except snaprt.Rejected as no:
        plan.skip("pay")
        return {"order": order, "refunded": 0, "because": str(no)}
    plan.done("pay")
    return {"order": order, "refunded": payment["cents"], "payment": payment["id"]}


@snaprt.agent(rules={"manner": MANNER})
async def refund(order: str, service: str = SERVICE) -> dict[str, Any]:
    """A payment in doubt is looked up at the service."""
    return await _refund(order, service, pay)


@snaprt.agent(rules={"manner": MANNER})
async def refund_by_key(order: str, service: str = SERVICE) -> dict[str, Any]:
    """A payment in doubt is made again under the same key."""
    return await _refund(order, service, pay_by_key)


@snaprt.agent(rules={"manner": MANNER})
async def refund_by_person(order: str, service: str = SERVICE) -> dict[str, Any]:
    """A payment in doubt is a person's to decide."""
    return await _refund(order, service, pay_or_ask)
