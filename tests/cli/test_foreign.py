"""What customers, models and agents write reaches a terminal as text, never as a command to it."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pytest
from rich.table import Table

from snaprt import cli
from snaprt.cli.foreign import Text, guard_log, visible, visible_json
from tests.cli.processes import lines, snaprt
from tests.cli.test_terminal import on_terminal
from tests.cli.test_views import shown

OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

EVIL = "EUR 9999\x1b[2K\x1b[1A\x1b]52;c;ZXZpbA==\x07\r\x9b8m\x7f\u202e\u2066\nsnaprt: forged"
SPELLED = r"EUR 9999\x1b[2K\x1b[1A\x1b]52;c;ZXZpbA==\x07\x0d\x9b8m\x7f\u202e\u2066"

AGENTS = f"""
import asyncio
import snaprt

EVIL = {EVIL!r}

@snaprt.tool(effect="read")
async def read(fail):
    if fail:
        raise ValueError(EVIL)
    return EVIL

async def asks():
    snaprt.plan(EVIL).start(EVIL, EVIL)
    snaprt.emit(EVIL)
    snaprt.emit([EVIL])
    await read(False)
    return await snaprt.suspend({{"text": EVIL, EVIL: [EVIL], "answers": [EVIL]}})

async def returns():
    return EVIL

async def returns_many():
    return [EVIL, {{EVIL}}]

async def fails():
    async def lost():
        raise KeyError(EVIL)
    task = asyncio.create_task(lost())
    await asyncio.sleep(0)
    del task
    await read(True)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "evil.py").write_text(AGENTS)
    return tmp_path


@pytest.mark.parametrize("agent", ["asks", "returns", "returns_many", "fails"])
def test_nothing_that_an_agent_says_is_obeyed_by_the_terminal(folder: Path, agent: str) -> None:
    for words in (
        ["run", f"evil.py:{agent}", "--run-id", "r", "--debug"],
        ["show", "r"],
        ["ls"],
        ["watch", "r", "--no-follow"],
        ["answer", "r", '"x"', "--suspension", "\x1b[2J"],
        ["cancel", "r", "--reason", "\x1b[2J"],
        ["show", "r"],
        ["ls", "--json"],
        ["watch", "r", "--no-follow", "--json"],
    ):
        done = snaprt(*words, cwd=folder)
        said = done.stdout + done.stderr
        assert not OBEYED.search(said), (words, said)
        if words[0] == "run":
            assert SPELLED.partition("]52")[0] in said  # what follows repr spells in its own way
        if words[0] == "watch" and "--json" not in words:
            assert "\nsnaprt: forged" not in said


def test_a_live_display_spells_them_too(folder: Path) -> None:
    for words in (["run", "evil.py:asks", "--run-id", "r"], ["show", "r"], ["ls"]):
        _, text = on_terminal(*words, cwd=folder, columns=200)
        assert "\x1b]52" not in text
        assert "\x9b" not in text
        assert "\u202e" not in text
    assert r"\x1b]52" in on_terminal("show", "r", cwd=folder, columns=200)[1]


def test_json_keeps_values_exact_and_its_bytes_harmless(folder: Path) -> None:
    done = snaprt("run", "evil.py:returns", "--json", cwd=folder)
    assert lines(done)[-1]["result"] == EVIL
    assert not OBEYED.search(done.stdout)
    assert json.loads(visible_json(json.dumps(EVIL, ensure_ascii=False))) == EVIL


@pytest.mark.parametrize("code", [0, 7, 8, 11, 12, 13, 27, 127, 0x80, 0x9B, 0x202A, 0x202E, 0x2066, 0x2069])
def test_each_command_is_spelled_wherever_a_text_is_made_of_it(code: int) -> None:
    text = f"a{chr(code)}b"
    spelled = f"a\\x{code:02x}b" if code < 256 else f"a\\u{code:04x}b"
    assert visible(text) == spelled
    grid = Table.grid()
    grid.add_row(Text.assemble(text, (text, "bold")).append(text), Text(" ").join([Text(text), Text(text)]))
    assert shown(grid).rstrip() == spelled * 3 + f"{spelled} {spelled}"


def test_lines_tabs_and_every_other_script_stay_as_they_are() -> None:
    text = "one\n\ttwo Grüße שלום 🏴\U000e0067\U000e007f \u200f"
    assert visible(text) == text
    assert visible("one\r\ntwo") == "one\ntwo"


def test_what_nobody_set_up_logging_for_is_logged_visibly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "lastResort", logging.Handler())
    guard_log()
    assert logging.lastResort is not None
    record = logging.makeLogRecord({"msg": "failed: %s", "args": ("\x1b[2J",)})
    assert logging.lastResort.format(record) == r"failed: \x1b[2J"


def test_no_part_of_the_command_line_makes_text_past_that() -> None:
    for file in Path(cli.__file__).parent.glob("*.py"):
        if file.name != "foreign.py":
            assert not re.search(r"rich(\.text| import text)", file.read_text()), file.name
