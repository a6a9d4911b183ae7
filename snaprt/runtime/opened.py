"""The resources that a run has open in this process.

The agent holds stand-ins; the real things are opened and closed here, on the host loop. They are closed in
the reverse of the order in which they were opened, and what a restored agent holds is opened before any of
it runs. This file must not know the protocol nor the log.
"""

from __future__ import annotations

from collections.abc import Iterable

from snaprt.errors import ResourceUnavailable
from snaprt.runtime.failing import own
from snaprt.state import resources


class OpenResources:
    """The open resources of one run."""

    def __init__(self, run: str) -> None:
        self._run = run
        self.stand_ins: list[resources.StandIn] = []

    async def open(self, stand_in: resources.StandIn) -> BaseException | None:
        """Open the real thing; gives the error where that fails."""
        try:
            await resources.open_handle(stand_in)
        except BaseException as error:
            return own(error, f"the resource {resources.resource_of(stand_in).__name__}")
        self.stand_ins.append(stand_in)
        return None

    async def close(self, stand_in: resources.StandIn) -> BaseException | None:
        """Close the real thing; gives the error where that fails."""
        self.stand_ins = [each for each in self.stand_ins if each is not stand_in]
        try:
            await resources.close_handle(stand_in)
        except BaseException as error:
            return own(error, f"the resource {resources.resource_of(stand_in).__name__}")
        return None

    async def reopen(self, stand_ins: Iterable[resources.StandIn]) -> None:
        """Open again what a restored agent holds. Raises ResourceUnavailable."""
        for stand_in in stand_ins:
            error = await self.open(stand_in)
            if error is not None:
                raise ResourceUnavailable(
                    f"Run {self._run} holds the resource {resources.describe(stand_in)}, and it can't be "
                    f"opened here: {error!r}. The run stays as it was; mend that and resume again."
                ) from error

    async def close_all(self) -> None:
        """Close what is open, the newest first. Errors are of no use to anybody any more."""
        while self.stand_ins:
            await self.close(self.stand_ins[-1])
