"""Release notes of a real git repository, approved or edited by a person.

Three readers look at the history at the same time (`asyncio.TaskGroup`); the commits are grouped and
drafted; a person is asked, and the process may end while they think, for minutes or months; the file
is written when they approve.

    snaprt run examples/release_notes.py:release_notes repo=. since=v1.2 out=NOTES.md --run-id notes
    snaprt resume notes --answer '{"approved": true}'

Other answers: `{"notes": "…"}` writes the text given instead of the draft, `{"ignore": ["Tests"]}` leaves
groups out and asks again, `{"approved": false}` writes nothing.

The draft is made by plain code. If an OpenAI-compatible endpoint is configured (`SNAPRT_LLM_URL` with
`SNAPRT_LLM_KEY` and `SNAPRT_LLM_MODEL`, or the usual `OPENAI_BASE_URL`, `OPENAI_API_KEY`,
`OPENAI_MODEL`), a model writes the summary over the list. Keys are read inside the tool that needs
them, so they never become part of the saved state.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import snaprt

PROMPT = (
    "You write release notes. Sum up the changes below for users of the software in at most five plain "
    "sentences. Invent nothing. No heading, no list."
)

# Groups in the order in which they are shown, each with the conventional prefixes and the first words
# of a subject that put a commit there.
GROUPS = {
    "Added": "feat feature add adds added introduce introduces support implement create allow show",
    "Fixed": "fix fixes fixed bugfix hotfix correct repair handle prevent avoid guard resolve",
    "Faster": "perf speed optimise optimize cache faster",
    "Removed": "remove removes removed drop delete revert",
    "Changed": "refactor change changes update use make rename move replace improve bump require keep split",
    "Documentation": "docs doc document documents explain describe",
    "Tests and build": "test tests build ci chore style release",
}
OTHER = "Other"

# Shown to whoever is asked, as commands to type.
ANSWERS = ['{"approved": true}', '{"notes": "edited text"}', '{"ignore": ["Other"]}', '{"approved": false}']

_CONVENTIONAL = re.compile(r"(?P<kind>[A-Za-z]+)(?:\((?P<scope>[^)]*)\))?(?P<breaking>!)?:\s+(?P<text>.+)")
_FIELD, _COMMIT = "\x1f", "\x1e"


# --- tools: everything that touches the world -----------------------------------------------------


def _git(repo: str, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", repo, *arguments], capture_output=True, text=True, encoding="utf-8", errors="replace"
    )
    if done.returncode:
        raise RuntimeError(f"git {arguments[0]} in {repo} failed: {done.stderr.strip()}")
    return done.stdout


@snaprt.tool(effect="read")
def locate(repo: str, out: str) -> tuple[str, str]:
    """The repository's top folder and the file to write, absolute: the run may go on from elsewhere."""
    folder = str(Path(repo).expanduser().resolve())
    top = _git(folder, "rev-parse", "--show-toplevel").strip()
    return top, str(Path(out).expanduser().resolve())


@snaprt.tool(effect="read")
def span(repo: str, since: str | None) -> tuple[str, str]:
    """What to read, as a name for people and a range for git; without `since`, from the last tag on."""
    head = _git(repo, "rev-parse", "--verify", "HEAD^{commit}").strip()
    if since is None:
        tags = _git(repo, "tag", "--merged", head, "--sort=-creatordate").split()
        if not tags:
            return "the beginning", head
        since = tags[0]
    # Resolved first, so that nothing a person types can be taken for an option of git.
    start = _git(repo, "rev-parse", "--verify", "--end-of-options", f"{since}^{{commit}}").strip()
    return since, f"{start}..{head}"


@snaprt.tool(effect="read")
def read_messages(repo: str, commits: str) -> str:
    """Hash, author, subject and body of each commit."""
    form = f"--format=%H{_FIELD}%an{_FIELD}%s{_FIELD}%b{_COMMIT}"
    return _git(repo, "log", "--no-merges", form, commits, "--")


@snaprt.tool(effect="read")
def read_changes(repo: str, commits: str) -> dict[str, tuple[int, int, int]]:
    """Files, lines added and lines removed, by hash."""
    changes: dict[str, tuple[int, int, int]] = {}
    for entry in _git(repo, "log", "--no-merges", "--numstat", f"--format={_COMMIT}%H", commits, "--").split(
        _COMMIT
    )[1:]:
        name, *lines = entry.split("\n")
        counts = [line.split("\t") for line in lines if line]
        changes[name] = (
            len(counts),
            sum(int(added) for added, _, _ in counts if added != "-"),  # "-" is a binary file
            sum(int(removed) for _, removed, _ in counts if removed != "-"),
        )
    return changes


@snaprt.tool(effect="read")
def read_known_authors(repo: str, commits: str) -> set[str]:
    """Who had committed before this span; nobody, if it starts at the beginning."""
    start, dots, _ = commits.partition("..")
    return set(_git(repo, "log", "--format=%an", start, "--").split("\n")) - {""} if dots else set()


@snaprt.tool(effect="read")
def configured_model() -> str | None:
    """The model to draft with, or None where no endpoint is configured."""
    url, _, model = _endpoint()
    return model if url else None


@snaprt.tool(effect="read")
def ask_model(prompt: str, text: str) -> str:
    """One chat completion. A failing endpoint is a ConnectionError with its reason."""
    url, key, model = _endpoint()
    body = {
        "model": model,
        "messages": [{"role": "system", "content": prompt}, {"role": "user", "content": text}],
    }
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    request = urllib.request.Request(
        f"{url.rstrip('/')}/chat/completions", json.dumps(body).encode(), headers
    )
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            return str(json.load(response)["choices"][0]["message"]["content"]).strip()
    except urllib.error.HTTPError as error:
        reason = f"{error.code} {error.reason}: {error.read(300).decode(errors='replace')}"
    except (OSError, ValueError, LookupError, TypeError) as error:
        reason = f"{type(error).__name__}: {error}"
    # Raised outside of the handlers: urllib's exceptions hold the open response.
    raise ConnectionError(f"{url}: {reason}")


def _endpoint() -> tuple[str, str, str]:
    of = os.environ.get
    url = of("SNAPRT_LLM_URL")
    if url:
        return url, of("SNAPRT_LLM_KEY", ""), of("SNAPRT_LLM_MODEL", "default")
    url, key = of("OPENAI_BASE_URL", ""), of("OPENAI_API_KEY", "")
    return (url if key else ""), key, of("OPENAI_MODEL", "gpt-4.1-mini")


@snaprt.tool(effect="idempotent")
def write_file(path: str, text: str) -> int:
    """Put `text` at `path`, whole or not at all; doing it twice changes nothing. Returns its bytes."""
    data = text.encode()
    part = Path(f"{path}.part")
    part.write_bytes(data)
    part.replace(path)
    return len(data)


# --- the agent's own thinking: plain code, no decorators ----------------------------------------------


@dataclass(frozen=True)
class Commit:
    """One commit, as the notes need it."""

    hash: str
    author: str
    group: str
    text: str
    breaking: bool

    @property
    def line(self) -> str:
        mark = "**breaking:** " if self.breaking else ""
        return f"- {mark}{self.text} ({self.hash[:7]})"


def parse(messages: str) -> list[Commit]:
    """The commits in what `read_messages` gives, the newest first."""
    commits = []
    for entry in messages.split(_COMMIT):
        if not entry.strip():
            continue
        name, author, subject, body = entry.strip("\n").split(_FIELD, 3)
        match = _CONVENTIONAL.fullmatch(subject)
        if match and group_of(match["kind"]) != OTHER:
            text, kind = match["text"], match["kind"]
            if match["scope"]:
                text = f"{match['scope']}: {text}"
        else:
            match, text, kind = None, subject, subject.split(" ")[0]
        breaking = "BREAKING CHANGE" in body or bool(match and match["breaking"])
        commits.append(Commit(name, author, group_of(kind), text[:1].upper() + text[1:], breaking))
    return commits


def group_of(word: str) -> str:
    """The group that a conventional prefix or a subject's first word belongs to."""
    return next((group for group, words in GROUPS.items() if word.lower() in words.split()), OTHER)


def draft_notes(
    since: str, commits: Sequence[Commit], changes: dict[str, tuple[int, int, int]], new: Iterable[str]
) -> str:
    """The notes as Markdown, by plain code."""
    parts = [f"# Changes since {since}"]
    files, added, removed = (sum(change[index] for change in changes.values()) for index in range(3))
    authors = sorted({commit.author for commit in commits})
    parts.append(
        f"{len(commits)} commits by {', '.join(authors)}: "
        f"{files} file changes, {added} lines added, {removed} removed."
    )
    breaking = [commit.line for commit in commits if commit.breaking]
    if breaking:
        parts.append("## Breaking\n\n" + "\n".join(breaking))
    for group in (*GROUPS, OTHER):
        lines = [commit.line for commit in commits if commit.group == group and not commit.breaking]
        if lines:
            parts.append(f"## {group}\n\n" + "\n".join(lines))
    newcomers = sorted(new)
    if newcomers:
        parts.append(f"First contributions: {', '.join(newcomers)}.")
    return "\n\n".join(parts) + "\n"


@snaprt.agent(rules={"prompt": PROMPT})
async def release_notes(repo: str = ".", since: str | None = None, out: str = "RELEASE_NOTES.md") -> str:
    """Read, group, draft, ask, write. Returns what was done, in a sentence."""
    plan = snaprt.plan("read", "draft", "review", "write")
    plan.start("read")
    repo, out = await locate(repo, out)
    name, commit_range = await span(repo, since)
    async with asyncio.TaskGroup() as group:
        messages = group.create_task(read_messages(repo, commit_range))
        sizes = group.create_task(read_changes(repo, commit_range))
        known = group.create_task(read_known_authors(repo, commit_range))
    commits = parse(messages.result())
    plan.done("read")
    if not commits:
        return f"There are no commits since {name}; nothing was written."

    plan.start("draft")
    newcomers = {commit.author for commit in commits} - known.result() if known.result() else set()
    notes = draft_notes(name, commits, sizes.result(), newcomers)
    remarks = []
    model = await configured_model()
    if model is not None:
        try:
            summary = await ask_model(snaprt.rules()["prompt"], notes)
            heading, rest = notes.split("\n\n", 1)
            notes = f"{heading}\n\n{summary}\n\n{rest}"
        except ConnectionError as error:
            remarks.append(f"The model {model} couldn't be asked ({error}); this is the plain draft.")
    plan.done("draft")

    plan.start("review")
    while True:
        answer = await snaprt.suspend(
            {
                "question": f"Write these notes on {len(commits)} commits to {out}?",
                "notes": notes,
                "answers": ANSWERS,
                **({"remarks": remarks} if remarks else {}),
            }
        )
        match answer:
            case {"approved": False} | False:
                return "The notes were turned down; nothing was written."
            case {"notes": str(edited)}:
                notes = edited if edited.endswith("\n") else edited + "\n"
                break
            case {"approved": True} | True:
                break
            case {"ignore": [*groups]}:
                left_out = {str(group) for group in groups}
                commits = [commit for commit in commits if commit.group not in left_out]
                shown = {commit.hash: sizes.result()[commit.hash] for commit in commits}
                notes = draft_notes(name, commits, shown, newcomers & {commit.author for commit in commits})
                remarks = [f"Left out: {', '.join(sorted(left_out))}."]
            case _:
                remarks = [f"The answer {answer!r} wasn't understood."]
    plan.done("review")

    plan.start("write")
    count = await write_file(out, notes)
    plan.done("write")
    return f"Wrote {count} bytes of notes on {len(commits)} commits since {name} to {out}."
