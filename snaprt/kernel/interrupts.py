"""Tell a Ctrl-C from a `raise KeyboardInterrupt`.

Code of users runs in this process: agents, tools, hooks, validators. What it raises is its own failure,
whatever class that has, and one run's failure is no reason to end the process of all. A Ctrl-C comes as the
same class out of the same code, wherever that stood when the signal arrived, and has to end the process.

They differ in where they were raised: a `raise` of the code itself, or no `raise` at all (CPython's handler
interrupts any instruction), or one in the signal handler of asyncio or trio. This file knows nothing else.
"""

from __future__ import annotations

import dis
from types import TracebackType

_RAISES = frozenset({dis.opmap["RAISE_VARARGS"], dis.opmap["RERAISE"]})

_HANDLERS = ("asyncio.", "trio.", "signal")
"""Modules whose handlers of SIGINT raise it."""


def is_ctrl_c(error: BaseException) -> bool:
    """Whether this is the Ctrl-C of whoever runs the process, alone or in a group."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(is_ctrl_c, error.exceptions))
    return isinstance(error, KeyboardInterrupt) and not _was_raised(error.__traceback__)


def _was_raised(trace: TracebackType | None) -> bool:
    """Whether the innermost line of the traceback is a `raise`, and not one of a signal handler."""
    if trace is None:
        return True  # nobody raised it: it was made and handed on
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code.co_code
    module = str(trace.tb_frame.f_globals.get("__name__"))
    return code[trace.tb_lasti] in _RAISES and not module.startswith(_HANDLERS)
