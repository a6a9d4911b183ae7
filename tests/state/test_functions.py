"""Functions, closures, methods and what wraps them."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import datetime
import decimal
import errno
import fractions
import functools
import importlib
import json
import operator
import pathlib
import random
import re
import socket
import string
import sys
import threading
import types
import typing
import uuid
import weakref
import zoneinfo

import pytest

import snaprt.state as state
from snaprt import frames
from snaprt.errors import CodeChanged, NotSerialisable
from snaprt.state import anchors
from snaprt.state import code as codes

from . import sample


def twin(obj):
    return state.load(state.dump(obj).parts)


@pytest.mark.parametrize(
    "obj",
    [
        len, sample.plain, sample.decorated, sample.Thing, sample.Thing.method, sample.Thing.fixed,
        sample.cached, sample.kind_of, sample, list.append, object.__init__, int.__add__, sample.MISSING,
        sample.Thing.__dict__["doubled"].fget, type(None), type(...), type(NotImplemented),
        types.FunctionType, types.CoroutineType, ..., NotImplemented, str, typing.Any, sample.CURRENT,
        sample.TABLE, sample.ITEMS, sample.NAMES, sample.BUFFER, sample.HOLDER,
        sample.Holder.variable, sample.HOLDER.variable, sample.__dict__, type(iter({})), int.real,
        types.SimpleNamespace, KeyError,
        collections.OrderedDict,
    ],
    ids=lambda obj: str(obj)[:40],
)  # fmt: skip
def test_what_belongs_to_a_module_is_the_very_same_after_a_load(obj):
    assert twin(obj) is obj
    alone, nested, shared = twin((obj, [{"x": obj}], [obj]))
    assert alone is obj
    assert nested[0]["x"] is obj
    assert shared[0] is obj


@pytest.mark.parametrize("module", [string, json, errno, asyncio], ids=lambda module: module.__name__)
def test_the_namespace_of_a_package_is_its_own_wherever_the_state_holds_it(module):
    alone, spec = twin((vars(module), module.__spec__))
    assert alone is vars(module)
    assert spec is module.__spec__
    assert twin([[vars(module)]])[0][0] is vars(module)
    assert twin(module.__spec__) is module.__spec__


def test_a_global_bound_anew_is_the_new_one(monkeypatch):
    fresh = {"fresh": 1}
    monkeypatch.setattr(sample, "TABLE", fresh)
    assert twin([fresh])[0] is fresh
    other = [sample.ITEMS[0]]
    assert twin(other)[0] is not sample.ITEMS[0]  # nobody's global any more
    assert twin(other) == other


def test_closures_keep_their_values_and_share_their_cells():
    assert twin(sample.adder(3))(4) == 7
    even, odd = twin(sample.mutual())
    assert (even(10), odd(10)) == (True, False)
    assert even.__closure__[0].cell_contents is odd
    assert twin(sample.recursive())(5) == 120


SCRIPT = """
class Base:
    def name(self):
        return "base"

class Child(Base):
    def name(self):
        return prefix + super().name()

def make():
    def count(n):
        return n and step + count(n - 1)
    return count

prefix, step = "child of ", 2
by_class, by_itself = Child().name, make()
"""


def test_a_script_s_function_in_its_own_closure_keeps_the_globals_it_reads():
    namespace = {"__name__": "snaprt_script"}
    exec(SCRIPT, namespace)
    assert twin(namespace["by_class"])() == "child of base"
    assert twin(namespace["by_itself"])(3) == 6


def test_lambdas_of_one_name_are_told_apart():
    assert [f() for f in twin(sample.lambdas())] == [0, 1, 0]


def test_an_empty_cell_stays_empty():
    read = twin(sample.half_empty())
    with pytest.raises(NameError, match="later"):
        read()


def test_what_was_set_on_a_nested_function_travels():
    add = sample.adder(1)
    add.__defaults__ = (5,)
    add.__kwdefaults__ = {"k": 1}
    add.__name__, add.__qualname__, add.__doc__, add.__module__ = "name", "qual.name", "doc", "mod"
    add.tags = [add]
    add.__annotations__ = {"m": int}
    again = twin(add)
    assert again() == 6
    assert again.__kwdefaults__ == {"k": 1}
    assert (again.__name__, again.__qualname__, again.__doc__, again.__module__) == (
        "name",
        "qual.name",
        "doc",
        "mod",
    )
    assert again.tags[0] is again
    assert again.__annotations__ == {"m": int}
    assert again.__globals__ is sample.__dict__


def test_bound_methods_keep_their_object_even_under_a_mangled_name():
    thing = sample.Thing(4)
    again, method, secret, made, wrapper = twin(
        (thing, thing.method, thing.secret(), sample.Thing.make, thing.__eq__)
    )
    assert method.__self__ is again
    assert method() == 4
    assert secret.__self__ is again
    assert secret() == 8
    assert isinstance(made(), sample.Thing)
    assert wrapper(again) is True


def test_builtin_methods_keep_their_object_and_their_meaning():
    items, table, loud = [], {"a": 1}, sample.Loud()
    items, append, table, get, loud, quiet = twin((items, items.append, table, table.get, loud, loud.quiet()))
    append(1)
    quiet(2)
    loud.append(3)
    assert items == [1]
    assert get("a") == 1
    table["b"] = 2
    assert get("b") == 2
    assert loud == [2, ("loud", 3)]


def test_partials_descriptors_and_getters_travel():
    function, prop, cls_method, static = twin(
        (
            functools.partial(sample.plain, 1, c=5),
            sample.Thing.__dict__["doubled"],
            sample.Thing.__dict__["make"],
            sample.Thing.__dict__["fixed"],
        )
    )
    assert function() == 8
    assert prop.__get__(sample.Thing(3)) == 6
    assert isinstance(cls_method.__get__(None, sample.Thing)(), sample.Thing)
    assert static.__func__() == "fixed"
    assert twin(operator.itemgetter(1, 0))("ab") == ("b", "a")
    assert twin(operator.attrgetter("real"))(3) == 3
    assert twin(operator.methodcaller("upper"))("a") == "A"


def test_mapping_proxies_show_their_dict_and_those_of_classes_their_class():
    table = {"a": 1}
    again, proxy, of_class = twin((table, types.MappingProxyType(table), sample.Thing.__dict__))
    again["b"] = 2
    assert proxy["b"] == 2
    assert of_class["method"] is sample.Thing.method


def test_a_cache_made_in_a_function_comes_back_empty_with_its_limits():
    cached = twin(functools.lru_cache(maxsize=3, typed=True)(sample.adder(1)))
    assert cached(1) == 2
    assert cached.cache_parameters() == {"maxsize": 3, "typed": True}


VALUES = [
    slice(1, 2, 3), range(5), 1 + 2j, decimal.Decimal("1.5"), fractions.Fraction(1, 3), uuid.UUID(int=5),
    datetime.datetime(2026, 11, 29, tzinfo=datetime.UTC), datetime.timedelta(1), zoneinfo.ZoneInfo("UTC"),
    re.compile("a+", re.I), pathlib.Path("/x/y"), collections.deque([1], 3), collections.Counter("aab"),
    collections.OrderedDict(a=1), collections.defaultdict(list, a=[1]), collections.ChainMap({"a": 1}),
    list[int], dict[str, list[int]], int | None, typing.Optional[int], typing.Callable[[int], str],  # noqa: UP045
    typing.Literal["a"], types.SimpleNamespace(a=1), frozenset({1}), bytearray(b"x"),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_come_back_equal(value):
    again = twin(value)
    assert again == value
    assert type(again) is type(value)


def test_random_generators_and_decimal_contexts_go_on_as_they_would():
    source = random.Random(5)
    source.random()
    assert twin(source).random() == source.random()
    context = decimal.Context(prec=7, rounding=decimal.ROUND_UP)
    assert repr(twin(context)) == repr(context)


def test_arrays_travel_and_stay_writable():
    numpy = pytest.importorskip("numpy", reason="numpy isn't installed")
    for array in (
        numpy.arange(6).reshape(2, 3),
        numpy.asfortranarray(numpy.arange(20_000.0).reshape(100, 200)),
    ):
        again = twin(array)
        assert (again == array).all()
        assert again.flags.f_contiguous == array.flags.f_contiguous
        again[0, 0] = 9


def test_a_suspended_context_manager_is_left_as_it_would_have_been():
    log = []
    manager = sample.managed(log)
    manager.__enter__()
    log_again, again = twin((log, manager))
    again.__exit__(None, None, None)
    assert log_again == ["in", "out"]
    assert log == ["in"]


async def with_stack(log):
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(sample.managed_async(log))
        stack.enter_context(sample.managed(log))
        stack.callback(log.append, "called")
        await sample.park("inside")
    return log


def test_exit_stacks_leave_everything_in_order_after_a_save_at_every_await():
    coro = with_stack([])
    for _ in range(3):
        coro.send(None)
        data = state.dumps(coro)
        state.release(coro)
        coro = state.loads(data)
    with pytest.raises(StopIteration) as stop:
        coro.send(None)
    assert stop.value.value == ["in", "in", "called", "out", "out"]


def test_an_anchored_closure_is_the_modules_own_again():
    # Its lock can't travel, so the closure can't be made anew.
    for _ in range(2):
        assert twin([sample.TOOL.invoke])[0] is sample.TOOL.invoke
    with pytest.raises(NotSerialisable, match="lock"):
        twin(sample.Tool("another").invoke)


BEFORE = """
def plain(a):
    return a

def adder(n):
    def add(m):
        return n + m
    return add

async def waiting():
    await adder
"""


def test_changed_code_is_refused_with_both_sides(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "changing_module.py").write_text(BEFORE)
    module = importlib.import_module("changing_module")
    dumped = {
        "plain": state.dump(module.plain).parts,
        "adder.<locals>.add": state.dump(module.adder(1)).parts,
        "waiting": state.dump(waiting := module.waiting()).parts,
    }
    for parts in dumped.values():
        for frame in state.held_frames(state.load([*parts])):
            frames.release(frame)
    after = (
        BEFORE.replace("return a\n", "return a + 1\n")
        .replace("n + m", "n - m")
        .replace("await adder", "return 5")
    )
    (tmp_path / "changing_module.py").write_text(after)
    importlib.invalidate_caches()
    importlib.reload(module)
    for qualname, parts in dumped.items():
        with pytest.raises(CodeChanged) as caught:
            state.load(parts)
        text = str(caught.value)
        assert f"changing_module:{qualname} isn't the code that was saved" in text
        assert len(set(re.findall(r"\b[0-9a-f]{64}\b", text))) == 2
        assert re.search(r"changing_module\.py:\d+", text)
    waiting.close()


def test_missing_things_are_named(monkeypatch):
    for name, obj in (("plain", sample.plain), ("Thing", sample.Thing), ("MISSING", sample.MISSING)):
        parts = state.dump([obj]).parts
        with monkeypatch.context() as patch:
            patch.delattr(sample, name)
            with pytest.raises(CodeChanged, match=f"sample:{name}.* has (no such|nothing)"):
                state.load(parts)


def test_weak_references_to_what_the_state_holds_are_kept_and_dead_ones_stay_dead():
    thing = sample.Thing(1)
    dead = weakref.ref(sample.Thing(2))
    again, reference, gone, to_class = twin((thing, weakref.ref(thing), dead, weakref.ref(sample.Thing)))
    assert reference() is again
    assert gone() is None
    assert to_class() is sample.Thing
    again, method = twin((thing, weakref.WeakMethod(thing.method)))
    assert method().__self__ is again
    gone = twin(weakref.WeakMethod(sample.Thing(1).method))
    assert type(gone) is weakref.WeakMethod
    assert gone() is None
    again, proxy = twin((thing, weakref.proxy(thing)))
    again.value = 9
    assert proxy.value == 9


def test_a_weak_reference_to_something_outside_is_refused():
    thing = sample.Thing(1)
    with pytest.raises(NotSerialisable, match="weak reference"):
        twin([weakref.ref(thing)])


def test_weak_containers_keep_what_the_state_holds():
    held, other = sample.Thing(1), sample.Thing(2)
    chained = sample.Thing(3)
    table = weakref.WeakKeyDictionary({held: chained, other: 2, sample.Thing: 3})
    again, as_keys, as_set, as_values, far = twin(
        (
            held,
            table,
            weakref.WeakSet({held, other}),
            weakref.WeakValueDictionary({1: held, 2: other}),
            weakref.WeakKeyDictionary({chained: "reached through the first table"}),
        )
    )
    assert set(as_keys) == {again, sample.Thing}
    assert list(as_set) == [again]
    assert dict(as_values) == {1: again}
    assert list(far) == [as_keys[again]]


def test_the_import_systems_own_objects_dont_hide_a_modules_functions():
    class Loader:
        pass

    module = types.ModuleType("snaprt_crowded")
    module.__loader__ = Loader()
    module.__loader__.registry = [[number] for number in range(30_000)]
    module.REGISTRY = module.__loader__.registry
    exec("def outer():\n    def inner():\n        pass\n    return inner", module.__dict__)
    assert "outer.<locals>.inner" in codes._list_live(module)


# --- containers that are globals -------------------------------------------------------------------


def test_a_dump_names_no_global_that_only_another_dump_refers_to():
    before = state.dump([sample.plain]).parts
    state.dump([sample.TABLE, vars(json)])
    assert list(map(bytes, state.dump([sample.plain]).parts)) == list(map(bytes, before))


def test_who_dumps_the_same_again_has_the_globals_of_before_at_once():
    met = {}
    first = bytes(state.dump([sample.TABLE], met=met))
    assert [place for _, *place in met.values()] == [["tests.state.sample", "TABLE"]]
    assert bytes(state.dump([sample.TABLE], met=met)) == first
    assert state.load(first)[0] is sample.TABLE


@pytest.mark.parametrize("plain", [True, False], ids=["a plain value", "with an object"])
def test_a_value_has_copies_of_containers_that_are_globals_and_no_copy_of_a_namespace(plain):
    value = [sample.TABLE, sample.ITEMS] + ([] if plain else [sample.Thing(1), vars(sample), vars(json)])
    found = state.load(state.dump(value, copied=True).parts)
    assert found[:2] == value[:2]
    assert found[0] is not sample.TABLE
    assert found[1] is not sample.ITEMS
    if not plain:
        assert found[3] is vars(sample)
        assert found[4] is vars(json)


def test_what_a_copied_global_holds_is_refused_with_the_path_to_it(monkeypatch):
    monkeypatch.setattr(sample, "TABLE", {"lock": threading.Lock()})
    assert twin([sample.TABLE])[0] is sample.TABLE
    held = sample.TABLE["lock"]
    with held, pytest.raises(NotSerialisable, match=r"\[0\] → \['lock'\]: threading.Lock"):
        state.dump([sample.TABLE], copied=True)


def test_a_global_container_isnt_looked_into_because_of_a_weak_reference(monkeypatch):
    target = sample.Thing(1)
    monkeypatch.setattr(sample, "TABLE", {"socket": socket.socket()})
    with sample.TABLE["socket"]:
        table, thing, reference = twin([sample.TABLE, target, weakref.ref(target)])
        assert table is sample.TABLE
        assert reference() is thing


def test_a_weak_reference_to_what_only_a_global_container_holds_is_refused(monkeypatch):
    target = sample.Thing(1)
    monkeypatch.setattr(sample, "ITEMS", [target])
    with pytest.raises(NotSerialisable, match="weak reference"):
        state.dump([sample.ITEMS, weakref.ref(target)])


def test_a_global_that_was_patched_for_a_while_travels_by_reference_again():
    held = string.__dict__["_string_held"] = {"a": 1}
    try:
        state.dump([sample.plain])
        anchors.index.refresh(full=True)
        assert twin([held])[0] is held
        string.__dict__["_string_held"] = {"b": 1}
        assert twin([held])[0] is not held
        string.__dict__["_string_held"] = held
        assert twin([held])[0] is held
    finally:
        del string.__dict__["_string_held"]


def test_dumps_in_several_threads_find_all_globals():
    wrong = []
    before = sys.getswitchinterval()

    def work(number):
        for turn in range(30):
            if number == 0:
                setattr(sample, f"late_{turn}", {"turn": turn})
            table, mine = twin([sample.TABLE, (number, turn)])
            if table is not sample.TABLE or mine != (number, turn):
                wrong.append((number, turn))

    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
        for turn in range(30):
            delattr(sample, f"late_{turn}")
    assert wrong == []


def test_new_types_and_aliases_of_local_code_come_back():
    Age = typing.NewType("Age", int)
    back, same = twin([Age, Age])
    assert back is same
    assert (back(3), back.__supertype__, back.__qualname__, back.__module__) == (3, int, "Age", __name__)
    if sys.version_info >= (3, 12):
        T = typing.TypeVar("T")
        Rows = typing.TypeAliasType("Rows", list[T], type_params=(T,))
        back, parameter = twin([Rows, T])
        assert (back.__name__, back.__value__, back.__type_params__) == (
            "Rows",
            list[parameter],
            (parameter,),
        )


def test_a_module_that_cant_be_imported_brings_all_its_names():
    settings = types.ModuleType("settings_of_no_file", "its doc")
    settings.DEBUG = [True]
    exec("def debug(): return DEBUG", vars(settings))
    settings.itself = settings
    back, debug = twin([settings, settings.debug])
    assert back is not settings
    assert (back.__name__, back.__doc__, back.DEBUG) == ("settings_of_no_file", "its doc", [True])
    assert back.itself is back
    assert back.debug is debug
    assert debug() is back.DEBUG


def test_what_cant_travel_of_a_module_that_cant_be_imported_is_named():
    settings = types.ModuleType("settings_of_no_file")
    settings.lock = threading.Lock()
    with pytest.raises(NotSerialisable, match=r"state → \[0\] → \.lock: threading\.Lock"):
        state.dump([settings])


@pytest.mark.parametrize("maxsize", [None, 3])
@pytest.mark.parametrize("typed", [False, True])
def test_a_local_functions_cache_comes_back_with_what_is_in_it(maxsize, typed):
    calls = []

    @functools.lru_cache(maxsize, typed)
    def cached(*args, **named):
        calls.append((args, named))
        return [cached, args, named]

    cached.note = "kept"
    known = [((), {}), ((1,), {}), ((1.5, "a"), {"b": 2, "c": (3,)}), (("text",), {"d": 1})][
        -maxsize if maxsize else 0 :
    ]
    results = [cached(*args, **named) for args, named in known]
    back, again, calls = twin([cached, results, calls])
    assert (back.note, back.__name__, back.cache_parameters()) == (
        "kept",
        "cached",
        cached.cache_parameters(),
    )
    count = len(calls)
    assert all(back(*args, **named) is result for (args, named), result in zip(known, again, strict=True))
    assert len(calls) == count
    assert again[0][0] is back
    back("new")
    assert len(calls) == count + 1


def test_what_a_cache_forgets_next_is_what_it_would_have_forgotten():
    @functools.lru_cache(2)
    def cached(a):
        return [a]

    kept = cached(1), cached(2), cached(1)
    back, kept = twin([cached, kept])
    back(3)
    assert back(1) is kept[0]
    assert back(2) is not kept[1]


def test_what_cant_travel_in_a_local_functions_cache_is_named():
    @functools.cache
    def cached(a):
        return threading.Lock()

    cached("x")
    with pytest.raises(NotSerialisable, match=r"the call with \('x',\) → result: threading\.Lock"):
        state.dump([cached])
