"""Names for the values on a suspended frame's stack, for people.

A value on the stack has no variable: it is an argument waiting for an `await` further right, the
iterator of a loop, the exit of an open `with`. Its name is the expression that made it. This file knows
bytecode, source lines and nothing of handles or pickling; it never looks at the values.

How it works: the instructions are run over a stack of *who made it* instead of values, with the stack
effects that `dis` gives. Which operands an instruction consumes follows from its effect, except for the
few in `_CONSUMES`. `dis` isn't a promise, so the caller's real stack depth has the last word: if it
differs from ours the answer is None, and the caller says less rather than something wrong.
"""

from __future__ import annotations

import ast
import dis
import itertools
import linecache
import textwrap
from types import CodeType

# (operands taken, results given) where the rule below would be wrong about which operands stay.
_CONSUMES = {
    "BEFORE_WITH": (1, 2),
    "BEFORE_ASYNC_WITH": (1, 2),
    "LOAD_METHOD": (1, 2),
    "LOAD_SPECIAL": (1, 2),
    "RETURN_GENERATOR": (0, 1),  # 3.11 and 3.12 count it as nothing, but a POP_TOP follows
    "FOR_ITER": (0, 1),
    "SEND": (1, 1),
    "COPY": (0, 1),
    "GET_ANEXT": (0, 1),
    "PUSH_EXC_INFO": (0, 1),
    "LOAD_COMMON_CONSTANT": (0, 1),
}
_PUTS_NOTHING = (
    "STORE_",
    "POP_",
    "DELETE_",
    "LIST_APPEND",
    "LIST_EXTEND",
    "SET_",
    "MAP_ADD",
    "DICT_",
    "END_FOR",
    "FOR_ITER",
)
_ENDS = ("RETURN_VALUE", "RETURN_CONST", "RERAISE", "RAISE_VARARGS")
_NEVER_FALLS = (*_ENDS, "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP")
_WITH = ("BEFORE_WITH", "BEFORE_ASYNC_WITH", "LOAD_SPECIAL")
_BETWEEN = (*_WITH, "GET_ITER", "GET_AITER", "COPY", "SWAP")
_LOOPS = ("GET_ITER", "GET_AITER", "GET_YIELD_FROM_ITER")


def line_at(code: CodeType, offset: int) -> int:
    """The source line of the instruction at `offset`; the first line of the code if it has none."""
    found = None
    for start, end, line in code.co_lines():
        if start <= offset < end:
            return line or found or code.co_firstlineno
        if line is not None and start <= offset:
            found = line
    return code.co_firstlineno


def operand_names(code: CodeType, offset: int, depth: int) -> list[str] | None:
    """What made each of the `depth` values on the stack of a frame that stands at the YIELD_VALUE at
    `offset`, bottom first; None if the analysis and the real stack disagree."""
    instructions = {ins.offset: ins for ins in dis.get_instructions(code)}
    makers = _makers(code, instructions, offset)
    if makers is None or len(makers) != depth:
        return None
    names = []
    for maker in makers:
        before = maker
        while before in instructions and instructions[before].opname in _BETWEEN:
            before = max((at for at in instructions if at < before), default=-1)
        names.append(_describe(code, instructions[maker], instructions.get(before, instructions[maker])))
    if names and instructions[max(at for at in instructions if at < offset)].opname == "SEND":
        text = _source(code, instructions[makers[-1]].positions)
        names[-1] = f"awaited {text or 'value'}"
    return names


def _makers(code: CodeType, instructions: dict[int, dis.Instruction], goal: int) -> tuple[int, ...] | None:
    """For each value below the one that is yielded at `goal`: the offset of its maker."""
    order = sorted(instructions)
    following = dict(itertools.pairwise(order))
    handlers = dis.Bytecode(code).exception_entries  # type: ignore[attr-defined]  # not in typeshed
    waiting: list[tuple[int, tuple[int, ...]]] = [(0, ())]
    seen: set[int] = set()
    while waiting:
        at, stack = waiting.pop()
        if at == goal:
            return stack[:-1]
        if at in seen or at not in instructions:
            continue
        seen.add(at)
        ins = instructions[at]
        for entry in handlers:
            if entry.start <= at < entry.end and entry.target not in seen and entry.depth <= len(stack):
                extra = (entry.target,) * (1 + bool(entry.lasti))
                waiting.insert(0, (entry.target, (*stack[: entry.depth], *extra)))
        if ins.opcode in dis.hasjrel or ins.opcode in dis.hasjabs:
            waiting.append((ins.argval, _after(ins, stack, jump=True)))
        if ins.opname not in _NEVER_FALLS and at in following:
            waiting.append((following[at], _after(ins, stack, jump=False)))
    return None


def _after(ins: dis.Instruction, stack: tuple[int, ...], *, jump: bool) -> tuple[int, ...]:
    effect = dis.stack_effect(ins.opcode, ins.arg, jump=jump)
    if ins.opname == "SWAP":
        items = list(stack)
        items[-1], items[-(ins.arg or 1)] = items[-(ins.arg or 1)], items[-1]
        return tuple(items)
    takes, gives = _CONSUMES.get(ins.opname, (-1, -1))
    if takes >= 0 and gives - takes != effect and ins.opname != "RETURN_GENERATOR":
        takes = -1  # another version's meaning of the name, or the other branch of a jump
    if takes < 0:
        if ins.opname.startswith(_PUTS_NOTHING) and effect <= 0:
            takes, gives = -effect, 0
        elif effect > 0:
            takes, gives = (1, 1 + effect) if ins.opname in ("LOAD_ATTR", "LOAD_SUPER_ATTR") else (0, effect)
        elif effect == 0 and ins.opname in _QUIET:
            takes = gives = 0
        else:
            takes, gives = 1 - effect, 1
    return (*stack[: len(stack) - takes], *(ins.offset,) * gives)


_QUIET = (
    *("NOP", "RESUME", "CACHE", "PRECALL", "KW_NAMES", "YIELD_VALUE", "JUMP_FORWARD", "JUMP_BACKWARD"),
    *("JUMP_BACKWARD_NO_INTERRUPT", "EXTENDED_ARG", "COPY_FREE_VARS", "MAKE_CELL", "SETUP_ANNOTATIONS"),
    *("GET_AWAITABLE", "CHECK_EXC_MATCH", "NOT_TAKEN", "JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP"),
)


def _describe(code: CodeType, ins: dis.Instruction, before: dis.Instruction) -> str:
    """`before` is what made the operand of an instruction that opens a block: its own positions may
    span the whole block."""
    line = ins.positions.lineno if ins.positions and ins.positions.lineno else line_at(code, ins.offset)
    if ins.opname in _WITH:
        text = _source(code, before.positions)
        return f"context manager {text + ' ' if text else ''}of the with block at line {line}"
    if ins.opname in _LOOPS:
        text = _source(code, before.positions)
        return f"iterator {'over ' + text + ' ' if text else ''}of the loop at line {line}"
    if ins.opname == "PUSH_EXC_INFO":
        return "exception set aside on the stack"
    text = _source(code, ins.positions)
    return f"value of {text} on the stack" if text else f"value made at line {line}, on the stack"


def _source(code: CodeType, positions: dis.Positions | None) -> str:
    """The expression's text between backticks, shortened; empty if it can't be had."""
    if positions is None or positions.lineno is None or positions.end_lineno is None:
        return ""
    if positions.col_offset is None or positions.end_col_offset is None:
        return ""
    lines = [
        linecache.getline(code.co_filename, n) for n in range(positions.lineno, positions.end_lineno + 1)
    ]
    if not all(lines):
        return ""
    raw = [line.encode() for line in lines]  # columns count bytes
    raw[-1] = raw[-1][: positions.end_col_offset]
    raw[0] = raw[0][positions.col_offset :]
    text = b"".join(raw).decode(errors="replace").strip()
    try:
        text = ast.unparse(ast.parse(textwrap.dedent(text), mode="eval"))
    except SyntaxError:
        return ""
    return f"`{text}`" if len(text) <= 60 else f"`{text[:59]}…`"
