"""Functions, cells and the things that wrap or describe functions.

A function that its module holds under its qualified name travels as that name; so does a decorated one.
Any other (nested, a lambda, one hidden by a decorator) is made anew from its code with its cells beside it,
so that closures go on sharing their variables with each other and with the frame that made them.

Cells come before the functions that close over them, and get their contents after: a function that calls
itself is in its own cell. Bound methods and builtins are taken apart by descriptor and not by `getattr`,
because a name may be mangled, or mean something else on a subclass.

This file must not know how code is found (`code`) or which modules can be imported (`modules`).
"""

from __future__ import annotations

import builtins
import functools
import sys
from types import (
    BuiltinFunctionType,
    CellType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

from snaprt import frames
from snaprt.errors import CodeChanged
from snaprt.state import anchors, modules
from snaprt.state import code as codes
from snaprt.state.reducers import Reduced, reducer
from snaprt.state.sessions import Dumping, loading


def attribute(root: Any, path: str) -> Any:
    """`root.a.b` for `"a.b"`; AttributeError if a step is missing."""
    found = root
    for name in path.split("."):
        if name == "<locals>":
            raise AttributeError(path)
        found = getattr(found, name)
    return found


# Where a module keeps a function that its qualified name leads past: inside a descriptor, or under a wrapper.
_INSIDE = (".fget", ".fset", ".fdel", ".__func__", ".func", ".__wrapped__")


def _path(function: FunctionType) -> tuple[str, str] | None:
    """The importable module, and the path of attributes there, that lead to this very function."""
    for module in dict.fromkeys((function.__module__, function.__globals__.get("__name__"))):
        if not modules.importable(module):
            continue
        try:
            found = attribute(sys.modules[module], function.__qualname__)
        except AttributeError:
            continue
        if found is function:
            return module, function.__qualname__
        for inside in _INSIDE:
            try:
                if attribute(found, inside[1:]) is function:
                    return module, function.__qualname__ + inside
            except AttributeError:
                continue
    return None


# --- functions ------------------------------------------------------------------------------------


@reducer(FunctionType)
def reduce_function(function: FunctionType, dumping: Dumping) -> Reduced:
    if "<" not in function.__qualname__:
        found = _path(function)
        if found is not None:
            module, path = found
            if modules.is_library(sys.modules[module]):
                # A package's own function keeps its meaning under its name.
                if module == function.__module__ and path == function.__qualname__:
                    return NotImplemented
                return found_by_name, found
            return by_name, (module, path, frames.code_digest(function.__code__))
    place = dumping.anchor(function)
    if place is not None:
        return anchors.resolve, place
    code = function.__code__
    namespace = function.__globals__
    args = (
        codes.reference(code, namespace, dumping),
        modules.reference(namespace, dumping),
        function.__closure__,
    )
    # A function that is met within its own closure (a method, through `__class__`) is reduced a second time
    # inside the first, and only what the second says is written. So both say the same.
    unsent = dumping.claimed.get(id(function))
    if unsent is None:
        unsent = modules.unsent(namespace, code, dumping)
        if unsent is not None and function.__closure__:
            dumping.claimed[id(function)] = unsent
    state = _state(function, code, unsent)
    if not state:
        return make_function, args
    return make_function, args, state, None, None, fill_function


def _state(function: FunctionType, code: CodeType, unsent: dict[str, Any] | None) -> dict[str, Any]:
    """What `make_function` doesn't give the function by itself."""
    state: dict[str, Any] = {}
    if unsent:
        state["globals"] = unsent
    if function.__name__ != code.co_name:
        state["__name__"] = function.__name__
    if function.__qualname__ != code.co_qualname:
        state["__qualname__"] = function.__qualname__
    if function.__module__ != function.__globals__.get("__name__"):
        state["__module__"] = function.__module__
    if function.__defaults__:
        state["__defaults__"] = function.__defaults__
    if function.__kwdefaults__:
        state["__kwdefaults__"] = function.__kwdefaults__
    if function.__doc__ != _doc(code):
        state["__doc__"] = function.__doc__
    if getattr(function, "__annotate__", None) is not None:
        # From 3.14 on annotations are a function until somebody asks; asking could run the user's code.
        state["__annotate__"] = function.__annotate__  # type: ignore[attr-defined]  # from 3.14 on
    elif function.__annotations__:
        state["__annotations__"] = function.__annotations__
    if getattr(function, "__type_params__", ()):
        state["__type_params__"] = function.__type_params__  # type: ignore[attr-defined]  # from 3.12 on
    if function.__dict__:
        state["__dict__"] = dict(function.__dict__)
    return state


def _doc(code: CodeType) -> str | None:
    return FunctionType(code, {}, closure=tuple(CellType() for _ in code.co_freevars) or None).__doc__


def make_function(
    code: CodeType, namespace: dict[str, Any], closure: tuple[CellType, ...] | None
) -> FunctionType:
    return FunctionType(code, namespace, None, None, closure)


def fill_function(function: FunctionType, state: dict[str, Any]) -> None:
    # The pickler may write the same state twice (a function within its own closure), so it is only read.
    for name, value in state.items():
        if name == "globals":
            fill_namespace(function.__globals__, value)
        elif name == "__dict__":
            function.__dict__.update(value)
        else:
            setattr(function, name, value)


def fill_namespace(namespace: dict[str, Any], names: dict[str, Any]) -> None:
    for name, value in names.items():
        if "." not in name:  # a submodule, which is there by having been imported
            namespace.setdefault(name, value)


def by_name(module: str, qualname: str, digest: str) -> Any:
    """The function that the module holds under that name, if it is the one that was saved."""
    what = f"{module}:{qualname}"
    try:
        found = attribute(modules.import_module(module), qualname)
    except AttributeError:
        raise CodeChanged(
            f"{what} is in the state, but {module} has no such function now; bring it back to go on"
        ) from None
    code = getattr(found, "__code__", None)
    if not isinstance(code, CodeType):
        raise CodeChanged(f"{what} was a function when the state was saved and is {found!r} now")
    if frames.code_digest(code) != digest:
        loading().require_same_interpreter(what)
        raise CodeChanged(codes.changed(what, code, digest))
    return found


@reducer(CodeType)
def reduce_code(code: CodeType, dumping: Dumping) -> Reduced:
    return codes.reduce_code(code, dumping)


@reducer(ModuleType, subclasses=True)
def reduce_module(module: ModuleType, dumping: Dumping) -> Reduced:
    return modules.reduce_module(module, dumping)


# --- cells ----------------------------------------------------------------------------------------


@reducer(CellType)
def reduce_cell(cell: CellType, dumping: Dumping) -> Reduced:
    try:
        contents = cell.cell_contents
    except ValueError:
        return CellType, ()
    return CellType, (), (contents,), None, None, fill_cell


def fill_cell(cell: CellType, contents: tuple[Any]) -> None:
    cell.cell_contents = contents[0]


# --- methods and descriptors ----------------------------------------------------------------------


@reducer(MethodType)
def reduce_method(method: MethodType, dumping: Dumping) -> Reduced:
    return MethodType, (method.__func__, method.__self__)


@reducer(BuiltinFunctionType)
def reduce_builtin(function: Any, dumping: Dumping) -> Reduced:
    """`len`, and builtin methods bound to an object: `items.append`."""
    owner = function.__self__
    if owner is None or isinstance(owner, ModuleType):
        return NotImplemented
    if isinstance(owner, type):
        return getattr, (owner, function.__name__)
    for base in type(owner).__mro__:
        found = base.__dict__.get(function.__name__)
        if isinstance(found, MethodDescriptorType) and found.__get__(owner) == function:
            return bind, (base, function.__name__, owner)
    return getattr, (owner, function.__name__)


@reducer(MethodWrapperType)
def reduce_method_wrapper(wrapper: Any, dumping: Dumping) -> Reduced:
    return bind, (wrapper.__objclass__, wrapper.__name__, wrapper.__self__)


def bind(base: type, name: str, owner: Any) -> Any:
    return base.__dict__[name].__get__(owner, type(owner))


@reducer(MethodDescriptorType)
@reducer(WrapperDescriptorType)
@reducer(GetSetDescriptorType)
@reducer(MemberDescriptorType)
@reducer(ClassMethodDescriptorType)
def reduce_descriptor(descriptor: Any, dumping: Dumping) -> Reduced:
    return unbound, (descriptor.__objclass__, descriptor.__name__)


def unbound(base: type, name: str) -> Any:
    return base.__dict__[name]


@reducer(property)
def reduce_property(prop: property, dumping: Dumping) -> Reduced:
    state = {}
    if prop.__doc__ != getattr(prop.fget, "__doc__", None):
        state["__doc__"] = prop.__doc__
    if sys.version_info >= (3, 13) and getattr(prop, "__name__", None) != getattr(
        prop.fget, "__name__", None
    ):
        state["__name__"] = prop.__name__
    if not state:
        return property, (prop.fget, prop.fset, prop.fdel)
    return property, (prop.fget, prop.fset, prop.fdel), state, None, None, set_attributes


@reducer(classmethod)
@reducer(staticmethod)
def reduce_wrapping_descriptor(method: Any, dumping: Dumping) -> Reduced:
    made = type(method)(method.__func__)
    names = {
        k: v for k, v in vars(method).items() if made.__dict__.get(k, made) is not v and k != "__wrapped__"
    }
    if not names:
        return type(method), (method.__func__,)
    return type(method), (method.__func__,), names, None, None, set_attributes


@reducer(functools.cached_property)
def reduce_cached_property(prop: Any, dumping: Dumping) -> Reduced:
    # Up to 3.11 it has a lock of its own.
    state = {"attrname": prop.attrname, "__doc__": prop.__doc__}
    return functools.cached_property, (prop.func,), state, None, None, set_attributes


def set_attributes(obj: Any, names: dict[str, Any]) -> None:
    for name, value in names.items():
        setattr(obj, name, value)


def found_by_name(module: str, qualname: str) -> Any:
    """Whatever the module holds under that name; CodeChanged if nothing does."""
    try:
        return attribute(modules.import_module(module), qualname)
    except AttributeError:
        raise CodeChanged(
            f"{module}:{qualname} is in the state, but {module} has nothing of that name now; "
            "bring it back to go on"
        ) from None


@reducer(type(builtins.__dict__.keys().mapping))
def reduce_mapping_proxy(proxy: Any, dumping: Dumping) -> Reduced:
    import gc

    (under,) = gc.get_referents(proxy) or ({},)
    marker = under.get("__dict__") if type(under) is dict else None
    owner = getattr(marker, "__objclass__", None)
    if isinstance(owner, type) and owner.__dict__ == proxy:
        return class_dict, (owner,)
    return type(proxy), (under,)


_LOCALS: Any = type((lambda: sys._getframe().f_locals)())


def reduce_frame_locals(proxy: Any, dumping: Dumping) -> Reduced:
    """From 3.13 on `f_locals` is a view of a frame, which libraries keep to look up names of annotations: it
    travels as the dict that it was until then."""
    return dict, (), None, None, iter(dict(proxy).items())


if _LOCALS is not dict:
    reducer(_LOCALS)(reduce_frame_locals)


def class_dict(owner: type) -> Any:
    return owner.__dict__
