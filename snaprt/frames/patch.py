"""Patched code: a function's own code with a prologue that puts a saved frame back where it stood.

Theory of operation. Every coroutine, generator and async generator starts with `[COPY_FREE_VARS]
[MAKE_CELL]* RETURN_GENERATOR POP_TOP RESUME`. Jumps are relative and none crosses that point, so a prologue
inserted right behind the first RESUME leaves the body byte-identical. The frame's first `send` runs the
prologue, which

1. takes the saved objects out of a box that stands in slot 0 (as an argument, or inside the cell of one),
2. makes the handled exception the handled one (PUSH_EXC_INFO, and what that leaves on the stack is dropped),
3. pushes the value stack, PUSH_NULL for NULLs,
4. stores every bound slot (cells as cell objects, so that sharing survives) and deletes those that start out
   bound but weren't; this overwrites the box, and nothing of ours is left in the frame,
5. pushes a token and jumps to the **original YIELD_VALUE**, which suspends the frame where it stood.

The interpreter so rebuilds its own state; no memory is written. A frame that hadn't started falls from step
4 into its body instead, and a finished one returns at once.

The box stands in slot 0 and not in the constants, for two reasons: patched code can then be shared by all
frames in the same position, which makes a thaw cheap, and the garbage collector sees the box (code objects
hide theirs).

Handlers that keep the instruction index for a re-raise (`lasti`) have it on the stack while an exceptional
`async with` exit awaits. Up to 3.13 it is a plain int and is pushed like a value. From 3.14 on it is a
tagged int that no instruction pushes; there the prologue raises an exception of ours inside a range of the
exception table with the lasti flag, and the interpreter pushes one itself.

From 3.15 on a loop over a list, tuple or string keeps that object and a tagged int, its place, on the stack
instead of an iterator. The prologue then loops over a list of the right length up to that place, which takes
about 20 ns an item, and swaps the saved object in. And calling a generator expression already asks for the
iterator of its argument, which is the box then; the prologue begins with dropping that iterator.

An async generator that is inside an `asend`, `athrow` or `aclose` has to be entered by such an object; the
latter two throw. So its patched code also catches an exception thrown in before the start, and drops it.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from opcode import opmap
from threading import Lock
from types import CodeType
from typing import Any, NoReturn

from snaprt.errors import CodeChanged
from snaprt.frames import assemble, codes
from snaprt.frames.shell import INDEX, LASTI, NULL, VALUE, Shell
from snaprt.frames.table import Table

TOKEN = "snaprt: thawed"  # what a frame yields when its prologue is done

# Patched code kept for reuse. It bounds what a program that makes functions without end can leave behind; an
# agent of a hundred functions that stands at ten awaits in each fits.
CACHE = 1024

_CO_VARARGS, _CO_VARKEYWORDS = 0x4, 0x8
BOX_SLOTS, BOX_HANDLED, BOX_STACK = 0, 1, 2  # indices in a box: the slots' values, the exception, the stack


class _Unwound(Exception):
    """Raised and dropped inside a prologue so that the interpreter pushes an instruction index."""


_UNWOUND = _Unwound()


class Box(list[Any]):
    """The saved objects of a frame on their way into it: [slots' values, handled exception, *stack]."""

    __slots__ = ("driver", "finalizer", "shell")

    shell: Shell
    driver: Any  # the asend, athrow or aclose that enters an async generator
    finalizer: Any

    # From 3.15 on a generator expression asks for the iterator of its argument when it is called.

    def __aiter__(self) -> Box:
        return self

    async def __anext__(self) -> NoReturn:
        raise StopAsyncIteration


@dataclass(frozen=True)
class Origin:
    """How patched code relates to the original; remembered for it by identity."""

    original: CodeType
    at: int  # byte offset of the prologue
    shift: int  # its length in bytes
    extra_slot: bool  # the original has no slot at all, so one was added for the box
    lastis: dict[int, int]  # indices that stand for those of the original, where a shift doesn't tell

    def original_offset(self, offset: int) -> int:
        """Where a byte offset of the patched code lies in the original; negative inside the prologue."""
        if offset >= self.at + self.shift:
            return offset - self.shift
        return offset if offset < self.at else -1

    def original_lasti(self, index: int) -> int:
        """The instruction index of the original for one of the patched code, both in code units."""
        return self.lastis.get(index, index - self.shift // 2)


@dataclass(frozen=True)
class Patched:
    """A patched code object, where it comes from, and how to call a function that has it."""

    code: CodeType
    origin: Origin
    arguments: int  # positional arguments,
    keywords: tuple[str, ...]  # and keyword-only ones
    free_box: bool  # the box goes into the cell of the first free variable, not into the first argument


_cache: OrderedDict[tuple[Any, ...], Patched] = OrderedDict()
_lock = Lock()


def origin(code: CodeType) -> Origin | None:
    """How `code` was patched, or None if it is an original."""
    found: Origin | None = codes.origins.get(code)
    return found


def patched(code: CodeType, shell: Shell, table: Table) -> Patched:
    """The patched code for a frame of `code` in the position of `shell`, made at the first call."""
    key = (
        *(
            id(code),
            shell.status,
            shell.offset,
            shell.slots,
            shell.stack,
            shell.lastis if table.tagged else 0,
        ),
        *(shell.handled, shell.running, tuple(map(bool, shell.indices))),
    )
    with _lock:
        known = _cache.get(key)
        if known is not None:  # it holds `code`, so the id in the key can't have been reused
            _cache.move_to_end(key)
            return known
    made = _patch(code, shell, table)
    with _lock:
        _cache[key] = made
        while len(_cache) > CACHE:
            _cache.popitem(last=False)
    return made


@dataclass
class _Start:
    """How a code object begins."""

    at: int  # byte offset right behind the RESUME where the first `send` comes in
    left: int  # entries of the stack that calling the function leaves for the body: the iterator of a
    # generator expression, from 3.15 on
    bound: set[int]  # slots that are bound before the body starts
    cells: set[int]  # of these, the ones that hold cells


def start_of(code: CodeType, table: Table) -> _Start:
    """Read the prefix of a code object."""
    names = codes.facts(code).names
    bytecode, at, arg = code.co_code, 0, 0
    arguments = code.co_argcount + code.co_kwonlyargcount
    arguments += bool(code.co_flags & _CO_VARARGS) + bool(code.co_flags & _CO_VARKEYWORDS)
    start = _Start(0, 0, set(range(arguments)), set())
    returned = False
    while at < len(bytecode):
        op, arg = bytecode[at], arg << 8 | bytecode[at + 1]
        at += 2
        if op == opmap["EXTENDED_ARG"]:
            continue
        if op == opmap["MAKE_CELL"]:
            start.cells.add(arg)
        elif op == opmap["COPY_FREE_VARS"]:
            start.cells |= set(range(len(names) - arg, len(names)))
        elif op == opmap["RETURN_GENERATOR"]:
            returned = True
        elif op == opmap["GET_ITER"]:
            start.left = 2
        elif op == opmap["GET_AITER"]:
            start.left = 1
        elif op == opmap["RESUME"] and returned:
            start.at = at + 2 * (table.resume - 1)
            start.bound |= start.cells
            return start
        arg = 0
    raise CodeChanged(f"{code.co_qualname} doesn't start as a coroutine or generator does.")


def own_yield(bytecode: bytes, offset: int, table: Table) -> bool:
    """Whether the YIELD_VALUE at `offset` of an async generator is its own `yield`, not one of an await."""
    name, arg = table.wrap
    before = bytecode[offset - 2 : offset]
    return len(before) == 2 and before[0] == opmap[name] and (arg == 0 or before[1] == arg)


def _mismatch(code: CodeType, what: str) -> NoReturn:
    raise CodeChanged(
        f"The frame of {code.co_qualname} doesn't fit its code here: {what}. It was saved with other code."
    )


class _Writer:
    """Collects a prologue: its bytes, the constants it adds, the handlers inside it."""

    def __init__(self, constants: int) -> None:
        self.out = bytearray()
        self.constants: list[Any] = []
        self.base = constants
        self.handlers: list[assemble.Handler] = []  # positions from the start of the prologue

    def put(self, name: str, arg: int = 0, caches: int = 0) -> None:
        self.out += assemble.instruction(name, arg, caches)

    def constant(self, value: Any) -> None:
        places = [place for place, known in enumerate(self.constants) if known is value]
        if not places:
            places = [len(self.constants)]
            self.constants.append(value)
        self.put("LOAD_CONST", self.base + places[0])

    @property
    def units(self) -> int:
        return len(self.out) // 2


def _patch(code: CodeType, shell: Shell, table: Table) -> Patched:
    facts = codes.facts(code)
    start = start_of(code, table)
    if shell.status != "finished" and len(shell.slots) != facts.slots:
        _mismatch(code, f"{len(shell.slots)} local slots were saved, and it has {facts.slots}")
    if shell.status == "suspended":
        if shell.offset not in facts.yields:
            _mismatch(code, f"there is no yield or await at offset {shell.offset}")
        if len(shell.stack) > facts.stacksize:
            _mismatch(
                code, f"{len(shell.stack)} values lay on its stack, and it has room for {facts.stacksize}"
            )

    changes: dict[str, Any] = {}
    arguments, keywords = code.co_argcount, code.co_varnames[: code.co_kwonlyargcount]
    free_box = facts.slots > 0 and facts.slots == len(code.co_freevars)
    if arguments:
        keywords = code.co_varnames[arguments : arguments + code.co_kwonlyargcount]
    elif not keywords and not free_box:
        # No argument that could carry the box: make slot 0 one. (`super()` needs a first argument of the
        # user's to do anything, so it can't tell.)
        arguments = 1
        changes["co_argcount"] = 1
        changes["co_flags"] = code.co_flags & ~(_CO_VARARGS | _CO_VARKEYWORDS)
        if not code.co_varnames:
            name = code.co_cellvars[0] if code.co_cellvars else ".box"
            changes |= {"co_varnames": (name,), "co_nlocals": 1}
    cell = free_box or 0 in start.cells

    writer = _Writer(len(code.co_consts))
    entry = _prologue(writer, code, shell, table, start, cell)
    at, units = start.at // 2, writer.units
    before, behind = assemble.insert_handlers(assemble.read_handlers(code.co_exceptiontable), at, units)
    inside = [h._replace(start=h.start + at, target=h.target + at) for h in writer.handlers]
    if entry is not None:
        before = [assemble.Handler(0, at, at + entry, 0, False)]
    lastis = {}
    for handler, index in zip(inside, shell.lastis, strict=False):
        lastis[handler.start] = index
    new = code.replace(
        co_code=code.co_code[: start.at] + bytes(writer.out) + code.co_code[start.at :],
        co_consts=code.co_consts + tuple(writer.constants),
        co_stacksize=max(code.co_stacksize, len(shell.stack) + max(shell.slots.count(VALUE), 4) + 2),
        co_exceptiontable=assemble.write_handlers([*before, *inside, *behind]),
        co_linetable=assemble.insert_lines(code.co_linetable, at, units),
        **changes,
    )
    origin = Origin(code, start.at, 2 * units, facts.slots == 0, lastis)
    codes.origins.put(new, origin)
    return Patched(new, origin, arguments, keywords, free_box)


def boxed(shell: Shell, table: Table) -> list[str]:
    """The letters of a stack for which the box has something."""
    indices = iter(shell.indices)
    return [
        letter
        for letter in shell.stack
        if letter == VALUE or (letter == LASTI and not table.tagged) or (letter == INDEX and next(indices))
    ]


def _advance(writer: _Writer) -> None:
    """Loop over the list on top of the stack up to the first true item, and leave list and place there.

    No instruction pushes the place in a list, so the interpreter is made to count up to it.
    """
    writer.put("GET_ITER", 0, 1)
    loop = writer.units
    size = {"FOR_ITER": 2, "POP_JUMP_IF_TRUE": 2, "NOT_TAKEN": 1, "JUMP_BACKWARD_NO_INTERRUPT": 1}
    body = sum(size.values())
    writer.put("FOR_ITER", body - 2, 1)
    writer.put("POP_JUMP_IF_TRUE", 4, 1)
    writer.put("NOT_TAKEN")
    writer.put("JUMP_BACKWARD_NO_INTERRUPT", body)
    assert writer.units == loop + body
    writer.put("END_FOR")  # never reached, for an item is true; every FOR_ITER has one
    writer.put("POP_ITER")


def _prologue(
    writer: _Writer, code: CodeType, shell: Shell, table: Table, start: _Start, cell: bool
) -> int | None:
    """Write the prologue; returns where an exception thrown in before the start is taken up, if it is."""
    entry = None
    if shell.status == "finished":
        writer.constant(None)
        writer.put("RETURN_VALUE")
        return None
    if start.left == 2:
        writer.put("POP_ITER")
    elif start.left:
        writer.put("POP_TOP")
    if shell.running:
        writer.constant(TOKEN)  # so that both ways in have one value to drop
        entry = writer.units
        writer.put("POP_TOP")

    name, arg, caches = table.subscript

    def item(index: int) -> None:
        writer.put("LOAD_DEREF" if cell else "LOAD_FAST", 0)
        writer.constant(index)
        writer.put(name, arg, caches)

    if shell.handled:
        item(BOX_HANDLED)
        for op in ("PUSH_EXC_INFO", "POP_TOP", "POP_TOP"):
            writer.put(op)
    index, indices = BOX_STACK, iter(shell.indices)
    for depth, letter in enumerate(shell.stack):
        if letter == NULL:
            writer.put("PUSH_NULL")
        elif letter == LASTI and table.tagged:
            writer.constant(_UNWOUND)
            raising = writer.units
            writer.put("RERAISE", 0)
            writer.handlers.append(assemble.Handler(raising, 1, writer.units, depth, True))
            writer.put("POP_TOP")
        elif letter == INDEX:
            if next(indices):
                item(index)
                index += 1
                _advance(writer)
            else:
                writer.constant(())
                writer.put("GET_ITER", 0, 1)
            writer.put("SWAP", 2)
            writer.put("POP_TOP")
        else:
            item(index)
            index += 1
    count = shell.slots.count(VALUE)
    if count:
        item(BOX_SLOTS)
        writer.put("UNPACK_SEQUENCE", count, 1)
    if cell:
        writer.put("DELETE_DEREF", 0)
    for slot, letter in enumerate(shell.slots):
        if letter == VALUE:
            writer.put("STORE_FAST", slot)
        elif slot in start.bound or slot == 0:  # slot 0 has the box
            writer.put("DELETE_FAST", slot)
    if not shell.slots:
        writer.put("DELETE_FAST", 0)
    if shell.status == "suspended":
        writer.constant(TOKEN)
        if shell.kind == "async_generator" and own_yield(code.co_code, shell.offset, table):
            writer.put(*table.wrap)
        writer.put("JUMP_FORWARD", (shell.offset - start.at) // 2)
    return entry
