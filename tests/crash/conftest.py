"""Where the crash tests keep their runs: on this disk, and on a real S3 server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.lives import Place


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "local":
        return Place(str(tmp_path / "store"))
    bucket = request.getfixturevalue("s3")
    return Place(bucket.url, bucket.environment)
