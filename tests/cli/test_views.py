"""What a person reads: sizes, ages, questions, tables; and what a program gets of the same."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from rich.console import Console, RenderableType
from rich.text import Text

from snaprt.cli import page, views
from snaprt.cli.changes import as_json, changes
from snaprt.cli.output import put
from snaprt.runtime import RunInfo, Waiting

UNICODE = views.Marks("utf-8")


def shown(*parts: RenderableType, width: int = 100) -> str:
    out = Console(width=width, markup=False, highlight=False, color_system=None)
    with out.capture() as text:
        put(out, *parts)
    return text.get()


def info(**facts: Any) -> RunInfo:
    base: dict[str, Any] = {
        "run": "r-1",
        "status": "suspended",
        "agent": "support",
        "started": 1000.0,
        "updated": 1090.0,
    }
    return RunInfo(**(base | facts))


STEPS = [
    {
        "id": 1,
        "tool": "fetch",
        "effect": "read",
        "status": "done",
        "output": {"a": 1},
        "started": 1.0,
        "ended": 1.25,
    },
    {
        "id": 2,
        "tool": "pay",
        "effect": "write",
        "status": "failed",
        "error": "ValueError: no",
        "output": None,
    },
    {"id": 3, "tool": "mail", "effect": "idempotent", "status": "pending", "output": None, "error": None},
]
PLAN = [
    {"name": "look", "status": "done", "note": None},
    {"name": "ask", "status": "active", "note": None},
    {"name": "pay", "status": "skipped", "note": "too late"},
    {"name": "tell", "status": "pending", "note": None},
]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 KB"),
        (99_940, "99.9 KB"),
        (99_960, "100 KB"),
        (999_400, "999 KB"),
        (999_600, "1.0 MB"),
        (1_500_000_000, "1.5 GB"),
        (5 * 10**15, "5000 TB"),
    ],
)
def test_sizes_have_three_digits_at_most_up_to_terabytes(count: int, text: str) -> None:
    assert views.size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (3599, "59 min"),
        (86_399, "23 h"),
        (200_000, "2 d"),
        (1e300, "more than 1000 years"),
    ],
)
def test_ages_have_one_unit(seconds: float, text: str) -> None:
    assert views.age(seconds) == text


@pytest.mark.parametrize("seconds", [9e11, 1e18, 1e300, float("inf")])
def test_a_question_may_wait_for_longer_than_there_is_a_calendar(seconds: float) -> None:
    waiting = Waiting("ask-1", "Go on?", until=seconds)
    text = shown(*page.question("r-1", waiting, None, (waiting,), 1000.0))
    assert "more than 1000 years from now" in text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (7.9, "0:07"), (761, "12:41"), (11_109, "3:05:09")]
)
def test_elapsed_time_is_a_clock(seconds: float, text: str) -> None:
    assert views.elapsed(seconds) == text


def test_a_plan_is_one_line_of_marks_and_names() -> None:
    assert shown(views.plan_line(PLAN, UNICODE)).rstrip() == "✓ look   ● ask   - pay (too late)   ○ tell"


def test_marks_are_plain_where_the_output_has_no_unicode() -> None:
    line = shown(views.plan_line(PLAN, views.Marks("ascii")))
    assert line.isascii()
    assert line.rstrip() == "+ look   * ask   - pay (too late)   . tell"


def test_the_command_that_answers_can_be_typed_as_it_stands() -> None:
    yes = '{"approved": true}'
    assert page.answer_command("r-1", None, None, yes) == "snaprt resume r-1 --answer '{\"approved\": true}'"
    assert page.answer_command("r 1", "s3://a b", "ask-2", yes) == (
        "snaprt resume 'r 1' --answer '{\"approved\": true}' --suspension ask-2 --store 's3://a b'"
    )
    assert views.resume_command("r-1", None) == "snaprt resume r-1"


def test_answers_that_a_payload_names_are_each_shown_as_a_command() -> None:
    waiting = Waiting("d-1", {"question": "Paid?", "answers": ['{"done": VALUE}', '{"retry": true}']})
    lines = shown(*page.question("r-1", waiting, None, (waiting,))).splitlines()
    assert [line.strip() for line in lines] == [
        "question: Paid?",
        "answer with one of",
        "snaprt resume r-1 --answer '{\"done\": VALUE}'",
        "snaprt resume r-1 --answer '{\"retry\": true}'",
    ]


def test_a_payload_shows_its_keys_and_its_long_texts_as_they_are() -> None:
    text = shown(
        views.payload_text({"question": "Write?", "notes": "# A\n\n- b [x]\n", "count": 3, "tags": ["a"]})
    )
    assert [line.rstrip() for line in text.splitlines()] == [
        "question: Write?",
        "notes:",
        "  # A",
        "",
        "  - b [x]",
        "count: 3",
        'tags: ["a"]',
    ]


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ("Really?", "Really?"),
        (None, "null"),
        ({}, "{}"),
        ([1, 2], "[1, 2]"),
        ({"preview": "Long ago…", "size": "9000 characters"}, "Long ago… (9000 characters)"),
        (1j, "1j"),
    ],
)
def test_any_payload_can_be_shown(payload: Any, text: str) -> None:
    assert shown(views.payload_text(payload)).rstrip() == text


def test_text_of_an_agent_is_never_read_as_markup() -> None:
    whole = shown(
        *page.run_page(
            info(
                current_step="[red]x[/red]",
                rules={"prompt": "[bold]y"},
                steps=[{**STEPS[0], "output": "[z]", "tool": "[t]"}],
                waiting=(Waiting("ask-1", {"[k]": "[v]"}),),
                error="[/oops]",
            ),
            UNICODE,
            None,
            2000.0,
        )
    )
    for text in ("[red]x[/red]", "[bold]y", "[z]", "[t]", "[k]: [v]", "[/oops]"):
        assert text in whole


def test_the_page_of_a_run_has_all_that_can_be_known() -> None:
    whole = shown(
        *page.run_page(
            info(
                current_step="ask",
                plan=PLAN,
                steps=STEPS,
                waiting=(Waiting("ask-1", "Left?"), Waiting("ask-2", "Right?")),
                rules={"model": "small-1"},
                records=7,
                bytes=1234,
                where="file:///s/runs/r-1",
                objects=[("file:///s/runs/r-1/log/000000000001", 1234)],
            ),
            UNICODE,
            "s3://b",
            1100.0,
        )
    )
    for text in (
        "suspended, waits for an answer, at 'ask'",
        "1 min ago",
        "✓ look",
        "model: small-1",
        "0.25 s",
        '{"a": 1}',
        "ValueError: no",
        "ask-1:",
        "Left?",
        "--suspension ask-2 --store s3://b",
        "7 records, 1.2 KB at file:///s/runs/r-1",
        "file:///s/runs/r-1/log/000000000001",
    ):
        assert text in whole


def test_the_list_of_runs_has_the_newest_first_and_says_what_each_waits_for() -> None:
    runs = [
        info(run="old", status="completed", bytes=2_000_000),
        info(
            run="new",
            updated=1099.0,
            waiting=(Waiting("ask-1", None), Waiting("ask-2", None)),
            current_step="ask",
        ),
        info(run="slept", updated=1010.0, until=5000.0),
        info(run="died", updated=1000.0, status="running"),
    ]
    lines = shown(views.runs_table(runs, UNICODE, 1100.0), width=140).splitlines()
    assert [line.split()[0] for line in lines] == ["run", "new", "old", "slept", "died"]
    assert "ask-1, ask-2" in lines[1]
    assert "1 s" in lines[1]
    assert "2.0 MB" in lines[2]
    assert views.moment(5000.0) in lines[3]


def test_children_stand_below_their_parent_as_they_were_started_and_families_by_their_newest() -> None:
    runs = [
        info(run="p.2", parent="p", started=3.0, updated=9.0),
        info(run="alone", updated=8.0),
        info(run="p.10", parent="p", started=4.0, updated=5.0),
        info(run="p.2.1", parent="p.2", started=5.0, updated=5.0),
        info(run="orphan", parent="removed", updated=7.0),
        info(run="p", updated=1.0),
    ]
    assert [(depth, each.run) for depth, each in views.families(runs)] == [
        (0, "p"), (1, "p.2"), (2, "p.2.1"), (1, "p.10"), (0, "alone"), (0, "orphan"),
    ]  # fmt: skip
    assert views.as_started(["p.10", "p.2", "p.1"]) == ["p.1", "p.2", "p.10"]


def test_a_question_whose_time_is_over_says_so() -> None:
    waiting = Waiting("ask-1", "Anybody?", until=1000.0)
    text = shown(*page.question("r-1", waiting, None, (waiting,), 1001.0))
    assert re.search(r"which is over; it goes on without an answer with *\n    snaprt resume r-1\n", text)
    assert "--answer" not in text
    assert "in 59 s; then it goes on" in shown(*page.question("r-1", waiting, None, (waiting,), 941.0))


@pytest.mark.parametrize(
    ("facts", "command"),
    [
        ({"status": "running"}, "snaprt watch r-1 --store s"),
        ({"status": "failed", "error": "ValueError"}, "snaprt resume r-1 --retry --store s"),
        ({"status": "suspended"}, "snaprt resume r-1 --store s"),
        ({"status": "suspended", "until": 5000.0}, "snaprt resume r-1 --store s"),
        ({"status": "suspended", "listening": ("chat",)}, "snaprt send r-1 '\"…\"' --inbox chat --store s"),
        ({"status": "suspended", "open_children": ("r-1.4",)}, "snaprt show r-1.4 --store s"),
    ],
)
def test_the_page_says_what_to_type_next(facts: dict[str, Any], command: str) -> None:
    assert command in shown(*page.run_page(info(**facts), UNICODE, "s", 1100.0))


@pytest.mark.parametrize("status", ["completed", "cancelled"])
def test_of_a_run_that_has_ended_there_is_nothing_next(status: str) -> None:
    assert "snaprt" not in shown(*page.run_page(info(status=status), UNICODE, "s", 1100.0))


@pytest.mark.parametrize("width", [20, 40, 80, 300])
def test_pages_fit_any_width(width: int) -> None:
    run = info(plan=PLAN, steps=STEPS, rules={"prompt": "word " * 60}, objects=[("file:///" + "x" * 200, 1)])
    parts = [*page.run_page(run, UNICODE, None, 1100.0), views.runs_table([run], UNICODE, 1100.0)]
    for what in parts:
        if not isinstance(what, Text):  # a text is wrapped by the terminal itself
            assert max(len(line) for line in shown(what, width=width).splitlines()) <= width


@pytest.mark.parametrize("width", [12, 30, 300])
def test_no_word_of_a_question_is_lost_and_its_command_is_one_line(width: int) -> None:
    words = [f"word{number}" for number in range(200)]
    waiting = Waiting("ask-1", {"question": " ".join(words), "notes": "\n".join(words)})
    lines = shown(*page.question("r-1", waiting, None, (waiting,)), width=width).splitlines()
    assert [word for line in lines for word in line.split() if word in words] == [*words, *words]
    assert lines[-1].strip() == "snaprt resume r-1 --answer '{\"approved\": true}'"


@pytest.mark.parametrize("value", [{1, 2}, float("nan"), b"x", object, {"a": {1}}, {(1, 2): 3}])
def test_what_json_cannot_say_is_said_by_its_repr(value: Any) -> None:
    assert as_json(value) == {"repr": repr(value)}


@pytest.mark.parametrize("value", [None, True, 1, 1.5, "é", [1, [2]], {"a": None}])
def test_what_json_can_say_stays_as_it_is(value: Any) -> None:
    assert as_json(value) is value


def test_a_run_for_a_program_is_json_throughout() -> None:
    run = info(steps=STEPS, waiting=(Waiting("ask-1", {1, 2}),), status="completed", result={3})
    text = json.dumps(page.info_object(run), allow_nan=False)
    assert json.loads(text)["waiting"] == [{"suspension": "ask-1", "payload": {"repr": "{1, 2}"}}]
    assert json.loads(text)["result"] == {"repr": "{3}"}


def test_only_what_changed_between_two_looks_is_told() -> None:
    nothing: dict[str, Any] = {}
    first = {"steps": STEPS[:1], "plan": PLAN[:1]}
    second = {"steps": [*STEPS[:1], STEPS[2]], "plan": PLAN[:1]}
    third = {"steps": [*STEPS[:1], {**STEPS[2], "status": "done", "output": 5}], "plan": PLAN}
    assert list(changes("r", nothing, nothing)) == []
    assert [event["event"] for event in changes("r", nothing, first)] == ["step", "plan"]
    assert list(changes("r", first, first)) == []
    (event,) = changes("r", first, second)
    assert event == {
        "event": "step",
        "run": "r",
        "step": 3,
        "tool": "mail",
        "effect": "idempotent",
        "status": "pending",
    }
    step, plan = changes("r", second, third)
    assert (step["step"], step["status"], step["output"]) == (3, "done", 5)
    assert plan["plan"] == PLAN
