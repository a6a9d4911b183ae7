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


def test_results_are_of_the_scripts_own_classes_in_every_life(tmp_path: Path) -> None:
    script = tmp_path / "shop.py"
    script.write_text(SCRIPT)
    flag = tmp_path / "flag"
    first = snaprt("run", "shop.py:agent", f"flag={flag}", "--run-id", "r", "--json", cwd=tmp_path)
    assert first.returncode == 9
    script.unlink()
    done = snaprt("resume", "r", "--json", cwd=tmp_path)
    assert lines(done)[-1].get("result") == ["second life", "a", True, True], json.dumps(lines(done)[-1])
