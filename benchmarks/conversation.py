"""Stored bytes of a conversation of 200 turns, against storing each state in full and against LangGraph's
saver.

The agent is a loop: a request comes, the model (scripted: a tool of effect "read") is given the history
and answers, both are added to the history. Each turn leaves about 6 KB of real text. The runtime writes
one record a turn, with the whole state. *In full* writes `zstd(pickle(history))` to a synced file at the
same moments. LangGraph's graph is one node with the same model, a history channel with its usual reducer,
and `SqliteSaver`, invoked once a turn.
"""

from __future__ import annotations

import asyncio
import operator
import pickle
import shutil
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, TypedDict

import snaprt
from benchmarks.durable import bare, write_synced
from benchmarks.report import Table, main, ratio, seconds, size
from benchmarks.states import Writer
from snaprt.records import Keyring

TURNS = 200
KEY = "5b" * 32
Message = dict[str, Any]

_script: list[list[Message]] = []


def write_script(turns: int) -> None:
    """What will be asked and answered: the same for every contender."""
    writer = Writer(2)
    _script[:] = [writer.exchange() for _ in range(turns)]


@snaprt.tool(effect="read")
async def model(history: list[Message]) -> list[Message]:
    """The scripted model: what follows the newest request."""
    return _script[sum(message["role"] == "user" for message in history) - 1][1:]


@snaprt.agent(rules={"model": "scripted", "prompt": "You are a coding agent."})
async def converse(turns: int) -> int:
    """The agent: as one writes it."""
    history: list[Message] = []
    for turn in range(turns):
        history.append(_script[turn][0])
        history += await model(history)
    return len(history)


async def by_snaprt(folder: Path, turns: int) -> tuple[int, int, float]:
    """Stored bytes, records and seconds."""
    start = perf_counter()
    async with snaprt.Runtime(str(folder), keyring=Keyring.from_texts([KEY])) as runtime:
        run = await runtime.start(converse, turns, run_id="conversation")
        outcome = await run.outcome()
        took = perf_counter() - start
        assert isinstance(outcome, snaprt.Completed), outcome
        assert outcome.value == sum(map(len, _script))
        found = await runtime.show("conversation")
    return found.bytes, found.records, took


def in_full(folder: Path, turns: int) -> tuple[int, int, float]:
    """Stored bytes, states and seconds of `zstd(pickle)` into a file a turn."""
    start, stored = perf_counter(), 0
    history: list[Message] = []
    for turn in range(turns):
        history += _script[turn]
        packed = bare(history)
        write_synced(folder / f"turn-{turn}", packed)
        stored += len(packed)
    return stored, turns, perf_counter() - start


def by_langgraph(folder: Path, turns: int) -> tuple[int, int, float]:
    """Bytes of the SQLite file, checkpoints and seconds. ImportError where there is no LangGraph."""
    import sqlite3

    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.graph import END, START, StateGraph

    class State(TypedDict):
        history: Annotated[list[Message], operator.add]

    def answer(state: State) -> State:
        asked = sum(message["role"] == "user" for message in state["history"])
        return {"history": _script[asked - 1][1:]}

    path = folder / "langgraph.sqlite"
    connection = sqlite3.connect(path, check_same_thread=False)
    saver = SqliteSaver(connection)
    graph = StateGraph(State)
    graph.add_node("model", answer)
    graph.add_edge(START, "model")
    graph.add_edge("model", END)
    compiled = graph.compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "conversation"}}
    start = perf_counter()
    for turn in range(turns):
        last = compiled.invoke({"history": [_script[turn][0]]}, config, durability="sync")
    took = perf_counter() - start
    assert len(last["history"]) == sum(map(len, _script[:turns]))
    count = connection.execute("select count(*) from checkpoints").fetchone()[0]
    connection.execute("pragma wal_checkpoint(truncate)")
    connection.close()
    return path.stat().st_size, count, took


def run(quick: bool) -> list[Table]:
    """One table."""
    turns = 50 if quick else TURNS
    write_script(turns)
    notes = []
    last = len(pickle.dumps([message for turn in _script for message in turn], pickle.HIGHEST_PROTOCOL))
    place = Path(tempfile.mkdtemp(prefix="snaprt-bench-"))
    try:
        ours, records, took = asyncio.run(by_snaprt(place / "store", turns))
        rows = [
            ("snaprt, local store", ours, records, took),
            ("each state in full, zstd(pickle)", *in_full(place, turns)),
        ]
        try:
            rows.append(("LangGraph, SqliteSaver", *by_langgraph(place, turns)))
        except ImportError as error:
            notes.append(f"LangGraph isn't in the table: {error}.")
    finally:
        shutil.rmtree(place)
    cells = tuple(
        (name, size(stored), ratio(stored / ours), str(count), seconds(each / turns))
        for name, stored, count, each in rows
    )
    notes[:0] = [
        f"The last history is {size(last)} when pickled; {size(ours / turns)} stored a turn by snaprt.",
        "Times are of one pass each, and not interleaved: take them as an order of magnitude.",
    ]
    columns = ("", "stored", "of snaprt's", "states", "time a turn")
    return [Table(f"A conversation of {turns} turns", columns, cells, tuple(notes))]


if __name__ == "__main__":
    main("conversation")
