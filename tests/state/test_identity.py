"""Classes of a script are one with those in what is dumped apart from its state, in every life."""

from __future__ import annotations

import types

import pytest

from snaprt import state

SOURCE = """
import dataclasses, enum, types

class Colour(enum.Enum):
    RED = 1
    BLUE = 2

@dataclasses.dataclass
class Item:
    colour: Colour

class Base:
    pass

class Kind(Base):
    pass

class Outer:
    class Inner:
        pass

class Meta(type):
    pass

class Made(metaclass=Meta):
    pass

class Unread:
    pass

def reads():
    return Unread()

def made():
    return enum.Enum("Colour", "GREEN", module=__name__).GREEN

@types.coroutine
def parked():
    yield

async def agent(value):
    while True:
        await parked()
"""

CAME_WITH_THE_STATE = {
    "the type of a field": ("Item(Colour.RED)", "Colour.RED", "Colour"),
    "a member of an enum": ("Colour.RED", "Item(Colour.BLUE).colour", "Colour"),
    "a base": ("Kind()", "Base()", "Base"),
    "a nested class": ("Outer.Inner()", "Outer.Inner()", "Outer.Inner"),
    "a metaclass": ("Made", "Meta('Made', (), {})", "Meta"),
    "a global of a function": ("reads", "Unread()", "Unread"),
}


def run(source, namespace):
    exec(compile(source, "a script", "exec", dont_inherit=True), namespace)


@pytest.fixture
def script():
    """A script that no name leads to, as the next process sees every script."""
    module = types.ModuleType("a_script_of_no_name")
    run(SOURCE, module.__dict__)
    return module.__dict__


def parked(script, value):
    coro = script["agent"](value)
    coro.send(None)
    return coro


def restored(coro):
    dump = state.dump(coro).detached()
    coro.close()
    return state.load(dump.parts)


def apart(value, coro):
    """What is dumped apart from the state, as the run gets it."""
    namespace = coro.cr_frame.f_globals
    return state.load(state.dump(value).detached().parts, joining={namespace["__name__"]: namespace})


def reached(value):
    """Every class that is in reach of a value, by qualified name."""
    found = {}
    waiting = [value, *getattr(value, "__dict__", {}).values()]
    if isinstance(value, types.FunctionType):
        waiting += [value.__globals__.get(name) for name in value.__code__.co_names]
    for each in waiting:
        cls = each if isinstance(each, type) else type(each)
        for known in (*cls.__mro__, type(cls)):
            found[known.__qualname__] = known
    return found


@pytest.mark.parametrize("lives", [1, 2])
@pytest.mark.parametrize(("held", "value", "name"), CAME_WITH_THE_STATE.values(), ids=CAME_WITH_THE_STATE)
def test_no_class_of_a_state_is_doubled_by_what_was_dumped_apart(script, held, value, name, lives):
    coro = parked(script, eval(held, script))
    value = eval(value, script)
    for _ in range(lives):
        coro = restored(coro)
    mine = reached(coro.cr_frame.f_locals["value"])[name]
    assert mine is not reached(value)[name]
    assert reached(apart(value, coro))[name] is mine
    coro.close()


def test_no_class_that_came_later_and_without_the_class_it_stands_in_is_doubled(script):
    coro = restored(parked(script, None))
    first, second = (apart(script["Outer"].Inner(), coro) for _ in range(2))
    assert type(first) is type(second)
    coro.close()


def test_no_class_is_taken_for_one_that_a_function_made_under_its_name(script):
    coro = restored(parked(script, script["made"]()))
    got = apart(script["Item"](script["Colour"].RED), coro)
    assert type(got.colour).__members__.keys() == {"RED", "BLUE"}
    assert type(got.colour) is not type(coro.cr_frame.f_locals["value"])
    coro.close()


def test_no_class_is_taken_for_the_one_that_its_module_held_under_that_name_before(script):
    old = script["Colour"].RED
    run("class Colour(enum.Enum):\n    RED = 'new'", script)
    coro = restored(parked(script, old))
    got = apart(script["Colour"].RED, coro)
    assert got.value == "new"
    assert coro.cr_frame.f_locals["value"].value == 1
    coro.close()
    coro = restored(parked(script, [old, script["Colour"].RED]))
    before, now = coro.cr_frame.f_locals["value"]
    assert apart(script["Colour"].RED, coro) is now is not before
    coro.close()
