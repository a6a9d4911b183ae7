"""Whatever code of users raises is its own failure; the process and its other runs go on."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pydantic
import pytest

import snaprt
from snaprt.runtime.worker import Look
from tests.store.held import KEYRING, Held

pytestmark = pytest.mark.anyio


class Stop(BaseException):
    """A library's way to leave, as pytest's `Exit` is."""


RAISED = {
    "stop": lambda: Stop("mine"),
    "group": lambda: BaseExceptionGroup("several", [KeyboardInterrupt(), Stop("x")]),
    "ctrl-c": KeyboardInterrupt,
    "closed": GeneratorExit,
    "cancelled": lambda: asyncio.CancelledError("mine"),
    "exit": lambda: SystemExit(3),
}
CAUGHT = {
    "stop": "Stop: mine",
    "group": "BaseExceptionGroup: several (2 sub-exceptions)",
    "ctrl-c": "CallFailed: {0} raised KeyboardInterrupt.",
    "closed": "CallFailed: {0} raised GeneratorExit.",
    "cancelled": "CallFailed: {0} was cancelled from inside.",
    "exit": "SystemExit: 3",
}


@snaprt.tool(effect="read")
async def fails(what: str) -> None:
    raise RAISED[what]()


@snaprt.tool(effect="read")
def fails_in_a_thread(what: str) -> None:
    raise RAISED[what]()


@snaprt.tool(effect="read", retries=1, timeout=30)
async def fails_patiently(what: str) -> None:
    raise RAISED[what]()


@snaprt.tool(effect="read")
async def works() -> str:
    return "worked"


async def catches(tool: Any, what: str) -> tuple[str, str]:
    try:
        await tool(what)
    except BaseException as error:
        caught = f"{type(error).__name__}: {error}"
    return caught, await works()


@snaprt.resource("test.opens_with")
def opens_with(what: str) -> None:
    raise RAISED[what]()


async def opens(what: str) -> tuple[str, str]:
    try:
        await opens_with(what)
    except BaseException as error:
        caught = f"{type(error).__name__}: {error}"
    return caught, await works()


async def raises(what: str) -> None:
    raise RAISED[what]()


async def raises_in_a_task(what: str) -> None:
    async with asyncio.TaskGroup() as inner, asyncio.TaskGroup() as outer:
        inner.create_task(raises(what))
        outer.create_task(asyncio.sleep(3600))


@pytest.mark.parametrize("what", list(RAISED))
@pytest.mark.parametrize("tool", [fails, fails_in_a_thread, fails_patiently])
async def test_whatever_a_tool_raises_is_raised_at_its_await(url: str, tool: Any, what: str) -> None:
    async with snaprt.Runtime(url) as rt:
        with anyio.fail_after(30):
            outcome = await (await rt.start(catches, tool, what, run_id="r")).outcome()
    assert isinstance(outcome, snaprt.Completed)
    caught, worked = outcome.value
    name = f"{tool.__name__} (step 1)" if tool is not fails_in_a_thread else tool.__name__
    assert (caught, worked) == (CAUGHT[what].format(name), "worked")


@pytest.mark.parametrize("what", list(RAISED))
async def test_whatever_a_resource_raises_is_raised_where_it_is_opened(url: str, what: str) -> None:
    async with snaprt.Runtime(url) as rt:
        outcome = await (await rt.start(opens, what, run_id="r")).outcome()
    assert isinstance(outcome, snaprt.Completed)
    assert outcome.value == (CAUGHT[what].format("the resource opens_with"), "worked")


@pytest.mark.parametrize("agent", [raises, raises_in_a_task])
@pytest.mark.parametrize("what", ["stop", "group", "ctrl-c", "closed", "exit"])
async def test_whatever_an_agent_raises_ends_its_run_and_no_other(url: str, agent: Any, what: str) -> None:
    async with snaprt.Runtime(url) as rt:
        other = await rt.start(waits, run_id="other")
        failed = await (await rt.start(agent, what, run_id="r")).outcome()
        assert isinstance(failed, snaprt.Failed)
        assert (await rt.show("r")).status == "failed"
        await rt.answer("other", True)
        assert await (await rt.resume("other")).outcome() == snaprt.Completed("other", True)
    assert isinstance(await other.outcome(), snaprt.Suspended)


async def waits() -> Any:
    return await snaprt.suspend("well?", answer=bool)


def asked_of(key: str, what: str) -> Any:
    raise RAISED[what]()


@snaprt.tool(reconcile=asked_of, timeout=0.01)
async def never_answers(what: str) -> None:
    await anyio.sleep(3600)


async def doubts(what: str) -> Any:
    return await never_answers(what)


@pytest.mark.parametrize("what", list(RAISED))
async def test_whatever_a_reconcile_hook_raises_leaves_the_question_to_a_person(url: str, what: str) -> None:
    async with snaprt.Runtime(url) as rt:
        asleep = await (await rt.start(doubts, what, run_id="r")).outcome()
        assert isinstance(asleep, snaprt.Suspended)
        assert "reconcile raised " in asleep.waiting[0].payload["in_doubt"]["note"]
        await rt.answer("r", {"done": "yes"})
        assert await (await rt.resume("r")).outcome() == snaprt.Completed("r", "yes")


class Picky(pydantic.BaseModel):
    what: str

    @pydantic.field_validator("what")
    @classmethod
    def checks(cls, what: str) -> str:
        if what in RAISED:
            raise RAISED[what]()
        return what


async def asks_picky() -> str:
    answer: Picky = await snaprt.suspend("which?", answer=Picky)
    return answer.what


@pytest.mark.parametrize("what", list(RAISED))
async def test_whatever_a_validator_raises_is_a_wrong_answer(url: str, what: str) -> None:
    async with snaprt.Runtime(url) as rt:
        await (await rt.start(asks_picky, run_id="r")).outcome()
        await rt.answer("r", {"what": what})
        asleep = await (await rt.resume("r")).outcome()
        assert isinstance(asleep, snaprt.Suspended)
        assert asleep.waiting[0].refused
        await rt.answer("r", {"what": "fine"})
        assert await (await rt.resume("r")).outcome() == snaprt.Completed("r", "fine")


CTRL_C = """
import asyncio, signal, sys
import anyio
import snaprt

@snaprt.tool(effect="read")
async def interrupted():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.raise_signal(signal.SIGINT)
    await anyio.sleep(3600)

async def by_a_tool():
    try:
        await interrupted()
    except BaseException as error:
        return repr(error)

async def itself():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.raise_signal(signal.SIGINT)
    return "went on"

async def main():
    async with snaprt.Runtime(sys.argv[1]) as rt:
        print(await (await rt.start(globals()[sys.argv[3]])).outcome())

try:
    anyio.run(main, backend=sys.argv[2])
except KeyboardInterrupt:
    print("stopped")
except BaseExceptionGroup as group:
    print("stopped" if group.subgroup(KeyboardInterrupt) else group)
"""


@pytest.mark.parametrize("agent", ["by_a_tool", "itself"])
def test_a_ctrl_c_stops_the_process_whatever_code_it_comes_out_of(
    tmp_path: Path, agent: str, anyio_backend: str
) -> None:
    script = tmp_path / "script.py"
    script.write_text(CTRL_C)
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "store"), anyio_backend, agent],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(Path(snaprt.__file__).parent.parent)},
    )
    assert done.stdout.splitlines()[-1:] == ["stopped"], done.stderr


LEAVES = """
import os
import snaprt

if os.environ.get("LEAVES"):
    raise {error}

async def agent():
    return await snaprt.suspend("well?", name="q")
"""


@pytest.mark.parametrize("error", ["SystemExit(3)", "KeyboardInterrupt", "GeneratorExit", "SyntaxError('x')"])
async def test_a_worker_survives_a_module_that_leaves_at_its_import(
    held: Held, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    name = f"leaves_{error[:4].lower()}_{tmp_path.name[-1]}"
    (tmp_path / f"{name}.py").write_text(LEAVES.format(error=error))
    monkeypatch.syspath_prepend(str(tmp_path))

    def runtime() -> snaprt.Runtime:
        return snaprt.Runtime("held://store", keyring=KEYRING, lease=0.2, distant=0.1)

    async with runtime() as rt:
        await (await rt.start(__import__(name).agent, run_id="bad")).outcome()
        await (await rt.start(waits, run_id="good")).outcome()
        await rt.answer("bad", True)
        await rt.answer("good", True)
    del sys.modules[name]
    monkeypatch.setenv("LEAVES", "1")
    looks: list[Look] = []
    async with runtime() as rt, anyio.create_task_group() as group:
        group.start_soon(lambda: rt.work(poll=0.05, tell=looks.append))
        with anyio.fail_after(30):
            while {look.run for look in looks if look.kind != "took"} != {"good", "bad"}:
                await anyio.sleep(0.01)
        rt.drain()
    refused = [look for look in looks if look.run == "bad"]
    assert [look.kind for look in refused] == ["failed"]
    assert error.partition("(")[0] in f"{type(refused[0].error).__name__} {refused[0].error}"
    assert [look.outcome for look in looks if look.run == "good"][-1] == snaprt.Completed("good", True)


@pytest.mark.parametrize("error", ["SystemExit(3)", "KeyboardInterrupt", "GeneratorExit", "ValueError('x')"])
async def test_a_worker_says_which_module_of_agents_cant_be_imported(
    held: Held, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    (tmp_path / "never_there.py").write_text(f"raise {error}")
    monkeypatch.syspath_prepend(str(tmp_path))
    async with snaprt.Runtime("held://store", keyring=KEYRING) as rt:
        with pytest.raises(snaprt.UsageError, match=r"'never_there' of agents.*raised .*never_there\.py:1"):
            await rt.work(agents=["never_there"])
