"""One live handle of every kind that can be made here, for the tests of the register and of the paths.

`HANDLES` maps a name to a function that takes a `Workshop` and gives the handle; what has to be closed is
given to the workshop. A handle of a package that isn't installed raises `ImportError`. `KIND` says which kind
each is expected to be.
"""

# ruff: noqa: SIM115 - handles that stay open are the very thing; the workshop closes them

from __future__ import annotations

import asyncio
import bz2
import codecs
import concurrent.futures
import contextlib
import csv
import ctypes
import dbm.dumb
import fileinput
import ftplib
import gzip
import hashlib
import hmac
import http.client
import imaplib
import io
import logging
import lzma
import mailbox
import mmap
import multiprocessing
import multiprocessing.managers
import multiprocessing.shared_memory
import os
import poplib
import queue
import random
import re
import select
import selectors
import shelve
import smtplib
import socket
import socketserver
import sqlite3
import ssl
import subprocess
import sys
import tarfile
import tempfile
import threading
import urllib.request
import urllib.response
import wave
import weakref
import xml.etree.ElementTree
import xmlrpc.client
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Workshop(contextlib.ExitStack):
    """Where handles are made, and closed in the end."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.path = str(folder / "file.txt")
        Path(self.path).write_bytes(b"a,b\n1,2\n")

    def closing(self, handle: Any, end: str = "close") -> Any:
        self.callback(getattr(handle, end))
        return handle

    def loop(self) -> asyncio.AbstractEventLoop:
        return self.closing(asyncio.new_event_loop())

    def on_loop(self, make: Callable[[], Any], end: str | None = None) -> Any:
        """What `make()` gives inside a loop that isn't the agent's; ended there by its method `end`."""
        loop = self.loop()

        async def making() -> Any:
            made = make()
            return await made if asyncio.iscoroutine(made) else made

        async def ending() -> None:
            left = getattr(made, end or "")()
            if hasattr(left, "__await__"):
                await left

        made = loop.run_until_complete(making())
        if end:
            self.callback(lambda: loop.run_until_complete(ending()))
        return made


class Target:
    """Something to refer to."""


HANDLES: dict[str, Callable[[Workshop], Any]] = {}
KIND: dict[str, str] = {}


def handle(name: str, kind: str) -> Callable[[Callable[[Workshop], Any]], Callable[[Workshop], Any]]:
    def add(make: Callable[[Workshop], Any]) -> Callable[[Workshop], Any]:
        assert name not in HANDLES
        HANDLES[name] = make
        KIND[name] = kind
        return make

    return add


def of(kind: str, **makers: Callable[[Workshop], Any]) -> None:
    for name, make in makers.items():
        handle(name, kind)(make)


# --- files ------------------------------------------------------------------------------------------


class OwnFile(io.FileIO):
    """A user's subclass."""


of(
    "open file",
    read_bytes=lambda w: w.closing(open(w.path, "rb")),
    write_bytes=lambda w: w.closing(open(w.path + ".b", "wb")),
    update_bytes=lambda w: w.closing(open(w.path, "r+b")),
    unbuffered=lambda w: w.closing(open(w.path, "rb", buffering=0)),
    exclusive=lambda w: w.closing(open(w.path + ".x", "xb")),
    own_file=lambda w: w.closing(OwnFile(w.path)),
    fdopen_pipe=lambda w: _pipe(w)[0],
    closed_file=lambda w: _closed(open(w.path, "rb")),
    buffer_over_memory=lambda w: io.BufferedReader(io.BytesIO(b"x")),
    named_temporary_inner=lambda w: w.closing(tempfile.TemporaryFile()),
)
of(
    "open text file",
    read_text=lambda w: w.closing(open(w.path)),
    write_text=lambda w: w.closing(open(w.path + ".w", "w")),
    append_text=lambda w: w.closing(open(w.path, "a")),
    fdopen_text=lambda w: w.closing(os.fdopen(os.open(w.path, os.O_RDONLY))),
    text_over_memory=lambda w: io.TextIOWrapper(io.BytesIO(b"x")),
    codecs_file=lambda w: w.closing(codecs.open(w.path, encoding="utf-8")),
    path_open=lambda w: w.closing(Path(w.path).open()),
)
of("files read in turn", fileinput=lambda w: w.closing(fileinput.input([w.path])))
of(
    "temporary file",
    named_temporary=lambda w: w.closing(tempfile.NamedTemporaryFile()),
    spooled=lambda w: w.closing(tempfile.SpooledTemporaryFile(max_size=10)),
)
of("temporary directory", temporary_directory=lambda w: w.closing(tempfile.TemporaryDirectory(), "cleanup"))
of(
    "zip archive",
    zip=lambda w: w.closing(zipfile.ZipFile(w.path + ".zip", "w")),
    zip_in_memory=lambda w: w.closing(zipfile.ZipFile(io.BytesIO(), "w")),
)
of("tar archive", tar=lambda w: w.closing(tarfile.open(w.path + ".tar", "w")))
of("gzip file", gzip=lambda w: w.closing(gzip.open(w.path + ".gz", "wb")))
of("bz2 file", bz2=lambda w: w.closing(bz2.open(w.path + ".bz2", "wb")))
of("lzma file", lzma=lambda w: w.closing(lzma.open(w.path + ".xz", "wb")))
of("mailbox", mailbox=lambda w: w.closing(mailbox.mbox(w.path + ".mbox")))
of("shelf", shelf=lambda w: w.closing(shelve.Shelf({})))
of("dbm database", dbm=lambda w: w.closing(dbm.dumb.open(w.path + ".db")))
of("pipe from os.popen", popen_pipe=lambda w: w.closing(os.popen("true")))
of("directory scan", scandir=lambda w: w.closing(os.scandir(w.folder)))
of("directory entry", dir_entry=lambda w: _first_entry(w.folder))


@handle("zip_member", "open member of a zip archive")
def _(w: Workshop) -> Any:
    with zipfile.ZipFile(w.path + ".m.zip", "w") as archive:
        archive.writestr("a", "b")
    return w.closing(w.closing(zipfile.ZipFile(w.path + ".m.zip")).open("a"))


@handle("tar_member", "tar archive")
def _(w: Workshop) -> Any:
    with tarfile.open(w.path + ".m.tar", "w") as archive:
        archive.add(w.path, "a")
    return w.closing(w.closing(tarfile.open(w.path + ".m.tar")).extractfile("a"))


@handle("wave", "wave file")
def _(w: Workshop) -> Any:
    with wave.open(w.path + ".wav", "wb") as made:
        made.setparams((1, 2, 8000, 0, "NONE", ""))
    return w.closing(wave.open(w.path + ".wav", "rb"))


@handle("fsspec_file", "open fsspec file")
def _(w: Workshop) -> Any:
    import fsspec

    return w.closing(fsspec.filesystem("file").open(w.path, "rb"))


@handle("fsspec_open_file", "open fsspec file")
def _(w: Workshop) -> Any:
    import fsspec

    made = fsspec.open(w.path, "rb")
    made.open()
    return w.closing(made)


@handle("anyio_file", "open async file")
def _(w: Workshop) -> Any:
    import anyio

    return w.on_loop(lambda: _opened(anyio.open_file(w.path)), "aclose")


async def _opened(opening: Any) -> Any:
    return await opening


def _pipe(w: Workshop) -> list[Any]:
    return [w.closing(os.fdopen(fd, mode)) for fd, mode in zip(os.pipe(), ("rb", "wb"), strict=True)]


def _connections(w: Workshop) -> list[Any]:
    return [w.closing(end) for end in multiprocessing.Pipe()]


def _closed(file: Any) -> Any:
    file.close()
    return file


def _first_entry(folder: Path) -> Any:
    with os.scandir(folder) as entries:
        return next(entries)


# --- network ----------------------------------------------------------------------------------------


@handle("ssl_socket", "socket")
def _(w: Workshop) -> Any:
    context = ssl.create_default_context()
    context.check_hostname = False
    return w.closing(context.wrap_socket(w.closing(socket.socket()), do_handshake_on_connect=False))


@handle("ssl_object", "SSL connection")
def _(w: Workshop) -> Any:
    context = ssl.create_default_context()
    return context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="example.org")


def _pair(w: Workshop) -> tuple[socket.socket, socket.socket]:
    one, other = socket.socketpair()
    return w.closing(one), w.closing(other)


of(
    "socket",
    socket=lambda w: w.closing(socket.socket()),
    udp_socket=lambda w: w.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)),
    socket_pair=lambda w: _pair(w)[0],
    socket_io=lambda w: w.closing(_pair(w)[0].makefile("rb", buffering=0)),
)
of("open file", socket_file=lambda w: w.closing(_pair(w)[0].makefile("rb")))
of("SSL context", ssl_context=lambda w: ssl.create_default_context())
of("SSL connection", ssl_memory=lambda w: ssl.MemoryBIO())
of("selector", selector=lambda w: w.closing(selectors.DefaultSelector()))
of("poll object", poll=lambda w: select.poll())
if hasattr(select, "epoll"):
    of("poll object", epoll=lambda w: w.closing(select.epoll()))
of(
    "HTTP connection",
    http_connection=lambda w: w.closing(http.client.HTTPConnection("example.org")),
    https_connection=lambda w: w.closing(http.client.HTTPSConnection("example.org")),
)
of("HTTP response", http_response=lambda w: w.closing(http.client.HTTPResponse(_pair(w)[0])))
of("URL opener", opener=lambda w: w.closing(urllib.request.build_opener()))
of("URL response", url_response=lambda w: w.closing(urllib.request.urlopen(Path(w.path).as_uri())))
of("FTP connection", ftp=lambda w: w.closing(ftplib.FTP()))
of("SMTP connection", smtp=lambda w: w.closing(smtplib.SMTP()))
of("IMAP connection", imap=lambda w: imaplib.IMAP4.__new__(imaplib.IMAP4))
of("POP3 connection", pop3=lambda w: poplib.POP3.__new__(poplib.POP3))
of("XML-RPC client", xmlrpc=lambda w: xmlrpc.client.ServerProxy("http://localhost:1"))
of(
    "server",
    tcp_server=lambda w: w.closing(
        socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler), "server_close"
    ),
)


@handle("httpx_client", "httpx client")
def _(w: Workshop) -> Any:
    import httpx

    return w.closing(httpx.Client())


@handle("httpx_async_client", "httpx client")
def _(w: Workshop) -> Any:
    import httpx

    return w.on_loop(httpx.AsyncClient, "aclose")


@handle("httpx_transport", "httpx transport")
def _(w: Workshop) -> Any:
    import httpx

    return w.closing(httpx.HTTPTransport())


@handle("httpx_stream", "httpx response that isn't read")
def _(w: Workshop) -> Any:
    import httpx

    return httpx.Response(200, content=(part for part in [b"x"]))


@handle("httpcore_pool", "HTTP connection pool")
def _(w: Workshop) -> Any:
    import httpcore

    return w.closing(httpcore.ConnectionPool())


@handle("requests_session", "requests session")
def _(w: Workshop) -> Any:
    import requests

    return w.closing(requests.Session())


@handle("requests_response", "requests response that isn't read")
def _(w: Workshop) -> Any:
    import requests

    return requests.Response()


@handle("urllib3_pool", "HTTP connection pool")
def _(w: Workshop) -> Any:
    import urllib3

    return w.closing(urllib3.PoolManager(), "clear")


@handle("urllib3_response", "urllib3 response")
def _(w: Workshop) -> Any:
    import urllib3

    return urllib3.HTTPResponse(b"")


@handle("aiohttp_session", "aiohttp session")
def _(w: Workshop) -> Any:
    import aiohttp

    return w.on_loop(aiohttp.ClientSession, "close")


@handle("aiohttp_connector", "aiohttp session")
def _(w: Workshop) -> Any:
    import aiohttp

    return w.on_loop(aiohttp.TCPConnector, "close")


@handle("aws_client", "AWS client")
def _(w: Workshop) -> Any:
    import botocore.session

    session = botocore.session.get_session()
    return w.closing(
        session.create_client(
            "s3", region_name="eu-central-1", aws_access_key_id="a", aws_secret_access_key="b"
        )
    )


@handle("aws_session", "AWS session")
def _(w: Workshop) -> Any:
    import botocore.session

    return botocore.session.get_session()


@handle("aws_body", "AWS response body")
def _(w: Workshop) -> Any:
    import botocore.response

    return botocore.response.StreamingBody(io.BytesIO(b"x"), 1)


@handle("anyio_socket", "network stream")
def _(w: Workshop) -> Any:
    import anyio

    return w.on_loop(lambda: _listening(anyio), "aclose")


async def _listening(anyio: Any) -> Any:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    return listener.listeners[0]


# --- event loops ------------------------------------------------------------------------------------


async def _forever() -> None:
    await asyncio.get_running_loop().create_future()


async def _serve() -> Any:
    return await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)


async def _locked() -> Any:
    """A lock that a second task waits for: that binds it to the loop."""
    lock = asyncio.Lock()
    await lock.acquire()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(lock.acquire(), 0.001)
    return lock


async def _queue() -> Any:
    made: asyncio.Queue[int] = asyncio.Queue()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(made.get(), 0.001)
    return made


async def _group() -> Any:
    async with asyncio.TaskGroup() as group:
        return group


@handle("foreign_task", "task of another loop")
def _(w: Workshop) -> Any:
    loop = w.loop()
    task = loop.create_task(_forever())

    def end() -> None:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(task)

    w.callback(end)
    return task


@handle("transport", "transport")
def _(w: Workshop) -> Any:
    async def connect() -> Any:
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0)
        )
        return transport

    return w.on_loop(connect, "close")


@handle("asyncio_process", "asyncio subprocess")
def _(w: Workshop) -> Any:
    async def run() -> Any:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
        await process.wait()
        return process

    return w.on_loop(run)


of("event loop", event_loop=lambda w: w.loop())
of("loop runner", runner=lambda w: w.closing(asyncio.Runner()))
of(
    "future of another loop",
    foreign_future=lambda w: w.loop().create_future(),
    python_future=lambda w: asyncio.futures._PyFuture(loop=w.loop()),
    done_future=lambda w: _done(w.loop().create_future()),
)
of(
    "callback of another loop",
    foreign_handle=lambda w: w.loop().call_soon(print),
    foreign_timer=lambda w: w.loop().call_later(60, print),
)
of(
    "asyncio primitive of another loop",
    foreign_lock=lambda w: w.on_loop(_locked),
    foreign_queue=lambda w: w.on_loop(_queue),
)
of("task group of another loop", foreign_group=lambda w: w.on_loop(_group))
of("asyncio stream", stream_reader=lambda w: asyncio.StreamReader(loop=w.loop()))
of("server", asyncio_server=lambda w: w.on_loop(_serve, "close"))


def _done(future: Any) -> Any:
    future.set_result(1)
    return future


@handle("portal", "portal between threads")
def _(w: Workshop) -> Any:
    import anyio.from_thread

    return w.enter_context(anyio.from_thread.start_blocking_portal())


@handle("trio_event", "trio object")
def _(w: Workshop) -> Any:
    import trio

    return trio.Event()


@handle("trio_channel", "trio object")
def _(w: Workshop) -> Any:
    import trio

    return trio.open_memory_channel(1)[0]


@handle("mapped_array", "array in a memory map")
def _(w: Workshop) -> Any:
    import numpy

    return numpy.memmap(w.folder / "mapped", shape=(3,), mode="w+")


@handle("part_of_mapped_array", "array in a memory map")
def _(w: Workshop) -> Any:
    import numpy

    return numpy.asarray(numpy.memmap(w.folder / "mapped", shape=(3,), mode="w+"))[1:]


@handle("array_over_map", "array in a memory map")
def _(w: Workshop) -> Any:
    import numpy

    return numpy.frombuffer(memoryview(mmap.mmap(-1, 10)), dtype="u1")


# --- threads and processes --------------------------------------------------------------------------


def _held() -> Any:
    lock = threading.Lock()
    lock.acquire()
    return lock


of(
    "thread",
    thread=lambda w: threading.Thread(target=print),
    timer=lambda w: threading.Timer(60, print),
)
of("thread local", thread_local=lambda w: threading.local())
of(
    "thread lock",
    lock=lambda w: threading.Lock(),
    held_lock=lambda w: _held(),
    rlock=lambda w: threading.RLock(),
    python_rlock=lambda w: threading._PyRLock(),
)
of("thread condition", condition=lambda w: threading.Condition())
of(
    "thread semaphore",
    semaphore=lambda w: threading.Semaphore(),
    bounded=lambda w: threading.BoundedSemaphore(),
)
of("thread event", event=lambda w: threading.Event())
of("thread barrier", barrier=lambda w: threading.Barrier(2))
of(
    "thread queue",
    queue=lambda w: queue.Queue(),
    priority_queue=lambda w: queue.PriorityQueue(),
    simple_queue=lambda w: queue.SimpleQueue(),
)
of(
    "executor",
    thread_pool=lambda w: w.closing(concurrent.futures.ThreadPoolExecutor(), "shutdown"),
    process_pool=lambda w: w.closing(concurrent.futures.ProcessPoolExecutor(1), "shutdown"),
)
of("future of an executor", executor_future=lambda w: concurrent.futures.Future())
of("process", process=lambda w: multiprocessing.Process(target=print))
of(
    "pipe between processes",
    connection=lambda w: _connections(w)[0],
)
of(
    "queue between processes",
    process_queue=lambda w: w.closing(multiprocessing.Queue()),
    process_simple_queue=lambda w: w.closing(multiprocessing.SimpleQueue()),
)
of("manager or proxy of shared objects", sync_manager=lambda w: multiprocessing.managers.SyncManager())
of("shared memory", shared_memory=lambda w: _shared(w), shared_value=lambda w: multiprocessing.Value("i"))
of(
    "lock between processes",
    process_lock=lambda w: multiprocessing.Lock(),
    process_event=lambda w: multiprocessing.Event(),
    process_condition=lambda w: multiprocessing.Condition(),
    process_semaphore=lambda w: multiprocessing.Semaphore(),
)


def _shared(w: Workshop) -> Any:
    made = multiprocessing.shared_memory.SharedMemory(create=True, size=16)
    w.callback(made.unlink)
    return w.closing(made)


@handle("popen", "subprocess")
def _(w: Workshop) -> Any:
    return w.enter_context(subprocess.Popen([sys.executable, "-c", ""]))


@handle("pool", "process pool")
def _(w: Workshop) -> Any:
    return w.enter_context(multiprocessing.get_context("spawn").Pool(1))


# --- databases --------------------------------------------------------------------------------------


def _database(w: Workshop) -> sqlite3.Connection:
    made = w.closing(sqlite3.connect(":memory:"))
    made.execute("create table t (b blob)")
    made.execute("insert into t values (x'00')")
    return made


of("SQLite connection", sqlite=lambda w: _database(w))
of("SQLite cursor", sqlite_cursor=lambda w: _database(w).execute("select * from t"))
of("SQLite blob", sqlite_blob=lambda w: w.closing(_database(w).blobopen("t", "b", 1)))


# --- memory and native code -------------------------------------------------------------------------


class Pointing(ctypes.Structure):
    _fields_ = (("at", ctypes.POINTER(ctypes.c_int)),)


def _capsule() -> Any:
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return new(1, None, None)


def _frame() -> Any:
    return sys._getframe()


def _traceback() -> Any:
    try:
        raise ValueError
    except ValueError as error:
        return error.__traceback__


of("memory map", mmap=lambda w: w.closing(mmap.mmap(-1, 16)))
of(
    "memoryview",
    memoryview=lambda w: memoryview(b"abc"),
    # Released in the end, for the garbage collector may come to the BytesIO first.
    bytes_buffer=lambda w: w.closing(io.BytesIO(b"x").getbuffer(), "release"),
)
of("ctypes pointer", ctypes_pointer=lambda w: ctypes.pointer(ctypes.c_int()))
of("ctypes function pointer", ctypes_callback=lambda w: ctypes.CFUNCTYPE(None)(print))
of("loaded C library", c_library=lambda w: ctypes.CDLL(None))
of(
    "ctypes data with pointers",
    ctypes_structure=lambda w: Pointing(),
    ctypes_void=lambda w: ctypes.c_void_p(1),
    ctypes_text=lambda w: ctypes.c_char_p(b"x"),
)
of("capsule", capsule=lambda w: _capsule())
of("running frame", frame=lambda w: _frame())
of("traceback", traceback=lambda w: _traceback())
of(
    "compressor or decompressor",
    zlib_compressor=lambda w: zlib.compressobj(),
    zlib_decompressor=lambda w: zlib.decompressobj(),
    bz2_compressor=lambda w: bz2.BZ2Compressor(),
    lzma_compressor=lambda w: lzma.LZMACompressor(),
)
of(
    "hash under way",
    sha256=lambda w: hashlib.sha256(),
    blake2=lambda w: hashlib.blake2b(),
    md5=lambda w: hashlib.md5(usedforsecurity=False),
    hmac=lambda w: hmac.new(b"k", b"", "sha256"),
)
of("match iterator", match_iterator=lambda w: re.finditer("a", "aaa"))
of("match scanner", match_scanner=lambda w: re.compile("a").scanner("aaa"))
of("CSV reader", csv_reader=lambda w: csv.reader(["a,b"]))
of("CSV writer", csv_writer=lambda w: csv.writer(io.StringIO()))
of("XML parser", xml_parser=lambda w: xml.etree.ElementTree.XMLPullParser())
of("randomness of the system", system_random=lambda w: random.SystemRandom())


@handle("zstd", "compressor or decompressor")
def _(w: Workshop) -> Any:
    import zstandard

    return zstandard.ZstdCompressor().compressobj()


# --- other things that stay -------------------------------------------------------------------------

_target = Target()
of(
    "log handler",
    log_handler=lambda w: logging.StreamHandler(io.StringIO()),
    log_file=lambda w: w.closing(logging.FileHandler(w.path + ".log")),
)
of("finalizer", finalizer=lambda w: weakref.finalize(_target, print))


@handle("console", "console")
def _(w: Workshop) -> Any:
    import rich.console

    return rich.console.Console(file=io.StringIO())


@handle("progress", "progress bar")
def _(w: Workshop) -> Any:
    import rich.progress

    return rich.progress.Progress()


@handle("tqdm", "progress bar")
def _(w: Workshop) -> Any:
    import tqdm

    return w.closing(tqdm.tqdm([], file=io.StringIO()))


@handle("grpc_channel", "gRPC channel")
def _(w: Workshop) -> Any:
    import grpc

    return w.closing(grpc.insecure_channel("localhost:1"))


@handle("redis", "Redis client")
def _(w: Workshop) -> Any:
    import redis

    return w.closing(redis.Redis())


@handle("sqlalchemy_engine", "database connection")
def _(w: Workshop) -> Any:
    import sqlalchemy

    return w.closing(sqlalchemy.create_engine("sqlite://"), "dispose")


@handle("duckdb", "database connection")
def _(w: Workshop) -> Any:
    import duckdb

    return w.closing(duckdb.connect())
