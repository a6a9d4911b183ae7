"""Which modules of the `test` package are measured, and which way.

A module that an installation doesn't have is left out, and the report says so.
"""

from __future__ import annotations

import importlib.util

# Generators, coroutines and async generators, and what stands on their stacks.
AS_WRITTEN = (
    "test_generators",
    "test_yield_from",
    "test_generator_stop",
    "test_genexps",
    "test_listcomps",
    "test_setcomps",
    "test_unpack_ex",
    "test_coroutines",
    "test_asyncgen",
    "test_with",
    "test_contextlib",
    "test_contextlib_async",
    "test_exceptions",
    "test_raise",
    "test_frame",
    "test_iter",
    "test_context",
    "test_asyncio.test_context",
    "test_asyncio.test_eager_task_factory",
    "test_asyncio.test_futures",
    "test_asyncio.test_futures2",
    "test_asyncio.test_locks",
    "test_asyncio.test_pep492",
    "test_asyncio.test_queues",
    "test_asyncio.test_runners",
    "test_asyncio.test_staggered",
    "test_asyncio.test_taskgroups",
    "test_asyncio.test_tasks",
    "test_asyncio.test_timeouts",
    "test_asyncio.test_waitfor",
)

# What a frame can stand in the middle of, in tests that hardly suspend by themselves.
STRETCHED = (
    "test_except_star",
    "test_with",
    "test_contextlib",
    "test_exceptions",
    "test_raise",
    "test_patma",
    "test_listcomps",
    "test_dictcomps",
    "test_named_expressions",
    "test_super",
    "test_scope",
    "test_asyncgen",
)

# Test methods that are coroutine functions. (The other modules of test_asyncio bring loops of their own, with
# a time of their own, and are measured as written.)
AGENT_LOOP = (
    "test_asyncio.test_futures2",
    "test_asyncio.test_locks",
    "test_asyncio.test_queues",
    "test_asyncio.test_staggered",
    "test_asyncio.test_taskgroups",
    "test_asyncio.test_threads",
    "test_asyncio.test_timeouts",
    "test_asyncio.test_waitfor",
)

# The same, in whose tests a turn of the loop between two statements changes nothing.
AGENT_LOOP_STRETCHED = (
    "test_contextlib_async",
    "test_asyncio.test_locks",
    "test_asyncio.test_queues",
    "test_asyncio.test_staggered",
    "test_asyncio.test_taskgroups",
    "test_asyncio.test_timeouts",
    "test_asyncio.test_waitfor",
)

MODULES = {
    "as written": AS_WRITTEN,
    "stretched": STRETCHED,
    "agent loop": AGENT_LOOP,
    "agent loop, stretched": AGENT_LOOP_STRETCHED,
}


def installed(module: str) -> bool:
    """Whether this interpreter's installation has `test.<module>`."""
    try:
        return importlib.util.find_spec(f"test.{module}") is not None
    except ModuleNotFoundError:
        return False
