"""One session with the API server: requests over kept connections, each with a deadline.

Daemon, Events, `cleanup` and `fleet` use it alike; urllib3 is the transport of the Kubernetes
client, too. agent/kube/access.py has the address and the credentials for each request; with
another CA or client certificate the connections are made anew.

Invariants:
- A call never raises: whatever the API server, a proxy, the resolver or the configuration does
  becomes an Answer, at the latest at the deadline. A peer that sends a byte now and then does not
  postpone it.
- Nothing is retried but a request on a kept connection that the server closed before it sent a
  byte, and only where sending it twice is sending it once. No redirect is followed.
- A write that was sent and has no readable answer, or a 5xx, is `maybe_done`.
- A request asks for metadata only (`as=PartialObjectMetadata`, which the API server gives for reads
  and writes alike), so a Node's images and conditions are not transferred, but for a `whole` GET.
- Secrets are in no message, on no command line and in no file.

A request runs in a thread of its own, because the resolver (getaddrinfo) has neither a deadline nor
a way to interrupt it. At the deadline the connection is shut down, which ends the thread, unless it
is in the resolver: then the next request replaces it, and while that one is stuck, too, further
requests fail at once.
"""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from http.client import BadStatusLine
from ipaddress import ip_address, ip_network
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlencode
from urllib.request import getproxies

import urllib3
from urllib3 import exceptions as http
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.util import create_urllib3_context, make_headers, parse_url

from agent.errors import Unavailable
from agent.kube import MANAGER
from agent.kube.access import SERVICE_ACCOUNT, Access, Credentials, Misconfigured, credentials
from agent.kube.answers import MAX_TEXT, PAGES, WRITES, Answer, Request, about, limit_of, read
from agent.limits import start_thread

MAX_CONNECTIONS = 8  # that are kept
MAX_STUCK = 2  # threads of requests that were given up
PAGE_BYTES = 4 << 20  # of a page of Nodes, about, whatever the size of a Node
FIRST_PAGE, MAX_PAGE = 50, 500  # Nodes
# Seconds.
TIMEOUT = 10.0  # to connect, and for each read
DEADLINE = 25.0  # for the whole answer
MAX_IDLE = 60.0  # a load balancer may forget a connection without a word; API servers close at 90
STEP = 1.0  # between two calls of `waiting`

METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
METADATA_LIST = METADATA.replace("PartialObjectMetadata", "PartialObjectMetadataList")
APPLY = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
NODES = "/api/v1/nodes"
EVENTS = "/api/v1/namespaces/default/events"
# Sent twice, these are as sent once: a JSON patch tests what it replaces, and would be refused.
REPEATABLE = frozenset({"get", "list", "survey", "apply", "check-policy", "patch-event"})
# The first match counts: urllib3's NewConnectionError is also a TimeoutError.
KINDS: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str], ...] = (
    (http.SSLError, "tls"),
    (http.ProxyError, "proxy"),
    ((http.LocationValueError, http.LocationParseError), "configuration"),
    (http.NewConnectionError, "unreachable"),
    (http.TimeoutError, "timeout"),
    (http.HTTPError, "cut"),
    (OSError, "unreachable"),
)
# Errors of a request that was sent.
MAYBE_DONE = frozenset({"timeout", "cut", "garbage", "recreated", "tls"})
# What a CA bundle has beside certificates is comments.
CERTIFICATE = re.compile("-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


class HttpRequest(NamedTuple):
    """A request as it is sent."""

    method: str
    target: str  # path and query
    headers: dict[str, str]
    body: bytes | None = None


def connect(
    kubeconfig: str | None = None,
    context: str | None = None,
    *,
    service_account: str = SERVICE_ACCOUNT,
    timeouts: tuple[float, float] = (TIMEOUT, DEADLINE),
    waiting: Callable[[float], object] = lambda _seconds: None,
) -> Api:
    """Return a session with the API server that the flags and the environment name."""
    return Api(credentials(kubeconfig, context, service_account), timeouts, waiting)


class Api:
    """A Kube; threads may send requests at the same time, MAX_CONNECTIONS over kept connections.

    `waiting` is called each second with the seconds that an answer is awaited.
    """

    def __init__(
        self,
        credentials: Credentials,
        timeouts: tuple[float, float] = (TIMEOUT, DEADLINE),
        waiting: Callable[[float], object] = lambda _seconds: None,
    ) -> None:
        self._credentials, self._is_rejected = credentials, False
        self._resolving = threading.Lock()  # for 25 s at most: agent/kube/access.py
        self._access: Access | None = None
        (self._timeout, self._deadline), self._waiting = timeouts, waiting
        self._lock = threading.Lock()
        self._session: tuple[Access, urllib3.PoolManager] | None = None
        self._under_way, self._used_at = 0, 0.0
        self._stuck: list[threading.Thread] = []
        self._page = FIRST_PAGE

    def __call__(self, request: Request) -> Answer:
        """Send a request; return the answer, at the latest at the deadline."""
        try:
            access, pool = self._open()
        except Unavailable as error:
            return Answer(error="helper", message=str(error))
        except Misconfigured as error:
            return Answer(error="configuration", message=_message(error))
        except (OSError, ValueError) as error:  # a CA or a client certificate that is none
            self._is_rejected = True
            return Answer(error="tls", message=_message(error))
        exchange = _Exchange(request.get("deadline_s") or self._deadline)
        try:
            answer = self._send(pool, access, request, exchange)
        finally:
            with self._lock:
                self._under_way -= 1
                self._used_at = time.monotonic()
        if answer.status == 401 or answer.error in ("tls", "unreachable", "configuration"):
            with self._resolving:
                # Of several requests that are rejected at once, one resolves the credentials.
                self._is_rejected = self._is_rejected or access is self._access
        maybe_done = request["operation"] in WRITES and exchange.may_be_done(answer)
        return replace(answer, server=access.server, maybe_done=maybe_done)

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            if self._session:
                self._session[1].clear()
            self._session = None

    def _open(self) -> tuple[Access, urllib3.PoolManager]:
        """Return the credentials as they are now, and connections that fit."""
        with self._resolving:
            again, self._is_rejected = self._is_rejected, False
            access = self._access = self._credentials(again=again)
        trust = access._replace(authorization="", expires=None)
        with self._lock:
            if self._session is None or self._session[0] != trust:
                if self._session:
                    self._session[1].clear()
                self._session = trust, _pool(trust)
            elif not self._under_way and time.monotonic() - self._used_at > MAX_IDLE:
                self._session[1].clear()
            self._under_way += 1
            return access, self._session[1]

    def _send(
        self, pool: urllib3.PoolManager, access: Access, request: Request, exchange: _Exchange
    ) -> Answer:
        """Send a request in a thread, and wait for it until the deadline."""
        with self._lock:
            self._stuck = [thread for thread in self._stuck if thread.is_alive()]
            if len(self._stuck) >= MAX_STUCK:
                text = f"{len(self._stuck)} requests before are still connecting"
                return Answer(error="unreachable", message=text)
        thread = threading.Thread(
            target=exchange.run,
            args=(lambda: self._ask(pool, access, request),),
            name="request",
            daemon=True,
        )
        try:
            start_thread(thread)
        except RuntimeError as error:
            return Answer(error="helper", message=str(error))
        answer = exchange.wait(self._waiting)
        if answer is None:
            answer = exchange.given_up(request)
            thread.join(0.1)
            with self._lock:
                self._stuck.append(thread)
        return answer

    def _ask(self, pool: urllib3.PoolManager, access: Access, request: Request) -> Answer:
        """Send a request in this thread; a page of Nodes again with fewer if it is too long."""
        operation = request["operation"]
        while True:
            limit = self._page
            message = encode(request, limit)
            if access.authorization:
                message.headers["Authorization"] = access.authorization
            try:
                status, headers, data = self._respond(pool, access.server, message, request)
            except Exception as error:  # noqa: BLE001 - no fault of the peer may reach the caller
                kind = next((kind for types, kind in KINDS if isinstance(error, types)), "")
                return Answer(error=kind or "configuration", message=_message(error))
            if operation in PAGES:
                self._page = fitting(limit, len(data))
            if operation not in PAGES or len(data) <= limit_of(operation) or limit == 1:
                return about(request, read(operation, status, headers, data))

    def _respond(
        self, pool: urllib3.PoolManager, server: str, message: HttpRequest, request: Request
    ) -> tuple[int, Mapping[str, str], bytes]:
        url = server.rstrip("/") + message.target
        for is_first in (True, False):
            try:
                response = pool.request(
                    message.method,
                    url,
                    body=message.body,
                    headers=message.headers,
                    timeout=urllib3.Timeout(connect=self._timeout, read=self._timeout),
                    retries=False,
                    redirect=False,
                    preload_content=False,
                )
                break
            except http.ProtocolError as error:
                is_closed = isinstance(error.args[-1], ConnectionError)  # before any byte
                is_repeatable = request["operation"] in REPEATABLE and _current.exchange.was_kept
                if not (is_first and is_closed and is_repeatable):
                    raise
                _current.exchange.is_repeated = True
        try:
            return (
                response.status,
                response.headers,
                response.read(limit_of(request["operation"]) + 1),
            )
        finally:
            response.close()  # unless it was read to its end, and its connection is kept


class _Exchange:
    """A request in a thread, up to its deadline, after which nothing is sent."""

    def __init__(self, seconds: float) -> None:
        self.is_sent = False  # or a part of it
        self.is_repeated = False  # on another connection; the first may have been served
        self.was_kept = False  # the connection had answered a request before
        self._connection: _Connection | None = None
        self._stream: Any = None  # its socket; the connection gives it away with a last response
        self._lock, self._is_given_up = threading.Lock(), False
        self._seconds, self._started = seconds, time.monotonic()
        self._done = threading.Event()
        self._answer: Answer | None = None

    def run(self, work: Callable[[], Answer]) -> None:
        """Do the work in this thread."""
        _current.exchange = self
        try:
            self._answer = work()
        finally:
            self._done.set()

    def wait(self, waiting: Callable[[float], object]) -> Answer | None:
        """Return the answer; None at the deadline."""
        deadline = self._started + self._seconds
        while not self._done.wait(max(0.0, min(STEP, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                return None
            waiting(time.monotonic() - self._started)
        return self._answer

    def begin(self, connection: _Connection, *, sending: bool) -> None:
        """Record how far it has got; raises TimeoutError if it was given up."""
        with self._lock:
            if self._is_given_up:
                raise TimeoutError("given up")
            self._connection, self._stream = connection, connection.sock
            if sending:
                self.was_kept, self.is_sent = connection.answers > 0, True

    def may_be_done(self, answer: Answer) -> bool:
        """Return True if the API server may have done what it was asked, whatever it answered."""
        is_lost = answer.error in MAYBE_DONE or (answer.error and self.is_repeated)
        return self.is_sent and bool(is_lost or answer.is_server_error)

    def given_up(self, request: Request) -> Answer:
        """Shut the connection down, so that the thread ends; return the answer in its place."""
        with self._lock:
            self._is_given_up = True
            stream = self._stream or (self._connection and self._connection.sock)
        if not stream:
            text = f"not connected within {self._seconds:.0f} s"
            return Answer(error="unreachable", message=text)
        with suppress(OSError):  # it has ended
            # That of SSLSocket would have a concurrent send go out unencrypted.
            socket.socket.shutdown(stream, socket.SHUT_RDWR)
        what = "page" if request["operation"] in PAGES else "answer"
        return Answer(error="timeout", message=f"no whole {what} within {self._seconds:.0f} s")


class _Current(threading.local):
    """The exchange of this thread."""

    exchange: _Exchange


_current = _Current()


class _Connection(HTTPConnection):
    """A connection that tells the exchange of its thread how far it has got."""

    answers = 0

    def connect(self) -> None:
        self.answers = 0
        _current.exchange.begin(self, sending=False)
        super().connect()

    def request(self, *arguments: Any, **options: Any) -> None:
        if self.sock is None:  # plain HTTP; over TLS it is connected by now
            self.connect()
        _current.exchange.begin(self, sending=True)
        super().request(*arguments, **options)

    def getresponse(self) -> urllib3.HTTPResponse:  # type: ignore[override]
        response = super().getresponse()
        self.answers += 1
        return response


class _TlsConnection(_Connection, HTTPSConnection):
    """The same over TLS."""


def _pool(access: Access) -> urllib3.PoolManager:
    """Return the connections to a server, through its proxy if it has one.

    Raises Misconfigured for a proxy, OSError or ValueError for certificates that are none.
    """
    options: dict[str, Any] = {"num_pools": 1, "maxsize": MAX_CONNECTIONS}
    if access.server.startswith("https:"):
        options |= {
            "ssl_context": _context(access),
            "cert_reqs": "CERT_REQUIRED" if access.verify else "CERT_NONE",
            "server_hostname": access.server_name,
        }
    try:
        proxy = access.proxy
        if not proxy:  # that of the environment (HTTPS_PROXY, NO_PROXY)
            url, proxies = parse_url(access.server), getproxies()
            if not is_exempt(url.host or "", url.port, proxies.get("no", "")):
                proxy = proxies.get(url.scheme or "") or proxies.get("all")
        if proxy:
            credentials = unquote(parse_url(proxy).auth or "")
            headers = make_headers(proxy_basic_auth=credentials) if credentials else None
            pool: urllib3.PoolManager = urllib3.ProxyManager(
                proxy, proxy_headers=headers, **options
            )
        else:
            pool = urllib3.PoolManager(**options)
    except (http.HTTPError, ValueError):
        # The URL, which may have a password, is in the error.
        raise Misconfigured("the URL of the proxy is malformed") from None
    pool.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
    return pool


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


def _context(access: Access) -> Any:
    """Return the ssl.SSLContext; raises OSError or ValueError for certificates that are none."""
    context = create_urllib3_context()
    # urllib3 sets it on Python 3.13. CAs of clusters may lack key identifiers (RFC 5280, 4.2.1.1),
    # and Go, so kubectl and the kubelet, does without.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not access.verify:
        urllib3.disable_warnings(http.InsecureRequestWarning)
        context.check_hostname = False
    elif access.ca is None:
        context.load_default_certs()
    else:
        certificates = CERTIFICATE.findall(access.ca)
        if not certificates:
            raise ValueError("the CA has no certificate in PEM")
        context.load_verify_locations(cadata="\n".join(certificates))
    if access.certificate:
        # OpenSSL reads a key from a file only. This file is in memory, and closed at once.
        with os.fdopen(os.memfd_create("chain"), "w") as file:
            file.write(f"{access.certificate}\n{access.key or ''}")
            file.flush()
            context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
    return context


def is_exempt(host: str, port: int | None, no_proxy: str) -> bool:
    """Return True if NO_PROXY has a host: by name, domain, address, network, or `*`."""
    host = host.lower().strip("[]")
    for entry in no_proxy.lower().replace(",", " ").split():
        name, _, of_port = entry.rpartition(":") if entry.count(":") == 1 else (entry, "", "")
        if of_port and of_port != str(port):
            continue
        domain = name.removeprefix("*").removeprefix(".")
        if name == "*" or host == domain or host.endswith(f".{domain}"):
            return True
        try:
            if ip_address(host) in ip_network(name, strict=False):
                return True
        except ValueError:
            continue  # a name
    return False


def _message(error: Exception) -> str:
    """Return an error's message on one line."""
    return " ".join(_words(error).split())[:MAX_TEXT]


def _words(error: BaseException) -> str:
    """Return an error's message without the names of classes.

    urllib3 puts the connection or the pool in front of the message, and gives the error that it
    caught as a second argument; some errors of http.client have their repr for a message.
    """
    match error:
        case http.MaxRetryError(reason=Exception() as reason):
            return _words(reason)
        case http.NewConnectionError(conn=subject) | http.PoolError(pool=subject):
            return str(error).removeprefix(f"{subject}: ")
        case http.HTTPError(args=(str() as text, Exception() as cause)):
            text = text.removesuffix(repr(cause)).rstrip(" .:")
            return f"{text}: {_words(cause)}"
        case BadStatusLine() if not isinstance(error, ConnectionError):
            return f"this is no status line of HTTP: {str(error)!r}"
    name, text = type(error).__name__, str(error)
    if text.startswith(f"{name}("):
        return text.removeprefix(f"{name}(").removesuffix(")")
    return text or name


def encode(request: Request, page: int = FIRST_PAGE) -> HttpRequest:
    """Return a request as it is sent, but for the credentials; `page` is a number of Nodes."""
    operation, body = request["operation"], request.get("body")
    headers = {"Accept": METADATA, "User-Agent": MANAGER}
    if operation in PAGES:
        token = request.get("continue") or ""
        query = urlencode([("limit", page), ("continue", token), *request.get("selectors", ())])
        return HttpRequest("GET", f"{NODES}?{query}", headers | {"Accept": METADATA_LIST})
    if operation in ("create-event", "patch-event"):
        path = EVENTS
        if operation == "patch-event":
            path = f"{EVENTS}/{quote(request['event'], safe='')}"
    else:
        path = f"{NODES}/{quote(request['node'], safe='')}"
    if operation == "get":
        if request.get("whole"):
            headers["Accept"] = "application/json"
        path += "?resourceVersion=0" if request.get("cached") else ""
        return HttpRequest("GET", path, headers)
    method, kind, query = "PATCH", MERGE_PATCH, f"fieldManager={MANAGER}"
    if operation == "create-event":
        method, kind = "POST", "application/json"
    elif operation == "patch":
        kind = JSON_PATCH
    elif operation == "apply":
        kind, query = APPLY, f"{query}&force={'true' if request.get('force') else 'false'}"
    elif operation == "check-policy":  # stores nothing (agent/kube/policy.py)
        query = f"{query}-policy-check&dryRun=All"
    headers["Content-Type"] = kind
    return HttpRequest(method, f"{path}?{query}", headers, json.dumps(body).encode())


def fitting(limit: int, size: int) -> int:
    """Return the number of Nodes for about PAGE_BYTES if `limit` of them take `size` bytes."""
    node = size // limit + 1
    return max(1, min(PAGE_BYTES // node, MAX_PAGE))
