"""Fixtures of the state tests."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture
def recursion_limit():
    """Sets the recursion limit for this test only."""
    before = sys.getrecursionlimit()
    yield sys.setrecursionlimit
    sys.setrecursionlimit(before)
