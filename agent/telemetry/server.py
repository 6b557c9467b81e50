"""/metrics, /healthz and /readyz on one address, for clients that may be slow, hostile or many.

The law of this module: nothing that a client does reaches the loop. One daemon thread polls at most CLIENTS sockets,
none of which it ever waits for; what it serves is text that the loop has handed over (`publish`), so that the two share
references to immutable objects and no lock. It is a thread, and not a part of the loop, so that a loop that hangs can
be told from one that turns.

A connection carries one request and has PATIENCE seconds for all of it, answer and farewell included, however busily it
trickles. When there is no room for another, the oldest that has not finished goes: an honest client sends its request
at once and is answered in the same round, so that it takes CLIENTS new connections in that instant to crowd it out.

The protocol is as much of HTTP/1.1 (RFC 9112) as a scraper and a kubelet need: GET and HEAD, an answer with a length,
`Connection: close`. http.server does the same with a thread for each client, and 5 MB (benchmarks/metrics_cost.py).
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from agent.errors import Unavailable
from agent.telemetry.listening import NotYetError, listen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Page = Callable[[], tuple[int, str]]  # status, body

CLIENTS = 16
PATIENCE = 5.0  # seconds
LONGEST_REQUEST = 8192  # bytes of request line and header
ALIVE_WITHIN = 60.0  # seconds
BREATH = 1.0  # seconds without new clients, after the process or the kernel has run out of descriptors or memory
RETRY, LONGEST_RETRY = (
    1.0,
    60.0,
)  # seconds between two tries to have an address that is not there yet

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
PHRASES = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}
# Prometheus 3 wants to be told the format; for the other pages it is plain text all the same.
HEAD = "HTTP/1.1 {} {}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n"


class Status:
    """What is told to clients. The loop writes and the server's thread reads; every write is one assignment."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, alive_within: float = ALIVE_WITHIN
    ) -> None:
        self._clock = clock
        self._alive_within = alive_within
        self._turned_at = clock()
        self._ready = False
        self._text = ""

    def heartbeat(self) -> None:
        """The loop has turned; it has to say so every `alive_within` seconds, however little happens."""
        self._turned_at = self._clock()

    def mark_ready(self) -> None:
        """The first observation was applied; there is no way back."""
        self._ready = True

    def publish(self, text: str) -> None:
        """The exposition that is served from now on."""
        self._text = text

    def metrics(self) -> tuple[int, str]:
        return 200, self._text

    def health(self) -> tuple[int, str]:
        still = self._clock() - self._turned_at
        return (
            (200, "ok\n")
            if still <= self._alive_within
            else (503, f"no heartbeat of the loop for {still:.0f} s\n")
        )

    def readiness(self) -> tuple[int, str]:
        return (200, "ok\n") if self._ready else (503, "no observation applied yet\n")


class _Client(NamedTuple):
    sock: socket.socket
    steps: Iterator[int]
    deadline: float


class Server:
    """The listening socket and its thread; Unavailable where the address cannot be had.

    An address that is not there yet is waited for; `fault` says so in words, as long as it does.

    `at_scrape` gives text that follows the published one. It runs in the server's thread, so it may touch nothing that
    is the loop's; should it fail, its text is left out.
    """

    def __init__(
        self,
        address: tuple[str, int],
        state: Status,
        at_scrape: Callable[[], str] = str,
        patience: float = PATIENCE,
    ) -> None:
        self._pages: dict[bytes, Page] = {
            b"/metrics": partial(_with, state.metrics, at_scrape),
            b"/healthz": state.health,
            b"/readyz": state.readiness,
        }
        self._patience = patience
        self._clients: dict[socket.socket, _Client] = {}  # the oldest first
        self._closed_until: float | None = None  # when clients are let in again
        self._retry = RETRY
        self._listener: socket.socket | None = None
        self.address, self.fault = address, ""
        self._selector = selectors.DefaultSelector()
        self._open()
        self._stop, self._stopped = socket.socketpair()
        self._selector.register(self._stopped, READ)
        self._thread = threading.Thread(target=self._serve, name="serve", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving, in the middle of an answer as well."""
        self._stop.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select(self._timeout()):
                if key.data is None:
                    self._end()
                    return
                key.data()
            self._tidy(time.monotonic())

    def _timeout(self) -> float | None:
        """Seconds until something is over; clients are in the order of their deadlines."""
        ends = [client.deadline for client in self._clients.values()][:1]
        ends += [] if self._closed_until is None else [self._closed_until]
        return max(0.0, min(ends) - time.monotonic()) if ends else None

    def _tidy(self, now: float) -> None:
        for client in list(self._clients.values()):
            if client.deadline <= now:
                self._drop(client)
        if self._closed_until is not None and self._closed_until <= now:
            with suppress(Unavailable):
                self._open()

    def _open(self) -> None:
        """Let clients in, now or later."""
        self._closed_until = time.monotonic() + self._retry
        try:
            self._listener = self._listener or listen(*self.address)
        except Unavailable as error:
            self.fault, self._retry = str(error), min(2 * self._retry, LONGEST_RETRY)
            if isinstance(error, NotYetError):
                return
            raise
        self._closed_until, self.fault = None, ""
        self.address = self._listener.getsockname()[:2]
        self._selector.register(self._listener, READ, self._accept)

    def _accept(self) -> None:
        if self._listener is None:
            return
        try:
            sock, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):  # it has gone away again
            return
        except OSError:  # it stays in the queue, and polling would spin
            self._selector.unregister(self._listener)
            self._closed_until = time.monotonic() + BREATH
            return
        sock.settimeout(0)
        if len(self._clients) >= CLIENTS:
            self._drop(next(iter(self._clients.values())))
        client = _Client(sock, _converse(sock, self._answer), time.monotonic() + self._patience)
        self._clients[sock] = client
        self._selector.register(sock, next(client.steps), partial(self._step, client))

    def _step(self, client: _Client) -> None:
        if client.sock not in self._clients:  # dropped in this very round
            return
        events = 0
        with suppress(OSError):
            events = next(client.steps, 0)
        if events:
            self._selector.modify(client.sock, events, partial(self._step, client))
        else:
            self._drop(client)

    def _drop(self, client: _Client) -> None:
        del self._clients[client.sock]
        self._selector.unregister(client.sock)
        client.sock.close()

    def _end(self) -> None:
        for sock in (self._listener, self._stopped, *self._clients):
            if sock:
                sock.close()
        self._selector.close()

    def _answer(self, request: bytes) -> bytes:
        line = request.partition(b"\n")[0].split()
        if len(line) != 3 or not line[2].startswith(b"HTTP/1."):
            return _response(400, "this is no HTTP request\n")
        method, target, _ = line
        if method not in {b"GET", b"HEAD"}:
            return _response(405, "GET or HEAD\n")
        page = self._pages.get(target.partition(b"?")[0])
        answer = page() if page else (404, "/metrics, /healthz or /readyz\n")
        return _response(*answer, with_body=method == b"GET")


def _with(page: Page, more: Callable[[], str]) -> tuple[int, str]:
    """The page, and what is known only now."""
    status, text = page()
    with suppress(
        Exception
    ):  # out of descriptors, say: the rest is worth having, and the thread must live
        text += more()
    return status, text


def _converse(sock: socket.socket, answer: Callable[[bytes], bytes]) -> Iterator[int]:
    """One connection from beginning to end; yields what it waits for."""
    request = bytearray()
    while not (b"\r\n\r\n" in request or b"\n\n" in request or len(request) > LONGEST_REQUEST):
        yield READ
        data = sock.recv(LONGEST_REQUEST)
        if not data:
            return
        request += data
    left = memoryview(answer(bytes(request)))
    while left:
        yield WRITE
        left = left[sock.send(left) :]
    sock.shutdown(socket.SHUT_WR)
    data = b"?"
    while data:  # closed with something unread, the kernel would reset the connection, and the answer may be lost
        yield READ
        data = sock.recv(LONGEST_REQUEST)


def _response(status: int, text: str, *, with_body: bool = True) -> bytes:
    body = text.encode(errors="backslashreplace")
    head = HEAD.format(status, PHRASES[status], len(body)) + "Connection: close\r\n"
    head += "Allow: GET, HEAD\r\n" if status == 405 else ""
    return head.encode() + b"\r\n" + (body if with_body else b"")
