"""Gets control whenever a generator, coroutine or async generator has suspended, with its code unchanged.

A frame can't be frozen while it yields: it still runs. It can be at the next instruction that any other frame
executes. So every yield is noted, with the object whose frame yielded, and at the next instruction (wherever:
in the consumer's loop, in `contextlib`, in an event loop) those that are at rest by then are handed to `act`.
Nothing is missed but what a consumer written in C resumes right away, such as `list(generator)`; those are
counted as `missed`. (`loading` makes the arguments of the commonest of them pass through a line of Python for
that reason.)

3.11 is watched through `sys.settrace` with an event per opcode, later versions through `sys.monitoring`,
which disturbs less.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

import test

from tests.yardstick.exchange import SUSPENDABLE, owner, suspended

Act = Callable[[Any], None]


_TESTS = os.path.dirname(test.__file__)
_MACHINERY = os.path.join(_TESTS, "test_asyncio", "utils.py")  # keeps the time of its loops with a generator
_SUBJECTS = (os.path.dirname(asyncio.__file__), contextlib.__file__)


def is_subject(filename: str) -> bool:
    """Whether code is the tests' own, or of a module written in Python that they test. Other code of the
    library, the test runner and ours are left alone, and their suspensions aren't counted."""
    if filename.startswith("<"):
        return not filename.startswith("<frozen ")
    return filename.startswith((_TESTS, *_SUBJECTS)) and filename != _MACHINERY


@dataclass
class Watch:
    """Calls `act` with every object that has come to rest at a yield or await."""

    act: Act
    suspensions: int = 0
    missed: int = 0
    _pending: dict[int, weakref.ref[Any]] = field(default_factory=dict)
    _skip: dict[CodeType, bool] = field(default_factory=dict)
    _busy: bool = False
    _before: Any = None

    def skips(self, code: CodeType) -> bool:
        """Whether frames of this code aren't watched."""
        return not code.co_flags & SUSPENDABLE or not is_subject(code.co_filename)

    def yielded(self, frame: Any) -> None:
        obj = owner(frame)
        self._pending[id(obj)] = weakref.ref(obj)
        self.suspensions += 1

    def resumed(self, frame: Any) -> None:
        """A frame goes on. If it still stood in the list, nobody but C code ran in between."""
        if self._pending and self._pending.pop(id(owner(frame)), None) is not None:
            self.missed += 1

    def control(self) -> None:
        """Any instruction of any frame."""
        if self._busy:
            return
        self._busy = True
        try:
            for key, ref in list(self._pending.items()):
                obj = ref()
                state = None if obj is None else suspended(obj)
                if obj is not None and state is None:
                    continue  # it yields at this very moment
                del self._pending[key]
                if obj is None or not state:
                    self.suspensions -= 1  # it returned, raised or was dropped: no suspension
                else:
                    self.act(obj)
        finally:
            self._busy = False

    # --- both ways of watching ---------------------------------------------------------------------

    def __enter__(self) -> Watch:
        if sys.version_info >= (3, 12):
            self._monitor()
        else:
            self._before = sys.gettrace()
            sys.settrace(self._traced)
        return self

    def __exit__(self, *error: Any) -> None:
        if sys.version_info >= (3, 12):
            monitoring = sys.monitoring
            monitoring.set_events(_TOOL, 0)
            monitoring.free_tool_id(_TOOL)
        else:
            sys.settrace(self._before)
        self._pending.clear()

    def _traced(self, frame: Any, event: str, _: Any) -> Any:
        code = frame.f_code
        skips = self._skip.get(code)
        if skips is None:
            skips = self._skip[code] = self.skips(code)
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            if not skips:
                self.resumed(frame)
        if self._pending:
            self.control()
        if event == "return" and not skips:
            self.yielded(frame)
        return self._traced

    def _monitor(self) -> None:
        monitoring = sys.monitoring
        events, wanted = monitoring.events, 0
        monitoring.use_tool_id(_TOOL, "snaprt yardstick")

        def instruction(*_: object) -> None:
            if self._pending:
                self.control()

        def yielded(code: CodeType, offset: int, value: object) -> None:
            if not self.skips(code):
                self.yielded(sys._getframe(1))

        def resumed(code: CodeType, *_: object) -> None:
            if self._pending:
                if not self.skips(code):
                    self.resumed(sys._getframe(1))
                self.control()

        for event, callback in (
            (events.INSTRUCTION, instruction),
            # After a test that traced opcodes itself, 3.12 and 3.13 send no INSTRUCTION any more.
            (events.LINE, instruction),
            (events.PY_START, instruction),
            (events.PY_RETURN, instruction),
            (events.PY_YIELD, yielded),
            (events.PY_RESUME, resumed),
            (events.PY_THROW, resumed),
        ):
            monitoring.register_callback(_TOOL, event, callback)
            wanted |= event
        monitoring.set_events(_TOOL, wanted)


_TOOL = 4  # one that no debugger, coverage or profiler takes by custom
