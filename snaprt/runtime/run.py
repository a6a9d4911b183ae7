"""`Run`: a run that this process has in hand, or that it found ended or asleep."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import anyio

from snaprt.runtime.drive import Driver
from snaprt.runtime.outcomes import Outcome
from snaprt.runtime.watching import RunEvent

if TYPE_CHECKING:
    from snaprt.runtime.access import Access


class Run:
    """A run that this process has in hand, or that it found ended."""

    def __init__(
        self, runtime: Access, run: str, driver: Driver | None = None, outcome: Outcome | None = None
    ) -> None:
        self.id = run
        self._runtime = runtime
        self._driver = driver
        self._outcome = outcome
        self._error: BaseException | None = None
        self._ended = anyio.Event()
        if outcome is not None:
            self._ended.set()

    async def outcome(self) -> Outcome:
        """Wait until the run has ended or left the process, and say how.

        Raises the SnaprtError (Fenced, StoreError, …) that made this process stop; the run itself is
        then as its log says, and can be resumed.
        """
        await self._ended.wait()
        if self._error is not None:
            raise self._error
        assert self._outcome is not None  # set before the event is
        return self._outcome

    @property
    def in_hand(self) -> bool:
        """Whether this process took the run in hand; else it was found ended, or still waiting."""
        return self._driver is not None

    def progress(self) -> dict[str, Any]:
        """The five fields as they are now, without touching the store: for showing to a person."""
        return {} if self._driver is None else self._driver.kernel.summary()

    def events(self, *, after: int = 0, follow: bool = True) -> AsyncIterator[RunEvent]:
        """What happens to the run: see `Runtime.events`."""
        return self._runtime.events(self.id, after=after, follow=follow)

    def drain(self, grace: float | None = None) -> None:
        """Start no new call; save and leave when the running ones have ended, or after `grace` seconds."""
        if self._driver is not None:
            self._driver.drain(grace)

    def _end(self, outcome: Outcome | None, error: BaseException | None) -> None:
        self._outcome, self._error = outcome, error
        self._ended.set()
