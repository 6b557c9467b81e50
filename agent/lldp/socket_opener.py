"""Open packet sockets for a set of netdevs, at once or in a worker thread.

Invariants: each netdev has at most one attempt under way, however often it is requested, and an
attempt that does not return holds up no caller. The error of an attempt stays until the next one
has ended.
"""

from __future__ import annotations

import errno
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Collection

    Run = Callable[[Callable[[], None]], None]
    Open = Callable[[str], socket.socket]
    Result = socket.socket | OSError


def run_at_once(call: Callable[[], None]) -> None:
    """Run a call in the calling thread."""
    call()


class SocketOpener:
    """Sockets in the making.

    `open_socket` opens the socket of a netdev, or raises OSError. `run` runs a call that may block:
    `run_at_once`, or RtnlWorker.submit.
    """

    def __init__(self, open_socket: Open, run: Run) -> None:
        self.errors: dict[str, OSError] = {}  # of the last attempts, by netdev
        self._open_socket = open_socket
        self._run = run
        self._opening: set[str] = set()
        self._results: deque[tuple[str, Result]] = deque()  # appended in `run`

    def request(self, netdevs: Collection[str]) -> None:
        """Open the sockets of these netdevs; drop the errors of others."""
        self.errors = {name: error for name, error in self.errors.items() if name in netdevs}
        for netdev in sorted(netdevs):
            if netdev not in self._opening:
                self._start(netdev)

    def take(self) -> list[tuple[str, socket.socket]]:
        """Return the sockets opened since the last call, with their netdevs."""
        opened = []
        while self._results:
            netdev, result = self._results.popleft()
            self._end(netdev, result)
            if not isinstance(result, OSError):
                opened.append((netdev, result))
        return opened

    def close(self, sock: socket.socket) -> None:
        """Close a socket, which may block like opening it."""
        self._run(sock.close)

    def _end(self, netdev: str, result: Result) -> None:
        self._opening.discard(netdev)
        self.errors.pop(netdev, None)
        if isinstance(result, OSError):
            self.errors[netdev] = result

    def _start(self, netdev: str) -> None:
        self._opening.add(netdev)
        try:
            self._run(partial(self._open, netdev))
        except RuntimeError as error:  # no thread can be started
            self._results.append((netdev, OSError(errno.EAGAIN, str(error))))

    def _open(self, netdev: str) -> None:
        try:
            self._results.append((netdev, self._open_socket(netdev)))
        except OSError as error:
            self._results.append((netdev, error))
