"""A faulty network in front of an S3 server, and the command that drives many runs through it.

    python -m tests.crash.proxy --runs 500 --seed 1

`Proxy` passes requests on as they are (their signatures hold) and spoils some, by its dice:

- late: waits before it passes one on;
- busy: answers 503 SlowDown, and passes nothing on;
- cut: passes half of the request on and hangs up, on both sides;
- lost: passes the request on and hangs up instead of answering: a write has happened, and nobody says so;
- torn: sends half of the answer and hangs up.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import logging
import os
import random
import socket
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from urllib.parse import urlsplit

import snaprt
from examples import refund
from tests.crash.lives import Place, bucket
from tests.crash.service import Service, payments

FAULTS = ("late", "busy", "cut", "lost", "torn")
_BUSY = (
    b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Please reduce your rate.</Message></Error>"
)
_HOP = {"connection", "keep-alive", "transfer-encoding"}  # between two parties only (RFC 9110, 7.6.1)


class _Relay(BaseHTTPRequestHandler):
    """One connection of a client. Any method, any path, byte for byte."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def handle_one_request(self) -> None:
        # A client that was cut off hangs up in turn; that is what this is for.
        with contextlib.suppress(ConnectionError, TimeoutError):
            super().handle_one_request()
            return
        self.close_connection = True

    def _relay(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.server.proxy.fault()
        if fault == "late":
            sleep(self.server.proxy.delay)
        elif fault == "busy":
            return self._answer(503, {"Content-Type": "application/xml"}, _BUSY)
        elif fault == "cut":
            self._half(body)
            return self._hang_up()
        status, headers, data = self._ask(body)
        if fault == "lost":
            return self._hang_up()
        if fault == "torn" and data and self.command != "HEAD":
            self._answer(status, headers, data, sent=len(data) // 2)
            return self._hang_up()
        self._answer(status, headers, data)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _relay

    def _ask(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(self.server.proxy.host, self.server.proxy.port, timeout=60)
        with contextlib.closing(connection):
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in _HOP | {"expect"}:
                    connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()

    def _half(self, body: bytes) -> None:
        """The server gets a request that ends too early."""
        lines = [f"{self.command} {self.path} HTTP/1.1", *(f"{k}: {v}" for k, v in self.headers.items())]
        whole = "\r\n".join([*lines, "", ""]).encode("latin-1") + body
        with socket.create_connection((self.server.proxy.host, self.server.proxy.port), 10) as other:
            other.sendall(whole[: len(whole) - 1 - len(body) // 2])

    def _answer(self, status: int, headers: dict[str, str], data: bytes, sent: int | None = None) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in _HOP | {"content-length"}:
                self.send_header(name, value)
        length = headers.get("Content-Length") if self.command == "HEAD" else str(len(data))
        if length is not None and status != 204:
            self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[:sent])

    def _hang_up(self) -> None:
        self.close_connection = True
        self.wfile.flush()
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet; the proxy counts."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, proxy: Proxy) -> None:
        super().__init__(("127.0.0.1", 0), _Relay)
        self.proxy = proxy

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A server behind that hangs up is one more fault for the client to live with."""


class Proxy:
    """Passes on to `host:port`. `rate` is the share of requests that are spoiled; `happened` counts them."""

    def __init__(self, host: str, port: int, seed: int, rate: float = 0.15, delay: float = 0.1) -> None:
        self.host, self.port = host, port
        self.rate, self.delay = rate, delay
        self.happened: Counter[str] = Counter()
        self._dice = random.Random(seed)
        self._lock = threading.Lock()

    def fault(self) -> str:
        with self._lock:
            fault = self._dice.choice(FAULTS) if self._dice.random() < self.rate else "none"
            self.happened[fault] += 1
        return fault

    @contextlib.contextmanager
    def serving(self) -> Iterator[str]:
        """The address at which it listens while the block lasts."""
        with _Server(self) as server:
            thread = threading.Thread(target=server.serve_forever, daemon=True)
            thread.start()
            yield f"http://127.0.0.1:{server.server_port}"
            server.shutdown()
            thread.join()


# --- many runs through it -----------------------------------------------------------------------------

AGENTS = (refund.refund, refund.refund_by_person)
LIVES = 20  # how often a run may be stopped by its store before that counts as not getting on


async def one(url: str, run: str, service: Service, options: dict[str, Any], agent: Any) -> int:
    """Take one run to its end, however often its store stops it. Gives how many lives that took."""
    for life in range(1, LIVES + 1):
        # Every life is a client of its own; only its patience with the store says when it gives up.
        try:
            async with snaprt.Runtime(url, storage_options=options, patience=10.0, lease=5.0) as rt:
                try:
                    hand = await rt.resume(run)
                except snaprt.UnknownRun:
                    hand = await rt.start(agent, "A-17", service.url, run_id=run)
                while isinstance(outcome := await hand.outcome(), snaprt.Suspended):
                    for each in outcome.waiting:
                        await _answer(rt, run, service, each)
                    hand = await rt.resume(run)
        except (snaprt.StoreError, snaprt.RunExists):
            continue
        assert isinstance(outcome, snaprt.Completed), outcome
        assert outcome.value["refunded"] == 4200
        return life
    raise AssertionError(f"run {run} doesn't get on")


async def _answer(rt: snaprt.Runtime, run: str, service: Service, asked: snaprt.Waiting) -> None:
    """As a person does who looks into the ledger."""
    made = service.payments(asked.payload["in_doubt"]["key"])
    with contextlib.suppress(snaprt.AlreadyAnswered):
        await rt.answer(run, {"done": made[0]} if made else {"retry": True}, suspension=asked.suspension)


async def many(place: Place, proxy: Proxy, address: str, service: Service, runs: int, together: int) -> int:
    """Take runs to their ends, some at the same time. Gives how many lives they took."""
    options = {
        "endpoint_url": address,
        "key": place.environment["AWS_ACCESS_KEY_ID"],
        "secret": place.environment["AWS_SECRET_ACCESS_KEY"],
    }
    turn = asyncio.Semaphore(together)

    async def in_turn(number: int) -> int:
        async with turn:
            return await one(place.url, f"r{number}", service, dict(options), AGENTS[number % len(AGENTS)])

    return sum(await asyncio.gather(*map(in_turn, range(runs))))


def drive(
    place: Place, folder: Path, runs: int, seed: int, *, rate: float, together: int = 8
) -> tuple[Proxy, int]:
    """So many runs through a faulty network. Each ends right and is paid once, and its records hold."""
    at = urlsplit(place.environment["AWS_ENDPOINT_URL"])
    proxy = Proxy(str(at.hostname), int(at.port or 80), seed, rate)
    with payments(folder, "--ignore-keys") as service, proxy.serving() as address:
        lives = asyncio.run(many(place, proxy, address, service, runs, together))
        paid = Counter(key.rpartition("/")[0] for key, _, _ in service.rows())
    assert paid == {f"r{number}": 1 for number in range(runs)}
    asyncio.run(_whole(place, runs))
    return proxy, lives


async def _whole(place: Place, runs: int) -> None:
    async with snaprt.Runtime(place.url) as rt:
        for number in range(runs):
            report = await rt.verify(f"r{number}")
            assert report.whole, report.problems


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.crash.proxy")
    options.add_argument("--runs", type=int, default=500)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--rate", type=float, default=0.15, help="share of requests that are spoiled")
    chosen = options.parse_args()
    os.environ.setdefault("SNAPRT_KEY", "the-key-of-the-tests-0123456789")
    logging.getLogger("snaprt").setLevel(logging.CRITICAL)
    start = monotonic()
    with tempfile.TemporaryDirectory() as folder, bucket() as place:
        proxy, lives = drive(place, Path(folder), chosen.runs, chosen.seed, rate=chosen.rate)
    print(
        f"{chosen.runs} runs ended right in {lives} lives, {monotonic() - start:.0f} s; requests: "
        + ", ".join(f"{count} {fault}" for fault, count in proxy.happened.most_common())
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
