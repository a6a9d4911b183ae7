"""The register: every kind of handle is refused wherever it hangs, and plain things never are."""

from __future__ import annotations

import array
import asyncio
import collections
import contextlib
import contextvars
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import gc
import importlib
import io
import ipaddress
import itertools
import json
import logging
import operator
import pathlib
import random
import re
import string
import subprocess
import sys
import threading
import types
import uuid
import weakref
import zoneinfo
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from snaprt import state
from snaprt.errors import NotSerialisable
from snaprt.state import anchors, handles, paths
from snaprt.state.handles import Kind
from tests.state.handle_kinds import HANDLES, KIND, Workshop


class Holder:
    """A plain object of a user."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle


class Pause:
    def __await__(self) -> Any:
        yield


async def pause() -> None:
    await Pause()


def closing_over(held: Any) -> Callable[[], Any]:
    return lambda: held


def keep(*values: Any) -> None:
    """Takes what waits on the stack for its arguments."""


# Agents that hold the one thing in their box in different places. The line of the await is the last of each.


async def as_local(box: list[Any]) -> None:
    handle = box.pop()
    await pause()
    keep(handle)


async def as_attribute(box: list[Any]) -> None:
    holder = Holder(box.pop())
    await pause()
    keep(holder)


async def as_dict_value(box: list[Any]) -> None:
    found = {"pool": box.pop()}
    await pause()
    keep(found)


async def as_list_item(box: list[Any]) -> None:
    items = [0, 1, 2, box.pop()]
    await pause()
    keep(items)


async def as_tuple_item_deep(box: list[Any]) -> None:
    holder = Holder({"a": [(1, box.pop())]})
    await pause()
    keep(holder)


async def in_a_cell(box: list[Any]) -> None:
    held = box.pop()
    await pause()
    keep(lambda: held)


async def in_a_closure(box: list[Any]) -> None:
    function = closing_over(box.pop())
    await pause()
    keep(function)


async def on_the_stack(box: list[Any]) -> None:
    keep(box.pop(), await pause())


async def in_a_queue(box: list[Any]) -> None:
    queue: asyncio.Queue[Any] = asyncio.Queue()
    queue.put_nowait(box.pop())
    await pause()
    keep(queue)


async def in_a_partial(box: list[Any]) -> None:
    call = functools.partial(keep, 1, box.pop())
    await pause()
    keep(call)


async def on_an_exception(box: list[Any]) -> None:
    error = ValueError("wrong")
    error.handle = box.pop()  # type: ignore[attr-defined]  # as users do
    await pause()
    keep(error)


async def in_an_exit_stack(box: list[Any]) -> None:
    exits = contextlib.ExitStack()
    exits.callback(keep, box.pop())
    await pause()
    keep(exits)


async def in_an_awaited_frame(box: list[Any]) -> None:
    await as_local(box)


# Where each keeps it, and how many lines below its `def` it waits.
POSITIONS: dict[Callable[[list[Any]], Awaitable[None]], tuple[int, str]] = {
    as_local: (2, "local 'handle'"),
    as_attribute: (2, "local 'holder' → .handle"),
    as_dict_value: (2, "local 'found' → ['pool']"),
    as_list_item: (2, "local 'items' → [3]"),
    as_tuple_item_deep: (2, "local 'holder' → .handle → ['a'] → [0] → [1]"),
    in_a_cell: (2, "local 'held'"),
    in_a_closure: (2, "local 'function' → closure variable 'held'"),
    on_the_stack: (1, "value of `box.pop()` on the stack"),
    in_a_queue: (3, "local 'queue' → ._queue → [0]"),
    in_a_partial: (2, "local 'call' → .args → [1]"),
    on_an_exception: (3, "local 'error' → .handle"),
    in_an_exit_stack: (3, "local 'exits' → ._exit_callbacks → [0] → [1] → closure variable 'args' → [0]"),
}


# A traceback that a frame holds itself (every awaiting `__aexit__` does) is left out of it, like those of
# exceptions: None stands there after a load. Anywhere else it is a handle like any other.
LEFT_OUT = {"traceback": (as_local, on_the_stack)}


def path_of(agent: Any) -> str:
    below, rest = POSITIONS[agent]
    code = agent.__code__
    return f"tests/state/test_handles.py:{code.co_firstlineno + below} in {agent.__name__}: {rest}"


def expected(name: str) -> dict[Any, list[str]]:
    """Where the handle of that name has to be reported, by agent."""
    return {agent: [] if agent in LEFT_OUT.get(name, ()) else [path_of(agent)] for agent in POSITIONS}


def found_in(agent: Any, handle: Any) -> list[handles.Offender]:
    frame = agent([handle])
    frame.send(None)
    try:
        return paths.find(frame)
    finally:
        frame.close()


def made(name: str, workshop: Workshop) -> Any:
    try:
        return HANDLES[name](workshop)
    except ImportError as error:
        pytest.skip(f"the package of this handle isn't installed: {error.name}")


@pytest.fixture
def workshop(tmp_path: pathlib.Path) -> Any:
    with Workshop(tmp_path) as shop:
        yield shop


@pytest.mark.parametrize("name", HANDLES)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_every_kind_is_refused_in_every_position_by_its_exact_path(name: str, workshop: Workshop) -> None:
    handle = made(name, workshop)
    kind = handles.refuse(handle)
    assert kind is not None
    assert kind.name == KIND[name]
    found = {agent: [o.path for o in found_in(agent, handle)] for agent in POSITIONS}
    assert found == expected(name)
    offender = found_in(as_list_item, handle)[0]
    assert (offender.kind, offender.hint) == (kind.name, kind.hint)
    assert offender.what == handles.type_name(type(handle))
    awaited = found_in(in_an_awaited_frame, handle)
    assert [o.path for o in awaited] == expected(name)[as_local]


def dumped(agent: Any, thing: Any) -> list[str]:
    """The paths that a dump of the agent is refused with; none if it is taken."""
    frame = agent([thing])
    frame.send(None)
    try:
        assert state.dump(frame).parts
    except NotSerialisable as refusal:
        return [offender.path for offender in refusal.offenders]
    finally:
        frame.close()
    return []


@pytest.fixture(scope="module")
def hanging() -> anchors.Hanging:
    return anchors.Hanging()


# A refused dump looks through all the modules of this test run for anchors. Nothing of this table hangs
# there, so one look does for all; the next test, with every handle at once, takes its own.
@pytest.mark.parametrize("name", HANDLES)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_a_dump_that_holds_a_handle_is_refused_in_every_position(
    name: str, workshop: Workshop, hanging: anchors.Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(anchors, "Hanging", lambda: hanging)
    handle = made(name, workshop)
    assert {agent: dumped(agent, handle) for agent in POSITIONS} == expected(name)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_a_dump_that_holds_every_handle_is_refused_with_all_of_them_at_once(workshop: Workshop) -> None:
    found: dict[str, Any] = {}
    for name, make in HANDLES.items():
        with contextlib.suppress(ImportError):
            found[name] = make(workshop)
    place = path_of(as_dict_value).removesuffix("['pool']")
    assert dumped(as_dict_value, found) == [f"{place}['pool'] → [{name!r}]" for name in found]


def test_the_table_of_live_handles_covers_at_least_eighty_kinds() -> None:
    assert len(set(KIND.values())) >= 80
    assert len(HANDLES) >= 130


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Point:
    x: int
    y: int = 2


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        self.value = value


variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable")


def _context() -> contextvars.Context:
    context = contextvars.copy_context()
    context.run(variable.set, 3)
    return context


def _raised() -> Exception:
    try:
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise ValueError("outer") from error
    except ValueError as error:
        error.add_note("a note")
        return error


def _generator() -> Any:
    made = (n for n in [1, 2, 3])
    next(made)
    return made


# Things that must pass, by how they look in a test's name.
PLAIN: dict[str, Callable[[], Any]] = {
    "bytes_io": lambda: io.BytesIO(b"x"),
    "string_io": lambda: io.StringIO("x"),
    "path": lambda: pathlib.Path("a/b"),
    "asyncio_lock": asyncio.Lock,
    "asyncio_event": asyncio.Event,
    "asyncio_condition": asyncio.Condition,
    "asyncio_semaphore": lambda: asyncio.Semaphore(2),
    "asyncio_queue": asyncio.Queue,
    "asyncio_priority_queue": asyncio.PriorityQueue,
    "asyncio_barrier": lambda: asyncio.Barrier(2),
    "decimal": lambda: decimal.Decimal("1.5"),
    "fraction": lambda: fractions.Fraction(1, 3),
    "pattern": lambda: re.compile("a+"),
    "logger": lambda: logging.getLogger("snaprt.tests"),
    "date": lambda: datetime.datetime(2026, 11, 29, tzinfo=datetime.UTC),
    "zone": lambda: zoneinfo.ZoneInfo("UTC"),
    "uuid": lambda: uuid.UUID(int=1),
    "address": lambda: ipaddress.ip_address("127.0.0.1"),
    "enum": lambda: Colour.RED,
    "dataclass": lambda: Point(1),
    "slots": lambda: Slotted(3),
    "namespace": lambda: types.SimpleNamespace(a=1),
    "ordered": lambda: collections.OrderedDict(a=1),
    "default_dict": lambda: collections.defaultdict(list, a=[1]),
    "counter": lambda: collections.Counter("aab"),
    "deque": lambda: collections.deque([1], maxlen=3),
    "chain_map": lambda: collections.ChainMap({"a": 1}),
    "named_tuple": lambda: collections.namedtuple("T", "a")(1) and sys.version_info,
    "array": lambda: array.array("d", [1.0]),
    "bytearray": lambda: bytearray(b"x"),
    "random": lambda: random.Random(1),
    "partial": lambda: functools.partial(keep, 1),
    "method": lambda: Holder(1).__init__,  # type: ignore[misc]  # a bound method is what is wanted
    "builtin_method": lambda: [1].append,
    "closure": lambda: closing_over(1),
    "item_getter": lambda: operator.itemgetter(1),
    "exception": _raised,
    "group": lambda: ExceptionGroup("g", [ValueError(1), KeyError(2)]),
    "context": _context,
    "generator": _generator,
    "list_iterator": lambda: iter([1, 2]),
    "dict_iterator": lambda: iter({"a": 1}),
    "dict_view": lambda: {"a": 1}.items(),
    "enumerate": lambda: enumerate([1]),
    "zip": lambda: zip([1], [2], strict=True),
    "map": lambda: map(str, [1]),
    "count": lambda: itertools.count(3),
    "chain": lambda: itertools.chain([1], [2]),
    "callable_iterator": lambda: iter(functools.partial(int, "1"), 2),
    "cycle": lambda: _cycle(),
    "class": lambda: Holder,
    "module": lambda: json,
    "function": lambda: json.dumps,
    "template": lambda: string.Template("$a"),
    "completed_process": lambda: subprocess.CompletedProcess(["a"], 0),
    "exit_stack": contextlib.ExitStack,
    "log_record": lambda: logging.makeLogRecord({"msg": "x"}),
    "weak_reference_in_the_state": lambda: _weak_inside(),
    "dead_weak_reference": lambda: weakref.ref(Holder(1)),
    "weak_set": lambda: weakref.WeakSet([Colour.RED]),
    "range": lambda: range(3),
    "slice": lambda: slice(1, 2),
    "complex": lambda: 1j,
}


def _cycle() -> Any:
    holder = Holder(None)
    holder.handle = [holder, {"back": holder}]
    return holder


def _weak_inside() -> Any:
    target = Holder(1)
    return [weakref.ref(target), target]


@pytest.mark.parametrize("name", PLAIN)
def test_plain_things_are_never_refused(name: str) -> None:
    thing = PLAIN[name]()
    assert handles.refuse(thing) is None
    for agent in POSITIONS:
        assert found_in(agent, thing) == []
    for agent in POSITIONS:
        assert dumped(agent, PLAIN[name]()) == []


def test_arrays_and_responses_that_are_read_are_never_refused() -> None:
    httpx = pytest.importorskip("httpx", reason="httpx isn't installed")
    numpy = pytest.importorskip("numpy", reason="numpy isn't installed")
    over_bytes = numpy.frombuffer(memoryview(b"bytes"), dtype="u1")
    for thing in (httpx.Response(200, content=b"x"), numpy.arange(3)[1:], numpy.float64(1), over_bytes[1:]):
        assert handles.refuse(thing) is None
        assert found_in(as_local, thing) == []


# --- names --------------------------------------------------------------------------------------------

# Classes that no module holds under the name that they go by; instances of them are in the table above.
NAMELESS = {
    *("posix:ScandirIterator", "select:poll", "_thread:lock", "_thread:_ThreadHandle", "_ctypes:_CData"),
    *("zlib:Compress", "zlib:Decompress", "zlib:_ZlibDecompressor", "_md5:md5", "_sha1:sha1"),
    *("_sha256:sha256", "_sha256:sha224", "_sha512:sha512", "_sha512:sha384", "_csv:reader", "_csv:writer"),
    *("_csv:Reader", "_csv:Writer", "pyexpat:xmlparser", "_tkinter:tkapp"),
    *("zstandard.backend_c:ZstdCompressionObj", "zstandard.backend_c:ZstdDecompressionObj"),
    *("select:kqueue", "select:devpoll", "select:epoll", "_dbm:dbm"),  # each on some systems only
    # on some versions only
    *("asyncio.events:AbstractEventLoopPolicy", "asyncio.events:_AbstractEventLoopPolicy"),
}
NAMES = sorted({entry for kind in handles.registered() for entry in kind.types if isinstance(entry, str)})


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_name_in_the_table_is_a_class_where_its_module_is_installed() -> None:
    wrong = []
    for name in NAMES:
        module, _, qualname = name.partition(":")
        try:
            found: Any = importlib.import_module(module)
        except ImportError:
            continue
        for part in qualname.split("."):
            found = getattr(found, part, None)
        # anyio.abc's names are lazy, and their classes go by them once loaded: getattr finds those.
        if not isinstance(found, type) and name not in NAMELESS:
            wrong.append(name)
    assert wrong == []


@pytest.mark.parametrize("name", NAMES)
def test_a_class_is_known_by_the_name_it_was_defined_under_without_its_package(name: str) -> None:
    module, _, qualname = name.partition(":")
    cls = type(qualname.rpartition(".")[2], (), {"__module__": module, "__qualname__": qualname})
    mine = type("Mine", (cls,), {})
    named = [kind for kind in handles.registered() if name in kind.types]
    for obj in (cls(), mine()):
        # A predicate may need the real class, and then what it can't look at counts as a handle.
        if any(kind.when is None and not kind.of_other_loop for kind in named):
            assert handles.refuse(obj) in named


def test_a_name_is_never_imported_and_is_known_once_its_module_is(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = handles.register(Kind("parrot", ("norwegian:Blue",), "leave it in the shop"))
    try:
        blue = type("_Bird", (), {"__module__": "elsewhere"})
        assert handles.refuse(blue()) is None
        assert "norwegian" not in sys.modules
        shop = types.ModuleType("norwegian")
        shop.Blue = blue  # type: ignore[attr-defined]  # a re-export under another name
        monkeypatch.setitem(sys.modules, "norwegian", shop)
        handles.refuse(type("Other", (), {})())  # any type that is new
        assert handles.refuse(blue()) is kind
    finally:
        handles.unregister(kind)


def test_importing_the_register_imports_none_of_the_packages_it_knows() -> None:
    heavy = ("httpx", "aiohttp", "requests", "botocore", "trio", "ssl", "sqlite3", "multiprocessing")
    said = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys, snaprt.state.kinds; print([m for m in {heavy} if m in sys.modules])",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert json.loads(said.replace("'", '"')) in ([], ["ssl"])  # asyncio itself imports ssl


# --- users' kinds ---------------------------------------------------------------------------------------


class Camera:
    def __init__(self, *, live: bool = True) -> None:
        self.live = live


class Webcam(Camera):
    pass


@pytest.fixture
def forget() -> Any:
    kinds: list[Kind] = []
    yield kinds.append
    for kind in kinds:
        handles.unregister(kind)


def test_a_kind_that_a_user_registers_is_refused_with_its_hint(forget: Any) -> None:
    assert found_in(as_local, Camera()) == []
    forget(handles.register_handle(Camera, hint="switch it off"))
    for camera in (Camera(), Webcam()):
        (offender,) = found_in(as_list_item, camera)
        assert offender.path == path_of(as_list_item)
        assert offender.hint == "switch it off"
    assert handles.refuse(Camera()).name == f"{__name__}.Camera"  # type: ignore[union-attr]  # it is refused


def test_a_kind_with_a_predicate_refuses_only_what_is_live(forget: Any) -> None:
    forget(handles.register_handle(Camera, hint="switch it off", when=lambda camera: camera.live))
    assert handles.refuse(Camera(live=True)) is not None
    assert handles.refuse(Camera(live=False)) is None


def test_a_predicate_that_fails_counts_as_live(forget: Any) -> None:
    forget(handles.register_handle(Camera, hint="switch it off", when=lambda camera: camera.missing))
    assert handles.refuse(Camera(live=False)) is not None


def test_a_kind_by_name_finds_a_class_of_this_module(forget: Any) -> None:
    forget(handles.register_handle(f"{__name__}:Camera", hint="switch it off", name="camera"))
    assert handles.refuse(Webcam()).name == "camera"  # type: ignore[union-attr]  # it is refused


def test_a_kind_registered_later_is_asked_first(forget: Any) -> None:
    forget(handles.register_handle(io.FileIO, hint="mine", name="mine"))
    with open(__file__, "rb", buffering=0) as file:
        assert handles.refuse(file).name == "mine"  # type: ignore[union-attr]  # it is refused
    with open(__file__, "rb") as file:
        assert handles.refuse(file).name == "open file"  # type: ignore[union-attr]  # it is refused


@pytest.mark.parametrize("wrong", [("no colon",), (":x",), ("module:",), (3,)])
def test_a_kind_that_names_no_class_is_refused_when_made(wrong: Any) -> None:
    with pytest.raises(TypeError, match="neither a class nor a name"):
        Kind("wrong", wrong)


def test_a_kind_that_can_not_match_is_refused_when_made() -> None:
    with pytest.raises(TypeError, match="can't match"):
        Kind("empty")


# --- exemptions -----------------------------------------------------------------------------------------


class OwnLoop(asyncio.SelectorEventLoop):
    pass


@pytest.fixture
def own_loop() -> Any:
    loop = OwnLoop()
    yield loop
    handles.disallow(OwnLoop)
    loop.close()


def test_what_is_bound_to_an_allowed_loop_is_not_of_another_loop(own_loop: OwnLoop) -> None:
    future = own_loop.create_future()
    assert handles.refuse(future) is not None
    assert handles.refuse(own_loop) is not None
    handles.allow(OwnLoop)
    assert handles.refuse(future) is None
    assert handles.refuse(own_loop) is None
    handles.disallow(OwnLoop)
    assert handles.refuse(future) is not None


def test_a_kind_of_a_subclass_outweighs_an_allowed_base(forget: Any) -> None:
    forget(handles.register_handle(Webcam, hint="unplug it"))
    handles.allow(Camera)
    try:
        assert handles.refuse(Camera()) is None
        assert handles.refuse(Webcam()) is not None
    finally:
        handles.disallow(Camera)


def test_an_allowed_subclass_outweighs_the_kind_of_its_base(forget: Any) -> None:
    forget(handles.register_handle(Camera, hint="switch it off"))
    handles.allow(Webcam)
    try:
        assert handles.refuse(Camera()) is not None
        assert handles.refuse(Webcam()) is None
    finally:
        handles.disallow(Webcam)


# --- DB-API ---------------------------------------------------------------------------------------------


def test_connections_and_cursors_of_an_unknown_driver_are_known_by_pep_249(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = types.ModuleType("unheard_of")
    driver.apilevel, driver.paramstyle = "2.0", "qmark"  # type: ignore[attr-defined]  # as PEP 249 asks
    monkeypatch.setitem(sys.modules, "unheard_of", driver)
    nothing = dict.fromkeys(("cursor", "commit", "close"), keep)
    connection = type("Link", (), {"__module__": "unheard_of.impl", **nothing})
    cursor = type(
        "Pointer",
        (),
        {"__module__": "unheard_of.impl", **dict.fromkeys(("execute", "fetchone", "close"), keep)},
    )
    other = type("Link", (), {"__module__": "json.impl", **nothing})
    assert handles.refuse(connection()).name == "DB-API connection"  # type: ignore[union-attr]  # it is refused
    assert handles.refuse(cursor()).name == "DB-API cursor"  # type: ignore[union-attr]  # it is refused
    assert handles.refuse(other()) is None


# --- the register's own memory ----------------------------------------------------------------------------


def test_a_class_that_was_asked_about_is_let_go() -> None:
    cls = type("Passing", (), {})
    assert handles.refuse(cls()) is None
    weak = weakref.ref(cls)
    known = len(handles._answers)
    del cls
    gc.collect()
    assert weak() is None
    assert len(handles._answers) < known


def test_a_class_whose_predicate_asks_the_register_does_not_deadlock(forget: Any) -> None:
    asked = []

    def like(cls: type) -> bool:
        if cls is Camera:
            asked.append(handles.refuse(Webcam()))
        return False

    kind = handles.register(Kind("odd", hint="none", like=like))
    forget(kind)
    done = threading.Thread(target=handles.refuse, args=(Camera(),), daemon=True)
    done.start()
    done.join(20)
    assert not done.is_alive()
    assert asked == [None]


def test_every_kind_has_a_hint_of_one_clause() -> None:
    for kind in handles.registered():
        assert kind.hint
        assert not kind.hint.endswith(".")
        assert "\n" not in kind.hint
