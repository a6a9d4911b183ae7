"""Imports go down the floors of the house only, and only what is meant to be public is public."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import snaprt

PACKAGE = Path(snaprt.__file__).parent

# The floor of each part; `errors` is everybody's. Parts on one floor don't import each other.
FLOORS = {
    "frames": 0,
    "state": 1,
    "records": 1,
    "kernel": 2,
    "store": 2,
    "runtime": 3,
    "cli": 4,
    "demo": 4,
    "testing": 4,
    "__main__": 5,
    "__init__": 4,
}


def part_of(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0].removesuffix(".py")


def imported_parts(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level <= 1, (
                f"{path}: relative imports stay in their own part, so that floors can be seen"
            )
            if node.level == 1 and path.parent != PACKAGE:
                continue
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "snaprt" and len(parts) > 1:
                found.add(parts[1])
    return found


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_imports_go_down_only(path: Path) -> None:
    here = part_of(path)
    if here == "errors":
        assert imported_parts(path) == set()
        return
    for part in imported_parts(path) - {"errors", here, "__version__"}:
        if part not in FLOORS:  # a public name of the package itself, used by floor 4 only
            assert FLOORS[here] >= 4, f"{path} takes {part} from the top of the house"
            continue
        assert FLOORS[part] < FLOORS[here], f"{path} ({here}, floor {FLOORS[here]}) imports {part}"


def test_every_part_has_a_floor() -> None:
    assert {part_of(path) for path in PACKAGE.rglob("*.py")} - {"errors"} <= set(FLOORS)


def test_the_kernel_and_frames_do_no_io() -> None:
    modules = ("socket", "subprocess", "fsspec", "anyio.to_thread", "ssl", "tempfile", "urllib")
    forbidden = tuple(f"{module}." for module in modules)
    for part in ("frames", "kernel"):
        for path in (PACKAGE / part).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    start = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
                    for name in (start + alias.name + "." for alias in node.names):
                        assert not name.startswith(forbidden), f"{path} imports {name}"
