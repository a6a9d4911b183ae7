"""What is frozen: a generator, a coroutine and a chain of five coroutines, each at rest in the middle of
its work.

Plain code without a mark of anybody's. It is written so that every contender can take it: no handled
exception and no `with` (livekit-durable), no value sent in (pyteleport), and each await ends in an object
that pickles.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any


class Pause:
    """An awaitable that suspends once, holds nothing, and pickles: `send` goes on behind it."""

    def __init__(self) -> None:
        self.left = 1

    def __await__(self) -> Any:
        return self

    def __iter__(self) -> Iterator[None]:
        return self

    def __next__(self) -> None:
        if not self.left:
            raise StopIteration
        self.left -= 1


def orders(count: int) -> list[dict[str, Any]]:
    """Rows such as an agent has in hand."""
    return [
        {"id": f"A-{number:04d}", "cents": 137 * number % 9001, "items": ["pen", "ink", number], "open": True}
        for number in range(count)
    ]


# --- one frame: two loops, eleven locals of about 1 KB, two iterators on its stack ----------------


def tally(rows: list[dict[str, Any]], limit: int) -> Generator[int, None, tuple[int, int, str]]:
    """A generator that adds up rows."""
    total, seen, name = 0, {}, "tally of " + "open " * 5 + "orders"
    notes, rate, last = [], 0.25, None
    for row in rows:
        for item in row["items"]:
            seen[item] = seen.get(item, 0) + 1
            total += row["cents"]
            if total < limit:
                last = row
                notes.append(len(seen))
                yield total
    return total, len(notes), f"{name} {rate} {last and last['id']}"


async def tally_slowly(rows: list[dict[str, Any]], limit: int) -> tuple[int, int, str]:
    """The same as a coroutine."""
    total, seen, name = 0, {}, "tally of " + "open " * 5 + "orders"
    notes, rate, last = [], 0.25, None
    for row in rows:
        for item in row["items"]:
            seen[item] = seen.get(item, 0) + 1
            total += row["cents"]
            if total < limit:
                last = row
                notes.append(len(seen))
                await Pause()
    return total, len(notes), f"{name} {rate} {last and last['id']}"


# --- five frames ----------------------------------------------------------------------------------


async def support(customer: str, size: int) -> str:
    """The outermost of five: each holds `size` characters of text and some rows, and waits for the next."""
    letter, history = _text(customer, size), orders(3)
    answers = []
    for topic in ("refund", "delivery"):
        answers.append(await research(topic, letter[:40], size))
    return f"{len(letter)} {len(history)} {answers}"


async def research(topic: str, about: str, size: int) -> str:
    """The second."""
    notes, sources = _text(topic, size), {"policy": orders(2), "shop": orders(1)}
    found = await look_up(topic, len(notes), size)
    return f"{about} {found} {len(sources)}"


async def look_up(topic: str, budget: int, size: int) -> str:
    """The third."""
    page, hits = _text(topic[::-1], size), orders(3)
    total = budget + await weigh(hits, 3, size)
    return f"{len(page)} {total}"


async def weigh(rows: list[dict[str, Any]], factor: int, size: int) -> int:
    """The fourth."""
    reasons = _text("because", size)
    return factor * len(rows) + await decide({row["id"]: row["cents"] for row in rows}, reasons, size)


async def decide(scores: dict[str, int], reasons: str, size: int) -> int:
    """The innermost: it waits in the middle of a loop."""
    draft, best = _text("draft", size), 0
    for row, score in scores.items():
        best = max(best, score + len(row))
        await Pause()
    return best + len(reasons) + len(draft)


def _text(seed: str, size: int) -> str:
    return (f"{seed} and what follows from {seed}; " * (size // len(seed) + 1))[:size]


def at_rest(subject: Any, steps: int) -> Any:
    """The same generator or coroutine after so many suspensions."""
    for _ in range(steps):
        subject.send(None)
    return subject


def finish(subject: Any) -> tuple[int, Any]:
    """How often it suspends from here on, and what it returns."""
    count = 0
    while True:
        try:
            subject.send(None)
        except StopIteration as end:
            return count, end.value
        count += 1
