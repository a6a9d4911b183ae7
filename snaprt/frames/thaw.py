"""Thawing in three phases, so that frames may be part of cycles: make, fill, prime.

`make` gives the object, whose identity is final, from a shell alone. `fill` puts the saved objects into its
box. `prime` lets it run its prologue (see `patch`), after which it stands where it stood. Priming runs no
code of the user and touches no other frame, so the frames of a load can be primed in any order once all are
filled.

Async generators are entered through an `asend`, `athrow` or `aclose`. Where one was under way when the
generator was frozen, the very object that stands for it after the load has to enter: `awaitables` makes it
with `enter`. The hooks of a running loop are never called for a thawed generator; a finalizer comes back
with its values.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from types import AsyncGeneratorType, CellType, CodeType, FunctionType
from typing import Any, TypeVar

from snaprt.errors import CodeChanged, NotCapturable
from snaprt.frames import codes, patch
from snaprt.frames.freeze import Finalizer, code_of, find_box, read_lead
from snaprt.frames.patch import TOKEN, Box
from snaprt.frames.shell import LASTI, VALUE, Frozen, Shell
from snaprt.frames.table import CLOSED_FLAG, RUNNING_FLAG, Table, table

T = TypeVar("T")

_FLAGS = {"coroutine": 0x80, "generator": 0x20, "async_generator": 0x200}


def make(shell: Shell, code: CodeType, globals: dict[str, Any]) -> Any:
    """Phase 1: a coroutine, generator or async generator for `shell`, without values and not primed.

    Raises CodeChanged if the shell doesn't fit the code, UnsupportedInterpreter where frames can't be thawed.
    """
    numbers = table()
    code = codes.original_code(code)
    if not code.co_flags & _FLAGS[shell.kind]:
        raise CodeChanged(f"{code.co_qualname} was saved as {shell.kind}, and here its code isn't one.")
    if shell.status == "created" and not shell.slots and not codes.facts(code).slots and not shell.hooks:
        return _named(FunctionType(code, globals), shell)()
    patched = patch.patched(code, shell, numbers)
    box = Box()
    box.shell, box.driver = shell, None
    box.finalizer = Finalizer() if shell.finalizer else None
    closure = tuple([CellType() for _ in code.co_freevars]) or None
    arguments: list[Any] = [None] * patched.arguments
    keywords = dict.fromkeys(patched.keywords)
    if patched.free_box:
        assert closure is not None
        closure[0].cell_contents = box
    elif arguments:
        arguments[0] = box
    else:
        keywords[patched.keywords[0]] = box
    function = _named(FunctionType(patched.code, globals, None, None, closure), shell)
    obj = function(*arguments, **keywords)
    if shell.status == "finished":
        _finish(obj, shell, numbers)
    return obj


def _named(function: Any, shell: Shell) -> Any:
    function.__name__, function.__qualname__ = shell.name, shell.qualname
    return function


def _finish(obj: Any, shell: Shell, numbers: Table) -> None:
    """Let a frame that was finished return."""
    driver = with_hooks(None, lambda: obj.asend(None)) if type(obj) is AsyncGeneratorType else obj
    try:
        driver.send(None)
    except (StopIteration, StopAsyncIteration):
        _set_flags(obj, shell, numbers)
    else:
        raise NotCapturable(f"{shell.qualname} didn't finish when it was made.")


def unprimed(obj: Any, numbers: Table) -> Box | None:
    """The box of an object that was made and has neither been primed nor started."""
    if patch.origin(code_of(obj)) is None or read_lead(obj, numbers).state != numbers.created:
        return None
    return find_box(gc.get_referents(obj))


def fill(
    obj: Any, values: tuple[Any, ...], handled: BaseException | None = None, finalizer: Any = None
) -> None:
    """Phase 2: give a made object its values, as `Frozen` has them."""
    box = unprimed(obj, table())
    if box is None:
        if values or handled is not None:
            raise NotCapturable(
                f"Can't fill {obj.__qualname__}: it wasn't made for values, or was primed before."
            )
        return
    shell = box.shell
    bound = shell.slots.count(VALUE)
    if len(values) != bound + shell.stack.count(VALUE):
        raise CodeChanged(
            f"{shell.qualname} was saved with {len(values)} values, and its shell has room for "
            f"{bound + shell.stack.count(VALUE)}."
        )
    stack = list(values[bound:])
    if shell.lastis or shell.indices:
        stack = _with_numbers(obj, shell, stack)
    if box.finalizer is not None:
        box.finalizer.target = finalizer
    box[:] = [tuple(values[:bound]), handled, *stack]


def _with_numbers(obj: Any, shell: Shell, values: list[Any]) -> list[Any]:
    """The values of a stack with what its prologue needs for the numbers between them."""
    origin = patch.origin(code_of(obj))
    assert origin is not None
    plain, lastis = iter(values), iter(shell.lastis)
    indices = iter([index for index in shell.indices if index])
    stack: list[Any] = []
    for letter in patch.boxed(shell, table()):
        if letter == VALUE:
            stack.append(next(plain))
        elif letter == LASTI:
            stack.append(next(lastis) + origin.shift // 2)
        else:
            stack.append([False] * (next(indices) - 1) + [True])
    return stack


def prime(obj: Any) -> None:
    """Phase 3: make a filled object stand where it stood. Does nothing for one that stands there already."""
    numbers = table()
    box = unprimed(obj, numbers)
    if box is None:
        return
    shell = box.shell
    if not box:
        raise NotCapturable(f"Can't prime {shell.qualname}: it was made but not filled.")
    if type(obj) is AsyncGeneratorType:
        _prime_async_generator(obj, box, numbers)
    elif shell.status == "suspended" and obj.send(None) != TOKEN:
        raise NotCapturable(f"{shell.qualname} didn't stop where it stood.")


def _prime_async_generator(obj: Any, box: Box, numbers: Table) -> None:
    from snaprt.frames.release import release

    shell, driver, token = box.shell, box.driver, None
    if driver is None and shell.hooks:
        driver = with_hooks(box.finalizer, lambda: obj.asend(None))
    if shell.status == "created":
        if driver is not None and box.driver is None:
            release(driver)  # it was only there to have the hooks counted as called
    else:
        box.driver = None
        try:
            token = driver.send(None)
        except StopIteration as stop:
            token = stop.value
        if token != TOKEN:
            raise NotCapturable(f"{shell.qualname} didn't stop where it stood.")
    _set_flags(obj, shell, numbers)


def _set_flags(obj: Any, shell: Shell, numbers: Table) -> None:
    """Set the closed and running flags of an async generator where driving it didn't."""
    if type(obj) is not AsyncGeneratorType:
        return
    frame = id(obj) + type(obj).__basicsize__ - numbers.header
    for distance, flag in ((CLOSED_FLAG, shell.closed), (RUNNING_FLAG, shell.running)):
        byte = ctypes.c_byte.from_address(frame - distance)
        if bool(byte.value) is not flag:
            byte.value = flag


def with_hooks(finalizer: Any, call: Callable[[], T]) -> T:
    """Call with no async generator hook of a loop in place, and `finalizer` as the one that is kept."""
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, finalizer)
    try:
        return call()
    finally:
        sys.set_asyncgen_hooks(*hooks)


def enter(generator: Any, begin: Callable[[], T], *, drives: bool) -> T:
    """Make an `asend`, `athrow` or `aclose` of a thawed async generator without calling a loop's hooks.

    With `drives` it is the one that is under way, and `prime` will enter the generator through it.
    """
    box = unprimed(generator, table())
    if not drives:
        return with_hooks(box.finalizer if box is not None else None, begin)
    if box is None or not box.shell.running or box.driver is not None:
        raise NotCapturable(
            f"{generator.__qualname__} can't be entered by what was under way in it: "
            "it isn't waiting to be primed."
        )
    box.driver = with_hooks(box.finalizer, begin)
    driver: T = box.driver
    return driver


def thaw(frozen: Frozen) -> Any:
    """All three phases at once, for a frame that isn't part of a cycle."""
    obj = make(frozen.shell, frozen.code, frozen.globals)
    fill(obj, frozen.values, frozen.handled, frozen.finalizer)
    prime(obj)
    return obj
