"""Another process for the runtime's tests: start or resume a run, print how it ended as JSON.

python -m tests.runtime.process start URL RUN module:function JSON-arguments
python -m tests.runtime.process resume URL RUN
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
from typing import Any

import anyio

import snaprt


async def main(verb: str, url: str, run: str, *rest: str) -> None:
    async with snaprt.Runtime(url) as rt:
        if verb == "start":
            module, _, function = rest[0].partition(":")
            agent = getattr(importlib.import_module(module), function)
            outcome: Any = await (await rt.start(agent, *json.loads(rest[1]), run_id=run)).outcome()
        else:
            outcome = await (await rt.resume(run)).outcome()
    print(json.dumps({"outcome": type(outcome).__name__, **dataclasses.asdict(outcome)}, default=repr))


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
