"""Why a test can't hold, where a run doesn't tell by itself.

Each reason was found by reading the test, and says what in it a thaw or the agent loop changes. It counts
only while the test fails in the way that was read: `pattern` is looked for in what the failure says, so that
a new fault isn't covered by an old reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

FRAME_OBJECT = (
    "holds a frame object (`gi_frame`, or one in a traceback) across a suspension; a thawed frame has "
    "a new one. Found by a run that keeps the frame object and passes"
)


@dataclass(frozen=True)
class Reason:
    """`module` and `test` are regular expressions for the whole of each."""

    module: str
    test: str
    pattern: str
    why: str


REASONS: tuple[Reason, ...] = (
    Reason(
        "test_generators",
        r"__test__\.syntax",
        r"g\.gi_code is f\.__code__\nExpected:\n    True",
        "asks whether `g.gi_code is f.__code__`; a thawed frame runs a patched copy of that code",
    ),
    Reason(
        "test_raise",
        r"TestTracebackType\.test_attrs",
        r"self\.assertIs\(tb\.tb_frame, sys\._getframe\(\)\)",
        "asks whether the frame object in a traceback is that of the frame which runs; a thawed frame has "
        "a new one",
    ),
    Reason(
        ".*",
        ".*",
        r"^snaprt\.errors\.NotInAgent: ",
        "does what belongs in a tool (a thread, a socket): refused with NotInAgent, by design",
    ),
    Reason(
        r"test_asyncio\..*",
        ".*",
        r"^NotSerialisable: .*(\n.*)*: asyncio\.Task\n +task made by asyncio\.Task itself",
        "makes a task of the C class itself, `asyncio.Task(…)`, which hides its state; refused with the way "
        "that works (`asyncio.create_task`)",
    ),
    Reason(
        ".*",
        ".*",
        r"^NotSerialisable: 1 thing.*\n.*EventLoop\n +event loop: get the running loop anew",
        "holds a second event loop, with its selector, across an await: a handle, refused by design",
    ),
    Reason(
        ".*",
        ".*",
        r"^NotSerialisable: 1 thing.*\n.*local 'saved_details'.*: traceback\n +traceback: keep its text",
        "keeps a traceback object across an await: refused by design (an exception travels, with its "
        "traceback as text)",
    ),
    Reason(
        "test_contextlib_async",
        r".*\.test_async_exit_exception_chaining",
        r"^NotSerialisable: 2 things.*\n.*EventLoop\n.*\n.*local 'saved_details'.*: traceback\n",
        "keeps a traceback object and a second event loop across an await: both refused by design",
    ),
    Reason(
        "test_contextlib_async",
        r".*\.test_contextmanager_traceback",
        r"self\.assertEqual\(len\(frames\), 1\)",
        "counts the entries of `__traceback__` after an await; an exception's traceback travels as text, by "
        "design",
    ),
    Reason(
        r"test_asyncio\.test_futures2",
        r"PyFutureTests\.test_future_traceback",
        r"^NotSerialisable: 1 thing.*\n.*\._exception_tb: traceback\n",
        "makes a task of asyncio's private Python class, which keeps a traceback object: refused by design "
        "(an exception in the state travels, with its traceback as text)",
    ),
)


def known(module: str, test: str, detail: str) -> str | None:
    """The reason for a failure, or None if there is none that fits."""
    for each in REASONS:
        if (
            re.fullmatch(each.module, module)
            and re.fullmatch(each.test, test)
            and re.search(each.pattern, detail, re.MULTILINE)
        ):
            return each.why
    return None
