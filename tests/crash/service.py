"""The payments service of the examples as a process of its own, and its ledger as the world sees it."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.crash.processes import ROOT


@dataclass(frozen=True)
class Service:
    """Where it listens, and the file of its ledger."""

    url: str
    file: Path

    def payments(self, key: str | None = None) -> list[dict[str, Any]]:
        """Asked by HTTP, as a person would look a payment up."""
        query = "" if key is None else f"?key={key}"
        with urllib.request.urlopen(f"{self.url}/payments{query}", timeout=30) as answer:
            found: list[dict[str, Any]] = json.load(answer)["payments"]
        return found

    def rows(self) -> list[tuple[str, str, int]]:
        """Key, order and cents of every payment, read past the service: what is on disk."""
        with contextlib.closing(sqlite3.connect(self.file)) as db:
            return list(db.execute('select key, "order", cents from payments order by rowid'))


@contextlib.contextmanager
def payments(folder: Path, *flags: str) -> Iterator[Service]:
    """Starts a service with an empty ledger in `folder`; it ends with the block."""
    file = folder / "payments.sqlite"
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "examples/payments.py"), "--port", "0", "--ledger", str(file), *flags],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()  # it comes when the service listens; nothing comes if it died
        assert line.startswith("payments at http://"), f"the payments service said {line!r}"
        yield Service(line.split()[2].rstrip(","), file)
    finally:
        process.terminate()
        process.wait(30)
        assert process.stdout is not None
        process.stdout.close()
