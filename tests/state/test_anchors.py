"""What is a module's own stays that module's, whoever else holds it, whatever else is among the modules."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import textwrap
import types
import weakref

import pytest

from snaprt import state
from snaprt.errors import CodeChanged
from snaprt.state import anchors

OWNER = """
import threading
class Kind: pass
plain = {"a": 1}
thing = Kind()
items = [plain]
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes and imports a module (`module("name", source)`); `package=True` where packages are installed."""
    made = set()

    def write(name, source, *, package=False):
        where = tmp_path / "site-packages" if package else tmp_path
        where.mkdir(exist_ok=True)
        if str(where) not in sys.path:
            monkeypatch.syspath_prepend(str(where))
        (where / f"{name}.py").write_text(textwrap.dedent(source))
        importlib.invalidate_caches()
        made.add(name)
        sys.modules.pop(name, None)
        return importlib.import_module(name)

    yield write
    for name in made:
        sys.modules.pop(name, None)
    anchors.index.refresh()


@types.coroutine
def parked():
    yield


async def holding(value):
    await parked()
    return value


def dumped(value):
    coro = holding(value)
    coro.send(None)
    data = state.dumps(coro)
    state.release(coro)
    return data


def loaded(data):
    coro = state.loads(data)
    with pytest.raises(StopIteration) as stop:
        coro.send(None)
    return stop.value.value


def same(value):
    return loaded(dumped(value)) is value


HELD = ["plain", "thing", "items"]


@pytest.mark.parametrize("what", HELD)
def test_a_global_is_its_own_modules_also_after_one_that_imported_it_changed(module, what):
    owner = module("anch_owner", OWNER)
    app = module("anch_app", "from anch_owner import plain, thing, items")
    for count in range(3):
        app.count = count
        data = dumped(getattr(owner, what))
        assert b"anch_owner" in data
        assert b"anch_app" not in data


def _del_alias(owner, other):
    for name in HELD:
        delattr(other, name)


def _rebind_alias(owner, other):
    for name in HELD:
        setattr(other, name, None)


def _unload(owner, other):
    del sys.modules["anch_other"]


def _del_own(owner, other):
    for name in HELD:
        delattr(owner, name)


def _reload(owner, other):
    importlib.reload(owner)


@pytest.mark.parametrize("package", [False, True], ids=["user", "package"])
@pytest.mark.parametrize("change", [_del_alias, _rebind_alias, _unload, _del_own, _reload])
@pytest.mark.parametrize("what", HELD)
def test_a_global_of_several_modules_is_one_of_those_that_still_hold_it(module, what, change, package):
    owner = module("anch_owner", OWNER, package=package)
    other = module("anch_other", "from anch_owner import plain, thing, items", package=package)
    value = getattr(owner, what)
    assert same(value)
    change(owner, other)
    assert same(value)


@pytest.mark.parametrize("what", HELD)
def test_a_global_that_was_given_another_name_is_found_under_it(module, what):
    owner = module("anch_owner", OWNER)
    owner.last = value = getattr(owner, what)
    delattr(owner, what)
    assert same(value)
    del owner.last
    owner.renamed = value
    assert same(value)


def test_a_container_that_no_module_holds_any_more_is_carried_again(module):
    owner = module("anch_owner", OWNER, package=True)
    value = owner.plain
    assert same(value)
    owner.plain = {}
    assert loaded(dumped(value)) == value
    assert not same(value)


def test_the_globals_of_the_newest_module_are_found_after_it_was_imported_anew(module):
    module("anch_owner", OWNER)
    assert same(sys.modules["anch_owner"].thing)
    anew = module("anch_owner", OWNER)
    assert next(reversed(sys.modules)) == "anch_owner"
    assert same(anew.thing)
    assert same(anew.plain)
    assert same(vars(anew))


def test_the_globals_of_a_module_are_found_that_took_another_ones_place(module, monkeypatch):
    owner = module("anch_owner", OWNER)
    assert same(owner.thing)
    twin = types.ModuleType("anch_owner")
    vars(twin).update(__spec__=owner.__spec__, thing=owner.Kind(), plain={})
    monkeypatch.setitem(sys.modules, "anch_owner", twin)
    assert same(twin.thing)
    assert same(twin.plain)


def test_the_namespace_of_a_package_is_found_though_another_module_is_a_copy_of_it(module, monkeypatch):
    owner = module("anch_owner", OWNER, package=True)
    copy = types.ModuleType("anch_copy")
    vars(copy).update(vars(owner))
    monkeypatch.setitem(sys.modules, "anch_copy", copy)
    assert same(vars(owner))
    assert same(owner.__spec__)


# --- what hangs deeper ------------------------------------------------------------------------------

HANDLERS = """
import threading
from contextvars import ContextVar

def made(name):
    lock = threading.Lock()
    def act():
        with lock:
            return name
    return act

def defaulted(text):
    lock = threading.Lock()
    return lambda text=text: (lock, text)

def logged(function):
    lock = threading.Lock()
    def wrapper():
        with lock:
            return function()
    return wrapper

def pay(): return "pay"
def delete(): return "delete"

def classy(name):
    return type(name, (), {"lock": threading.Lock()})

def other():
    lock = threading.Lock()
    return lambda: lock
"""

SHIFTED = {
    "what a closure holds": ("[made('pay')]", "[made('delete'), made('pay')]", "[0]"),
    "what it was made with": ("[defaulted('pay')]", "[defaulted('delete'), defaulted('pay')]", "[0]"),
    "what it wraps": ("[logged(pay)]", "[logged(delete), logged(pay)]", "[0]"),
    "in a tuple": ("(made('pay'),)", "(made('delete'), made('pay'))", "[0]"),
    "other code": ("{'x': made('pay')}", "{'x': other()}", "['x']"),
    "a class": ("[classy('Pay')]", "[classy('Delete'), classy('Pay')]", "[0]"),
    "not a function": ("[made('pay')]", "[3]", "[0]"),
    "a variable": ("[ContextVar('pay')]", "[ContextVar('delete'), ContextVar('pay')]", "[0]"),
    "another type": ("{'x': ContextVar('pay')}", "{'x': classy('Pay')}", "['x']"),
}


def at(owner, path):
    return eval(f"HANDLERS{path}", vars(owner))


@pytest.mark.parametrize(("before", "after", "path"), SHIFTED.values(), ids=SHIFTED)
def test_what_hangs_deep_isnt_taken_for_what_hangs_there_in_other_code(module, before, after, path):
    owner = module("anch_handlers", f"{HANDLERS}\nHANDLERS = {before}")
    first = dumped([at(owner, path), owner])
    later = dumped([at(owner, path), owner])  # it is remembered where it hangs
    owner = module("anch_handlers", f"{HANDLERS}\nHANDLERS = {before}")
    for data in (first, later):
        assert loaded(data)[0] is at(owner, path)
    owner = module("anch_handlers", f"{HANDLERS}\nHANDLERS = {after}")
    for data in (first, later):
        with pytest.raises(CodeChanged, match=r"anch_handlers:HANDLERS\["):
            loaded(data)


def test_a_variable_that_a_deep_function_rebinds_says_nothing_about_it(module):
    source = """
        import threading
        def counting():
            lock, count = threading.Lock(), 0
            def act():
                nonlocal count
                with lock:
                    count += 1
                return count
            return act
        HANDLERS = [counting()]
    """
    owner = module("anch_handlers", source)
    owner.HANDLERS[0]()
    data = dumped(owner.HANDLERS[0])
    owner = module("anch_handlers", source)
    assert loaded(data) is owner.HANDLERS[0]


def test_a_function_that_a_package_keeps_under_a_name_may_change_with_the_package(module):
    source = """
        class Unwilling:
            def __reduce__(self): raise TypeError
        def made():
            held = Unwilling()
            def act():
                return held, {0}
            return act
        class Api: pass
        api = Api()
        api.act = made()
    """
    owner = module("anch_package", source.format(1), package=True)
    user = dumped(owner.api.act)
    owner = module("anch_package", source.format(2), package=True)
    assert loaded(user) is owner.api.act


def test_states_from_before_there_were_marks_still_load(module):
    owner = module("anch_handlers", f"{HANDLERS}\nHANDLERS = [made('pay')]")
    assert anchors.resolve("anch_handlers", ((".", "HANDLERS"), ("[", 0))) is owner.HANDLERS[0]


def test_what_hung_deep_in_two_places_is_found_at_the_other_when_one_is_gone(module):
    owner = module("anch_handlers", f"{HANDLERS}\nA = {{'x': made('pay')}}\nB = {{'y': A['x']}}")
    act = owner.A["x"]
    assert same(act)
    del owner.A["x"]
    assert same(act)


# --- modules that aren't like others ------------------------------------------------------------------


class Raising(types.ModuleType):
    def __getattribute__(self, name):
        raise RuntimeError(name)


class Answering(types.ModuleType):
    def __getattr__(self, name):
        raise RuntimeError(name)


class Instance:
    __slots__ = ()


def odd_spec(spec):
    odd = types.ModuleType("anch_odd")
    odd.__spec__ = spec
    return odd


def nameless():
    odd = types.ModuleType("anch_odd")
    del odd.__name__
    return odd


def circular():
    odd = types.ModuleType("anch_odd")
    odd.__spec__ = importlib.util.spec_from_loader("anch_odd2", loader=types.SimpleNamespace())
    twin = sys.modules["anch_odd2"] = types.ModuleType("anch_odd2")
    twin.__spec__ = importlib.util.spec_from_loader("anch_odd", loader=types.SimpleNamespace())
    return odd


ODD = {
    "raises for every attribute": lambda: Raising("anch_odd"),
    "raises for unknown ones": lambda: Answering("anch_odd"),
    "isn't a module": Instance,
    "has a spec that isn't one": lambda: odd_spec(object()),
    "has a spec that is a number": lambda: odd_spec(1),
    "has no name": nameless,
    "has the spec of one that has its": circular,
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
@pytest.mark.parametrize("name", ["anch_odd", "email.anch_odd"])
def test_no_odd_module_keeps_a_state_from_being_saved(module, monkeypatch, odd, name):
    owner = module("anch_owner", OWNER)
    monkeypatch.setitem(sys.modules, "anch_odd2", None)
    monkeypatch.setitem(sys.modules, name, odd())
    coro = holding([owner.thing, owner.plain, lambda: owner.thing])
    coro.send(None)
    assert state.loads(state.dumps(coro))
    anchors.Hanging().look_into_packages()
    state.release(coro)
    finished = holding(1)
    finished.send(None)
    with pytest.raises(StopIteration):
        finished.send(None)
    assert state.loads(state.dumps(finished))


def lazily(name):
    spec = importlib.util.find_spec(name)
    loader = spec.loader = importlib.util.LazyLoader(spec.loader)
    made = sys.modules[name] = importlib.util.module_from_spec(spec)
    loader.exec_module(made)
    return made


def test_a_lazy_module_is_left_alone_until_it_is_used_and_then_is_like_others(module):
    module("anch_lazy", OWNER)
    del sys.modules["anch_lazy"]
    lazy = lazily("anch_lazy")
    assert loaded(dumped([1, object])) == [1, object]
    anchors.Hanging().look_into_packages()
    assert same(lazy)
    assert type(lazy) is not types.ModuleType
    assert lazy.plain == {"a": 1}
    assert type(lazy) is types.ModuleType
    assert same(lazy.plain)
    assert same(lazy.thing)


def test_a_dead_proxy_or_an_object_without_a_class_hinders_nobody_who_looks_for_others(module):
    owner = module(
        "anch_owner",
        OWNER
        + """
import weakref
class Classless:
    @property
    def __class__(self): raise RuntimeError("no class")
gone = weakref.proxy(Kind())
classless = Classless()
class Holder:
    gone = gone
    classless = classless
    def method(self): return lambda: self
def made():
    lock = threading.Lock()
    return lambda: lock
found = {"x": made()}
method = Holder().method()
""",
    )
    assert type(owner.gone) is weakref.ProxyType
    assert same(owner.found["x"])
    assert loaded(dumped(owner.Holder().method()))
    anchors.Hanging().look_into_packages()


def test_a_class_by_value_may_hold_a_dead_proxy():
    class Kind:
        pass

    Kind.gone = weakref.proxy(Kind())

    class Local:
        gone = Kind.gone

    assert type(loaded(dumped(Local()))).__dict__["gone"] is not None
