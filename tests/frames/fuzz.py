"""The sameness fuzzer of frames: does a program notice that its frames are replaced at every suspension?

A random program (see `programs`) runs twice: undisturbed, and with every frame that its coroutine reaches
replaced by a thawed copy each time it suspends. What it traced, yielded and returned, the lines where it
stood, the exceptions with their context and the lines they came by must be the same.

    python -m tests.frames.fuzz --programs 20000 --seed 0

With `--dump` everything that the coroutine reaches is replaced: it goes through the bytes of a dump, and the
old is released before the new is loaded. A program that holds what no dump takes isn't compared, and is
counted by what that was.
"""

from __future__ import annotations

import argparse
import gc
import linecache
import os
import platform
import random
import sys
import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, field
from types import FunctionType, ModuleType, TracebackType
from typing import Any, Literal, TypeAlias

from snaprt import frames
from tests.frames.copier import Copier
from tests.frames.programs import Author
from tests.frames.world import Custom, FuelSpent, Through, World, plain
from tests.state import dumped

SUSPENSIONS = 60  # a program that suspends more often is closed
Way: TypeAlias = Literal["undisturbed", "thawed", "dumped"]
THROWN = (ValueError, KeyError, ZeroDivisionError, RuntimeError, StopAsyncIteration)


@dataclass
class Outcome:
    """What a run showed."""

    events: list[Any] = field(default_factory=list)
    suspensions: int = 0
    frames: int = 0
    refused: str = ""  # what a dump didn't take
    ignored: bool = (
        False  # a generator that was dropped refused to close; when depends on the garbage collector
    )


def standing(root: Any) -> list[Any]:
    """Where the frames along the awaits stand, as the interpreter tells it."""
    found = []
    for item in frames.chain(root):
        frame = next(
            getattr(item, name) for name in ("cr_frame", "gi_frame", "ag_frame") if hasattr(item, name)
        )
        if frame is not None:
            # Up to 3.12 reading f_locals leaves a dict in the frame, which keeps things alive.
            names = sorted(frame.f_locals) if sys.version_info >= (3, 13) else []
            found.append((type(item).__name__, item.__qualname__, frame.f_lineno, names))
    return found


def tracebacks(root: Any) -> list[TracebackType]:
    """Those of the exceptions that hang off a coroutine."""
    found, waiting, seen = [], [root], set()
    while waiting:
        item = waiting.pop()
        if id(item) in seen or isinstance(item, (type, ModuleType, FunctionType, TracebackType)):
            continue
        seen.add(id(item))
        if isinstance(item, BaseException) and item.__traceback__ is not None:
            found.append(item.__traceback__)
        waiting += gc.get_referents(item)
    return found


def run(code: Any, seed: int, way: Way, *, look: bool = True, keep: bool = False) -> Outcome:
    """Run a program to its end, in one of three ways: what happens to its frames at each suspension.

    Half of the programs run as under an event loop, whose hook is told of an async generator that is dropped.
    In the others such a generator is closed on the spot. With `keep` none is dropped before the end, and
    nothing that hangs on the traceback of an exception which was there at a suspension.
    """
    world, outcome = World(seed, keep=keep), Outcome()
    before, complain = sys.get_asyncgen_hooks(), sys.unraisablehook
    sys.unraisablehook = lambda unraisable: setattr(outcome, "ignored", True)
    if seed % 2 or keep:
        sys.set_asyncgen_hooks(lambda generator: world.first.append(generator.__name__), world.drop)
    collecting = gc.isenabled()
    eager = gc.get_threshold()[0] == 1
    if not eager:
        gc.disable()
    try:
        _drive(code, seed, way, look, world, outcome)
        events = [*world.events, ("begun", world.first)]
        if not eager:
            # 3.12.1 crashes where a scheduled collection comes in the middle of one that was asked for.
            gc.collect()  # what hangs in a cycle with a traceback is dropped only now
            if not keep:  # what is kept holds others, or not if they were dropped at the same time
                events.append(("dropped", sorted(world.dropped)))
        outcome.events = events
    finally:
        sys.set_asyncgen_hooks(*before)
        sys.unraisablehook = complain
        if collecting:
            gc.enable()
    return outcome


def _replacing(way: Way, seed: int, world: World, names: dict[str, Any], module: Any) -> Any:
    """What gives a coroutine's replacement and the number of frames that it has; None to leave it."""
    if way == "undisturbed":
        return None
    if way == "dumped":
        return dumped.Dumper(world, names, module).replace
    order = random.Random(seed + 2)

    def thawed(root: Any) -> tuple[Any, int]:
        copier = Copier((Through, Custom))  # it holds frames, and letting go of one programs notice
        return copier.replace(root, order), len(copier.pairs)

    return thawed


def _drive(code: Any, seed: int, way: Way, look: bool, world: World, outcome: Outcome) -> None:
    names = world.names()
    # Where a module can be imported, what it defines travels by reference. Half of the programs are scripts.
    module = dumped.importable(code) if way == "dumped" and seed // 2 % 2 else None
    namespace = {"__name__": "script"} if module is None else vars(module)
    namespace |= names
    exec(code, namespace)
    schedule = random.Random(seed + 1)
    replace = _replacing(way, seed, world, names, module)
    root = namespace["f0"]()
    value: Any = None
    throw: BaseException | None = None
    events = world.events
    while True:
        if world.keep:
            world.kept += tracebacks(root)
        if replace is not None:
            root, count = replace(root)
            outcome.frames += count
        try:
            yielded = root.throw(throw) if throw is not None else root.send(value)
        except StopIteration as stop:
            events.append(("returned", plain(stop.value)))
            break
        except (Exception, FuelSpent, GeneratorExit, BaseExceptionGroup) as error:
            events.append(("raised", plain(error)))
            break
        outcome.suspensions += 1
        value, throw = outcome.suspensions, None
        if type(yielded).__name__ == "Future":
            yielded._asyncio_future_blocking = False
            yielded.set_result(value)
            yielded = "future"
        events.append(("suspended", yielded, standing(root) if look else None))
        chance = schedule.random()
        if chance < 0.06:
            throw = schedule.choice(THROWN)(f"thrown {value}")
        elif chance < 0.07:
            throw = GeneratorExit()
        if chance > 0.985 or outcome.suspensions >= SUSPENSIONS:
            if replace is not None:
                root, _ = replace(root)
            try:
                root.close()
                events.append("closed")
            except (Exception, FuelSpent, GeneratorExit, BaseExceptionGroup) as error:
                events.append(("close raised", plain(error)))
                frames.release(root)
            break


def first_difference(undisturbed: Outcome, replaced: Outcome) -> str | None:
    """None if two runs are the same, else where they part."""
    for at, (one, other) in enumerate(zip(undisturbed.events, replaced.events, strict=False)):
        if one != other:
            return f"event {at}:\n  undisturbed {one}\n  replaced    {other}"
    if len(undisturbed.events) != len(replaced.events):
        return f"{len(undisturbed.events)} events undisturbed, {len(replaced.events)} replaced"
    return None


def check(
    seed: int, way: Way = "thawed", *, look: bool = True, folder: str | None = None
) -> tuple[str | None, Outcome]:
    """Run one program undisturbed and replaced; what differs, if anything, and the replaced run.

    With `folder` the program is a file there, for tools that watch files alone.
    """
    source = Author(seed).program()
    filename = f"<program {seed}>"
    if folder is not None:
        filename = os.path.join(folder, filename)
        with open(filename, "w") as file:
            file.write(source)
    code = compile(source, filename, "exec")
    undisturbed = run(code, seed, "undisturbed", look=look)
    try:
        replaced = run(code, seed, way, look=look)
    except dumped.Refused as refused:
        return None, Outcome(refused=str(refused))
    except Exception:
        return f"replacing failed:\n{traceback.format_exc()}", Outcome()
    replaced.ignored |= undisturbed.ignored
    difference = None if replaced.ignored else first_difference(undisturbed, replaced)
    if difference is not None:
        # The traceback of an exception holds the frames it came through as they were then. So an async
        # generator that hangs on an undisturbed frame may be dropped, and closed, later than on one that was
        # replaced since. A dump leaves tracebacks behind, and what only they hold is dropped with the old
        # graph, not when the exception goes. Where runs differ they are compared as they are when nothing is
        # dropped.
        kept = [run(code, seed, each, look=look, keep=True) for each in ("undisturbed", way)]
        difference = first_difference(*kept)
    return difference, replaced


def observe(how: str) -> None:
    """Have every function watched while programs run."""
    if how == "settrace":

        def tracer(frame: Any, event: str, arg: Any) -> Any:
            frame.f_trace_opcodes = True
            return tracer

        sys.settrace(tracer)
    elif how == "profile":
        sys.setprofile(lambda frame, event, arg: None)
    elif how == "monitoring":
        events = sys.monitoring.events  # type: ignore[attr-defined]  # 3.12 and newer
        tool = 3
        sys.monitoring.use_tool_id(tool, "fuzz")  # type: ignore[attr-defined]
        every = 0
        for name in (
            "PY_START",
            "PY_RESUME",
            "PY_YIELD",
            "PY_RETURN",
            "LINE",
            "INSTRUCTION",
            "JUMP",
            "BRANCH",
            "CALL",
        ):
            every |= getattr(events, name)
            sys.monitoring.register_callback(tool, getattr(events, name), lambda *args: None)  # type: ignore[attr-defined]
        sys.monitoring.set_events(tool, every)  # type: ignore[attr-defined]


def main() -> int:
    """The command line of the fuzzer; exits with 1 if any program differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dump", action="store_true", help="replace all that is reached, by way of a dump")
    parser.add_argument("--gc", type=int, default=0, help="gc threshold; 1 collects all the time")
    parser.add_argument("--observe", choices=("settrace", "profile", "monitoring"))
    parser.add_argument("--folder", help="keep the programs as files there")
    parser.add_argument("--show", action="store_true", help="print the program of --seed and stop")
    parser.add_argument("--stop", type=int, default=5, help="stop after so many differences")
    options = parser.parse_args()
    if options.show:
        print(Author(options.seed).program())
        return 0
    frames.supported()
    warnings.simplefilter("ignore")
    sys.unraisablehook = lambda unraisable: None
    if options.gc:
        gc.set_threshold(options.gc)
    if options.observe:
        observe(options.observe)
    gc.freeze()  # a collection then looks at what the programs made alone
    different = suspensions = replaced = ignored = 0
    refused: Counter[str] = Counter()
    way: Way = "dumped" if options.dump else "thawed"
    begin = time.monotonic()
    for seed in range(options.seed, options.seed + options.programs):
        difference, outcome = check(seed, way, folder=options.folder)
        suspensions += outcome.suspensions
        replaced += outcome.frames
        ignored += outcome.ignored
        refused[outcome.refused] += bool(outcome.refused)
        if difference is not None:
            different += 1
            print(f"program {seed}: {difference}", flush=True)
            if different >= options.stop:
                break
        linecache.clearcache()
    flags = " ".join(f"{name}={value}" for name, value in vars(options).items() if value)
    print(
        f"CPython {platform.python_version()}: {options.programs} programs, {suspensions} suspensions, "
        f"{replaced} frames replaced, {different} different, {ignored} not comparable, "
        f"{sum(refused.values())} refused {dict(+refused)}, "
        f"{time.monotonic() - begin:.0f} s ({flags})"
    )
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
