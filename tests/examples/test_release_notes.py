"""The release notes of a real repository: read, drafted, approved in another process, written."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "release_notes.py"
_MODEL_VARIABLES = (
    "SNAPRT_LLM_URL",
    "SNAPRT_LLM_KEY",
    "SNAPRT_LLM_MODEL",
    "OPENAI_BASE_URL",
    "OPENAI_API_KEY",
)


@pytest.fixture(scope="module")
def example() -> Iterator[ModuleType]:
    """The example as a module, to test its own thinking; outside of an agent its tools are simply called."""
    spec = importlib.util.spec_from_file_location("release_notes_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(autouse=True)
def _no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _MODEL_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A small repository with a tag, conventional and plain subjects, two authors and a breaking change."""
    folder = tmp_path / "repository"
    folder.mkdir()
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}

    def git(*arguments: str) -> None:
        subprocess.run(
            ["git", "-C", str(folder), *arguments], check=True, capture_output=True, env=environment
        )

    def commit(subject: str, author: str, body: str = "") -> None:
        with (folder / "file.txt").open("a") as file:
            file.write(subject + "\n")
        git("add", "file.txt")
        message = [subject] if not body else [subject, body]
        words = [word for part in message for word in ("-m", part)]
        git("-c", "user.name=" + author, "-c", f"user.email={author}@example.org", "commit", *words)

    git("init", "-b", "main")
    commit("Begin", "Ada")
    git("-c", "user.name=Ada", "-c", "user.email=a@example.org", "tag", "-a", "v1.0", "-m", "first")
    commit("feat(store): keep bytes in S3", "Ada")
    commit("Fix the clock\x1b of timers", "Ben")
    commit("feat!: rename everything", "Ada")
    commit("fix: close the file", "Ada", "BREAKING CHANGE: files close")
    commit("Whatever: else", "Ben")
    return folder


def cli(*words: str, cwd: Path, seed: int, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": str(seed), **variables}
    return subprocess.run(
        [sys.executable, "-m", "snaprt", *words],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def last_line(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return value


# --- its own thinking ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subject", "group", "text"),
    [
        ("feat: add S3", "Added", "Add S3"),
        ("fix(cli): no traceback", "Fixed", "Cli: no traceback"),
        ("Add a store", "Added", "Add a store"),
        ("Remove the old way", "Removed", "Remove the old way"),
        ("docs: say more", "Documentation", "Say more"),
        ("Note: not a prefix", "Other", "Note: not a prefix"),
        ("über alles", "Other", "Über alles"),
    ],
)
def test_commits_are_grouped_by_prefix_or_first_word(
    example: ModuleType, subject: str, group: str, text: str
) -> None:
    (commit,) = example.parse(f"abcdef0123\x1fAda\x1f{subject}\x1f\x1e\n")
    assert (commit.group, commit.text, commit.breaking) == (group, text, False)


def test_no_word_stands_in_two_groups(example: ModuleType) -> None:
    words = [word for group in example.GROUPS.values() for word in group.split()]
    assert len(words) == len(set(words))


def test_a_small_history_becomes_its_notes(example: ModuleType, repository: Path) -> None:
    async def read() -> str:
        top, _ = await example.locate(str(repository), "notes.md")
        since, commits = await example.span(top, None)
        messages = example.parse(await example.read_messages(top, commits))
        known = await example.read_known_authors(top, commits)
        new = {commit.author for commit in messages} - known
        notes: str = example.draft_notes(since, messages, await example.read_changes(top, commits), new)
        return notes

    notes = asyncio.run(read())
    assert notes.startswith(
        "# Changes since v1.0\n\n5 commits by Ada, Ben: 5 file changes, 5 lines added, 0 removed."
    )
    breaking, _, rest = notes.partition("## Added")
    assert "- **breaking:** Rename everything" in breaking
    assert "- **breaking:** Close the file" in breaking
    assert "- Store: keep bytes in S3" in rest
    assert "## Other\n\n- Whatever: else" in rest
    assert notes.endswith("First contributions: Ben.\n")
    assert "Begin" not in notes


@pytest.mark.parametrize("since", ["no-such-tag", "--output=pwned", "-1", ""])
def test_a_start_that_is_no_commit_is_an_error_and_never_an_option(
    example: ModuleType, repository: Path, since: str
) -> None:
    with pytest.raises(RuntimeError, match="git rev-parse"):
        asyncio.run(example.span(str(repository), since))
    assert not (repository / "pwned").exists()


def test_writing_twice_leaves_one_whole_file(example: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    for _ in range(2):
        assert asyncio.run(example.write_file(str(path), "é\n")) == 3
    assert path.read_text() == "é\n"
    assert list(tmp_path.iterdir()) == [path]


# --- the model ----------------------------------------------------------------------------------------


Answers = Callable[[dict[str, Any]], tuple[int, Any]]


@pytest.fixture
def model() -> Iterator[tuple[str, list[dict[str, Any]], list[Answers]]]:
    """An OpenAI-compatible endpoint on loopback: its URL, the requests it got, and a place for its answer."""
    seen: list[dict[str, Any]] = []
    answers: list[Answers] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.append({"path": self.path, "key": self.headers["Authorization"], **body})
            status, answer = answers[0](body)
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1", seen, answers
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_configured_model_writes_the_summary_and_its_key_is_never_saved(
    model: tuple[str, list[dict[str, Any]], list[Answers]], repository: Path, tmp_path: Path
) -> None:
    url, seen, answers = model
    answers.append(lambda body: (200, {"choices": [{"message": {"content": "  All is better now. "}}]}))
    variables = {"SNAPRT_LLM_URL": url, "SNAPRT_LLM_KEY": "s3cr3t-key-of-a-model", "SNAPRT_LLM_MODEL": "tiny"}
    store = tmp_path / "store"
    words = [f"{EXAMPLE}:release_notes", f"repo={repository}", "out=notes.md"]
    done = cli("run", *words, "--store", str(store), "--json", cwd=tmp_path, seed=1, **variables)
    assert done.returncode == 0, done.stderr
    notes = last_line(done)["waiting"][0]["payload"]["notes"]
    assert notes.startswith("# Changes since v1.0\n\nAll is better now.\n\n5 commits")
    (request,) = seen
    assert (request["path"], request["key"], request["model"]) == (
        "/v1/chat/completions",
        "Bearer s3cr3t-key-of-a-model",
        "tiny",
    )
    shown = cli("show", last_line(done)["run"], "--store", str(store), "--json", cwd=tmp_path, seed=2)
    assert "s3cr3t-key-of-a-model" not in shown.stdout


@pytest.mark.parametrize(
    ("status", "answer", "said"),
    [
        (500, {"error": "on fire"}, "500 .*on fire"),
        (200, b"<html>", "JSONDecodeError"),
        (200, {"choices": []}, "IndexError"),
    ],
)
def test_a_failing_model_is_a_connection_error_with_its_reason(
    example: ModuleType,
    model: tuple[str, list[dict[str, Any]], list[Answers]],
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    answer: Any,
    said: str,
) -> None:
    url, _, answers = model
    answers.append(lambda body: (status, answer))
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    with pytest.raises(ConnectionError, match=said):
        asyncio.run(example.ask_model("p", "t"))


def test_without_its_model_the_plain_draft_is_asked_about_with_a_remark(
    repository: Path, tmp_path: Path
) -> None:
    words = [f"{EXAMPLE}:release_notes", f"repo={repository}", "--store", "store", "--json"]
    done = cli("run", *words, cwd=tmp_path, seed=1, SNAPRT_LLM_URL="http://127.0.0.1:9/v1")
    assert done.returncode == 0, done.stderr
    payload = last_line(done)["waiting"][0]["payload"]
    assert "couldn't be asked" in payload["remarks"][0]
    assert payload["notes"].startswith("# Changes since v1.0\n\n5 commits")


# --- from end to end ----------------------------------------------------------------------------------


def test_this_repository_gets_its_notes_from_another_process_in_another_folder(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    store = str(tmp_path / "store")
    words = [f"{EXAMPLE}:release_notes", f"repo={ROOT}", "out=NOTES.md", "--run-id", "notes"]
    done = cli("run", *words, "--store", store, "--json", cwd=here, seed=1)
    assert done.returncode == 0, done.stderr
    first = last_line(done)
    assert first["status"] == "suspended"
    payload = first["waiting"][0]["payload"]
    assert payload["notes"].startswith("# Changes since ")
    assert not (here / "NOTES.md").exists()

    done = cli(
        "resume", "notes", "--answer", '{"approved": true}', "--store", store, "--json", cwd=there, seed=7
    )
    assert done.returncode == 0, done.stderr
    assert last_line(done)["status"] == "completed"
    assert str(here / "NOTES.md") in last_line(done)["result"]
    assert (here / "NOTES.md").read_text() == payload["notes"]
    assert list(there.iterdir()) == []


def test_a_person_may_leave_groups_out_and_edit_before_the_file_is_written(
    repository: Path, tmp_path: Path
) -> None:
    def resume(answer: Any, seed: int) -> dict[str, Any]:
        words = ["resume", "n", "--answer", json.dumps(answer), "--store", str(tmp_path / "store"), "--json"]
        done = cli(*words, cwd=tmp_path, seed=seed)
        assert done.returncode == 0, done.stderr
        return last_line(done)

    # A copy, so that it can be gone when the run goes on: its code is in the state.
    script = tmp_path / "notes_agent.py"
    script.write_bytes(EXAMPLE.read_bytes())
    words = ["notes_agent.py:release_notes", f"repo={repository}", "out=notes.md", "--run-id", "n"]
    done = cli("run", *words, "--store", str(tmp_path / "store"), "--json", cwd=tmp_path, seed=1)
    assert done.returncode == 0, done.stderr
    script.unlink()

    asked = resume({"what": "?"}, 2)["waiting"][0]["payload"]
    assert "wasn't understood" in asked["remarks"][0]
    asked = resume({"ignore": ["Fixed"]}, 3)["waiting"][0]["payload"]
    assert "## Added" in asked["notes"]
    assert "## Fixed" not in asked["notes"]
    assert resume({"notes": "My own words."}, 4)["status"] == "completed"
    assert (tmp_path / "notes.md").read_text() == "My own words.\n"


def test_notes_that_are_turned_down_are_not_written(repository: Path, tmp_path: Path) -> None:
    words = [
        f"{EXAMPLE}:release_notes",
        f"repo={repository}",
        "since=HEAD~1",
        "out=notes.md",
        "--run-id",
        "n",
    ]
    done = cli("run", *words, cwd=tmp_path, seed=1)
    assert done.returncode == 0, done.stderr
    assert "# Changes since HEAD~1" in done.stdout
    done = cli("resume", "n", "--answer", '{"approved": false}', cwd=tmp_path, seed=2)
    assert done.returncode == 0, done.stderr
    assert "turned down" in done.stdout
    assert not (tmp_path / "notes.md").exists()


def test_a_folder_that_is_no_repository_fails_the_run_with_gits_own_words(tmp_path: Path) -> None:
    done = cli("run", f"{EXAMPLE}:release_notes", f"repo={tmp_path}", cwd=tmp_path, seed=1)
    assert done.returncode == 1
    assert "not a git repository" in done.stderr
    assert "Traceback" not in done.stderr
