"""snaprt: an asyncio snapshot runtime with full-state serialisation.

Write an agent as plain asyncio; snaprt suspends it with its whole state at a URL and rehydrates it in
any process, exactly where it stood. What stands in `__all__` is the public surface; nothing else is
promised.
"""

from snaprt import errors
from snaprt.errors import (
    AlreadyAnswered,
    CallFailed,
    CodeChanged,
    Damaged,
    Diverged,
    Fenced,
    MissingExtra,
    MissingKey,
    NotCapturable,
    NotInAgent,
    NotRestorable,
    NotSerialisable,
    OutsideAgent,
    Rejected,
    ResourceUnavailable,
    RulesChanged,
    RunBusy,
    RunExists,
    SnaprtError,
    Stalled,
    StoreError,
    UnknownRun,
    UnknownSuspension,
    UnsupportedInterpreter,
    UsageError,
    WrongKey,
)
from snaprt.kernel import Done, NotDone, Plan, Unknown, agent, plan, rules, step, suspend, tool
from snaprt.records import Keyring
from snaprt.runtime import (
    Cancelled,
    Completed,
    Failed,
    Look,
    Outcome,
    Reindexed,
    Run,
    RunInfo,
    Runtime,
    Suspended,
    Waiting,
)
from snaprt.state import dumps, loads, release
from snaprt.state.handles import register_handle
from snaprt.state.resources import resource

__version__ = "0.1.0"

__all__ = [
    "AlreadyAnswered",
    "CallFailed",
    "Cancelled",
    "CodeChanged",
    "Completed",
    "Damaged",
    "Diverged",
    "Done",
    "Failed",
    "Fenced",
    "Keyring",
    "Look",
    "MissingExtra",
    "MissingKey",
    "NotCapturable",
    "NotDone",
    "NotInAgent",
    "NotRestorable",
    "NotSerialisable",
    "Outcome",
    "OutsideAgent",
    "Plan",
    "Reindexed",
    "Rejected",
    "ResourceUnavailable",
    "RulesChanged",
    "Run",
    "RunBusy",
    "RunExists",
    "RunInfo",
    "Runtime",
    "SnaprtError",
    "Stalled",
    "StoreError",
    "Suspended",
    "Unknown",
    "UnknownRun",
    "UnknownSuspension",
    "UnsupportedInterpreter",
    "UsageError",
    "Waiting",
    "WrongKey",
    "agent",
    "dumps",
    "errors",
    "loads",
    "plan",
    "register_handle",
    "release",
    "resource",
    "rules",
    "step",
    "suspend",
    "tool",
]
