"""Resources: in frames stands a stand-in, which travels, forwards, and is opened again as itself."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import gc
import io
import pickle
import sqlite3
import subprocess
import sys
import textwrap
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from snaprt.errors import ResourceUnavailable
from snaprt.state import handles, paths, resources
from snaprt.state.resources import close_handle, open_handle, real, resource

pytestmark = pytest.mark.anyio  # the async tests run on asyncio and on trio

LOG: list[str] = []


class Connection:
    """A handle that shows what reaches it."""

    def __init__(self, address: str = "here") -> None:
        self.address = address
        self.rows: dict[str, Any] = {}
        self.entered = 0

    def close(self) -> None:
        LOG.append(f"close {self.address}")

    def query(self, text: str) -> str:
        return f"{self.address}: {text}"

    def __call__(self, text: str) -> str:
        return self.query(text)

    def __len__(self) -> int:
        return len(self.rows)

    def __bool__(self) -> bool:
        return self.address != "nowhere"

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __contains__(self, key: str) -> bool:
        return key in self.rows

    def __getitem__(self, key: str) -> Any:
        return self.rows[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.rows[key] = value

    def __delitem__(self, key: str) -> None:
        del self.rows[key]

    def __enter__(self) -> Connection:
        self.entered += 1
        return self

    def __exit__(self, *exc_info: Any) -> bool:
        self.entered -= 1
        return exc_info[0] is KeyError

    async def __aenter__(self) -> str:
        self.entered += 1
        return "inside"

    async def __aexit__(self, *exc_info: Any) -> None:
        self.entered -= 1

    def __str__(self) -> str:
        return f"connection to {self.address}"


class AsyncConnection(Connection):
    async def aclose(self) -> None:
        LOG.append(f"aclose {self.address}")

    async def __aiter__(self) -> AsyncIterator[int]:  # type: ignore[override]  # an async generator is what it gives
        yield 1
        yield 2


@resource("plain")
def open_plain(address: str = "here") -> Connection:
    """Opens a connection."""
    LOG.append(f"open {address}")
    return Connection(address)


@resource("async")
async def open_async(address: str) -> AsyncConnection:
    await anyio.sleep(0)
    LOG.append(f"open {address}")
    return AsyncConnection(address)


@resource("generator")
def open_generator(address: str) -> Iterator[Connection]:
    LOG.append(f"open {address}")
    yield Connection(address)
    LOG.append(f"after {address}")


@resource("async generator")
async def open_async_generator(address: str) -> AsyncIterator[Connection]:
    await anyio.sleep(0)
    LOG.append(f"open {address}")
    yield Connection(address)
    await anyio.sleep(0)
    LOG.append(f"after {address}")


@resource("context manager")
@contextlib.contextmanager
def open_context(address: str) -> Iterator[Connection]:
    LOG.append(f"open {address}")
    try:
        yield Connection(address)
    finally:
        LOG.append(f"after {address}")


@resource("async context manager")
@contextlib.asynccontextmanager
async def open_async_context(address: str) -> AsyncIterator[Connection]:
    LOG.append(f"open {address}")
    try:
        yield Connection(address)
    finally:
        LOG.append(f"after {address}")


async def hang_up(connection: Connection) -> None:
    LOG.append(f"hang up {connection.address}")


@resource("own close", close=hang_up)
def open_own(address: str) -> Connection:
    LOG.append(f"open {address}")
    return Connection(address)


@resource("no close")
def open_bare(address: str) -> dict[str, str]:
    LOG.append(f"open {address}")
    return {"address": address}


@resource("dependent")
def open_dependent(connection: Connection, name: str) -> str:
    return f"{type(connection).__name__} {connection.address} {name}"


@resource("failing")
def open_failing() -> None:
    raise ConnectionRefusedError("nobody there")


@resource("sqlite")
def open_sqlite(path: str) -> sqlite3.Connection:
    return sqlite3.connect(path)


@pytest.fixture(autouse=True)
def fresh_log() -> None:
    LOG.clear()


def closed(made: resources.Resource = open_plain, *args: Any) -> resources.StandIn:
    return resources.stand_in(made, args, {})


def bound(handle: Any = None) -> Any:
    made = closed()
    resources.bind(made, Connection() if handle is None else handle)
    return made


# --- opening and closing ------------------------------------------------------------------------------

KINDS = [
    (open_plain, "close x"),
    (open_async, "aclose x"),
    (open_generator, "after x"),
    (open_async_generator, "after x"),
    (open_context, "after x"),
    (open_async_context, "after x"),
    (open_own, "hang up x"),
    (open_bare, None),
]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize(("made", "end"), KINDS, ids=lambda value: getattr(value, "name", None))
def test_a_handle_is_opened_closed_and_reopened_on_any_host(backend: str, made: Any, end: str | None) -> None:
    async def main() -> None:
        db = await made("x")
        assert resources.is_stand_in(db)
        assert resources.is_open(db)
        assert LOG == ["open x"]
        await close_handle(db)
        assert not resources.is_open(db)
        assert ["open x", *([end] if end else [])] == LOG
        handle = await open_handle(db)
        assert resources.is_open(db)
        assert LOG[-1] == "open x"
        assert real(db) is handle
        assert handle["address"] == "x" if made is open_bare else handle.address == "x"
        await close_handle(db)

    anyio.run(main, backend=backend)


async def test_opening_what_is_open_changes_nothing() -> None:
    db = await open_plain("x")
    first = real(db)
    assert await open_handle(db) is first
    assert LOG == ["open x"]


async def test_closing_what_is_closed_does_nothing() -> None:
    await close_handle(closed())
    assert LOG == []


async def test_async_with_closes_in_the_end_even_after_an_error() -> None:
    async def use() -> None:
        async with open_plain("x") as db:
            assert db.query("a") == "x: a"
            raise KeyError

    with pytest.raises(KeyError):
        await use()
    assert LOG == ["open x", "close x"]


async def test_what_the_factory_raises_is_raised_and_the_stand_in_stays_closed() -> None:
    db = closed(open_failing)
    with pytest.raises(ConnectionRefusedError, match="nobody there"):
        await open_handle(db)
    assert not resources.is_open(db)


async def test_a_handle_whose_closing_fails_counts_as_closed() -> None:
    class Stuck(Connection):
        def close(self) -> None:
            raise OSError("stuck")

    @resource("stuck")
    def open_stuck() -> Stuck:
        return Stuck()

    db = await open_stuck()
    with pytest.raises(OSError, match="stuck"):
        await close_handle(db)
    assert not resources.is_open(db)


async def test_a_resource_among_the_arguments_is_opened_first() -> None:
    inner = closed(open_plain, "x")
    outer = resources.stand_in(open_dependent, (inner,), {"name": "n"})
    assert await open_handle(outer) == "Connection x n"
    assert resources.is_open(inner)


# --- inside an agent ----------------------------------------------------------------------------------


class Kernel:
    """What the kernel offers to resources, and nothing else of it."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, resources.StandIn]] = []

    def open_resource(self, stand_in: resources.StandIn) -> asyncio.Future[Any]:
        self.asked.append(("open", stand_in))
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        done.set_result(stand_in)
        return done

    def close_resource(self, stand_in: resources.StandIn) -> asyncio.Future[None]:
        self.asked.append(("close", stand_in))
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


class AgentLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self.kernel = Kernel()


def test_inside_an_agent_the_kernel_is_asked_to_open_and_close() -> None:
    async def agent() -> list[Any]:
        db = await open_plain("x")
        async with open_plain("y") as other:
            pass
        return [db, other]

    loop = AgentLoop()
    try:
        db, other = loop.run_until_complete(agent())
    finally:
        loop.close()
    assert [what for what, _ in loop.kernel.asked] == ["open", "open", "close"]
    assert [which for _, which in loop.kernel.asked] == [db, other, other]
    assert LOG == []
    assert not resources.is_open(db)


# --- forwarding ---------------------------------------------------------------------------------------


def test_an_open_stand_in_forwards_everything_to_its_handle() -> None:
    db = bound()
    handle = real(db)
    db["a"] = 1
    db["b"] = 2
    del db["b"]
    db.extra = 3
    assert (db["a"], len(db), list(db), "a" in db, "b" in db) == (1, 1, ["a"], True, False)
    assert (handle.extra, db.extra, db("q"), db.query("q")) == (3, 3, "here: q", "here: q")
    del db.extra
    assert not hasattr(handle, "extra")
    assert str(db) == "connection to here"
    assert bool(db) is True
    assert "query" in dir(db)
    assert bool(bound(Connection("nowhere"))) is False
    with pytest.raises(AttributeError, match="missing"):
        db.missing  # noqa: B018  # asking is the point


def test_a_method_named_like_those_of_this_package_reaches_the_handle() -> None:
    class Socket:
        def bind(self, where: str) -> str:
            return f"bound to {where}"

        def close(self) -> str:
            return "closed"

        args, kwargs, real, resource = 1, 2, 3, 4

    made = bound(Socket())
    assert (made.bind("x"), made.close()) == ("bound to x", "closed")
    assert (made.args, made.kwargs, made.real, made.resource) == (1, 2, 3, 4)


async def test_a_stand_in_is_a_context_manager_where_its_handle_is_one() -> None:
    db = bound()
    with db as entered:
        assert entered is db  # not the handle, which couldn't travel
        assert real(db).entered == 1
    assert real(db).entered == 0
    with db:
        raise KeyError  # which this handle's exit takes in
    async with db as inside:
        assert (inside, real(db).entered) == ("inside", 1)
    assert real(db).entered == 0
    with pytest.raises(TypeError, match="can't be entered"), bound([1]):
        pass
    with pytest.raises(TypeError, match="can't be entered"):
        async with bound([1]):
            pass


async def test_iteration_is_forwarded_sync_and_async() -> None:
    assert [n async for n in bound(AsyncConnection())] == [1, 2]
    numbers = bound(iter([1, 2]))
    assert (next(numbers), list(numbers)) == (1, [2])


def test_isinstance_sees_the_handles_class_while_it_is_open() -> None:
    assert isinstance(bound(), Connection)
    assert not isinstance(closed(), Connection)
    assert isinstance(closed(), resources.StandIn)


def test_a_stand_in_is_equal_to_itself_only_and_may_be_a_key() -> None:
    one, other = bound([1]), bound([1])
    assert one == one
    assert one != other
    assert {one: 1, other: 2}[one] == 1


USES: dict[str, Callable[[Any], Any]] = {
    "attribute": lambda db: db.query,
    "set attribute": lambda db: setattr(db, "a", 1),
    "delete attribute": lambda db: delattr(db, "a"),
    "call": lambda db: db("x"),
    "length": len,
    "truth": bool,
    "iteration": iter,
    "async iteration": aiter,
    "next": next,
    "item": lambda db: db["a"],
    "set item": lambda db: db.__setitem__("a", 1),
    "membership": lambda db: "a" in db,
    "enter": lambda db: contextlib.ExitStack().enter_context(db),
    "real": real,
    "directory": dir,
}


@pytest.mark.parametrize("use", USES)
def test_a_closed_stand_in_says_so_in_a_paragraph_whatever_is_asked_of_it(use: str) -> None:
    db = closed(open_plain, "x.sqlite")
    with pytest.raises(ResourceUnavailable) as caught:
        USES[use](db)
    text = str(caught.value)
    assert "'plain'" in text
    assert "open_plain('x.sqlite')" in text
    assert "\n" not in text


def test_a_stand_in_shows_what_it_is_without_its_handle() -> None:
    assert repr(closed()) == "<stand-in for resource 'plain': closed>"
    assert str(closed()) == repr(closed())
    assert "Connection object" in repr(bound())


# --- travelling ---------------------------------------------------------------------------------------


async def test_a_stand_in_travels_without_its_handle() -> None:
    db = await open_sqlite(":memory:")
    again = pickle.loads(pickle.dumps(db))
    assert not resources.is_open(again)
    assert resources.resource_of(again) is open_sqlite
    assert resources.describe(again) == "open_sqlite(':memory:')"
    await open_handle(again)
    assert again.execute("select 1").fetchone() == (1,)
    assert db.execute("select 2").fetchone() == (2,)
    for each in (db, again):
        await close_handle(each)


def test_a_stand_in_that_two_places_share_stays_one() -> None:
    db = bound()
    one, two = pickle.loads(pickle.dumps([{"a": db}, (db,)]))
    assert one["a"] is two[0]
    assert one["a"] is not db


def test_a_stand_in_whose_arguments_lead_back_to_it_travels() -> None:
    arguments: list[Any] = []
    db = closed(open_bare, arguments)
    arguments.append(db)
    again = pickle.loads(pickle.dumps(db))
    (inner,) = again.__reduce_ex__(4)[2][1]
    assert inner[0] is again


def test_a_resource_travels_as_its_name() -> None:
    assert pickle.loads(pickle.dumps(open_plain)) is open_plain
    assert copy.copy(open_plain) is open_plain


def test_a_stand_in_is_neither_a_handle_nor_a_way_to_one_for_the_slow_walk() -> None:
    db = bound(sqlite3.connect(":memory:"))
    assert handles.refuse(db) is None
    assert paths.find([db, {"again": db}]) == []
    assert [o.path for o in paths.find([db, db.cursor])] == ["state → [1] → .__self__"]
    real(db).close()


def test_arguments_of_a_stand_in_that_can_not_travel_are_found() -> None:
    db = closed(open_plain, memoryview(b"x"))
    (offender,) = paths.find({"db": db})
    assert offender.path == "state → ['db'] → argument of resource 'plain' → [0]"


def test_importing_the_module_of_a_resource_is_enough_for_another_process(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        textwrap.dedent(
            """
            import io
            from snaprt.state.resources import resource

            @resource("till")
            def open_till(text, *, upper=False):
                return io.StringIO(text.upper() if upper else text)
            """
        )
    )
    make = "import sys, pickle, shop; from snaprt.state import resources as r"
    first = (
        f"{make}; sys.stdout.buffer.write(pickle.dumps(r.stand_in(shop.open_till, ('a',), dict(upper=True))))"
    )
    data = subprocess.run([sys.executable, "-c", first], cwd=tmp_path, capture_output=True, check=True).stdout
    second = textwrap.dedent(
        """
        import asyncio, pickle, sys
        from snaprt.state import resources
        assert resources.known("till") is None
        till = pickle.loads(sys.stdin.buffer.read())
        assert resources.known("till") is not None
        asyncio.run(resources.open_handle(till))
        print(till.read())
        """
    )
    said = subprocess.run(
        [sys.executable, "-c", second], cwd=tmp_path, input=data, capture_output=True, check=True
    ).stdout
    assert said.strip() == b"A"


def test_a_stand_in_leaks_neither_itself_nor_its_handle() -> None:
    handle = Connection()
    db = bound(handle)
    weak, weak_handle = weakref.ref(db), weakref.ref(handle)
    assert resources.unbind(db) is handle
    del db, handle
    gc.collect()
    assert (weak(), weak_handle()) == (None, None)


# --- tools --------------------------------------------------------------------------------------------


def test_a_tool_gets_the_real_handles_in_its_arguments() -> None:
    db, other = bound(), bound()
    handle, second = real(db), real(other)
    same = {"plain": [1, 2]}
    args = (db, 1, [db, "x"], {"a": other}, same)
    got = real(args)
    assert got[0] is handle
    assert got[2] == [handle, "x"]
    assert got[3] == {"a": second}
    assert got[4] is same
    assert args[0] is db  # the agent's own containers are left alone
    assert real({"a": db}) == {"a": handle}
    untouched = (1, [2])
    assert real(untouched) is untouched
    deep = real(([[db]],))
    assert deep[0][0][0] is db  # a stand-in, which works as well


# --- declaring ----------------------------------------------------------------------------------------


def test_a_name_is_taken_once() -> None:
    with pytest.raises(ValueError, match="already declared"):
        resource("plain")(lambda: io.StringIO())
    assert resources.known("plain") is open_plain


def test_a_reloaded_module_declares_its_resources_again() -> None:
    again = resource("plain")(open_plain.factory)
    try:
        assert resources.known("plain") is again
    finally:
        resources._registry["plain"] = open_plain


@pytest.mark.parametrize("name", [open_bare.factory, "", None])
def test_a_resource_needs_a_name(name: Any) -> None:
    with pytest.raises(TypeError, match="name the resource"):
        resource(name)


def test_a_resource_keeps_its_factorys_name_and_text() -> None:
    assert (open_plain.__name__, open_plain.__doc__) == ("open_plain", "Opens a connection.")
    assert repr(open_plain) == f"<resource 'plain' from {__name__}.open_plain>"


def test_a_method_can_not_be_a_resource() -> None:
    class Service:
        @resource("method")
        def connect(self) -> Connection:
            return Connection()

    with pytest.raises(TypeError, match="declare it on a module's function"):
        Service().connect  # noqa: B018  # asking is the point
