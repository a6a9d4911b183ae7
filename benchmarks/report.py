"""Tables of a benchmark: printed always, kept in `results.json` and `results.md` only with `--save`.

Every module of a benchmark ends in `main(NAME)`; its `run(quick)` gives its tables. This file
doesn't know what was measured.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

HERE = Path(__file__).parent
JSON, MARKDOWN = HERE / "results.json", HERE / "results.md"


@dataclass(frozen=True)
class Table:
    """One table: rows of text under columns, and sentences that belong below it."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def text(self) -> str:
        """For a terminal."""
        lines = [self.columns, *self.rows]
        widths = [max(len(line[at]) for line in lines) for at in range(len(self.columns))]
        out = [self.title, ""]
        for line in lines:
            first, *rest = (cell.rjust(width) for cell, width in zip(line, widths, strict=True))
            out.append("  ".join([line[0].ljust(len(first)), *rest]).rstrip())
            if line is self.columns:
                out.append("  ".join("-" * width for width in widths))
        return "\n".join([*out, *(f"* {note}" for note in self.notes), ""])

    def markdown(self) -> str:
        """For a README."""
        out = [
            f"**{self.title}**",
            "",
            _row(self.columns),
            _row(["---"] + ["---:"] * (len(self.columns) - 1)),
        ]
        out += map(_row, self.rows)
        return "\n".join([*out, "", *(f"- {note}" for note in self.notes), ""])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def machine() -> str:
    """Where the figures come from, in one line."""
    return (
        f"{platform.python_implementation()} {platform.python_version()}, {platform.system()} "
        f"{platform.machine()}, {os.cpu_count()} cores"
    )


def seconds(value: float) -> str:
    """A time in the unit that suits it."""
    if value < 1e-3:
        return f"{value * 1e6:.1f} µs" if value < 1e-4 else f"{value * 1e6:.0f} µs"
    return (
        f"{value * 1e3:.2f} ms" if value < 0.1 else f"{value * 1e3:.0f} ms" if value < 1 else f"{value:.2f} s"
    )


def size(value: float) -> str:
    """A number of bytes in the unit that suits it (1 KB is 1000 bytes)."""
    for unit, scale in (("MB", 1e6), ("KB", 1e3)):
        if value >= scale:
            return f"{value / scale:.1f} {unit}" if value < 100 * scale else f"{value / scale:.0f} {unit}"
    return f"{value:.0f} B"


def ratio(value: float) -> str:
    """How many times as much."""
    return f"{value:.2f}x" if value < 10 else f"{value:.1f}x" if value < 100 else f"{value:.0f}x"


def main(name: str) -> None:
    """Run one benchmark as a command.

    Its module is imported by name: in `__main__` its agents, and all that they refer to, would travel by
    value.
    """
    options = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}")
    options.add_argument("--save", action="store_true", help="keep the tables in results.json and results.md")
    options.add_argument(
        "--quick", action="store_true", help="fewer rounds: figures that only show the order"
    )
    chosen = options.parse_args()
    print(f"{name}: {machine()}\n")
    module = importlib.import_module(f"benchmarks.{name}")
    tables: Sequence[Table] = module.run(chosen.quick)
    for table in tables:
        print(table.text())
    if chosen.save:
        save(name, tables)


def save(name: str, tables: Sequence[Table]) -> None:
    """Keep the tables of one benchmark, in place of those it left before."""
    kept = json.loads(JSON.read_text()) if JSON.exists() else {}
    kept[name] = {
        "machine": machine(),
        "date": date.today().isoformat(),
        "tables": [asdict(table) for table in tables],
    }
    kept = dict(sorted(kept.items()))
    JSON.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    parts = []
    for entry in kept.values():
        for table in entry["tables"]:
            rows = tuple(map(tuple, table["rows"]))
            parts.append(
                Table(table["title"], tuple(table["columns"]), rows, tuple(table["notes"])).markdown()
            )
        parts.append(f"<sub>{entry['machine']}, {entry['date']}</sub>\n")
    MARKDOWN.write_text("\n".join(parts))
