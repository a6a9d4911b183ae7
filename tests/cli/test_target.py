"""A target leads to its agent, or is refused with what stands there instead."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from snaprt.cli.target import load_agent
from snaprt.errors import UsageError

SCRIPT = """
import functools
import sibling
from dataclasses import dataclass

NUMBER = 3

@dataclass
class Ticket:
    id: int

async def triage(ticket=1): return sibling.VALUE
async def escalate(): ...
def plain(): ...
def generator(): yield
async def async_generator(): yield

class Desk:
    @staticmethod
    async def open(): ...
    async def __call__(self): ...

desk = Desk()
waiting = functools.partial(plain)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a script, its sibling, and broken ones; what is imported is forgotten after."""
    (tmp_path / "desk_agents.py").write_text(SCRIPT)
    (tmp_path / "sibling.py").write_text("VALUE = 'from the sibling'")
    (tmp_path / "broken_syntax.py").write_text("x = 1\ndef f(:\n")
    (tmp_path / "broken_import.py").write_text("import no_such_module_of_mine\n")
    (tmp_path / "broken_body.py").write_text("def go():\n    1 / 0\n\ngo()\n")
    (tmp_path / "empty_agents.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if not name.startswith("snaprt"):
            del sys.modules[name]


@pytest.mark.parametrize("target", ["desk_agents:triage", "desk_agents.py:triage", "./desk_agents.py:triage"])
def test_a_function_of_a_module_or_a_file_is_found(folder: Path, target: str) -> None:
    agent = load_agent(target)
    assert agent.__name__ == "triage"
    assert asyncio.run(agent()) == "from the sibling"


def test_a_file_elsewhere_finds_the_siblings_of_its_own_folder(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert asyncio.run(load_agent(f"{folder}/desk_agents.py:triage")()) == "from the sibling"


def test_a_method_is_found_by_its_dotted_name(folder: Path) -> None:
    assert load_agent("desk_agents:Desk.open").__qualname__ == "Desk.open"


def test_a_file_never_takes_the_name_of_a_module(folder: Path) -> None:
    import json

    (folder / "json.py").write_text("async def go(): ...")
    assert load_agent("json.py:go").__module__ == "json.py"
    assert sys.modules["json"] is json


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("desk_agents", "lacks a function: add :name"),
        ("desk_agents:", "lacks a function after the colon"),
        (":triage", "lacks a function after the colon"),
        ("", "lacks a function"),
        ("desk_agents:two words", "isn't the name of a function"),
        ("desk agents:triage", "neither a module's name nor a .py file"),
        ("no_such_module:go", "There's no module 'no_such_module' .*looked for from"),
        ("desk_agents.deeper:go", "no module 'desk_agents.deeper'"),
        ("no_such_file.py:go", "The file no_such_file.py doesn't exist"),
        ("folder/desk_agents:go", "The file folder/desk_agents doesn't exist"),
        ("desk_agents:triagee", "has no function 'triagee'. Did you mean 'triage'?"),
        ("desk_agents:zzz", "no function 'zzz'. Its async functions: triage, escalate"),
        ("desk_agents.py:zzz", "desk_agents.py has no function 'zzz'"),
        ("empty_agents:go", "no function 'go'. It has no async def at all"),
        (
            "desk_agents:plain",
            "is a plain def, and an agent has to be an async def. Its async functions: triage",
        ),
        ("desk_agents:generator", "is a generator function"),
        ("desk_agents:async_generator", "is an async generator function"),
        ("desk_agents:Ticket", "is a class"),
        ("desk_agents:desk", "an object of class Desk with an async __call__"),
        ("desk_agents:waiting", "is a partial"),
        ("desk_agents:NUMBER", "is an int"),
        ("desk_agents:functools", "is a module"),
        ("broken_syntax:go", r"Loading broken_syntax failed with SyntaxError.*broken_syntax.py:2"),
        ("broken_syntax.py:go", r"Loading broken_syntax.py failed with SyntaxError.*broken_syntax.py:2"),
        (
            "broken_import:go",
            r"ModuleNotFoundError: No module named 'no_such_module_of_mine' \(.*broken_import.py:1\)",
        ),
        ("broken_body:go", r"ZeroDivisionError: division by zero \(.*broken_body.py:2\)"),
        ("broken_body.py:go", r"ZeroDivisionError: division by zero \(.*broken_body.py:2\)"),
    ],
)
def test_a_target_that_is_no_agent_is_refused_with_what_it_is(folder: Path, target: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load_agent(target)


def test_a_file_that_is_no_python_source_is_called_that(folder: Path) -> None:
    (folder / "notes.txt").write_text("async def go(): ...")
    for target in ("notes.txt:go", "./notes.txt:go"):
        with pytest.raises(UsageError, match=r"notes.txt isn't Python source: its name has to end in .py"):
            load_agent(target)


def test_a_folder_is_not_a_target(folder: Path) -> None:
    (folder / "package.py").mkdir()
    with pytest.raises(UsageError, match="is a folder"):
        load_agent("package.py:go")


def test_a_file_that_fails_leaves_no_module_behind(folder: Path) -> None:
    with pytest.raises(UsageError):
        load_agent("broken_body.py:go")
    assert "broken_body.py" not in sys.modules
