"""Measures one module: which of its tests hold, and of those that don't, why.

Each pass over a module runs in a process of its own (`worker`). A test is counted in exactly one of these:

- `excluded`: it fails or is skipped here without any of this, so nothing can be learned from it;
- `unwatched`: it passes by itself and fails while it is watched or stretched, with nothing frozen;
- `unsuspended`: it passes, and nothing was frozen in it;
- `held`: it passes, something was frozen and thawed in it, and nothing was refused;
- `cannot`: it doesn't pass so, or snaprt refused somewhere, and the reason is known (see `reasons`);
- `unexplained`: the same without a known reason. There must be none; each is a fault of snaprt or of this
  yardstick.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.yardstick.reasons import FRAME_OBJECT, known

ROOT = Path(__file__).parents[2]
LIMIT = 900
"""Seconds for one pass over a module."""

WAYS = ("as written", "stretched", "agent loop", "agent loop, stretched")


@dataclass
class Measured:
    """What became of the tests of one module, measured one way."""

    module: str
    way: str
    tests: int = 0
    suspensions: int = 0
    frozen: int = 0
    missed: int = 0
    excluded: int = 0
    seconds: float = 0.0
    unwatched: list[str] = field(default_factory=list)
    unsuspended: int = 0
    held: int = 0
    cannot: dict[str, str] = field(default_factory=dict)
    unexplained: dict[str, str] = field(default_factory=dict)


def measure(module: str, way: str, only: list[str] | None = None) -> Measured:
    """Measure `test.<module>` in one of the `WAYS`; `only` names tests as the runs tell them."""
    begun = time.monotonic()
    done = (_on_the_agent_loop if way.startswith("agent loop") else _in_place)(module, way, only)
    done.seconds = round(time.monotonic() - begun, 1)
    return done


def _in_place(module: str, way: str, only: list[str] | None) -> Measured:
    stretched = ["--stretched"] if way == "stretched" else []
    done = Measured(module, way)
    frozen = _told(module, "frozen", only, *stretched)
    done.missed = sum(told["missed"] for told in frozen.values())
    wrong = _count(done, frozen)
    if wrong:
        plain = _told(module, "plain", wrong)
        watched = _told(module, "watched", wrong, *stretched)
        kept = _told(module, "frozen", wrong, *stretched, "--keep-frame-objects")
        for name in wrong:
            if plain[name]["outcome"] != "passed":
                done.excluded += 1
            elif watched[name]["outcome"] != "passed":
                done.unwatched.append(name)
            elif not frozen[name]["refusals"] and kept[name]["outcome"] == "passed":
                done.cannot[name] = FRAME_OBJECT
            else:
                _explain(done, name, frozen[name])
    return done


def _on_the_agent_loop(module: str, way: str, only: list[str] | None) -> Measured:
    stretched = ["--stretched"] if way == "agent loop, stretched" else []
    done = Measured(module, way)
    saved = _told(module, "saved", only, *stretched)
    wrong = _count(done, saved)
    if wrong:
        plain = _told(module, "plain", wrong)
        unsaved = _told(module, "loop", wrong, *stretched) if stretched else {}
        for name in wrong:
            if plain[name]["outcome"] != "passed":
                done.excluded += 1
            elif stretched and unsaved[name]["outcome"] != "passed":
                done.unwatched.append(name)
            else:
                _explain(done, name, saved[name])
    return done


def _count(done: Measured, seen: dict[str, dict[str, Any]]) -> list[str]:
    """Count what the tests of a pass came to; those that failed, or in which something was refused."""
    wrong = []
    for name, told in seen.items():
        done.tests += 1
        done.suspensions += told["suspensions"]
        done.frozen += told["frozen"]
        if told["outcome"] == "skipped":
            done.excluded += 1
        elif told["outcome"] != "passed" or told["refusals"]:
            wrong.append(name)
        elif told["frozen"]:
            done.held += 1
        else:
            done.unsuspended += 1
    return wrong


def _explain(done: Measured, name: str, told: dict[str, Any]) -> None:
    """Count a test that is wrong as explained if all that was refused is, and its failure if it failed."""
    wrongs = dict.fromkeys(told["refusals"] + ([told["detail"]] if told["outcome"] != "passed" else []))
    reasons = {wrong: known(done.module, name, wrong) for wrong in wrongs}
    unknown = [wrong for wrong, why in reasons.items() if why is None]
    if unknown:
        done.unexplained[name] = "\n".join(unknown)
    else:
        done.cannot[name] = "; ".join(dict.fromkeys(why for why in reasons.values() if why is not None))


def _told(module: str, how: str, only: list[str] | None, *more: str) -> dict[str, dict[str, Any]]:
    """Run one pass. A test in which the process died is told as failed, and the pass goes on behind it."""
    told: dict[str, dict[str, Any]] = {}
    while True:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder, "told")
            command = [sys.executable, "-m", "tests.yardstick.worker", module, how, str(out), *more]
            if only is not None:
                command += ["--only", *only]
            if told:
                command += ["--skip", *told]
            ended = subprocess.run(
                command,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=LIMIT,
            )
            lines = [json.loads(line) for line in out.read_text("utf-8").splitlines()] if out.exists() else []
        for line in lines:
            if "test" in line:
                told[line["test"]] = line
        said = ended.stderr.decode(errors="replace")[-2000:]
        begun = [line["begins"] for line in lines if "begins" in line]
        if ended.returncode == 0:
            return told
        if not begun or begun[-1] in told:
            raise RuntimeError(f"{module} ({how}) can't be run:\n{said}")
        told[begun[-1]] = {
            "test": begun[-1],
            "outcome": "failed",
            "suspensions": 0,
            "frozen": 0,
            "missed": 0,
            "refusals": [],
            "detail": f"the process died with {ended.returncode}:\n{said}",
        }
