"""On a terminal a person sees a live display, in colours unless NO_COLOR says otherwise."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.cli.processes import COMMAND, environment

pty = pytest.importorskip("pty", reason="there are no pseudo-terminals on this system")

COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-7]|9[0-7])(?:;\d+)*m")


def on_terminal(
    *words: str, cwd: Path, typed: str = "", columns: int = 80, **variables: str
) -> tuple[int, str]:
    """Run a command on a pseudo-terminal of its own; returns its exit code and all it wrote."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *words],
        cwd=cwd,
        env=environment(**{"TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "30", **variables}),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    if typed:
        os.write(ours, typed.encode())
    written = b""
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:  # Linux's way to say that the other side is closed
            break
        if not data:
            break
        written += data
    os.close(ours)
    return process.wait(), written.decode()


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_the_plan_and_the_question_are_shown_in_colours(tmp_path: Path) -> None:
    words = ["run", "tests.cli.agents:support", f"ledger={tmp_path / 'l'}", "--run-id", "t"]
    code, text = on_terminal(*words, cwd=tmp_path)
    assert code == 0
    assert COLOUR.search(text)
    assert text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l") > 0, "the cursor is back"
    for said in (
        "started t",
        "✓ look",
        "● ask",
        "○ refund",
        "t suspended",
        "question: Refund A-17?",
        "snaprt resume t",
    ):
        assert said in plain(text)


def test_no_color_is_respected(tmp_path: Path) -> None:
    words = ["run", "tests.cli.agents:support", f"ledger={tmp_path / 'l'}", "--run-id", "t"]
    code, text = on_terminal(*words, cwd=tmp_path, NO_COLOR="1")
    assert code == 0
    assert not COLOUR.search(text)
    for words in (["show", "t"], ["ls"], ["--help"], ["resume", "nobody"]):
        _, text = on_terminal(*words, cwd=tmp_path, NO_COLOR="1")
        assert not COLOUR.search(text), words


def test_a_dumb_terminal_gets_lines(tmp_path: Path) -> None:
    words = ["run", "tests.cli.agents:echo", "--run-id", "t"]
    code, text = on_terminal(*words, cwd=tmp_path, TERM="dumb")
    assert code == 0
    assert "\x1b" not in text


@pytest.mark.parametrize("columns", [24, 200])
def test_any_width_will_do(tmp_path: Path, columns: int) -> None:
    words = ["run", "tests.cli.agents:support", f"ledger={tmp_path / 'l'}", "--run-id", "t"]
    for command in (words, ["show", "t"]):
        code, text = on_terminal(*command, cwd=tmp_path, columns=columns)
        assert code == 0
        assert "question: Refund A-17?" in " ".join(plain(text).split())
        assert "snaprt resume t --answer '{\"approved\": true}'" in plain(text)
    code, text = on_terminal("ls", cwd=tmp_path, columns=columns)
    assert code == 0
    assert max(len(line) for line in plain(text).splitlines()) <= columns


def test_the_tour_asks_the_person_and_follows_the_answer(tmp_path: Path) -> None:
    code, text = on_terminal("demo", cwd=tmp_path, typed="n\n")
    assert code == 0
    assert "Your answer? [Y/n]" in text
    assert "we can't refund this one" in plain(text)
    assert "pay_back" not in plain(text)
