"""Contexts, context variables and tokens work on as they would have."""

from __future__ import annotations

import contextvars
import decimal

import pytest

import snaprt.state as state
from snaprt.errors import NotSerialisable

from . import sample

LOCAL = contextvars.ContextVar("local")


def twin(obj):
    return state.load(state.dump(obj).parts)


def test_a_context_keeps_its_items_and_its_identity():
    context = contextvars.Context()
    context.run(sample.CURRENT.set, 7)
    context.run(LOCAL.set, [context])
    again, same = twin((context, [context]))
    assert again is same[0]
    assert again[sample.CURRENT] == 7
    assert again[LOCAL][0] is again
    assert sample.CURRENT.get() == 0


def test_a_variable_that_no_module_holds_is_made_once_with_its_default():
    var = contextvars.ContextVar("free", default=(1,))
    context = contextvars.Context()
    context.run(var.set, 5)
    again, context = twin((var, context))
    assert (again.name, again.get(), context[again]) == ("free", (1,), 5)
    with pytest.raises(LookupError):
        twin(contextvars.ContextVar("bare")).get()


def test_decimals_context_goes_along_in_its_own_variable():
    context = contextvars.copy_context()
    context.run(decimal.setcontext, decimal.Context(prec=3))
    again = twin(context)
    assert str(again.run(lambda: decimal.Decimal(1) / 3)) == "0.333"
    assert decimal.getcontext().prec == 28


@pytest.mark.parametrize("before", [(), (1,)], ids=["unset before", "set before"])
@pytest.mark.parametrize("token_first", [True, False])
def test_a_token_resets_its_variable_in_its_context(before, token_first):
    context = contextvars.Context()
    for value in before:
        context.run(LOCAL.set, value)
    token = context.run(LOCAL.set, 2)
    context.run(LOCAL.set, 3)
    if token_first:
        token, context = twin((token, context))
    else:
        context, token = twin((context, token))
    assert context[LOCAL] == 3
    context.run(LOCAL.reset, token)
    assert context.run(LOCAL.get, "unset") == (before[0] if before else "unset")


def test_a_used_token_stays_used():
    context = contextvars.Context()
    token = context.run(LOCAL.set, 2)
    context.run(LOCAL.reset, token)
    token, context = twin((token, context))
    with pytest.raises(RuntimeError, match="already been used"):
        context.run(LOCAL.reset, token)


def test_a_context_that_holds_its_own_token_goes_round():
    context = contextvars.Context()
    holder = []
    holder.append(context.run(LOCAL.set, holder))
    again = twin(context)
    held = again[LOCAL]
    again.run(LOCAL.reset, held[0])
    assert LOCAL not in again


def test_a_token_of_a_context_outside_is_refused():
    token = LOCAL.set(1)
    try:
        with pytest.raises(NotSerialisable, match="Token to a Context outside"):
            twin([token])
    finally:
        LOCAL.reset(token)
