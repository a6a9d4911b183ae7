"""Classes of a script keep one identity between a run's state and what was recorded apart from it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.processes import lines, snaprt

SCRIPT = """
import dataclasses, enum, os
import snaprt

class Colour(enum.Enum):
    RED = 1
    BLUE = 2

@dataclasses.dataclass
class Item:
    name: str
    colour: Colour

class Odd(Exception):
    def __init__(self, name, *, code):
        super().__init__(name)
        self.code = code

@snaprt.tool(effect="read")
def fetch(item):
    assert isinstance(item, Item) and item.colour is Colour.RED
    return [Item(item.name + "!", Colour.BLUE), item]

@snaprt.tool(effect="read")
def fail(item):
    raise Odd(item.name, code=Colour.BLUE)

@snaprt.tool(effect="read")
def end_this_process_once(flag):
    if not os.path.exists(flag):
        open(flag, "w").close()
        os._exit(9)
    return "second life"

async def agent(flag):
    first = Item("a", Colour.RED)
    before = await fetch(first)
    assert all(isinstance(each, Item) for each in before) and before[0].colour is Colour.BLUE
    life = await end_this_process_once(flag)
    assert all(isinstance(each, Item) for each in before) and before[0].colour is Colour.BLUE
    after = await fetch(first)
    assert all(isinstance(each, Item) for each in after) and after[0].colour is Colour.BLUE
    try:
        await fail(first)
    except Odd as error:
        return [life, error.args[0], error.code is Colour.BLUE, type(after[0]) is Item]
"""

# The agent's code names `Order` alone; what that holds comes with it.
NESTED = """
import dataclasses, enum
import snaprt

class Base:
    pass

class Colour(enum.Enum):
    RED = 1
    BLUE = 2

@dataclasses.dataclass
class Item(Base):
    colour: Colour = Colour.BLUE

@dataclasses.dataclass
class Order:
    item: Item = dataclasses.field(default_factory=Item)

async def kept(value):
    await snaprt.suspend("child")
    return value

def same(value):
    return value

async def agent():
    mine = Order()
    early = await snaprt.step.read(same, mine)
    await snaprt.suspend("agent")
    late = await snaprt.step.read(same, mine)
    child = await snaprt.child(kept, mine)
    return [
        theirs == mine and theirs.item.colour is mine.item.colour and type(theirs.item) is type(mine.item)
        for theirs in (early, late, child)
    ]
"""


def test_results_are_of_the_scripts_own_classes_in_every_life(tmp_path: Path) -> None:
    script = tmp_path / "shop.py"
    script.write_text(SCRIPT)
    flag = tmp_path / "flag"
    first = snaprt("run", "shop.py:agent", f"flag={flag}", "--run-id", "r", "--json", cwd=tmp_path)
    assert first.returncode == 9
    script.unlink()
    done = snaprt("resume", "r", "--json", cwd=tmp_path)
    assert lines(done)[-1].get("result") == ["second life", "a", True, True], json.dumps(lines(done)[-1])


def test_no_class_within_a_result_is_doubled_by_a_restore(tmp_path: Path) -> None:
    script = tmp_path / "shop.py"
    script.write_text(NESTED)
    snaprt("run", "shop.py:agent", "--run-id", "r", "--json", cwd=tmp_path)
    script.unlink()
    asks = snaprt("resume", "r", "--answer", "1", "--json", cwd=tmp_path)
    child = lines(asks)[-1]["children"][0]
    snaprt("resume", child, "--answer", "1", "--json", cwd=tmp_path)
    done = snaprt("resume", "r", "--json", cwd=tmp_path)
    assert lines(done)[-1].get("result") == [True, True, True], json.dumps(lines(done)[-1])
