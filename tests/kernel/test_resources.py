"""Resources in an agent: opened and closed by the runtime, known to a restored run."""

from __future__ import annotations

from typing import Any

import pytest

from snaprt.kernel import Close, Closed, Kernel, Open, Opened
from snaprt.state.resources import describe, resource

from .driver import Clock, Driver
from .programs import fetch


@resource("kernel-test-db")
def open_db(path: str) -> Any:
    raise AssertionError("opening is the runtime's work")


def started(agent: Any) -> tuple[Kernel, list[Any]]:
    kernel = Kernel("run", clock=Clock())
    kernel.start(agent)
    return kernel, kernel.advance()


def test_opening_and_closing_are_commands_and_the_agent_waits_for_both() -> None:
    async def agent() -> str:
        async with open_db("x.db") as db:
            found = describe(db)
            await fetch("beside it")
        return found

    kernel, commands = started(agent)
    (command,) = commands
    assert isinstance(command, Open)
    assert kernel.open_resources() == []
    kernel.deliver(Opened(command.stand_in))
    kernel.advance()
    assert kernel.open_resources() == [command.stand_in]
    driver = Driver()
    driver.open = list(kernel.pending_calls())
    driver.deliver(kernel, driver.open[0])
    commands = kernel.advance()
    assert [type(each) for each in commands] == [Close]
    kernel.deliver(Closed(commands[0].stand_in))
    kernel.advance()
    assert kernel.open_resources() == []
    assert kernel.value == "open_db('x.db')"


def test_what_opening_raised_is_raised_in_the_agent() -> None:
    async def agent() -> str:
        try:
            await open_db("x.db")
        except ConnectionError as error:
            return str(error)
        return "open"

    kernel, (command,) = started(agent)
    kernel.deliver(Opened(command.stand_in, ConnectionError("no such server")))
    kernel.advance()
    assert kernel.value == "no such server"
    assert kernel.open_resources() == []


def test_a_restored_run_says_what_wants_opening() -> None:
    async def agent() -> bool:
        db = await open_db("x.db")
        same = [db]
        await fetch("x")
        return same[0] is db

    kernel, (command,) = started(agent)
    kernel.deliver(Opened(command.stand_in))
    kernel.advance()
    parts = [bytes(part) for part in kernel.save().parts]
    kernel.release()
    again = Kernel.load(parts, clock=Clock())
    assert [describe(each) for each in again.open_resources()] == ["open_db('x.db')"]
    driver = Driver()
    driver.open = list(again.pending_calls())
    assert driver.drive(again).value is True


@pytest.mark.parametrize("save", [False, True])
def test_a_run_with_a_resource_may_be_saved_anywhere(save: bool) -> None:
    async def agent() -> int:
        async with open_db("a.db"), open_db("b.db"):
            await fetch("x")
        await fetch("y")
        return 2

    assert Driver(save=save).outcome(agent) == 2
