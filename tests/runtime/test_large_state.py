"""A run whose locals hold a gigabyte is saved and restored with less than three times that in memory.

    python -m tests.runtime.test_large_state 1000        # in MB; prints both peaks as multiples of the state

One process starts an agent on the kernel, saves it with `Kernel.save` and appends the dump to a log on a
local store; another opens the log, loads the kernel, answers, and the agent says what it held.
"""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy
import pytest

from snaprt.kernel import Answer, Kernel, suspend, tool
from snaprt.records import Keyring
from snaprt.state import reducers
from snaprt.store import Store
from tests.store.memory import peak

PROSE = " ".join(random.Random(1).randbytes(n % 7 + 1).hex() for n in range(50_000))


def paragraph(dice: random.Random, size: int) -> str:
    """So many characters of text; in one of four some that aren't ASCII, so that it takes two bytes each."""
    start = dice.randrange(len(PROSE) - size)
    return dice.choice(("… ", "", "", "")) + PROSE[start : start + size]


async def hoarder(size: int) -> dict[str, Any]:
    """Holds `size` bytes: a third each in bytes, in arrays and in text, large and small, shared and not."""
    dice = random.Random(2)
    numbers = numpy.random.default_rng(3)
    part = size // 12
    document, downloads = dice.randbytes(part), [dice.randbytes(part // 30) for _ in range(90)]
    table = numbers.normal(size=part // 8 * 2)
    matrix = numpy.asfortranarray(numbers.integers(0, 1_000, size=(part // 8_000, 1_000)))
    mask = bytearray(part)
    history = [{"role": "user", "n": n, "content": paragraph(dice, 1_500)} for n in range(part * 3 // 1_500)]
    essay = "\n".join(message["content"] for message in history)[:part]
    shared = {"document": document, "table": table, "last": history[-1]}

    answer = await suspend({"go on": size})

    assert shared["document"] is document
    assert shared["table"] is table
    assert shared["last"] is history[-1]
    digest = hashlib.sha256(document)
    held: list[Any] = [*downloads, table, matrix.T, mask, essay.encode()]
    held += [message["content"].encode() for message in history]
    for piece in held:
        digest.update(piece)
    return {"answer": answer, "held": sum(map(memoryview_size, held)) + part, "digest": digest.hexdigest()}


def memoryview_size(piece: Any) -> int:
    return memoryview(piece).nbytes


def opened(url: str) -> Store:
    return Store.open(url, keyring=Keyring.from_bytes(b"k" * 32))


def save(url: str, size: int) -> None:
    kernel = Kernel("large", {})
    kernel.start(hoarder, (size,))
    kernel.advance()
    assert kernel.status == "running"
    opened(url).create("large").append("suspend", sections={"state": kernel.save().parts})
    saved = peak()
    print(json.dumps({"peak": saved, **finished(kernel)}))


def restore(url: str, size: int) -> None:
    record = opened(url).log("large").newest_state()
    assert record is not None
    kernel = Kernel.load(record.sections["state"])
    del record
    restored = peak()
    print(json.dumps({"peak": restored, **finished(kernel)}))


def finished(kernel: Kernel) -> dict[str, Any]:
    (suspension,) = kernel.open_suspensions()
    kernel.deliver(Answer(suspension, "yes"))
    kernel.advance()
    assert kernel.error is None
    return dict(kernel.value)


def measure(size: int, url: str) -> dict[str, float]:
    """The peaks of saving and restoring, as multiples of what the agent holds."""
    said = {}
    for what in ("save", "restore"):
        # Through the module's name, so that the agent travels by it.
        done = subprocess.run(
            [sys.executable, "-c", f"from {MODULE} import {what}; {what}({url!r}, {size})"],
            capture_output=True,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        assert done.returncode == 0, done.stderr
        said[what] = json.loads(done.stdout)
    peaks = {what: said[what].pop("peak") / said[what]["held"] for what in said}
    assert said["save"] == said["restore"]
    assert said["save"]["answer"] == "yes"
    assert said["save"]["held"] > 0.95 * size
    return peaks


MODULE = "tests.runtime.test_large_state"


@pytest.mark.skipif(sys.platform == "win32", reason="the peak is measured with getrusage")
@pytest.mark.parametrize("size", [200_000_000, pytest.param(1_000_000_000, marks=pytest.mark.slow)])
def test_large_locals_are_saved_and_restored_with_less_than_three_times_their_size(
    size: int, tmp_path: Path
) -> None:
    peaks = measure(size, str(tmp_path))
    assert peaks["save"] < 3, peaks
    assert peaks["restore"] < 3, peaks


@tool(effect="read")
async def look(n: int) -> int:
    return n


async def busy(steps: int) -> str:
    for n in range(steps):
        await look(n)
    return str(await suspend("enough?"))


def parked(steps: int) -> Kernel:
    from snaprt.kernel import Call, Result

    kernel = Kernel("busy", {})
    kernel.start(busy, (steps,))
    commands = kernel.advance()
    while commands and isinstance(commands[0], Call):
        kernel.deliver(Result(commands[0].step, value=commands[0].args[0], started=1.0, ended=2.0))
        commands = kernel.advance()
    return kernel


def test_a_save_asks_no_reducer_for_steps_that_are_over(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[type] = []
    find = reducers.find

    def counting(cls: type) -> Any:
        asked.append(cls)
        return find(cls)

    monkeypatch.setattr(reducers, "find", counting)
    counts = []
    for steps in (10, 300):
        kernel = parked(steps)
        asked.clear()
        parts = kernel.save().detached().parts
        counts.append(len(asked))
        again = Kernel.load(parts)
        assert again.summary() == kernel.summary()
        assert list(again.steps.values()) == list(kernel.steps.values())
        assert len(again.steps) == steps
        kernel.release()
        again.release()
    assert counts[0] == counts[1]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(measure(int(sys.argv[1]) * 1_000_000, folder))
