"""Paths: a refusal names every offender, once, by the shortest way to it, in the user's own words."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import contextvars
import ctypes
import functools
import gc
import io
import pickle
import re
import subprocess
import sys
import textwrap
import types
import typing
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, NewType

import pytest

from snaprt import state
from snaprt.errors import NotSerialisable
from snaprt.state import handles, paths

HERE = "tests/state/test_paths.py"


class Pause:
    def __await__(self) -> Any:
        return (yield)


async def pause(*_: Any) -> None:
    await Pause()


class Thing:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


def live() -> memoryview:
    """The handle of these tests: it needs no closing."""
    return memoryview(b"live")


def keep(*values: Any, **named: Any) -> None:
    """Takes what waits on the stack for its arguments."""


def line(function: Any, below: int) -> str:
    """`file:line in name` of a line of the function, counted from its `def`."""
    code = function.__code__
    return f"{HERE}:{code.co_firstlineno + below} in {code.co_qualname}"


def found(root: Any, **options: Any) -> list[str]:
    return [offender.path for offender in paths.find(root, **options)]


def found_in(agent: Callable[..., Any], *args: Any, **options: Any) -> list[str]:
    """The paths in a coroutine or generator that ran up to where it suspends first."""
    frame = agent(*args)
    if isinstance(frame, types.AsyncGeneratorType):
        begun = frame.asend(None)
        with contextlib.suppress(StopIteration):
            begun.send(None)
        return found([frame, begun], **options)
    frame.send(None)
    try:
        return found(frame, **options)
    finally:
        frame.close()


# --- the path -------------------------------------------------------------------------------------------


async def triage(client: Any) -> None:
    await pause()
    keep(client)


def test_a_path_reads_as_file_line_function_variable_attribute_key_index() -> None:
    client = Thing(session={"pool": [1, 2, 3, live()]})
    frame = triage(client)
    frame.send(None)
    (offender,) = paths.find(frame)
    assert str(offender) == f"{line(triage, 1)}: local 'client' → .session → ['pool'] → [3]: memoryview"
    frame.close()


def test_every_offender_is_found_nearest_first_and_each_once() -> None:
    shared, deep = live(), live()
    client = Thing(a=shared, b=[shared], c=[[deep]], d=live())
    assert found_in(triage, client) == [
        f"{line(triage, 1)}: local 'client' → .a",
        f"{line(triage, 1)}: local 'client' → .d",
        f"{line(triage, 1)}: local 'client' → .c → [0] → [0]",
    ]


def test_the_shortest_path_wins() -> None:
    handle = live()
    assert found_in(triage, Thing(long=[[[handle]]], short=handle)) == [
        f"{line(triage, 1)}: local 'client' → .short"
    ]


def test_what_hangs_under_an_offender_is_not_reported_beside_it(tmp_path: Path) -> None:
    with open(tmp_path / "x", "w") as file:  # holds a buffer and a raw file
        assert found_in(triage, file) == [f"{line(triage, 1)}: local 'client'"]


def test_cycles_end_and_depth_has_no_limit() -> None:
    nested: Any = live()
    for _ in range(20_000):
        nested = [nested]
    loop = Thing()
    loop.me, loop.nested = loop, nested
    (path,) = found_in(triage, loop)
    assert path.startswith(f"{line(triage, 1)}: local 'client' → .nested → [0] → [0]")
    assert path.count("→") == 20_001


async def awaits(make: Callable[[], Any]) -> None:
    outer = live()
    await triage(make())
    keep(outer)


def test_an_awaited_frame_begins_its_path_anew() -> None:
    assert found_in(awaits, live) == [
        f"{line(awaits, 2)}: local 'outer'",
        f"{line(triage, 1)}: local 'client'",
    ]


async def agen(handle: Any) -> AsyncIterator[int]:
    await pause()
    yield 1
    keep(handle)


async def iterates(handle: Any) -> None:
    async for _ in agen(handle):
        pass


def test_a_frame_behind_an_async_for_is_awaited_too() -> None:
    assert found_in(iterates, live()) == [f"{line(iterates, 1)}: local 'handle'"]
    assert found_in(iterates, [live()]) == [f"{line(iterates, 1)}: local 'handle' → [0]"]

    async def alone() -> None:
        async for _ in agen(live()):
            pass

    assert found_in(alone) == [f"{line(agen, 1)}: local 'handle'"]


def numbers(handle: Any) -> Iterator[int]:
    yield 1
    keep(handle)


def test_a_frame_that_is_only_held_keeps_the_path_to_it() -> None:
    held = numbers(live())
    next(held)
    assert found_in(triage, [held]) == [
        f"{line(triage, 1)}: local 'client' → [0] → {line(numbers, 1)}: local 'handle'"
    ]


def test_a_frame_that_has_not_begun_shows_its_arguments() -> None:
    coroutine = triage(live())
    assert found(coroutine) == [f"{line(triage, 0)}: local 'client'"]
    coroutine.close()


def test_a_finished_frame_holds_nothing() -> None:
    done = numbers(live())
    assert list(done) == [1]
    assert found(done) == []


def test_the_walk_leaves_the_frames_as_they_were() -> None:
    async def agent() -> str:
        with contextlib.suppress(KeyError):
            await pause(live())
            raise KeyError
        return "done"

    frame = agent()
    frame.send(None)
    before = [sys.getrefcount(frame), frame.cr_frame.f_lasti if frame.cr_frame else None]
    assert len(found(frame)) == 1
    gc.collect()
    assert [sys.getrefcount(frame), frame.cr_frame.f_lasti if frame.cr_frame else None] == before
    with pytest.raises(StopIteration) as ended:
        frame.send(None)
    assert ended.value.value == "done"


# --- the stack ------------------------------------------------------------------------------------------


async def in_a_call() -> None:
    keep(live(), await pause())


async def in_a_method_call(thing: Any) -> None:
    thing.keep(1, await pause(), second=live())


async def in_a_method_call_before(thing: Any) -> None:
    thing.keep(1, [live()], await pause())


async def in_a_display() -> None:
    keep([{"a": live()}["a"], await pause()])


async def in_an_operation() -> None:
    keep(live() == await pause())


async def in_a_loop() -> None:
    for _ in iter([live(), live()]):
        await pause()


async def in_a_map() -> None:
    for _ in map(len, [b"", live()]):
        await pause()


@contextlib.contextmanager
def opened(handle: Any) -> Iterator[None]:
    yield
    keep(handle)


class Manager:
    def __init__(self, handle: Any) -> None:
        self.handle = handle

    def __enter__(self) -> None: ...

    def __exit__(self, *_: Any) -> None: ...

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *_: Any) -> None: ...


async def in_a_with() -> None:
    with Manager(live()):
        keep()
        await pause()


async def in_an_async_with() -> None:
    async with Manager(1), Manager(live()):
        await pause()


async def in_a_generator_context() -> None:
    with opened(live()):
        await pause()


EXIT = " → .__self__ → .handle" if sys.version_info < (3, 14) else " → .handle"


@pytest.mark.parametrize(
    ("agent", "below", "rest"),
    [
        (in_a_call, 1, "value of `live()` on the stack"),
        (in_a_method_call_before, 1, "value of `[live()]` on the stack → [0]"),
        (in_a_display, 1, "value of `{'a': live()}['a']` on the stack"),
        (in_an_operation, 1, "value of `live()` on the stack"),
        (
            in_a_loop,
            2,
            "iterator over `iter([live(), live()])` of the loop at line {1} → what it iterates → [1]",
        ),
        (
            in_a_map,
            2,
            "iterator over `map(len, [b'', live()])` of the loop at line {1}"
            " → what it iterates [1] → what it iterates → [1]",
        ),
        (in_a_with, 3, "context manager `Manager(live())` of the with block at line {1}" + EXIT),
        (in_an_async_with, 2, "context manager `Manager(live())` of the with block at line {1}" + EXIT),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_value_on_the_stack_goes_by_the_expression_that_made_it(agent: Any, below: int, rest: str) -> None:
    args = [Thing(keep=keep)] if agent.__code__.co_argcount else []
    first = agent.__code__.co_firstlineno
    rest = rest.replace("{1}", str(first + 1))
    got = found_in(agent, *args)
    if agent is in_a_loop:  # the list has two
        assert len(got) == 2
        got = got[1:]
    assert got == [f"{line(agent, below)}: {rest}"]


def test_an_argument_that_is_not_made_yet_is_not_there() -> None:
    assert found_in(in_a_method_call, Thing(keep=keep)) == []


def test_a_generator_context_manager_shows_the_variable_of_its_generator() -> None:
    (path,) = found_in(in_a_generator_context)
    assert path.startswith(
        f"{line(in_a_generator_context, 2)}: context manager `opened(live())` of the with block"
    )
    assert "local 'handle'" in path or path.endswith(".args → [0]")


async def awaits_foreign(future: Any) -> None:
    await future


def test_a_future_of_another_loop_is_named_as_what_is_awaited() -> None:
    loop = asyncio.new_event_loop()
    try:
        kept, given = loop.create_future(), [loop.create_future()]
        assert found_in(awaits_foreign, kept) == [f"{line(awaits_foreign, 1)}: local 'future'"]

        async def alone() -> None:
            await given.pop()

        frame = alone()
        frame.send(None)
        (offender,) = paths.find(frame)
        assert offender.path == f"{line(alone, 1)}: awaited `given.pop()`"
        assert offender.kind == "future of another loop"
        frame.close()
    finally:
        loop.close()


def test_without_source_a_value_on_the_stack_goes_by_its_line() -> None:
    namespace: dict[str, Any] = {"live": live, "keep": keep, "pause": pause, "__name__": __name__}
    exec("async def unseen():\n    keep(live(), await pause())", namespace)
    (path,) = found_in(namespace["unseen"])
    assert path.endswith("in unseen: value made at line 2, on the stack")


# --- what hangs where -----------------------------------------------------------------------------------


async def handling(error: Any) -> None:
    try:
        raise error
    except ValueError:
        del error
        await pause()


def test_the_exception_being_handled_is_walked_with_its_cause_context_and_notes() -> None:
    error = ValueError(live())
    error.__cause__ = KeyError(live())
    error.__context__ = OSError(live())
    error.data = live()  # type: ignore[attr-defined]  # as users do
    here = f"{line(handling, 5)}: exception being handled"
    assert sorted(found_in(handling, error)) == sorted(
        [
            f"{here} → .args → [0]",
            f"{here} → .data",
            f"{here} → .__cause__ → .args → [0]",
            f"{here} → .__context__ → .args → [0]",
        ]
    )


class Unreducible(Exception):
    def __reduce__(self) -> Any:
        raise RuntimeError("not this one")


async def keeping(error: Exception) -> None:
    await pause()
    keep(error)


def test_an_exception_that_refuses_to_be_reduced_goes_by_its_variable() -> None:
    coro = keeping(Unreducible())
    coro.send(None)
    with pytest.raises(NotSerialisable) as caught:
        state.dump([coro])
    (offender,) = caught.value.offenders
    assert offender.path.endswith("in keeping: local 'error'")
    assert offender.reason == "not this one"
    coro.close()


def test_exceptions_of_a_group_go_by_their_index() -> None:
    group = ExceptionGroup("g", [ValueError(1), ValueError(live())])
    assert found(group) == ["state → .exceptions → [1] → .args → [0]"]


def test_a_traceback_is_text_when_saved_and_so_no_offender() -> None:
    with pytest.raises(TypeError) as caught:
        live().cast("H").cast("I")  # both frames on the way hold memory
    assert caught.value.__traceback__ is not None
    assert found(caught.value) == []


variable: contextvars.ContextVar[Any] = contextvars.ContextVar("request")


def test_a_context_goes_by_its_variables_names() -> None:
    context = contextvars.Context()
    context.run(variable.set, [live()])
    assert found(context) == ["state → context variable 'request' → [0]"]


def test_a_key_is_shown_as_it_is_written_or_by_its_type() -> None:
    odd = Thing()
    held = {1: live(), (2, "b"): live(), b"c": live(), odd: live(), "x" * 100: live()}
    long = "'" + "x" * 37 + "…'"
    assert found(held) == [
        "state → [1]",
        "state → [(2, 'b')]",
        "state → [b'c']",
        "state → [<Thing>]",
        f"state → [{long}]",
    ]


def test_an_object_that_is_a_key_is_told_from_its_value() -> None:
    assert found({live(): 1}) == ["state → key [<memoryview>]"]


class Subclass(dict[str, Any]):
    pass


class Ordered(collections.OrderedDict[str, Any]):
    pass


class Slots:
    __slots__ = ("one",)


def test_subclasses_of_containers_and_slots_are_walked() -> None:
    slots = Slots()
    slots.one = live()
    mapping = Subclass(a=live())
    mapping.extra = live()
    queue = collections.deque([live()])
    assert found([slots, mapping, Ordered(b=live()), queue, {live()}]) == [
        "state → [0] → .one",
        "state → [1] → .extra",
        "state → [1] → ['a']",
        "state → [2] → ['b']",
        "state → [3] → [0]",
        "state → [4] → item of the set",
    ]


class Custom:
    """Travels as what its `__reduce__` says, whatever else it has."""

    def __init__(self, carried: Any) -> None:
        self.cache = live()
        self.carried = carried

    def __reduce__(self) -> Any:
        return Custom, (self.carried,)


class Stateful:
    def __init__(self) -> None:
        self.cache = live()

    def __getstate__(self) -> Any:
        return {"kept": [live()]}


def test_only_what_a_pickler_would_carry_is_walked() -> None:
    assert found(Custom(1)) == []
    assert found(Custom([live()])) == ["state → .carried → [0]"]
    assert found(Stateful()) == ["state → .kept → [0]"]


def test_bound_methods_lead_to_their_object() -> None:
    assert found(Thing(held=live()).__init__) == ["state → .__self__ → .held"]  # type: ignore[misc]  # just a method
    assert found([live()].append) == ["state → .__self__ → [0]"]


def test_functions_lead_to_cells_defaults_and_attributes() -> None:
    held, attribute = live(), live()

    def function(a: Any, b: Any = [live()], *, c: Any = live()) -> Any:  # noqa: B006, B008  # what defaults hold
        return held

    function.cache = attribute  # type: ignore[attr-defined]  # as users do
    assert sorted(found(function)) == [
        "state → .cache",
        "state → closure variable 'held'",
        "state → default of 'b' → [0]",
        "state → default of 'c'",
    ]


def test_globals_of_importable_modules_are_not_state() -> None:
    assert found_in(triage, [keep, Thing, contextlib, io.BytesIO]) == []


def test_a_global_of_a_module_is_not_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Thing(connection=live())
    assert found(service) == ["state → .connection"]
    monkeypatch.setattr(sys.modules[__name__], "SERVICE", service, raising=False)
    assert found(service) == []


def test_code_that_travels_by_value_brings_the_globals_it_reads() -> None:
    namespace: dict[str, Any] = {
        "__name__": "no_such_module",
        "pause": pause,
        "client": [live()],
        "other": live(),
    }
    exec("async def agent():\n    await pause()\n    client.append(1)", namespace)
    (path,) = found_in(namespace["agent"])
    assert path.endswith("in agent: global 'client' → [0]")


# --- what can't be pickled --------------------------------------------------------------------------------


class Stubborn:
    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("I stay\n   here")


class Broken:
    def __reduce_ex__(self, protocol: Any) -> Any:
        return 3


def test_an_object_that_refuses_to_be_pickled_is_an_offender_with_its_reason() -> None:
    first, second = paths.find([Stubborn(), Broken()])
    assert (first.path, first.what, first.reason) == ("state → [0]", f"{__name__}.Stubborn", "I stay here")
    assert (second.path, second.what) == ("state → [1]", f"{__name__}.Broken")
    assert "3" in second.reason


def test_a_generator_that_runs_is_an_offender_with_its_reason() -> None:
    reports: list[Any] = []

    def running() -> Iterator[None]:
        reports.extend(paths.find([itself[0]]))
        yield

    itself = [running()]
    next(itself[0])
    assert [(o.path, o.what) for o in reports] == [("state → [0]", "generator")]
    assert "run" in reports[0].reason


def test_a_weak_reference_is_an_offender_only_if_nothing_else_holds_its_target() -> None:
    target = Thing()
    assert found([weakref.ref(target), target]) == []
    assert found([weakref.proxy(target), target]) == []
    assert found([weakref.ref(Thing())]) == []  # dead already, and stays so
    assert found([weakref.ref(Thing)]) == []  # a class is its module's
    (offender,) = paths.find([1, weakref.ref(target)])
    assert (offender.path, offender.kind) == ("state → [1]", handles.WEAK_REFERENCE.name)
    assert f"{__name__}.Thing" in offender.reason
    assert found([weakref.WeakMethod(target.__init__), target]) == []  # type: ignore[misc]  # just a method
    assert found([weakref.WeakSet([target])]) == []  # drops what nothing else holds


def test_a_handle_behind_a_type_or_beside_a_weak_reference_is_named() -> None:
    class Meta(type):
        handle = live()

    class Holding:
        handle = live()

    class Made(metaclass=Meta):
        pass

    def annotated(a: int) -> None:
        pass

    annotated.__annotations__["a"] = live()
    target, noted = Thing(), functools.partial(keep, live())
    refused = [
        (Made, "state → its metaclass → .handle"),
        (list[Holding], "state → .__args__ → [0] → .handle"),
        (Holding | None, "state → .__args__ → [0] → .handle"),
        (NewType("New", Holding), "state → .__supertype__ → .handle"),
        (contextvars.ContextVar("v", default=noted), "state → its default → .args → [0]"),
        ([target, weakref.ref(target, noted)], "state → [1] → its callback → .args → [0]"),
        ([target, weakref.WeakKeyDictionary({target: live()})], "state → [1] → [<Thing>]"),
    ]
    if sys.version_info < (3, 14):  # from then on annotations are computed anew where they are asked for
        refused.append((annotated, "state → annotation of 'a'"))
    if sys.version_info >= (3, 12):
        alias: Any = typing.TypeAliasType("Alias", list[Holding])
        refused.append((alias, "state → .__value__ → .__args__ → [0] → .handle"))
    for root, path in refused:
        assert found(root) == [path]
        with pytest.raises(NotSerialisable, match=re.escape(f"  {path}: memoryview")):
            state.dump(root)
    assert found([weakref.WeakKeyDictionary({target: live()})]) == []  # drops what nothing else holds


@pytest.mark.filterwarnings("ignore::dill.PicklingWarning")
def test_a_type_that_has_no_name_and_is_not_of_python_is_named() -> None:
    array = (ctypes.c_int * 3)(1, 2, 3)
    (offender,) = paths.find([array])
    assert offender.path == "state → [0] → its class → its metaclass"
    with pytest.raises(NotSerialisable, match=re.escape(offender.path)):
        state.dump([array])


def test_a_failure_that_the_walk_can_not_explain_is_reported_itself() -> None:
    (offender,) = paths.find([1], failure=ValueError("something else"))
    assert (offender.path, offender.reason) == ("state", "something else")


def test_what_is_resolved_or_travels_is_not_walked() -> None:
    held, other = Thing(a=live()), Thing(b=live())
    assert found([held, other], resolve={"held": held}) == ["state → [1] → .b"]
    assert found([held, other], travels=lambda obj: obj is other) == ["state → [0] → .a"]


def test_a_reducer_is_followed_where_one_is_given() -> None:
    def reduce(obj: Any) -> Any:
        return (Thing, (), {"instead": [live()]}) if isinstance(obj, Thing) else NotImplemented

    assert found(Thing(a=live()), reduce=reduce) == ["state → .instead → [0]"]


# --- tasks ------------------------------------------------------------------------------------------------


class AgentLoop(asyncio.SelectorEventLoop):
    """Stands for the kernel's: what is bound to it isn't of another loop, and its tasks show their state."""

    def __init__(self) -> None:
        super().__init__()
        self.set_task_factory(lambda loop, coro, **named: asyncio.tasks._PyTask(coro, loop=loop, **named))


@pytest.fixture
def loop() -> Any:
    handles.allow(AgentLoop)
    made = AgentLoop()
    yield made
    for task in asyncio.all_tasks(made):
        task.cancel()
    made.run_until_complete(asyncio.sleep(0))
    made.close()
    handles.disallow(AgentLoop)


async def waits(client: Any) -> None:
    await asyncio.sleep(60)
    keep(client)


def test_the_frame_of_a_task_begins_with_the_tasks_name(loop: AgentLoop) -> None:
    tasks = [
        loop.create_task(waits(client), name=f"triage-{n}") for n, client in enumerate([1, [live()], live()])
    ]
    loop.run_until_complete(asyncio.sleep(0))
    assert found(tasks, resolve={"loop": loop}) == [
        f"task 'triage-2': {line(waits, 1)}: local 'client'",
        f"task 'triage-1': {line(waits, 1)}: local 'client' → [0]",
    ]


def test_an_awaited_frame_of_a_task_bears_the_tasks_name_too(loop: AgentLoop) -> None:
    async def outer() -> None:
        await waits(live())

    task = loop.create_task(outer(), name="outer")
    loop.run_until_complete(asyncio.sleep(0))
    assert found([task], resolve={"loop": loop}) == [f"task 'outer': {line(waits, 1)}: local 'client'"]


def test_results_exceptions_and_callbacks_of_futures_are_walked(loop: AgentLoop) -> None:
    done, failed, waiting = (loop.create_future() for _ in range(3))
    done.set_result([live()])
    failed.set_exception(ValueError(live()))
    waiting.add_done_callback(Thing(a=live()).__init__)  # type: ignore[misc]  # just a method
    assert found([done, failed, waiting], resolve={"loop": loop}) == [
        "state → [0] → result → [0]",
        "state → [1] → exception → .args → [0]",
        "state → [2] → callback → .__self__ → .a",
    ]
    failed.exception()


def test_a_task_reached_through_another_is_named_by_itself(loop: AgentLoop) -> None:
    inner = loop.create_task(waits(live()), name="inner")

    async def outer() -> None:
        await asyncio.shield(inner)

    task = loop.create_task(outer(), name="outer")
    loop.run_until_complete(asyncio.sleep(0))
    loop.run_until_complete(asyncio.sleep(0))
    assert found(task, resolve={"loop": loop}) == [f"task 'inner': {line(waits, 1)}: local 'client'"]


def test_handles_of_the_loop_lead_to_their_callback(loop: AgentLoop) -> None:
    timer = loop.call_later(60, keep, [live()])
    assert found(timer, resolve={"loop": loop}) == ["state → argument [0] → [0]"]


# --- the error --------------------------------------------------------------------------------------------


def test_the_refusal_says_how_many_where_what_and_the_mend() -> None:
    offenders = paths.find([live(), Stubborn()])
    error = paths.refusal(offenders)
    assert isinstance(error, NotSerialisable)
    assert list(error.offenders) == offenders
    lines = str(error).splitlines()
    assert lines[0].startswith("2 things in this state can't travel")
    assert lines[1:3] == [
        "  state → [0]: memoryview",
        "      memoryview: copy it with bytes(...) before the await.",
    ]
    assert "I stay here" in lines[3]
    assert lines[-1].startswith("Mend")


def test_one_offender_is_spoken_of_as_one() -> None:
    assert str(paths.refusal(paths.find(live()))).startswith("1 thing in this state can't")


def test_a_refusal_that_an_agent_caught_travels_itself() -> None:
    error = paths.refusal(paths.find(live()))
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.offenders) == (str(error), error.offenders)
    assert found(error) == []


def test_a_path_is_the_same_from_any_working_directory(tmp_path: Path) -> None:
    script = tmp_path / "agent.py"
    script.write_text(
        textwrap.dedent(
            """
            import sys
            from snaprt.state import paths

            def agent():
                handle = memoryview(b"x")
                yield

            frame = agent()
            next(frame)
            print(paths.find(frame)[0].path)
            """
        )
    )
    for folder in (tmp_path, Path("/")):
        said = subprocess.run(
            [sys.executable, str(script)], cwd=folder, capture_output=True, text=True, check=True
        ).stdout
        assert said.strip() == "agent.py:7 in agent: local 'handle'"
