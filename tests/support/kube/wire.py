"""Requests of the agent without its child process: thousands of agents send from one process.

Method, path, headers and body come from agent/kube/client.py, and so does the parsing of the
response, so the API server receives the same requests. A connection is made for each, TLS handshake
included, as the child does. Only the child is missing: it costs its node 0.25 CPU-seconds and the
API server nothing.

`kept` connections stay open, one for each thread: for setting up a test, and to measure the cost of
a handshake.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from kubernetes.client import ApiClient, Configuration

from agent.kube.client import READERS, TIMEOUT, serialize

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from agent.kube.transport import Kube, Request
    from tests.support.kube.clock import Clock

    Reply = tuple[int, Mapping[str, str], bytes]


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
        self._url, self._address = url, urlsplit(url)
        self._api = ApiClient(Configuration(url))
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

    def _ask(self, request: Request, token: str) -> dict[str, Any]:
        began, operation = self._clock(), request["operation"]
        answer = self._answer(request, token)
        result = answer.get("error") or answer["status"]
        self.asked.append(Asked(began, self._clock() - began, operation, result))
        return answer

    def _answer(self, request: Request, token: str) -> dict[str, Any]:
        method, url, headers, document, _ = serialize(self._api, request)
        body = json.dumps(document).encode() if document else None
        try:
            response = self.send(method, url.removeprefix(self._url), token, body, headers)
            return READERS[request["operation"]](*response)
        except (OSError, http.client.HTTPException) as error:
            return {"error": _kind(error), "message": str(error) or type(error).__name__}

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
    """Return the kind of failure that agent/kube/client.py finds by urllib3's exceptions."""
    if isinstance(error, TimeoutError):
        return "timeout"
    return "unreachable" if isinstance(error, ConnectionRefusedError) else "cut"
