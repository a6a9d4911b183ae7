"""Signing keys: where they come from, and how a MAC is made with them.

This file knows keys and nothing of records, runs or stores. A **keyring** has one key that signs and
any number of older ones that only verify, so a key can be rotated without rewriting a log (records
are never rewritten). Every signed object names its key by an id, in the clear; the id is derived
from the key by the same one-way function as the MAC key itself, so it tells who must be asked for the
key and nothing about it.

A key is *text*, used as it stands (UTF-8): base64, hex and passphrases need no guessing, and what a
person copies from one machine to another is what is used. Texts aren't stretched: a random one of 32
bytes (`python -c "import secrets; print(secrets.token_urlsafe(32))"`) needs no stretching, and a
guessable one isn't a key.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import platformdirs

from snaprt.errors import MissingKey

VARIABLE = "SNAPRT_KEY"
# Sixteen characters of random base64 are 96 bits: the least that nobody can search.
SHORTEST = 16
ID_BYTES = 8
MAC_BYTES = 32

_NEW_KEY = 'python -c "import secrets; print(secrets.token_urlsafe(32))"'


@dataclass(frozen=True)
class Key:
    """One key: its id (16 hex digits, public) and the secret that MACs are made with."""

    id: str
    secret: bytes = field(repr=False)

    @classmethod
    def from_text(cls, text: str) -> Key:
        """The key that a text stands for. Raises MissingKey if it is shorter than 16 characters."""
        if len(text) < SHORTEST:
            raise MissingKey(
                f"A signing key needs at least {SHORTEST} characters, this one has {len(text)}. "
                f"Make one with: {_NEW_KEY}"
            )
        raw = text.encode("utf-8", "surrogateescape")
        name = hmac.digest(raw, b"snaprt v1 key id", "sha256")[:ID_BYTES].hex()
        return cls(name, hmac.digest(raw, b"snaprt v1 mac", "sha256"))

    def mac(self, *pieces: bytes | bytearray | memoryview) -> bytes:
        """HMAC-SHA256 over the pieces as if they were one. The caller sees to it that cuts are
        unambiguous."""
        if len(pieces) == 1:
            return hmac.digest(self.secret, pieces[0], "sha256")
        state = hmac.new(self.secret, digestmod="sha256")
        for piece in pieces:
            state.update(piece)
        return state.digest()


@dataclass(frozen=True)
class Keyring:
    """The keys of this process: the first signs, all verify. `origin` says where they were found."""

    keys: tuple[Key, ...]
    origin: str = "the keyring given"

    def __post_init__(self) -> None:
        if not self.keys:
            raise MissingKey(f"{self.origin} holds no signing key. Make one with: {_NEW_KEY}")

    @property
    def signer(self) -> Key:
        """The key that new objects are signed with."""
        return self.keys[0]

    @property
    def ids(self) -> str:
        """The ids of all keys, for messages."""
        return ", ".join(key.id for key in self.keys)

    def find(self, key_id: str) -> Key | None:
        """The key of that id, or None."""
        return next((key for key in self.keys if key.id == key_id), None)

    @classmethod
    def from_texts(cls, texts: Iterable[str], origin: str = "the keyring given") -> Keyring:
        """A keyring of these texts; the first signs."""
        return cls(tuple(Key.from_text(text) for text in texts), origin)

    @classmethod
    def from_bytes(cls, *texts: bytes) -> Keyring:
        """A keyring of these keys as bytes; the first signs."""
        return cls.from_texts(text.decode("utf-8", "surrogateescape") for text in texts)

    @classmethod
    def default(cls, environ: Mapping[str, str] | None = None, path: Path | None = None) -> Keyring:
        """The keys in `SNAPRT_KEY` (several apart by white space), else those of the key file, which is
        made at first use.

        Raises MissingKey if the variable is set and unusable, or the file can't be made, read or trusted.
        """
        given = (os.environ if environ is None else environ).get(VARIABLE)
        if given is not None:
            texts = given.split()
            if not texts:
                raise MissingKey(
                    f"{VARIABLE} is set and empty. Unset it to use the key file, or give it a key: {_NEW_KEY}"
                )
            try:
                return cls.from_texts(texts, VARIABLE)
            except MissingKey as error:
                raise MissingKey(f"{VARIABLE} can't be used. {error}") from None
        return read_key_file(path or key_file())


def key_file() -> Path:
    """Where the key file of this user lies."""
    return Path(platformdirs.user_config_dir("snaprt")) / "key"


def read_key_file(path: Path) -> Keyring:
    """The keys of a key file (one a line, `#` comments, the first signs), made with a new key if absent.

    Two processes that make it at once end with the same key: the file is written under another name
    and linked, so the first one wins whole. Raises MissingKey.
    """
    try:
        text = _read_private(path)
    except FileNotFoundError:
        _make_key_file(path)
        try:
            text = _read_private(path)
        except OSError as error:
            raise _unusable(path, error) from error
    except OSError as error:
        raise _unusable(path, error) from error
    texts = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    try:
        return Keyring.from_texts(texts, f"the key file {path}")
    except MissingKey as error:
        raise MissingKey(f"The key file {path} can't be used. {error}") from None


def _read_private(path: Path) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise MissingKey(f"The key file {path} isn't a regular file.")
        if os.name == "posix":
            if status.st_mode & 0o077:
                raise MissingKey(
                    f"The key file {path} can be read by others (mode "
                    f"{stat.S_IMODE(status.st_mode):04o}), so "
                    f"its key proves nothing. If nobody has read it: chmod 600 {path}"
                )
            if status.st_uid not in (os.geteuid(), 0):
                raise MissingKey(
                    f"The key file {path} belongs to user {status.st_uid}, not to you: whoever owns it "
                    f"knows the key. Remove it, or give a key in {VARIABLE}."
                )
        return file.read()


def _make_key_file(path: Path) -> None:
    new = path.with_name(f".{path.name}-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(
                    "# snaprt signing keys, one a line: the first signs, all verify.\n"
                    + secrets.token_urlsafe(32)
                )
                file.write("\n")
                file.flush()
                os.fsync(file.fileno())
            with contextlib.suppress(FileExistsError):  # another process was first: its key is the key
                os.link(new, path)
        finally:
            os.unlink(new)
    except OSError as error:
        raise _unusable(path, error) from error


def _unusable(path: Path, error: OSError) -> MissingKey:
    return MissingKey(
        f"There is no signing key: {VARIABLE} isn't set, and the key file {path} can't be used "
        f"({error.strerror or error}). Set {VARIABLE} to a secret text; make one with: {_NEW_KEY}"
    )
