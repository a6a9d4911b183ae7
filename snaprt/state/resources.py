"""Resources: handles whose owner declared how they are reopened.

    @snaprt.resource("db")
    def open_db(path: str) -> sqlite3.Connection:
        return sqlite3.connect(path)

    db = await open_db("x.sqlite")          # in agent code; or: async with open_db("x.sqlite") as db

In frames stands a **stand-in**: it travels as (resource, args, kwargs) and forwards everything to the
real handle while it is bound to one. Whoever drives a run closes the handles when the run leaves the
process and opens them again, under the same stand-ins, before it continues; so a stand-in that two
frames share stays one.

What this file must not know: runs, stores and when to open or close (the runtime does), or how the
stand-in is pickled beyond its `__reduce_ex__`. It works on asyncio and trio hosts alike, because it
only awaits what the factory gives it. Inside an agent loop, recognised by its `kernel` attribute,
opening goes through `kernel.open_resource(stand_in)`, which gives an awaitable of that loop.

The stand-in's own state lies in five slots with names that no handle uses; all else, `__class__`
included (libraries check their clients with isinstance), is the real handle's. So code here asks for
`type(x) is StandIn`, never isinstance.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import operator
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from typing import Any, Final, TypeVar, cast

from snaprt.errors import ResourceUnavailable

_T = TypeVar("_T")

_CLOSED: Final = object()  # in the slot for the real handle, where None could be a handle


class Resource:
    """A declared way to open a handle: what `@resource(name)` makes of a factory.

    Calling it gives an `Opening`. The factory may be a plain or async function that returns the handle
    (closed through `aclose()`, `close()` or the `close` given to the decorator), a generator or async
    generator function that yields it and cleans up after, or a function that returns a context manager
    made by `contextlib` (the handle is what that gives on entering).
    """

    __module__: str
    __name__: str
    __qualname__: str

    def __init__(self, name: str, factory: Callable[..., Any], close: Callable[[Any], Any] | None = None):
        functools.update_wrapper(self, factory)
        self.name = name
        self.factory = factory
        self.close = close

    def __call__(self, *args: Any, **kwargs: Any) -> Opening:
        return Opening(stand_in(self, args, kwargs))

    def __get__(self, instance: object, owner: type | None = None) -> Resource:
        if instance is not None:
            raise TypeError(
                f"resource {self.name!r} is declared on a method; declare it on a module's function, which "
                "another process can import, and give it what it needs as arguments"
            )
        return self

    def __repr__(self) -> str:
        return f"<resource {self.name!r} from {_home(self.factory)}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        if _importable(self):
            return self.__qualname__  # by reference: importing its module registers it
        return _declared, (self.name, self.factory, self.close)


class Opening:
    """What calling a resource gives: await it, or enter it with `async with`, for the stand-in.

    Outside an agent it opens the handle at once; inside, the kernel is asked to have it opened.
    """

    def __init__(self, stand_in: StandIn) -> None:
        self._stand_in = stand_in

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._open().__await__()

    async def __aenter__(self) -> Any:
        return await self._open()

    async def __aexit__(self, *exc_info: object) -> None:
        kernel = _kernel()
        if kernel is None:
            await close_handle(self._stand_in)
        else:
            await kernel.close_resource(self._stand_in)

    async def _open(self) -> Any:
        kernel = _kernel()
        if kernel is None:
            await open_handle(self._stand_in)
            return self._stand_in
        return await kernel.open_resource(self._stand_in)


def resource(
    name: str, *, close: Callable[[Any], Any] | None = None
) -> Callable[[Callable[..., Any]], Resource]:
    """Declares that the decorated factory opens (and reopens) a handle, under a name of its own.

    The arguments of its calls must travel. `close(handle)`, sync or async, ends the handle if neither
    its `aclose()` nor its `close()` is right. The name is registered for this process; another factory
    under the same name raises `ValueError` unless it is the same function of a reloaded module.
    """
    if not isinstance(name, str) or not name:
        raise TypeError('name the resource: @snaprt.resource("name")')

    def declare(factory: Callable[..., Any]) -> Resource:
        if not callable(factory):
            raise TypeError(f"resource {name!r}: {factory!r} is no function")
        known = _registry.get(name)
        if known is not None and _home(known.factory) != _home(factory):
            raise ValueError(
                f"resource {name!r} is already declared by {_home(known.factory)}; "
                f"give the one of {_home(factory)} another name"
            )
        made = _registry[name] = Resource(name, factory, close)
        return made

    return declare


def known(name: str) -> Resource | None:
    """The resource of that name, if the module that declares it has been imported here."""
    return _registry.get(name)


_registry: dict[str, Resource] = {}


def _declared(name: str, factory: Callable[..., Any], close: Callable[[Any], Any] | None) -> Resource:
    """A resource of a script, which travelled by value: this process's own declaration comes first."""
    found = _registry.get(name)
    if found is None:
        found = _registry[name] = Resource(name, factory, close)
    return found


def _importable(made: Resource) -> bool:
    if made.__module__ == "__main__":
        return False
    found: Any = sys.modules.get(made.__module__)
    for part in made.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is made


def _home(factory: Callable[..., Any]) -> str:
    return f"{getattr(factory, '__module__', '?')}.{getattr(factory, '__qualname__', repr(factory))}"


def _kernel() -> Any:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # no asyncio loop runs here: a trio host, or plain code
        return None
    return getattr(loop, "kernel", None)


# --- the stand-in -----------------------------------------------------------------------------------


class StandIn:
    """Stands in frames for the real handle of a resource, and forwards to it while it is open.

    Used while closed, it raises `ResourceUnavailable`. It is equal to and hashed as itself only, so that
    it may be a key across restores.
    """

    __slots__ = (
        "__weakref__",
        "_snaprt_args",
        "_snaprt_close",
        "_snaprt_kwargs",
        "_snaprt_real",
        "_snaprt_resource",
    )

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        # In two steps, so that arguments which lead back to the stand-in find it.
        held = (_get(self, "resource"), _get(self, "args"), _get(self, "kwargs"))
        return _blank, (), held, None, None, _fill

    def __repr__(self) -> str:
        real = _get(self, "real")
        status = "closed" if real is _CLOSED else repr(real)
        return f"<stand-in for resource {_get(self, 'resource').name!r}: {status}>"

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            real = _get(self, "real")
            return StandIn if real is _CLOSED else real.__class__
        if name in _OWN:
            return object.__getattribute__(self, name)
        return getattr(_real(self), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(_real(self), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(_real(self), name)

    def __dir__(self) -> list[str]:
        return dir(_real(self))

    def __str__(self) -> str:
        return repr(self) if _get(self, "real") is _CLOSED else str(_real(self))

    def __bool__(self) -> bool:
        return bool(_real(self))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _real(self)(*args, **kwargs)

    def __len__(self) -> int:
        return len(_real(self))

    def __length_hint__(self) -> int:
        return operator.length_hint(_real(self))

    def __contains__(self, item: Any) -> bool:
        return item in _real(self)

    def __getitem__(self, key: Any) -> Any:
        return _real(self)[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        _real(self)[key] = value

    def __delitem__(self, key: Any) -> None:
        del _real(self)[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(_real(self))

    def __next__(self) -> Any:
        return next(_real(self))

    def __aiter__(self) -> AsyncIterator[Any]:
        return aiter(_real(self))

    def __anext__(self) -> Awaitable[Any]:
        return anext(_real(self))

    def __enter__(self) -> Any:
        return _travelling(self, _entering(self, "__enter__", "__exit__"))

    def __exit__(self, *exc_info: Any) -> Any:
        return type(_real(self)).__exit__(_real(self), *exc_info)

    async def __aenter__(self) -> Any:
        return _travelling(self, await _entering(self, "__aenter__", "__aexit__"))

    async def __aexit__(self, *exc_info: Any) -> Any:
        return await type(_real(self)).__aexit__(_real(self), *exc_info)


def _entering(stand_in: StandIn, enter: str, leave: str) -> Any:
    handle = _real(stand_in)
    cls = type(handle)
    if not (hasattr(cls, enter) and hasattr(cls, leave)):
        raise TypeError(
            f"the handle of resource {_get(stand_in, 'resource').name!r} can't be entered: "
            f"{cls.__module__}.{cls.__qualname__} has no {enter} and {leave}"
        )
    return getattr(cls, enter)(handle)


def _travelling(stand_in: StandIn, entered: Any) -> Any:
    """`with db as x` mostly gives the handle itself: then the frame gets what travels."""
    return stand_in if entered is _real(stand_in) else entered


_OWN: Final = frozenset({"__reduce_ex__", "__repr__", "__weakref__"})
_SLOTS: Final[dict[str, Any]] = {
    name: StandIn.__dict__[f"_snaprt_{name}"] for name in ("resource", "args", "kwargs", "real", "close")
}


def _get(stand_in: StandIn, name: str) -> Any:
    return _SLOTS[name].__get__(stand_in)


def _set(stand_in: StandIn, name: str, value: Any) -> None:
    _SLOTS[name].__set__(stand_in, value)


def _blank() -> StandIn:
    made = object.__new__(StandIn)
    _set(made, "real", _CLOSED)
    _set(made, "close", None)
    return made


def _fill(made: StandIn, held: tuple[Resource, tuple[Any, ...], dict[str, Any]]) -> None:
    for name, value in zip(("resource", "args", "kwargs"), held, strict=True):
        _set(made, name, value)


def _real(stand_in: StandIn) -> Any:
    real = _get(stand_in, "real")
    if real is _CLOSED:
        name = _get(stand_in, "resource").name
        raise ResourceUnavailable(
            f"Resource {name!r} ({describe(stand_in)}) is used while it is closed: it is open only while its "
            "run is being driven, from `await` of its factory until it is closed. If the run was loaded "
            "by hand, call `await snaprt.state.resources.open_handle(stand_in)` first; if it was closed "
            "by the agent, open it again by calling its factory."
        )
    return real


# --- for whoever drives a run ------------------------------------------------------------------------


def stand_in(made_by: Resource, args: tuple[Any, ...], kwargs: dict[str, Any]) -> StandIn:
    """A closed stand-in for the handle that `made_by` opens with these arguments."""
    made = _blank()
    _fill(made, (made_by, args, kwargs))
    return made


def is_stand_in(value: object) -> bool:
    """Whether `value` is a stand-in; isinstance would ask the real handle."""
    return type(value) is StandIn


def resource_of(stand_in: StandIn) -> Resource:
    """The resource that the stand-in belongs to."""
    return _get(stand_in, "resource")  # type: ignore[no-any-return]  # a slot's descriptor is untyped


def is_open(stand_in: StandIn) -> bool:
    """Whether a real handle is bound to the stand-in now."""
    return _get(stand_in, "real") is not _CLOSED


def describe(stand_in: StandIn) -> str:
    """How the handle was asked for, shortened, for messages: `open_db('x.sqlite')`."""
    made_by = resource_of(stand_in)
    parts = [repr(value) for value in _get(stand_in, "args")]
    parts += [f"{name}={value!r}" for name, value in _get(stand_in, "kwargs").items()]
    text = ", ".join(parts)
    if len(text) > 60:
        text = text[:59] + "…"
    return f"{made_by.__name__}({text})"


def bind(stand_in: StandIn, handle: object, close: Callable[[], Awaitable[None]] | None = None) -> None:
    """Gives the stand-in its real handle, and how `close_handle` is to end it (default: not at all)."""
    _set(stand_in, "real", handle)
    _set(stand_in, "close", close)


def unbind(stand_in: StandIn) -> Any:
    """Takes the real handle away, without closing it; gives it, or None if there was none."""
    handle = _get(stand_in, "real")
    _set(stand_in, "real", _CLOSED)
    _set(stand_in, "close", None)
    return None if handle is _CLOSED else handle


async def open_handle(stand_in: StandIn) -> Any:
    """Opens the real handle, binds it and gives it; one that is open stays as it is.

    Stand-ins among the arguments are opened first, and the factory gets their handles. What the
    factory raises is raised here, and the stand-in stays closed. Where the handle was made with a cancel
    scope or task group of anyio, open and close it in the same host task.
    """
    if is_open(stand_in):
        return _get(stand_in, "real")
    for value in (*_get(stand_in, "args"), *_get(stand_in, "kwargs").values()):
        if is_stand_in(value):
            await open_handle(value)
    made_by = resource_of(stand_in)
    args, kwargs = real(_get(stand_in, "args")), real(_get(stand_in, "kwargs"))
    factory = made_by.factory
    if inspect.isgeneratorfunction(factory):
        factory = contextlib.contextmanager(factory)
    elif inspect.isasyncgenfunction(factory):
        factory = contextlib.asynccontextmanager(factory)
    handle = factory(*args, **kwargs)
    if inspect.isawaitable(handle) and not isinstance(handle, _CONTEXTS):
        handle = await handle

    # Told by class: many handles are context managers too, but those are closed by close().
    if isinstance(handle, contextlib._AsyncGeneratorContextManager):
        context = handle
        handle = await context.__aenter__()

        async def close() -> None:
            await context.__aexit__(None, None, None)

    elif isinstance(handle, contextlib._GeneratorContextManager):
        sync_context = handle
        handle = sync_context.__enter__()

        async def close() -> None:
            sync_context.__exit__(None, None, None)

    else:
        opened = handle

        async def close() -> None:
            await _end(opened, made_by.close)

    bind(stand_in, handle, close)
    return handle


# contextlib gives no public name to what its decorators make; their classes have kept theirs since 3.7.
_CONTEXTS: Final = (contextlib._GeneratorContextManager, contextlib._AsyncGeneratorContextManager)


async def close_handle(stand_in: StandIn) -> None:
    """Unbinds the stand-in and closes the real handle; does nothing if it isn't open.

    The stand-in counts as closed even if closing raises: a handle that can't be closed can't be used.
    """
    close = _get(stand_in, "close")
    unbind(stand_in)
    if close is not None:
        await close()


async def _end(handle: Any, close: Callable[[Any], Any] | None) -> None:
    if close is not None:
        outcome = close(handle)
    else:
        method = getattr(handle, "aclose", None) or getattr(handle, "close", None)
        if not callable(method):
            return
        outcome = method()
    if inspect.isawaitable(outcome):
        await outcome


def real(value: _T, *, depth: int = 2) -> _T:
    """`value` with stand-ins replaced by their real handles, for a tool that is about to be called.

    Looks through exact tuples, lists and dicts, `depth` of them deep (a call's arguments, and the
    containers among them); copies only what changes. Deeper ones stay stand-ins, which work too.
    Raises `ResourceUnavailable` for one that isn't open.
    """
    return cast(_T, _replaced(value, depth))


def _replaced(value: Any, depth: int) -> Any:
    if type(value) is StandIn:
        return _real(value)
    if depth <= 0:
        return value
    if type(value) in (tuple, list):
        items = [_replaced(item, depth - 1) for item in value]
        same = all(new is old for new, old in zip(items, value, strict=True))
        return value if same else type(value)(items)
    if type(value) is dict:
        replaced = {key: _replaced(item, depth - 1) for key, item in value.items()}
        return value if all(replaced[key] is item for key, item in value.items()) else replaced
    return value
