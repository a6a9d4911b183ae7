"""`python -m tests.yardstick.report FILE …`: the tables of docs/yardstick.md, from what `--json` printed.

Each file holds the lines of one interpreter, or some of them. The tables go to standard output.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.yardstick.measure import WAYS
from tests.yardstick.modules import MODULES

HEAD = "| | tests | held | frozen / all suspensions | no suspension | not measurable | can't hold |"
RULE = "|---|---|---|---|---|---|---|"


def _cells(rows: list[dict[str, Any]]) -> str:
    def total(name: str) -> int:
        return sum(len(row[name]) if isinstance(row[name], list | dict) else row[name] for row in rows)

    not_measurable = total("excluded") + total("unwatched")
    cannot = total("cannot") + total("unexplained")
    frozen = f"{total('frozen'):,} / {total('suspensions'):,}"
    numbers = (total("unsuspended"), not_measurable, cannot)
    return " | ".join(
        [f"{total('tests'):,}", f"**{total('held'):,}**", frozen, *(f"{number:,}" for number in numbers)]
    )


def tables(rows: Iterable[dict[str, Any]]) -> str:
    """Markdown: a summary by version and way, the modules of each way, and every test that can't hold."""
    by_place: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in rows:
        by_place[row["version"], row["way"], row["module"]] = row
    versions = sorted(
        {version for version, _, _ in by_place}, key=lambda each: [int(x) for x in each.split(".")]
    )
    out = ["## Results", ""]
    out += [HEAD.replace("| |", "| CPython, way |"), RULE]
    for version in versions:
        for way in WAYS:
            chosen = [row for (v, w, _), row in by_place.items() if (v, w) == (version, way)]
            if chosen:
                out.append(f"| {version}, {way} | {_cells(chosen)} |")
    for way in WAYS:
        out += ["", f"### {way[0].upper()}{way[1:]}, by module", "", "Held / tests (suspensions frozen).", ""]
        out += ["| module | " + " | ".join(versions) + " |", "|---" * (len(versions) + 1) + "|"]
        for module in MODULES[way]:
            cells = []
            for version in versions:
                row = by_place.get((version, way, module))
                cells.append(f"{row['held']} / {row['tests']} ({row['frozen']:,})" if row else "absent")
            out.append(f"| `{module}` | " + " | ".join(cells) + " |")
    out += ["", "## Tests that can't hold, and why", ""]
    reasons: dict[str, dict[tuple[str, str, str], list[str]]] = defaultdict(lambda: defaultdict(list))
    unwatched: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for (version, way, module), row in by_place.items():
        short = ".".join(version.split(".")[:2])
        for name, why in row["cannot"].items():
            reasons[why][module, name, way].append(short)
        for name, detail in row["unexplained"].items():
            reasons["UNEXPLAINED: " + detail.strip().splitlines()[-1]][module, name, way].append(short)
        for name in row["unwatched"]:
            unwatched[module, name, way].append(short)
    for why, places in sorted(reasons.items(), key=lambda each: -len(each[1])):
        out += [f"- **{why[0].upper()}{why[1:]}.**", *_places(places)]
    out += ["", "## Tests that watching or stretching disturbs", ""]
    out += [
        "They fail the same way with nothing frozen, so they say nothing about a thaw.",
        "",
        *_places(unwatched),
    ]
    return "\n".join(out) + "\n"


def _places(places: dict[tuple[str, str, str], list[str]]) -> list[str]:
    return [
        f"  - `{module}`: `{name}` ({way}; {', '.join(versions)})"
        for (module, name, way), versions in sorted(places.items())
    ]


if __name__ == "__main__":
    lines = [line for name in sys.argv[1:] for line in Path(name).read_text("utf-8").splitlines()]
    print(tables(json.loads(line) for line in lines), end="")
