"""The kernel: an agent as a state machine without I/O, on an event loop that can be saved.

Floor 2. Events in, commands out (`events`); the loop agents run on (`loop`, `tasks`); what agents call
(`operations`); one run of them all (`kernel`). It knows frames and states below it, and no
store, runtime or host loop above.
"""

from snaprt.kernel.events import (
    Answer,
    Ask,
    Call,
    Cancel,
    CancelCall,
    Close,
    Closed,
    Command,
    Done,
    Effect,
    Event,
    Message,
    Mistaken,
    NotDone,
    Open,
    Opened,
    Refused,
    Result,
    Unknown,
)
from snaprt.kernel.kernel import Kernel, Status
from snaprt.kernel.loop import AgentLoop
from snaprt.kernel.operations import agent, plan, rules, step, tool
from snaprt.kernel.plan import Plan, PlanStep
from snaprt.kernel.steps import Step, Suspension
from snaprt.kernel.waiting import Inbox, child, emit, inbox, sleep_until, suspend

__all__ = [
    "AgentLoop",
    "Answer",
    "Ask",
    "Call",
    "Cancel",
    "CancelCall",
    "Close",
    "Closed",
    "Command",
    "Done",
    "Effect",
    "Event",
    "Inbox",
    "Kernel",
    "Message",
    "Mistaken",
    "NotDone",
    "Open",
    "Opened",
    "Plan",
    "PlanStep",
    "Refused",
    "Result",
    "Status",
    "Step",
    "Suspension",
    "Unknown",
    "agent",
    "child",
    "emit",
    "inbox",
    "plan",
    "rules",
    "sleep_until",
    "step",
    "suspend",
    "tool",
]
