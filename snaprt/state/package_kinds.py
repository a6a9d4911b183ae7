"""The table of handle kinds: classes of widely used packages that are live, by name.

None of these packages is imported here. This file doesn't know how the table is searched (`handles` does).
"""

from __future__ import annotations

from enum import Enum
from mmap import mmap
from pathlib import PurePath
from typing import Any

from snaprt.state.kinds import (
    ANOTHER_LOOP,
    CLIENT,
    CURSOR,
    DATABASE,
    DISPLAY,
    FILE,
    IN_CONNECTING,
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


def _unread(obj: Any) -> bool:
    """A response whose body is still on the wire."""
    return not (obj.is_closed and hasattr(obj, "_content"))


def _mapped(array: Any) -> bool:
    """Whether an array lies in a memory map: it, or what it is a part of."""
    held = array.base
    while held is not None and not isinstance(held, mmap):
        held = held.obj if type(held) is memoryview else getattr(held, "base", None)
    return held is not None


def _is_trio(cls: type) -> bool:
    module = str(cls.__module__)
    if module.partition(".")[0] != "trio" and not module.startswith("anyio._backends._trio"):
        return False
    return not issubclass(cls, (BaseException, PurePath, Enum, type))


PACKAGES: tuple[Kind, ...] = (
    # --- files ------------------------------------------------------------------------------------
    Kind("HDF5 file", named("h5py:File", "tables:File"), RESOURCE),
    Kind("LMDB environment", named("lmdb:Environment Transaction Cursor"), RESOURCE),
    Kind(
        "open fsspec file",
        named("fsspec.spec:AbstractBufferedFile", "fsspec.implementations.local:LocalFileOpener"),
        FILE,
    ),
    Kind("open fsspec file", ("fsspec.core:OpenFile",), FILE, when=lambda obj: bool(obj.fobjects)),
    Kind(
        "open async file",
        named("anyio:AsyncFile", "anyio._core._fileio:AsyncFile", "aiofiles.base:AsyncBase"),
        FILE,
    ),
    # --- network ----------------------------------------------------------------------------------
    Kind("SSL context", ("truststore:SSLContext",), IN_CONNECTING),
    Kind(
        "httpx client",
        named("httpx:Client AsyncClient", "httpx._client:BaseClient", "httpx2._client:BaseClient"),
        CLIENT,
    ),
    Kind(
        "httpx transport",
        named("httpx:BaseTransport AsyncBaseTransport", "httpx2:BaseTransport AsyncBaseTransport"),
        CLIENT,
    ),
    Kind(
        "httpx response that isn't read",
        named("httpx:Response", "httpx2:Response"),
        "read it before the await (response.read()), or return its body from a tool",
        when=_unread,
    ),
    Kind(
        "HTTP connection pool",
        named(
            "httpcore:ConnectionPool AsyncConnectionPool HTTPConnection AsyncHTTPConnection",
            "httpcore:NetworkStream AsyncNetworkStream",
            "httpcore2:ConnectionPool AsyncConnectionPool",
            "urllib3:PoolManager HTTPConnectionPool",
            "urllib3.connectionpool:ConnectionPool",
        ),
        CLIENT,
    ),
    Kind(
        "urllib3 response",
        ("urllib3.response:BaseHTTPResponse",),
        READ,
    ),
    Kind("requests session", named("requests:Session", "requests.adapters:BaseAdapter"), CLIENT),
    Kind(
        "requests response that isn't read",
        ("requests:Response",),
        "read it before the await (response.content), or return its body from a tool",
        when=lambda obj: not obj._content_consumed,
    ),
    Kind("aiohttp session", named("aiohttp:ClientSession BaseConnector"), CLIENT),
    Kind(
        "aiohttp response",
        named("aiohttp:ClientResponse ClientWebSocketResponse StreamReader"),
        READ,
    ),
    Kind(
        "aiohttp server",
        named("aiohttp.web:BaseRunner BaseSite Server"),
        SERVE,
    ),
    Kind(
        "AWS client",
        named(
            "botocore.client:BaseClient", "botocore.endpoint:Endpoint", "botocore.httpsession:URLLib3Session"
        ),
        CLIENT,
    ),
    Kind("AWS session", named("botocore.session:Session", "boto3.session:Session"), CLIENT),
    Kind(
        "AWS resource",
        named("boto3.resources.base:ServiceResource"),
        "keep its name and look it up inside a tool",
    ),
    Kind(
        "AWS response body",
        named("botocore.response:StreamingBody", "aiobotocore.response:StreamingBody"),
        "read it inside the tool that asked, and return the bytes",
    ),
    Kind(
        "gRPC channel",
        named("grpc:Channel Server", "grpc._channel:Channel", "grpc.aio:Channel Server"),
        CLIENT,
    ),
    Kind(
        "SSH connection",
        named("paramiko:SSHClient Transport Channel SFTPClient", "asyncssh:SSHClientConnection SFTPClient"),
        CLIENT,
    ),
    Kind(
        "WebSocket",
        named(
            "websockets.asyncio.connection:Connection",
            "websockets.sync.connection:Connection",
            "websocket:WebSocket",
        ),
        CLIENT,
    ),
    Kind("ZeroMQ socket", named("zmq:Context Socket Poller", "zmq.sugar.socket:Socket"), CLIENT),
    Kind(
        "message broker connection",
        named(
            "pika:BaseConnection BlockingConnection",
            "kafka:KafkaProducer KafkaConsumer",
            "nats:NATS",
            "nats.aio.client:Client",
            "paho.mqtt.client:Client",
            "aio_pika:Connection",
        ),
        CLIENT,
    ),
    Kind(
        "model client",
        named(
            "openai._base_client:BaseClient",
            "anthropic._base_client:BaseClient",
            "google.genai:Client",
            "mistralai:Mistral",
            "cohere:Client",
        ),
        CLIENT,
    ),
    Kind(
        "Docker or Kubernetes client",
        named("docker:DockerClient APIClient", "kubernetes.client:ApiClient"),
        CLIENT,
    ),
    Kind(
        "browser",
        named(
            "playwright._impl._connection:ChannelOwner Connection",
            "playwright._impl._sync_base:SyncBase",
            "playwright._impl._async_base:AsyncBase",
            "selenium.webdriver.remote.webdriver:WebDriver",
        ),
        CLIENT,
    ),
    Kind("serial port", ("serial:SerialBase",), RESOURCE),
    Kind(
        "network stream",
        named(
            "anyio.abc:SocketStream SocketListener UDPSocket ConnectedUDPSocket",
            "anyio.abc._sockets:SocketStream SocketListener UDPSocket ConnectedUDPSocket",
            "anyio.streams.tls:TLSStream TLSListener",
            "anyio.streams.file:FileReadStream FileWriteStream",
        ),
        CLIENT,
    ),
    # --- event loops ------------------------------------------------------------------------------
    Kind("event loop", ("uvloop:Loop",), ANOTHER_LOOP),
    Kind("transport", ("uvloop.loop:UVBaseTransport",), CLIENT),
    Kind("subprocess", ("anyio.abc:Process", "anyio.abc._subprocesses:Process"), PROCESS),
    Kind("portal between threads", named("anyio.from_thread:BlockingPortal BlockingPortalProvider"), THREADS),
    Kind("trio object", hint="keep it inside a tool; agent code runs on asyncio's interface", like=_is_trio),
    # --- databases --------------------------------------------------------------------------------
    Kind(
        "database connection",
        named(
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
        DATABASE,
    ),
    Kind(
        "database cursor",
        named(
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
        CURSOR,
    ),
    Kind(
        "Redis client",
        named(
            "redis:Redis ConnectionPool", "redis.asyncio:Redis ConnectionPool", "redis.client:PubSub Pipeline"
        ),
        DATABASE,
    ),
    Kind(
        "MongoDB client",
        named("pymongo:MongoClient AsyncMongoClient", "motor.core:AgnosticClient"),
        DATABASE,
    ),
    # --- memory and native code -------------------------------------------------------------------
    Kind(
        "array in a memory map",
        ("numpy:ndarray",),
        "copy what you need of it with numpy.array(...) before the await, or map it inside a tool",
        when=_mapped,
    ),
    Kind("cffi pointer or library", named("_cffi_backend:_CDataBase CData Lib"), NATIVE),
    Kind(
        "compressor or decompressor",
        named(
            "zstandard:ZstdCompressor ZstdDecompressor",
            "zstandard.backend_c:ZstdCompressionObj ZstdDecompressionObj",
            "zstandard.backend_c:ZstdCompressionReader ZstdDecompressionReader",
            "zstandard.backend_c:ZstdCompressionWriter ZstdDecompressionWriter",
        ),
        STREAM,
    ),
    # --- other things that stay ---------------------------------------------------------------------
    Kind(
        "progress bar",
        named("tqdm.std:tqdm", "rich.progress:Progress", "rich.live:Live", "rich.status:Status"),
        DISPLAY,
    ),
    Kind("console", named("rich.console:Console"), "make it a module global"),
    Kind(
        "file watcher",
        named("watchdog.observers.api:BaseObserver", "watchfiles:RustNotify"),
        "watch files from the host program",
    ),
    Kind(
        "video or sound device",
        named("cv2:VideoCapture VideoWriter", "sounddevice:_StreamBase", "pyaudio:PyAudio"),
        RESOURCE,
    ),
)
