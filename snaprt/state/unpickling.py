"""Load a state: the unpicklers, and what is done in which order once all of it was read.

The stream is the root, then the frames' values and what else waited (see `pickling`, which writes it). Frames
are filled as their values come and primed when everything is there. If anything fails, every frame made so
far is released: no line of a state that didn't load runs.

In a cycle an object may be hashed before its contents are there; then all is read again, patiently
(`patient`).

What this file must not know: how any type is rebuilt, runs, stores.
"""

from __future__ import annotations

import contextlib
import json
import pickle
from collections.abc import Iterable, Mapping
from typing import Any

from snaprt import frames
from snaprt.errors import CodeChanged, Damaged, NotRestorable, SnaprtError
from snaprt.state import anchors, carriers, classes, flat, patient, plain, seeds, sessions, weak
from snaprt.state.parts import Part, Source
from snaprt.state.pickling import CONTENTS, FILL, HELD, WEAK, named
from snaprt.state.sessions import Loading


class _Finding:
    """What both unpicklers do differently from `pickle`."""

    held: list[Any]

    def persistent_load(self, pid: Any, /) -> Any:
        """One of the containers that the head of the stream names; only `_prologue` asks."""
        return self.held[pid]

    def find_class(self, module: str, name: str, /) -> Any:
        try:
            return super().find_class(module, name)  # type: ignore[misc]  # the unpickler's
        except ImportError as error:
            raise CodeChanged(
                f"the state needs {module}:{name}, and module {module!r} can't be imported here ({error}); "
                "install it, or start from where it can be imported"
            ) from error
        except AttributeError:
            raise CodeChanged(
                f"the state needs {module}:{name}, and {module} has nothing of that name now; "
                "bring it back to go on"
            ) from None


class _Unpickler(_Finding, pickle.Unpickler):
    def finish(self) -> None:
        """Nothing waits."""


class _Patient(_Finding, patient.PatientUnpickler):
    pass


def load(
    parts: Iterable[Part] | Part,
    *,
    resolve: Mapping[str, object] | None = None,
    joining: Mapping[str, dict[str, Any]] | None = None,
) -> Any:
    """Rebuilds what `dump` wrote; every frame stands where it stood.

    `joining` has namespaces of by-value modules, by name, that are in this process already: what was dumped
    apart from a state (a result, an answer) then gets that state's classes, so that `isinstance` holds.

    The bytes must be known to be good: whoever stores them verifies them first. Raises CodeChanged if this
    process has other code, NotRestorable if an object can't be rebuilt here, Damaged if the bytes aren't a
    state after all. Then no frame of it is left behind.
    """
    if isinstance(parts, list) and plain.is_plain(parts):
        return pickle.loads(parts[1])
    parts = [parts] if isinstance(parts, (bytes, bytearray, memoryview)) else parts
    try:
        return _load(parts, resolve, joining, _Unpickler)
    except NotRestorable as error:
        if not (isinstance(parts, list) and patient.failed_at_a_hash(error.__cause__)):
            raise
        return _load(parts, resolve, joining, _Patient)


def _load(
    parts: Iterable[Part],
    resolve: Mapping[str, object] | None,
    joining: Mapping[str, dict[str, Any]] | None,
    unpickler: Any,
) -> Any:
    source = Source(parts)
    head = _read_head(source)
    load = Loading(resolve, head["interpreter"], joining)
    sessions.enter(load)
    try:
        root = _read(unpickler(source), source, head, load)
    except BaseException as error:
        for frame in load.frames:
            with contextlib.suppress(SnaprtError):
                frames.release(frame)
        if isinstance(error, SnaprtError) or not isinstance(error, Exception):
            raise
        if isinstance(error, (pickle.UnpicklingError, EOFError)):
            raise Damaged(
                f"these bytes aren't a whole snaprt state ({error}); nothing of them was used"
            ) from error
        raise NotRestorable(
            f"an object of the state can't be rebuilt here: {type(error).__name__}: {error}"
        ) from error
    finally:
        sessions.leave()
    return root


def _read_head(source: Source) -> dict[str, Any]:
    start = source.read(seeds.HEAD.size)
    if len(start) != seeds.HEAD.size or start[:6] != seeds.MAGIC:
        raise Damaged("these bytes aren't a snaprt state")
    _, version, size = seeds.HEAD.unpack(start)
    if version != seeds.VERSION:
        raise Damaged(
            f"this is a snaprt state of format {version}, and this snaprt reads format {seeds.VERSION}"
        )
    try:
        head = json.loads(bytes(source.read(size)))
        if not (isinstance(head["memo"], int) and 0 <= head["memo"] <= 1 << 24):
            raise ValueError(head["memo"])
        return {
            "interpreter": dict(head["interpreter"]),
            "memo": head["memo"],
            "held": [(str(module), str(name)) for module, name in head["held"]],
        }
    except (ValueError, TypeError, KeyError) as error:
        raise Damaged(f"the head of this snaprt state can't be read ({error})") from error


def _read(unpickler: Any, source: Source, head: dict[str, Any], load: Loading) -> Any:
    unpickler.held = [
        anchors.global_(module, name) if module else named(name) for module, name in head["held"]
    ]
    source.push(seeds.prologue(len(unpickler.held), head["memo"]))
    unpickler.load()
    root = unpickler.load()
    carried: dict[str, Any] = {}
    contents: list[tuple[Any, ...]] = []
    while (item := unpickler.load()) is not None:
        if item[0] == FILL:
            for obj, values, handled, finalizer in item[1]:
                frames.fill(obj, values, handled, finalizer)
        elif item[0] == CONTENTS:
            contents += item[1]
        elif item[0] == WEAK:
            weak.fill(item[1], item[2])
        elif item[0] == HELD:
            classes.hold(item[1])
        else:
            carried[item[1]] = item[2]
    for content in contents:
        flat.fill(content)
    unpickler.finish()
    for frame in load.frames:
        frames.prime(frame)
    for finish in load.finish:
        finish()
    for name, entries in carried.items():
        carrier = carriers.find(name)
        if carrier is None:
            raise NotRestorable(f"the state holds entries of carrier {name!r}, which isn't registered here")
        carrier.put(entries)
    return root
