"""Timing that stays fair on a noisy machine.

Contenders are interleaved: each round runs every one of them once, in another order, so that a slow second of
the machine hits all. A figure is the median over the rounds, and ratios are taken between medians of the same
run. The garbage collector stays on, as it is in a program, and is emptied before each sample. What a call
makes is kept until its clock has stopped, so dropping it isn't measured.

This file doesn't know what is measured.
"""

from __future__ import annotations

import gc
import random
import statistics
from collections.abc import Callable, Mapping
from time import perf_counter, process_time
from typing import Any, NamedTuple

Call = Callable[[], Any]

# Seconds of a sample. Much shorter, and it says more about the clock than about the call; longer, and on a
# busy machine hardly any sample goes undisturbed.
SHORTEST = 0.001
MANY = 5  # calls of a sample, at least, where they are short: the first ones run with cold caches
MOST_CALLS = 200  # of one sample: what they make is kept until its end


class Times(NamedTuple):
    """Seconds for one call: by the clock on the wall, and of all processor cores together."""

    wall: float
    cpu: float


def interleaved(contenders: Mapping[str, Call], rounds: int) -> dict[str, Times]:
    """Times of one call of each contender: the medians of `rounds` samples, taken in turn.

    Each is called a few times beforehand, and then as often per sample as makes it long enough.
    """
    gc.collect()
    gc.freeze()  # what is there already is nobody's garbage: emptying the collector is quick then
    counts = {name: _count(call) for name, call in contenders.items()}
    samples: dict[str, list[Times]] = {name: [] for name in contenders}
    order = list(contenders.items())
    for turn in range(rounds):
        random.Random(turn).shuffle(order)  # so that nobody always follows the same one
        for name, call in order:
            samples[name].append(sample(call, counts[name]))
    gc.unfreeze()
    return {
        name: Times(*(statistics.median(column) for column in zip(*taken, strict=True)))
        for name, taken in samples.items()
    }


def _count(call: Call) -> int:
    seconds = min(sample(call).wall for _ in range(2))
    if seconds > SHORTEST:
        return 1
    seconds = min(seconds, *(sample(call).wall for _ in range(3)))
    return max(MANY, min(MOST_CALLS, int(SHORTEST / max(seconds, 1e-7)) + 1))


def sample(call: Call, count: int = 1) -> Times:
    """Times of one call, as the mean of `count` in a row."""
    gc.collect()
    if count > 1:
        call()  # or whoever follows the slowest contender would pay for the caches that it filled
    made = [None] * count
    cpu, wall = process_time(), perf_counter()
    for index in range(count):
        made[index] = call()
    return Times((perf_counter() - wall) / count, (process_time() - cpu) / count)
