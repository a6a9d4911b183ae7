"""The research example: one process, and moved between processes at every turn, come to the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "research.py"
QUESTION = "how are answers and records signed"

LIFE = """
import importlib.util, json, sys, anyio
import snaprt

store, run_id, example, how, answers, *args = sys.argv[1:]
spec = importlib.util.spec_from_file_location("research", example)
module = importlib.util.module_from_spec(spec)
sys.modules["research"] = module
spec.loader.exec_module(module)

def done(run):
    return [step for step in run.progress().get("steps", []) if step["status"] == "done"]

async def live():
    async with snaprt.Runtime(store, distant=0.0) as rt:
        for name, value in json.loads(answers).items():
            await rt.answer(run_id, value, suspension=name)
        if args:
            question, folder, out, rest = args
            run = await rt.start(module.research, question, folder, out, float(rest), run_id=run_id)
        else:
            run = await rt.resume(run_id)
        before = len(done(run))
        if how == "leave" and run.in_hand:  # with the next result, whatever is under way
            while not run._ended.is_set() and len(done(run)) == before:
                await anyio.sleep(0.001)
            run.drain()
        outcome = await run.outcome()
        events = [event async for event in rt.events(run_id, follow=False)]
        print(json.dumps({
            "kind": type(outcome).__name__,
            "value": getattr(outcome, "value", None),
            "waiting": sorted(each.suspension for each in getattr(outcome, "waiting", ())),
            "until": getattr(outcome, "until", None),
            "error": getattr(outcome, "traceback", None),
            "steps": sorted(f"{step['tool']} {step['status']}" for step in (await rt.show(run_id)).steps),
            "emitted": sorted(json.dumps(event.value) for event in events if event.kind == "emitted"),
        }))

anyio.run(live)
"""


class Runs:
    """One run, each of whose lives is a process with a folder and a hash seed of its own."""

    def __init__(self, folder: Path, how: str) -> None:
        self.folder = folder
        self.how = how
        self.lives = 0

    def live(self, *args: str, answers: dict[str, Any] | None = None) -> dict[str, Any]:
        self.lives += 1
        here = self.folder / f"life-{self.lives}"
        here.mkdir(parents=True)
        words = [str(self.folder / "store"), "r", str(EXAMPLE), self.how, json.dumps(answers or {}), *args]
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("SNAPRT_LLM")},
            "PYTHONPATH": str(ROOT),
            "PYTHONHASHSEED": str(self.lives),
        }
        done = subprocess.run(
            [sys.executable, "-c", LIFE, *words],
            cwd=here,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    def to_its_questions(self, out: Path) -> dict[str, Any]:
        said = self.live(QUESTION, str(ROOT / "docs"), str(out), "0.5")
        while said["kind"] == "Suspended" and len(said["waiting"]) < 2:
            said = self.live()
        return said

    def to_its_end(self) -> dict[str, Any]:
        while (said := self.live())["kind"] == "Suspended":
            assert not said["waiting"]
        return said


def test_research_that_moves_between_processes_comes_to_what_one_process_comes_to(tmp_path: Path) -> None:
    ends, reports = [], []
    for how in ("stay", "leave"):
        runs = Runs(tmp_path / how, how)
        out = tmp_path / "report.md"
        asked = runs.to_its_questions(out)
        assert asked["waiting"] == ["leave-out", "length"]
        if how == "stay":
            assert runs.lives == 1
            said = runs.live(answers={"length": "long", "leave-out": ["guide.md"]})
        else:
            assert runs.lives > 2
            said = runs.live(answers={"length": "long"})  # the other question stays open
            assert said["waiting"] == ["leave-out"]
            said = runs.live(answers={"leave-out": ["guide.md"]})
        assert said["until"] is not None  # it sleeps, in no process
        end = runs.to_its_end()
        assert end["kind"] == "Completed", end["error"]
        ends.append(end)
        reports.append(out.read_text())
        out.unlink()
    assert ends[0] == ends[1]
    assert reports[0] == reports[1]
    assert reports[0].startswith(f"# {QUESTION}\n\n## ")
    assert "## guide.md" not in reports[0]
    assert "signed" in reports[0]


@pytest.mark.parametrize("value", ["medium", None, ["short"]])
def test_an_answer_of_the_wrong_type_is_refused_and_uses_nothing_up(tmp_path: Path, value: Any) -> None:
    runs = Runs(tmp_path, "stay")
    runs.to_its_questions(tmp_path / "report.md")
    with pytest.raises(AssertionError, match="doesn't answer length of run r"):
        runs.live(answers={"length": value})
    assert runs.live(answers={"length": "short"})["waiting"] == ["leave-out"]
