"""Deadlines of a listing: of each page, and of all pages together.

The client has a timeout for each read of a socket, which a server that sends a byte now and then
never reaches. Here each request runs in a thread of its own, and the caller waits for it no longer
than the deadline, with a call of `waiting` each second. A thread that is late is left alone: it
ends with the program.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.kube.transport import Kube, Reply, Request

PAGE_DEADLINE = 60.0  # seconds for one page, of about 4 MB
DEADLINE = 600.0  # seconds for all of them
STEP = 1.0  # seconds between two calls of `waiting`


class Patience:
    """A Kube that gives up at the deadline; `server` returns the API server's URL, or ""."""

    def __init__(
        self,
        kube: Kube,
        server: Callable[[], str],
        waiting: Callable[[float], object],
        deadlines: tuple[float, float] = (PAGE_DEADLINE, DEADLINE),
    ) -> None:
        self._kube, self._server, self._waiting = kube, server, waiting
        self._of_page, self._of_all = deadlines
        self._end = time.monotonic() + self._of_all

    def __call__(self, request: Request) -> Reply:
        """Send a request; a reply with the error `timeout` at a deadline."""
        task = _Task(self._kube, request)
        start = time.monotonic()
        end = min(start + self._of_page, self._end)
        while not task.wait(min(STEP, end - time.monotonic())):
            now = time.monotonic()
            if now >= end:
                return self._late(now - start)
            self._waiting(now - start)
        return task.result()

    def _late(self, waited: float) -> Reply:
        whole = f"the listing took {self._of_all:g} s"
        page = f"no whole page within {waited:.0f} s"
        text = page if waited >= self._of_page else whole
        return {"error": "timeout", "message": text, "server": self._server()}


class _Task:
    """A request in a thread."""

    def __init__(self, kube: Kube, request: Request) -> None:
        self._done = threading.Event()
        self._reply: Reply = {}
        self._error: Exception | None = None
        threading.Thread(target=self._run, args=(kube, request), daemon=True).start()

    def _run(self, kube: Kube, request: Request) -> None:
        try:
            self._reply = kube(request)
        except Exception as error:  # noqa: BLE001 - raised again by `result`
            self._error = error
        self._done.set()

    def wait(self, seconds: float) -> bool:
        """Return True once the request has ended, at the latest after so many seconds."""
        return self._done.wait(max(seconds, 0.0))

    def result(self) -> Reply:
        if self._error:
            raise self._error
        return self._reply
