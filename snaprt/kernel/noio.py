"""Everything an event loop can do that an agent loop doesn't: a table of names, each with its mend.

The agent loop does no I/O, has no threads and doesn't run itself. Whoever asks for such a thing gets
`NotInAgent` at once, with the line that asked and what to do instead, rather than a state that can't
be saved later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NoReturn, TypeVar

from snaprt.errors import NotInAgent
from snaprt.kernel.whereabouts import calling_line

LoopT = TypeVar("LoopT", bound=asyncio.AbstractEventLoop)

_NETWORK = "opens or uses the network"
_PROCESS = "starts a process or uses its pipes"
_THREAD = "runs code in a thread"
_WATCH = "watches a file descriptor"
_SIGNAL = "handles signals"
_DRIVE = "drives the loop"

REFUSED: dict[str, str] = {
    "create_connection": _NETWORK,
    "create_server": _NETWORK,
    "create_unix_connection": _NETWORK,
    "create_unix_server": _NETWORK,
    "create_datagram_endpoint": _NETWORK,
    "connect_accepted_socket": _NETWORK,
    "start_tls": _NETWORK,
    "sendfile": _NETWORK,
    "getaddrinfo": _NETWORK,
    "getnameinfo": _NETWORK,
    "sock_recv": _NETWORK,
    "sock_recv_into": _NETWORK,
    "sock_recvfrom": _NETWORK,
    "sock_recvfrom_into": _NETWORK,
    "sock_sendall": _NETWORK,
    "sock_sendto": _NETWORK,
    "sock_connect": _NETWORK,
    "sock_accept": _NETWORK,
    "sock_sendfile": _NETWORK,
    "connect_read_pipe": _PROCESS,
    "connect_write_pipe": _PROCESS,
    "subprocess_shell": _PROCESS,
    "subprocess_exec": _PROCESS,
    "add_reader": _WATCH,
    "remove_reader": _WATCH,
    "add_writer": _WATCH,
    "remove_writer": _WATCH,
    "run_in_executor": _THREAD,
    "set_default_executor": _THREAD,
    "add_signal_handler": _SIGNAL,
    "remove_signal_handler": _SIGNAL,
    "run_forever": _DRIVE,
    "run_until_complete": _DRIVE,
    "stop": _DRIVE,
    "close": _DRIVE,
}
"""Method of `asyncio.AbstractEventLoop` → what it does that an agent loop doesn't."""

_MEND = {
    _DRIVE: "The runtime drives it; await what you need instead.",
    _SIGNAL: "Signals belong to the process that hosts the run, which may be another one tomorrow.",
}
_MAKE_IT_A_TOOL = "Make it a tool (@snaprt.tool), or use `await snaprt.step(fn, *args)`."


def refuse(name: str) -> NoReturn:
    """Raise `NotInAgent` for a loop method, naming the agent's line."""
    does = REFUSED[name]
    raise NotInAgent(
        f"{calling_line()}: `{name}` {does}, which agent code can't do on the agent loop. "
        f"{_MEND.get(does, _MAKE_IT_A_TOOL)}"
    )


def _refusing(name: str) -> Callable[..., NoReturn]:
    def method(self: object, *args: object, **kwargs: object) -> NoReturn:
        refuse(name)

    method.__name__ = name
    method.__qualname__ = f"AgentLoop.{name}"
    method.__doc__ = f"Refused: {REFUSED[name]}."
    return method


def without_io(loop: type[LoopT]) -> type[LoopT]:
    """Class decorator: give the loop a refusing method for every name in `REFUSED`."""
    for name in REFUSED:
        setattr(loop, name, _refusing(name))
    return loop
