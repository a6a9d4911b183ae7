"""Instances of Python classes come back whole, whatever code their classes have in pickle's way, and none of
that code runs."""

from __future__ import annotations

import array
import collections
import copyreg
import dataclasses
import datetime
import decimal
import fractions
import functools
import io
import ipaddress
import itertools
import pathlib
import random
import sys
import threading
import types
import uuid
from typing import Any, NamedTuple
from unittest import mock

import pytest

import snaprt
from snaprt import state
from snaprt.errors import NotSerialisable


def again(obj: Any) -> Any:
    return state.load(state.dump(obj).parts)


class Never(Exception):
    """Raised by code that a load isn't to run."""


class Delegating:
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class Guarded:
    __slots__ = ("_Guarded__hidden", "other", "value")

    def __init__(self, value: Any) -> None:
        object.__setattr__(self, "value", value)
        object.__setattr__(self, "_Guarded__hidden", [value])

    def __setattr__(self, name: str, value: Any) -> None:
        raise Never


class Secretive:
    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__") and name != "__class__":
            raise Never
        return object.__getattribute__(self, name)


class Wanting:
    def __new__(cls, wanted: Any) -> Any:
        made = object.__new__(cls)
        made.wanted = wanted
        return made


class Only:
    it: Any = None

    def __new__(cls) -> Any:
        if cls.it is None:
            cls.it = object.__new__(cls)
        return cls.it


class Row(NamedTuple):
    a: int


class LongRow(Row):
    def __new__(cls, a: int, b: int) -> Any:
        return super().__new__(cls, a + b)


def _wants(base: type) -> type:
    """A subclass whose every way in refuses, and which its instances were made without."""

    def refuse(self: Any, *args: Any, **named: Any) -> Any:
        raise Never

    # Not `update`: no pickler calls it.
    ways = ("__init__", "__setitem__", "append", "extend", "add", "__iter__", "items", "__setattr__")
    names = {name: refuse for name in ways if hasattr(base, name)}
    return type(f"Wanting{base.__name__}", (base,), {**names, "__new__": refuse, "__module__": __name__})


CONTENTS: dict[type, Any] = {
    dict: {"a": 1, 2: [3]},
    list: [1, [2]],
    set: {1, 2},
    frozenset: frozenset({1, 2}),
    bytearray: bytearray(b"bytes"),
    int: 1 << 70,
    float: 0.5,
    complex: 1 + 2j,
    str: "text",
    bytes: b"bytes",
    tuple: (1, [2]),
    collections.OrderedDict: collections.OrderedDict(b=1, a=2),
    collections.defaultdict: collections.defaultdict(list, a=[1]),
    collections.Counter: collections.Counter("aab"),
    collections.deque: collections.deque([1, 2], 3),
    types.SimpleNamespace: types.SimpleNamespace(a=1),
}
REFUSING = {base: _wants(base) for base in CONTENTS}
globals().update({cls.__name__: cls for cls in REFUSING.values()})


def made(cls: type, base: Any, contents: Any) -> Any:
    """An instance of `cls` with these contents and an attribute, past all that the class says."""
    immutable = base in (frozenset, int, float, complex, str, bytes, tuple)
    obj = base.__new__(cls, contents) if immutable else base.__new__(cls)
    if base is collections.defaultdict:
        base.__init__(obj, contents.default_factory)
    elif base is collections.deque:
        base.__init__(obj, (), contents.maxlen)
    if base in (list, collections.deque):
        base.extend(obj, contents)
    elif base is collections.OrderedDict:
        for key, value in contents.items():
            base.__setitem__(obj, key, value)
    elif issubclass(base, dict):
        dict.update(obj, contents)
    elif base is set:
        base.update(obj, contents)
    elif base is bytearray:
        base.__init__(obj, contents)
    elif base is types.SimpleNamespace:
        obj.__dict__.update(vars(contents))
    obj.__dict__["note"] = ["kept"]
    return obj


@pytest.mark.parametrize("base", CONTENTS, ids=lambda base: base.__name__)
@pytest.mark.parametrize("by_value", [False, True], ids=["importable", "by value"])
def test_an_instance_of_a_builtins_subclass_comes_back_without_running_the_subclass(
    base: Any, by_value: bool
) -> None:
    cls: Any = _wants(base) if by_value else REFUSING[base]
    if by_value:
        cls.__qualname__ = "<locals>"
    saved = made(cls, base, CONTENTS[base])
    [back, same] = again([saved, saved])
    assert back is same
    assert (type(back) is cls) is not by_value
    assert type(back).__name__ == cls.__name__
    assert back.__dict__["note"] == ["kept"]
    if issubclass(base, dict):
        items = collections.OrderedDict.items if base is collections.OrderedDict else dict.items
        assert list(items(back)) == list(CONTENTS[base].items())
    elif base is collections.deque:
        assert list(base.__iter__(back)) == list(CONTENTS[base])
    elif base is types.SimpleNamespace:
        assert vars(back) == vars(saved)
    else:
        assert base.__eq__(back, CONTENTS[base])
    if base is collections.defaultdict:
        assert back.default_factory is list
    if base is collections.deque:
        assert back.maxlen == 3


def test_a_wrapper_that_hands_every_name_on_comes_back() -> None:
    back = again(Delegating([1, 2]))
    assert type(back) is Delegating
    assert back.count(2) == 1


def test_slots_are_filled_past_a_setattr_that_refuses() -> None:
    back = again(Guarded(1))
    assert back.value == 1
    assert back._Guarded__hidden == [1]
    assert not hasattr(back, "other")


def test_nothing_is_asked_of_an_object_that_refuses_every_name() -> None:
    saved = Secretive()
    saved.x = 1  # type: ignore[attr-defined]  # an attribute of this instance alone
    assert again(saved).x == 1


def test_a_new_that_wants_arguments_is_passed_by() -> None:
    assert again(Wanting([1])).wanted == [1]


def test_the_only_instance_of_an_importable_class_stays_the_only_one() -> None:
    only = Only()
    assert again([only])[0] is Only()


def test_a_named_tuples_subclass_keeps_its_fields() -> None:
    back = again(LongRow(1, 2))
    assert type(back) is LongRow
    assert back == (3,)


def test_an_object_that_says_it_is_of_another_class_comes_back_as_what_it_is() -> None:
    class Lying:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        @property
        def __class__(self) -> Any:  # type: ignore[override]  # as proxies do
            return type(self.inner)

    back = again(Lying([1]))
    assert type(back).__name__ == "Lying"
    assert isinstance(back, list)
    assert back.inner == [1]  # type: ignore[unreachable]  # it isn't a list, though it says so


@pytest.mark.parametrize("base", [dict, list, set, collections.deque, collections.defaultdict])
def test_instances_may_hold_themselves_and_each_other(base: Any) -> None:
    class Holding(base):  # type: ignore[misc]  # any of them
        def __new__(cls, wanted: int) -> Any:
            return base.__new__(cls)

        def __init__(self, wanted: int) -> None:
            base.__init__(self)

        __hash__ = object.__hash__

        def __eq__(self, other: object) -> bool:
            return self is other

    one, other = Holding(1), Holding(2)
    for held, holder in ((one, one), (other, one), (one, other)):
        if issubclass(base, dict):
            holder[held] = held
        else:
            getattr(holder, "add" if base is set else "append")(held)
    one.me = one
    back, back_other = again([one, other])
    assert back.me is back
    assert {id(each) for each in back} == {id(back), id(back_other)}
    assert [id(each) for each in back_other] == [id(back)]
    if issubclass(base, dict):
        assert back[back_other] is back_other


@pytest.mark.parametrize("base", [dict, set])
def test_elements_that_lead_back_and_are_hashed_by_their_contents_come_back(base: Any) -> None:
    class Holding(base):  # type: ignore[misc]  # either
        def __new__(cls, wanted: int) -> Any:
            return base.__new__(cls)

        def __init__(self, wanted: int) -> None:
            base.__init__(self)

    @dataclasses.dataclass(frozen=True)
    class Element:
        name: str
        holder: Any = dataclasses.field(compare=False)

    holder = Holding(1)
    elements = [Element(name, holder) for name in "ab"]
    base.update(holder, dict.fromkeys(elements, 1))
    first, _ = again(elements)
    assert {each.name for each in first.holder} == {"a", "b"}
    assert all(each in first.holder and each.holder is first.holder for each in first.holder)


@pytest.mark.parametrize("base", [object, list])
def test_chains_of_instances_may_be_of_any_depth(base: Any) -> None:
    class Link(base):  # type: ignore[misc]  # any of them
        def __new__(cls, before: Any) -> Any:
            return base.__new__(cls)

        def __init__(self, before: Any) -> None:
            self.before = before

        __hash__ = object.__hash__

    last = None
    for _ in range(20_000):
        last = Link(last)
    back, count = again(last), 0
    while back is not None:
        back, count = back.before, count + 1
    assert count == 20_000


def test_what_a_class_says_of_pickling_is_heeded() -> None:
    class Said(Delegating):
        def __reduce__(self) -> Any:
            return str, ("said",)

    class Registered(Delegating):
        pass

    assert again(Said(1)) == "said"
    copyreg.pickle(Registered, lambda obj: (str, ("registered",)))
    try:
        assert again(Registered(1)) == "registered"
    finally:
        del copyreg.dispatch_table[Registered]


def test_a_plain_instance_is_left_to_the_c_pickler() -> None:
    from snaprt.state import reducers

    class Plain:
        pass

    assert reducers.find(Plain) is None
    assert reducers.find(Row) is None


def test_a_mock_keeps_what_it_was_told() -> None:
    saved = mock.Mock()
    saved.method.return_value = 3
    saved.method(1, a=[2])
    back = again(saved)
    assert back.method() == 3
    assert back.method.call_args_list[0] == mock.call(1, a=[2])


def test_a_random_generator_goes_on_with_its_attributes() -> None:
    class Dice(random.Random):
        def __init__(self, sides: int) -> None:
            super().__init__(3)
            self.sides = sides

    saved = Dice(6)
    saved.gauss(0, 1)
    back = again(saved)
    assert back.sides == 6
    assert [back.random(), back.gauss(0, 1)] == [saved.random(), saved.gauss(0, 1)]


def test_a_library_that_checks_calls_of_local_functions_comes_back() -> None:
    import pydantic

    @pydantic.validate_call
    def checked(a: int) -> int:
        return a

    assert again([checked])[0]("3") == 3
    with pytest.raises(pydantic.ValidationError):
        again([checked])[0]("no number")


def test_what_cant_travel_is_found_by_its_name_in_any_such_instance() -> None:
    lock = threading.Lock()
    for saved, path in (
        (Delegating(lock), r"state → \.inner"),
        (Guarded(lock), r"state → \.value"),
        (made(REFUSING[list], list, [1, lock]), r"state → \[1\]"),
        (made(REFUSING[dict], dict, {"a": lock}), r"state → \['a'\]"),
        (made(REFUSING[tuple], tuple, (lock,)), r"state → \[0\]"),
    ):
        with pytest.raises(snaprt.NotSerialisable, match=path + ": threading.Lock"):
            state.dump(saved)


def _lasting(value: Any) -> Any:
    """What of a value compares equal to that of its copy."""
    return list(value) if hasattr(value, "__next__") else value


OF_LIBRARIES: dict[type, tuple[Any, ...]] = {
    datetime.datetime: (2020, 1, 2, 3),
    datetime.date: (2020, 1, 2),
    datetime.time: (1, 2),
    datetime.timedelta: (1, 2),
    decimal.Decimal: ("1.50",),
    fractions.Fraction: (1, 3),
    pathlib.PurePosixPath: ("/a", "b"),
    ipaddress.IPv4Address: ("1.2.3.4",),
    ipaddress.IPv6Network: ("::/64",),
    uuid.UUID: ("12345678123456781234567812345678",),
    array.array: ("i", [1, 2]),
    io.BytesIO: (b"bytes",),
    map: (str, [1, 2]),
    filter: (None, [0, 1]),
    zip: ([1], [2]),
    enumerate: ("ab",),
    functools.partial: (int, "3"),
}
if sys.version_info < (3, 14):
    OF_LIBRARIES |= {itertools.chain: ([1], [2]), itertools.islice: ([1, 2, 3], 2), itertools.repeat: (1, 2)}


@pytest.mark.parametrize("base", OF_LIBRARIES, ids=lambda base: base.__name__)
def test_a_librarys_subclass_keeps_attributes_that_its_own_pickling_leaves_out(base: Any) -> None:
    class Sub(base):  # type: ignore[misc]  # any of them
        pass

    saved = Sub(*OF_LIBRARIES[base])
    vars(saved).update(note=["kept"], me=saved)
    back = again(saved)
    assert type(back).__name__ == "Sub"
    assert vars(back)["note"] == ["kept"]
    assert vars(back)["me"] is back
    if base not in (io.BytesIO, functools.partial):
        assert _lasting(back) == _lasting(base(*OF_LIBRARIES[base]))


@pytest.mark.parametrize(
    "base",
    [datetime.datetime, datetime.timedelta, decimal.Decimal, fractions.Fraction, pathlib.PurePosixPath],
)
def test_a_librarys_subclass_is_made_by_the_librarys_constructor_and_keeps_its_slots(base: Any) -> None:
    class Sub(base):  # type: ignore[misc]  # any of them
        __slots__ = ("unit",)

        def __new__(cls, *args: Any, unit: str) -> Any:
            made = base.__new__(cls, *args)
            if base.__init__ is not object.__init__:
                base.__init__(made, *args)
            made.unit = unit
            return made

        def __init__(self, *args: Any, unit: str) -> None:
            pass

    saved = Sub(*OF_LIBRARIES[base], unit="kg")
    back = again(saved)
    assert back.unit == "kg"
    assert str(back) == str(base(*OF_LIBRARIES[base]))


def test_a_counter_goes_on_from_where_it_stood_with_its_attributes() -> None:
    class Numbers(itertools.count):
        pass

    saved = Numbers(5)
    saved.note = "kept"  # type: ignore[attr-defined]  # an attribute of this instance alone
    next(saved)
    if sys.version_info >= (3, 14):  # where itertools tell nothing of themselves
        with pytest.raises(NotSerialisable, match="Numbers"):
            state.dump(saved)
        return
    back = again(saved)
    assert (type(back).__name__, back.note, next(back)) == ("Numbers", "kept", 6)


def test_what_a_subclass_says_of_its_attributes_is_heeded() -> None:
    class Day(datetime.date):
        def __reduce__(self) -> Any:
            return Day, (self.year, self.month, self.day)

    saved = Day(2020, 1, 2)
    saved.note = threading.Lock()  # type: ignore[attr-defined]  # an attribute of this instance alone
    assert not vars(again(saved))
