"""Research in a folder of text: search and read in parallel, ask two things at once, sleep on it, report.

Each term of the question is searched for by a task of its own, then each source that was found is read
and summed up by one. Two questions are open at the same time (which sources to leave out, and how long
the report is to be), answered in any order; then the run sleeps, for a second or a week, and writes. At
every one of these moments it may leave the process and go on in another.

    snaprt run examples/research.py:research question="how are answers signed" folder=docs --run-id r1
    snaprt watch r1
    snaprt resume r1 --suspension leave-out --answer '["guide.md"]'
    snaprt resume r1 --suspension length --answer '"short"'

Sources are summed up by plain code: the sentences that say most about the question. If an
OpenAI-compatible endpoint is configured (`SNAPRT_LLM_URL` with `SNAPRT_LLM_KEY` and `SNAPRT_LLM_MODEL`),
a model does it; the key is read inside the tool that needs it, so it never becomes part of the state.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import urllib.error
import urllib.request
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import snaprt

PROMPT = "Say in at most three plain sentences what the text says about the question. Invent nothing."
SUFFIXES = {".md", ".rst", ".txt", ".py"}
LARGEST = 1_000_000  # bytes: what is longer isn't written for people
SOURCES = 5
COMMON = re.compile(
    "an?|and|are|as|at|be|by|do(es)?|for|from|how|in|is|it|of|on|or|that|the|to|what|when|who|why|with"
)


# --- tools: everything that touches the world -----------------------------------------------------


@snaprt.tool(effect="read")
def locate(folder: str, out: str) -> tuple[str, str]:
    """Both paths, absolute: the run may go on from elsewhere."""
    top = Path(folder).expanduser().resolve()
    if not top.is_dir():
        raise NotADirectoryError(str(top))
    return str(top), str(Path(out).expanduser().resolve())


@snaprt.tool(effect="read")
def search(folder: str, term: str) -> dict[str, int]:
    """How often each file below the folder has the term, where it does."""
    found: dict[str, int] = {}
    paths = [path for path in sorted(Path(folder).rglob("*")) if path.suffix in SUFFIXES and path.is_file()]
    for number, path in enumerate(paths, 1):
        if path.stat().st_size <= LARGEST:
            count = path.read_text(errors="replace").lower().count(term)
            if count:
                found[str(path.relative_to(folder))] = count
        if number % 100 == 0:
            snaprt.emit({"term": term, "searched": number, "of": len(paths)})
    return found


@snaprt.tool(effect="read")
def read(folder: str, name: str) -> str:
    """A source's text."""
    return (Path(folder) / name).read_text(errors="replace")


@snaprt.tool(effect="read", timeout=120)
def sum_up(question: str, text: str) -> str | None:
    """What a model says of a source, or None where no endpoint is configured or it fails."""
    url = os.environ.get("SNAPRT_LLM_URL")
    if not url:
        return None
    body = {
        "model": os.environ.get("SNAPRT_LLM_MODEL", "default"),
        "messages": [
            {"role": "system", "content": PROMPT},
            {"role": "user", "content": f"{question}\n\n{text[:20_000]}"},
        ],
    }
    key = os.environ.get("SNAPRT_LLM_KEY")
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    request = urllib.request.Request(
        f"{url.rstrip('/')}/chat/completions", json.dumps(body).encode(), headers
    )
    try:
        with urllib.request.urlopen(request, timeout=100) as response:
            return str(json.load(response)["choices"][0]["message"]["content"]).strip()
    except (OSError, ValueError, LookupError, TypeError) as error:
        snaprt.emit({"model": f"{type(error).__name__}: {error}"})
        return None


@snaprt.tool(effect="idempotent")
def write_file(path: str, text: str) -> int:
    """Put `text` at `path`, whole or not at all; doing it twice changes nothing. Returns its bytes."""
    data = text.encode()
    part = Path(f"{path}.part")
    part.write_bytes(data)
    part.replace(path)
    return len(data)


# --- the agent's own thinking: plain code, no decorators ------------------------------------------


@dataclass(frozen=True)
class Source:
    """A file that was read, and the sentences of it that matter."""

    name: str
    summary: list[str]


def terms_of(question: str) -> list[str]:
    """The words of a question that are worth a search, each once."""
    words = re.findall(r"[a-z0-9_-]{2,}", question.lower())
    return list(dict.fromkeys(word for word in words if not COMMON.fullmatch(word)))


def best(hits: list[dict[str, int]]) -> list[str]:
    """The files that have the most terms, and of these the ones that have them most often."""
    terms: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for found in hits:
        terms.update(found.keys())
        times.update(found)
    return sorted(terms, key=lambda name: (-terms[name], -times[name], name))[:SOURCES]


def sentences(text: str, terms: list[str], count: int = 4) -> list[str]:
    """The sentences that have the most terms, in their order."""
    plain = re.sub(r"\s+", " ", text)
    all_of_them = [each.strip() for each in re.split(r"(?<=[.!?])\s", plain) if 20 < len(each) < 400]
    scores = {each: sum(term in each.lower() for term in terms) for each in dict.fromkeys(all_of_them)}
    chosen = sorted((each for each in scores if scores[each]), key=lambda each: -scores[each])[:count]
    return [each for each in scores if each in chosen]


def report(question: str, sources: list[Source], length: str) -> str:
    """The report as Markdown."""
    parts = [f"# {question}"]
    for source in sources:
        lines = source.summary[:1] if length == "short" else source.summary
        parts.append(f"## {source.name}\n\n" + "\n".join(f"- {line}" for line in lines))
    return "\n\n".join(parts) + "\n"


async def study(folder: str, name: str, question: str, terms: list[str]) -> Source:
    """Read one source and sum it up."""
    text = await read(folder, name)
    said = await sum_up(question, text)
    snaprt.emit({"read": name})
    return Source(name, [said] if said else sentences(text, terms))


@snaprt.agent(rules={"prompt": PROMPT})
async def research(question: str, folder: str = ".", out: str = "REPORT.md", rest: float = 1.0) -> str:
    """Search, read, ask, sleep for `rest` seconds, write. Returns what was done, in a sentence."""
    plan = snaprt.plan("search", "read", "ask", "sleep on it", "write")
    terms = terms_of(question)
    async with plan.step("search"):
        folder, out = await locate(folder, out)
        async with asyncio.TaskGroup() as group:
            searches = [group.create_task(search(folder, term)) for term in terms]
        names = best([task.result() for task in searches])
        snaprt.emit({"found": names})
    if not names:
        return f"Nothing in {folder} is about {question!r}; nothing was written."

    async with plan.step("read"), asyncio.TaskGroup() as group:
        studies = [group.create_task(study(folder, name, question, terms)) for name in names]
    sources = [task.result() for task in studies]

    async with plan.step("ask"), asyncio.TaskGroup() as group:
        without = group.create_task(
            snaprt.suspend(
                {"text": "Which of these to leave out?", "sources": names}, answer=list[str], name="leave-out"
            )
        )
        length = group.create_task(
            snaprt.suspend({"text": "How long?"}, answer=Literal["short", "long"], name="length")
        )
    sources = [source for source in sources if source.name not in without.result()]

    async with plan.step("sleep on it"):
        await asyncio.sleep(rest)

    async with plan.step("write"):
        count = await write_file(out, report(question, sources, length.result()))
    snaprt.emit({"written": count})
    return f"Wrote {count} bytes from {len(sources)} sources to {out}."
