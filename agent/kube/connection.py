"""Requests to the API server from this process, over connections that stay open.

For a command about all Nodes: a child for each request (agent/kube/transport.py) takes a quarter of
a CPU-second and a TLS handshake, and its reply is limited to 1 MiB.

Invariants:
- Threads may send requests at the same time, MAX_CONNECTIONS of them without waiting.
- Credentials are read again after a 401, as by a child.
- A page of Nodes has about PAGE_BYTES, whatever the size of a Node.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from agent.helper.process import temporary_folder
from agent.kube import decode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kubernetes.client import ApiClient

    from agent.kube.transport import Reply, Request

MAX_CONNECTIONS = 8
PAGE_BYTES = 4 << 20
FIRST_PAGE, MAX_PAGE = 50, 500  # Nodes


@contextmanager
def connected(kubeconfig: str | None, context: str | None) -> Iterator[Connection]:
    """Yield a function that sends a request and returns the reply, as of `transport.connect`."""
    with temporary_folder() as folder:
        settings = {"kubeconfig": kubeconfig, "context": context, "temporary_folder": folder}
        connection = Connection(settings)
        try:
            yield connection
        finally:
            connection.close()


class Connection:
    """A Kube over kept connections; `settings` are those of agent/kube/client.py."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._api: ApiClient | None = None
        self._page = FIRST_PAGE

    def __call__(self, request: Request) -> Reply:
        from agent.kube import client  # slow to import, and not needed before the first request

        try:
            api = self._client()
        except client.CONFIGURATION_FAULTS as error:
            return client.configuration_failure(error)
        try:
            reply = self._exchange(api, {**self._settings, **request})
        except client.FAULTS as error:
            reply = client.failure(error)
        if reply.get("status") == 401:
            self._forget(api)
        return {**reply, "server": api.configuration.host}

    @property
    def server(self) -> str:
        """The API server's URL; empty before the first request."""
        return str(self._api.configuration.host) if self._api else ""

    def close(self) -> None:
        """Close the connections."""
        if self._api:
            self._api.close()  # type: ignore[no-untyped-call]

    def _client(self) -> ApiClient:
        from agent.kube import client

        with self._lock:
            if self._api is None:
                self._api = client.pooled(self._settings, MAX_CONNECTIONS)
            return self._api

    def _forget(self, api: ApiClient) -> None:
        """Read the credentials again for the next request."""
        with self._lock:
            if self._api is api:
                self._api = None

    def _exchange(self, api: ApiClient, request: Mapping[str, Any]) -> dict[str, Any]:
        from agent.kube import client

        if request["operation"] in ("list", "survey"):
            return self._list(api, request)
        return client.READERS[request["operation"]](*client.fetch(api, request))

    def _list(self, api: ApiClient, request: Mapping[str, Any]) -> dict[str, Any]:
        """Request a page of Nodes; again with fewer if the response is too long."""
        from agent.kube import client

        while True:
            limit = self._page
            status, headers, data = client.fetch(api, {**request, "limit": limit})
            self._page = fitting(limit, len(data))
            if len(data) <= decode.MAX_BODY or limit == 1:
                return client.READERS[request["operation"]](status, headers, data)


def fitting(limit: int, size: int) -> int:
    """Return the number of Nodes for about PAGE_BYTES if `limit` of them take `size` bytes."""
    node = size // limit + 1
    return max(1, min(PAGE_BYTES // node, MAX_PAGE))
