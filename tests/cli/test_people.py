"""`answer`, `send` and `cancel` from outside, and how `show` and the end of a run say what it waits for."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.processes import COMMAND, environment, lines, snaprt
from tests.cli.test_command_line import assert_refused

PEOPLE = "tests.cli.people"


def start(folder: Path, agent: str, *arguments: str, run: str = "r") -> str:
    """A run that has left; what was shown of that."""
    done = snaprt("run", f"{PEOPLE}:{agent}", *arguments, "--run-id", run, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- questions ----------------------------------------------------------------------------------------


def test_a_question_says_what_its_answer_has_to_be_and_how_to_give_it(tmp_path: Path) -> None:
    needs = 'the answer is {"approved": boolean, "cents"?: integer 0 to 10000, "note"?: string}'
    out = start(tmp_path, "reviewed")
    for text in (out, snaprt("show", "r", cwd=tmp_path).stdout):
        assert needs in text
        assert "snaprt resume r --answer '{\"approved\": true}'" in text
    done = snaprt("resume", "r", "--answer", '{"approved": true}', cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "0"


def test_a_question_says_its_choices_and_until_when_it_waits(tmp_path: Path) -> None:
    out = start(tmp_path, "which_way")
    assert 'the answer is "left" or "right"' in out
    assert re.search(r"until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d, in 1 d; then it goes on without", out)
    assert "snaprt resume r --answer '\"right\"'" in out
    assert "goes on then" not in out  # its time isn't told twice
    (shown,) = lines(snaprt("show", "r", "--json", cwd=tmp_path))
    (waiting,) = shown["waiting"]
    assert waiting["answer"] == {"enum": ["left", "right"], "type": "string"}
    assert waiting["until"] == shown["until"] > shown["started"] + 86_400


@pytest.mark.parametrize("command", ["answer", "resume"])
def test_a_wrong_type_of_answer_is_refused_with_what_would_fit(tmp_path: Path, command: str) -> None:
    start(tmp_path, "reviewed")
    wrong = '{"approved": true, "cents": 20000}'
    words = ["answer", "r", wrong] if command == "answer" else ["resume", "r", "--answer", wrong]
    done = snaprt(*words, cwd=tmp_path)
    assert_refused(
        done, 2, "cents: 20000 is greater than the maximum of 10000", 'Answer what fits {"approved": boolean'
    )
    assert snaprt("answer", "r", '{"approved": true, "cents": 2}', cwd=tmp_path).returncode == 0


def test_an_answer_that_only_the_agent_can_refuse_is_told_with_the_question(tmp_path: Path) -> None:
    start(tmp_path, "reviewed")
    done = snaprt("resume", "r", "--answer", '{"approved": false}', cwd=tmp_path)
    refused = "the last answer was refused: Value error, a refusal says why"
    assert refused in done.stdout
    assert refused in snaprt("show", "r", cwd=tmp_path).stdout
    (shown,) = lines(snaprt("show", "r", "--json", cwd=tmp_path))
    assert "a refusal says why" in shown["waiting"][0]["refused"]


def test_an_answer_that_lies_there_is_not_asked_for_again(tmp_path: Path) -> None:
    start(tmp_path, "reviewed")
    snaprt("answer", "r", '{"approved": true}', cwd=tmp_path)
    page = snaprt("show", "r", cwd=tmp_path).stdout
    assert "ask-1: its answer lies there and is taken in with\n    snaprt resume r\n" in page
    assert "--answer" not in page


def test_who_answered_earlier_questions_is_shown(tmp_path: Path) -> None:
    start(tmp_path, "asked_in_turn")
    done = snaprt("resume", "r", "--answer", "1", cwd=tmp_path, LOGNAME="ana", USER="ana")
    assert "Second?" in done.stdout
    page = snaprt("show", "r", cwd=tmp_path).stdout
    assert re.search(r"asked before\n  first +answered +by ana +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", page)
    (shown,) = lines(snaprt("show", "r", "--json", cwd=tmp_path))
    assert [(each["suspension"], each["by"]) for each in shown["answered"]] == [("first", "ana")]


def test_a_second_answer_is_told_who_was_first(tmp_path: Path) -> None:
    start(tmp_path, "asked_in_turn")
    snaprt("answer", "r", "1", cwd=tmp_path)
    assert_refused(snaprt("answer", "r", "2", cwd=tmp_path), 3, "first one counts.*taken in when .* resumed")
    snaprt("resume", "r", cwd=tmp_path, LOGNAME="ana")
    again = snaprt("answer", "r", "2", "--suspension", "first", cwd=tmp_path)
    assert_refused(again, 3, r"first of run r was answered by \w+ at 20")


def test_a_question_can_be_answered_before_it_is_asked_if_that_is_said(tmp_path: Path) -> None:
    start(tmp_path, "asked_in_turn")
    done = snaprt("answer", "r", '"two"', "--suspension", "second", cwd=tmp_path)
    assert_refused(done, 2, "no open question 'second'. Open: first. .*--early")
    done = snaprt("answer", "r", '"two"', "--suspension", "second", "--early", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "second of r has its answer, for when it is asked" in done.stdout
    done = snaprt("resume", "r", "--answer", '"one"', "--suspension", "first", "--json", cwd=tmp_path)
    assert lines(done)[-1]["result"] == ["one", "two"]


def test_resume_takes_an_early_answer_too(tmp_path: Path) -> None:
    start(tmp_path, "asked_in_turn")
    snaprt("answer", "r", "1", cwd=tmp_path)
    words = ["--answer", "2", "--suspension", "second", "--early", "--json"]
    assert lines(snaprt("resume", "r", *words, cwd=tmp_path))[-1]["result"] == [1, 2]


# --- inboxes ------------------------------------------------------------------------------------------


def test_messages_are_put_in_and_read_in_order(tmp_path: Path) -> None:
    out = start(tmp_path, "chat")
    assert "it waits for:\n  a message in its inbox 'chat'" in out
    assert "snaprt send r '\"…\"' --inbox chat" in out
    assert "suspended, waits for a message" in snaprt("show", "r", cwd=tmp_path).stdout
    assert "inbox chat" in snaprt("ls", cwd=tmp_path).stdout
    done = snaprt("send", "r", '{"n": 1}', "--inbox", "chat", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (
        done.stdout
        == "Message 1 lies in inbox 'chat' of r. The run waits for it. Go on with\n  snaprt resume r\n"
    )
    sent = subprocess.run(
        [*COMMAND, "send", "r", "-", "--inbox", "chat", "--json"],
        cwd=tmp_path,
        env=environment(),
        input='"two"',
        capture_output=True,
        text=True,
    )
    assert json.loads(sent.stdout) == {"event": "sent", "run": "r", "inbox": "chat", "number": 2}
    snaprt("send", "r", '"bye"', "--inbox", "chat", cwd=tmp_path)
    assert lines(snaprt("resume", "r", "--json", cwd=tmp_path))[-1]["result"] == [{"n": 1}, "two"]


def test_a_message_in_an_inbox_that_nobody_reads_is_said_to_be_so(tmp_path: Path) -> None:
    start(tmp_path, "chat")
    done = snaprt("send", "r", "1", "--inbox", "chta", cwd=tmp_path)
    assert done.returncode == 0
    assert "kept until the run reads that inbox; now it listens to chat. Did you mean chat?" in done.stdout
    start(tmp_path, "asked_in_turn", run="q")
    done = snaprt("send", "q", "1", "--inbox", "chat", cwd=tmp_path)
    assert "now it listens to no inbox." in done.stdout


@pytest.mark.parametrize("inbox", ["", "two words", "a.b", "_cancel", "ask-1"])
def test_an_inbox_name_that_can_be_none_is_refused(tmp_path: Path, inbox: str) -> None:
    start(tmp_path, "chat")
    done = snaprt("send", "r", "1", f"--inbox={inbox}", cwd=tmp_path)
    assert_refused(done, 2, "can't be the name of an inbox: use up to 100 letters")


# --- cancelling ---------------------------------------------------------------------------------------


def test_a_sleeping_run_is_cancelled_here_and_cleans_up(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    start(tmp_path, "cleans_up", f"ledger={ledger}")
    done = snaprt("cancel", "r", "--reason", "called off", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "resumed r at" in done.stdout
    assert "step 1  look  done" in done.stdout
    assert "r cancelled after 0:0" in done.stdout
    assert ledger.read_text().splitlines() == ["cancelled called off", "look cleanup"]


def test_a_request_to_cancel_is_left_to_a_later_resume(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    start(tmp_path, "cleans_up", f"ledger={ledger}")
    done = snaprt("cancel", "r", "--request", cwd=tmp_path)
    assert done.returncode == 0
    assert "Nobody has it in hand: a worker carries that out, or\n  snaprt resume r" in done.stdout
    assert not ledger.exists()
    done = snaprt("resume", "r", "--json", cwd=tmp_path)
    assert lines(done)[-1]["status"] == "cancelled"
    assert "look cleanup" in ledger.read_text()


def test_a_run_that_swallows_the_cancellation_is_shown_as_it_ended(tmp_path: Path) -> None:
    start(tmp_path, "goes_on", "ledger=x")
    done = snaprt("cancel", "r", "--json", cwd=tmp_path)
    assert (done.returncode, lines(done)[-1]["result"]) == (0, "still here")


def test_where_the_agents_code_is_missing_the_request_lies_there(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    (here / "gone_agents.py").write_text("import snaprt\nasync def ask():\n    await snaprt.suspend('?')\n")
    store = ["--store", str(tmp_path / "store")]
    assert snaprt("run", "gone_agents:ask", "--run-id", "g", *store, cwd=here).returncode == 0
    done = snaprt("cancel", "g", *store, cwd=there)
    assert_refused(
        done,
        3,
        "The request to cancel lies in g's inbox",
        "gone_agents",
        "no need to ask again: a worker or `snaprt resume g`",
    )
    done = snaprt("resume", "g", *store, "--json", cwd=here)
    assert lines(done)[-1]["status"] == "cancelled"


@pytest.mark.parametrize("words", [["cancel", "r"], ["send", "r", "1", "--inbox", "chat"]])
def test_a_run_that_has_ended_takes_nothing_in(tmp_path: Path, words: list[str]) -> None:
    start(tmp_path, "chat")
    snaprt("send", "r", '"bye"', "--inbox", "chat", cwd=tmp_path)
    snaprt("resume", "r", cwd=tmp_path)
    done = snaprt(*words, cwd=tmp_path)
    assert_refused(done, 2, r"Run r has ended \(completed\).*`snaprt show r`")


class Working:
    """A run in a process of its own, held by a tool until the test ends."""

    def __init__(self, folder: Path) -> None:
        words = [f"ledger={folder / 'ledger'}", f"path={folder / 'gate'}", "--run-id", "w"]
        self.process = subprocess.Popen(
            [*COMMAND, "run", f"{PEOPLE}:shows_then_waits", *words],
            cwd=folder,
            env=environment(),
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )
        assert self.process.stdout is not None
        assert any("wait_for_file" in line for line in self.process.stdout)


@pytest.fixture
def working(tmp_path: Path) -> Iterator[Callable[[], Working]]:
    made: list[Working] = []

    def start() -> Working:
        made.append(Working(tmp_path))
        return made[-1]

    yield start
    for each in made:
        if each.process.poll() is None:
            each.process.kill()
        each.process.communicate()


def test_a_run_in_another_process_is_told_to_end_and_does(
    tmp_path: Path, working: Callable[[], Working]
) -> None:
    run = working()
    done = snaprt("cancel", "w", "--reason", "enough", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (
        "Whoever has it in hand is told within seconds; see it happen with\n  snaprt watch w" in done.stdout
    )
    out, _ = run.process.communicate(timeout=60)
    assert run.process.returncode == 1
    assert "w cancelled" in out
    assert "enough" in out


# --- families -----------------------------------------------------------------------------------------


def test_parent_and_children_show_each_other_and_where_they_stand(tmp_path: Path) -> None:
    out = start(tmp_path, "family", run="p")
    assert "its child p.1, which hasn't ended; see what that waits for with\n    snaprt show p.1\n" in out
    assert re.search(r"parent +p  ‖ suspended\n", snaprt("show", "p.2", cwd=tmp_path).stdout)
    rows = snaprt("ls", cwd=tmp_path).stdout.splitlines()
    assert [row[:6].rstrip() for row in rows] == ["run", "p", "  p.1", "  p.2"]
    assert "p.1, p.2" in rows[1]
    snaprt("resume", "p.1", "--answer", '{"approved": true}', cwd=tmp_path)
    page = snaprt("show", "p", cwd=tmp_path).stdout
    assert re.search(r"children +p\.1  ✓ completed\n +p\.2  ‖ suspended\n", page)
    assert "its child p.1, which is completed; that is taken in with\n    snaprt resume p\n" in page
    snaprt("answer", "p.2", '"left"', cwd=tmp_path)
    done = snaprt("resume", "p", "--json", cwd=tmp_path)
    assert lines(done)[-1]["result"] == [0, "left"]
    rows = [(row["run"], row["parent"]) for row in lines(snaprt("ls", "--json", cwd=tmp_path))]
    assert sorted(rows) == [("p", None), ("p.1", "p"), ("p.2", "p")]
