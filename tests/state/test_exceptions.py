"""Exceptions keep everything that hangs off them, whatever their constructor wants."""

from __future__ import annotations

import contextlib
import re
import types

import pytest

import snaprt.state as state
from snaprt.state.exceptions import TRACEBACK, format_exception, traceback_text


def twin(obj):
    return state.load(state.dump(obj).parts)


class Picky(Exception):
    calls = 0

    def __init__(self, *, code, where):
        type(self).calls += 1
        super().__init__(f"{code} at {where}")
        self.code = code
        self.where = where


class Slotted(Exception):
    __slots__ = ("extra",)


class Reduces(Exception):
    def __init__(self, a, b):
        super().__init__("made by its own rule")
        self.pair = (a, b)

    def __reduce__(self):
        return Reduces, self.pair


class Group(ExceptionGroup):
    def __new__(cls, excs, label):
        self = super().__new__(cls, "group " + label, excs)
        self.label = label
        return self

    def derive(self, excs):
        return Group(excs, self.label)


def raised(error):
    try:
        raise error
    except type(error) as caught:
        return caught


def test_arguments_attributes_and_notes_travel():
    error = ValueError("a", 1)
    error.extra = [error]
    error.add_note("look here")
    again = twin(error)
    assert again.args == ("a", 1)
    assert again.extra[0] is again
    assert again.__notes__ == ["look here"]


def test_an_exception_is_made_without_calling_its_constructor():
    error = Picky(code=7, where="x")
    Picky.calls = 0
    again = twin(error)
    assert (type(again), again.args, again.code, again.where, Picky.calls) == (Picky, ("7 at x",), 7, "x", 0)


def test_an_exceptions_own_way_to_be_pickled_is_kept_and_gets_its_context_on_top():
    error = Reduces(1, 2)
    error.__cause__ = KeyError("why")
    error.add_note("n")
    again = twin(error)
    assert again.pair == (1, 2)
    assert repr(again.__cause__) == "KeyError('why')"
    assert again.__notes__ == ["n"]
    assert again.__suppress_context__


@pytest.mark.parametrize(
    ("error", "fields"),
    [
        (
            FileNotFoundError(2, "gone", "a.txt", None, "b.txt"),
            ("errno", "strerror", "filename", "filename2"),
        ),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), ("encoding", "object", "start", "end", "reason")),
        (SyntaxError("no", ("f.py", 3, 5, "x = ", 3, 7)), ("msg", "filename", "lineno", "offset", "text")),
        (StopIteration(42), ("value",)),
        (SystemExit(3), ("code",)),
        (ImportError("no", name="m", path="p"), ("msg", "name", "path")),
        (NameError("no", name="n"), ("name",)),
        (AttributeError("no", name="n", obj=[1]), ("name", "obj")),
        (KeyError("k"), ()),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_fields_that_c_keeps_travel(error, fields):
    again = twin(error)
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.args == error.args
    for field in fields:
        assert getattr(again, field) == getattr(error, field)


def test_slots_travel():
    error = Slotted("x")
    error.extra = 5
    assert twin(error).extra == 5


def test_cause_context_and_their_suppression_travel():
    first, second = KeyError("first"), ValueError("second")
    second.__context__ = first
    assert (twin(second).__context__.args, twin(second).__suppress_context__) == (("first",), False)
    second.__cause__ = TypeError("cause")
    again = twin(second)
    assert (repr(again.__cause__), repr(again.__context__)) == ("TypeError('cause')", "KeyError('first')")
    assert again.__suppress_context__
    second.__cause__ = None
    assert (twin(second).__cause__, twin(second).__suppress_context__) == (None, True)
    second.__suppress_context__ = False
    assert not twin(second).__suppress_context__


def test_exceptions_may_be_each_others_context():
    one, two = ValueError(1), ValueError(2)
    one.__context__, two.__context__ = two, one
    again = twin(one)
    assert again.__context__.__context__ is again


def test_a_group_keeps_its_tree_and_shares_its_leaves():
    leaf = OSError(5, "io")
    group = ExceptionGroup("top", [ExceptionGroup("in", [leaf, ValueError(1)]), leaf])
    leaf.__context__ = group
    again = twin(group)
    assert again.message == "top"
    assert again.exceptions[0].exceptions[0] is again.exceptions[1]
    assert again.exceptions[1].__context__ is again
    matched, rest = again.split(OSError)
    assert [type(e) for e in rest.exceptions[0].exceptions] == [ValueError]
    assert matched.exceptions[1].errno == 5


def test_a_group_with_a_constructor_of_its_own_travels():
    again = twin(Group([ValueError(1)], "x"))
    assert (type(again), again.label, again.message, again.exceptions[0].args) == (
        Group,
        "x",
        "group x",
        (1,),
    )


def test_the_traceback_travels_as_text_and_grows_when_raised_again():
    error = raised(ValueError("x"))
    again = twin(error)
    assert again.__traceback__ is None
    assert "in raised" in getattr(again, TRACEBACK)
    assert "raise error" in getattr(again, TRACEBACK)
    later = twin(raised(again))
    assert getattr(later, TRACEBACK).count("in raised") == 2
    text = format_exception(later)
    assert text.startswith("Traceback (most recent call last):\n  File")
    assert text.endswith("ValueError: x\n")


async def inner():
    raise ValueError("from within")


async def middle():
    try:
        await inner()
    finally:
        await park()


async def outer():
    await middle()


def test_what_an_exception_comes_by_after_a_restore_stands_outside_of_where_it_was():
    coro = outer()
    coro.send(None)
    again = twin(coro)
    state.release(coro)
    with pytest.raises(ValueError, match="from within") as caught:
        again.send(None)
    text = traceback_text(caught.value)
    assert re.findall(r"in (outer|middle|inner)\n", text) == ["outer", "middle", "inner"]


def test_the_printed_text_of_a_restored_exception_tells_of_its_cause():
    error = ValueError("late")
    error.__cause__ = raised(KeyError("early"))
    text = format_exception(twin(raised(error)))
    assert text.index("KeyError: 'early'") < text.index("direct cause") < text.index("ValueError: late")


@types.coroutine
def park():
    return (yield)


async def handling(log):
    try:
        raise ValueError("handled")
    except ValueError:
        await park()
        try:
            raise
        except ValueError as error:
            log.append(error.args)
            raise KeyError("next") from None


def test_an_exception_being_handled_is_still_being_handled():
    coro = handling([])
    coro.send(None)
    again = state.loads(state.dumps(coro))
    with pytest.raises(KeyError) as caught:
        again.send(None)
    assert repr(caught.value.__context__) == "ValueError('handled')"
    coro.close()


class Exit:
    def __init__(self):
        self.seen = []

    async def __aenter__(self):
        return self

    async def __aexit__(self, kind, error, traceback):
        details = (kind, error, traceback)
        await park()
        self.seen.append((kind, error.args, details[0]))
        return True


async def leaving(exit_):
    async with exit_:
        raise ValueError("inside")
    return exit_.seen


@contextlib.asynccontextmanager
async def parking():
    try:
        yield
    finally:
        await park()


async def letting_through():
    try:
        try:
            raise ExceptionGroup("outer", [ValueError(1), KeyError(2)])
        except* ValueError:
            try:
                raise ExceptionGroup("inner", [OSError(3), IndexError(4)])
            except* OSError:
                raise RuntimeError("raised anew") from None
        except* KeyError:
            async with parking():
                raise
    except ExceptionGroup as error:
        return error


async def letting_all_through():
    try:
        try:
            raise ExceptionGroup("outer", [ValueError(1), KeyError(2)])
        except* KeyError:
            async with parking():
                raise
    except ExceptionGroup as error:
        return error


def leaves(group):
    return [leaves(each) if isinstance(each, ExceptionGroup) else repr(each) for each in group.exceptions]


def finish(coro, *, saved):
    while True:
        try:
            coro.send(None)
        except StopIteration as stop:
            return stop.value
        if saved:
            before, coro = coro, twin(coro)
            state.release(before)


def test_a_group_that_is_let_through_is_told_from_a_new_one_after_a_restore():
    undisturbed, restored = finish(letting_through(), saved=False), finish(letting_through(), saved=True)
    assert leaves(restored) == leaves(undisturbed)
    assert "raised anew" in str(leaves(restored))
    assert "in letting_through" in traceback_text(restored.exceptions[1])
    assert "in letting_through" in traceback_text(twin(restored).exceptions[1])
    assert leaves(finish(letting_all_through(), saved=True)) == ["ValueError(1)", "KeyError(2)"]


def test_an_exit_that_awaits_with_a_traceback_in_hand_goes_on():
    coro = leaving(Exit())
    coro.send(None)
    again = state.loads(state.dumps(coro))
    with pytest.raises(StopIteration) as stop:
        again.send(None)
    assert stop.value.value == [(ValueError, ("inside",), ValueError)]
    coro.close()
