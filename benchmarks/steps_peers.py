"""What a step costs, beside DBOS on SQLite and LangGraph with its SQLite savers: one agent, all synced.

The agent asks a scripted model some times and keeps the answers. For snaprt the model is a tool, once a read
and once a write; DBOS has steps of one kind, LangGraph supersteps of one kind. Contenders take turns within
each round, each with a new store in a folder of its own and a new event loop; opening isn't counted.

Before a write, snaprt says on record that it is coming; the peers record what has happened. So each of them
runs a second time with a step that says so before each of its steps: that is what a write takes there.

How durable: snaprt appends each record to the run's file and syncs it (`fdatasync`). DBOS leaves SQLite at
its defaults (rollback journal, `synchronous=FULL`), LangGraph's savers set WAL and leave `synchronous=FULL`,
and the graph is invoked with `durability="sync"`: each step is committed before the next begins. What they
leave out is in their favour: neither keeps the agent's frames, or notices a second owner.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib.metadata
import operator
import random
import shutil
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Annotated, Any, TypedDict

import anyio.to_thread

import snaprt
from benchmarks.measure import Times
from benchmarks.report import Table, main, ratio, seconds
from snaprt.records import Keyring

with contextlib.suppress(ImportError):
    # DBOS wants a newer SQLite than some systems have; then it is the same one for everybody.
    import pysqlite3  # type: ignore[import-not-found]  # optional, ships no types

    sys.modules["sqlite3"] = pysqlite3

STEPS = 50
ROUNDS = 7
KEYRING = Keyring.from_texts(["5b" * 32])
Message = dict[str, str]
Opened = Callable[[Path], AbstractAsyncContextManager[Callable[[], Awaitable[int]]]]


def scripted(number: int) -> Message:
    """What the model says."""
    return {"role": "assistant", "content": f"answer {number}: " + "word " * 20}


def announcement(number: int) -> str:
    """What stands on record before a step of a peer, where it is announced."""
    return f"about to ask for answer {number}"


ANNOUNCED = "a step announcing each"


# --- snaprt -----------------------------------------------------------------------------------------


@snaprt.tool(effect="read")
async def model(number: int) -> Message:
    """The model, as what it is: a read."""
    return scripted(number)


@snaprt.tool
async def writing_model(number: int) -> Message:
    """The same, declared as a write."""
    return scripted(number)


@snaprt.agent(rules={"model": "scripted"})
async def reads(count: int) -> int:
    """The agent."""
    history = []
    for number in range(count):
        history.append(await model(number))
    return len(history)


@snaprt.agent(rules={"model": "scripted"})
async def writes(count: int) -> int:
    """The agent with a tool that writes."""
    history = []
    for number in range(count):
        history.append(await writing_model(number))
    return len(history)


def by_snaprt(agent: Callable[[int], Awaitable[int]]) -> Opened:
    """A runtime on the local store."""

    @asynccontextmanager
    async def opened(folder: Path) -> AsyncIterator[Callable[[], Awaitable[int]]]:
        async with snaprt.Runtime(str(folder), keyring=KEYRING) as rt:
            await (await rt.start(agent, 1)).outcome()  # the probe of the store, once in its life

            async def once() -> int:
                outcome = await (await rt.start(agent, STEPS)).outcome()
                assert isinstance(outcome, snaprt.Completed), outcome
                return int(outcome.value)

            yield once

    return opened


# --- DBOS -------------------------------------------------------------------------------------------


def by_dbos() -> dict[str, Opened]:
    """Its workflow, sync and async, with and without announcements. Raises ImportError where it isn't
    installed."""
    from dbos import DBOS  # type: ignore[import-not-found]  # optional

    ask = DBOS.step()(scripted)
    announce = DBOS.step()(announcement)

    @DBOS.step()  # type: ignore[untyped-decorator]  # optional
    async def ask_async(number: int) -> Message:
        return scripted(number)

    @DBOS.workflow()  # type: ignore[untyped-decorator]  # optional
    def plain(count: int) -> int:
        history = [ask(number) for number in range(count)]
        return len(history)

    @DBOS.workflow()  # type: ignore[untyped-decorator]  # optional
    async def concurrent(count: int) -> int:
        history = [await ask_async(number) for number in range(count)]
        return len(history)

    @DBOS.step()  # type: ignore[untyped-decorator]  # optional
    async def announce_async(number: int) -> str:
        return announcement(number)

    @DBOS.workflow()  # type: ignore[untyped-decorator]  # optional
    def plain_announced(count: int) -> int:
        history = []
        for number in range(count):
            announce(number)
            history.append(ask(number))
        return len(history)

    @DBOS.workflow()  # type: ignore[untyped-decorator]  # optional
    async def concurrent_announced(count: int) -> int:
        history = []
        for number in range(count):
            await announce_async(number)
            history.append(await ask_async(number))
        return len(history)

    def opener(once: Callable[[], Awaitable[int]]) -> Opened:
        @asynccontextmanager
        async def opened(folder: Path) -> AsyncIterator[Callable[[], Awaitable[int]]]:
            folder.mkdir(parents=True)
            url = f"sqlite:///{folder}/dbos.sqlite"
            DBOS(
                config={
                    "name": "bench",
                    "system_database_url": url,
                    "run_admin_server": False,
                    "log_level": "ERROR",
                }
            )
            DBOS.launch()
            try:
                yield once
            finally:
                DBOS.destroy()

        return opened

    def in_a_thread(workflow: Any) -> Opened:
        async def once() -> int:
            return int(await anyio.to_thread.run_sync(workflow, STEPS))

        return opener(once)

    def on_the_loop(workflow: Any) -> Opened:
        async def once() -> int:
            return int(await workflow(STEPS))

        return opener(once)

    version = importlib.metadata.version("dbos")
    return {
        f"DBOS {version}, sync": in_a_thread(plain),
        f"DBOS {version}, async": on_the_loop(concurrent),
        f"DBOS {version}, sync, {ANNOUNCED}": in_a_thread(plain_announced),
        f"DBOS {version}, async, {ANNOUNCED}": on_the_loop(concurrent_announced),
    }


# --- LangGraph --------------------------------------------------------------------------------------


class History(TypedDict):
    """The state of the graph, with the usual reducer."""

    messages: Annotated[list[Message], operator.add]
    count: int
    announced: str


def by_langgraph() -> dict[str, Opened]:
    """One node that goes back to itself, with both savers. Raises ImportError where it isn't installed."""
    from langgraph.checkpoint.sqlite import SqliteSaver  # type: ignore[import-not-found]  # optional
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver  # type: ignore[import-not-found]  # as above
    from langgraph.graph import END, START, StateGraph  # type: ignore[import-not-found]  # as above

    def ask(state: History) -> dict[str, Any]:
        return {"messages": [scripted(len(state["messages"]))]}

    async def ask_async(state: History) -> dict[str, Any]:
        return {"messages": [scripted(len(state["messages"]))]}

    def announce(state: History) -> dict[str, Any]:
        return {"announced": announcement(len(state["messages"]))}

    async def announce_async(state: History) -> dict[str, Any]:
        return {"announced": announcement(len(state["messages"]))}

    def graph(node: Any, saver: Any, announcing: Any) -> Any:
        building = StateGraph(History)
        building.add_node("ask", node)
        first = "ask"
        if announcing is not None:
            first = "announce"
            building.add_node("announce", announcing)
            building.add_edge("announce", "ask")
        building.add_edge(START, first)
        building.add_conditional_edges(
            "ask", lambda state: first if len(state["messages"]) < state["count"] else END
        )
        return building.compile(checkpointer=saver)

    def asked(thread: int) -> dict[str, Any]:
        return {
            "input": {"messages": [], "count": STEPS},
            "config": {"configurable": {"thread_id": str(thread)}, "recursion_limit": 2 * STEPS + 10},
            "durability": "sync",
        }

    def plain(announcing: Any = None) -> Opened:
        @asynccontextmanager
        async def opened(folder: Path) -> AsyncIterator[Callable[[], Awaitable[int]]]:
            folder.mkdir(parents=True)
            with SqliteSaver.from_conn_string(str(folder / "graph.sqlite")) as saver:
                saver.setup()
                compiled = graph(ask, saver, announcing)
                turns = iter(range(1_000_000))

                async def once() -> int:
                    found = await anyio.to_thread.run_sync(lambda: compiled.invoke(**asked(next(turns))))
                    return len(found["messages"])

                yield once

        return opened

    def concurrent(announcing: Any = None) -> Opened:
        @asynccontextmanager
        async def opened(folder: Path) -> AsyncIterator[Callable[[], Awaitable[int]]]:
            folder.mkdir(parents=True)
            async with AsyncSqliteSaver.from_conn_string(str(folder / "graph.sqlite")) as saver:
                await saver.setup()
                compiled = graph(ask_async, saver, announcing)
                turns = iter(range(1_000_000))

                async def once() -> int:
                    return len((await compiled.ainvoke(**asked(next(turns))))["messages"])

                yield once

        return opened

    name = f"LangGraph {importlib.metadata.version('langgraph')}"
    return {
        f"{name}, SqliteSaver": plain(),
        f"{name}, AsyncSqliteSaver": concurrent(),
        f"{name}, SqliteSaver, {ANNOUNCED}": plain(announce),
        f"{name}, AsyncSqliteSaver, {ANNOUNCED}": concurrent(announce_async),
    }


# --- all of them, in turn ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Missing:
    """A peer that can't be had here, and why."""

    name: str
    why: str


def contenders() -> tuple[dict[str, Opened], list[Missing]]:
    """Everybody who is here, and who isn't."""
    found: dict[str, Opened] = {
        "snaprt, a read step": by_snaprt(reads),
        "snaprt, a write step": by_snaprt(writes),
    }
    missing = []
    for name, peers in (("DBOS", by_dbos), ("LangGraph", by_langgraph)):
        try:
            found |= peers()
        except ImportError as error:
            missing.append(Missing(name, f"{type(error).__name__}: {error}"))
    return found, missing


async def turn(opened: Opened, folder: Path) -> Times:
    """Times of a step of one run."""
    async with opened(folder) as once:
        gc.collect()
        cpu, wall = process_time(), perf_counter()
        steps = await once()
        spent = Times((perf_counter() - wall) / STEPS, (process_time() - cpu) / STEPS)
    assert steps == STEPS
    return spent


def measured(place: Path, found: dict[str, Opened], rounds: int) -> dict[str, list[Times]]:
    """Times of a step, by contender and round. The first round warms up and isn't counted."""
    took: dict[str, list[Times]] = {name: [] for name in found}
    for number in range(rounds + 1):
        order = list(found.items())
        random.Random(number).shuffle(order)  # so that nobody always follows the same one
        for at, (name, opened) in enumerate(order):
            spent = asyncio.run(turn(opened, place / f"{number}-{at}"))
            if number:
                took[name].append(spent)
    return took


def run(quick: bool) -> list[Table]:
    """One table."""
    found, missing = contenders()
    place = Path(tempfile.mkdtemp(prefix="snaprt-bench-"))
    try:
        took = measured(place, found, 2 if quick else ROUNDS)
    finally:
        shutil.rmtree(place)
    medians = {
        name: Times(*(statistics.median(column) for column in zip(*each, strict=True)))
        for name, each in took.items()
    }
    read = medians["snaprt, a read step"].wall
    rows = [
        (name, seconds(each.wall), seconds(each.cpu), ratio(each.wall / read))
        for name, each in medians.items()
    ]
    notes = [
        f"Runs of {STEPS} steps, start and end included, each synced before the next; medians of rounds in "
        "which all take turns. A read step of snaprt is one synced record, a write step two: one that says "
        f'so before, and the result. "{ANNOUNCED.capitalize()}" is the peer doing as much.',
        *(f"{each.name} couldn't be tried: {each.why}." for each in missing),
    ]
    return [
        Table(
            "A recorded step of the same agent, on the disk",
            ("", "time a step", "its CPU", "of snaprt's read"),
            tuple(rows),
            tuple(notes),
        )
    ]


if __name__ == "__main__":
    main("steps_peers")
