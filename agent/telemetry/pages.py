"""The pages of the metrics server: a WSGI application over the registry and the status.

- One /metrics response is rendered at a time, so that many scrapers together take no more of the
  interpreter from the loop than one.
- A request takes no lock of the loop: it reads Status and the Metrics' immutable snapshot.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from prometheus_client import make_wsgi_app

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prometheus_client import CollectorRegistry

    from agent.telemetry.status import Status

    Environ = dict[str, Any]
    Headers = list[tuple[str, str]]
    Response = tuple[str, Headers, bytes]  # status line, headers, body

PLAIN = ("Content-Type", "text/plain; charset=utf-8")
JSON = ("Content-Type", "application/json")
CERTIFIED = "bwagent.client_certified"  # in the environment: the client has shown a certificate


class Pages:
    """The WSGI application."""

    def __init__(
        self, registry: CollectorRegistry, status: Status, *, asks_clients: bool = False
    ) -> None:
        # Compression would add a third to the CPU time of a scrape (benchmarks/metrics_cost.py).
        self._exposition = make_wsgi_app(registry, disable_compression=True)
        self._rendering = threading.Lock()
        self._asks_clients = asks_clients  # for a certificate, before they get /metrics or /verdict
        self._status = status
        self._probes = {"/healthz": status.health, "/readyz": status.readiness}
        # Pages with names of switches.
        self._guarded = {"/metrics": self._metrics, "/verdict": self._verdict}

    def __call__(self, environ: Environ, start_response: Callable[..., object]) -> Iterable[bytes]:
        """Answer GET, and HEAD with the same headers."""
        status, headers, body = self._response(environ)
        start_response(status, [*headers, ("Content-Length", str(len(body)))])
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else body]

    def _response(self, environ: Environ) -> Response:
        path = environ["PATH_INFO"]
        if environ["REQUEST_METHOD"] not in {"GET", "HEAD"}:
            return "405 Method Not Allowed", [PLAIN, ("Allow", "GET, HEAD")], b"GET or HEAD\n"
        if path in self._guarded:
            return self._permitted(self._guarded[path], environ)
        if path in self._probes:
            return _probe(*self._probes[path]())
        return "404 Not Found", [PLAIN], b"/metrics, /verdict, /healthz or /readyz\n"

    def _permitted(self, page: Callable[[Environ], Response], environ: Environ) -> Response:
        if self._asks_clients and not environ.get(CERTIFIED):
            return "403 Forbidden", [PLAIN], b"a client certificate is needed\n"
        return page({**environ, "REQUEST_METHOD": "GET"})

    def _verdict(self, _environ: Environ) -> Response:
        status, body = self._status.verdict
        return status, [JSON], body

    def _metrics(self, environ: Environ) -> Response:
        """Render the registry in the format that the client accepts."""
        try:
            return self._rendered(environ)
        except Exception as error:  # noqa: BLE001 - a bug in one metric must not end the thread
            text = f"cannot render the metrics: {type(error).__name__}\n"
            return "500 Internal Server Error", [PLAIN], text.encode()

    def _rendered(self, environ: Environ) -> Response:
        head: list[tuple[str, Headers]] = []
        with self._rendering:
            chunks = self._exposition(environ, lambda *of: head.append(of))
        return (*head[0], b"".join(chunks))


def _probe(succeeded: bool, text: str) -> Response:
    status = "200 OK" if succeeded else "503 Service Unavailable"
    return status, [PLAIN], text.encode()
