"""Weak references and weak containers.

A weak reference doesn't put its target into the state; it travels if something else in the state does, or if
the target is a module's own (a class, a function, a global), and one whose target is dead stays dead.
Anything else is refused: after the load nothing would hold the target, and the program would find it gone.

So that has to be found out: when a dump met weak references, it is made once more without them, into nothing,
and the memo of that pass is the list of what the state holds by itself. Weak containers are simpler: their
entries are written at the end, those whose weak side is in the memo by then; the others would have died with
the process.

This file must not know how a pass is made (`pickling` does).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from snaprt.state.reducers import Reduced, reducer
from snaprt.state.sessions import Dumping


@reducer(weakref.ref, subclasses=True)
def reduce_reference(reference: Any, dumping: Dumping) -> Reduced:
    target = reference()
    cls = type(reference)
    if cls is weakref.WeakMethod:
        if target is None:
            return dead_method, ()
        dumping.weak_references.append((reference, target.__self__))
        if dumping.placeholders:
            return dead_method, ()
        return cls, (target,)
    if target is None:
        return dead, ()
    dumping.weak_references.append((reference, target))
    if dumping.placeholders:
        return dead, ()
    callback = reference.__callback__
    names = getattr(reference, "__dict__", None)
    args: tuple[Any, ...] = (target,) if callback is None else (target, callback)
    if cls is weakref.KeyedRef:
        args = (target, callback, reference.key)
    if not names:
        return cls, args
    return cls, args, dict(names), None, None, set_vars


def set_vars(obj: Any, names: dict[str, Any]) -> None:
    obj.__dict__.update(names)


class _Gone:
    """What a weak reference that is dead once referred to."""

    def gone(self) -> None:
        pass


def dead() -> Any:
    return weakref.ref(_Gone())


def dead_method() -> Any:
    return weakref.WeakMethod(_Gone().gone)


@reducer(weakref.WeakSet)
@reducer(weakref.WeakKeyDictionary)
@reducer(weakref.WeakValueDictionary)
def reduce_container(container: Any, dumping: Dumping) -> Reduced:
    dumping.weak.append(container)
    names = {k: v for k, v in vars(container).items() if k not in _INTERNAL}
    if not names:
        return type(container), ()
    return type(container), (), names, None, None, set_vars


_INTERNAL = frozenset(
    {"data", "_remove", "_pending_removals", "_iterating", "_dirty_len"}  # of the three classes, 3.11 to 3.14
)


def entries(container: Any, held: Callable[[object], bool]) -> list[Any]:
    """The entries of a weak container whose weak side something in the state holds."""
    if isinstance(container, weakref.WeakSet):
        return [item for item in list(container) if held(item)]
    if isinstance(container, weakref.WeakKeyDictionary):
        return [(key, value) for key, value in list(container.items()) if held(key)]
    return [(key, value) for key, value in list(container.items()) if held(value)]


def fill(container: Any, items: list[Any]) -> None:
    if isinstance(container, weakref.WeakSet):
        for item in items:
            container.add(item)
    else:
        for key, value in items:
            container[key] = value


@reducer(weakref.ProxyType)
@reducer(weakref.CallableProxyType)
def reduce_proxy(proxy: Any, dumping: Dumping) -> Reduced:
    try:
        target = proxy.__repr__.__self__
    except ReferenceError:
        return dead_proxy, ()
    dumping.weak_references.append((proxy, target))
    if dumping.placeholders:
        return dead_proxy, ()
    return weakref.proxy, (target,)


def dead_proxy() -> Any:
    return weakref.proxy(_Gone())
