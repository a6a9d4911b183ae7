"""The table of built-in handle kinds.

What it knows is which classes of the standard library and of widely used packages are live, by name
where the package may not be there, and what to do about each. It must not import any of those packages,
and it doesn't know how the table is searched (`handles` does).

A kind that a plain `pickle` refuses too still stands here, because "cannot pickle '_csv.reader' object"
doesn't tell anybody what to do next. Kinds are grouped by the mend that their hints share.
"""

from __future__ import annotations

import datetime
import re
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath
from typing import Any


@dataclass(frozen=True)
class Kind:
    """One kind of handle.

    `types` are classes, or names `"module:qualname"` of classes that need not be loaded; subclasses
    count too. `like` decides once per type, for handles that share no class (DB-API drivers). `when`
    looks at the object, for types that are handles only sometimes. A predicate that raises counts as
    yes: what can't be vouched for isn't saved. `of_other_loop` limits the kind to what is bound to an
    event loop other than the agent loop. `hint` is one clause: what to do about it.
    """

    name: str
    types: tuple[type | str, ...] = ()
    hint: str = "close it before the await, use it inside a tool, or declare it with @snaprt.resource"
    when: Callable[[Any], bool] | None = None
    like: Callable[[type], bool] | None = None
    of_other_loop: bool = False

    def __post_init__(self) -> None:
        for entry in self.types:
            if not isinstance(entry, type) and not (isinstance(entry, str) and all(entry.partition(":"))):
                raise TypeError(
                    f"handle kind {self.name!r}: {entry!r} is neither a class nor a name 'module:qualname'"
                )
        if not self.types and self.like is None:
            raise TypeError(f"handle kind {self.name!r} has neither types nor `like`, so it can't match")

    def holds(self, obj: object) -> bool:
        """Whether this very object, of a type of this kind, is a handle now."""
        if self.when is None:
            return True
        try:
            return bool(self.when(obj))
        except Exception:
            return True


def _named(*names: str) -> tuple[type | str, ...]:
    """`"module:A B C"` stands for three names of one module."""
    found: list[type | str] = []
    for name in names:
        module, _, qualnames = name.partition(":")
        found += (f"{module}:{qualname}" for qualname in qualnames.split())
    return tuple(found)


def _unread(obj: Any) -> bool:
    """A response whose body is still on the wire."""
    return not (obj.is_closed and hasattr(obj, "_content"))


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


def _is_trio(cls: type) -> bool:
    module = str(cls.__module__)
    if module.partition(".")[0] != "trio" and not module.startswith("anyio._backends._trio"):
        return False
    return not issubclass(cls, (BaseException, PurePath, Enum, type))


_RESOURCE = "declare it with @snaprt.resource so that it is reopened, or use it inside a tool"
_CLIENT = "open and close it inside a tool, or declare it with @snaprt.resource"
_FILE = "read or write it inside a tool and close it there, or close it before the await and keep its path"
_ARCHIVE = "close it before the await and keep the path, or work on it inside a tool"
_DATABASE = "declare the connection with @snaprt.resource, or query inside a tool and return plain rows"
_CURSOR = "fetch the rows into a list before the await; declare its connection with @snaprt.resource"
_THREADS = "run it inside a tool; agent code is single-threaded and needs no threads"
_LOCK = "use asyncio's twin of it, which travels; agent code is single-threaded"
_PROCESS = "run it inside a tool and return what it printed or computed"
_LOOP = "await it inside a tool; agent code may only wait for its own loop's tasks and futures"
_STREAM = "finish the (de)compression before the await and keep the bytes, or do it inside a tool"
_HASH = "keep the bytes and hash them after the await, or finish with hexdigest() before it"
_MEMORY = "copy it with bytes(...) before the await"
_NATIVE = "keep it inside a tool, or in a module global that is made at import"
_DISPLAY = "show progress from inside a tool, or close it before the await"

_CAPSULE = type(datetime.datetime_CAPI)  # the capsule that is always at hand
_SCANNER = type(re.compile("").scanner(""))  # type: ignore[attr-defined]  # undocumented; its type has no name
_CALLABLE_ITERATOR = type(iter(int, 1))

TABLE: tuple[Kind, ...] = (
    # --- files ------------------------------------------------------------------------------------
    Kind(
        "open file", _named("_io:FileIO BufferedReader BufferedWriter BufferedRandom BufferedRWPair"), _FILE
    ),
    Kind("open text file", _named("_io:TextIOWrapper", "_pyio:TextIOWrapper FileIO BufferedReader"), _FILE),
    Kind(
        "open text file", _named("codecs:StreamReaderWriter StreamRecoder StreamReader StreamWriter"), _FILE
    ),
    Kind("files read in turn", ("fileinput:FileInput",), _FILE),
    Kind(
        "temporary file",
        _named("tempfile:_TemporaryFileWrapper _TemporaryFileCloser SpooledTemporaryFile"),
        "keep its bytes, or write to a path of your own inside a tool; a temporary file stays on its machine",
    ),
    Kind(
        "temporary directory",
        ("tempfile:TemporaryDirectory",),
        "make and use it inside one tool; a temporary directory stays on its machine",
    ),
    Kind("zip archive", ("zipfile:ZipFile",), _ARCHIVE),
    Kind("open member of a zip archive", _named("zipfile:ZipExtFile _ZipWriteFile"), _ARCHIVE),
    Kind("tar archive", _named("tarfile:TarFile ExFileObject _FileInFile _Stream"), _ARCHIVE),
    Kind("gzip file", _named("gzip:GzipFile _GzipReader"), _ARCHIVE),
    Kind("bz2 file", ("bz2:BZ2File",), _ARCHIVE),
    Kind("lzma file", ("lzma:LZMAFile",), _ARCHIVE),
    Kind("zstd file", _named("compression.zstd:ZstdFile"), _ARCHIVE),
    Kind("wave file", _named("wave:Wave_read Wave_write"), _ARCHIVE),
    Kind("mailbox", ("mailbox:Mailbox",), _ARCHIVE),
    Kind("shelf", ("shelve:Shelf",), _RESOURCE),
    Kind(
        "dbm database",
        _named("dbm.dumb:_Database", "dbm.sqlite3:_Database", "_dbm:dbm", "_gdbm:gdbm"),
        _RESOURCE,
    ),
    Kind("HDF5 file", _named("h5py:File", "tables:File"), _RESOURCE),
    Kind("LMDB environment", _named("lmdb:Environment Transaction Cursor"), _RESOURCE),
    Kind(
        "open fsspec file",
        _named("fsspec.spec:AbstractBufferedFile", "fsspec.implementations.local:LocalFileOpener"),
        _FILE,
    ),
    Kind("open fsspec file", ("fsspec.core:OpenFile",), _FILE, when=lambda obj: bool(obj.fobjects)),
    Kind(
        "open async file",
        _named("anyio:AsyncFile", "anyio._core._fileio:AsyncFile", "aiofiles.base:AsyncBase"),
        _FILE,
    ),
    Kind("pipe from os.popen", ("os:_wrap_close",), _PROCESS),
    Kind(
        "directory scan",
        _named("posix:ScandirIterator", "nt:ScandirIterator"),
        "list it with os.listdir, or take the paths into a list before the await",
    ),
    Kind("directory entry", _named("posix:DirEntry", "nt:DirEntry"), "keep entry.path instead"),
    # --- network ----------------------------------------------------------------------------------
    Kind("socket", _named("_socket:socket", "socket:SocketIO"), _CLIENT),
    Kind(
        "SSL context", ("_ssl:_SSLContext", "truststore:SSLContext"), "make it inside the tool that connects"
    ),
    Kind(
        "SSL connection", _named("ssl:SSLObject", "_ssl:_SSLSocket MemoryBIO SSLSession Certificate"), _CLIENT
    ),
    Kind("selector", _named("selectors:BaseSelector _BaseSelectorImpl"), "wait for sockets inside a tool"),
    Kind("poll object", _named("select:epoll poll kqueue devpoll"), "wait for descriptors inside a tool"),
    Kind("HTTP connection", ("http.client:HTTPConnection",), _CLIENT),
    Kind(
        "HTTP response",
        ("http.client:HTTPResponse",),
        "read it inside the tool that asked, and return the body",
    ),
    Kind("URL opener", ("urllib.request:OpenerDirector",), _CLIENT),
    Kind(
        "URL response",
        ("urllib.response:addbase",),
        "read it inside the tool that asked, and return the body",
    ),
    Kind("FTP connection", ("ftplib:FTP",), _CLIENT),
    Kind("SMTP connection", ("smtplib:SMTP",), _CLIENT),
    Kind("IMAP connection", ("imaplib:IMAP4",), _CLIENT),
    Kind("POP3 connection", ("poplib:POP3",), _CLIENT),
    Kind("NNTP or Telnet connection", _named("nntplib:NNTP", "telnetlib:Telnet"), _CLIENT),
    Kind("XML-RPC client", ("xmlrpc.client:ServerProxy",), _CLIENT),
    Kind(
        "server",
        _named("socketserver:BaseServer BaseRequestHandler"),
        "serve from the host program, not from agent code",
    ),
    Kind(
        "httpx client",
        _named("httpx:Client AsyncClient", "httpx._client:BaseClient", "httpx2._client:BaseClient"),
        _CLIENT,
    ),
    Kind(
        "httpx transport",
        _named("httpx:BaseTransport AsyncBaseTransport", "httpx2:BaseTransport AsyncBaseTransport"),
        _CLIENT,
    ),
    Kind(
        "httpx response that isn't read",
        _named("httpx:Response", "httpx2:Response"),
        "read it before the await (response.read()), or return its body from a tool",
        when=_unread,
    ),
    Kind(
        "HTTP connection pool",
        _named(
            "httpcore:ConnectionPool AsyncConnectionPool HTTPConnection AsyncHTTPConnection",
            "httpcore:NetworkStream AsyncNetworkStream",
            "httpcore2:ConnectionPool AsyncConnectionPool",
            "urllib3:PoolManager HTTPConnectionPool",
            "urllib3.connectionpool:ConnectionPool",
        ),
        _CLIENT,
    ),
    Kind(
        "urllib3 response",
        ("urllib3.response:BaseHTTPResponse",),
        "read it inside the tool that asked, and return the body",
    ),
    Kind("requests session", _named("requests:Session", "requests.adapters:BaseAdapter"), _CLIENT),
    Kind(
        "requests response that isn't read",
        ("requests:Response",),
        "read it before the await (response.content), or return its body from a tool",
        when=lambda obj: not obj._content_consumed,
    ),
    Kind("aiohttp session", _named("aiohttp:ClientSession BaseConnector"), _CLIENT),
    Kind(
        "aiohttp response",
        _named("aiohttp:ClientResponse ClientWebSocketResponse StreamReader"),
        "read it inside the tool that asked, and return the body",
    ),
    Kind(
        "aiohttp server",
        _named("aiohttp.web:BaseRunner BaseSite Server"),
        "serve from the host program, not from agent code",
    ),
    Kind(
        "AWS client",
        _named(
            "botocore.client:BaseClient", "botocore.endpoint:Endpoint", "botocore.httpsession:URLLib3Session"
        ),
        _CLIENT,
    ),
    Kind("AWS session", _named("botocore.session:Session", "boto3.session:Session"), _CLIENT),
    Kind(
        "AWS resource",
        _named("boto3.resources.base:ServiceResource"),
        "keep its name and look it up inside a tool",
    ),
    Kind(
        "AWS response body",
        _named("botocore.response:StreamingBody", "aiobotocore.response:StreamingBody"),
        "read it inside the tool that asked, and return the bytes",
    ),
    Kind(
        "gRPC channel",
        _named("grpc:Channel Server", "grpc._channel:Channel", "grpc.aio:Channel Server"),
        _CLIENT,
    ),
    Kind(
        "SSH connection",
        _named("paramiko:SSHClient Transport Channel SFTPClient", "asyncssh:SSHClientConnection SFTPClient"),
        _CLIENT,
    ),
    Kind(
        "WebSocket",
        _named(
            "websockets.asyncio.connection:Connection",
            "websockets.sync.connection:Connection",
            "websocket:WebSocket",
        ),
        _CLIENT,
    ),
    Kind("ZeroMQ socket", _named("zmq:Context Socket Poller", "zmq.sugar.socket:Socket"), _CLIENT),
    Kind(
        "message broker connection",
        _named(
            "pika:BaseConnection BlockingConnection",
            "kafka:KafkaProducer KafkaConsumer",
            "nats:NATS",
            "nats.aio.client:Client",
            "paho.mqtt.client:Client",
            "aio_pika:Connection",
        ),
        _CLIENT,
    ),
    Kind(
        "model client",
        _named(
            "openai._base_client:BaseClient",
            "anthropic._base_client:BaseClient",
            "google.genai:Client",
            "mistralai:Mistral",
            "cohere:Client",
        ),
        _CLIENT,
    ),
    Kind(
        "Docker or Kubernetes client",
        _named("docker:DockerClient APIClient", "kubernetes.client:ApiClient"),
        _CLIENT,
    ),
    Kind(
        "browser",
        _named(
            "playwright._impl._connection:ChannelOwner Connection",
            "playwright._impl._sync_base:SyncBase",
            "playwright._impl._async_base:AsyncBase",
            "selenium.webdriver.remote.webdriver:WebDriver",
        ),
        _CLIENT,
    ),
    Kind("serial port", ("serial:SerialBase",), _RESOURCE),
    Kind(
        "network stream",
        _named(
            "anyio.abc:SocketStream SocketListener UDPSocket ConnectedUDPSocket",
            "anyio.abc._sockets:SocketStream SocketListener UDPSocket ConnectedUDPSocket",
            "anyio.streams.tls:TLSStream TLSListener",
            "anyio.streams.file:FileReadStream FileWriteStream",
        ),
        _CLIENT,
    ),
    # --- event loops ------------------------------------------------------------------------------
    Kind(
        "event loop",
        _named("asyncio.events:AbstractEventLoop", "uvloop:Loop"),
        "get the running loop anew where you need it",
    ),
    Kind(
        "loop runner",
        _named("asyncio.runners:Runner", "asyncio.events:AbstractEventLoopPolicy _AbstractEventLoopPolicy"),
        "run loops in the host program, not in agent code",
    ),
    Kind("task of another loop", _named("_asyncio:Task", "asyncio.tasks:_PyTask"), _LOOP, of_other_loop=True),
    Kind(
        "future of another loop",
        _named("_asyncio:Future", "asyncio.futures:_PyFuture"),
        _LOOP,
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
    Kind("transport", _named("asyncio.transports:BaseTransport", "uvloop.loop:UVBaseTransport"), _CLIENT),
    Kind("asyncio stream", _named("asyncio.streams:StreamReader StreamWriter FlowControlMixin"), _CLIENT),
    Kind(
        "server", _named("asyncio.events:AbstractServer"), "serve from the host program, not from agent code"
    ),
    Kind("asyncio subprocess", _named("asyncio.subprocess:Process SubprocessStreamProtocol"), _PROCESS),
    Kind("subprocess", ("anyio.abc:Process", "anyio.abc._subprocesses:Process"), _PROCESS),
    Kind(
        "portal between threads", _named("anyio.from_thread:BlockingPortal BlockingPortalProvider"), _THREADS
    ),
    Kind("trio object", hint="keep it inside a tool; agent code runs on asyncio's interface", like=_is_trio),
    # --- threads ----------------------------------------------------------------------------------
    Kind("thread", _named("threading:Thread", "_thread:_ThreadHandle"), _THREADS),
    Kind(
        "thread local",
        _named("_thread:_local", "_threading_local:local"),
        "use a contextvars.ContextVar, which travels",
    ),
    Kind("thread lock", _named("_thread:lock RLock", "threading:_RLock"), _LOCK),
    Kind("thread condition", ("threading:Condition",), _LOCK),
    Kind("thread semaphore", ("threading:Semaphore",), _LOCK),
    Kind("thread event", ("threading:Event",), _LOCK),
    Kind("thread barrier", ("threading:Barrier",), _LOCK),
    Kind(
        "thread queue",
        _named("queue:Queue _PySimpleQueue", "_queue:SimpleQueue"),
        "use asyncio.Queue, which travels with its items",
    ),
    Kind("executor", ("concurrent.futures._base:Executor",), _THREADS),
    Kind(
        "future of an executor",
        ("concurrent.futures._base:Future",),
        "wait for it inside a tool and return its result",
    ),
    # --- processes --------------------------------------------------------------------------------
    Kind("process", ("multiprocessing.process:BaseProcess",), _PROCESS),
    Kind("pipe between processes", _named("multiprocessing.connection:_ConnectionBase Listener"), _PROCESS),
    Kind("queue between processes", _named("multiprocessing.queues:Queue SimpleQueue"), _PROCESS),
    Kind(
        "manager or proxy of shared objects",
        _named("multiprocessing.managers:BaseManager BaseProxy Server"),
        _PROCESS,
    ),
    Kind("process pool", ("multiprocessing.pool:Pool",), _PROCESS),
    Kind(
        "shared memory",
        _named(
            "multiprocessing.shared_memory:SharedMemory ShareableList",
            "multiprocessing.heap:Arena BufferWrapper",
            "multiprocessing.sharedctypes:SynchronizedBase",
        ),
        "copy what you need out of it before the await",
    ),
    Kind(
        "lock between processes",
        _named("multiprocessing.synchronize:SemLock Condition Event Barrier", "_multiprocessing:SemLock"),
        _LOCK,
    ),
    Kind("finalizer of multiprocessing", ("multiprocessing.util:Finalize",), _PROCESS),
    Kind("subprocess", _named("subprocess:Popen", "multiprocessing.popen_fork:Popen"), _PROCESS),
    Kind("subinterpreter", _named("concurrent.interpreters:Interpreter Queue"), _THREADS),
    # --- databases --------------------------------------------------------------------------------
    Kind("DB-API connection", hint=_DATABASE, like=_is_connection),
    Kind("DB-API cursor", hint=_CURSOR, like=_is_cursor),
    Kind("SQLite connection", ("sqlite3:Connection",), _DATABASE),
    Kind("SQLite cursor", ("sqlite3:Cursor",), _CURSOR),
    Kind("SQLite blob", ("sqlite3:Blob",), "read it before the await and keep the bytes"),
    Kind(
        "database connection",
        _named(
            "aiosqlite:Connection",
            "asyncpg.connection:Connection",
            "asyncpg.pool:Pool PoolConnectionProxy",
            "psycopg:BaseConnection Connection AsyncConnection",
            "psycopg_pool.base:BasePool",
            "psycopg2.extensions:connection",
            "pymysql.connections:Connection",
            "MySQLdb.connections:Connection",
            "mysql.connector.abstracts:MySQLConnectionAbstract",
            "oracledb:BaseConnection ConnectionPool",
            "pyodbc:Connection",
            "duckdb:DuckDBPyConnection",
            "sqlalchemy.engine:Engine Connection Transaction",
            "sqlalchemy.ext.asyncio:AsyncEngine AsyncConnection AsyncSession",
            "sqlalchemy.orm:Session scoped_session",
            "sqlalchemy.pool:Pool",
            "peewee:Database",
            "tortoise.backends.base.client:BaseDBAsyncClient",
            "cassandra.cluster:Cluster Session",
            "neo4j:Driver AsyncDriver Session AsyncSession",
            "clickhouse_connect.driver.client:Client",
            "snowflake.connector:SnowflakeConnection",
        ),
        _DATABASE,
    ),
    Kind(
        "database cursor",
        _named(
            "aiosqlite:Cursor",
            "asyncpg.cursor:Cursor CursorFactory",
            "asyncpg.prepared_stmt:PreparedStatement",
            "psycopg:Cursor AsyncCursor",
            "psycopg2.extensions:cursor",
            "pymysql.cursors:Cursor",
            "MySQLdb.cursors:BaseCursor",
            "duckdb:DuckDBPyRelation",
            "sqlalchemy.engine:Result CursorResult",
            "pymongo.cursor:Cursor",
        ),
        _CURSOR,
    ),
    Kind(
        "Redis client",
        _named(
            "redis:Redis ConnectionPool", "redis.asyncio:Redis ConnectionPool", "redis.client:PubSub Pipeline"
        ),
        _DATABASE,
    ),
    Kind(
        "MongoDB client",
        _named("pymongo:MongoClient AsyncMongoClient", "motor.core:AgnosticClient"),
        _DATABASE,
    ),
    # --- memory and native code -------------------------------------------------------------------
    Kind("memory map", ("mmap:mmap",), _MEMORY),
    Kind("memoryview", (memoryview,), _MEMORY),
    Kind("ctypes pointer", _named("_ctypes:_Pointer"), "copy what it points to into bytes before the await"),
    Kind("ctypes function pointer", ("_ctypes:CFuncPtr",), _NATIVE),
    Kind("loaded C library", _named("ctypes:CDLL LibraryLoader"), _NATIVE),
    Kind(
        "ctypes data with pointers", ("_ctypes:_CData",), "keep the plain values in a dataclass", when=_points
    ),
    Kind("cffi pointer or library", _named("_cffi_backend:_CDataBase CData Lib"), _NATIVE),
    Kind("capsule", (_CAPSULE,), _NATIVE),
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
        _named(
            "zlib:Compress Decompress _ZlibDecompressor",
            "_bz2:BZ2Compressor BZ2Decompressor",
            "_lzma:LZMACompressor LZMADecompressor",
            "_zstd:ZstdCompressor ZstdDecompressor",
            "zstandard:ZstdCompressor ZstdDecompressor",
            "zstandard.backend_c:ZstdCompressionObj ZstdDecompressionObj",
            "zstandard.backend_c:ZstdCompressionReader ZstdDecompressionReader",
            "zstandard.backend_c:ZstdCompressionWriter ZstdDecompressionWriter",
        ),
        _STREAM,
    ),
    Kind(
        "hash under way",
        _named(
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
        _HASH,
    ),
    Kind(
        "match iterator",
        (_CALLABLE_ITERATOR,),
        "take the matches' groups into a list before the await",
        when=_holds_scanner,
    ),
    Kind("match scanner", (_SCANNER,), "take the matches' groups into a list before the await"),
    Kind("CSV reader", _named("_csv:reader Reader"), "take the rows into a list before the await"),
    Kind(
        "CSV writer", _named("_csv:writer Writer"), "finish writing before the await, or write inside a tool"
    ),
    Kind(
        "XML parser",
        _named("pyexpat:xmlparser", "xml.etree.ElementTree:XMLPullParser XMLParser"),
        "parse to the end before the await and keep the tree",
    ),
    Kind(
        "randomness of the system",
        ("random:SystemRandom",),
        "make it anew where you need it, or as a module global",
    ),
    Kind("profiler", _named("_lsprof:Profiler", "profile:Profile"), "profile inside a tool"),
    Kind(
        "terminal or window",
        _named("_curses:window", "_tkinter:tkapp", "tkinter:Misc"),
        "keep the user interface in the host program",
    ),
    # --- other things that stay ---------------------------------------------------------------------
    Kind(
        "log handler",
        _named("logging:Handler", "logging.handlers:QueueListener"),
        "configure logging at import in every process; loggers travel by name",
    ),
    Kind("finalizer", ("weakref:finalize",), "clean up in a finally block or a with statement, which travel"),
    Kind(
        "progress bar",
        _named("tqdm.std:tqdm", "rich.progress:Progress", "rich.live:Live", "rich.status:Status"),
        _DISPLAY,
    ),
    Kind("console", _named("rich.console:Console"), "make it a module global"),
    Kind(
        "file watcher",
        _named("watchdog.observers.api:BaseObserver", "watchfiles:RustNotify"),
        "watch files from the host program",
    ),
    Kind(
        "video or sound device",
        _named("cv2:VideoCapture VideoWriter", "sounddevice:_StreamBase", "pyaudio:PyAudio"),
        _RESOURCE,
    ),
)
