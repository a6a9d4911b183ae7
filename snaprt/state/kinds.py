"""What a kind of handle is, how the classes of one are named, and the mends that the hints of many share.

The built-in kinds stand in two tables, `standard_kinds` and `package_kinds`. This file doesn't know how they
are searched (`handles` does).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Kind:
    """One kind of handle.

    `types` are classes, or names `"module:qualname"` of classes that need not be loaded; subclasses
    count too. `like` decides once per type, for handles that share no class (DB-API drivers). `when`
    looks at the object, for types that are handles only sometimes. A predicate that raises counts as
    yes: what can't be vouched for isn't saved. `of_other_loop` limits the kind to what is bound to an
    event loop other than the agent loop. `hint` is one clause: what to do about it.
    """

    name: str
    types: tuple[type | str, ...] = ()
    hint: str = "close it before the await, use it inside a tool, or declare it with @snaprt.resource"
    when: Callable[[Any], bool] | None = None
    like: Callable[[type], bool] | None = None
    of_other_loop: bool = False

    def __post_init__(self) -> None:
        for entry in self.types:
            if not isinstance(entry, type) and not (isinstance(entry, str) and all(entry.partition(":"))):
                raise TypeError(
                    f"handle kind {self.name!r}: {entry!r} is neither a class nor a name 'module:qualname'"
                )
        if not self.types and self.like is None:
            raise TypeError(f"handle kind {self.name!r} has neither types nor `like`, so it can't match")

    def holds(self, obj: object) -> bool:
        """Whether this very object, of a type of this kind, is a handle now."""
        if self.when is None:
            return True
        try:
            return bool(self.when(obj))
        except Exception:
            return True


def named(*names: str) -> tuple[type | str, ...]:
    """`"module:A B C"` stands for three names of one module."""
    found: list[type | str] = []
    for name in names:
        module, _, qualnames = name.partition(":")
        found += (f"{module}:{qualname}" for qualname in qualnames.split())
    return tuple(found)


# --- hints that many kinds share ------------------------------------------------------------------------

RESOURCE = "declare it with @snaprt.resource so that it is reopened, or use it inside a tool"
CLIENT = "open and close it inside a tool, or declare it with @snaprt.resource"
FILE = "read or write it inside a tool and close it there, or close it before the await and keep its path"
ARCHIVE = "close it before the await and keep the path, or work on it inside a tool"
DATABASE = "declare the connection with @snaprt.resource, or query inside a tool and return plain rows"
CURSOR = "fetch the rows into a list before the await; declare its connection with @snaprt.resource"
THREADS = "run it inside a tool; agent code is single-threaded and needs no threads"
LOCK = "use asyncio's twin of it, which travels; agent code is single-threaded"
PROCESS = "run it inside a tool and return what it printed or computed"
LOOP = "await it inside a tool; agent code may only wait for its own loop's tasks and futures"
STREAM = "finish the (de)compression before the await and keep the bytes, or do it inside a tool"
HASH = "keep the bytes and hash them after the await, or finish with hexdigest() before it"
MEMORY = "copy it with bytes(...) before the await"
NATIVE = "keep it inside a tool, or in a module global that is made at import"
DISPLAY = "show progress from inside a tool, or close it before the await"
IN_CONNECTING = "make it inside the tool that connects"
ANOTHER_LOOP = "get the running loop anew where you need it"
READ = "read it inside the tool that asked, and return the body"
SERVE = "serve from the host program, not from agent code"
