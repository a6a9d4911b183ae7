"""Every way to use the command line wrongly gets one paragraph and its exit code, and leaves nothing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from snaprt.cli.app import run_command_line
from tests.cli.processes import environment, snaprt

AGENTS = "tests.cli.agents"
ECHO = f"{AGENTS}:echo"

# Words, and what the paragraph says. None of these may start or create anything.
WRONG_USAGE: list[tuple[list[str], str]] = [
    (["fly"], "No such command 'fly'.*snaprt --help"),
    (["runn", ECHO], "No such command 'runn'"),
    (["--fly", "ls"], "No such option.*--fly.*snaprt --help"),
    (["ls", "--fly"], "No such option.*--fly.*snaprt ls --help"),
    (["ls", "extra"], "unexpected extra argument"),
    (["run"], "Missing argument.*TARGET.*snaprt run --help"),
    (["run", ECHO, "--run-id"], "--run-id.*requires an argument"),
    (["run", ECHO, "plain"], "'plain' isn't an argument: write key=value"),
    (["run", ECHO, "a=1", "a=2"], "'a' is given twice"),
    (["run", ECHO, "--input", "{nope}"], "--input isn't JSON: .* at column 2"),
    (["run", ECHO, "--input", "3"], "--input has to be a JSON object"),
    (["run", ECHO, "a=1", "--input", '{"a": 1}'], "a: given both in --input and as key=value"),
    (["run", f"{AGENTS}:support"], "missing a required argument: 'ledger'.*It takes: ledger: .*order"),
    (["run", f"{AGENTS}:support", "ledger=x", "size=3"], "unexpected keyword argument 'size'"),
    (["run", f"{AGENTS}:support", "--input", "[1, 2, 3, 4]"], "too many positional arguments"),
    (["run", ECHO, "run_id=3"], "takes 'run_id' by keyword"),
    (["run", AGENTS], "lacks a function: add :name"),
    (["run", f"{AGENTS}:ecco"], "no function 'ecco'. Did you mean 'echo'"),
    (["run", f"{AGENTS}:not_async"], "is a plain def, and an agent has to be an async def"),
    (["run", "no_such_module:f"], "no module 'no_such_module'"),
    (["run", "no/such/file.py:f"], "no/such/file.py doesn't exist"),
    (["run", ECHO, "--store", ""], "--store is empty"),
    (["--store", "", "ls"], "--store is empty"),
    (["resume"], "Missing argument.*RUN"),
    (["resume", "r", "--rules", "newest"], "newest.*recorded.*current"),
    (["resume", "r", "--in-doubt", "maybe"], "maybe.*retry"),
    (["resume", "r", "--answer", "yes"], "--answer isn't JSON.*Text needs quotes"),
    (["resume", "r", "--suspension", "ask-1"], "give --answer as well"),
    (["resume", "r", "--in-doubt", "retry", "--answer", "1"], "give --answer or --in-doubt"),
    (["resume", "r", "--agent", "nothing"], "lacks a function"),
    (["answer", "r"], "Missing argument.*JSON"),
    (["answer", "r", "{'a': 1}"], "The answer isn't JSON.*double quotes"),
    (["answer", "r", "1e999"], "The answer isn't JSON: 1e999 is larger than any number"),
    (["answer", "r", "-5x"], "The answer isn't JSON: .*'-5x'"),
    (["answer", "r", "-5", "--inbox", "x"], "No such option.*--inbox"),
    (["answer", "r", "1", "--early", "--suspension", "q." + "9" * 140], "No question can be called 'q.9+…'"),
    (["answer", "r", "1", "--early", "--suspension", "q." + "9" * 5000], "No question can be called 'q.9+…'"),
    (["resume", "r", "--answer", "1", "--early", "--suspension", "../q"], "No question can be called '../q'"),
    (["answer", "r", "1", "--early"], "--early is for a question that isn't asked yet.*--suspension NAME"),
    (["resume", "r", "--answer", "1", "--early"], "--early is for a question.*--suspension NAME"),
    (["resume", "r", "--early", "--suspension", "s", "--in-doubt", "retry"], "--early is for --answer"),
    (["send", "r"], "Missing argument.*JSON"),
    (["send", "r", '"hi"'], "Missing option.*--inbox.*snaprt send --help"),
    (["send", "r", "hi", "--inbox", "chat"], "The message isn't JSON.*Text needs quotes"),
    (["send", "r", '"hi"', "--inbox", "chat"], "no store at ./.snaprt"),
    (["cancel"], "Missing argument.*RUN"),
    (["cancel", "r", "why"], "unexpected extra argument"),
    (["cancel", "r"], "no store at ./.snaprt"),
    (["watch"], "Missing argument.*RUN"),
    (["watch", "r", "--after", "-1"], "--after.*greater than or equal to 0"),
    (["watch", "r", "--after", "now"], "--after.*integer"),
    (["watch", "r"], "no store at ./.snaprt"),
    (["resume", "r"], "no store at ./.snaprt.*SNAPRT_STORE"),
    (["answer", "r", "1"], "no store at ./.snaprt"),
    (["show", "r"], "no store at ./.snaprt"),
    (["verify", "r"], "no store at ./.snaprt"),
    (["ls", "--status", "gone"], "gone.*running.*suspended.*completed"),
    (["ls", "--older-than", "week"], "'week' isn't a length of time.*15m or 30d"),
    (["rm"], "Missing argument.*RUN"),
    (["rm", "a/b"], "can't be a run id"),
    (["rm", "r"], "no store at ./.snaprt"),
    (["prune"], "Missing option.*--older-than"),
    (["reindex"], "no store at ./.snaprt"),
    (["worker", "--concurrency", "0"], "1 or more"),
    (["worker", "--concurrency", "some"], "'--concurrency'.*integer"),
    (["worker", "--poll", "0"], "more than 0"),
    (["worker", "--agents", ""], "'' of agents can't be imported here"),
    (["worker", "--agents", ".agents"], "'.agents' of agents can't be imported here"),
    (["worker", "--agents", "no.such.module"], "'no.such.module' of agents can't be imported here"),
    (["ls", "--store", "elsewhere"], "no store at elsewhere"),
    (["ls", "--store", "file:///no/such/folder"], "no store at file:///no/such/folder"),
    (["ls", "--store", "nosuch://bucket/x"], "nosuch"),
    (["run", ECHO, "--store", "nosuch://bucket/x"], "nosuch"),
    (["run", ECHO, "--store", "/dev/null/store"], "/dev/null/store"),
    (["run", ECHO, "--store", "s3://"], "s3://"),
    (["run", ECHO, "--store", "s3:/bucket/x"], "looks like a URL of s3://.*both slashes"),
    (["ls", "--store", "S3:bucket"], "looks like a URL of s3://"),
    (["run", ECHO, "--store", "http://127.0.0.1:9/x"], "'http'.*Use a path or s3://"),
]


def one_paragraph(err: str) -> str:
    assert err.startswith("snaprt: "), err
    assert "Traceback" not in err
    assert err.count("\n") == 1, err
    assert err.rstrip()[-1] in ".?`'\"", err
    return err


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SNAPRT_STORE", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "said"), WRONG_USAGE, ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else ""
)
def test_wrong_usage_is_one_paragraph_and_leaves_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    code = run_command_line(words)
    out, err = capsys.readouterr()
    assert re.search(said, one_paragraph(err)), err
    assert (code, out) == (2, "")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "said",
    ["raise ValueError('broken')", "def (", "import sys; sys.exit(4)", "raise KeyboardInterrupt"],
)
@pytest.mark.parametrize("command", ["run", "worker"])
def test_a_module_that_raises_as_it_is_imported_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str, said: str
) -> None:
    (folder / "raises_at_import.py").write_text(said)
    monkeypatch.syspath_prepend(str(folder))
    words = ["run", "raises_at_import:f"] if command == "run" else ["worker", "--agents", "raises_at_import"]
    assert run_command_line(words) == 2
    assert "raises_at_import" in one_paragraph(capsys.readouterr().err)


@pytest.mark.parametrize("place", ["after", "before"])
def test_debug_shows_where_a_refusal_comes_from(
    folder: Path, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    words = ["run", f"{AGENTS}:nobody"]
    assert run_command_line(["--debug", *words] if place == "before" else [*words, "--debug"]) == 2
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "target.py" in err


def test_an_unknown_run_names_those_that_may_be_meant(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for run in ("support-a1", "support-b2", "notes"):
        assert run_command_line(["run", ECHO, "--run-id", run]) == 0
    capsys.readouterr()
    for words in (
        ["resume", "suport-a1"],
        ["show", "support-a"],
        ["verify", "support-a1x"],
        ["answer", "support_a1", "1"],
        ["send", "support_a1", "1", "--inbox", "chat"],
        ["cancel", "support-a11"],
        ["watch", "suport-a1"],
    ):
        assert run_command_line(words) == 2
        assert "Did you mean support-a1" in one_paragraph(capsys.readouterr().err)
    assert run_command_line(["show", "zzz"]) == 2
    assert "`snaprt ls` lists the 3" in one_paragraph(capsys.readouterr().err)


@pytest.mark.parametrize("run", ["../escape", "a/b", "", ".", "x" * 5000, "nul\0"])
def test_a_run_id_that_cannot_be_a_name_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], run: str
) -> None:
    assert run_command_line(["run", ECHO, "--run-id", run]) == 2
    one_paragraph(capsys.readouterr().err)
    assert not (folder / "escape").exists()


def test_a_run_id_is_given_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["run", ECHO, "--run-id", "mine"]) == 0
    capsys.readouterr()
    assert run_command_line(["run", ECHO, "--run-id", "mine"]) == 2
    assert "mine" in one_paragraph(capsys.readouterr().err)


def test_an_answer_to_no_question_says_which_are_open(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["run", f"{AGENTS}:two_questions", "--run-id", "q"]) == 0
    assert run_command_line(["run", ECHO, "--run-id", "ended"]) == 0
    capsys.readouterr()
    for words in (["answer", "q", "1"], ["answer", "q", "1", "--suspension", "ask-9"]):
        assert run_command_line(words) == 2
        err = one_paragraph(capsys.readouterr().err)
        assert "ask-1" in err
        assert "ask-2" in err
    assert run_command_line(["answer", "ended", "1"]) == 2
    assert "ended" in one_paragraph(capsys.readouterr().err)


@pytest.mark.parametrize("text", ["-5", "-0.5", "-1e3"])
def test_a_negative_number_is_an_answer_and_no_option(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    assert run_command_line(["run", f"{AGENTS}:two_questions", "--run-id", "q"]) == 0
    assert run_command_line(["answer", "q", text, "--suspension", "ask-1"]) == 0
    assert run_command_line(["answer", "--suspension", "ask-2", "--", "q", text]) == 0
    assert run_command_line(["send", "q", "--inbox", "numbers", text]) == 0
    capsys.readouterr()
    assert run_command_line(["resume", "q"]) == 0
    said = json.dumps(json.loads(text))
    assert f"[{said}, {said}]" in capsys.readouterr().out


@pytest.mark.parametrize("suspension", [[], ["--suspension", "ask-1"], ["--suspension", "doubt-1-2"]])
def test_a_verdict_answers_no_ordinary_question(
    folder: Path, capsys: pytest.CaptureFixture[str], suspension: list[str]
) -> None:
    assert run_command_line(["run", f"{AGENTS}:two_questions", "--run-id", "q"]) == 0
    assert run_command_line(["answer", "q", "1", "--suspension", "ask-2"]) == 0
    assert run_command_line(["resume", "q"]) == 0
    capsys.readouterr()
    assert run_command_line(["resume", "q", "--in-doubt", "retry", *suspension]) == 2
    assert "with --answer" in one_paragraph(capsys.readouterr().err)
    assert run_command_line(["resume", "q", "--answer", '"yes"']) == 0
    assert '["yes", 1]' in capsys.readouterr().out
    assert run_command_line(["resume", "q", "--in-doubt", "retry"]) == 2
    assert "No call of run q is in doubt" in one_paragraph(capsys.readouterr().err)


@pytest.mark.parametrize("key", ["", "short"])
def test_a_key_that_cannot_be_used_is_wrong_usage(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("SNAPRT_KEY", key)
    assert run_command_line(["run", ECHO]) == 2
    assert "SNAPRT_KEY" in one_paragraph(capsys.readouterr().err)


def test_a_missing_key_file_that_cannot_be_made_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SNAPRT_KEY")
    done = snaprt("run", ECHO, cwd=tmp_path, XDG_CONFIG_HOME="/dev/null", HOME="/dev/null")
    assert done.returncode == 2
    assert "SNAPRT_KEY" in one_paragraph(done.stderr)


def test_a_missing_extra_is_told_with_what_to_install(tmp_path: Path) -> None:
    # A process of its own: once fsspec has found a filesystem, it never looks again.
    code = (
        "import sys; sys.modules['s3fs'] = None; from snaprt.cli.app import run_command_line; "
        "sys.exit(run_command_line(['ls', '--store', 's3://bucket/agents']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 2
    assert re.search(r"s3fs.*snaprt\[s3\]", one_paragraph(done.stderr))


def test_a_store_that_cannot_be_reached_is_told_by_its_url(tmp_path: Path) -> None:
    where = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    done = snaprt("ls", "--store", "s3://bucket/agents", cwd=tmp_path, AWS_MAX_ATTEMPTS="1", **where)
    assert done.returncode == 2
    assert "s3://bucket/agents" in one_paragraph(done.stderr)
