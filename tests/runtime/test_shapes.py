"""A JSON Schema in short: what people are shown of the type of an answer."""

from __future__ import annotations

import enum
import json
from datetime import date
from typing import Annotated, Any, Literal

import pydantic
import pytest

from snaprt.kernel.questions import schema
from snaprt.runtime.posting import unfit
from snaprt.runtime.shapes import samples, short


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Line(pydantic.BaseModel):
    order: str
    colour: Colour = Colour.RED


class Cart(pydantic.BaseModel):
    lines: list[Line]
    paid: bool


class Tree(pydantic.BaseModel):
    """Holds itself."""

    children: list[Tree] = []
    name: str


@pytest.mark.parametrize(
    ("expected", "text", "first"),
    [
        (bool, "boolean", ["true", "false"]),
        (Literal["left", "right"], '"left" or "right"', ['"left"', '"right"']),
        (Literal[1], "1", ["1"]),
        (Literal["a", "b", "c", "d", "e"], '"a" or "b" or "c" or "d" or "e"', ['"a"']),
        (int | None, "integer or null", ["0"]),
        (str, "string", ['"…"']),
        (Annotated[str, pydantic.Field(min_length=1)], "string of 1 or more characters", ['"…"']),
        (Annotated[str, pydantic.Field(max_length=9)], "string of up to 9 characters", ['"…"']),
        (Annotated[str, pydantic.Field(pattern="a+")], "string like /a+/", ['"…"']),
        (Annotated[int, pydantic.Field(gt=3)], "integer more than 3", ["4"]),
        (Annotated[int, pydantic.Field(le=-3)], "integer up to -3", ["-3"]),
        (Annotated[float, pydantic.Field(ge=0, le=1)], "number 0 to 1", ["0"]),
        (date, "string (date)", ['"…"']),
        (list[int], "[integer, …]", ["[0]"]),
        (dict[str, int], "object", ["{}"]),
        (Any, "anything", ["null"]),
        (
            Cart,
            '{"lines": [{"order": string, "colour"?: "red" or "blue"}, …], "paid": boolean}',
            ['{"lines": [{"order": "…"}], "paid": true}'],
        ),
    ],
    ids=str,
)  # fmt: skip
def test_a_type_is_said_as_its_answer_would_be_written(expected: Any, text: str, first: list[str]) -> None:
    found = schema(expected)
    assert found is not None
    assert short(found) == text
    assert samples(found) == first
    for sample in first:
        if "…" not in sample or "order" in sample:  # else a placeholder that a person replaces
            assert unfit(found, json.loads(sample)) is None


def test_a_type_that_holds_itself_is_told_as_deep_as_anybody_reads() -> None:
    found = schema(Tree)
    assert found is not None
    assert len(short(found)) <= 300
    assert '"name": string' in short(found)
    assert samples(found) == ['{"name": "…"}']


@pytest.mark.parametrize(
    "strange",
    [
        {}, {"$ref": "#/$defs/gone"}, {"$ref": "#"}, {"$ref": "elsewhere.json"}, {"type": 7}, {"anyOf": []},
        {"type": "object", "properties": 3}, {"type": ["string", "null"]}, {"enum": []},
        {"type": "array", "items": True}, {"type": "object", "required": ["a"]},
    ],
    ids=str,
)  # fmt: skip
def test_a_schema_of_another_make_is_never_an_error(strange: dict[str, Any]) -> None:
    assert isinstance(short(strange), str)
    assert all(isinstance(json.loads(each), object) for each in samples(strange))
