"""A small payments service, to see with one's own eyes whether money moves twice.

    python examples/payments.py --port 8042                    # honours idempotency keys
    python examples/payments.py --port 8042 --ignore-keys      # pays again, whatever key a request carries
    python examples/payments.py --port 8042 --delay 5          # pays at once, answers five seconds later

It listens on loopback alone. The ledger is a SQLite file whose commits are synced: a payment that was
made stays made, whatever is killed. One line goes to standard output when the service is ready:
`payments at http://127.0.0.1:8042, ledger payments.sqlite`.

    GET  /orders/A-17           the order, as the shop knows it
    GET  /policy                what part of a price is given back, in percent
    POST /payments              {"order": "A-17", "cents": 4200}, header Idempotency-Key: KEY
    GET  /payments?key=KEY      the payments made under that key
    GET  /payments              the whole ledger

A repeat of a key with the same order and amount gets the first payment again, as large payment
services do; with another one it is refused (409). A service that ignores keys makes every duplicate
visible as one more row of the ledger.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

ORDERS = {
    "A-17": {"customer": "Ada", "cents": 4200, "item": "lamp", "delivered": False},
    "B-2": {"customer": "Blaise", "cents": 18900, "item": "desk", "delivered": True},
    "C-31": {"customer": "Chien-Shiung", "cents": 650, "item": "cable", "delivered": True},
}
POLICY = {"delivered": 50, "not delivered": 100}

_LONGEST_BODY = 1 << 16  # an order and an amount; more is a mistake


class Conflict(Exception):
    """A key comes again with another order or amount."""


class Ledger:
    """Payments in SQLite. `pay` returns when the payment lasts; safe to use from several threads."""

    def __init__(self, path: Path, *, honour_keys: bool = True) -> None:
        self._honour_keys = honour_keys
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.row_factory = sqlite3.Row
        self._db.execute("pragma journal_mode=wal")
        self._db.execute("pragma synchronous=full")
        self._db.execute(
            'create table if not exists payments (id text primary key, key text, "order" text, cents integer,'
            " made real)"
        )

    def pay(self, key: str, order: str, cents: int) -> tuple[dict[str, Any], bool]:
        """The payment, and whether it is a new one. Raises Conflict."""
        with self._lock:
            made = self._made("where key = ?", key) if self._honour_keys and key else []
            if made:
                if (made[0]["order"], made[0]["cents"]) != (order, cents):
                    raise Conflict(f"key {key} was used for {made[0]['cents']} cents on {made[0]['order']}")
                return made[0], False
            payment = {
                "id": f"pay-{uuid.uuid4().hex[:12]}",
                "key": key,
                "order": order,
                "cents": cents,
                "made": time.time(),
            }
            self._db.execute("insert into payments values (:id, :key, :order, :cents, :made)", payment)
            return payment, True

    def payments(self, key: str | None = None) -> list[dict[str, Any]]:
        """Those made under a key, or all, oldest first."""
        with self._lock:
            return self._made("") if key is None else self._made("where key = ?", key)

    def _made(self, where: str, *values: str) -> list[dict[str, Any]]:
        return [
            dict(row) for row in self._db.execute(f"select * from payments {where} order by rowid", values)
        ]


class Handler(BaseHTTPRequestHandler):
    """One request. JSON in, JSON out."""

    protocol_version = "HTTP/1.1"
    server: Service

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path == "/payments":
            keys = parse_qs(url.query).get("key")
            self._answer(200, {"payments": self.server.ledger.payments(keys[0] if keys else None)})
        elif url.path == "/policy":
            self._answer(200, POLICY)
        elif url.path.startswith("/orders/"):
            name = unquote(url.path.removeprefix("/orders/"))
            found = ORDERS.get(name)
            if found is None:
                self._answer(404, {"error": f"there is no order {name!r}; try one of {', '.join(ORDERS)}"})
            else:
                self._answer(200, {"order": name, **found})
        else:
            self._answer(404, {"error": f"nothing is at {url.path}"})

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        if length > _LONGEST_BODY:
            self.close_connection = True  # the body stays unread
            return self._answer(413, {"error": "the body is too long"})
        body = self.rfile.read(length)
        if urlsplit(self.path).path != "/payments":
            return self._answer(404, {"error": f"nothing is at {self.path}"})
        try:
            wanted = json.loads(body)
            order, cents = wanted["order"], wanted["cents"]
            if not isinstance(order, str) or not isinstance(cents, int) or cents <= 0:
                raise ValueError
        except (ValueError, KeyError, TypeError):
            return self._answer(400, {"error": 'a payment is {"order": TEXT, "cents": NUMBER above 0}'})
        try:
            payment, new = self.server.ledger.pay(self.headers.get("Idempotency-Key", ""), order, cents)
        except Conflict as conflict:
            return self._answer(409, {"error": str(conflict)})
        time.sleep(self.server.delay)
        self._answer(201 if new else 200, payment)

    def _answer(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except ConnectionError:
            self.close_connection = True  # who asked was killed meanwhile; the ledger stays as it is

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet: the ledger is the log."""


class Service(ThreadingHTTPServer):
    """Serves a ledger on loopback. `delay` (seconds) lies between a payment and the answer to it."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, port: int, ledger: Ledger, delay: float = 0.0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.ledger = ledger
        self.delay = delay


def main() -> None:
    options = argparse.ArgumentParser(description="A small payments service on loopback.")
    options.add_argument("--port", type=int, default=8042, help="0 takes a free one (default: 8042)")
    options.add_argument("--ledger", type=Path, default=Path("payments.sqlite"), metavar="FILE")
    options.add_argument("--ignore-keys", action="store_true", help="pay again when a key is repeated")
    options.add_argument(
        "--delay", type=float, default=0.0, metavar="SECONDS", help="wait between a payment and its answer"
    )
    chosen = options.parse_args()
    ledger = Ledger(chosen.ledger, honour_keys=not chosen.ignore_keys)
    with Service(chosen.port, ledger, chosen.delay) as service:
        print(f"payments at http://127.0.0.1:{service.server_port}, ledger {chosen.ledger}", flush=True)
        try:
            service.serve_forever()
        except KeyboardInterrupt:
            print("stopped")


if __name__ == "__main__":
    main()
