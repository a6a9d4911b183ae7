"""The bare means that saving is compared with: zstd over pickle, and a file that lasts."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import zstandard


def bare(held: Any) -> bytes:
    """One thread, zstandard's default level, and the newest pickle protocol."""
    return zstandard.ZstdCompressor().compress(pickle.dumps(held, pickle.HIGHEST_PROTOCOL))


def write_synced(target: Path, data: bytes) -> int:
    """A file that is there whole or not at all, and lasts once this returns; gives its size.

    Synced, linked to its name, and its folder synced: the least that such a promise asks of a disk.
    """
    half = target.with_name("half")
    with open(half, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    target.unlink(missing_ok=True)
    os.link(half, target)
    half.unlink()
    folder = os.open(target.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
    return len(data)
