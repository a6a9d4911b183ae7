"""Pydantic's parametrised models: `Box[int]` is a class that `Box` makes once and remembers.

Whatever asks for `Box[int]` after a load must get the class that the loaded instances are of. So where `Box`
and its arguments are found by their names, `Box[int]` is asked of it again; where they travel by value, so
does `Box[int]`, and `Box` is told of it.

The library isn't imported for this. This file must not know how classes travel by value (`classes`).
"""

from __future__ import annotations

import contextlib
import sys
import typing
from typing import Any

from snaprt.state import classes
from snaprt.state.reducers import Reduced
from snaprt.state.sessions import loading

_METADATA = "__pydantic_generic_metadata__"


def _parametrised(cls: type) -> tuple[Any, tuple[Any, ...]] | None:
    """The model and the arguments that this class is of, if it is one that a model made."""
    metadata = cls.__dict__.get(_METADATA)
    if type(metadata) is not dict or not metadata.get("origin") or not metadata.get("args"):
        return None
    return metadata["origin"], metadata["args"]


def _by_name(argument: Any) -> bool:
    """Whether an argument, or each of its own, is found by its name or is a plain value."""
    if argument in (None, type(None), typing.Any) or type(argument) in (str, bytes, int, bool):
        return True
    inner = typing.get_args(argument)
    if inner:
        return all(map(_by_name, inner))
    return isinstance(argument, type) and _parametrised(argument) is None and classes.named(argument)


@classes.elsewhere
def found(cls: type) -> Reduced:
    parts = _parametrised(cls)
    if parts is None:
        return NotImplemented
    origin, args = parts
    if classes.named(origin) and all(map(_by_name, args)) and origin[args] is cls:
        return parametrise, (origin, args)
    return NotImplemented


def parametrise(origin: Any, args: tuple[Any, ...]) -> Any:
    return origin[args]


@classes.finishing
def remember(cls: type) -> None:
    """Has the model give this class when it is asked for these arguments, once all of them are there."""
    parts = _parametrised(cls)
    generics = sys.modules.get("pydantic._internal._generics")
    if parts is not None and generics is not None:
        loading().finish.append(lambda: _remember(generics, cls, *parts))


def _remember(generics: Any, cls: type, origin: Any, args: tuple[Any, ...]) -> None:
    # It is the library's own affair: without it a second class is made, as it was before.
    with contextlib.suppress(AttributeError, TypeError):
        generics.set_cached_generic_type(origin, args, cls, origin, args)
