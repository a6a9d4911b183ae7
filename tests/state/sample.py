"""What the tests of functions and anchors save references to: an importable module's own things."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import threading
import types

MISSING = object()
TABLE = {"k": [1, 2]}
ITEMS = [TABLE]
NAMES = {"n"}
BUFFER = bytearray(b"abc")
CURRENT: contextvars.ContextVar[int] = contextvars.ContextVar("current", default=0)


class Holder:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("held")


HOLDER = Holder()
HOLDER.variable = contextvars.ContextVar("held by an instance")


@types.coroutine
def park(value=None):
    return (yield value)


def plain(a, b=2, *, c=3):
    return a + b + c


def noted(function):
    @functools.wraps(function)
    def wrapper(*args):
        return ["noted", function(*args)]

    return wrapper


@noted
def decorated(x):
    return x * 2


def adder(n):
    def add(m):
        return n + m

    return add


def lambdas():
    return [lambda: 0, lambda: 1, lambda: 0]


def recursive():
    def factorial(n):
        return n * factorial(n - 1) if n else 1

    return factorial


def mutual():
    def even(n):
        return odd(n - 1) if n else True

    def odd(n):
        return even(n - 1) if n else False

    return even, odd


def half_empty():
    if not MISSING:
        later = 1

    def read():
        return later

    return read


class Thing:
    def __init__(self, value):
        self.value = value
        self.__hidden = value * 2

    def method(self):
        return self.value

    def __secret(self):
        return self.__hidden

    def secret(self):
        return self.__secret

    @classmethod
    def make(cls):
        return cls(1)

    @staticmethod
    def fixed():
        return "fixed"

    @property
    def doubled(self):
        return self.value * 2


class Loud(list):
    def append(self, item):
        super().append(("loud", item))

    def quiet(self):
        return super().append


@functools.lru_cache(maxsize=7)
def cached(n):
    return n


@functools.singledispatch
def kind_of(value):
    return "object"


@kind_of.register
def _(value: int):
    return "int"


@contextlib.contextmanager
def managed(log):
    log.append("in")
    try:
        yield log
    finally:
        log.append("out")


@contextlib.asynccontextmanager
async def managed_async(log):
    log.append("in")
    await park()
    try:
        yield log
    finally:
        await park()
        log.append("out")


class Tool:
    """As frameworks have it: a closure over what can't be pickled hangs off an instance."""

    def __init__(self, name):
        lock = threading.Lock()

        def invoke(x):
            with lock:
                return name, x

        self.invoke = invoke
        self.registry = {"invoke": invoke}
        self.lock = lock


TOOL = Tool("look")
