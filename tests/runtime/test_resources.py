"""A declared resource is closed when the run leaves, and open again before the agent goes on elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

import snaprt
from tests.runtime.agents import note


class Connection:
    """Stands for a client with a socket."""

    def __init__(self, ledger: str, name: str) -> None:
        self.ledger, self.name, self.open = ledger, name, True
        note(ledger, f"open {name}")

    def __reduce__(self) -> Any:
        raise TypeError("a connection can't travel")

    def ask(self, what: str) -> str:
        assert self.open
        note(self.ledger, f"{self.name} {what}")
        return what.upper()


@snaprt.resource("connection")
def connect(ledger: str, name: str) -> Any:
    connection = Connection(ledger, name)
    yield connection
    connection.open = False
    note(ledger, f"close {name}")


@snaprt.tool(effect="read")
async def through(connection: Connection, what: str) -> str:
    assert type(connection) is Connection  # a tool gets the real thing
    return connection.ask(what)


async def agent(ledger: str) -> list[str]:
    connection = await connect(ledger, "a")
    said = [connection.ask("one"), await through(connection, "two")]
    await snaprt.suspend("go on?")
    return [*said, connection.ask("three"), await through(connection, "four")]


@pytest.mark.parametrize("host", ["asyncio", "trio"])
def test_a_resource_follows_its_run(tmp_path: Path, host: str) -> None:
    ledger = tmp_path / "ledger"

    async def main() -> Any:
        async with snaprt.Runtime(str(tmp_path / "store")) as rt:
            await (await rt.start(agent, str(ledger), run_id="r")).outcome()
            before = ledger.read_text().splitlines()
            await rt.answer("r", "yes")
        async with snaprt.Runtime(str(tmp_path / "store")) as rt:
            return before, await (await rt.resume("r")).outcome()

    before, done = anyio.run(main, backend=host)
    assert before == ["open a", "a one", "a two", "close a"]
    assert done == snaprt.Completed("r", ["ONE", "TWO", "THREE", "FOUR"])
    assert ledger.read_text().splitlines()[4:] == ["open a", "a three", "a four", "close a"]
