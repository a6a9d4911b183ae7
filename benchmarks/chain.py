"""Freeze and thaw of a five-frame chain with 10 KB of locals, dump included: goal under 1 ms, and where it
goes.

The whole is `snaprt.loads(snaprt.dumps(coro))`. The parts are measured alone, in the same rounds: the
frames without any bytes, pickling without any frames, and the digest that `dumps` puts before its bytes.
"""

from __future__ import annotations

import hashlib
import pickle
from typing import Any

import snaprt
from benchmarks.frames import TEXT
from benchmarks.measure import interleaved, sample
from benchmarks.programs import at_rest, finish, support
from benchmarks.report import Table, main, ratio, seconds, size
from snaprt import frames, state

GOAL = 1e-3


def run(quick: bool) -> list[Table]:
    """The whole, its two halves, and their parts."""
    coro = at_rest(support("Mrs Jones", TEXT), 1)
    first_dump = sample(lambda: snaprt.dumps(coro))
    data = snaprt.dumps(coro)
    first_load = sample(lambda: snaprt.loads(data))
    assert finish(snaprt.loads(data)) == finish(at_rest(support("Mrs Jones", TEXT), 1))

    chain = [each for each in frames.chain(coro) if hasattr(each, "cr_await")]
    frozen = [frames.freeze(each) for each in chain]
    values = [[value for value in each.values if not hasattr(value, "cr_await")] for each in frozen]
    pickled = pickle.dumps(values, 5)

    def made_and_filled() -> list[Any]:
        made = [frames.make(each.shell, each.code, each.globals) for each in frozen]
        for obj, each in zip(made, frozen, strict=True):
            frames.fill(obj, each.values)
        for obj in made:
            frames.prime(obj)
        return made

    parts = {
        "dump and load": lambda: snaprt.loads(snaprt.dumps(coro)),
        "dump": lambda: snaprt.dumps(coro),
        "- freeze five frames": lambda: [frames.freeze(each) for each in chain],
        "- pickle their locals (bare pickle)": lambda: pickle.dumps(values, 5),
        "- a dump of nothing (fixed cost)": lambda: state.dump(None),
        "- digest of the bytes": lambda: hashlib.blake2b(data, digest_size=16).digest(),
        "load": lambda: snaprt.loads(data),
        "- make, fill and prime five frames": made_and_filled,
        "- unpickle their locals (bare pickle)": lambda: pickle.loads(pickled),
    }
    found = interleaved(parts, 15 if quick else 151)
    found |= {"first dump in a process": first_dump, "first load in a process": first_load}
    whole = found["dump and load"]
    rows = [
        (name, seconds(each.wall), seconds(each.cpu), ratio(each.cpu / whole.cpu))
        for name, each in found.items()
    ]
    notes = (
        f"{len(chain)} frames, locals of {size(len(pickled))}, {size(len(data))} dumped.",
        f"Goal: under {seconds(GOAL)}. {'Met' if whole.wall < GOAL else 'MISSED'}: {seconds(whole.wall)}.",
        "The first dump and load of a process look through the loaded modules and analyse each code object.",
        "What is left of the dump: a digest and a place for each code object, and a look at each object that "
        "isn't a plain builtin, whether it is a handle.",
    )
    columns = ("", "time", "processor time", "of the whole")
    return [Table("A chain of five frames with 10 KB of locals", columns, tuple(rows), notes)]


if __name__ == "__main__":
    main("chain")
