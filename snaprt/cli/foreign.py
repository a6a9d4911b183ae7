"""Text that isn't ours, on its way to a terminal: shown, never obeyed.

Questions, results, errors and names come from agents, and through them from customers and models. A terminal
takes some characters for commands: they could erase an amount, turn a line around or write the clipboard of
whoever approves. So whatever `Text` is made of, and every text the console prints, has these characters
spelled out, as in `\\x1b`. JSON spells them itself; there the same characters are escaped, and the values
stay exact. What an agent prints by itself goes past us.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import Any, cast

from rich import text as rich

# C0 but tab and newline, DEL, C1, and what overrides the direction of writing.
_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """The text with everything spelled out that a terminal would obey. Lines and tabs stay."""
    return _COMMANDS.sub(_spelled, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """The same where a line is one thing: whoever chose the text begins no line of their own."""
    return " ".join(visible(text).split())


def visible_json(text: str) -> str:
    """The same JSON, with escapes for what `json` leaves as it is; such characters stand only in strings."""
    return _COMMANDS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _spelled(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


class Text(rich.Text):
    """rich's text, of which nothing is obeyed. rich itself drops some of these characters unseen and leaves
    the worst, ESC, as it is."""

    def __init__(self, text: str = "", *more: Any, **options: Any) -> None:
        super().__init__(visible(text), *more, **options)

    def append(self, text: rich.Text | str, style: Any = None) -> Text:
        super().append(visible(text) if isinstance(text, str) else text, style)
        return self

    @classmethod
    def assemble(cls, *parts: Any, **options: Any) -> Text:
        return cast(Text, super().assemble(*parts, **options))  # which begins with a `cls()`

    def join(self, lines: Iterable[rich.Text]) -> Text:
        joined = Text()
        joined.append_text(super().join(lines))
        return joined


class _VisibleLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


def guard_log() -> None:
    """What is logged where nobody set up logging goes to standard error, and holds agents' errors."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_VisibleLines())
