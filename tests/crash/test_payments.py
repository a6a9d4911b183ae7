"""The payments service holds to what the crash tests rely on: it is the witness of every duplicate."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.crash.processes import ROOT
from tests.crash.service import Service, payments


def pay(service: Service, key: str, cents: int, order: str = "A-17") -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(f"{service.url}/payments", headers={"Idempotency-Key": key})
    request.data = json.dumps({"order": order, "cents": cents}).encode()
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with payments(tmp_path) as started:
        yield started


def test_a_repeated_key_gets_the_first_payment_again(service: Service) -> None:
    first, again = pay(service, "r/1", 4200), pay(service, "r/1", 4200)
    assert (first[0], again[0]) == (201, 200)
    assert first[1] == again[1]
    assert service.rows() == [("r/1", "A-17", 4200)]
    assert service.payments("r/1") == [first[1]]
    assert service.payments("r/2") == []


def test_a_key_with_another_amount_is_refused(service: Service) -> None:
    pay(service, "r/1", 4200)
    status, said = pay(service, "r/1", 1)
    assert status == 409
    assert "r/1 was used for 4200 cents" in said["error"]
    assert len(service.rows()) == 1


def test_requests_with_one_key_at_the_same_moment_pay_once(service: Service) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: pay(service, "r/1", 4200), range(24)))
    assert sorted(status for status, _ in answers) == [200] * 23 + [201]
    assert len(service.rows()) == 1


def test_a_service_that_ignores_keys_shows_every_duplicate(tmp_path: Path) -> None:
    with payments(tmp_path, "--ignore-keys") as service:
        assert [pay(service, "r/1", 4200)[0] for _ in range(3)] == [201] * 3
        assert service.rows() == [("r/1", "A-17", 4200)] * 3
        assert len(service.payments("r/1")) == 3


@pytest.mark.skipif(os.name != "posix", reason="there is no SIGKILL on this system")
def test_a_payment_lasts_when_the_service_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples/payments.py"), "--port", "0", "--ledger"]
    file = tmp_path / "payments.sqlite"
    process = subprocess.Popen([*command, str(file)], stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        service = Service(process.stdout.readline().split()[2].rstrip(","), file)
        assert pay(service, "r/1", 4200)[0] == 201
        process.send_signal(signal.SIGKILL)
    with payments(tmp_path) as service:
        assert [each["key"] for each in service.payments()] == ["r/1"]


@pytest.mark.parametrize("body", ["", "[]", '{"order": "A-17"}', '{"order": "A-17", "cents": -1}'])
def test_a_request_that_makes_no_sense_pays_nothing(service: Service, body: str) -> None:
    request = urllib.request.Request(f"{service.url}/payments", data=body.encode())
    with pytest.raises(urllib.error.HTTPError, match="400"):
        urllib.request.urlopen(request, timeout=30)
    assert service.rows() == []
