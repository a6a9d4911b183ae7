"""What the runtime's tests share: both kinds of host, a store, a ledger, and deaths."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from snaprt.store import Log
from tests.store.held import Held


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def ledger(tmp_path: Path) -> str:
    """A file in which tools note what really happened."""
    path = tmp_path / "ledger"
    path.touch()
    return str(path)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "store")


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    """The objects that every Runtime of the test works on."""
    objects = Held()
    monkeypatch.setattr("snaprt.store.store.open_objects", lambda *_: (objects, "held"))
    return objects


class Lost(BaseException):
    """Stands for the death of the process: nothing of snaprt catches it."""


@pytest.fixture
def dying_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], AbstractContextManager[None]]:
    """`with dying_at(kind):` the process dies where it is about to write a record of that kind."""
    append = Log.append

    @contextmanager
    def dying(kind: str) -> Iterator[None]:
        def die(self: Log, what: str, **kwargs: Any) -> Any:
            if what == kind:
                raise Lost
            return append(self, what, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(Log, "append", die)
            with pytest.raises(BaseException) as death:  # noqa: PT011  # looked at below
                yield
        assert all(isinstance(error, Lost) for error in _leaves(death.value))

    return dying


def _leaves(error: BaseException) -> list[BaseException]:
    """What came out of task groups, without the groups."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in _leaves(each)]
    return [error]
