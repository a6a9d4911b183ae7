"""The pydantic-ai example as a module to be imported by name, with answers for its questions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

from pydantic_ai_approval import buy  # the folder of the examples is no package

__all__ = ["answer_of", "buy"]


def answer_of(payload: Any) -> dict[str, bool]:
    return {"approved": payload["item"] == "monitor"}
