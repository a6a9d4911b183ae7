"""One runtime, opened for one command; following a run to its end; Ctrl-C.

`with_runtime` is where a command meets asyncio. Ctrl-C and SIGTERM don't cancel anything: they let the
runtime drain (running tools end, the state is saved), which is what leaving its block does. A second one
ends the process on the spot. That is safe too: a run survives any crash, and the point of the gentle
way is only that no call is left in doubt.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import inspect
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, Protocol, Self

from snaprt.cli import failures
from snaprt.cli.foreign import guard_log
from snaprt.cli.leaving import HostThreads
from snaprt.cli.output import OutputLost
from snaprt.cli.screen import Screen, screen
from snaprt.errors import MissingExtra, MissingKey, SnaprtError, StoreError, UnknownRun, UsageError
from snaprt.runtime import Completed, Failed, Outcome, Run, RunInfo, Runtime, Suspended
from snaprt.store import names
from snaprt.store.objects import WAYS

DEFAULT_STORE = "./.snaprt"

# Seconds that running tools get to end after Ctrl-C. Most calls of a model or an API do in that time;
# containers that are stopped get ten as a rule, and Kubernetes' thirty are more.
GRACE = 8.0


@dataclass(frozen=True)
class Settings:
    """What every command knows: `store` as said by option or environment, else None."""

    store: str | None = None
    store_by_option: bool = False
    as_json: bool = False

    @property
    def url(self) -> str:
        return self.store or DEFAULT_STORE

    @property
    def said_store(self) -> str | None:
        """The store as commands shown to the person have to say it; None where they needn't."""
        return self.store if self.store_by_option else None

    def screen(self) -> Screen:
        return screen(as_lines_of_json=self.as_json, store=self.said_store)


class Closable(Protocol):
    """What is shown, and can be left as it is."""

    def close(self) -> None: ...


class Signals:
    """Ctrl-C and SIGTERM while a run is followed: the first asks to stop, the second leaves at once.

    A plain signal handler, not one of the loop's: the second has to work even where the agent's own
    code is caught in a loop and the event loop never gets its turn.
    """

    def __init__(self, view: Closable) -> None:
        self.asked = asyncio.Event()
        self.code = 0
        self._view = view
        self._loop = asyncio.get_running_loop()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *how: object) -> None:
        if self.code:
            return  # what is left is to leave, and a second signal still does that at once
        for number, before in self._before.items():
            signal.signal(number, before)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.code:
            # Whatever was interrupted may be in the middle of writing, and have the lock that this needs.
            with contextlib.suppress(Exception):
                self._view.close()
                sys.stdout.flush()
            os._exit(128 + number)
        self.code = 128 + number
        self._loop.call_soon_threadsafe(self.asked.set)


def with_runtime(
    settings: Settings,
    work: Callable[[Runtime], Awaitable[int]],
    *,
    creates: bool = False,
    run: str | None = None,
) -> int:
    """Open the store, do the work, drain, and return the work's exit code.

    Only a command that `creates` runs may create a store: looking for runs shouldn't leave folders.
    `run` is the one that the command is about; if there's no such run, similar ones are named.
    """
    guard_log()
    _refuse_memory(settings.url)
    if run is not None:
        checked_run(run)
    if not creates:
        _refuse_missing_folder(settings.url)
    try:
        return asyncio.run(_open_and_work(settings, work, run))
    except KeyboardInterrupt:
        raise Interrupted(
            "Interrupted. A run that was under way is kept as it stood: see `snaprt ls`."
        ) from None


async def _open_and_work(
    settings: Settings, work: Callable[[Runtime], Awaitable[int]], run: str | None
) -> int:
    asyncio.get_running_loop().set_default_executor(HostThreads())
    runtime = Runtime(settings.url)
    try:
        await runtime.__aenter__()
    except (MissingExtra, MissingKey):
        raise
    except (StoreError, OSError, ValueError, ImportError) as error:
        said = failures.paragraph(error) if isinstance(error, SnaprtError) else str(error)
        raise failures.StoreNotOpened(
            said if settings.url in said else f"The store {settings.url} can't be opened: {said}"
        ) from error
    # What goes wrong inside is raised after the block: in it, the runtime's task group would wrap it up.
    stopped: Exception | None = None
    code = failures.REFUSED
    try:
        code = await work(runtime)
    except UnknownRun as error:
        runs = [] if run is None else [info.run for info in await runtime.list()]
        stopped = error if run is None else failures.unknown_run(run, runs, settings.url)
    except Exception as error:
        stopped = error
    finally:
        await runtime.__aexit__(None, None, None)
    if stopped is not None:
        raise stopped
    return code


async def follow(
    runtime: Runtime, take: Callable[[], Awaitable[Run]], view: Screen, where: str, *, resumed: bool
) -> int:
    """Take a run in hand and tell `view` about it until it ends, leaves, or a signal asks to stop.

    Returns the exit code. Raises AgentFailed, or Told with the error that stopped the runtime.
    """
    with Signals(view) as signals:
        run = await take()
        view.started(run.id, where, resumed=resumed)
        try:
            outcome = await _watch(run, view, signals)
            # The last look is at the record: what a run in hand knew is released when it leaves.
            last = await runtime.show(run.id)
            view.progress(run.id, {"plan": last.plan, "steps": last.steps, "current_step": last.current_step})
        except (BrokenPipeError, OutputLost):
            raise  # nobody listens any more; leaving the runtime's block saves the run
        except Exception as error:
            view.refused(run.id, error)
            raise Told(error) from error
        finally:
            view.close()
        if signals.code and isinstance(outcome, Suspended) and not outcome.waiting:
            view.interrupted(run.id)
            return failures.COMPLETED  # stopped in good order: saved, and nothing in doubt that needn't be
    view.ended(outcome)
    if isinstance(outcome, Failed):
        raise AgentFailed(outcome)
    return failures.COMPLETED if isinstance(outcome, Completed | Suspended) else failures.FAILED


async def _watch(run: Run, view: Screen, signals: Signals) -> Outcome:
    ending = asyncio.ensure_future(run.outcome())
    asked = asyncio.ensure_future(signals.asked.wait())
    waits: set[asyncio.Future[Any]] = {ending, asked}
    steps = 0
    try:
        while not ending.done():
            now = run.progress()
            # Steps are never taken back: with fewer than before, this is a run that is just being released.
            if len(now.get("steps") or ()) >= steps:
                steps = len(now.get("steps") or ())
                view.progress(run.id, now)
            await asyncio.wait(waits, timeout=view.interval, return_when=asyncio.FIRST_COMPLETED)
            if asked.done() and asked in waits:
                waits.discard(asked)
                view.stopping(run.id, GRACE)
                run.drain(GRACE)
        return ending.result()
    finally:
        asked.cancel()
        ending.cancel()


async def with_sizes(runtime: Runtime, runs: Sequence[RunInfo]) -> list[RunInfo]:
    """The runs with their sizes, which a listing of the store may leave out."""
    return list(await asyncio.gather(*(_with_size(runtime, info) for info in runs)))


_MOST_RELATIVES = 20
"""So many runs are asked where they stand for the page of another; `snaprt ls` shows all."""


async def statuses(runtime: Runtime, runs: Sequence[str]) -> dict[str, str]:
    """Where these runs stand, as far as that can be known."""
    asked = runs[:_MOST_RELATIVES]
    return dict(zip(asked, await asyncio.gather(*(_status(runtime, run) for run in asked)), strict=True))


async def _status(runtime: Runtime, run: str) -> str:
    try:
        return (await runtime.show(run)).status
    except UnknownRun:
        return "removed"
    except SnaprtError:
        return "damaged"


async def _with_size(runtime: Runtime, info: RunInfo) -> RunInfo:
    if info.bytes or info.status == "damaged":
        return info
    try:
        return replace(info, bytes=(await runtime.show(info.run)).bytes)
    except SnaprtError:  # the page of that run says what is wrong with it
        return info


class Interrupted(Exception):
    """Ctrl-C where nothing is followed: while a store is opened or listed."""


class Told(Exception):
    """An error that the screen has been told about; `run_command_line` prints the paragraph."""

    def __init__(self, error: Exception) -> None:
        super().__init__(failures.words(error))
        self.error = error


class AgentFailed(Exception):
    """The run ended in `failed`; the screen has said so, `run_command_line` prints the paragraph."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.run)
        self.failed = failed


def taken_keywords() -> set[str]:
    """The keywords that `Runtime.start` keeps for itself."""
    parameters = inspect.signature(Runtime.start).parameters.values()
    return {parameter.name for parameter in parameters if parameter.kind is not parameter.POSITIONAL_ONLY}


def checked_run(run: str) -> str:
    """A run id that can be one; UsageError otherwise, before any store is asked."""
    try:
        return names.checked_run(run)
    except StoreError as error:
        raise UsageError(str(error)) from None


def local_folder(url: str) -> Path | None:
    """The folder of a store on this machine, None for any other."""
    scheme, _, rest = url.partition(":")
    if scheme in ("file", "local") and rest:
        return Path(rest.removeprefix("//"))
    if "://" in url or "::" in url or scheme.lower() in WAYS:  # the last are told which slashes they lack
        return None
    return Path(url).expanduser()


def is_missing(url: str) -> bool:
    folder = local_folder(url)
    return folder is not None and not folder.exists()


def _refuse_memory(url: str) -> None:
    if url.startswith("memory:"):
        raise UsageError(
            f"The store {url} lives in this process and dies with it: what is suspended there is lost. Give "
            "a folder or the URL of a real store."
        )


def _refuse_missing_folder(url: str) -> None:
    if is_missing(url):
        raise failures.StoreNotOpened(
            f"There's no store at {url} (looked from {os.getcwd()}). Say where it is with --store or "
            "SNAPRT_STORE; `snaprt run` makes one at its first run."
        )


def who() -> str:
    """Who gives an answer, for the record: the login name, where there is one."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "command line"
