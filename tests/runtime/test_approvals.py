"""A person may edit a call before it is made: what isn't named stays, and a slip leaves the question open."""

from __future__ import annotations

from typing import Any

import pytest

import snaprt

pytestmark = pytest.mark.anyio


@snaprt.tool(approval=True)
async def transfer(to: str, cents: int = 1, *notes: str, currency: str = "USD", **more: Any) -> Any:
    return [to, cents, *notes, currency, more]


@snaprt.tool(approval=True)
async def pay(to: str, cents: int, /, *, idempotency_key: str) -> Any:
    return [to, cents, idempotency_key]


async def by_name() -> Any:
    return await transfer(to="bob", cents=5, currency="EUR")


async def by_place() -> Any:
    return await transfer("bob", 5, currency="EUR")


async def pays() -> Any:
    return await pay("bob", 5)


@pytest.mark.parametrize(
    ("agent", "answer", "called"),
    [
        (by_name, {}, ["bob", 5, "EUR", {}]),
        (by_name, {"kwargs": {"cents": 4}}, ["bob", 4, "EUR", {}]),
        (by_place, {"kwargs": {"cents": 4}}, ["bob", 4, "EUR", {}]),
        (by_place, {"kwargs": {"cents": 4, "memo": "x"}}, ["bob", 4, "EUR", {"memo": "x"}]),
        (by_place, {"args": ["eve", 4]}, ["eve", 4, "EUR", {}]),
        (by_place, {"args": ["eve", 4, "gift"]}, ["eve", 4, "gift", "EUR", {}]),
        (by_place, {"args": ["eve"], "kwargs": {}}, ["eve", 1, "USD", {}]),
        (pays, {"args": ["eve", 4]}, ["eve", 4, "r/1"]),
        (pays, {"kwargs": {"cents": 4}}, ["bob", 4, "r/1"]),
    ],
)
async def test_an_edit_changes_what_it_names_and_nothing_else(
    url: str, agent: Any, answer: dict[str, Any], called: Any
) -> None:
    async with snaprt.Runtime(url) as rt:
        await (await rt.start(agent, run_id="r")).outcome()
        await rt.answer("r", {"approved": True, **answer})
        assert await (await rt.resume("r")).outcome() == snaprt.Completed("r", called)


@pytest.mark.parametrize(
    ("agent", "answer", "said"),
    [
        (by_place, {"args": ["eve"]}, '"args" has 1 of 2 positional arguments'),
        (by_name, {"args": ["eve"]}, "multiple values for argument 'to'"),
        (by_place, {"args": [], "kwargs": {}}, "missing a required argument: 'to'"),
        (
            pays,
            {"args": ["eve"], "kwargs": {}},
            "required argument: 'cents' (its parameters are to",
        ),
        (pays, {"kwargs": {"cnts": 4}}, "unexpected keyword argument 'cnts'"),
        (pays, {"args": ["eve", 4, 5]}, "too many positional arguments"),
    ],
)
async def test_an_edit_that_the_tool_cant_be_called_with_leaves_the_question_open(
    url: str, agent: Any, answer: dict[str, Any], said: str
) -> None:
    async with snaprt.Runtime(url) as rt:
        await (await rt.start(agent, run_id="r")).outcome()
        await rt.answer("r", {"approved": True, **answer})
        asleep = await (await rt.resume("r")).outcome()
        assert isinstance(asleep, snaprt.Suspended)
        [question] = asleep.waiting
        assert said in str(question.refused)
        await rt.answer("r", {"approved": True})
        done = await (await rt.resume("r")).outcome()
        assert isinstance(done, snaprt.Completed)
        assert done.value[:2] == ["bob", 5]


async def test_an_answer_that_comes_second_hears_of_the_question_by_its_name(url: str) -> None:
    async with snaprt.Runtime(url) as rt:
        await (await rt.start(pays, run_id="r")).outcome()
        await rt.answer("r", {"approved": True, "kwargs": {"cnts": 4}})
        await (await rt.resume("r")).outcome()
        await rt.answer("r", {"approved": True})
        with pytest.raises(snaprt.AlreadyAnswered, match=r"^Suspension 'ask-1' of run 'r' has its answer"):
            await rt.answer("r", {"approved": False})
