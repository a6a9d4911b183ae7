"""Freezing: read a coroutine, generator or async generator at rest, without touching it.

Two sources are read and must agree. Memory (through ctypes) gives addresses: the slots and stack of the
embedded frame in order, with NULLs. `gc.get_referents` gives objects: the same ones, in the same order,
without NULLs. Every object in the result comes from the second; an address is only ever compared, never
followed. So a layout that isn't what the table says can lead to a refusal, but never to wrong data. This
file must not know how a frame is thawed, except that a thawed frame's code was patched and that one which
hasn't been primed has its values in a box.
"""

from __future__ import annotations

import ctypes
import gc
from opcode import opmap
from types import AsyncGeneratorType, CellType, CodeType, CoroutineType, GeneratorType
from typing import Any, NamedTuple, NoReturn

from snaprt.errors import NotCapturable
from snaprt.frames import codes, patch
from snaprt.frames.patch import Box
from snaprt.frames.shell import INDEX, LASTI, NULL, VALUE, Frozen, Kind, Shell
from snaprt.frames.table import LEAD, Table, table

KINDS: dict[type, Kind] = {
    CoroutineType: "coroutine",
    GeneratorType: "generator",
    AsyncGeneratorType: "async_generator",
}
_CODE_SIZE = CodeType.__basicsize__  # where the instructions start in a code object


class Lead(NamedTuple):
    """The fields in front of localsplus, by the names of `Table.lead_names`."""

    exc: int
    origin: int
    hooks: int
    closed: int
    running: int
    state: int
    code: int
    func: int
    instr: int
    top: int


_readers: dict[Table, tuple[Any, tuple[int, ...]]] = {}


def read_lead(obj: Any, numbers: Table) -> Lead:
    """The fields of a frame's object, read in one go."""
    reader = _readers.get(numbers)
    if reader is None:
        names = numbers.lead_names()
        reader = _readers[numbers] = (
            numbers.lead().unpack,
            tuple(names.index(name) for name in Lead._fields),
        )
    unpack, order = reader
    size = LEAD + numbers.header
    fields = unpack(ctypes.string_at(id(obj) + type(obj).__basicsize__ - size, size))
    return Lead(*[fields[index] for index in order])


def code_of(obj: Any) -> CodeType:
    """The code that a frame's object runs (a patched one if it was thawed)."""
    kind = type(obj)
    code: CodeType = (
        obj.cr_code if kind is CoroutineType else obj.gi_code if kind is GeneratorType else obj.ag_code
    )
    return code


def _refuse(obj: Any, why: str) -> NoReturn:
    name = getattr(obj, "__qualname__", type(obj).__name__)
    raise NotCapturable(f"Can't freeze {KINDS.get(type(obj), type(obj).__name__)} {name}: {why}.")


def freeze(obj: Any) -> Frozen:
    """The frame of a coroutine, generator or async generator that isn't running, as plain shell and values.

    Doesn't disturb `obj`. Raises NotCapturable if it runs, is of another type, or can't be read with
    certainty; UnsupportedInterpreter where no frame can be read.
    """
    numbers = table()
    seen = survey(obj, numbers)
    if seen is None:
        return _finished(obj, numbers)
    lead, code, letters, values = seen.lead, seen.code, seen.letters, list(seen.values)
    kind, origin, facts = KINDS[type(obj)], patch.origin(code), codes.facts(code)
    original = code if origin is None else origin.original
    created = lead.state == numbers.created
    if created and origin is not None:
        return _boxed(obj, original, seen)
    slots, stack = letters[: facts.slots], letters[facts.slots :]
    if origin is not None and origin.extra_slot:
        if slots != NULL:
            _refuse(obj, "the slot that thawing added isn't empty")
        slots = ""
    offset, place = 0, 0
    if created:
        if lead.exc or (stack and len(stack) != patch.start_of(code, numbers).left):
            _refuse(obj, "it hasn't started, and yet values lie on its stack")
    else:
        place = lead.instr - id(code) - _CODE_SIZE - numbers.yield_delta
        if place not in facts.yields:
            _refuse(obj, f"it doesn't stand at a yield or await (offset {place})")
        offset = place if origin is None else origin.original_offset(place)
        if offset < 0:
            _refuse(obj, "it stands inside the prologue of a thaw")
    stack, values, lastis, indices = _stack(obj, facts, place, stack, values, seen.tags, numbers)
    if origin is not None:
        lastis = tuple([origin.original_lasti(index) for index in lastis])
    is_async = kind == "async_generator"
    shell = Shell(
        kind=kind,
        status="created" if created else "suspended",
        name=obj.__name__,
        qualname=obj.__qualname__,
        offset=offset,
        slots=slots,
        stack=stack,
        lastis=lastis,
        indices=indices,
        handled=seen.handled is not None,
        hooks=is_async and bool(lead.hooks),
        closed=is_async and bool(lead.closed),
        running=is_async and bool(lead.running),
        finalizer=seen.finalizer is not None,
    )
    namespace = seen.function.__globals__
    return Frozen(shell, original, namespace, tuple(values), seen.handled, plain_finalizer(seen.finalizer))


class Survey(NamedTuple):
    """What memory and the garbage collector agree on about a frame that isn't finished."""

    lead: Lead
    code: CodeType
    words: list[int]  # localsplus as it lies in memory
    letters: str  # its pattern
    tags: list[int]  # the tagged ints in it
    function: Any
    values: list[Any]  # the objects in it, in order
    handled: BaseException | None
    finalizer: Any


def survey(obj: Any, numbers: Table) -> Survey | None:
    """Read a frame and cross-check it; None if it is finished, NotCapturable if it can't be read now."""
    if type(obj) not in KINDS:
        _refuse(obj, "only coroutines, generators and async generators have a frame of their own")
    lead = read_lead(obj, numbers)
    if lead.state in numbers.executing:
        _refuse(obj, "it is running now; only a frame that waits can be frozen")
    if lead.state not in numbers.suspended and lead.state != numbers.created:
        return None
    code = code_of(obj)
    facts = codes.facts(code)
    base = id(obj) + type(obj).__basicsize__
    count = (lead.top - base) // 8 if numbers.top_is_pointer else lead.top
    if lead.code & ~3 != id(code) or not facts.slots <= count <= facts.slots + facts.stacksize:
        _refuse(obj, "its memory isn't laid out as on a proven interpreter")
    words = list(memoryview(ctypes.string_at(base, 8 * count)).cast("Q"))
    letters, addresses, tags = _letters(words, numbers)
    finalizer_address = lead.origin if type(obj) is AsyncGeneratorType else 0
    expected = [lead.func & ~3, id(code), *addresses, *((lead.exc,) if lead.exc else ())]
    referents = gc.get_referents(obj)
    tail = referents[-len(expected) :]
    if list(map(id, tail)) != expected or (finalizer_address and id(referents[0]) != finalizer_address):
        _refuse(obj, "what its memory says and what the garbage collector says differ")
    return Survey(
        *(lead, code, words, letters, tags, tail[0]),
        values=tail[2 : 2 + len(addresses)],
        handled=tail[-1] if lead.exc else None,
        finalizer=referents[0] if finalizer_address else None,
    )


def _finished(obj: Any, numbers: Table) -> Frozen:
    """A frame that has returned or raised: nothing is left of it but its code and its names."""
    lead, kind = read_lead(obj, numbers), KINDS[type(obj)]
    is_async = kind == "async_generator"
    shell = Shell(
        *(kind, "finished", obj.__name__, obj.__qualname__),
        hooks=is_async and bool(lead.hooks),
        closed=is_async and bool(lead.closed),
    )
    return Frozen(shell, codes.original_code(code_of(obj)), {}, ())


def _letters(words: list[int], numbers: Table) -> tuple[str, list[int], list[int]]:
    """The pattern of the slots, the addresses of the objects among them, and the tagged ints."""
    if not numbers.tagged:
        return "".join([VALUE if word else NULL for word in words]), [word for word in words if word], []
    letters, addresses, tags = "", [], []
    for word in words:
        if word & 3 == 3:
            letters += LASTI
            tags.append(word >> 2)
        elif word & ~3:
            letters += VALUE
            addresses.append(word & ~3)
        else:
            letters += NULL
    return letters, addresses, tags


class Stack(NamedTuple):
    """A value stack whose plain numbers are told apart from values."""

    letters: str
    values: list[Any]  # of the frame, slots included
    lastis: tuple[int, ...] = ()
    indices: tuple[int, ...] = ()


def _stack(
    obj: Any, facts: codes.Facts, place: int, letters: str, values: list[Any], tags: list[int], numbers: Table
) -> Stack:
    """Tell instruction indices and places in lists from values.

    A frame has an instruction index on its stack only while it awaits the `__aexit__` of an `async with` that
    an exception ends: below the awaitable lie the exception, the one before it, and the index. Any other
    tagged int is the place of a loop in the list, tuple or string right below it.
    """
    exit_at = -1
    if exceptional_exit(facts.bytecode, place):
        exit_at = len(letters) - numbers.above_lasti - 1
        above = (VALUE * 3 + NULL)[: numbers.above_lasti]
        if exit_at < 0 or letters[exit_at + 1 :] != above:
            _refuse(obj, "the instruction index of its exceptional exit isn't where it should be")
    if exit_at < 0 and not tags:
        return Stack(letters, values)
    if not numbers.tagged:
        position = len(values) - 4  # the three above it can't be NULL
        lasti = values[position]
        if letters[exit_at] != VALUE or type(lasti) is not int:
            _refuse(obj, "the instruction index of its exceptional exit isn't where it should be")
        letters = letters[:exit_at] + LASTI + letters[exit_at + 1 :]
        return Stack(letters, values[:position] + values[position + 1 :], (lasti,))
    lastis, indices, numbered = [], [], iter(tags)
    pattern = ""
    for at, letter in enumerate(letters):
        if letter == LASTI and at != exit_at:
            indices.append(next(numbered))
            if not numbers.places or pattern[-1:] != VALUE or indices[-1] > _FAR:
                _refuse(obj, "a number lies on its stack where none is expected")
            letter = INDEX
        elif letter == LASTI:
            lastis.append(next(numbered))
        pattern += letter
    if len(lastis) != (exit_at >= 0):
        _refuse(obj, "the instruction index of its exceptional exit isn't where it should be")
    return Stack(pattern, values, tuple(lastis), tuple(indices))


# What may stand between GET_AWAITABLE and the YIELD_VALUE of an await (0 is a cache).
_BEFORE_YIELD = {0, *(opmap[name] for name in ("SEND", "LOAD_CONST", "EXTENDED_ARG", "PUSH_NULL"))}
_BEFORE_YIELD.add(opmap.get("LOAD_COMMON_CONSTANT", 0))

_FAR = 1 << 48  # no sequence is longer


def exceptional_exit(bytecode: bytes, place: int) -> bool:
    """Whether the YIELD_VALUE at `place` awaits the exit of an `async with` that an exception ends."""
    at = place - 2
    while at > 0 and bytecode[at] in _BEFORE_YIELD:
        at -= 2
    if at <= 0 or bytecode[at] != opmap["GET_AWAITABLE"]:
        return False
    at -= 2
    while at > 0 and bytecode[at] == 0:
        at -= 2
    return bytecode[at] == opmap["WITH_EXCEPT_START"]


def find_box(values: list[Any]) -> Box | None:
    """The box among the slots of a frame that was made but hasn't been primed."""
    for value in values:
        if type(value) is CellType:
            try:
                value = value.cell_contents
            except ValueError:
                continue
        if type(value) is Box:
            return value
    return None


def _boxed(obj: Any, code: CodeType, seen: Survey) -> Frozen:
    """The frozen frame of an object that was made, whose values still lie in its box."""
    box = find_box(seen.values)
    if box is None or not box:
        _refuse(obj, "it was made but not filled, so it has no values yet")
    shell = box.shell._replace(name=obj.__name__, qualname=obj.__qualname__)
    stack = list(box[patch.BOX_STACK :])
    letters = patch.boxed(shell, table())
    stack = [value for value, letter in zip(stack, letters, strict=True) if letter == VALUE]
    return Frozen(
        *(shell, code, seen.function.__globals__, (*box[patch.BOX_SLOTS], *stack)),
        *(box[patch.BOX_HANDLED], plain_finalizer(box.finalizer)),
    )


class Finalizer:
    """Stands as the finalizer of a thawed async generator until, and after, the real one is known."""

    __slots__ = ("target",)

    def __init__(self) -> None:
        self.target: Any = None

    def __call__(self, generator: Any) -> None:
        if self.target is not None:
            self.target(generator)


def plain_finalizer(finalizer: Any) -> Any:
    """The loop's own finalizer, also where ours stands in for it."""
    return finalizer.target if type(finalizer) is Finalizer else finalizer
