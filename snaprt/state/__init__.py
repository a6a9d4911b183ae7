"""Floor 1, `state`: one dump for everything a run holds, and what can't be in it.

- `pickling` and `unpickling`: `dump` and `load`; the parts of a dump (`parts`), what one dump or load keeps
  (`sessions`)
- `reducers`: the table of how types travel. Filled by `suspended` (frames), `functions`, `caches`, `code`,
  `modules`, `classes`, `generics`, `subclasses`, `dropped`, `exceptions`, `iterators`, `matches`, `contexts`,
  `weak`
- `anchors`: objects that belong to a module, and travel as the place where they hang
- `seeds`: what a dump's memo begins with, and its head; `plain`: values that need no memo
- `patient`: loads of cycles through what is hashed by its contents
- `carriers`: side tables of libraries; `libraries`: locks of theirs that may be made anew
- `handles`, `paths`: what can't travel, and the way to it; the built-in `kinds` stand in `standard_kinds` and
  `package_kinds`
- `resources`: handles whose owner said how to reopen them
- `public`: `dumps`, `loads`, `release`

It knows frames below it, and nothing of runs, records or stores.
"""

from contextvars import Context

from snaprt import frames
from snaprt.state import (  # noqa: F401  # imported for what they register
    caches,
    classes,
    code,
    contexts,
    dropped,
    exceptions,
    functions,
    generics,
    iterator_tools,
    iterators,
    libraries,
    matches,
    subclasses,
    suspended,
    weak,
)
from snaprt.state.modules import by_value, globals_of
from snaprt.state.parts import LEAF, Part
from snaprt.state.pickling import Dump, dump, named
from snaprt.state.public import dumps, loads, release
from snaprt.state.seeds import often
from snaprt.state.suspended import held_frames, make_frame
from snaprt.state.unpickling import load

__all__ = [
    "LEAF",
    "Dump",
    "Part",
    "by_value",
    "dump",
    "dumps",
    "held_frames",
    "load",
    "loads",
    "often",
    "release",
]

often(Context, frames.Shell, make_frame, code.find, globals_of, named, classes.nameless)
often(functions.by_name, functions.fill_cell, functions.unbound)
