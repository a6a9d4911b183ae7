"""Words of a command line become the values that a person meant, or are refused with the place."""

from __future__ import annotations

import io
from typing import Any

import pytest

from snaprt.cli import values
from snaprt.errors import UsageError


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("order=A-17", {"order": "A-17"}),
        ("cents=4200", {"cents": 4200}),
        ("cents=4_200", {"cents": "4_200"}),
        ("dry=true", {"dry": True}),
        ("dry=True", {"dry": "True"}),
        ("note=", {"note": ""}),
        ("nothing=null", {"nothing": None}),
        ('text="4200"', {"text": "4200"}),
        ("query=a=b", {"query": "a=b"}),
        ('tags=["a", "b"]', {"tags": ["a", "b"]}),
        ("half={", {"half": "{"}),
        ("much=NaN", {"much": "NaN"}),
        ("huge=1e999", {"huge": "1e999"}),
        ("since=1.10", {"since": 1.1}),
        ("größe=1", {"größe": 1}),
    ],
)
def test_a_value_is_json_where_it_parses_and_text_where_it_does_not(
    word: str, expected: dict[str, Any]
) -> None:
    assert values.parse_pairs([word]) == expected


@pytest.mark.parametrize("word", ["order", "=4", "two words=1", "1st=x", "-x=1", "a.b=1"])
def test_a_word_that_names_no_argument_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="key=value"):
        values.parse_pairs([word])


def test_an_argument_given_twice_is_refused_rather_than_guessed() -> None:
    with pytest.raises(UsageError, match="'a' is given twice"):
        values.parse_pairs(["a=1", "a=2"])
    with pytest.raises(UsageError, match="a: given both"):
        values.agent_arguments(["a=1"], '{"a": 2, "b": 3}')


def test_input_gives_keyword_arguments_from_an_object_and_positional_ones_from_an_array() -> None:
    assert values.agent_arguments(["c=3"], '{"a": 1}') == ([], {"a": 1, "c": 3})
    assert values.agent_arguments(["c=3"], "[1, 2]") == ([1, 2], {"c": 3})
    assert values.agent_arguments([], None) == ([], {})


@pytest.mark.parametrize(
    ("document", "kind"), [("3", "a number"), ('"x"', "a string"), ("null", "null"), ("true", "a bool")]
)
def test_input_of_another_kind_is_refused_by_its_kind(document: str, kind: str) -> None:
    with pytest.raises(UsageError, match=kind):
        values.agent_arguments([], document)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("{'approved': true}", "column 2 of .*double quotes"),
        ('{"approved": tru}', "column 14"),
        ('{"a": 1,\n "b": }', "line 2, column 7"),
        ("yes", "column 1 of 'yes'.*'\"yes\"'"),
        ("", "column 1"),
        ('{"a": 1} x', "Extra data at column 10"),
        ("[NaN]", "NaN has no place"),
        ("[-1e999]", "-1e999 is larger than any number"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_bad_json_is_refused_with_its_position(text: str, place: str) -> None:
    with pytest.raises(UsageError, match=f"The answer isn't JSON.*{place}|The answer is {place}"):
        values.parse_json(text, "The answer")


def test_a_dash_reads_the_value_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"notes": "a\\nb"}\n'))
    assert values.parse_json("-", "--answer") == {"notes": "a\nb"}


async def agent(order: str, cents: int = 0, *, dry: bool = False, **more: Any) -> None: ...


async def none_at_all() -> None: ...


def test_standard_input_that_is_no_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff"), encoding="utf-8"))
    with pytest.raises(UsageError, match=r"standard input.* isn't JSON"):
        values.parse_json("-", "The answer")


def test_arguments_are_given_by_position_where_that_can_be() -> None:
    assert values.fit_arguments(agent, "m:agent", [], {"order": "A", "dry": True}) == (
        ("A", 0)[:1],
        {"dry": True},
    )
    assert values.fit_arguments(agent, "m:agent", ["A"], {"cents": 3}) == (("A", 3), {})


@pytest.mark.parametrize(
    ("fn", "args", "kwargs", "said"),
    [
        (agent, [], {}, "missing a required argument: 'order'. It takes: order"),
        (agent, [1, 2, 3], {}, "too many positional"),
        (none_at_all, [], {"a": 1}, "unexpected keyword argument 'a'. It takes: no arguments"),
    ],
)
def test_arguments_that_the_agent_does_not_take_are_refused_with_its_signature(
    fn: Any, args: list[Any], kwargs: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        values.fit_arguments(fn, "m:agent", args, kwargs)


def test_a_keyword_that_is_taken_is_refused_unless_it_goes_by_position() -> None:
    with pytest.raises(UsageError, match="m:agent takes 'run_id' by keyword"):
        values.fit_arguments(agent, "m:agent", ["A"], {"run_id": 1}, {"run_id", "order"})
    assert values.fit_arguments(agent, "m:agent", [], {"order": "A"}, {"run_id", "order"}) == (("A",), {})


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("retry", {"retry": True}),
        ("done", {"done": None}),
        ('done {"id": 7}', {"done": {"id": 7}}),
        ("fail it was refused", {"fail": "it was refused"}),
    ],
)
def test_a_verdict_on_a_call_in_doubt_is_one_of_three(text: str, verdict: dict[str, Any]) -> None:
    assert values.parse_verdict(text) == verdict


@pytest.mark.parametrize("text", ["", "maybe", "retry twice", "fail", "done {", "again"])
def test_any_other_verdict_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--in-doubt"):
        values.parse_verdict(text)
