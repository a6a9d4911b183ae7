"""From `module:function` or `path/to/file.py:function` to the agent.

A module is imported as `python -m` would: the current directory is on the path. Its functions travel
by reference, so whoever resumes the run needs the module too.

A file is loaded as a script: its folder is on the path, and it isn't importable by any name. Its
functions and classes therefore travel *by value*, and the run resumes where the file doesn't exist.
The module is named after the file with its ending, `agent.py`: no import statement can
collide with that, and it reads well wherever an agent's name is shown. Modules that the file imports
travel by reference as ever.

Whatever goes wrong is a `UsageError`: the target as typed, and what stands there instead.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import ModuleType
from typing import Any

from snaprt.cli import failures
from snaprt.errors import UsageError
from snaprt.kernel.interrupts import is_ctrl_c
from snaprt.state import modules

Agent = Callable[..., Coroutine[Any, Any, Any]]

_SHAPE = (
    "A target is module:function or path/to/file.py:function, as in examples/release_notes.py:release_notes."
)


def load_agent(target: str) -> Agent:
    """The `async def` that `target` names. Imports its module, or runs its file once."""
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name:
        missing = "a function after the colon" if colon else "a function: add :name"
        raise UsageError(f"{target!r} lacks {missing}. {_SHAPE}")
    if not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(f"{name!r} in {target!r} isn't the name of a function. {_SHAPE}")
    module = _load_file(place) if _is_file(place) else _load_module(place)
    return _find_agent(module, place, name)


def add_working_directory() -> None:
    """Have the current directory on the import path, as `python -m` does (and not where -P forbids it)."""
    here = os.getcwd()
    if not sys.flags.safe_path and here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)


def _is_file(place: str) -> bool:
    return place.endswith(".py") or os.sep in place or (os.altsep is not None and os.altsep in place)


def _load_module(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(f"{name!r} is neither a module's name nor a .py file. {_SHAPE}")
    add_working_directory()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
            raise _broken(name, error) from error
        if Path(name).is_file():
            raise _no_source(name) from error
        hint = ""
        if Path(name + ".py").exists():  # only when -P keeps the directory off the path
            hint = f" There is a file {name}.py here: try {name}.py:…"
        raise UsageError(
            f"There's no module {error.name!r} on the import path, looked for from {os.getcwd()}. "
            f"Go to the folder it stands in, install it, or give the file: path/to/file.py:function.{hint}"
        ) from error
    except BaseException as error:
        if is_ctrl_c(error):
            raise
        raise _broken(name, error) from error


def _no_source(place: str) -> UsageError:
    return UsageError(f"The file {place} isn't Python source: its name has to end in .py.")


def _load_file(place: str) -> ModuleType:
    path = Path(place).expanduser()
    if not path.is_file():
        what = "is a folder, not a file" if path.is_dir() else "doesn't exist"
        raise UsageError(f"The file {place} {what} (looked in {os.getcwd()}). {_SHAPE}")
    path = path.resolve()
    spec = importlib.util.spec_from_file_location(path.name, path)
    if spec is None or spec.loader is None:
        raise _no_source(place)
    module = importlib.util.module_from_spec(spec)
    modules.by_value(module)
    # Its folder stays on the path, as for any script: a tool may well import a sibling when it is called.
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    sys.modules[path.name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        if is_ctrl_c(error):
            raise
        del sys.modules[path.name]
        raise _broken(place, error) from error
    return module


def _find_agent(module: ModuleType, place: str, name: str) -> Agent:
    found: Any = module
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise UsageError(_no_such_function(module, place, name)) from None
    if inspect.iscoroutinefunction(found):
        agent: Agent = found
        return agent
    raise UsageError(
        f"{place}:{name} is {_describe(found)}, and an agent has to be an async def.{_others(module, name)}"
    )


def _no_such_function(module: ModuleType, place: str, name: str) -> str:
    near = difflib.get_close_matches(name, _async_functions(module), n=1)
    mean = f" Did you mean {near[0]!r}?" if near else _others(module, name)
    return f"{place} has no function {name!r}.{mean}"


def _others(module: ModuleType, name: str) -> str:
    names = [other for other in _async_functions(module) if other != name]
    if not names:
        return " It has no async def at all."
    return f" Its async functions: {', '.join(names[:8])}{', …' if len(names) > 8 else ''}."


def _async_functions(module: ModuleType) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if inspect.iscoroutinefunction(value) and getattr(value, "__module__", None) == module.__name__
    ]


def _describe(thing: Any) -> str:
    """What a person would call it."""
    kinds: list[tuple[Callable[[Any], bool], str]] = [
        (inspect.isasyncgenfunction, "an async generator function (it has a yield)"),
        (inspect.isgeneratorfunction, "a generator function (it has a yield)"),
        (inspect.isclass, "a class"),
        (inspect.isfunction, "a plain def"),
        (inspect.isbuiltin, "a built-in function"),
        (inspect.ismodule, "a module"),
        (inspect.iscoroutine, "a coroutine, called already"),
    ]
    for test, words in kinds:
        if test(thing):
            return words
    kind = type(thing).__name__
    article = "an" if kind[0] in "aeiouAEIOU" else "a"
    if inspect.iscoroutinefunction(getattr(type(thing), "__call__", None)):  # noqa: B004  (asks what it is, not whether)
        return f"an object of class {kind} with an async __call__ (give a function that calls it)"
    return f"{article} {kind}"


def _broken(place: str, error: BaseException) -> UsageError:
    """The target was found and fails as it is loaded: its own fault, told with the line."""
    if isinstance(error, SyntaxError) and error.filename:
        where = f" ({error.filename}:{error.lineno})"
        text = error.msg
    else:
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if not frame.filename.startswith("<frozen") and frame.filename not in _MACHINERY
        ]
        where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
        text = failures.words(error)
    return UsageError(
        f"Loading {place} failed with {type(error).__name__}{text and f': {text}'}{where}. "
        "Nothing was started; --debug shows the traceback."
    )


_MACHINERY = {__file__, importlib.__file__, importlib.util.__file__}
