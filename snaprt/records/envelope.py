"""The head that every signed object starts with: magic, version, kind of object, key id, header, MAC.

This file knows bytes and keys; it doesn't know what headers mean. The MAC stands right after the
header and covers everything before it. What follows (the body) is bound by digests or MACs that its
header names: so a head is proven from the first few KiB of an object, a log can be listed without
reading its states, and one section can be read and proven without the others.

Nothing of a header is parsed before its MAC holds: what comes before is a fixed struct whose only
use is to find the MAC.
"""

from __future__ import annotations

import hmac
import json
import struct
from collections.abc import Mapping
from typing import Any

from snaprt.errors import Damaged, WrongKey
from snaprt.records.keys import ID_BYTES, MAC_BYTES, Keyring

MAGIC = (
    b"\x89SNAPRT\n"  # the first byte isn't text and the last is altered by newline conversion, as PNG has it
)
VERSION = 1
PREFIX = struct.Struct("<8sBc8sI")
# A header holds no states and no values; 16 MiB bounds what a forged length can make us read.
LONGEST_HEADER = 16 << 20

_JSON = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)

RECORD = b"R"
ANSWER = b"A"
BLOB = b"B"
PROBE = b"P"
LEASE = b"L"


def seal(keyring: Keyring, kind: bytes, header: Mapping[str, Any]) -> bytes:
    """The head of an object of that kind. Raises TypeError or ValueError if the header isn't JSON."""
    text = _JSON.encode(header).encode()
    if len(text) > LONGEST_HEADER:
        raise ValueError(f"a header of {len(text)} bytes; at most {LONGEST_HEADER} are allowed")
    key = keyring.signer
    signed = PREFIX.pack(MAGIC, VERSION, kind, bytes.fromhex(key.id), len(text)) + text
    return signed + key.mac(signed)


def head_length(data: bytes | bytearray | memoryview, what: str) -> int:
    """How many bytes the head at the start of `data` takes. Unproven, but bounded. Raises Damaged."""
    if len(data) < PREFIX.size:
        raise Damaged(f"{what} is cut short: {len(data)} bytes, not even the fixed start of a head.")
    magic, version, _, _, length = PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise Damaged(f"{what} isn't an object of snaprt: it starts with {bytes(magic)!r}.")
    if version != VERSION:
        raise Damaged(
            f"{what} has format version {version}; this snaprt reads version {VERSION}. Either the byte is "
            f"damaged or a newer snaprt wrote it: use that one."
        )
    if length > LONGEST_HEADER:
        raise Damaged(f"{what} claims a header of {length} bytes; at most {LONGEST_HEADER} are allowed.")
    return PREFIX.size + int(length) + MAC_BYTES


def unseal(
    keyring: Keyring, kind: bytes, data: bytes | bytearray | memoryview, what: str
) -> tuple[dict[str, Any], int]:
    """The proven header of an object and the length of its head.

    Raises WrongKey if no key of the ring made the MAC it asks for, Damaged if the bytes don't prove right.
    """
    end = head_length(data, what)
    if len(data) < end:
        raise Damaged(f"{what} is cut short: {len(data)} bytes of a head of {end}.")
    _, _, found, key_id, length = PREFIX.unpack_from(data)
    key = keyring.find(key_id.hex())
    if key is None:
        raise WrongKey(
            f"{what} is signed with key {key_id.hex()}, and {keyring.origin} has {keyring.ids}. Nothing of "
            "it was used. Give this process that key (SNAPRT_KEY, or a further line of the key file)."
        )
    signed = bytes(data[: PREFIX.size + length])
    if not hmac.compare_digest(key.mac(signed), bytes(data[PREFIX.size + length : end])):
        raise Damaged(
            f"{what} doesn't prove right: its signature isn't the one that key {key.id} makes. Its bytes "
            "were changed, or somebody without the key wrote it. Nothing of it was used."
        )
    if found != kind:
        raise Damaged(f"{what} is an object of another kind ({found!r} instead of {kind!r}).")
    header = json.loads(signed[PREFIX.size :])
    if not isinstance(header, dict):
        raise Damaged(f"{what} has a header that isn't a JSON object.")
    return header, end


def key_of(data: bytes | bytearray | memoryview) -> str:
    """The id of the key that an object says it is signed with, unproven."""
    return PREFIX.unpack_from(data)[3].hex()  # type: ignore[no-any-return]  # struct gives Any


assert PREFIX.size == 14 + ID_BYTES
