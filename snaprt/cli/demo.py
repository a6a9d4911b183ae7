"""`snaprt demo`: the tour. One agent, three processes, nothing done twice.

The agent is `snaprt.demo`; every process is the real command line, started with a hash seed and a
folder of its own, so nothing but the store and the key is shared. The first is killed with SIGKILL
while the agent sleeps; the second goes on from the log and ends because the agent asks a person;
the third takes the answer in. This file tells the story as it happens and proves it from the ledger
that the agent's tools write.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from snaprt.cli import failures, page, views
from snaprt.cli.foreign import Text
from snaprt.cli.output import console, put
from snaprt.cli.session import Settings, local_folder, with_runtime
from snaprt.errors import SnaprtError
from snaprt.runtime import RunInfo, Runtime

AGENT = "snaprt.demo:refund"


class TourStopped(SnaprtError):
    """A process of the tour didn't do its part; carries what it said."""


def tour(settings: Settings, *, approve: bool) -> int:
    """Go through it once. `approve` answers the agent's question without asking the person here."""
    out = console()
    folder = local_folder(settings.url)
    store = settings.url if folder is None else str(folder.resolve())
    run = f"demo-{secrets.token_hex(3)}"
    with tempfile.TemporaryDirectory(prefix="snaprt-demo-") as away:
        guide = _Tour(out, settings, store, run, Path(away))
        try:
            guide.go(approve)
        finally:
            guide.end()
    return failures.COMPLETED


class _Tour:
    def __init__(self, out: Console, settings: Settings, store: str, run: str, away: Path) -> None:
        self._out = out
        self._settings = settings
        self._store = store
        self._run = run
        self._away = away
        self._ledger = away / "ledger"
        self._marks = views.Marks(out.encoding)
        self._processes: list[subprocess.Popen[str]] = []

    def go(self, approve: bool) -> None:
        self._say("An agent handles a complaint: it asks three services, waits, asks a person, pays back.")
        self._say(
            f"It is plain asyncio code, snaprt/demo.py; its state goes to {self._settings.url}.\n", "dim"
        )

        self._start_and_kill()
        payload = self._resume_until_it_asks()
        answer = self._answer(payload, approve)
        outcome = self._resume_with(answer)

        self._say(f"   {self._mark('completed')} {outcome['result']}\n")
        self._prove()
        info = self._look()
        self._say("\nWhat the store has of it (snaprt show):\n")
        put(self._out, *page.run_page(info, self._marks, self._settings.said_store, views.now()))
        where = views.store_words(self._settings.said_store)
        self._say(
            f"\nNext: snaprt show {' '.join([self._run, *where])}; snaprt run FILE.py:FUNCTION, of your own."
        )

    def end(self) -> None:
        """Leave no process behind, however the tour ended."""
        for process in self._processes:
            if process.poll() is None:
                process.kill()
                process.wait()

    # --- the three processes ----------------------------------------------------------------------

    def _start_and_kill(self) -> None:
        words = ["run", AGENT, f"ledger={json.dumps(str(self._ledger))}", "--run-id", self._run]
        process = self._spawn(words, seed=1)
        self._title(1, process, f"starts {self._run}")
        for event in self._events(process):
            if event["event"] == "step" and event["status"] == "done":
                self._say(f"   {self._mark('done')} {event['tool']}: {_short(event.get('output'))}")
            if event["event"] == "plan" and _status(event, "settle") == "active":
                # The three results are on record, since the agent has gone on from them.
                process.kill()
                process.wait()
                self._say(
                    f"   kill -9 {process.pid}, while the agent is in asyncio.sleep. Nothing was tidied up.\n"
                )
                return
        raise self._stopped(process, "ended before it could be killed")

    def _resume_until_it_asks(self) -> Any:
        # On Linux a resume sees for itself that the owner is dead; elsewhere its lease would have to run out.
        process = self._spawn(["resume", self._run, "--steal"], seed=2)
        self._title(2, process, "takes it over, with another hash seed and folder")
        last: Mapping[str, Any] = {}
        for event in self._events(process):
            last = event
        if process.wait() or last.get("status") != "suspended":
            raise self._stopped(process, "should have suspended the run")
        payload = last["waiting"][0]["payload"]
        self._say(f"   {self._mark('suspended')} it asks:")
        put(self._out, views.indented(views.payload_text(payload), 5))
        self._say("   The process has ended. The agent is bytes at the store, for as long as you like.\n")
        return payload

    def _resume_with(self, answer: Mapping[str, Any]) -> Mapping[str, Any]:
        process = self._spawn(["resume", self._run, "--answer", json.dumps(answer)], seed=3)
        self._title(3, process, f"goes on with the answer {json.dumps(answer)}")
        last: Mapping[str, Any] = {}
        for event in self._events(process):
            last = event
        if process.wait() or last.get("status") != "completed":
            raise self._stopped(process, "should have completed the run")
        return last

    def _answer(self, payload: Any, approve: bool) -> Mapping[str, Any]:
        if approve or not (sys.stdin.isatty() and self._out.is_terminal):
            return {"approved": True}
        try:
            said = input("   Your answer? [Y/n] ")
        except EOFError:
            said = ""
        self._say("")
        return {"approved": said.strip().lower() in ("", "y", "yes")}

    def _spawn(self, words: list[str], *, seed: int) -> subprocess.Popen[str]:
        folder = self._away / str(seed)
        folder.mkdir()
        process = subprocess.Popen(
            [sys.executable, "-m", "snaprt", *words, "--store", self._store, "--json"],
            env={
                **os.environ,
                "PYTHONHASHSEED": str(seed),
                "PYTHONPATH": _path(),
                "PYTHONIOENCODING": "utf-8",
            },
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=(folder / "errors").open("w"),
            encoding="utf-8",
        )
        self._processes.append(process)
        return process

    def _events(self, process: subprocess.Popen[str]) -> Iterator[Mapping[str, Any]]:
        assert process.stdout is not None  # it is a pipe
        with process.stdout as lines:
            for line in lines:
                yield json.loads(line)

    def _stopped(self, process: subprocess.Popen[str], what: str) -> TourStopped:
        process.kill()
        process.wait()
        said = (self._away / str(len(self._processes)) / "errors").read_text(errors="replace").strip()
        return TourStopped(f"The tour can't go on: process {len(self._processes)} {what}. {said}".rstrip())

    # --- the proof --------------------------------------------------------------------------------

    def _prove(self) -> None:
        pids = [process.pid for process in self._processes]
        calls = [json.loads(line) for line in self._ledger.read_text(encoding="utf-8").splitlines()]
        counts = Counter(call["tool"] for call in calls)
        table = Table(box=None, pad_edge=False, header_style="dim")
        for title in ("tool", "calls", "in process"):
            table.add_column(title)
        for call in calls:
            place = pids.index(call["process"]) + 1
            table.add_row(call["tool"], str(counts[call["tool"]]), f"{place} ({call['process']})")
        self._say("What the tools really did, by their own ledger:")
        put(self._out, views.indented(table, 3))
        twice = sorted(tool for tool, count in counts.items() if count > 1)
        if twice:
            raise TourStopped(
                f"{', '.join(twice)} was called more than once: please report this as a fault of snaprt."
            )
        self._say(f"{self._mark('done')} Three processes, {len(calls)} calls, none twice.")

    def _look(self) -> RunInfo:
        found: list[RunInfo] = []

        async def work(runtime: Runtime) -> int:
            found.append(await runtime.show(self._run))
            return failures.COMPLETED

        with_runtime(Settings(store=self._store), work)
        return found[0]

    # --- telling ----------------------------------------------------------------------------------

    def _title(self, number: int, process: subprocess.Popen[str], what: str) -> None:
        self._out.print(Text.assemble((f"{number}  process {process.pid} ", "bold cyan"), what))

    def _say(self, text: str, style: str = "") -> None:
        put(self._out, Text(text, style=style))

    def _mark(self, status: str) -> str:
        return self._marks.of(status).plain


def _status(event: Mapping[str, Any], name: str) -> str | None:
    return next((entry["status"] for entry in event["plan"] if entry["name"] == name), None)


def _short(value: Any) -> str:
    return views.value_text(value).plain


def _path() -> str:
    """The import path of the children: they start in another folder, and snaprt may be a checkout."""
    import snaprt

    here = str(Path(snaprt.__file__).parents[1])
    rest = os.environ.get("PYTHONPATH")
    return here if not rest else here + os.pathsep + rest
