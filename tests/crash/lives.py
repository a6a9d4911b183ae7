"""Real processes for the crash tests, each one life of a run: it starts the run or takes it over, and dies.

They are forked from a server process that has the project loaded, so that a life costs milliseconds; each is
a process of its own all the same, with its own memory, threads and connections. A life that is to die does
so by SIGKILL: at a record boundary by its own hand (the log's `append`, counted here), else by its parent's.

    with Life(place, "r", "examples.refund:refund", ("A-17", service.url), dies=At(3, "after")) as life:
        life.said()      # how it ended; None when it was killed
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import multiprocessing
import os
import secrets
import signal
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

import anyio
import fsspec  # type: ignore[import-untyped]  # fsspec ships no types

import snaprt
from snaprt.store.log import Log
from tests.store import s3_server

forks = multiprocessing.get_context("forkserver" if os.name == "posix" else "spawn")
forks.set_forkserver_preload(["tests.crash.lives", "tests.crash.errands", "s3fs"])


@dataclass(frozen=True)
class Place:
    """Where runs lie, and the environment that a process needs to get there."""

    url: str
    environment: Mapping[str, str] = field(default_factory=dict)


@contextlib.contextmanager
def bucket() -> Iterator[Place]:
    """A new bucket of the S3 server of the tests, for commands that have no fixtures."""
    given = os.environ.get(s3_server.VARIABLE)
    with contextlib.nullcontext(given) if given else s3_server.server() as value:
        at = urllib.parse.urlsplit(value)
        name = f"test-{secrets.token_hex(8)}"
        environment = {
            "AWS_ENDPOINT_URL": f"{at.scheme}://{at.hostname}:{at.port}",
            "AWS_ACCESS_KEY_ID": str(at.username),
            "AWS_SECRET_ACCESS_KEY": str(at.password),
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        os.environ.update(environment)
        fsspec.filesystem("s3", skip_instance_cache=True).mkdir(name)
        yield Place(f"s3://{name}", environment)


@dataclass(frozen=True)
class At:
    """The moment at which a life ends: before or after its so-manieth record, counted from 1."""

    record: int
    when: Literal["before", "after"]


class Life:
    """One process with a run in hand. Leaving the block kills it if it still lives."""

    def __init__(
        self,
        place: Place,
        run: str,
        agent: str,
        args: tuple[Any, ...],
        *,
        dies: At | None = None,
        options: Mapping[str, Any] | None = None,
        gate: Any = None,
    ) -> None:
        self._receive, send = forks.Pipe(duplex=False)
        environment = {**place.environment, "SNAPRT_KEY": os.environ["SNAPRT_KEY"]}
        self.process = forks.Process(
            target=_live,
            args=(send, environment, place.url, run, agent, args, dies, dict(options or {}), gate),
            daemon=True,
        )
        self.process.start()
        send.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.join()
        self._receive.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.join()

    def signal(self, number: int) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def said(self, within: float = 120.0) -> dict[str, Any] | None:
        """How it ended, as `_live` tells it; None if it was killed before it could say."""
        assert self._receive.poll(within), "this life goes on and on"
        try:
            found: dict[str, Any] = self._receive.recv()
        except EOFError:
            return None
        return found


def gate(parties: int) -> Any:
    """A barrier for so many lives to act at the same moment."""
    return forks.Barrier(parties)


def ended(place: Place, run: str, agent: str, args: tuple[Any, ...]) -> dict[str, Any]:
    """Lives that nobody kills, until the run has ended. Gives the last one's word."""
    with Life(place, run, agent, args) as life:
        said = life.said()
    assert said is not None
    assert said["outcome"] in ("Completed", "Failed"), said
    return said


# --- inside of the process ------------------------------------------------------------------------


def _live(
    send: Any,
    environment: Mapping[str, str],
    url: str,
    run: str,
    agent: str,
    args: tuple[Any, ...],
    dies: At | None,
    options: Mapping[str, Any],
    gate: Any,
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the parent's
    os.environ.update(environment)
    if dies is not None:
        Log.append = _deadly(Log.append, dies)  # type: ignore[method-assign]
    send.send(anyio.run(_go, url, run, _named(agent), args, options, gate))


def _deadly(append: Callable[..., Any], dies: At) -> Callable[..., Any]:
    made = 0

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal made
        made += 1
        if made == dies.record and dies.when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        stored = append(*args, **kwargs)
        if made == dies.record:
            os.kill(os.getpid(), signal.SIGKILL)
        return stored

    return counted


def _named(agent: str) -> Any:
    module, _, name = agent.partition(":")
    return getattr(importlib.import_module(module), name)


async def _go(
    url: str, run: str, agent: Any, args: tuple[Any, ...], options: Mapping[str, Any], gate: Any
) -> dict[str, Any]:
    """Start or take over; answer what is asked, as a person who looks into the ledger would."""
    options = dict(options)
    how = options.pop("resume", {})
    try:
        async with snaprt.Runtime(url, **options) as rt:
            if gate is not None:
                await anyio.to_thread.run_sync(gate.wait)
            try:
                hand = await rt.resume(run, **how)
            except snaprt.UnknownRun:
                hand = await rt.start(agent, *args, run_id=run)
            while isinstance(outcome := await hand.outcome(), snaprt.Suspended) and outcome.waiting:
                for each in outcome.waiting:
                    said = await anyio.to_thread.run_sync(_answer, each.payload)
                    with contextlib.suppress(snaprt.AlreadyAnswered):
                        await rt.answer(run, said, suspension=each.suspension)
                hand = await rt.resume(run)
    except snaprt.SnaprtError as error:
        return {"outcome": type(error).__name__, "text": str(error)}
    return {
        "outcome": type(outcome).__name__,
        **json.loads(json.dumps(dataclasses.asdict(outcome), default=repr)),
    }


def _answer(payload: Any) -> Any:
    if "in_doubt" not in payload:
        return {"approved": True}
    asked = payload["in_doubt"]
    service = asked["args"][0]
    query = urllib.parse.quote(asked["key"], safe="")
    with urllib.request.urlopen(f"{service}/payments?key={query}", timeout=30) as answer:
        made = json.load(answer)["payments"]
    return {"done": made[0]} if made else {"retry": True}
