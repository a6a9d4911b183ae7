"""Contexts, context variables and their tokens.

A context is made empty and gets its items in a run of its own, so it may be part of a cycle. A context
variable is a module's own (found by `anchors`), or one that C code keeps to itself (decimal's, found by its
name in a context that has it), or else made anew, once per load.

A token is what `set` gave, and only `set` gives one: it is made again by going back to the value that it
remembers, setting the present one, and so leaves its context as it was. It belongs to a context; if the state
doesn't hold that one, the token can't be used after a restore, and is refused.

This file must not know tasks, which share their context with their callbacks by identity.
"""

from __future__ import annotations

import contextvars
import decimal
import gc
from contextvars import Context, ContextVar, Token
from typing import Any

from snaprt.state import anchors
from snaprt.state.reducers import Reduced, reducer
from snaprt.state.sessions import Dumping, loading


@reducer(Context)
def reduce_context(context: Context, dumping: Dumping) -> Reduced:
    items = list(context.items())
    if not items:
        return Context, ()
    return Context, (), items, None, None, fill_context


def fill_context(context: Context, items: list[tuple[ContextVar[Any], Any]]) -> None:
    context.run(_set_all, context, items)


def _set_all(context: Context, items: list[tuple[ContextVar[Any], Any]]) -> None:
    first = loading().first_tokens
    for var, value in items:
        # If a token of this load has set it already, the program holds the token that can unset it.
        fresh = var not in context
        token = var.set(value)
        if fresh:
            first[id(context), id(var)] = token


# --- context variables ----------------------------------------------------------------------------


def _keepers() -> dict[str, Any]:
    """Variables that only C code holds, by name: what puts them into a context."""
    return {"decimal_context": decimal.getcontext}


def _hidden(name: str) -> ContextVar[Any] | None:
    keeper = _keepers().get(name)
    if keeper is None:
        return None
    context = contextvars.copy_context()
    context.run(keeper)
    return next((var for var in context if var.name == name), None)


@reducer(ContextVar)
def reduce_variable(var: ContextVar[Any], dumping: Dumping) -> Reduced:
    # A plain global never comes here.
    if _hidden(var.name) is var:
        return hidden_variable, (var.name,)
    place = anchors.hanging(var)
    if place is not None:
        return anchors.resolve, place
    try:
        return new_variable, (var.name, Context().run(var.get))
    except LookupError:
        return new_variable, (var.name,)


def hidden_variable(name: str) -> Any:
    return _hidden(name)


def new_variable(name: str, *default: Any) -> ContextVar[Any]:
    return ContextVar(name, default=default[0]) if default else ContextVar(name)


# --- tokens ---------------------------------------------------------------------------------------


@reducer(Token)
def reduce_token(token: Token[Any], dumping: Dumping) -> Reduced:
    context = next((held for held in gc.get_referents(token) if type(held) is Context), None)
    if context is None:
        return NotImplemented
    dumping.weak_references.append((token, context))
    used = repr(token).startswith("<Token used")
    if dumping.placeholders:
        return Context, ()
    if token.old_value is Token.MISSING:
        return make_token, (context, token.var, used)
    return make_token, (context, token.var, used, token.old_value)


def make_token(context: Context, var: ContextVar[Any], used: bool, *old: Any) -> Token[Any]:
    if used:
        return Context().run(_used_token, var, old)
    return context.run(_set_again, context, var, old)


def _used_token(var: ContextVar[Any], old: tuple[Any, ...]) -> Token[Any]:
    if old:
        var.set(old[0])
    token = var.set(None)
    var.reset(token)
    return token


def _set_again(context: Context, var: ContextVar[Any], old: tuple[Any, ...]) -> Token[Any]:
    present = (context[var],) if var in context else ()
    if old:
        var.set(old[0])
    elif present:
        # Only a token can unset a variable, and the one for that was kept when the context was filled. If
        # there is none, the program holds it already: a second unused token over nothing can't exist.
        first = loading().first_tokens.pop((id(context), id(var)), None)
        if first is not None:
            var.reset(first)
    return var.set(present[0] if present else None)
