"""Write a run's records: the state of the moment, the summary that people read, and patience with stores.

The recorder knows what of the state is not yet in the log. `dump` takes the state of this moment; the
bytes go out with the next record, whatever its kind. A store that fails for a moment is tried again with
backoff within `patience`; a tool's result is tried whatever the store fails with, until somebody stops the
process, and said loudly, for it is the one thing that can't be had again.

This file must not know when which record is due: that is the driver's protocol.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping
from itertools import chain
from typing import Any, Literal

from snaprt import state
from snaprt.errors import StoreError
from snaprt.kernel import Kernel
from snaprt.runtime import view
from snaprt.runtime.emitting import Events, encode
from snaprt.runtime.outcomes import Waiting
from snaprt.runtime.patience import insistently, patiently
from snaprt.store import Log, Transient

# Up to so many bytes before compression a record takes less time to be made than to be handed to a thread.
_SMALL = 128 << 10


class Recorder:
    """The writing side of one run in hand."""

    def __init__(
        self,
        log: Log,
        kernel: Kernel,
        *,
        epoch: int,
        claim: int,
        about: Mapping[str, Any],
        patience: float,
        said: Mapping[str, Any] | None = None,
    ) -> None:
        self.log = log
        self.kernel = kernel
        self.epoch = epoch
        self._claim = claim
        self._about = dict(about)
        self.patience = patience
        self.stop_by: float | None = None
        """When the run has to have left the process, by the monotonic clock."""
        self.got_on = False
        """Whether the run got any further since it was taken in hand. `restore.deaths` counts from there."""
        self.events = Events(kernel, said)
        self._shown: set[str] = set()
        self._unwritten: state.Dump | None = None

    @property
    def parent(self) -> str | None:
        """The run that waits to be told how this one ends."""
        parent = self._about.get("parent")
        return None if parent is None else parent["run"]

    @property
    def pending(self) -> bool:
        """Whether the state of this moment is dumped and not yet in the log."""
        return self._unwritten is not None

    def unseen(self) -> list[str]:
        """Open questions that no record shows yet."""
        return [name for name in self.kernel.open_suspensions() if name not in self._shown]

    def dump(self) -> None:
        """Have the state of this moment ready to be written, unless the log has it. Raises NotSerialisable;
        then nothing is ready, and the last good state stays."""
        if self.kernel.dirty:
            self._unwritten = None
            # A tool may change a buffer that it was given before the record is written.
            self._unwritten = self.kernel.save().detached()
            self.events.of_the_agent()

    async def append(
        self,
        kind: str,
        detail: Mapping[str, Any],
        *,
        values: Mapping[str, state.Dump] | None = None,
        status: str = "running",
        also_waiting: tuple[Waiting, ...] = (),
        with_state: bool = True,
        look: float | Literal["as before"] | None = "as before",
        alone: bool = False,
    ) -> int:
        """Append a record with the summary of now, and the state if it isn't in the log. Gives its number.
        `look`: see `Log.append`. `alone`: nothing of the run goes on meanwhile.

        Raises Fenced, or the StoreError that patience didn't outlast.
        """
        sections: dict[str, list[Any]] = {"summary": [view.encode(self.kernel, also_waiting)]}
        if self._unwritten is not None and with_state:
            sections["state"] = self._unwritten.parts
        for name, dump in (values or {}).items():
            sections[name] = dump.parts
        if not with_state:
            self.events.of_the_agent()  # it has ended: no line of it will run again
        if shown := self.events.take():
            sections["events"] = [encode(shown)]
        whole = {"status": status, "claim": self._claim, **self._about, **detail}
        if said := self.events.said():
            whole["events"] = said
        attempt = secrets.token_hex(8)

        def once(hurried: bool = False) -> int:
            return self.log.append(
                kind,
                detail=whole,
                sections=sections,
                epoch=self.epoch,
                attempt=attempt,
                look=look,
                hurried=hurried,
            ).header.number

        self._shown = set(self.kernel.open_suspensions())
        number: int | None = None
        if alone and self.log.quick and sum(map(len, chain(*sections.values()))) < _SMALL:
            # Here and now, as a thread would take as long as the disk. What fails goes the other way, too.
            with contextlib.suppress(StoreError if kind == "result" else Transient):
                number = once(hurried=True)
        if number is None:
            what = f"Writing the {kind} record of run {self.log.run}"
            if kind == "result":  # it can't be had again; everything else can wait for a resume
                number = await insistently(what, lambda: self.stop_by, once)
            else:
                number = await patiently(what, self.patience, once)
        if with_state:
            self._unwritten = None
        self.got_on = self.got_on or kind != "intent"
        return number
