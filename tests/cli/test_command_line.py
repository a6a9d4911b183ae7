"""The commands, from outside: what they print where, how they end, and that runs move between processes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from snaprt.store.local import LocalObjects
from tests.cli.processes import COMMAND, ROOT, environment, lines, snaprt
from tests.conftest import S3

AGENTS = "tests.cli.agents"


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


def start_support(folder: Path, *words: str, run: str = "r-1") -> subprocess.CompletedProcess[str]:
    """A run that waits for its answer."""
    arguments = [f"ledger={folder / 'ledger'}", "--run-id", run]
    done = snaprt("run", f"{AGENTS}:support", *arguments, *words, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done


# --- what is printed ----------------------------------------------------------------------------------


def test_a_person_sees_the_plan_the_steps_and_the_question(tmp_path: Path) -> None:
    out = start_support(tmp_path).stdout
    for text in (
        "started r-1 at ./.snaprt",
        "step 1  look  done: <A-17>",
        "plan  ✓ look   ● ask   ○ refund",
        "r-1 suspended",
        "question: Refund A-17?",
        'seen: ["<A-17>", "<policy>"]',
        "snaprt resume r-1 --answer '{\"approved\": true}'",
    ):
        assert text in out


def test_the_command_shown_with_a_question_answers_it_as_it_stands(tmp_path: Path, ledger: Path) -> None:
    out = start_support(tmp_path, "--store", "my store").stdout
    (command,) = (line for line in out.splitlines() if "snaprt resume" in line)
    script = tmp_path / "bin" / "snaprt"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m snaprt "$@"\n')
    script.chmod(0o755)
    path = f"{script.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-c", command.strip()],
        cwd=tmp_path,
        env=environment(PATH=path),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert '{"paid": "paid 100"}' in done.stdout
    assert sorted(ledger.read_text().splitlines()) == ["look A-17", "look policy", "pay 100"]


def test_json_lines_tell_the_steps_and_end_with_the_outcome(tmp_path: Path) -> None:
    done = start_support(tmp_path, "--json")
    told = lines(done)
    assert done.stderr == ""
    assert told[0] == {"event": "started", "run": "r-1", "where": "./.snaprt"}
    finished = [event["step"] for event in told if event["event"] == "step" and event["status"] == "done"]
    assert sorted(finished) == [1, 2]
    assert [event for event in told if event["event"] == "plan"][-1]["plan"][1]["status"] == "active"
    assert told[-1] == {
        "event": "outcome",
        "run": "r-1",
        "status": "suspended",
        "waiting": [
            {"suspension": "ask-1", "payload": {"question": "Refund A-17?", "seen": ["<A-17>", "<policy>"]}}
        ],
    }
    done = snaprt("resume", "r-1", "--answer", '{"approved": false}', "--json", cwd=tmp_path)
    assert lines(done)[0]["event"] == "resumed"
    assert lines(done)[-1] == {
        "event": "outcome",
        "run": "r-1",
        "status": "completed",
        "result": {"paid": None},
    }


def test_what_agents_and_tools_print_never_mixes_with_json(tmp_path: Path) -> None:
    done = snaprt("run", f"{AGENTS}:noisy", "--json", cwd=tmp_path)
    assert lines(done)[-1]["result"] == "quiet at last"
    for said in ("from the agent", "from a tool", "from a subprocess"):
        assert said in done.stderr
    done = snaprt("run", f"{AGENTS}:noisy", cwd=tmp_path)
    assert "from a subprocess" in done.stdout
    assert done.stderr == ""


def test_a_result_that_json_cannot_say_is_shown_by_its_repr(tmp_path: Path) -> None:
    done = snaprt("run", f"{AGENTS}:complex_number", cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "(3+4j)"
    done = snaprt("run", f"{AGENTS}:complex_number", "--json", cwd=tmp_path)
    assert lines(done)[-1]["result"] == {"repr": "(3+4j)"}


def test_arguments_reach_the_agent_as_they_were_meant(tmp_path: Path) -> None:
    words = ["n=1", "text=one two", "--input", '[1, "x"]', 'tags=["a"]']
    done = snaprt("run", f"{AGENTS}:echo", *words, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert lines(done)[-1]["result"] == [
        [1, "x"],
        {"n": 1, "text": "one two", "tags": ["a"]},
    ]


def test_a_run_that_sleeps_long_leaves_and_says_until_when(tmp_path: Path) -> None:
    done = snaprt("run", f"{AGENTS}:sleeps_long", "--run-id", "s", cwd=tmp_path)
    assert done.returncode == 0
    assert "it sleeps until" in done.stdout
    assert done.stdout.splitlines()[-1].strip() == "snaprt resume s"
    assert lines(snaprt("show", "s", "--json", cwd=tmp_path))[0]["until"] > 0


# --- between processes --------------------------------------------------------------------------------


def test_an_answer_given_by_one_process_is_taken_in_by_another(tmp_path: Path, ledger: Path) -> None:
    start_support(tmp_path)
    done = snaprt("answer", "r-1", '{"approved": true, "cents": 7}', cwd=tmp_path)
    assert done.returncode == 0
    assert "ask-1 of r-1 is answered" in done.stdout
    assert "snaprt resume r-1" in done.stdout
    done = snaprt("resume", "r-1", cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == '{"paid": "paid 7"}'
    assert ledger.read_text().count("pay") == 1


def test_of_several_questions_each_has_its_own_command(tmp_path: Path) -> None:
    out = snaprt("run", f"{AGENTS}:two_questions", "--run-id", "q", cwd=tmp_path).stdout
    assert "--suspension ask-1" in out
    assert "--suspension ask-2" in out
    done = snaprt("resume", "q", "--answer", '"no"', "--suspension", "ask-2", "--json", cwd=tmp_path)
    assert lines(done)[-1]["waiting"] == [{"suspension": "ask-1", "payload": "Left?"}]
    done = snaprt("resume", "q", "--answer", '"yes"', "--json", cwd=tmp_path)
    assert lines(done)[-1]["result"] == ["yes", "no"]


def test_a_run_of_a_file_goes_on_where_the_file_does_not_exist(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    script = here / "agent.py"
    script.write_text(
        "import enum, snaprt\n"
        "class Mood(enum.Enum):\n    GOOD = 'good'\n"
        "def praise(text): return f'{text}, {Mood.GOOD.value}!'\n"
        "async def ask(name):\n"
        "    mood = Mood.GOOD\n"
        "    said = await snaprt.suspend(name)\n"
        "    return praise(said) if mood is Mood.GOOD else 'another class'\n"
    )
    store = ["--store", str(tmp_path / "store")]
    done = snaprt("run", "agent.py:ask", "name=who", "--run-id", "f", *store, cwd=here, PYTHONHASHSEED="1")
    assert done.returncode == 0, done.stderr
    script.unlink()
    done = snaprt("resume", "f", "--answer", '"Ada"', *store, "--json", cwd=there, PYTHONHASHSEED="2")
    assert done.returncode == 0, done.stderr
    assert lines(done)[-1]["result"] == "Ada, good!"


@pytest.mark.s3
def test_a_run_moves_over_s3(tmp_path: Path, s3: S3) -> None:
    done = start_support(tmp_path, "--store", s3.url)
    assert f"--store {s3.url}" in done.stdout
    done = snaprt(
        "resume", "r-1", "--answer", '{"approved": true}', "--json", cwd=tmp_path, SNAPRT_STORE=s3.url
    )
    assert lines(done)[-1]["result"] == {"paid": "paid 100"}
    assert not (tmp_path / ".snaprt").exists()
    assert f"{s3.url}/runs/r-1/" in snaprt("show", "r-1", "--store", s3.url, cwd=tmp_path).stdout


def test_the_store_is_the_option_else_the_variable_else_the_folder_here(tmp_path: Path) -> None:
    def run(*words: str, **variables: str) -> None:
        assert snaprt(*words, cwd=tmp_path, **variables).returncode == 0

    echo = f"{AGENTS}:echo"
    run("run", echo, "--run-id", "by-option", "--store", "a", SNAPRT_STORE="b")
    run("--store", "a", "run", echo, "--run-id", "by-option-before", SNAPRT_STORE="b")
    run("run", echo, "--run-id", "by-variable", SNAPRT_STORE="b")
    run("run", echo, "--run-id", "by-default")
    found = {folder: sorted(os.listdir(tmp_path / folder / "runs")) for folder in ("a", "b", ".snaprt")}
    assert found == {"a": ["by-option", "by-option-before"], "b": ["by-variable"], ".snaprt": ["by-default"]}


# --- looking ------------------------------------------------------------------------------------------


def test_ls_and_show_say_where_a_run_stands_without_its_code(tmp_path: Path) -> None:
    start_support(tmp_path, run="first")
    snaprt("run", f"{AGENTS}:echo", "--run-id", "second", cwd=tmp_path)
    hidden = {"PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}
    out = snaprt("ls", cwd=tmp_path, **hidden).stdout.splitlines()
    assert [line.split()[0] for line in out] == ["run", "second", "first"]
    assert "support" in out[2]
    assert "suspended" in out[2]
    assert "ask-1" in out[2]
    assert re.search(r"[1-9][\d.]* (B|KB)$", out[2])
    rows = lines(snaprt("ls", "--json", cwd=tmp_path, **hidden))
    assert [(row["run"], row["status"]) for row in rows] == [("second", "completed"), ("first", "suspended")]
    page = snaprt("show", "first", cwd=tmp_path).stdout
    for text in (
        "✓ look   ● ask   ○ refund",
        "<policy>",
        "Refund A-17?",
        "prompt: Be kind.",
        "/runs/first/log/000000000001",
    ):
        assert text in page
    shown = lines(snaprt("show", "first", "--json", cwd=tmp_path))[0]
    assert shown["rules"] == {"model": "small-1", "prompt": "Be kind."}
    assert sum(item["bytes"] for item in shown["objects"]) == shown["bytes"] > 0
    assert all(item["url"].startswith("file:///") for item in shown["objects"])


def test_a_store_s_folder_is_the_same_however_it_is_written(tmp_path: Path) -> None:
    words = ["run", f"{AGENTS}:echo", "--run-id", "echo-7", "--store", f"file:{tmp_path}/s"]
    assert snaprt(*words, cwd=tmp_path).returncode == 0
    for store in ("s", f"{tmp_path}/s", f"file://{tmp_path}/s", f"file:{tmp_path}/s"):
        assert "echo-7" in snaprt("ls", "--store", store, cwd=tmp_path).stdout, store


def test_ls_without_a_store_says_so_and_makes_none(tmp_path: Path) -> None:
    done = snaprt("ls", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "No runs yet at ./.snaprt" in done.stdout
    done = snaprt("ls", "--json", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert list(tmp_path.iterdir()) == []


def test_verify_proves_a_run_whole_and_names_the_object_that_is_not(tmp_path: Path) -> None:
    start_support(tmp_path)
    done = snaprt("verify", "r-1", cwd=tmp_path)
    assert done.returncode == 0
    assert "r-1 is whole" in done.stdout
    objects = LocalObjects(str(tmp_path / ".snaprt"))
    url = objects.locate("runs/r-1/log/000000000003")  # the newest state
    start, end = map(int, url.rpartition("#bytes=")[2].split("-"))
    records = tmp_path / ".snaprt" / "runs" / "r-1" / "log" / "000000000001"
    data = bytearray(records.read_bytes())
    data[(start + end) // 2] ^= 1
    records.write_bytes(data)
    done = snaprt("verify", "r-1", cwd=tmp_path)
    assert done.returncode == 3
    assert "log/000000000003" in done.stdout
    report = lines(snaprt("verify", "r-1", "--json", cwd=tmp_path))[0]
    assert report["status"] == "damaged"
    assert {problem["object"] for problem in report["problems"]} >= {"log/000000000003"}
    done = snaprt("resume", "r-1", "--answer", '{"approved": true}', cwd=tmp_path)
    assert_refused(done, 3, "r-1")


# --- ends that aren't good ------------------------------------------------------------------------------


def assert_refused(done: subprocess.CompletedProcess[str], code: int, *said: str) -> None:
    """One paragraph on standard error, of ours, with these texts."""
    assert done.returncode == code, (done.stdout, done.stderr)
    assert done.stderr.startswith("snaprt: ")
    assert "Traceback" not in done.stderr
    assert "\n\n" not in done.stderr.strip()
    for text in said:
        assert re.search(text, done.stderr), (text, done.stderr)


def test_a_failing_agent_is_told_with_its_line_and_traced_on_demand(tmp_path: Path, ledger: Path) -> None:
    words = [f"{AGENTS}:breaks", f"ledger={ledger}", "--run-id"]
    done = snaprt("run", *words, "b", cwd=tmp_path)
    assert_refused(done, 1, r"Run b failed with ZeroDivisionError: on purpose, at .*agents.py:\d+ in breaks")
    assert "b failed" in done.stdout
    done = snaprt("run", *words, "c", "--json", cwd=tmp_path)
    outcome = lines(done)[-1]
    assert (outcome["run"], outcome["status"]) == ("c", "failed")
    assert (outcome["error"]["type"], outcome["error"]["message"]) == ("ZeroDivisionError", "on purpose")
    for words in (["resume", "b", "--debug"], ["--debug", "resume", "b"]):
        done = snaprt(*words, cwd=tmp_path)
        assert done.returncode == 1
        assert "Traceback" in done.stderr
        assert "in breaks" in done.stderr


def test_a_cancelled_run_is_not_a_success(tmp_path: Path) -> None:
    done = snaprt("run", f"{AGENTS}:cancels_itself", "--json", cwd=tmp_path)
    assert done.returncode == 1
    assert lines(done)[-1]["status"] == "cancelled"


def test_state_that_cannot_travel_is_refused_by_its_path(tmp_path: Path, ledger: Path) -> None:
    done = snaprt("run", f"{AGENTS}:holds_a_file", f"ledger={ledger}", cwd=tmp_path)
    assert done.returncode == 3
    assert "holds_a_file" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_ended_run_is_told_again_by_resume(tmp_path: Path) -> None:
    snaprt("run", f"{AGENTS}:echo", "a=1", "--run-id", "e", cwd=tmp_path)
    done = snaprt("resume", "e", "--json", cwd=tmp_path)
    assert done.returncode == 0
    assert lines(done)[-1]["result"] == [[], {"a": 1}]


def test_the_second_answer_is_refused(tmp_path: Path) -> None:
    start_support(tmp_path)
    assert snaprt("answer", "r-1", '{"approved": true}', cwd=tmp_path).returncode == 0
    done = snaprt("answer", "r-1", '{"approved": false}', cwd=tmp_path)
    assert_refused(done, 3, "ask-1")


def test_another_key_is_refused_by_its_id(tmp_path: Path) -> None:
    start_support(tmp_path)
    done = snaprt("resume", "r-1", cwd=tmp_path, SNAPRT_KEY="quite-another-key-of-the-tests")
    assert_refused(done, 3, "key")
    assert snaprt("verify", "r-1", cwd=tmp_path, SNAPRT_KEY="quite-another-key-of-the-tests").returncode == 3


def test_changed_rules_are_refused_with_a_difference_until_one_is_chosen(tmp_path: Path) -> None:
    agent = tmp_path / "my_agents.py"
    text = (
        "import snaprt\n"
        "@snaprt.agent(rules={'model': 'MODEL'})\n"
        "async def ask():\n    await snaprt.suspend('?')\n    return snaprt.rules()\n"
    )
    agent.write_text(text.replace("MODEL", "small-1"))
    for run in ("r", "c"):
        assert snaprt("run", "my_agents:ask", "--run-id", run, cwd=tmp_path).returncode == 0
    agent.write_text(text.replace("MODEL", "large-2"))
    shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
    done = snaprt("resume", "r", cwd=tmp_path)
    assert done.returncode == 3
    for said in ("--rules recorded", "-small-1", "+large-2"):
        assert said in done.stderr
    for run, choice, model in (("r", "recorded", "small-1"), ("c", "current", "large-2")):
        words = ["resume", run, "--rules", choice, "--answer", "1", "--json"]
        done = snaprt(*words, cwd=tmp_path)
        assert lines(done)[-1]["result"] == {"model": model}, done.stderr


def test_a_refused_resume_says_that_the_answer_given_with_it_is_kept(tmp_path: Path) -> None:
    agent = tmp_path / "my_agents.py"
    text = "import snaprt\nasync def ask():\n    return await snaprt.suspend('?')\n"
    agent.write_text(text)
    assert snaprt("run", "my_agents:ask", "--run-id", "r", cwd=tmp_path).returncode == 0
    agent.rename(tmp_path / "elsewhere.txt")
    shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
    assert "Your answer is kept" in snaprt("resume", "r", "--answer", "7", cwd=tmp_path).stderr
    assert "Your answer is kept" not in snaprt("resume", "r", cwd=tmp_path).stderr
    agent.write_text(text)
    assert lines(snaprt("resume", "r", "--json", cwd=tmp_path))[-1]["result"] == 7


def test_the_rules_of_a_file_are_compared_with_those_of_the_file_that_is_named(tmp_path: Path) -> None:
    text = (
        "import snaprt\n"
        "@snaprt.agent(rules={'model': 'MODEL'})\n"
        "async def ask():\n    await snaprt.suspend('?')\n    return snaprt.rules()\n"
    )
    (tmp_path / "old.py").write_text(text.replace("MODEL", "small-1"))
    (tmp_path / "new.py").write_text(text.replace("MODEL", "large-2"))
    assert snaprt("run", "old.py:ask", "--run-id", "r", cwd=tmp_path).returncode == 0
    new = ["resume", "r", "--agent", "new.py:ask"]
    done = snaprt(*new, cwd=tmp_path)
    assert done.returncode == 3
    assert "+large-2" in done.stderr
    done = snaprt(*new, "--rules", "current", "--answer", "1", "--json", cwd=tmp_path)
    assert lines(done)[-1]["result"] == {"model": "large-2"}, done.stderr


def test_a_run_whose_module_is_missing_says_which(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    (here / "gone_agents.py").write_text("import snaprt\nasync def ask():\n    await snaprt.suspend('?')\n")
    store = ["--store", str(tmp_path / "store")]
    assert snaprt("run", "gone_agents:ask", "--run-id", "g", *store, cwd=here).returncode == 0
    done = snaprt("resume", "g", *store, cwd=there)
    assert_refused(done, 3, "gone_agents")
    assert snaprt("resume", "g", *store, cwd=here).returncode == 0


# --- terminals and pipes --------------------------------------------------------------------------------


def test_a_reader_that_has_enough_ends_the_command_without_a_word(tmp_path: Path) -> None:
    snaprt("run", f"{AGENTS}:echo", cwd=tmp_path)
    echo = ["run", f"{AGENTS}:echo"]
    for words in (["ls"], ["ls", "--json"], ["--help"], echo, [*echo, "--json", "--run-id", "unheard"]):
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run(
            [*COMMAND, *words],
            cwd=tmp_path,
            env=environment(),
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
        )
        os.close(write)
        assert (done.returncode, done.stderr) == (141, ""), words
    assert lines(snaprt("resume", "unheard", "--json", cwd=tmp_path))[-1]["status"] == "completed"


def test_output_without_unicode_is_plain_and_never_fails(tmp_path: Path) -> None:
    done = snaprt("run", f"{AGENTS}:echo", "text=größer", cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "+ echo-" in done.stdout
    done = snaprt("run", f"{AGENTS}:echo", "text=größer", "--json", cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert lines(done)[-1]["result"] == [[], {"text": "größer"}]


@pytest.mark.parametrize("options", [[], ["--help"], ["-h"]])
def test_help_teaches_the_commands_the_variables_and_the_exit_codes(
    tmp_path: Path, options: list[str]
) -> None:
    done = snaprt(*options, cwd=tmp_path, COLUMNS="100")
    text = done.stdout + done.stderr
    for word in (
        "run",
        "resume",
        "answer",
        "send",
        "cancel",
        "watch",
        "ls",
        "show",
        "verify",
        "worker",
        "rm",
        "prune",
        "reindex",
        "demo",
        "SNAPRT_STORE",
        "SNAPRT_KEY",
        "SIGTERM",
    ):
        assert word in text
    assert "Exit codes" in text


@pytest.mark.parametrize(
    "command",
    [
        "run",
        "resume",
        "answer",
        "send",
        "cancel",
        "watch",
        "ls",
        "show",
        "verify",
        "worker",
        "rm",
        "prune",
        "reindex",
        "demo",
    ],
)
def test_every_command_has_an_example(tmp_path: Path, command: str) -> None:
    done = snaprt(command, "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert re.search(rf"^ *snaprt {command} ", done.stdout, re.MULTILINE)


def test_version_is_the_packages_own(tmp_path: Path) -> None:
    done = snaprt("--version", cwd=tmp_path)
    assert re.fullmatch(r"snaprt \d+\.\d+\.\d+\S*\n", done.stdout)


def test_refusals_end_json_lines_too(tmp_path: Path) -> None:
    done = snaprt("resume", "nobody", "--json", "--store", str(tmp_path), cwd=tmp_path)
    assert done.returncode == 2
    assert lines(done)[-1]["status"] == "refused"
    assert lines(done)[-1]["error"]["type"] == "UnknownRun"
    assert lines(done)[-1]["error"]["message"] in done.stderr


# --- what can't be shown ------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["int", "repr", "inside", "mapping"])
def test_what_cannot_be_shown_ends_a_run_no_differently(tmp_path: Path, which: str) -> None:
    for what, status in (("returns", "completed"), ("asks", "suspended"), ("asks_only", "suspended")):
        agent = f"{AGENTS}:{what}_what_cannot_be_shown"
        for words, run in ((["--json"], f"{what}-json"), ([], what)):
            done = snaprt("run", agent, f"which={which}", "--run-id", run, *words, cwd=tmp_path)
            assert (done.returncode, done.stderr) == (0, "")
            if words:
                assert lines(done)[-1]["status"] == status
            else:
                assert f"{run} {status}" in done.stdout
        if what == "asks":
            assert f"snaprt resume {run} --answer 7" in done.stdout
        for words in (["show", what], ["show", what, "--json"], ["watch", what, "--no-follow"], ["ls"]):
            done = snaprt(*words, cwd=tmp_path)
            assert (done.returncode, done.stderr) == (0, "")


# --- standard output that can't be written --------------------------------------------------------------


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there's no /dev/full on this system")
def test_a_full_disk_behind_standard_output_is_told_by_every_command(tmp_path: Path) -> None:
    start_support(tmp_path)
    for words in (
        ["run", f"{AGENTS}:echo", "--run-id", "e"],
        ["run", f"{AGENTS}:echo", "--json"],
        ["show", "r-1"],
        ["show", "r-1", "--json"],
        ["ls", "--json"],
        ["watch", "r-1", "--no-follow", "--json"],
        ["answer", "r-1", '{"approved": true}'],
        ["rm", "e"],
        ["worker", "--json"],
        ["show", "nobody", "--json"],
        ["--help"],
        ["--version"],
    ):
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [*COMMAND, *words],
                cwd=tmp_path,
                env=environment(),
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                timeout=120,
            )
        assert done.returncode == 3, words
        assert "Standard output can't be written: No space left on device." in done.stderr, words
        assert "Traceback" not in done.stderr
        assert "Unexpected" not in done.stderr
    assert snaprt("show", "e", cwd=tmp_path).returncode == 2  # it was removed


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there's no /dev/full on this system")
def test_a_full_disk_behind_standard_error_changes_no_exit_code(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, "show", "nobody"], cwd=tmp_path, env=environment(), stderr=full, timeout=120
        )
    assert done.returncode == 2
