"""The pages of the metrics server: a WSGI application over the registry and the status.

- One /metrics response is rendered at a time, so that many scrapers together take no more of the
  interpreter from the loop than one.
- A request takes no lock of the loop: it reads Status and the Metrics' immutable snapshot.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import CollectorRegistry, make_wsgi_app

from agent.telemetry.readiness import Status

Environ = dict[str, Any]
Headers = list[tuple[str, str]]
Response = tuple[str, Headers, bytes]  # status line, headers, body

PLAIN = ("Content-Type", "text/plain; charset=utf-8")
JSON = ("Content-Type", "application/json")
PROBES = {"/healthz": Status.health, "/readyz": Status.readiness}
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

    def __call__(self, environ: Environ, start_response: Callable[..., object]) -> Iterable[bytes]:
        """Answer GET, and HEAD with the same headers."""
        status, headers, body = self._response(environ)
        start_response(status, [*headers, ("Content-Length", str(len(body)))])
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else body]

    def _response(self, environ: Environ) -> Response:
        path = environ["PATH_INFO"]
        if environ["REQUEST_METHOD"] not in {"GET", "HEAD"}:
            return "405 Method Not Allowed", [PLAIN, ("Allow", "GET, HEAD")], b"GET or HEAD\n"
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
        return self._metrics(environ)

    def _metrics(self, environ: Environ) -> Response:
        """Render the registry in the format that the client accepts."""
        head: list[tuple[str, Headers]] = []
        get = {**environ, "REQUEST_METHOD": "GET"}
        try:
            with self._rendering:
                chunks = self._exposition(get, lambda *of: head.append(of))
            return (*head[0], b"".join(chunks))
        except Exception as error:  # noqa: BLE001 - a bug in one metric must not end the thread
            text = f"cannot render the metrics: {type(error).__name__}\n"
            return "500 Internal Server Error", [PLAIN], text.encode()
