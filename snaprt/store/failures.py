"""What went wrong at a store, in one paragraph a person can act on.

Turns the errors of operating systems, fsspec filesystems and their clients into StoreErrors that name the
URL, what was being done and the next thing to do. It knows filesystems' errors and nothing of runs or
records.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

from snaprt.errors import Fenced, RunExists, StoreError, UnknownRun

# The package and extra behind a protocol, for the message when it is missing.
EXTRAS = {
    "s3": ("s3fs", "pip install 'snaprt[s3]'"),
    "s3a": ("s3fs", "pip install 'snaprt[s3]'"),
    "gs": ("gcsfs", "pip install gcsfs"),
    "gcs": ("gcsfs", "pip install gcsfs"),
    "az": ("adlfs", "pip install adlfs"),
    "abfs": ("adlfs", "pip install adlfs"),
    "abfss": ("adlfs", "pip install adlfs"),
    "sftp": ("sshfs", "pip install sshfs"),
    "ssh": ("sshfs", "pip install sshfs"),
    "webdav": ("webdav4", "pip install 'webdav4[fsspec]'"),
    "webdavs": ("webdav4", "pip install 'webdav4[fsspec]'"),
}


class Transient(StoreError):
    """The request may succeed if it is made again, or may have succeeded though its answer was lost."""


def may_get_better(error: BaseException) -> bool:
    """Whether the same request may succeed some day, when somebody has made room, given rights or brought the
    network back: whatever a store fails with, but for what it says about the run."""
    return isinstance(error, StoreError) and not isinstance(error, (Fenced, RunExists, UnknownRun))


class Removed(UnknownRun):
    """The run was removed; its id isn't used again."""

    def __init__(self, run: str, url: str):
        super().__init__(
            f"Run {run!r} at {url} was removed. (Should its removal have been interrupted, `snaprt rm {run}` "
            "ends it.)"
        )


_DENIED = {
    "AccessDenied",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "InvalidToken",
    "403",
}
_NO_BUCKET = {"NoSuchBucket", "InvalidBucketName"}
_BEYOND = {"InvalidRange", "416"}
_LOST = {"PreconditionFailed", "412"}
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what caused it, outermost first."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def code_of(error: BaseException) -> str | None:
    """The error code in a cloud's answer (`NoSuchBucket`), where there is one."""
    for cause in causes(error):
        response = getattr(cause, "response", None)
        if isinstance(response, dict):
            code = response.get("Error", {}).get("Code")
            if code:
                return str(code)
    return None


def lost_race(error: BaseException) -> bool:
    """Whether a create was refused because the name is taken.

    Services word it differently: s3fs raises FileExistsError only where the body of the answer names the
    condition (AWS); SeaweedFS and Ceph come as EINVAL with the code PreconditionFailed as its cause.
    """
    return isinstance(error, FileExistsError) or code_of(error) in _LOST


def beyond_end(error: BaseException) -> bool:
    """Whether a range was refused because the object ends before it: cut short, which the reader will see."""
    return code_of(error) in _BEYOND


def missing_bucket(error: BaseException) -> bool:
    """Whether the bucket isn't there (as against an object in it)."""
    return code_of(error) in _NO_BUCKET


def explain(error: BaseException, url: str, doing: str) -> StoreError:
    """The StoreError for an error of a filesystem; `doing` completes "while …"."""
    if isinstance(error, StoreError):
        return error
    number = getattr(error, "errno", None)
    code = code_of(error)
    start = f"The store {url} failed while {doing}: "
    if missing_bucket(error):
        return StoreError(f"{start}its bucket doesn't exist. Create it, or correct the URL.")
    if code in _DENIED or _named(error, "NoCredentialsError", "PartialCredentialsError"):
        return StoreError(
            f"{start}access was denied ({code or _text(error)}). Check the credentials of this process and "
            "what they may do at that place (list, read, write)."
        )
    if number == errno.EROFS:
        return StoreError(f"{start}it is on a read-only filesystem.")
    if isinstance(error, PermissionError):
        return StoreError(f"{start}permission denied ({_text(error)}). Check who may write there.")
    if number in _FULL:
        return StoreError(
            f"{start}no space is left ({_text(error)}). Nothing half-written is visible; make room and go on."
        )
    if _named(
        error,
        "EndpointConnectionError",
        "ConnectionClosedError",
        "ConnectTimeoutError",
        "ClientConnectorError",
    ):
        return Transient(
            f"{start}its endpoint can't be reached ({_text(error)}). Check the address and the network."
        )
    if isinstance(error, (TimeoutError, ConnectionError)) or number in _TRANSIENT or code in _BUSY:
        return Transient(f"{start}no usable answer came ({_text(error)}).")
    if _named(
        error, "ReadTimeoutError", "HTTPClientError", "ServerTimeoutError", "ClientError", "FSTimeoutError"
    ):
        return Transient(f"{start}no usable answer came ({_text(error)}).")
    return StoreError(f"{start}{_text(error).rstrip('.')}.")


_TRANSIENT = {
    errno.EBUSY,
    errno.EIO,
    errno.EREMOTEIO if hasattr(errno, "EREMOTEIO") else errno.EIO,
    errno.EAGAIN,
}
_BUSY = {
    "SlowDown",
    "InternalError",
    "ServiceUnavailable",
    "RequestTimeout",
    "OperationAborted",
    "500",
    "503",
    "409",
}
_BUSY |= {"ConditionalRequestConflict"}


def _named(error: BaseException, *names: str) -> bool:
    """By class name: the clients that define these may not be installed."""
    return any(kind.__name__ in names for cause in causes(error) for kind in type(cause).__mro__)


def _text(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else text[:300] + "…"
