"""Take an agent one event further in a process of its own: load, deliver, advance, save, exit.

    python -m tests.frameworks.hop FILE module:agent       # the first hop starts the agent
    python -m tests.frameworks.hop FILE module:agent       # every further one goes on

Tools are really called, questions are answered by `answer_of` of the agent's module. Prints "more", or
the value that the agent returned as JSON. `hop` does the same in one process, saving nothing.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import sys
from pathlib import Path
from typing import Any

from snaprt.kernel import Answer, Call, Kernel, Result


def begin(target: str) -> Kernel:
    """The agent at its first idle moment."""
    module, _, name = target.partition(":")
    kernel = Kernel("hops", {})
    kernel.start(getattr(importlib.import_module(module), name), ())
    kernel.advance()
    return kernel


def hop(kernel: Kernel, target: str) -> None:
    """Deliver the oldest thing that is waited for, and go on to the next idle moment."""
    calls = kernel.pending_calls()
    if calls:
        kernel.deliver(Result(calls[0].step, value=carry_out(calls[0])))
    else:
        suspension = next(iter(kernel.open_suspensions().values()))
        answer_of = importlib.import_module(target.partition(":")[0]).answer_of
        kernel.deliver(Answer(suspension.id, answer_of(suspension.payload), "test"))
    kernel.advance()


def carry_out(call: Call) -> Any:
    kwargs = dict(call.kwargs)
    if call.pass_key:
        kwargs["idempotency_key"] = call.key
    value = call.fn(*call.args, **kwargs)
    if not inspect.isawaitable(value):
        return value

    async def wait() -> Any:
        return await value

    return asyncio.run(wait())


def main(file: str, target: str) -> None:
    importlib.import_module(target.partition(":")[0])
    path = Path(file)
    if path.exists():
        kernel = Kernel.load([path.read_bytes()])
        hop(kernel, target)
    else:
        kernel = begin(target)
    if kernel.status == "running":
        path.write_bytes(bytes(kernel.save()))
        kernel.release()
        print("more")
        return
    assert kernel.status == "completed", kernel.error
    print(json.dumps(kernel.value))


if __name__ == "__main__":
    main(*sys.argv[1:])
