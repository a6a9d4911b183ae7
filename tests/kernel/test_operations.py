"""Tools, steps, suspensions, plans and rules, as agents and runtimes meet them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import inspect
import json
import pickle
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pydantic
import pytest

from snaprt.errors import OutsideAgent
from snaprt.kernel import (
    Answer,
    Ask,
    Call,
    Cancel,
    CancelCall,
    Kernel,
    Result,
    agent,
    plan,
    rules,
    step,
    suspend,
    tool,
)
from snaprt.kernel.operations import Tool
from snaprt.kernel.preview import LIMIT, preview

from .driver import Clock, Driver, outcome


@tool
def pay(cents: int, to: str = "me", *, idempotency_key: str) -> str:
    """Pay somebody."""
    return f"{cents} to {to} ({idempotency_key})"


@tool(effect="read", name="look it up")
async def look(name: str) -> str:
    return name.upper()


def started(agent: Callable[..., Any], *args: Any) -> tuple[Kernel, list[Any]]:
    kernel = Kernel("run-7", {"model": "m-1"}, clock=Clock())
    kernel.start(agent, args)
    return kernel, kernel.advance()


# --- tools ----------------------------------------------------------------------------------------


def test_a_tool_keeps_its_functions_face_without_the_key() -> None:
    assert inspect.iscoroutinefunction(pay)
    assert inspect.iscoroutinefunction(look)
    assert str(inspect.signature(pay)) == "(cents: 'int', to: 'str' = 'me') -> 'str'"
    assert (pay.__name__, pay.__doc__) == ("pay", "Pay somebody.")
    assert "idempotency_key" not in pay.__annotations__


def test_outside_an_agent_a_tool_is_simply_called() -> None:
    async def plain() -> tuple[Any, Any, Any]:
        return await look("a"), await pay(5, idempotency_key="k"), await step(len, "four")

    assert asyncio.run(plain()) == ("A", "5 to me (k)", 4)


def test_in_an_agent_a_call_becomes_a_numbered_step_with_its_key() -> None:
    async def agent() -> Any:
        return await asyncio.gather(pay(5), look("a"), pay(6, idempotency_key="mine"))

    kernel, commands = started(agent)
    assert [(c.step, c.tool, c.args, dict(c.kwargs), c.effect, c.key, c.pass_key) for c in commands] == [
        (1, "pay", (5,), {}, "write", "run-7/1", True),
        (2, "look it up", ("a",), {}, "read", "run-7/2", False),
        (3, "pay", (6,), {"idempotency_key": "mine"}, "write", "run-7/3", False),
    ]
    assert kernel.current_step == "pay"
    assert kernel.pending_calls() == commands


def test_results_may_arrive_in_any_order() -> None:
    async def agent() -> Any:
        return await asyncio.gather(look("a"), look("b"), look("c"), return_exceptions=True)

    kernel, _ = started(agent)
    kernel.deliver(Result(3, "C", started=1.0, ended=2.5))
    kernel.deliver(Result(1, error=LookupError("a")))
    assert kernel.advance() == []
    kernel.deliver(Result(2, "B"))
    kernel.advance()
    assert repr(kernel.value) == "[LookupError('a'), 'B', 'C']"
    shown = {each["id"]: each for each in kernel.summary()["steps"]}
    assert (shown[3]["status"], shown[3]["output"], shown[3]["started"], shown[3]["ended"]) == (
        "done",
        "C",
        1.0,
        2.5,
    )
    assert (shown[1]["status"], shown[1]["error"]) == ("failed", "LookupError: a")


def test_an_exception_of_a_tool_is_raised_at_its_await() -> None:
    async def agent() -> str:
        try:
            await look("x")
        except ConnectionError as error:
            return str(error)
        return "not raised"

    kernel, _ = started(agent)
    kernel.deliver(Result(1, error=ConnectionError("down")))
    kernel.advance()
    assert kernel.value == "down"


def test_a_cancelled_await_cancels_its_call_and_a_late_result_is_dropped() -> None:
    async def agent() -> str:
        try:
            async with asyncio.timeout(5):
                await look("slow")
        except TimeoutError:
            return await look("quick")
        return "in time"

    clock = Clock()
    kernel = Kernel("run", clock=clock)
    kernel.start(agent)
    assert [command.step for command in kernel.advance()] == [1]
    clock.now += 5
    commands = kernel.advance()
    assert commands[0] == CancelCall(1)
    assert isinstance(commands[1], Call)
    kernel.deliver(Result(1, "late"))
    kernel.deliver(Result(2, "quick"))
    kernel.advance()
    assert kernel.value == "quick"
    assert kernel.steps[1].status == "cancelled"


def test_a_call_that_is_cancelled_before_anybody_saw_it_is_never_issued() -> None:
    async def agent() -> None:
        task = asyncio.create_task(look("x"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    kernel, commands = started(agent)
    assert commands == []
    assert kernel.status == "completed"
    assert kernel.steps[1].status == "cancelled"


def test_an_event_for_something_never_asked_for_is_an_error() -> None:
    async def agent() -> None:
        await asyncio.sleep(1)

    kernel, _ = started(agent)
    with pytest.raises(ValueError, match="step 1"):
        kernel.deliver(Result(1))
    with pytest.raises(ValueError, match="ask-1"):
        kernel.deliver(Answer("ask-1"))


def test_step_calls_any_function_and_says_its_effect_by_its_name() -> None:
    def measure(*, effect: str, name: str = "n") -> str:
        return effect + name

    async def agent() -> Any:
        return await asyncio.gather(
            step(measure, effect="mine", name="own"),
            step.read(functools.partial(measure, effect="p")),
            step.idempotent(len, "abc"),
            step(look, "keeps its own"),
        )

    kernel, commands = started(agent)
    assert [(c.effect, c.tool.rpartition(".")[2], c.args, dict(c.kwargs)) for c in commands] == [
        ("write", "measure", (), {"effect": "mine", "name": "own"}),
        ("read", "measure", (), {}),
        ("idempotent", "len", ("abc",), {}),
        ("read", "look it up", ("keeps its own",), {}),
    ]
    kernel.release()


def test_an_unknown_effect_is_refused_where_it_is_declared() -> None:
    with pytest.raises(ValueError, match="write, read, idempotent"):
        tool(effect="maybe")(len)  # type: ignore[call-overload]  # the point


def test_a_declared_tool_travels_by_its_name() -> None:
    declared: Tool = pay.__snaprt_tool__  # type: ignore[attr-defined]  # the mark that tool leaves
    assert pickle.loads(pickle.dumps(declared)) is declared


# --- suspensions and cancellation -----------------------------------------------------------------


def test_suspensions_have_ids_fit_for_paths_and_give_their_answers() -> None:
    async def agent() -> Any:
        return await asyncio.gather(suspend("a"), suspend({"b": 1}))

    kernel, commands = started(agent)
    assert commands == [Ask("ask-1", "a"), Ask("ask-2", {"b": 1})]
    assert kernel.summary()["waiting"] == [
        {"suspension": "ask-1", "payload": "a"},
        {"suspension": "ask-2", "payload": {"b": 1}},
    ]
    assert kernel.current_step == "ask-2"
    kernel.deliver(Answer("ask-2", "two", by="ann"))
    kernel.deliver(Answer("ask-2", "again"))
    kernel.advance()
    assert list(kernel.open_suspensions()) == ["ask-1"]
    kernel.deliver(Answer("ask-1", "one"))
    kernel.advance()
    assert kernel.value == ["one", "two"]
    assert kernel.waits.suspensions["ask-2"].by == "ann"


def test_a_cancelled_run_may_clean_up_with_tools_first() -> None:
    async def agent() -> None:
        try:
            await suspend("sure?")
        finally:
            await look("cleaning")

    kernel, _ = started(agent)
    kernel.deliver(Cancel("enough"))
    commands = kernel.advance()
    assert [command.args for command in commands] == [("cleaning",)]
    assert kernel.status == "running"
    assert kernel.open_suspensions() == {}
    kernel.deliver(Result(1, "done"))
    kernel.advance()
    assert kernel.status == "cancelled"
    assert kernel.error is not None
    assert kernel.error.args == ("enough",)


def test_a_failed_run_has_its_error() -> None:
    async def agent() -> None:
        raise LookupError("gone")

    kernel, _ = started(agent)
    assert kernel.status == "failed"
    assert repr(kernel.error) == "LookupError('gone')"


def test_an_agent_that_is_no_coroutine_function_is_refused() -> None:
    with pytest.raises(TypeError, match="async function"):
        Kernel("run").start(len, ("abc",))


# --- plan, rules, marks ---------------------------------------------------------------------------


def test_a_plan_changes_while_the_agent_runs_and_is_shown() -> None:
    async def agent() -> None:
        mine = plan("look", "ask", "act")
        assert plan("look", "more") is mine
        mine.insert("think", before="act")
        mine.rename("more", "rest")
        mine.start("look")
        await look("x")
        mine.done("look")
        with mine.step("ask"):
            mine.remove("rest")
        mine.skip("think", "no need")
        async with mine.step("act"):
            await look("y")
            raise ValueError("broken")

    driver = Driver()
    seen: list[Any] = []
    driver.at_idle = lambda kernel: seen.append((kernel.current_step, kernel.summary()["plan"]))
    kernel = driver.run(agent)
    assert [now for now, _ in seen] == ["look", "act"]
    assert [(each["name"], each["status"]) for each in seen[0][1]] == [
        ("look", "active"),
        ("ask", "pending"),
        ("think", "pending"),
        ("act", "pending"),
        ("rest", "pending"),
    ]
    assert [(each["name"], each["status"], each["note"]) for each in kernel.summary()["plan"]] == [
        ("look", "done", None),
        ("ask", "done", None),
        ("think", "skipped", "no need"),
        ("act", "failed", "ValueError: broken"),
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: plan("a").start("b"),
        lambda: plan("a").add("a"),
        lambda: plan("a").insert("c", before="d"),
        lambda: plan("a", "b").rename("a", "b"),
        lambda: plan(""),
        lambda: plan("a").step("z"),
    ],
)
def test_a_plan_says_what_it_has_when_asked_for_what_it_hasnt(wrong: Callable[[], Any]) -> None:
    async def agent() -> None:
        wrong()

    with pytest.raises(ValueError, match="plan"):
        outcome(agent)


def test_rules_in_force_are_a_copy() -> None:
    async def agent() -> Any:
        rules()["model"] = "changed"
        return rules()

    assert Driver().run(agent, rules={"model": "m-1"}).value == {"model": "m-1"}


def test_the_agent_mark_leaves_the_function_as_it_is() -> None:
    async def fn() -> None: ...

    assert agent(fn) is fn
    assert agent(rules={"model": "m"})(fn) is fn
    assert fn.__snaprt_agent__ == {"rules": {"model": "m"}, "save": "always"}  # type: ignore[attr-defined]  # the mark


@pytest.mark.parametrize("operation", [lambda: plan("a"), rules])
def test_operations_outside_an_agent_say_so(operation: Callable[[], Any]) -> None:
    with pytest.raises(OutsideAgent, match=r"snaprt\.Runtime"):
        operation()


def test_suspending_outside_an_agent_says_so() -> None:
    with pytest.raises(OutsideAgent, match=r"snaprt\.suspend"):
        asyncio.run(suspend("x"))


# --- showing values -------------------------------------------------------------------------------


class Odd:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize("value", [None, True, 5, 1.5, "text", [1, [2, "x"]], {"a": {"b": [None]}}], ids=repr)
def test_small_json_is_shown_as_it_is(value: Any) -> None:
    assert preview(value) == value


@pytest.mark.parametrize(
    "value",
    [
        "x" * 10_000_000,
        b"bytes",
        list(range(100_000)),
        {"a": {1: 2}},
        float("nan"),
        Odd(),
        [["deep"] * 1000] * 1000,
        1 << 100_000,
        {"k" * 3000: 1},
        object(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_anything_else_is_shown_short_and_as_json(value: Any) -> None:
    shown = preview(value)
    assert set(shown) == {"preview", "size"}
    assert len(json.dumps(shown)) < LIMIT * 2


def test_a_long_int_is_shown_by_its_length_wherever_it_stands() -> None:
    shown = preview({"a": [10**5000]})
    assert "an int of about 5000 digits" in shown["preview"]


def test_a_class_whose_every_method_fails_is_still_shown() -> None:
    class Unreadable(dict[str, int]):
        def items(self) -> Any:
            raise RuntimeError("no items")

        __len__ = __iter__ = keys = __repr__ = items

    class Unsliceable(str):
        def __getitem__(self, key: Any) -> Any:
            raise RuntimeError("no items")

        __len__ = __getitem__

    for kind in (Unreadable, Unsliceable):
        assert kind.__name__ in preview(kind())["preview"]


def test_a_tuple_shows_as_a_list() -> None:
    assert preview((1, (2,))) == [1, [2]]


def test_every_summary_is_json() -> None:
    async def agent() -> None:
        plan("a")
        await asyncio.gather(suspend(object()), look("x"), step(dict, a=object()))

    driver = Driver()
    seen: list[str] = []
    driver.at_idle = lambda kernel: seen.append(json.dumps(kernel.summary(), allow_nan=False))
    driver.run(agent, rules={"model": object()})
    assert len(seen) == 3
    fields = json.loads(seen[0])
    assert {"current_step", "plan", "steps", "waiting", "rules"} <= set(fields)


class Size(Enum):
    SMALL = "s"


@dataclass
class Parcel:
    size: Size
    cents: int
    secret: str = field(default="x", repr=False)


class Order(pydantic.BaseModel):
    parcels: list[Parcel]
    note: str | None = None
    token: str = pydantic.Field("t", repr=False)


def test_models_dataclasses_and_enums_are_shown_as_a_person_would_write_them() -> None:
    order = Order(parcels=[Parcel(Size.SMALL, 5)])
    assert preview(order) == {"parcels": [{"size": "s", "cents": 5}], "note": None}
    slotted = dataclass(slots=True)(type("Slotted", (), {"__annotations__": {"a": int, "b": int}}))
    value = slotted(1, 2)
    del value.b
    assert preview(value) == {"a": 1}


def test_what_a_model_keeps_secret_isnt_shown() -> None:
    class Login(pydantic.BaseModel):
        password: pydantic.SecretStr

    assert "hunter2" not in str(preview(Login(password=pydantic.SecretStr("hunter2"))))


def test_the_iterator_of_an_await_is_as_asyncios() -> None:
    told: list[Any] = []

    async def agent() -> None:
        future = asyncio.get_running_loop().create_future()
        awaited = future.__await__()
        assert iter(awaited) is awaited
        assert next(awaited) is future
        with pytest.raises(RuntimeError, match="await wasn't used with future"):
            next(awaited)
        future.set_result((1, 2))
        with pytest.raises(StopIteration) as stopped:
            next(awaited)
        told.append(stopped.value.value)
        with pytest.raises(StopIteration) as stopped:
            next(awaited)
        told.append(stopped.value.value)
        failed = asyncio.get_running_loop().create_future()
        failed.set_exception(LookupError("gone"))
        with pytest.raises(LookupError, match="gone"):
            await failed
        task = asyncio.create_task(asyncio.sleep(0, StopIteration(3)))
        told.append(type(await task))

    kernel = Kernel("r")
    kernel.start(agent)
    kernel.advance()
    assert kernel.status == "completed", kernel.error
    assert told == [(1, 2), None, StopIteration]


def test_the_iterator_of_an_await_can_be_driven_by_hand() -> None:
    told: list[Any] = []

    class Driven:
        def __init__(self, future: Any) -> None:
            self.inner = future.__await__()

        def __await__(self) -> Any:
            waited = self.inner.send(None)
            while True:
                try:
                    sent = yield waited
                except BaseException as error:
                    told.append(type(error).__name__)
                    waited = self.inner.throw(error)
                else:
                    try:
                        waited = self.inner.send(sent)
                    except StopIteration as stop:
                        return stop.value

    async def agent() -> None:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        loop.call_soon(future.set_result, "a")
        told.append(await Driven(future))
        try:
            async with asyncio.timeout(0.01):
                await Driven(loop.create_future())
        except TimeoutError:
            told.append("late")
        closed = loop.create_future().__await__()
        next(closed)
        closed.close()
        told.append(next(closed, "closed"))

    kernel = Kernel("r", clock=(clock := Clock()))
    kernel.start(agent)
    kernel.advance()
    clock.now += 1
    kernel.advance()
    assert kernel.status == "completed", kernel.error
    assert told == ["a", "CancelledError", "late", "closed"]


@pytest.mark.parametrize("many", [False, True], ids=["a future", "gather"])
def test_an_awaited_exception_leaves_no_cycle(many: bool) -> None:
    async def agent() -> bool:
        held = [asyncio.get_running_loop().create_future() for _ in range(2)]
        for each in held:
            asyncio.get_running_loop().call_soon(each.set_exception, KeyError("a"))
        gone = weakref.ref(held[0])
        with contextlib.suppress(KeyError):
            await (asyncio.gather(*held) if many else held[0])
        held[1].exception()
        del each, held
        await asyncio.sleep(0)
        return gone() is None

    kernel = Kernel("r")
    gc.disable()
    try:
        kernel.start(agent)
        kernel.advance()
    finally:
        gc.enable()
    assert kernel.value is True


@pytest.mark.parametrize("name", ["never_there", "test_a_tool_that_is_gone_is_to_be_brought_back"])
def test_a_tool_that_is_gone_is_to_be_brought_back(name: str) -> None:
    from snaprt.kernel.operations import tool_named

    with pytest.raises(TypeError, match=f"{name} isn't .* any more.*bring it back to go on"):
        tool_named(__name__, name)
