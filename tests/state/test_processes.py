"""A state dumped in one process is loaded in another: other hash seed, directory and flags, no source."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent

LOAD = """
import sys
from snaprt.state import loads
coro = loads(open(sys.argv[1], "rb").read())
try:
    coro.send(None)
except StopIteration as stop:
    print(stop.value)
"""


def run(*args, cwd, seed="1", path=(), flags=()):
    env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, *path)))}
    done = subprocess.run(
        [sys.executable, *flags, *map(str, args)],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_scripts_state_goes_on_where_its_file_doesnt_exist(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    script = here / "agent.py"
    script.write_text((HERE / "script.py.txt").read_text())
    run(script, tmp_path / "state", cwd=here, seed="1")
    script.unlink()
    assert run("-c", LOAD, tmp_path / "state", cwd=there, seed="2") == "all well\n"


MODULE = """
import types, collections

class Item:
    def __init__(self, name):
        self.name = name
    def __hash__(self):
        return hash(self.name)
    def __eq__(self, other):
        return self.name == other.name

REGISTRY = {"items": []}

@types.coroutine
def park():
    return (yield)

async def leaf(items, seen):
    for item in items:
        seen.append(item.name)
        await park()

def make(seen):
    def note(word):
        seen.append(word)
    async def agent():
        items = {Item("a"), Item("b"), Item("c")}
        names = {item.name: item for item in items}
        order = [item.name for item in items]
        registry = REGISTRY
        await leaf(items, seen)
        note("done")
        found = names["a"] in items and Item("b") in items
        return found and seen == [*order, "done"] and registry is REGISTRY
    return agent()
"""


@pytest.mark.parametrize("flags", [(), ("-O",), ("-X", "dev"), ("-E", "-s")], ids=" ".join)
def test_a_modules_state_goes_on_under_other_flags(tmp_path, flags):
    library = tmp_path / "library"
    library.mkdir()
    (library / "program.py").write_text(MODULE)
    dump = """
        import program, sys
        from snaprt.state import dumps, loads
        coro = program.make([])
        coro.send(None); coro.send(None)
        open(sys.argv[1], "wb").write(dumps(coro))
    """
    finish = f"""
        import sys
        sys.path[:0] = [{str(ROOT)!r}, {str(library)!r}]
        from snaprt.state import dumps, loads
        coro = loads(open(sys.argv[1], "rb").read())
        try:
            while True:
                coro.send(None)
                coro = loads(dumps(coro))
        except StopIteration as stop:
            print(stop.value)
    """
    run("-c", textwrap.dedent(dump), tmp_path / "state", cwd=tmp_path, path=[library], seed="5")
    out = run("-c", textwrap.dedent(finish), tmp_path / "state", cwd=library, seed="77", flags=flags)
    assert out == "True\n"


def test_code_of_exec_and_of_marked_modules_goes_by_value(tmp_path):
    (tmp_path / "agent.py").write_text(
        "import types\n"
        "LIMIT = 3\n"
        "@types.coroutine\n"
        "def park(): return (yield)\n"
        "class Note:\n"
        "    def __init__(self, text): self.text = text\n"
        "async def agent():\n"
        "    note = Note('x')\n"
        "    await park()\n"
        "    return [note.text, LIMIT, isinstance(note, Note), Note.__module__]\n"
    )
    dump = """
        import importlib.util, sys
        from snaprt.state import by_value, dumps
        spec = importlib.util.spec_from_file_location("snaprt_agent_file", "agent.py")
        module = by_value(importlib.util.module_from_spec(spec))
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        coro = module.agent()
        coro.send(None)
        open(sys.argv[1], "wb").write(dumps(coro))
        names = {"__name__": "nowhere"}
        exec(open("agent.py").read(), names)
        coro = names["agent"]()
        coro.send(None)
        open(sys.argv[2], "wb").write(dumps(coro))
    """
    one, two = tmp_path / "one", tmp_path / "two"
    run("-c", textwrap.dedent(dump), one, two, cwd=tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert run("-c", LOAD, one, cwd=elsewhere) == "['x', 3, True, 'snaprt_agent_file']\n"
    assert run("-c", LOAD, two, cwd=elsewhere) == "['x', 3, True, 'nowhere']\n"


def test_two_loads_in_one_process_dont_mix(tmp_path):
    script = """
        import sys, types
        from snaprt.state import dumps, loads
        COUNT = [0]
        @types.coroutine
        def park(): return (yield)
        class Mark: seen = []
        async def agent():
            await park()
            COUNT[0] += 1
            Mark.seen.append(1)
            return COUNT[0], len(Mark.seen), Mark
        coro = agent(); coro.send(None)
        data = dumps(coro)
        marks = set()
        for _ in range(2):
            try:
                loads(data).send(None)
            except StopIteration as stop:
                print(stop.value[:2])
                marks.add(stop.value[2])
        print(len(marks), COUNT, Mark in marks)
    """
    (tmp_path / "script.py").write_text(textwrap.dedent(script))
    assert run(tmp_path / "script.py", cwd=tmp_path) == "(1, 1)\n(1, 1)\n2 [0] False\n"


def test_pydantic_models_of_a_script_go_by_value(tmp_path):
    script = """
        import sys, types
        from pydantic import BaseModel, Field, ValidationError, field_validator
        from snaprt.state import dumps
        @types.coroutine
        def park(): return (yield)
        class Line(BaseModel):
            text: str
            cents: int = Field(gt=0)
            @field_validator("text")
            @classmethod
            def strip(cls, value): return value.strip()
        class Order(BaseModel):
            lines: list[Line] = []
            parent: "Order | None" = None
            def total(self): return sum(line.cents for line in self.lines)
        async def agent():
            order = Order(lines=[Line(text=" a ", cents=5)])
            await park()
            again = Order.model_validate({"lines": [{"text": " b ", "cents": 2}], "parent": order})
            try:
                Line(text="x", cents=0)
            except ValidationError as error:
                count = error.error_count()
            return (order.total(), order.lines[0].text, isinstance(order.lines[0], Line), again.total(),
                    again.lines[0].text, again.parent is order, count, order.model_dump_json())
        coro = agent(); coro.send(None)
        open(sys.argv[1], "wb").write(dumps(coro))
    """
    (tmp_path / "script.py").write_text(textwrap.dedent(script))
    run(tmp_path / "script.py", tmp_path / "state", cwd=tmp_path)
    out = run("-c", LOAD, tmp_path / "state", cwd=tmp_path)
    assert out == (
        '(5, \'a\', True, 2, \'b\', True, 1, \'{"lines":[{"text":"a","cents":5}],"parent":null}\')\n'
    )
