"""Loads modules of the interpreter's `test` package with what a watched run needs, and nothing else.

Two things are done to their code, and to doctests in them:

- generators without any local slot get room for one more entry (see `exchange.widen`);
- what is given to a consumer written in C (`list(…)`, `sum(…)`, `a, b = …`, `*…`) passes through `Feed` if it
  is a generator, so that there is an instruction of Python between two of its items, at which it can be
  frozen.

Whether a failure comes from this and not from a thaw is found out by a run that watches and freezes nothing.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import doctest
import importlib
import importlib.machinery
import sys
from types import CodeType, FunctionType, GeneratorType, ModuleType
from typing import Any

from tests.yardstick import stretch
from tests.yardstick.exchange import widen

CONSUMERS = {"list", "tuple", "set", "frozenset", "dict", "sum", "min", "max", "sorted", "any", "all"}
NAME = "__snaprt_feed__"


class Feed:
    """Hands on the items of a generator, one line of Python each."""

    def __init__(self, generator: Any) -> None:
        self.generator = generator

    def __iter__(self) -> Feed:
        return self

    def __next__(self) -> Any:
        value = next(self.generator)
        return value


def feed(value: Any) -> Any:
    """A `Feed` for a generator; anything else as it is."""
    return Feed(value) if type(value) is GeneratorType else value


class _Feeding(ast.NodeTransformer):
    """Puts `feed` around what C consumers get."""

    def _fed(self, node: ast.expr) -> ast.expr:
        call = ast.Call(ast.Name(NAME, ast.Load()), [node], [])
        return ast.fix_missing_locations(ast.copy_location(call, node))

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = node.func
        by_name = isinstance(name, ast.Name) and name.id in CONSUMERS
        joins = isinstance(name, ast.Attribute) and name.attr in ("join", "extend", "update")
        if (by_name or joins) and node.args and not isinstance(node.args[0], ast.Starred):
            node.args[0] = self._fed(node.args[0])
        for index, argument in enumerate(node.args):
            if isinstance(argument, ast.Starred):
                node.args[index] = ast.copy_location(
                    ast.Starred(self._fed(argument.value), argument.ctx), argument
                )
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        if any(isinstance(target, ast.Tuple | ast.List) for target in node.targets):
            node.value = self._fed(node.value)
        return node


def compiled(
    source: Any,
    filename: str,
    mode: str = "exec",
    flags: int = 0,
    dont_inherit: bool = True,
    *,
    stretched: bool = False,
) -> CodeType:
    """Like `compile`, with both changes, and stretched if told so."""
    tree = compile(source, filename, mode, flags | ast.PyCF_ONLY_AST, dont_inherit)
    tree = _Feeding().visit(tree)
    if stretched:
        tree = stretch.Stretching().visit(tree)
    code: CodeType = compile(tree, filename, mode, flags, dont_inherit)
    return widen(code)


class _Loader(importlib.machinery.SourceFileLoader):
    stretched = False

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return compiled(self.get_data(path), path, stretched=self.stretched)


class _Finder:
    """Finds modules below `test`, and gives them our loader."""

    def __init__(self, stretched: str | None) -> None:
        self.stretched = stretched

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if not fullname.startswith("test."):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
            spec.loader.stretched = fullname == self.stretched
        return spec


def prepare(stretched: str | None = None) -> None:
    """From now on modules below `test`, and doctests, are loaded for a watched run; one of them stretched."""
    setattr(builtins, NAME, feed)
    setattr(builtins, stretch.NAME, stretch.run_through)
    setattr(builtins, stretch.PAUSE, stretch.pause)
    sys.meta_path.insert(0, _Finder(stretched))  # type: ignore[arg-type]  # only what it has is asked of it
    for module in (asyncio.tasks, asyncio.futures):
        for function in vars(module).values():
            if isinstance(function, FunctionType):
                function.__code__ = widen(function.__code__)
    doctest.compile = compiled  # type: ignore[attr-defined]  # shadows the builtin in that one module


def load(name: str) -> ModuleType:
    """A module of the `test` package."""
    return importlib.import_module(f"test.{name}")
