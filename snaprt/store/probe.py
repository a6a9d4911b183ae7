"""The probe: does this place really create an object only if it is absent?

Documentation and type names prove nothing (rclone's S3 server takes `If-None-Match` and ignores it), so
before a store is first written to, one name is created twice. Only if the second is refused and the first
one's bytes are read back is the store used. The outcome is remembered in the store, signed, under a name
that tells by which way and through which endpoint it was found: another client or endpoint is probed anew.
A bad outcome isn't remembered; it is refused each time.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import time

from snaprt.errors import Damaged, StoreError, WrongKey
from snaprt.records.envelope import PROBE, seal, unseal
from snaprt.records.keys import Keyring
from snaprt.store.objects import Objects

FOLDER = "probes"


def outcome_name(objects: Objects, endpoint: str) -> str:
    """Where the outcome for this way and endpoint is remembered."""
    found = hashlib.sha256(f"{objects.way}\n{endpoint}".encode()).hexdigest()[:16]
    return f"{FOLDER}/{found}"


def remembered(objects: Objects, keyring: Keyring, endpoint: str) -> bool:
    """Whether an earlier probe of this way and endpoint found that it holds, and a key of ours signed
    that."""
    name = outcome_name(objects, endpoint)
    try:
        header, _ = unseal(keyring, PROBE, objects.read(name), name)
    except (FileNotFoundError, Damaged, WrongKey):
        return False
    return header.get("way") == objects.way and header.get("endpoint") == endpoint


def probe(objects: Objects, keyring: Keyring, endpoint: str) -> None:
    """Creates one name twice and remembers a good outcome. Raises StoreError for a bad one."""
    name = f"{FOLDER}/try-{secrets.token_hex(8)}"
    first, second = secrets.token_bytes(32), secrets.token_bytes(32)
    try:
        objects.create(name, first)
    except FileExistsError:
        raise _refused(objects, "it says that a name nobody can have used is taken") from None
    except FileNotFoundError as error:
        raise StoreError(f"The store {objects.url} can't be written: it isn't there ({error}).") from error
    try:
        try:
            objects.create(name, second)
        except FileExistsError:
            pass
        else:
            raise _refused(objects, "a second create of the same name succeeded")
        try:
            held = objects.read(name)
        except FileNotFoundError:
            raise _refused(objects, "an object that was just created can't be read") from None
        if held != first:
            raise _refused(objects, "a create that was refused changed the object all the same")
    finally:
        objects.remove(name)
    header = {"way": objects.way, "endpoint": endpoint, "time": time.time()}
    with contextlib.suppress(FileExistsError):  # another process was first, or another key's owner
        objects.create(outcome_name(objects, endpoint), seal(keyring, PROBE, header))


def _refused(objects: Objects, why: str) -> StoreError:
    return StoreError(
        f"The store {objects.url} doesn't create objects only if they are absent ({why}), so two "
        "processes could own one "
        f'run. Use another store; or say fencing="off" if never more than one process works on it.'
    )
