"""Requests of thousands of agents from one process.

Method, path, headers and body come from agent/kube/api.py, and the response is read by
agent/kube/answers.py, so the API server receives the same requests. A connection is made for each,
TLS handshake included, as of an agent whose last request was minutes ago.

`kept` connections stay open, one for each thread: for setting up a test, and to measure the cost of
a handshake.
"""

from __future__ import annotations

import http.client
import ssl
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from agent.kube.answers import Answer, Kube, Request, read
from agent.kube.api import TIMEOUT, encode

Reply = tuple[int, Mapping[str, str], bytes]


class Clock:
    """Simulated seconds since the beginning, which is now; it may run faster than the real time.

    Back-off, holds and pauses follow it, and the API server does not; so the API server is measured
    only at a rate of 1.
    """

    def __init__(self) -> None:
        self._mark = time.monotonic(), 0.0, 1.0

    def __call__(self) -> float:
        real, simulated, rate = self._mark
        return simulated + (time.monotonic() - real) * rate

    @property
    def rate(self) -> float:
        """Simulated seconds in a real one."""
        return self._mark[2]

    def go(self, rate: float) -> None:
        """Run at another rate from now on."""
        self._mark = time.monotonic(), self(), rate


class Asked(NamedTuple):
    """One request, and its result."""

    at: float  # when it began, by the clock of the simulation
    took: float  # seconds
    operation: str
    result: int | str  # the HTTP status, or the kind of error


class Wire:
    """Connections to an API server, with TLS if a CA's file is given; `timeout` is in real
    seconds.
    """

    def __init__(self, url: str, ca: Path | None, clock: Clock, *, kept: bool = False) -> None:
        self.asked: list[Asked] = []
        self.timeout = TIMEOUT
        self._clock = clock
        self._address = urlsplit(url)
        self._context = ssl.create_default_context(cafile=str(ca)) if ca else None
        self._kept = threading.local() if kept else None
        self._open: list[http.client.HTTPConnection] = []

    def close(self) -> None:
        """Close the kept connections."""
        for connection in self._open:
            connection.close()

    def connect(self, token: str) -> Kube:
        """Return a function that sends requests with this token."""
        return lambda request: self._ask(request, token)

    def _ask(self, request: Request, token: str) -> Answer:
        began, operation = self._clock(), request["operation"]
        answer = self._answer(request, token)
        result = answer.error or answer.status or 0
        self.asked.append(Asked(began, self._clock() - began, operation, result))
        return answer

    def _answer(self, request: Request, token: str) -> Answer:
        method, target, headers, body = encode(request)
        try:
            response = self.send(method, target, token, body, headers)
            return read(request["operation"], *response)
        except (OSError, http.client.HTTPException) as error:
            return Answer(error=_kind(error), message=str(error) or type(error).__name__)

    def send(
        self,
        method: str,
        target: str,
        token: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send one request; raises OSError or HTTPException if there is no response."""
        connection = self._connection()
        try:
            connection.request(
                method, target, body, {"Authorization": f"Bearer {token}", **(headers or {})}
            )
            reply = connection.getresponse()
            return reply.status, dict(reply.headers), reply.read()
        except BaseException:
            connection.close()  # a kept one reopens by itself
            raise
        finally:
            if self._kept is None:
                connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if found := getattr(self._kept, "connection", None):
            return found  # type: ignore[no-any-return]
        connection = self._new()
        if self._kept is not None:
            self._kept.connection = connection
            self._open.append(connection)
        return connection

    def _new(self) -> http.client.HTTPConnection:
        host, port = str(self._address.hostname), self._address.port
        if self._context is None:
            return http.client.HTTPConnection(host, port, timeout=self.timeout)
        return http.client.HTTPSConnection(host, port, timeout=self.timeout, context=self._context)


def _kind(error: Exception) -> str:
    """Return the kind of failure that agent/kube/api.py finds by urllib3's exceptions."""
    if isinstance(error, TimeoutError):
        return "timeout"
    return "unreachable" if isinstance(error, ConnectionRefusedError) else "cut"
