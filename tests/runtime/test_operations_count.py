"""What a step costs at the store, counted: the write protocol's promise in numbers.

Counted is every operation that the runtime makes of the store (create, put, read, list), as the difference
between a run of some steps and one of more: what starting and ending costs is left out.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import anyio
import pytest

import snaprt
from snaprt.records.envelope import PREFIX
from tests.store.held import KEYRING, Held

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def cost(held: Held, agent: Callable[..., Any], *args: Any, run_id: str) -> Counter[str]:
    """The store operations of a whole run."""
    async with snaprt.Runtime("held://store", keyring=KEYRING) as rt:
        before = Counter(held.asked)
        outcome = await (await rt.start(agent, *args, run_id=run_id)).outcome()
        assert isinstance(outcome, snaprt.Completed)
    return held.asked - before


async def cost_of_more(held: Held, agent: Callable[..., Any], few: int, many: int) -> Counter[str]:
    """What `many - few` more steps cost."""
    await cost(held, agent, few, run_id="first")  # the probe is paid for here
    less = await cost(held, agent, few, run_id="few")
    more = await cost(held, agent, many, run_id="many")
    return more - less


def kinds(held: Held, run: str) -> Counter[str]:
    """How many records of each kind a run left."""
    found: Counter[str] = Counter()
    for name, data in held.data.items():
        if name.startswith(f"runs/{run}/log/"):
            head = data[PREFIX.size : PREFIX.size + PREFIX.unpack_from(data)[4]]
            found[json.loads(head)["kind"]] += 1
    return found


@snaprt.tool(effect="read")
async def look(number: int) -> int:
    return number


@snaprt.tool(effect="read")
def look_in_a_thread(number: int) -> int:
    return number


@snaprt.tool
async def change(number: int) -> int:
    return number


@snaprt.tool(effect="idempotent")
async def change_by_key(number: int, *, idempotency_key: str) -> int:
    return number


async def reads(count: int) -> None:
    for number in range(count):
        await look(number)
        await look_in_a_thread(number)


async def writes(count: int) -> None:
    for number in range(count):
        await change(number)
        await change_by_key(number)


async def mixed(count: int) -> None:
    """A read, then a write issued while another task reads: what arrives together shares a record."""
    for number in range(count):
        await look(number)
        await asyncio.gather(change(number), look(number))


async def parallel_reads(count: int) -> None:
    await asyncio.gather(*[look(number) for number in range(count)])


async def parallel_writes(count: int) -> None:
    await asyncio.gather(*[change(number) for number in range(count)])


async def questions(count: int) -> list[Any]:
    return [await snaprt.suspend(number) for number in range(count)]


async def test_a_read_costs_one_create_and_nothing_else(held: Held) -> None:
    assert await cost_of_more(held, reads, 3, 13) == {"create": 20}
    assert kinds(held, "many") == {"start": 1, "result": 26, "finish": 1}


async def test_a_write_costs_two_creates_and_nothing_else(held: Held) -> None:
    assert await cost_of_more(held, writes, 3, 13) == {"create": 40}
    assert kinds(held, "many") == {"start": 1, "intent": 26, "result": 26, "finish": 1}


async def test_steps_that_are_issued_together_share_their_records(held: Held) -> None:
    more = await cost_of_more(held, mixed, 3, 13)
    assert set(more) == {"create"}
    # Ten rounds of two reads and a write: one by one they would take 40.
    assert more["create"] <= 40
    assert kinds(held, "many")["intent"] == 13


async def test_a_hundred_parallel_reads_cost_far_less_than_a_hundred_records(held: Held) -> None:
    more = await cost_of_more(held, parallel_reads, 1, 101)
    assert set(more) <= {"create"}
    assert more["create"] <= 10


async def test_a_hundred_parallel_writes_share_one_intent(held: Held) -> None:
    more = await cost_of_more(held, parallel_writes, 1, 101)
    assert set(more) <= {"create"}
    assert more["create"] <= 10
    assert kinds(held, "many")["intent"] == 1


async def test_a_question_costs_one_suspend_and_its_answer_one_wake(held: Held) -> None:
    async with snaprt.Runtime("held://store", keyring=KEYRING) as rt:
        run = await rt.start(questions, 2, run_id="r")
        await run.outcome()
        created = held.asked["create"]
        await rt.answer("r", "one")
        assert held.asked["create"] == created + 1  # into the inbox
        created = held.asked["create"]
        outcome = await (await rt.resume("r")).outcome()
        assert isinstance(outcome, snaprt.Suspended)
        # The claim, the wake of the answer that was given, and the suspend of the next question.
        assert held.asked["create"] == created + 3
    assert kinds(held, "r") == {"start": 1, "suspend": 2, "claim": 1, "wake": 1}


async def test_a_run_that_goes_on_waiting_costs_no_write_at_all(held: Held) -> None:
    async with snaprt.Runtime("held://store", keyring=KEYRING) as rt:
        await (await rt.start(questions, 1, run_id="r")).outcome()
        created, put = held.asked["create"], held.asked["put"]
        for _ in range(3):
            assert isinstance(await (await rt.resume("r")).outcome(), snaprt.Suspended)
        assert (held.asked["create"], held.asked["put"]) == (created, put)


async def test_attempts_inside_a_step_cost_no_record_of_their_own(held: Held) -> None:
    async with snaprt.Runtime("held://store", keyring=KEYRING) as rt:
        outcome = await (await rt.start(stumbles, run_id="r")).outcome()
        assert outcome == snaprt.Completed("r", "up again")
        [step] = (await rt.show("r")).steps
    assert len(step["attempts"]) == 2
    assert kinds(held, "r") == {"start": 1, "intent": 1, "result": 1, "finish": 1}


TRIES: list[int] = []


@snaprt.tool(effect="idempotent", retries=3)
async def falls_twice() -> str:
    TRIES.append(len(TRIES))
    if len(TRIES) < 3:
        raise ConnectionError("not yet")
    return "up again"


async def stumbles() -> str:
    TRIES.clear()
    return await falls_twice()


async def test_a_run_with_large_state_costs_a_read_one_record_and_one_blob_at_most(held: Held) -> None:
    more = await cost_of_more(held, keeps_what_it_reads, 2, 12)
    assert more["create"] == 10
    assert more["put"] <= 10


@snaprt.tool(effect="read")
async def fetch(number: int) -> bytes:
    return bytes([number]) * 100_000


async def keeps_what_it_reads(count: int) -> int:
    kept = [await fetch(number) for number in range(count)]
    return len(kept)


async def test_looking_at_a_running_run_costs_the_same_however_much_its_owner_wrote(held: Held) -> None:
    async def looking(run: str, times: int) -> int:
        async with snaprt.Runtime("held://store", keyring=KEYRING) as rt:
            owned = await rt.start(looks_and_hangs, times, run_id=run)
            while kinds(held, run)["result"] < times:
                await anyio.sleep(0.001)
            async with snaprt.Runtime("held://store", keyring=KEYRING) as other:
                before = Counter(held.asked)
                with pytest.raises(snaprt.RunBusy):
                    await other.resume(run)
                cost = held.asked - before
            owned.drain(0)
            await owned.outcome()
        return cost.total()

    await looking("first", 1)
    assert await looking("few", 2) == await looking("many", 40)


async def looks_and_hangs(times: int) -> None:
    for number in range(times):
        await look(number)
    await hangs()


@snaprt.tool(effect="read")
async def hangs() -> None:
    await anyio.sleep(3600)
