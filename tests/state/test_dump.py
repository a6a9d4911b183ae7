"""Dump and load: large leaves, deep graphs, names of the surroundings, side tables, registered reducers."""

from __future__ import annotations

import gc
import importlib
import random
import subprocess
import sys
import types

import pytest

import snaprt.state as state
from snaprt.errors import CodeChanged, Damaged, NotCapturable, NotRestorable, NotSerialisable, SnaprtError
from snaprt.state import carriers, handles, modules, reducers

from . import sample


def twin(obj, **options):
    return state.load(state.dump(obj, **options).parts, **options)


LARGE = 100_000


def leaves(dump):
    return [part for part in dump.parts if len(part) >= state.LEAF]


def test_large_leaves_are_parts_of_their_own_and_bytes_arent_copied():
    text, ascii_text, data, buffer = "ä" * LARGE, "a" * LARGE, bytes(LARGE), bytearray(b"b" * LARGE)
    many = [f"text {n}" for n in range(50_000)]
    root = {"text": text, "ascii": ascii_text, "data": [data, data], "buffer": buffer, "many": many}
    dump = state.dump(root)
    assert [bytes(leaf) for leaf in leaves(dump)] == [text.encode(), ascii_text.encode(), data, bytes(buffer)]
    assert any(part is data for part in dump.parts)
    again = state.load(iter(dump.parts))
    assert again == root
    assert again["data"][0] is again["data"][1]
    assert state.load(b"".join(dump.parts)) == root
    assert state.load(bytearray(bytes(dump))) == root


def test_a_part_of_the_stream_is_never_as_large_as_a_leaf():
    dump = state.dump([(n, str(n)) for n in range(100_000)])
    assert leaves(dump) == []
    assert len(dump.parts) > 10


def test_detached_parts_dont_follow_a_buffer():
    buffer = bytearray(b"a" * LARGE)
    dump = state.dump([buffer])
    detached = dump.detached()
    buffer[:] = b"b" * LARGE
    assert state.load(dump.parts) == [buffer]
    assert state.load(detached.parts) == [b"a" * LARGE]


def test_arrays_are_leaves_too():
    numpy = pytest.importorskip("numpy", reason="numpy isn't installed")
    array = numpy.arange(LARGE)
    transposed = numpy.asfortranarray(numpy.arange(LARGE).reshape(100, -1))
    dump = state.dump([array, transposed])
    assert [len(leaf) for leaf in leaves(dump)] == [8 * LARGE, 8 * LARGE]
    one, two = state.load(dump.parts)
    assert (one == array).all()
    assert (two == transposed).all()
    one[0] = 5


PEAK = """
import sys
from snaprt.state import dump, load
size = 64 * 1024 * 1024
def peak(): return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) * 1024
root = [bytes([65 + n]) * size for n in range(3)] + ["a" * size]
base = peak()
parts = dump(root).parts
dumped = peak()
del root
again = load(parts)
assert [len(x) for x in again] == [size] * 4
print((dumped - base) // size, (peak() - base) // size)
"""


def test_neither_dump_nor_load_doubles_a_large_state():
    out = subprocess.run(
        [sys.executable, "-c", PEAK], capture_output=True, text=True, check=True, timeout=120
    )
    dumping, all_together = map(int, out.stdout.split())
    # In leaves: bytes go out as they are, text as one copy; a load makes each leaf once.
    assert dumping <= 2
    assert all_together <= 6


class Node:
    def __init__(self, following=None):
        self.following = following


def test_a_linked_list_of_five_thousand_is_no_trouble():
    root = None
    for _ in range(5_000):
        root = Node(root)
    again = twin(root)
    length = 0
    while again is not None:
        again, length = again.following, length + 1
    assert length == 5_000


async def digging(make, levels):
    nested = None
    for _ in range(levels):
        nested = make(nested)
    await park()
    depth = 0
    while nested is not None:
        (nested,) = nested.values() if isinstance(nested, dict) else nested
        depth += 1
    return depth


@pytest.mark.parametrize("make", [lambda inner: [inner], lambda inner: {"a": inner}])
def test_plain_data_of_any_depth_in_a_local_travels(make):
    coro = digging(make, 6_000)
    coro.send(None)
    (again,) = twin([coro])
    for waiting in (coro, again):
        with pytest.raises(StopIteration) as ended:
            waiting.send(None)
        assert ended.value.value == 6_000


@pytest.mark.skipif(
    sys.version_info >= (3, 14), reason="from 3.14 on the C stack is measured, and this depth travels"
)
def test_tuples_nested_too_deeply_are_refused_by_the_variable_that_holds_them():
    coro = digging(lambda inner: (inner,), 30_000)
    coro.send(None)
    with pytest.raises(NotSerialisable) as caught:
        state.dump({"run": coro})
    (offender,) = caught.value.offenders
    assert "in digging: local 'nested' → [0]" in offender.path
    assert "30003 levels" in offender.reason
    assert "too deeply" in offender.kind
    coro.close()


def test_the_recursion_limit_is_as_before_after_a_deep_dump():
    nested = []
    for _ in range(5_000):
        nested = [nested]
    before = sys.getrecursionlimit()
    state.dump(nested)
    assert sys.getrecursionlimit() == before


class Loop:
    pass


def test_objects_of_the_surroundings_travel_as_their_name():
    loop, table = Loop(), {"a": 1}
    parts = state.dump([loop, {"x": loop}, table, [table]], resolve={"loop": loop, "table": table}).parts
    other, other_table = Loop(), {}
    one, two, three, four = state.load(parts, resolve={"loop": other, "table": other_table})
    assert one is other is two["x"]
    assert three is other_table is four[0]
    with pytest.raises(NotRestorable, match=r"'(loop|table)'"):
        state.load(parts)


class Registered:
    def __init__(self, value):
        self.value = value


class AlsoRegistered(Registered):
    pass


def test_other_floors_say_how_their_types_travel():
    reducers.register(Registered, lambda obj: (Registered, (obj.value * 2,)), subclasses=True)
    try:
        assert twin(Registered(2)).value == 4
        assert twin(AlsoRegistered(3)).value == 6
    finally:
        reducers.unregister(Registered)
    assert twin(Registered(2)).value == 2


class LiveRegistered(Registered):
    pass


def test_a_reducer_lets_no_handle_through_unless_its_type_is_allowed():
    reducers.register(Registered, lambda obj: (type(obj), (obj.value,)), subclasses=True)
    kind = handles.register_handle(LiveRegistered, hint="switch it off")
    try:
        assert twin([Registered(1)])[0].value == 1
        with pytest.raises(NotSerialisable, match="switch it off"):
            state.dump([LiveRegistered(1)])
        handles.allow(LiveRegistered)
        assert type(twin([LiveRegistered(1)])[0]) is LiveRegistered
    finally:
        handles.disallow(LiveRegistered)
        handles.unregister(kind)
        reducers.unregister(Registered)


SIDE_TABLE = {}


class TableCarrier:
    name = "test table"
    module = __name__

    def take(self, held):
        found = [(key, value) for key, value in SIDE_TABLE.values() if held(key)]
        return found or None

    def put(self, entries):
        for key, value in entries:
            SIDE_TABLE[id(key)] = (key, value)


def test_a_carrier_takes_entries_along_and_puts_them_back():
    first, second, stranger = Node(), Node(), Node()
    # The first one's entry leads to the second, whose entry has to come along then.
    for key, value in ((first, [second]), (second, "second"), (stranger, "not ours")):
        SIDE_TABLE[id(key)] = (key, value)
    carriers.register(TableCarrier())
    try:
        parts = state.dump(first).parts
        SIDE_TABLE.clear()
        again = state.load(parts)
        (reached,) = SIDE_TABLE[id(again)][1]
        assert SIDE_TABLE[id(reached)][1] == "second"
        assert len(SIDE_TABLE) == 2
        carriers.unregister("test table")
        with pytest.raises(NotRestorable, match="test table"):
            state.load(parts)
    finally:
        carriers.unregister("test table")
        SIDE_TABLE.clear()


@types.coroutine
def park():
    return (yield)


async def holding(value):
    await park()
    return value


def suspended(value):
    coro = holding(value)
    coro.send(None)
    return coro


def test_a_refusal_names_every_offender_and_leaves_the_coroutine_as_it_was(tmp_path):
    with open(tmp_path / "f", "w") as file:
        coro = suspended([file, {"deep": [sys._getframe()]}])
        with pytest.raises(NotSerialisable) as caught:
            state.dumps(coro)
        assert len(caught.value.offenders) == 2
        assert "local 'value' → [0]" in str(caught.value)
        with pytest.raises(StopIteration) as stop:
            coro.send(None)
        assert stop.value.value[0] is file


async def saves_itself(box):
    with pytest.raises(NotCapturable):
        state.dumps(box[0])
    return "refused"


def test_a_running_coroutine_is_refused():
    box = []
    box.append(saves_itself(box))
    with pytest.raises(StopIteration) as stop:
        box[0].send(None)
    assert stop.value.value == "refused"


@pytest.mark.parametrize("thing", [1, holding, "x", [1]])
def test_dumps_and_release_take_coroutines_only(thing):
    with pytest.raises(TypeError, match=r"snaprt\.release takes a coroutine"):
        state.release(thing)
    with pytest.raises(TypeError, match="takes a coroutine"):
        state.dumps(thing)


def test_created_and_finished_coroutines_are_state_too():
    created = holding(5)
    again = state.loads(state.dumps(created))
    again.send(None)
    with pytest.raises(StopIteration) as stop:
        again.send(None)
    assert stop.value.value == 5
    created.send(None)
    with pytest.raises(StopIteration):
        created.send(None)
    finished = state.loads(state.dumps(created))
    assert finished.cr_frame is None
    with pytest.raises(RuntimeError, match="already awaited"):
        finished.send(None)


RUNG = []


class Alarm:
    def __reduce__(self):
        return RUNG.append, (1,)


def test_damaged_bytes_are_refused_before_anything_of_them_runs():
    coro = suspended(Alarm())
    data = state.dumps(coro)
    chance = random.Random(11)
    for _ in range(2_000):
        mutated = bytearray(data)
        kind = chance.randrange(4)
        at = chance.randrange(len(data))
        if kind == 0:
            mutated[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del mutated[at:]
        elif kind == 2:
            mutated[at:at] = bytes([chance.randrange(256)])
        else:
            end = chance.randrange(at, len(data)) + 1
            mutated[at:end] = reversed(mutated[at:end])
            if mutated == data:
                continue
        with pytest.raises(Damaged):
            state.loads(bytes(mutated))
    assert RUNG == []
    state.release(state.loads(data))
    assert RUNG == [1]
    state.release(coro)


@pytest.mark.parametrize("data", [b"", b"x", b"\x80\x05N.", b"snaprt", bytes(1000), bytearray(b"{}")])
def test_foreign_bytes_are_refused(data):
    with pytest.raises(Damaged):
        state.loads(data)
    with pytest.raises(Damaged):
        state.load(data)


def test_a_broken_stream_leaves_no_frame_behind(recwarn):
    parts = state.dump([suspended(n) for n in range(3)]).parts
    whole = b"".join(parts)
    gc.collect()
    for cut in range(len(whole) - 1, len(whole) // 2, -7):
        with pytest.raises(SnaprtError):
            state.load(whole[:cut])
    gc.collect()
    assert [str(w.message) for w in recwarn if "never awaited" in str(w.message)] == []


class Breaks:
    def __setstate__(self, state):
        raise ZeroDivisionError("no")

    def __getstate__(self):
        return 1


def test_an_object_that_cant_be_rebuilt_is_told_apart_from_damage():
    parts = state.dump([Breaks()]).parts
    with pytest.raises(NotRestorable, match="ZeroDivisionError: no"):
        state.load(parts)


def test_a_missing_module_is_named(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "short_lived.py").write_text("class Thing: pass\nasync def wait(x): await x\n")
    import short_lived

    waiting = short_lived.wait(None)
    dumped = [state.dump(short_lived.Thing()).parts, state.dump(waiting).parts]
    waiting.close()
    (tmp_path / "short_lived.py").unlink()
    monkeypatch.delitem(sys.modules, "short_lived")
    for parts in dumped:
        with pytest.raises(CodeChanged, match="'short_lived'"):
            state.load(parts)


def test_another_interpreter_is_refused_with_both_sides(monkeypatch):
    from snaprt import frames

    parts = state.dump(coro := suspended(1)).parts
    here = {**frames.interpreter(), "implementation": "another"}
    monkeypatch.setattr(frames, "interpreter", lambda: here)
    with pytest.raises(CodeChanged, match="implementation") as caught:
        state.load(parts)
    assert "another" in str(caught.value)
    assert state.load(state.dump([1]).parts) == [1]
    coro.close()


def test_release_reaches_the_frames_inside_context_managers_and_iterators():
    log = []

    def items():
        try:
            yield 1
            yield 2
        finally:
            log.append("generator")

    async def agent():
        with sample.managed(log):
            for _ in map(str, items()):
                await park()

    coro = agent()
    coro.send(None)
    state.release(coro)
    del coro
    gc.collect()
    assert log == ["in"]


def test_a_package_of_another_site_packages_is_a_librarys(tmp_path, monkeypatch):
    for folder, library in (("lib/python3/dist-packages", True), ("site-packages", True), ("agents", False)):
        name = f"of_{folder[-13:].replace('-', '_')}"
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / f"{name}.py").write_text("TABLE = {}\n")
        monkeypatch.syspath_prepend(tmp_path / folder)
        module = importlib.import_module(name)
        assert modules.is_library(module) is library
        assert twin([module.TABLE])[0] is module.TABLE
        del sys.modules[name]


def test_a_global_container_is_found_anywhere_in_a_long_stream(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    generator = random.Random(7)
    for run in range(20):
        name = f"tables_{run}"
        (tmp_path / f"{name}.py").write_text("TABLE, ITEMS = {}, []\n")
        module = importlib.import_module(name)
        # Binary leaves hold the very bytes that a reference is found by, and what looks nearly like one.
        noise = [
            generator.choice([generator.randbytes(900), b"j\1\0\xf5\xff", b"\xf5\xff", b"j\0\0\xf5"])
            for _ in range(generator.randrange(400))
        ]
        again = twin([noise, module.TABLE, noise[:3], "text", module.ITEMS])
        assert again[0] == noise
        assert again[1] is module.TABLE
        assert again[4] is module.ITEMS
        del sys.modules[name]


def test_a_module_is_by_value_once_marked():
    module = types.ModuleType("marked")
    assert not modules.importable("marked")
    assert state.by_value(module).__dict__[modules.MARK] is True


ANNOTATED = """
from abc import ABC
class Order(ABC):
    count: int
    note: "Later" = "none"
    {more}
"""


def annotated(more=""):
    module = types.ModuleType("annotated_script")
    exec(compile(ANNOTATED.format(more=more), "script", "exec", dont_inherit=True), module.__dict__)
    again = twin([module.Order])[0]
    assert again is not module.Order
    assert again.note == "none"
    return again


def test_a_class_by_value_keeps_its_annotations():
    assert annotated().__annotations__ == {"count": int, "note": "Later"}


@pytest.mark.skipif(sys.version_info < (3, 14), reason="annotations are evaluated at once before 3.14")
def test_annotations_whose_names_arent_there_yet_travel_as_they_are_written():
    assert annotated("of: Missing").__annotations__ == {"count": "int", "note": "Later", "of": "Missing"}


def test_equal_states_give_equal_bytes():
    coro = suspended({"a": [1, sample.plain]})
    assert state.dumps(coro) == state.dumps(coro)
    coro.close()
