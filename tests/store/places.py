"""Places where a store can lie, for tests that must hold at each of them, and the racers that other
processes run."""

from __future__ import annotations

import json
import secrets
import sys
from typing import Any

from snaprt.errors import AlreadyAnswered, Fenced, RunExists
from snaprt.store import Log, Store
from tests.store.held import KEYRING


def opened(url: str, options: dict[str, Any] | None = None) -> Store:
    """The store at a URL, with the key of the tests."""
    return Store.open(url, keyring=KEYRING, storage_options=options)


def memory_url() -> str:
    """A memory store that no other test uses."""
    return f"memory://{secrets.token_hex(6)}"


def race(log: Log, who: str, rounds: int) -> list[int]:
    """Appends to one run against others; gives the numbers that were won."""
    won: list[int] = []
    for _ in range(rounds):
        try:
            won.append(
                log.append(
                    "result", detail={"by": who}, sections={"values": [who.encode() * 50]}
                ).header.number
            )
        except Fenced:
            log.refresh()
    return won


def race_to_create(store: Store, who: str, rounds: int) -> list[int]:
    """Creates runs that others create too, and answers them; gives which were won."""
    won: list[int] = []
    for turn in range(rounds):
        try:
            store.create(f"new-{turn}").append("start", detail={"by": who})
            won.append(turn)
        except RunExists:
            pass
        try:
            store.log(f"new-{turn}").put_answer("ask-1", who.encode())
            won.append(-turn - 1)
        except AlreadyAnswered:
            pass
    return won


if __name__ == "__main__":  # a racer: URL, options, name, rounds, race; starts when a line comes in
    url, options, who, rounds, which = sys.argv[1:]
    store = opened(url, json.loads(options))
    log = store.log("raced") if which == "append" else None
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(race(log, who, int(rounds)) if log else race_to_create(store, who, int(rounds))))
