"""States such as agents have, made of real text: the source files of Python's own standard library.

A coding agent reads files and talks about them, so its history is text of that kind. The pool is the same
on every machine with the same Python. Slices of it start at seeded random places.
"""

from __future__ import annotations

import functools
import random
import sysconfig
from pathlib import Path
from typing import Any

POOL = 12_000_000  # characters; several times what zstd looks back at its default level: repeats don't help


@functools.cache
def pool() -> str:
    """Source text, one file behind the other."""
    texts, total = [], 0
    for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        if "site-packages" in path.parts or "lib2to3" in path.parts:
            continue
        texts.append(path.read_text("utf-8", "replace"))
        total += len(texts[-1])
        if total > POOL:
            break
    return "".join(texts)


class Writer:
    """Makes messages and documents, the same ones for the same seed."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self._number = 0

    def text(self, least: int, most: int) -> str:
        """A slice of real text."""
        size = self._random.randint(least, most)
        at = self._random.randrange(len(pool()) - size)
        return pool()[at : at + size]

    def exchange(self) -> list[dict[str, Any]]:
        """One turn of about 6 KB: a request, the model's call of a tool, its result, the model's answer."""
        self._number += 1
        call = f"call_{self._random.getrandbits(96):024x}"
        place = f"src/module_{self._random.randrange(400)}.py"
        usage = {"input": 900 + 37 * self._number, "output": self._random.randrange(50, 900), "cached": 512}
        arguments = {"path": place, "lines": [self._random.randrange(400), self._random.randrange(400, 900)]}
        return [
            {"role": "user", "content": self.text(80, 600), "id": f"msg_{self._number}"},
            {
                "role": "assistant",
                "content": self.text(40, 300),
                "tool_calls": [{"id": call, "name": "read_file", "arguments": arguments}],
                "usage": usage,
            },
            {"role": "tool", "tool_call_id": call, "content": self.text(800, 8000), "is_error": False},
            {"role": "assistant", "content": self.text(200, 1500), "tool_calls": [], "usage": dict(usage)},
        ]

    def history(self, size: int) -> list[dict[str, Any]]:
        """Messages with about so many characters of text."""
        messages: list[dict[str, Any]] = []
        total = 0
        while total < size:
            turn = self.exchange()
            total += sum(len(message["content"]) + 120 for message in turn)
            messages += turn
        return messages

    def documents(self, size: int) -> dict[str, str]:
        """Files of 70 to 500 KB, with so many characters of text in all."""
        found: dict[str, str] = {}
        total = 0
        while total < size:
            text = self.text(min(70_000, size), min(500_000, max(70_000, size)))
            found[f"document-{len(found)}.txt"] = text
            total += len(text)
        return found

    def vectors(self, size: int) -> Any:
        """An embedding matrix of so many bytes."""
        import numpy

        rows = max(1, size // (4 * 768))
        return (
            numpy.random.default_rng(self._random.randrange(1 << 30))
            .normal(size=(rows, 768))
            .astype("float32")
        )


def state(kind: str, size: int, seed: int = 0) -> dict[str, Any]:
    """What an agent has in its locals: a history, and beside it nothing, documents, or an array."""
    writer = Writer(seed)
    if kind == "history":
        return {"messages": writer.history(size), "documents": {}, "vectors": None}
    if kind == "documents":
        return {
            "messages": writer.history(size // 2),
            "documents": writer.documents(size // 2),
            "vectors": None,
        }
    return {
        "messages": writer.history(size // 20),
        "documents": {},
        "vectors": writer.vectors(size - size // 20),
    }


KINDS = {
    "history": "a message history",
    "documents": "half history, half documents of 70 to 500 KB",
    "array": "a float32 array and some history",
}
