"""What the guide shows of a terminal is what comes out of it, but for times and sizes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tests.cli.processes import snaprt

GUIDE = Path(__file__).resolve().parents[1] / "docs" / "guide.md"

# What the guide's agents need and each of its readers knows.
IMPORTS = """
import asyncio
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo
import pydantic, snaprt

@snaprt.tool(effect="idempotent")
async def release(order: str) -> str:
    return f"{order} is free again"
"""

# Runs that a shown command is about, and that the guide doesn't start for all to see.
BEFORE = {
    "watch l1": "run agents:librarian --run-id l1",
    "cancel h1 --reason 'the customer left'": "run agents:hold order=A-17 --run-id h1",
}


def sections() -> list[tuple[list[str], list[str]]]:
    """The code and the terminal sessions of each section that has such a session."""
    found = []
    for section in re.split(r"^## ", GUIDE.read_text(), flags=re.MULTILINE):
        sessions = re.findall(r"^```\n(\$ .*?)^```", section, re.DOTALL | re.MULTILINE)
        if sessions:
            found.append((re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE), sessions))
    return found


def told(text: str) -> list[str]:
    """What a session says whenever and wherever it is run. Tasks that work at once may end in any order."""
    for pattern, instead in (
        (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "WHEN"),
        (r"\d\d:\d\d:\d\d", "TIME"),
        (r"\b\d+:\d\d\b", "TOOK"),
        (r"\b\d+ (s|min)\b", "AGE"),
        (r"\b[\d.]+ (B|KB)\b", "SIZE"),
        (r" +", " "),
    ):
        text = re.sub(pattern, instead, text)
    lines = [line.rstrip() for line in text.strip().splitlines()]
    return sorted(lines) if "emitted" in text else lines


def test_the_guides_sessions_are_what_its_code_does(tmp_path: Path) -> None:
    there = sections()
    code = "\n".join([IMPORTS, *(block for blocks, _ in there for block in blocks)])
    (tmp_path / "agents.py").write_text(code)
    sessions = [session for _, found in there for session in found]
    assert len(sessions) >= 6
    for session in sessions:
        for command, shown in re.findall(r"^\$ snaprt (.*)\n((?:(?!\$ ).*\n)*)", session, re.MULTILINE):
            words = shlex.split(command)
            if (before := BEFORE.get(shlex.join(words))) is not None:
                assert snaprt(*before.split(), cwd=tmp_path).returncode == 0
            done = snaprt(*words, cwd=tmp_path)
            assert told(done.stdout + done.stderr) == told(shown), command
