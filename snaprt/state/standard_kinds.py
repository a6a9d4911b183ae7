"""The table of handle kinds: classes of the interpreter and its standard library that are live.

They stand here by name, which needs no import, but for the few that have none; each says what to do about it.
A kind that a plain `pickle` refuses too still stands here, because "cannot pickle '_csv.reader' object"
doesn't tell anybody what to do next. This file doesn't know how the table is searched (`handles` does).
"""

from __future__ import annotations

import datetime
import re
import sys
import types
from typing import Any

from snaprt.state.kinds import (
    ANOTHER_LOOP,
    ARCHIVE,
    CLIENT,
    CURSOR,
    DATABASE,
    FILE,
    HASH,
    IN_CONNECTING,
    LOCK,
    LOOP,
    MEMORY,
    NATIVE,
    PROCESS,
    READ,
    RESOURCE,
    SERVE,
    STREAM,
    THREADS,
    Kind,
    named,
)


def _holds_scanner(obj: Any) -> bool:
    """`finditer` is `iter(scanner.search, None)`; other callable iterators travel as their callable does."""
    source = obj.__reduce__()[1][0]
    return type(getattr(source, "__self__", None)).__name__ == "SRE_Scanner"


def _points(obj: Any) -> bool:
    """ctypes itself knows whether its data holds pointers: it says so by refusing to be reduced."""
    try:
        obj.__reduce__()
    except ValueError:
        return True
    return False


def _driver(cls: type) -> bool:
    """Whether the class is of a package with the module globals that PEP 249 asks of a driver."""
    package = sys.modules.get(str(cls.__module__).partition(".")[0])
    return isinstance(getattr(package, "apilevel", None), str) and hasattr(package, "paramstyle")


def _is_connection(cls: type) -> bool:
    return all(hasattr(cls, name) for name in ("cursor", "commit", "close")) and _driver(cls)


def _is_cursor(cls: type) -> bool:
    return all(hasattr(cls, name) for name in ("execute", "fetchone", "close")) and _driver(cls)


_CAPSULE = type(datetime.datetime_CAPI)  # the capsule that is always at hand
_SCANNER = type(re.compile("").scanner(""))  # type: ignore[attr-defined]  # undocumented; its type has no name
_CALLABLE_ITERATOR = type(iter(int, 1))

STANDARD: tuple[Kind, ...] = (
    # --- files ------------------------------------------------------------------------------------
    Kind("open file", named("_io:FileIO BufferedReader BufferedWriter BufferedRandom BufferedRWPair"), FILE),
    Kind("open text file", named("_io:TextIOWrapper", "_pyio:TextIOWrapper FileIO BufferedReader"), FILE),
    Kind("open text file", named("codecs:StreamReaderWriter StreamRecoder StreamReader StreamWriter"), FILE),
    Kind("files read in turn", ("fileinput:FileInput",), FILE),
    Kind(
        "temporary file",
        named("tempfile:_TemporaryFileWrapper _TemporaryFileCloser SpooledTemporaryFile"),
        "keep its bytes, or write to a path of your own inside a tool; a temporary file stays on its machine",
    ),
    Kind(
        "temporary directory",
        ("tempfile:TemporaryDirectory",),
        "make and use it inside one tool; a temporary directory stays on its machine",
    ),
    Kind("zip archive", ("zipfile:ZipFile",), ARCHIVE),
    Kind("open member of a zip archive", named("zipfile:ZipExtFile _ZipWriteFile"), ARCHIVE),
    Kind("tar archive", named("tarfile:TarFile ExFileObject _FileInFile _Stream"), ARCHIVE),
    Kind("gzip file", named("gzip:GzipFile _GzipReader"), ARCHIVE),
    Kind("bz2 file", ("bz2:BZ2File",), ARCHIVE),
    Kind("lzma file", ("lzma:LZMAFile",), ARCHIVE),
    Kind("zstd file", named("compression.zstd:ZstdFile"), ARCHIVE),
    Kind("wave file", named("wave:Wave_read Wave_write"), ARCHIVE),
    Kind("mailbox", ("mailbox:Mailbox",), ARCHIVE),
    Kind("shelf", ("shelve:Shelf",), RESOURCE),
    Kind(
        "dbm database",
        named("dbm.dumb:_Database", "dbm.sqlite3:_Database", "_dbm:dbm", "_gdbm:gdbm"),
        RESOURCE,
    ),
    Kind("pipe from os.popen", ("os:_wrap_close",), PROCESS),
    Kind(
        "directory scan",
        named("posix:ScandirIterator", "nt:ScandirIterator"),
        "list it with os.listdir, or take the paths into a list before the await",
    ),
    Kind("directory entry", named("posix:DirEntry", "nt:DirEntry"), "keep entry.path instead"),
    # --- network ----------------------------------------------------------------------------------
    Kind("socket", named("_socket:socket", "socket:SocketIO"), CLIENT),
    Kind("SSL context", ("_ssl:_SSLContext",), IN_CONNECTING),
    Kind(
        "SSL connection", named("ssl:SSLObject", "_ssl:_SSLSocket MemoryBIO SSLSession Certificate"), CLIENT
    ),
    Kind("selector", named("selectors:BaseSelector _BaseSelectorImpl"), "wait for sockets inside a tool"),
    Kind("poll object", named("select:epoll poll kqueue devpoll"), "wait for descriptors inside a tool"),
    Kind("HTTP connection", ("http.client:HTTPConnection",), CLIENT),
    Kind(
        "HTTP response",
        ("http.client:HTTPResponse",),
        READ,
    ),
    Kind("URL opener", ("urllib.request:OpenerDirector",), CLIENT),
    Kind(
        "URL response",
        ("urllib.response:addbase",),
        READ,
    ),
    Kind("FTP connection", ("ftplib:FTP",), CLIENT),
    Kind("SMTP connection", ("smtplib:SMTP",), CLIENT),
    Kind("IMAP connection", ("imaplib:IMAP4",), CLIENT),
    Kind("POP3 connection", ("poplib:POP3",), CLIENT),
    Kind("NNTP or Telnet connection", named("nntplib:NNTP", "telnetlib:Telnet"), CLIENT),
    Kind("XML-RPC client", ("xmlrpc.client:ServerProxy",), CLIENT),
    Kind(
        "server",
        named("socketserver:BaseServer BaseRequestHandler"),
        SERVE,
    ),
    # --- event loops ------------------------------------------------------------------------------
    Kind("event loop", ("asyncio.events:AbstractEventLoop",), ANOTHER_LOOP),
    Kind(
        "loop runner",
        named("asyncio.runners:Runner", "asyncio.events:AbstractEventLoopPolicy _AbstractEventLoopPolicy"),
        "run loops in the host program, not in agent code",
    ),
    Kind("task of another loop", named("_asyncio:Task", "asyncio.tasks:_PyTask"), LOOP, of_other_loop=True),
    Kind(
        "future of another loop",
        named("_asyncio:Future", "asyncio.futures:_PyFuture"),
        LOOP,
        of_other_loop=True,
    ),
    Kind(
        "callback of another loop",
        ("asyncio.events:Handle",),
        "cancel it before the await",
        of_other_loop=True,
    ),
    Kind(
        "asyncio primitive of another loop",
        ("asyncio.mixins:_LoopBoundMixin",),
        "make it in agent code",
        of_other_loop=True,
    ),
    Kind(
        "task group of another loop",
        ("asyncio.taskgroups:TaskGroup",),
        "open it in agent code",
        of_other_loop=True,
    ),
    Kind("transport", ("asyncio.transports:BaseTransport",), CLIENT),
    Kind("asyncio stream", named("asyncio.streams:StreamReader StreamWriter FlowControlMixin"), CLIENT),
    Kind("server", named("asyncio.events:AbstractServer"), SERVE),
    Kind("asyncio subprocess", named("asyncio.subprocess:Process SubprocessStreamProtocol"), PROCESS),
    # --- threads ----------------------------------------------------------------------------------
    Kind("thread", named("threading:Thread", "_thread:_ThreadHandle"), THREADS),
    Kind(
        "thread local",
        named("_thread:_local", "_threading_local:local"),
        "use a contextvars.ContextVar, which travels",
    ),
    Kind("thread lock", named("_thread:lock RLock", "threading:_RLock"), LOCK),
    Kind("thread condition", ("threading:Condition",), LOCK),
    Kind("thread semaphore", ("threading:Semaphore",), LOCK),
    Kind("thread event", ("threading:Event",), LOCK),
    Kind("thread barrier", ("threading:Barrier",), LOCK),
    Kind(
        "thread queue",
        named("queue:Queue _PySimpleQueue", "_queue:SimpleQueue"),
        "use asyncio.Queue, which travels with its items",
    ),
    Kind("executor", ("concurrent.futures._base:Executor",), THREADS),
    Kind(
        "future of an executor",
        ("concurrent.futures._base:Future",),
        "wait for it inside a tool and return its result",
    ),
    # --- processes --------------------------------------------------------------------------------
    Kind("process", ("multiprocessing.process:BaseProcess",), PROCESS),
    Kind("pipe between processes", named("multiprocessing.connection:_ConnectionBase Listener"), PROCESS),
    Kind("queue between processes", named("multiprocessing.queues:Queue SimpleQueue"), PROCESS),
    Kind(
        "manager or proxy of shared objects",
        named("multiprocessing.managers:BaseManager BaseProxy Server"),
        PROCESS,
    ),
    Kind("process pool", ("multiprocessing.pool:Pool",), PROCESS),
    Kind(
        "shared memory",
        named(
            "multiprocessing.shared_memory:SharedMemory ShareableList",
            "multiprocessing.heap:Arena BufferWrapper",
            "multiprocessing.sharedctypes:SynchronizedBase",
        ),
        "copy what you need out of it before the await",
    ),
    Kind(
        "lock between processes",
        named("multiprocessing.synchronize:SemLock Condition Event Barrier", "_multiprocessing:SemLock"),
        LOCK,
    ),
    Kind("finalizer of multiprocessing", ("multiprocessing.util:Finalize",), PROCESS),
    Kind("subprocess", named("subprocess:Popen", "multiprocessing.popen_fork:Popen"), PROCESS),
    Kind("subinterpreter", named("concurrent.interpreters:Interpreter Queue"), THREADS),
    # --- databases --------------------------------------------------------------------------------
    Kind("DB-API connection", hint=DATABASE, like=_is_connection),
    Kind("DB-API cursor", hint=CURSOR, like=_is_cursor),
    Kind("SQLite connection", ("sqlite3:Connection",), DATABASE),
    Kind("SQLite cursor", ("sqlite3:Cursor",), CURSOR),
    Kind("SQLite blob", ("sqlite3:Blob",), "read it before the await and keep the bytes"),
    # --- memory and native code -------------------------------------------------------------------
    Kind("memory map", ("mmap:mmap",), MEMORY),
    Kind("memoryview", (memoryview,), MEMORY),
    Kind("ctypes pointer", named("_ctypes:_Pointer"), "copy what it points to into bytes before the await"),
    Kind("ctypes function pointer", ("_ctypes:CFuncPtr",), NATIVE),
    Kind("loaded C library", named("ctypes:CDLL LibraryLoader"), NATIVE),
    Kind(
        "ctypes data with pointers", ("_ctypes:_CData",), "keep the plain values in a dataclass", when=_points
    ),
    Kind("capsule", (_CAPSULE,), NATIVE),
    Kind(
        "running frame",
        (types.FrameType,),
        "keep its name and line (traceback.extract_stack) instead of the frame",
    ),
    Kind(
        "traceback",
        (types.TracebackType,),
        "keep its text (traceback.format_exception) or the exception itself, which travels",
    ),
    Kind(
        "compressor or decompressor",
        named(
            "zlib:Compress Decompress _ZlibDecompressor",
            "_bz2:BZ2Compressor BZ2Decompressor",
            "_lzma:LZMACompressor LZMADecompressor",
            "_zstd:ZstdCompressor ZstdDecompressor",
        ),
        STREAM,
    ),
    Kind(
        "hash under way",
        named(
            "_hashlib:HASH HMAC",
            "_md5:md5",
            "_sha1:sha1",
            "_sha2:SHA224Type SHA256Type SHA384Type SHA512Type",
            "_sha256:sha224 sha256",
            "_sha512:sha384 sha512",
            "_sha3:sha3_224 sha3_256 sha3_384 sha3_512 shake_128 shake_256",
            "_blake2:blake2b blake2s",
            "hmac:HMAC",
        ),
        HASH,
    ),
    Kind(
        "match iterator",
        (_CALLABLE_ITERATOR,),
        "take the matches' groups into a list before the await",
        when=_holds_scanner,
    ),
    Kind("match scanner", (_SCANNER,), "take the matches' groups into a list before the await"),
    Kind("CSV reader", named("_csv:reader Reader"), "take the rows into a list before the await"),
    Kind(
        "CSV writer", named("_csv:writer Writer"), "finish writing before the await, or write inside a tool"
    ),
    Kind(
        "XML parser",
        named("pyexpat:xmlparser", "xml.etree.ElementTree:XMLPullParser XMLParser"),
        "parse to the end before the await and keep the tree",
    ),
    Kind(
        "randomness of the system",
        ("random:SystemRandom",),
        "make it anew where you need it, or as a module global",
    ),
    Kind("profiler", named("_lsprof:Profiler", "profile:Profile"), "profile inside a tool"),
    Kind(
        "terminal or window",
        named("_curses:window", "_tkinter:tkapp", "tkinter:Misc"),
        "keep the user interface in the host program",
    ),
    # --- other things that stay ---------------------------------------------------------------------
    Kind(
        "log handler",
        named("logging:Handler", "logging.handlers:QueueListener"),
        "configure logging at import in every process; loggers travel by name",
    ),
    Kind("finalizer", ("weakref:finalize",), "clean up in a finally block or a with statement, which travel"),
)
