"""The agent's requests without the agent's child: thousands of agents may ask out of one process.

The law of this module: the API server sees what it would see of `agent/kube/client.py`. Method,
path, body, and the headers that matter are that module's own, and so is the reading of the answer;
a connection is made for each request, since the agent's child makes one, TLS handshake included.
What is left out is the child, which costs its node 0.25 CPU-seconds and the API server nothing.

`kept` connections stay open, one for each thread: for whoever sets the scene, and to tell what a
handshake costs.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from agent.kube import MANAGER
from agent.kube.client import APPLY, METADATA_ONLY, OPERATIONS, TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from agent.kube.apply import Json, Kube
    from agent.kube.client import Request
    from tests.support.kube.clock import Clock

    Reply = tuple[int, Mapping[str, str], bytes]


class Asked(NamedTuple):
    """One request, and what came of it."""

    at: float  # when it began, by the clock of the simulation
    took: float  # seconds
    operation: str
    result: int | str  # the HTTP status, or the kind of error


class Wire:
    """Connections to an API server, with TLS where a CA's file is named; `timeout` is in real
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
        """Close what was kept."""
        for connection in self._open:
            connection.close()

    def door(self, token: str) -> Kube:
        """The door of an agent that has this token."""
        return lambda request: self._ask(request, token)

    def _ask(self, request: Json, token: str) -> dict[str, Any]:
        began, operation = self._clock(), request["operation"]
        answer = self._answer(OPERATIONS[operation](request), token)
        result = answer.get("error") or answer["status"]
        self.asked.append(Asked(began, self._clock() - began, operation, result))
        return answer

    def _answer(self, request: Request, token: str) -> dict[str, Any]:
        target = f"{request.path}?{urlencode(request.query)}" if request.query else request.path
        headers = {"Accept": METADATA_ONLY.format(""), "User-Agent": MANAGER}
        body = None if request.body is None else json.dumps(request.body).encode()
        headers |= {"Content-Type": APPLY} if body else {}
        try:
            return request.read(*self.send(request.method, target, token, body, headers))
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
        """Send one request; OSError or HTTPException where no answer comes."""
        connection = self._connection()
        try:
            connection.request(
                method, target, body, {"Authorization": f"Bearer {token}", **(headers or {})}
            )
            reply = connection.getresponse()
            return reply.status, dict(reply.headers), reply.read()
        except BaseException:
            connection.close()  # a kept one opens itself again
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
    """The kind of failure, as agent/kube/client.py tells it by urllib3's exceptions."""
    if isinstance(error, TimeoutError):
        return "timeout"
    return "unreachable" if isinstance(error, ConnectionRefusedError) else "cut"
