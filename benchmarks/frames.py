"""Freezing and thawing one frame, and five, against the others that can.

The same program stands at the same place with the same locals for each. *Freeze* gives an object in
memory, and *thaw* makes a new generator or coroutine of it, which shares its locals. *Dump* and *load*
are the same through bytes: freeze and pickle; unpickle, thaw, and go on to the next suspension
(pyteleport's puts its values back only then, so its thaw alone is too small a figure). Before anything is
timed, what each contender restored is run to its end and compared with the undisturbed program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import peers
from benchmarks.measure import interleaved
from benchmarks.peers import Contender, Missing
from benchmarks.programs import at_rest, finish, orders
from benchmarks.report import Table, main, ratio, seconds

TALLY = (orders(8), 20_000)
TEXT = 1_900  # characters a frame of the chain holds; with its rows, five hold 10 KB when pickled
Make = Callable[[Contender], Any]

SUBJECTS: dict[str, tuple[bool, Make]] = {
    "generator": (False, lambda who: at_rest(who.programs.tally(*TALLY), 5)),
    "coroutine": (True, lambda who: at_rest(who.programs.tally_slowly(*TALLY), 5)),
    "chain of five coroutines": (True, lambda who: at_rest(who.programs.support("Mrs Jones", TEXT), 1)),
}


def step(subject: Any) -> Any:
    """On to the next suspension."""
    subject.send(None)
    return subject


def proven(who: Contender, make: Make, *, bytes_only: bool) -> str | None:
    """What is wrong with what a contender restores, or None."""
    expected = finish(make(who))
    try:
        restored = [who.loads(who.dumps(make(who)))]
        if not bytes_only:
            restored.append(who.thaw(who.freeze(make(who))))
        same = all(finish(each) == expected for each in restored)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None if same else "it went on differently from the undisturbed program"


def times(
    who: Sequence[Contender], make: Make, *, bytes_only: bool, rounds: int
) -> dict[str, dict[str, float]]:
    """Processor seconds by way and contender: nothing here waits or uses a second core."""
    at = {each.name: make(each) for each in who}
    frozen = {} if bytes_only else {each.name: each.freeze(at[each.name]) for each in who}
    dumped = {each.name: each.dumps(at[each.name]) for each in who}
    ways: dict[str, Callable[[Contender], Callable[[], Any]]] = {
        "freeze": lambda each: lambda: each.freeze(at[each.name]),
        "thaw": lambda each: lambda: each.thaw(frozen[each.name]),
        "dump": lambda each: lambda: each.dumps(at[each.name]),
        "load": lambda each: lambda: step(each.loads(dumped[each.name])),
    }
    chosen = ("dump", "load") if bytes_only else tuple(ways)
    found = {way: interleaved({each.name: ways[way](each) for each in who}, rounds) for way in chosen}
    return {way: {name: times.cpu for name, times in by_name.items()} for way, by_name in found.items()}


def run(quick: bool) -> list[Table]:
    """One table with a row for each subject and contender."""
    rounds = 15 if quick else 151
    everybody = [peers.ours(), peers.livekit_durable(), peers.pyteleport()]
    notes = [
        f"{each.name} isn't in the table: {each.why}." for each in everybody if isinstance(each, Missing)
    ]
    here = [each for each in everybody if isinstance(each, Contender)]
    rows = []
    for subject, (is_coroutine, make) in SUBJECTS.items():
        taking = []
        bytes_only = subject.startswith("chain")  # one frame at a time means nothing for a chain
        for each in here:
            if is_coroutine and not each.coroutines:
                notes.append(f"{each.name} has no row for {subject}: it knows generators only.")
            elif wrong := proven(each, make, bytes_only=bytes_only):
                notes.append(f"{each.name} has no row for {subject}: {wrong}.")
            else:
                taking.append(each)
        found = times(taking, make, bytes_only=bytes_only, rounds=rounds)
        mine = taking[0].name
        for each in taking:
            cells = []
            for way in ("freeze", "thaw", "dump", "load"):
                if way not in found:
                    cells.append("")
                    continue
                value = found[way][each.name]
                against = "" if each.name == mine else f" ({ratio(value / found[way][mine])})"
                cells.append(seconds(value) + against)
            rows.append((f"{subject}, {each.name}", *cells))
    notes.insert(
        0,
        "Processor time, medians. In brackets: how many times what snaprt takes, in the same run.",
    )
    notes.append(
        "snaprt's dump and load include digests of the code and of the bytes, and a check of every object "
        "for handles; the others have none of these."
    )
    return [
        Table("One frame, and a chain", ("", "freeze", "thaw", "dump", "load"), tuple(rows), tuple(notes))
    ]


if __name__ == "__main__":
    main("frames")
