"""Test methods made to suspend after each of their statements.

The tests of `with`, `except*`, `match`, comprehensions and the like say much about what a frame can hold, but
most of them never suspend. Stretched, the body of each test method becomes a generator that yields after
every statement, in whatever block it stands: inside `with`, `except`, `except*`, `finally`, loops and cases.
The method itself runs that generator to its end, so runner, fixtures and decorators see an ordinary method.
What a test does is not changed; functions inside it aren't stretched.

A test method that is a coroutine function awaits a bare turn of the loop after every statement instead.
"""

from __future__ import annotations

import ast
import asyncio
import functools
from collections.abc import Callable
from typing import Any

NAME = "__snaprt_run_through__"
PAUSE = "__snaprt_pause__"


async def pause() -> None:
    """A turn of the loop."""
    await asyncio.sleep(0)


def run_through(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that runs the generator which `function` makes."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        generator = function(*args, **kwargs)
        while True:
            try:
                next(generator)
            except StopIteration as stop:
                return stop.value

    return run


class Stretching(ast.NodeTransformer):
    """Makes the test methods of classes into generators that are run through."""

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        for each in node.body:
            if isinstance(each, ast.AsyncFunctionDef) and each.name.startswith("test"):
                for statement in each.body:
                    _Statements(_turn).visit(statement)
                each.body = _spaced(each.body, _turn)
            if isinstance(each, ast.FunctionDef) and each.name.startswith("test") and not _suspends(each):
                for statement in each.body:
                    _Statements(_pause).visit(statement)
                each.body = _spaced(each.body, _pause)
                if not _suspends(each):
                    each.body.append(_pause(each.body[-1]))
                run = ast.copy_location(ast.Name(NAME, ast.Load()), each)
                each.decorator_list.append(run)
        return node


def _suspends(function: ast.FunctionDef) -> bool:
    """Whether the function itself, without those inside it, has a yield."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting.extend(ast.iter_child_nodes(node))
    return False


class _Statements(ast.NodeTransformer):
    """Spaces the statements of all blocks, but not of functions and classes inside."""

    def __init__(self, between: Callable[[ast.stmt], ast.stmt]) -> None:
        self.between = between

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                for each in block:
                    self.visit(each)
                if name not in ("handlers", "cases"):
                    setattr(node, name, _spaced(block, self.between))
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node


def _pause(after: ast.stmt) -> ast.stmt:
    return ast.fix_missing_locations(ast.copy_location(ast.Expr(ast.Yield(None)), after))


def _turn(after: ast.stmt) -> ast.stmt:
    call = ast.Call(ast.Name(PAUSE, ast.Load()), [], [])
    return ast.fix_missing_locations(ast.copy_location(ast.Expr(ast.Await(call)), after))


def _spaced(block: list[ast.stmt], between: Callable[[ast.stmt], ast.stmt]) -> list[ast.stmt]:
    """The statements with a suspension after each, but for those that end the block."""
    spaced: list[ast.stmt] = []
    for index, each in enumerate(block):
        spaced.append(each)
        docstring = index == 0 and isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)
        if not docstring and not isinstance(each, ast.Return | ast.Raise | ast.Break | ast.Continue):
            spaced.append(between(each))
    return spaced
