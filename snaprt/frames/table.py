"""What differs between the CPython versions that frames are captured on, in one place.

This file knows numbers and names; it must not know how a frame is frozen or thawed. A version stands in
`TABLES` only after the sameness fuzzer (`tests/frames/fuzz.py`) has proven it, and `table()` refuses every
other interpreter with the reason. Nothing here fails at import, so the rest of the package works anywhere.

How the layout is described: a coroutine, generator or async generator embeds its interpreter frame at the
end of its own struct. `tp_basicsize` counts up to the frame's `localsplus` array, so every field has a
fixed distance from `id(obj) + type(obj).__basicsize__`, and what stands in front of the embedded frame
(handled exception, origin or finalizer, four one-byte flags) has the same order in all versions.
"""

from __future__ import annotations

import gc
import importlib.util
import platform
import struct
import sys
import sysconfig
from dataclasses import dataclass, replace
from typing import Any

from snaprt.errors import UnsupportedInterpreter

# Bytes in front of the embedded frame that are read with it: exc_value, previous_item, origin_or_finalizer,
# then hooks_inited, closed, running_async, frame_state and padding.
LEAD = 32
CLOSED_FLAG = 7  # distance of ag_closed in front of the embedded frame
RUNNING_FLAG = 6  # distance of ag_running_async
STATE_BYTE = 5  # distance of the frame state in front of the embedded frame
EXC_VALUE = 32  # distance of gi_exc_state.exc_value in front of the embedded frame


@dataclass(frozen=True)
class Table:
    """One version's numbers. Offsets are bytes from the start of the embedded frame."""

    magic: int  # importlib's magic number of the final release
    header: int  # size of the frame in front of its localsplus array
    func: int  # f_funcobj
    code: int  # f_code / f_executable
    instr: int  # prev_instr / instr_ptr
    top: int  # stacktop (an int that counts slots) or the stack pointer
    top_is_pointer: bool
    tagged: bool  # slots are tagged references: two low bits, both set is a plain number
    yield_delta: int  # how far behind the YIELD_VALUE the instruction pointer of a suspended frame stands
    created: int
    suspended: tuple[int, ...]
    executing: tuple[int, ...]
    completed: (
        int | None
    )  # the state in which deallocation drops the references and runs no code, if there is
    resume: int  # units of RESUME with its cache
    places: bool  # loops over lists, tuples, strings keep a tagged int on the stack instead of an iterator
    above_lasti: int  # stack entries above the instruction index of an exceptional `async with` exit
    subscript: tuple[str, int, int]  # instruction for `container[index]`: name, argument, cache units
    wrap: tuple[str, int]  # instruction that wraps an async generator's own yield

    def lead(self) -> struct.Struct:
        """What is read in front of `localsplus` at once; `lead_names` has its fields."""
        size = LEAD + self.header
        fields = {0: "Q", 16: "Q", 24: "4b", LEAD + self.code: "Q", LEAD + self.func: "Q"}
        fields |= {LEAD + self.instr: "Q", LEAD + self.top: "Q" if self.top_is_pointer else "i"}
        form, at = "<", 0
        for offset in sorted(fields):
            form += f"{offset - at}x{fields[offset]}"
            at = offset + struct.calcsize("<" + fields[offset])
        return struct.Struct(form + f"{size - at}x")

    def lead_names(self) -> tuple[str, ...]:
        """Names of the fields of `lead`, in its order."""
        places = {LEAD + self.code: "code", LEAD + self.func: "func", LEAD + self.instr: "instr"}
        places |= {0: "exc", 16: "origin", LEAD + self.top: "top"}
        places |= {24: "hooks", 25: "closed", 26: "running", 27: "state"}
        return tuple(places[offset] for offset in sorted(places))


_V312 = Table(
    magic=3531,
    header=72,
    func=16,
    code=0,
    instr=56,
    top=64,
    top_is_pointer=False,
    tagged=False,
    yield_delta=0,
    created=-2,
    suspended=(-1,),
    executing=(0,),
    completed=1,
    resume=1,
    places=False,
    above_lasti=3,
    subscript=("BINARY_SUBSCR", 0, 1),
    wrap=("CALL_INTRINSIC_1", 4),
)
_V311 = replace(
    _V312, magic=3495, func=0, code=32, subscript=("BINARY_SUBSCR", 0, 4), wrap=("ASYNC_GEN_WRAP", 0)
)
_V313 = replace(_V312, magic=3571, yield_delta=2, created=-3, suspended=(-2, -1))
_V314 = replace(
    _V313, magic=3627, header=80, top_is_pointer=True, tagged=True, subscript=("BINARY_OP", 26, 5)
)
_V315 = replace(
    _V314,
    magic=3666,
    created=0,
    suspended=(1, 2),
    executing=(4,),
    completed=None,
    resume=2,
    places=True,
    above_lasti=4,
)

TABLES: dict[tuple[int, int], Table] = {
    (3, 11): _V311,
    (3, 12): _V312,
    (3, 13): _V313,
    (3, 14): _V314,
    (3, 15): _V315,
}

_verdict: Table | str | None = None


def magic() -> int:
    """The interpreter's bytecode magic number."""
    return int.from_bytes(importlib.util.MAGIC_NUMBER[:2], "little")


def gil_build() -> bool:
    """Whether this build has a GIL (a free-threaded one lays frames out differently)."""
    return not sysconfig.get_config_var("Py_GIL_DISABLED")


def _judge() -> Table | str:
    """The table for this interpreter, or why there is none."""
    here = f"{platform.python_implementation()} {platform.python_version()}"
    proven = ", ".join(f"{major}.{minor}" for major, minor in TABLES)
    if sys.implementation.name != "cpython":
        return f"{here} isn't CPython, and frames are captured on CPython {proven} only"
    if not gil_build():
        return f"{here} is a free-threaded build, whose frames have another layout; use a build with the GIL"
    if struct.calcsize("P") != 8 or sys.byteorder != "little":
        return f"{here} isn't a 64-bit little-endian build, and no other is proven"
    table = TABLES.get(sys.version_info[:2])
    if table is None:
        return f"{here} has no proven frame table; frames are captured on CPython {proven}"
    if magic() != table.magic:
        return f"{here} has bytecode magic {magic()}, but the proven one is {table.magic} (a pre-release?)"
    return _probe(table) or table


def _probe(table: Table) -> str | None:
    """Why this build is refused, if it lays out a known generator otherwise than the table says."""
    import ctypes

    def sample(first: object) -> Any:
        yield first

    generator = sample(table)
    for started in (False, True):
        if started:
            next(generator)
        base = id(generator) + type(generator).__basicsize__
        raw = ctypes.string_at(base - table.header - LEAD, table.header + LEAD)
        lead = dict(zip(table.lead_names(), table.lead().unpack(raw), strict=True))
        code = generator.gi_code
        expected_states = table.suspended if started else (table.created,)
        lasti = lead["instr"] - id(code) - type(code).__basicsize__
        function = next(item for item in gc.get_referents(generator) if getattr(item, "__code__", 0) is code)
        ok = (
            lead["state"] in expected_states
            and lead["code"] & ~3 == id(code)
            and lead["func"] & ~3 == id(function)
            and (not started or lasti == generator.gi_frame.f_lasti)
        )
        if not ok:
            return f"this build of {platform.python_version()} lays frames out otherwise than the table"
    return None


def table() -> Table:
    """The proven table of this interpreter; UnsupportedInterpreter with the reason if there is none."""
    global _verdict
    if _verdict is None:
        _verdict = _judge()
    if isinstance(_verdict, str):
        raise UnsupportedInterpreter(f"Can't capture frames here: {_verdict}.")
    return _verdict


def supported() -> None:
    """Return if frames can be captured here; else raise UnsupportedInterpreter with the reason."""
    table()


def interpreter() -> dict[str, Any]:
    """What must be equal on both sides of a frame's way: kept with it, and compared before it is used."""
    return {
        "implementation": sys.implementation.name,
        "version": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "magic": magic(),
        "gil": gil_build(),
        "pointer": struct.calcsize("P") * 8,
    }
