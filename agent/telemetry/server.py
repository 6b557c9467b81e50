"""HTTP server for /metrics, /verdict, /healthz and /readyz on one address, and its TLS.

prometheus_client renders /metrics (agent/telemetry/metrics.py), and brings the threading WSGI
server. This module adds limits, since clients may be slow, hostile or many:

- At most MAX_CONNECTIONS connections are open, each with one thread. A new connection above that
  limit closes the oldest one. An honest client sends its request at once, so MAX_CONNECTIONS new
  connections within its few milliseconds are needed to displace it.
- A connection carries one request of at most MAX_REQUEST_BYTES. One deadline covers the TLS
  handshake, the request and the response, however many small pieces they come in.
- A request causes no log line and no DNS look-up, and takes no lock of the loop: it reads Status
  and the Metrics' immutable snapshot.
- One /metrics response is rendered at a time, so that many scrapers together take no more of the
  interpreter from the loop than one.

An address that is not there yet is waited for: a node's address may appear after its pods start,
and an IPv6 address is unusable until duplicate address detection ends. Any other error at the
start is final: a port in use or not permitted stays so.

With a client CA, /metrics and /verdict need a certificate. /healthz and /readyz do not, since a
kubelet has none to show: the handshake asks for a certificate without requiring it, and a wrong
certificate ends it.

- Certificate files that cannot be used at the start end the command with one line. Later ones are
  reported in `fault`, and the certificates in use stay.
- A Secret is replaced file by file or by a symbolic link: the state of all files is compared before
  each connection, and taken before they are read, so a change meanwhile causes another read. Files
  that cannot be used are read again for each connection: what mends them may be no change of theirs
  (permissions of a folder, descriptors).
"""

from __future__ import annotations

import errno
import io
import os
import re
import socket
import socketserver
import ssl
import stat
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client.exposition import ThreadingWSGIServer

from agent.errors import Malformed, Unavailable
from agent.limits import start_thread
from agent.pace import BackOff
from agent.telemetry.readiness import Status

Environ = dict[str, Any]
HeaderPairs = list[tuple[str, str]]
Response = tuple[str, HeaderPairs, bytes]  # status line, headers, body
Versions = tuple[tuple[int, int, int] | None, ...]
# Of the Accept header and the names asked for: content type and text (agent/telemetry/metrics.py)
Expose = Callable[[str, Sequence[str]], tuple[str, bytes]]

MAX_CONNECTIONS = 16
MAX_REQUEST_BYTES = 8192  # request line and headers
REQUEST_TIMEOUT = 5.0  # seconds for a whole connection
CLOSE_TIMEOUT = 1.0  # seconds until the thread of a displaced connection has ended
ACCEPT_PAUSE = 1.0  # seconds without new connections while descriptors or memory are exhausted
BIND_INTERVAL, MAX_BIND_INTERVAL = 1.0, 60.0  # seconds between attempts to bind, doubling
POLL_INTERVAL = 3600.0  # seconds of socketserver's select; connections and stop() wake it up
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
PLAIN = ("Content-Type", "text/plain; charset=utf-8")
JSON = ("Content-Type", "application/json")
PROBES = {"/healthz": Status.health, "/readyz": Status.readiness}
CERTIFIED = "bwagent.client_certified"  # in the environment: the client has shown a certificate
MAX_FILE_BYTES = 1 << 20  # of PEM
MISMATCH = "KEY_VALUES_MISMATCH"  # SSLError.reason
_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")


class Files(NamedTuple):
    """The paths of the flags --metrics-cert, --metrics-key and --metrics-client-ca."""

    cert: str
    key: str
    client_ca: str | None = None


class Certificates:
    """The TLS context of the files as they are now, or as they were last usable."""

    def __init__(self, files: Files) -> None:
        """Read the files; raises Unavailable if they cannot be used."""
        self.fault = ""  # the reason why the files as they are now cannot be used
        self._files = files
        self._state = _state(files)
        try:
            self._context = _context(files)
        except (Malformed, OSError) as error:
            raise Unavailable(f"cannot serve metrics: {error}") from error

    @property
    def asks_clients(self) -> bool:
        """True if /metrics and /verdict need a client certificate."""
        return self._files.client_ca is not None

    def context(self) -> ssl.SSLContext:
        """Return the context for a new connection."""
        state = _state(self._files)
        if state != self._state or self.fault:
            self._state = state
            try:
                self._context, self.fault = _context(self._files), ""
            except (Malformed, OSError) as error:
                self.fault = str(error)
        return self._context


def _state(files: Files) -> Versions:
    """Return device, inode and time of each file, which distinguish two versions; None: no file.

    The time is that of the inode: a copy may keep the time of the contents, chmod leaves it.
    """
    versions: list[tuple[int, int, int] | None] = []
    for path in files:
        try:
            status = Path(path).stat() if path else None
        except OSError:
            status = None
        versions.append((status.st_dev, status.st_ino, status.st_ctime_ns) if status else None)
    return tuple(versions)


def _context(files: Files) -> ssl.SSLContext:
    """Read the files; raises Malformed with a file's path, and OSError."""
    _require(files.cert, "BEGIN CERTIFICATE", "certificate")
    _require(files.key, "PRIVATE KEY", "private key")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)

    def refuse() -> str:
        """Answer OpenSSL, which asks for a password, in place of the terminal."""
        raise Malformed(f"{files.key} is encrypted")

    try:
        context.load_cert_chain(files.cert, files.key, refuse)
    except ssl.SSLError as error:
        if error.reason == MISMATCH:
            raise Malformed(f"{files.key} is not the key of {files.cert}") from error
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(files.cert)
        except ssl.SSLError as fault:
            raise Malformed(f"{files.cert}: {_words(fault, 'certificate')}") from error
        path = files.cert if error.reason else files.key
        raise Malformed(f"{path}: {_words(error, 'private key')}") from error
    if files.client_ca:
        _require(files.client_ca, "BEGIN CERTIFICATE", "certificate")
        try:
            context.load_verify_locations(files.client_ca)
        except ssl.SSLError as error:
            raise Malformed(f"{files.client_ca}: {_words(error, 'certificate')}") from error
        context.verify_mode = ssl.CERT_OPTIONAL
        # a resumed session would outlive the client's certificate
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    return context


def _require(path: str, mark: str, what: str) -> None:
    """Raise Malformed for a PEM file that cannot be read or lacks what it is for.

    A file that blocks, or that is longer than MAX_FILE_BYTES, is none.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, encoding="latin-1") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise Malformed(f"{path} is not a regular file")
            text = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise Malformed(f"{path}: {error.strerror}") from error
    if len(text) > MAX_FILE_BYTES:
        raise Malformed(f"{path} is longer than {MAX_FILE_BYTES} bytes")
    if mark not in text:
        raise Malformed(f"{path} has no {what} in PEM")


def _words(error: ssl.SSLError, what: str) -> str:
    """Return OpenSSL's reason in words, `ee key too small`; malformed files may have none."""
    return (error.reason or f"the {what} is malformed").replace("_", " ").lower()


class Application:
    """The WSGI application."""

    def __init__(self, expose: Expose, status: Status, *, asks_clients: bool = False) -> None:
        self._expose = expose
        self._rendering = threading.Lock()
        self._asks_clients = asks_clients  # for a certificate, before they get /metrics or /verdict
        self._status = status

    def __call__(self, environ: Environ, start_response: Callable[..., object]) -> Iterable[bytes]:
        """Answer GET, and HEAD with the same headers."""
        if environ["REQUEST_METHOD"] in {"GET", "HEAD"}:
            status, headers, body = self._response(environ)
        else:
            status, body = "405 Method Not Allowed", b"GET or HEAD\n"
            headers = [PLAIN, ("Allow", "GET, HEAD")]
        start_response(status, [*headers, ("Content-Length", str(len(body)))])
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else body]

    def _response(self, environ: Environ) -> Response:
        path = environ["PATH_INFO"]
        if path in PROBES:
            succeeded, text = PROBES[path](self._status)
            return "200 OK" if succeeded else "503 Service Unavailable", [PLAIN], text.encode()
        if path not in {"/metrics", "/verdict"}:
            return "404 Not Found", [PLAIN], b"/metrics, /verdict, /healthz or /readyz\n"
        if self._asks_clients and not environ.get(CERTIFIED):  # both have names of switches
            return "403 Forbidden", [PLAIN], b"a client certificate is needed\n"
        if path == "/verdict":
            status, body = self._status.verdict
            return status, [JSON], body
        # Not compressed, which would be a third of a scrape's CPU time.
        names = parse_qs(environ.get("QUERY_STRING", "")).get("name[]", [])
        try:
            with self._rendering:
                content_type, exposed = self._expose(environ.get("HTTP_ACCEPT", ""), names)
        except Exception as error:  # noqa: BLE001 - a bug in one metric must not end the thread
            fault = f"cannot render the metrics: {type(error).__name__}\n"
            return "500 Internal Server Error", [PLAIN], fault.encode()
        return "200 OK", [("Content-Type", content_type)], exposed


class Server:
    """A running server. `fault` is the reason why its address is waited for, or empty.

    Raises Unavailable if the address can never be bound.
    """

    def __init__(
        self,
        address: tuple[str, int],
        expose: Expose,
        status: Status,
        *,
        request_timeout: float = REQUEST_TIMEOUT,
        certificates: Certificates | None = None,  # None: plain HTTP
    ) -> None:
        self.address, self.fault = address, ""
        asks_clients = certificates is not None and certificates.asks_clients
        self._application = Application(expose, status, asks_clients=asks_clients)
        self._request_timeout = request_timeout
        self._certificates = certificates
        self._stop = threading.Event()
        self._http: _HttpServer | None = None
        try:
            self._bind()
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:  # else the thread tries again
                raise Unavailable(self.fault) from error
        self._thread = threading.Thread(target=self._serve, name="metrics", daemon=True)
        try:
            start_thread(self._thread)
        except RuntimeError as error:
            raise Unavailable(f"metrics server: {error}") from error

    @property
    def certificate_fault(self) -> str:
        """The reason why changed certificates are not used, or empty."""
        return self._certificates.fault if self._certificates else ""

    def close(self) -> None:
        """Stop, in the middle of a response too, and free the address."""
        self._stop.set()
        if self._http:
            self._http.stop()
        self._thread.join()

    def _bind(self) -> None:
        try:
            http = _HttpServer(
                self.address, self._application, self._request_timeout, self._certificates
            )
        except OSError as error:
            host, port = self.address
            reason = os.strerror(error.errno or 0)  # the error's own text repeats the address
            self.fault = f"cannot serve metrics on {host or '*'} port {port}: {reason}"
            raise
        self.address, self.fault = (str(http.server_name), http.server_port), ""
        self._http = http

    def _serve(self) -> None:
        """Bind, if that was not possible yet, and serve until the server is closed."""
        back_off = BackOff(BIND_INTERVAL, MAX_BIND_INTERVAL)
        while self._http is None and not self._stop.wait(back_off.failed()):
            with suppress(OSError):
                self._bind()
        if self._http and self._stop.is_set():
            self._http.server_close()
        elif self._http:
            self._http.serve_forever(POLL_INTERVAL)


class _Handler(WSGIRequestHandler):
    """One connection, in a thread of its own.

    http.server sees bytes in memory: the request as received, and the response before it is sent.
    """

    # A malformed request gets a response with a status line, not the bare body of HTTP/0.9, once
    # its head has ended.
    default_request_version = "HTTP/1.0"
    requestline = command = ""
    request_version = "HTTP/1.0"
    server: _HttpServer

    def setup(self) -> None:
        self.connection = self.request
        self._response = io.BytesIO()
        self.rfile, self.wfile = io.BytesIO(), self._response
        self._deadline = time.monotonic() + self.server.request_timeout

    def handle(self) -> None:
        if self.server.is_tls:
            self._in_time().do_handshake()
        head, end = b"", None
        while not end and len(head) <= MAX_REQUEST_BYTES:
            received = self._in_time().recv(MAX_REQUEST_BYTES)
            if not received:
                break
            head += received
            end = _END_OF_HEAD.search(head, max(0, len(head) - len(received) - 3))
        if len(head) > MAX_REQUEST_BYTES and not (end and end.end() <= MAX_REQUEST_BYTES):
            self.send_error(431)
        else:
            self.rfile = io.BytesIO(head)
            super().handle()
        self._in_time().sendall(self._response.getbuffer())
        # The kernel resets a connection that is closed with unread data, and the client may lose
        # the response.
        self.connection.shutdown(socket.SHUT_WR)
        while self._in_time().recv(MAX_REQUEST_BYTES):
            pass

    def _in_time(self) -> Any:
        """Return the socket, whose next call gets the remaining time; TimeoutError if none is."""
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        self.connection.settimeout(remaining)
        return self.connection

    def finish(self) -> None:
        """Leave the connection to the server, which closes it."""

    def get_environ(self) -> dict[str, Any]:
        """Return the request's environment; the handshake has verified a client's certificate."""
        is_certified = self.server.is_tls and bool(self.connection.getpeercert())
        return {**super().get_environ(), CERTIFIED: is_certified}

    def get_stderr(self) -> Any:
        return io.StringIO()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in http.server
        """Log nothing."""


class _HttpServer(ThreadingWSGIServer):
    """prometheus_client's server with a bound on the number of connections."""

    request_queue_size = 128

    def __init__(
        self,
        address: tuple[str, int],
        application: Application,
        request_timeout: float,
        certificates: Certificates | None,
    ) -> None:
        host = address[0]
        self._dual_stack = not host and socket.has_dualstack_ipv6()
        self.address_family = socket.AF_INET6 if self._dual_stack or ":" in host else socket.AF_INET
        self.request_timeout = request_timeout
        self._certificates, self.is_tls = certificates, certificates is not None
        self._open: dict[socket.socket, None] = {}  # the oldest first
        self._changed = threading.Condition()  # of `_open`
        self._stopping = threading.Event()
        super().__init__(address, _Handler)
        self.set_app(application)

    def stop(self) -> None:
        """End serve_forever and all connections, and close the listening socket."""
        self._stopping.set()
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # makes it readable: serve_forever wakes up
        self.shutdown()
        with self._changed:
            for sock in self._open:
                _cut(sock)
        self.server_close()

    def server_bind(self) -> None:
        """Bind as socketserver does: http.server would look up the address in the DNS."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not self._dual_stack)
        socketserver.TCPServer.server_bind(self)
        self.socket.setblocking(False)  # noqa: FBT003 - positional in the standard library
        self.server_name, self.server_port = self.socket.getsockname()[:2]
        self.setup_environ()

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection; pause where that would fail again at once."""
        try:
            sock, peer = super().get_request()
        except OSError as error:
            if error.errno in EXHAUSTED:
                self._stopping.wait(ACCEPT_PAUSE)
            raise
        if self._certificates is None:
            return sock, peer
        # The handshake waits for the client, so it is left to the connection's thread.
        context = self._certificates.context()
        return context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False), peer

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start the connection's thread, after the oldest connection has made room if need be."""
        with self._changed:
            if len(self._open) >= MAX_CONNECTIONS:
                _cut(next(iter(self._open)))
                if not self._changed.wait_for(
                    lambda: len(self._open) < MAX_CONNECTIONS, CLOSE_TIMEOUT
                ):
                    raise TimeoutError
            self._open[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection; called once for each that was accepted."""
        with self._changed:
            self._open.pop(request, None)
            self._changed.notify()
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that went away, timed out or failed the handshake."""


def _cut(sock: socket.socket) -> None:
    """Make every call on a socket return, in the thread that waits in it too."""
    with suppress(OSError):
        # Not SSLSocket.shutdown, which changes the object under the thread that uses it.
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
