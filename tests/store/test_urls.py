"""Whatever is wrong with a URL, a place or its credentials is said in one clear paragraph."""

from __future__ import annotations

import random
import socket
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

from snaprt.errors import Damaged, Fenced, MissingExtra, MissingKey, SnaprtError, StoreError
from snaprt.store import Store
from snaprt.store.failures import Transient, explain
from snaprt.store.objects import FsspecObjects
from tests.conftest import S3
from tests.store.held import KEYRING
from tests.store.places import memory_url, opened


def paragraph(error: SnaprtError) -> str:
    """The text of an error, which must be one paragraph that ends a sentence."""
    text = str(error)
    assert text
    assert "\n" not in text
    assert text[-1] in ".:)'\"" or "pip install" in text
    assert len(text) < 700
    return text


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "URL is empty"),
        ("nonsense://x/y", "unknown protocol, 'nonsense'"),
        ("http://example.invalid/x", "no way is known to create an object only if it is absent"),
        ("simplecache::s3://bucket/x", "a chain of filesystems"),
        ("zip://x::file.zip", "a chain of filesystems"),
        ("s3://", "names no bucket"),
    ],
)
def test_a_url_that_cannot_be_a_store_is_refused(url: str, says: str) -> None:
    with pytest.raises(StoreError) as caught:
        opened(url)
    assert says in paragraph(caught.value)


@pytest.mark.parametrize(
    ("url", "package", "mend"),
    [("s3://bucket/x", "s3fs", "pip install 'snaprt[s3]'"), ("gs://bucket/x", "gcsfs", "pip install gcsfs")],
)
def test_a_filesystem_that_is_not_installed_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, url: str, package: str, mend: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # as if it weren't there
    loaded = sys.modules["fsspec.registry"]._registry
    for protocol in ("s3", "gs", "gcs"):
        monkeypatch.delitem(loaded, protocol, raising=False)
    with pytest.raises(MissingExtra) as caught:
        opened(url)
    assert package in paragraph(caught.value)
    assert str(caught.value).endswith(mend)


def test_fencing_is_on_or_off() -> None:
    with pytest.raises(StoreError, match="must be"):
        Store.open(memory_url(), keyring=KEYRING, fencing="maybe")  # type: ignore[arg-type]  # that is the test


def test_a_filesystem_without_a_way_is_used_only_where_its_user_says_so(tmp_path: Path) -> None:
    url = f"dir://{tmp_path}"
    with pytest.raises(StoreError, match='fencing="off"'):
        Store.open(url, keyring=KEYRING, storage_options={"target_protocol": "file", "path": str(tmp_path)})
    store = Store.open(
        url,
        keyring=KEYRING,
        fencing="off",
        storage_options={"target_protocol": "file", "path": str(tmp_path)},
    )
    store.create("r").append("start", sections={"state": [bytes(100_000)]})
    log = store.log("r")
    log.append("result")
    assert log.verify().whole
    assert store.runs() == ["r"]


def test_a_store_without_any_key_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNAPRT_KEY", "short")
    with pytest.raises(MissingKey, match="SNAPRT_KEY can't be used"):
        Store.open(memory_url())


# --- S3, on a real server -------------------------------------------------------------------------


@pytest.mark.s3
def test_a_missing_bucket_is_said_to_be_missing(s3: S3) -> None:
    with pytest.raises(StoreError) as caught:
        opened("s3://no-such-bucket-here/x")
    assert "its bucket doesn't exist" in paragraph(caught.value)
    assert "s3://no-such-bucket-here/x" in str(caught.value)


@pytest.mark.s3
@pytest.mark.parametrize("wrong", ["key", "secret"])
def test_denied_credentials_are_said_to_be_denied(s3: S3, wrong: str) -> None:
    with pytest.raises(StoreError) as caught:
        opened(s3.url, {**s3.storage_options, wrong: "wrong"})
    assert "access was denied" in paragraph(caught.value)


@pytest.mark.s3
def test_an_endpoint_where_nobody_answers_is_said_to_be_out_of_reach(s3: S3) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused for as long as it is held
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(StoreError) as caught:
            opened(s3.url, {**s3.storage_options, "endpoint_url": endpoint})
    assert "can't be reached" in paragraph(caught.value)
    assert endpoint in str(caught.value)


@pytest.mark.s3
def test_a_plain_url_takes_endpoint_and_credentials_from_the_environment(s3: S3) -> None:
    store = opened(f"{s3.url}/agents")
    store.create("r").append("start", sections={"summary": [b'{"a": 1}']})
    assert [listed.summary for listed in opened(f"{s3.url}/agents").listing()] == [{"a": 1}]
    assert opened(s3.url).runs() == [], "a store is the prefix, not the bucket"


@pytest.mark.s3
def test_a_log_on_s3_holds_large_blobs_and_long_histories(s3: S3) -> None:
    leaf = random.Random(1).randbytes(40_000_000)  # more than one request holds
    leaves = [random.Random(seed).randbytes(70_000) for seed in range(20)]
    log = opened(s3.url).create("r")
    log.append("start", sections={"state": [b"a" * 9000, leaf, *leaves]})
    for number in range(30):
        log.append("result", detail={"n": number})
    reader = opened(s3.url).log("r")
    assert b"".join(reader.read(1).sections["state"]) == b"".join([b"a" * 9000, leaf, *leaves])
    assert len(reader.headers()) == 31
    report = reader.verify()
    assert report.whole
    assert (report.records, report.blobs) == (31, 21)


@pytest.mark.s3
def test_objects_cut_short_on_s3_are_refused_as_damaged(s3: S3) -> None:
    s3fs = pytest.importorskip("s3fs", reason="s3fs isn't installed (pip install 'snaprt[s3]')")
    log = opened(s3.url).create("r")
    log.append("start", sections={"state": [b"a" * 9000]})
    fs = s3fs.S3FileSystem(skip_instance_cache=True, **s3.storage_options)
    path = f"{s3.bucket}/runs/r/log/000000000001"
    data = fs.cat_file(path)
    for size in (0, 10, 100, len(data) - 1):
        fs.pipe_file(path, data[:size])
        with pytest.raises(Damaged, match="cut short"):
            opened(s3.url).log("r").newest_state()


class Counting:
    """Counts the requests of a filesystem as they leave: what a bill and a clock count."""

    def __init__(self, fs: Any):
        self.seen: Counter[str] = Counter()
        call = fs._call_s3

        async def counted(method: str, *args: Any, **kwargs: Any) -> Any:
            self.seen[method] += 1
            return await call(method, *args, **kwargs)

        fs._call_s3 = counted


@pytest.mark.s3
def test_an_append_on_s3_is_one_put_and_showing_a_run_one_listing_and_one_get(s3: S3) -> None:
    store = opened(s3.url)
    log = store.create("r")
    log.append("start", sections={"state": [b"a" * 9000], "summary": [b"{}"]})
    counting = Counting(store._objects._fs)  # type: ignore[attr-defined]  # the filesystem beneath
    log.append("result", sections={"state": [b"a" * 9001], "summary": [b"{}"], "values": [b"v"]})
    assert counting.seen == {"put_object": 1}
    counting.seen.clear()
    assert store.log("r").summary() == {}
    assert counting.seen["get_object"] == 1
    assert sum(counting.seen.values()) <= 2
    counting.seen.clear()
    log.put_answer("ask-1", b"yes")
    assert counting.seen == {"put_object": 2}  # the hint that somebody should look, and the answer


# --- fsspec's operations --------------------------------------------------------------------------


class Watched:
    """A filesystem with somebody before it who writes down what it is asked, and how it is to create."""

    def __init__(self, fs: Any):
        self._fs = fs
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.asked.append(f"{name} {kwargs['mode']}" if "mode" in kwargs else name)
            return getattr(self._fs, name)(*args, **kwargs)

        return call


def test_an_append_asks_fsspec_for_one_create_and_nothing_else() -> None:
    fs = Watched(fsspec.filesystem("memory"))
    store = Store(FsspecObjects(fs, memory_url()[9:], "s3://watched", "s3", fenced=True), KEYRING, {}, "here")
    log = store.create("r")
    log.append("start", sections={"state": [b"a" * 9000]})
    fs.asked.clear()
    log.append("result", sections={"state": [b"a" * 9001], "summary": [b"{}"], "values": [b"v"]})
    assert fs.asked == ["pipe_file create"]
    fs.asked.clear()
    assert store.log("r").summary() == {}
    assert fs.asked == ["ls", "cat_file"]


def test_listings_and_instances_are_never_cached() -> None:
    first, second = opened(memory_url()), opened(memory_url())
    one, two = (store._objects._fs for store in (first, second))  # type: ignore[attr-defined]
    assert one is not two
    assert one.dircache.use_listings_cache is False


# --- words ----------------------------------------------------------------------------------------


def caused(outer: Exception, code: str) -> Exception:
    inner = RuntimeError("answer")
    inner.response = {"Error": {"Code": code}}  # type: ignore[attr-defined]  # as botocore has it
    outer.__cause__ = inner
    return outer


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (caused(OSError(5, "x"), "SlowDown"), Transient, "no usable answer"),
        (caused(OSError(16, "x"), "ConditionalRequestConflict"), Transient, "no usable answer"),
        (TimeoutError("read"), Transient, "no usable answer"),
        (ConnectionResetError("reset"), Transient, "no usable answer"),
        (caused(PermissionError("x"), "AccessDenied"), StoreError, "access was denied"),
        (PermissionError(13, "Permission denied"), StoreError, "permission denied"),
        (OSError(28, "No space left on device"), StoreError, "no space is left"),
        (OSError(122, "Disk quota exceeded"), StoreError, "no space is left"),
        (OSError(30, "Read-only file system"), StoreError, "read-only"),
        (caused(FileNotFoundError("x"), "NoSuchBucket"), StoreError, "bucket doesn't exist"),
        (ValueError("a\nstrange\nerror"), StoreError, "a strange error"),
    ],
)
def test_errors_of_filesystems_are_put_in_words(error: Exception, kind: type[StoreError], says: str) -> None:
    found = explain(error, "s3://b/x", "writing log/1")
    assert type(found) is kind
    assert says in paragraph(found)
    assert "s3://b/x failed while writing log/1" in str(found)


# --- filesystems with an exclusive open that says little ------------------------------------------


class Vague(fsspec.get_filesystem_class("memory")):  # type: ignore[misc]  # fsspec is untyped
    """Opens exclusively, and says no more than "Failure" when it can't, as SFTP does."""

    def open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        if mode == "xb":
            if self.exists(path):
                raise RuntimeError("Failure")
            mode = "wb"
        return super().open(path, mode, **kwargs)


class Moving(fsspec.get_filesystem_class("memory")):  # type: ignore[misc]  # fsspec is untyped
    """Moves onto a free name only, as a WebDAV server does that is told not to overwrite."""

    @property
    def client(self) -> Any:
        return self

    def move(self, source: str, target: str, overwrite: bool = True) -> None:
        if self.exists(target) and not overwrite:
            raise RuntimeError("Precondition Failed")
        self.pipe_file(target, self.cat_file(source))
        self.rm_file(source)

    def mv(self, source: str, target: str, **kwargs: Any) -> None:
        self.move(source, target, overwrite=False)


@pytest.mark.parametrize(("protocol", "kind"), [("sftp", Vague), ("webdav", Moving)])
def test_a_vague_refusal_is_a_lost_race_if_the_name_is_taken(protocol: str, kind: type[Any]) -> None:
    objects = FsspecObjects(kind(), memory_url()[9:], f"{protocol}://vague", protocol, fenced=True)
    log = Store(objects, KEYRING, {}, "here").create("r")
    leaf = random.Random(1).randbytes(20_000_000)
    log.append("start", sections={"state": [bytes(100_000), leaf]})
    rival = Store(objects, KEYRING, {}, "here").log("r")
    rival.append("claim")
    with pytest.raises(Fenced):
        log.append("claim")
    name = next(name for name, size in rival.sizes().items() if size > len(leaf))
    objects.put(f"runs/r/{name}", [objects.read(f"runs/r/{name}")])  # as after a lost answer
    assert rival.verify().whole
    assert not [path for path in objects._fs.find(objects._root) if path.endswith(".part")]


def test_a_vague_refusal_of_a_free_name_is_told_as_it_came() -> None:
    class Full(Vague):
        def open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
            if mode == "xb":
                raise OSError(28, "No space left on device")
            return super().open(path, mode, **kwargs)

    objects = FsspecObjects(Full(), memory_url()[9:], "sftp://full", "sftp", fenced=True)
    with pytest.raises(StoreError, match="no space is left"):
        objects.create("runs/r/log/000000000001", b"data")
