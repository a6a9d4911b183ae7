"""Frames are replaced unnoticed under whatever the process runs with: optimisation, tracers, hash seeds,
an eager garbage collector. Each condition is a process of its own that fuzzes a small sample.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def fuzz(*options: str, python: tuple[str, ...] = (), **environment: str) -> str:
    """What the fuzzer says in a new process, which must have found suspensions and no difference."""
    given = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COVERAGE"))}
    done = subprocess.run(
        [sys.executable, *python, "-m", "tests.frames.fuzz", *options],
        cwd=ROOT,
        env={**given, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r" [1-9]\d\d+ suspensions, [1-9]\d* frames replaced, 0 different", done.stdout), (
        done.stdout
    )
    return done.stdout


def test_optimised_code_is_replaced_unnoticed() -> None:
    fuzz("--programs", "25", "--seed", "2000", python=("-OO",))


@pytest.mark.parametrize("seed", ["0", "1", "4242"])
def test_no_hash_seed_makes_a_difference(seed: str) -> None:
    fuzz("--programs", "25", "--seed", "3000", PYTHONHASHSEED=seed)


def test_a_collector_that_runs_all_the_time_sees_no_half_made_frame() -> None:
    fuzz("--programs", "12", "--seed", "4000", "--gc", "1")


@pytest.mark.parametrize(
    "how",
    [
        *("settrace", "profile"),
        pytest.param(
            "monitoring",
            marks=pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring came with 3.12"),
        ),
    ],
)
def test_observed_programs_are_replaced_unnoticed(how: str) -> None:
    fuzz("--programs", "12", "--seed", "5000", "--observe", how)


@pytest.mark.parametrize(
    "core",
    [
        *("ctrace", "pytrace"),
        pytest.param(
            "sysmon",
            marks=pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring came with 3.12"),
        ),
    ],
)
def test_coverage_measures_programs_whose_frames_are_replaced(core: str, tmp_path: Path) -> None:
    coverage = pytest.importorskip("coverage", reason="coverage isn't installed (pip install 'snaprt[dev]')")
    programs = tmp_path / "programs"
    programs.mkdir()
    data = tmp_path / "coverage"
    fuzz(
        *("--programs", "12", "--seed", "6000", "--folder", str(programs)),
        python=("-m", "coverage", "run", f"--data-file={data}", f"--include={programs}/*"),
        COVERAGE_CORE=core,
    )
    seen = coverage.CoverageData(str(data))
    seen.read()
    assert seen.measured_files() == {str(file) for file in programs.iterdir()}
    assert all(len(seen.lines(file) or ()) > 3 for file in seen.measured_files())
