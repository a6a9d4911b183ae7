"""What is remembered about code objects: facts, digests, and which patched code came from which.

Code objects compare by value and hash their constants, so a dictionary keyed by them would call the user's
`__hash__`, fail on odd constants and mix up equal codes of different functions. Everything here is keyed by
identity and lets go when the code dies. This file must not know what a patch does.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from opcode import opmap
from types import CodeType
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class ByCode(Generic[T]):
    """A mapping from code objects to values by identity; an entry goes when its code is gone."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[CodeType], T]] = {}

    def get(self, code: CodeType) -> T | None:
        """The value remembered for exactly this code object."""
        entry = self._entries.get(id(code))
        return entry[1] if entry is not None and entry[0]() is code else None

    def put(self, code: CodeType, value: T) -> T:
        """Remember `value`. It must not hold `code`, or neither ever dies."""
        key, entries = id(code), self._entries

        def forget(ref: weakref.ref[CodeType]) -> None:
            entry = entries.get(key)
            if entry is not None and entry[0] is ref:  # the address may have a new owner by now
                del entries[key]

        entries[key] = (weakref.ref(code, forget), value)
        return value

    def __len__(self) -> int:
        return len(self._entries)


@dataclass(frozen=True)
class Facts:
    """What freezing asks of a code object, worked out once."""

    bytecode: bytes  # unspecialised, uninstrumented
    slots: int  # locals, cells and free variables: the length of localsplus in front of the stack
    stacksize: int
    names: tuple[str, ...]  # of the slots
    iterable_coroutine: bool

    @cached_property
    def yields(self) -> frozenset[int]:
        """Byte offsets of every YIELD_VALUE. Cache units are zero in `co_code`, so a scan is exact."""
        op = opmap["YIELD_VALUE"]
        return frozenset(at for at in range(0, len(self.bytecode), 2) if self.bytecode[at] == op)


_facts: ByCode[Facts] = ByCode()
_digests: ByCode[str] = ByCode()
# Patched code → (original code, …). Filled by `patch`; here because freezing and digests ask, too.
origins: ByCode[Any] = ByCode()


def facts(code: CodeType) -> Facts:
    """The facts of `code`, computed at the first call."""
    known = _facts.get(code)
    if known is None:
        local = code.co_varnames
        names = (*local, *(name for name in code.co_cellvars if name not in local), *code.co_freevars)
        known = _facts.put(
            code,
            Facts(code.co_code, len(names), code.co_stacksize, names, bool(code.co_flags & 0x100)),
        )
    return known


def original_code(code: CodeType) -> CodeType:
    """The code that `code` was patched from, or `code` itself if it isn't a patched one."""
    origin = origins.get(code)
    return code if origin is None else origin.original


def code_digest(code: CodeType) -> str:
    """A digest of what the interpreter would run: equal for two compilations of the same source.

    It covers bytecode, constants (nested code included), names, variables, cells, the exception table, flags
    and argument counts. It leaves out file name, line numbers and columns, and doesn't depend on hash seeds.
    """
    code = original_code(code)
    known = _digests.get(code)
    if known is None:
        hasher = hashlib.sha256()
        _feed(code, hasher.update)
        known = _digests.put(code, hasher.hexdigest())
    return known


def _feed(value: object, put: Callable[[bytes], object]) -> None:
    """Write a constant in a canonical form: type, length, content."""
    if isinstance(value, CodeType):
        _feed(
            (
                *("code", value.co_name, value.co_qualname, value.co_argcount, value.co_posonlyargcount),
                *(value.co_kwonlyargcount, value.co_flags, value.co_code, value.co_exceptiontable),
                *(value.co_consts, value.co_names, value.co_varnames, value.co_cellvars, value.co_freevars),
            ),
            put,
        )
    elif type(value) is tuple:
        put(b"(%d:" % len(value))
        for item in value:
            _feed(item, put)
    elif type(value) is frozenset:  # its order depends on the hash seed
        items = []
        for item in value:
            hasher = hashlib.sha256()
            _feed(item, hasher.update)
            items.append(hasher.digest())
        put(b"{%d:" % len(items) + b"".join(sorted(items)))
    else:
        text = value if type(value) is bytes else repr(value).encode("utf-8", "surrogatepass")
        put(b"%s %d:" % (type(value).__qualname__.encode(), len(text)))
        put(text)
