"""Keep the private flags of netdevs' drivers, which are read in a worker thread.

The ethtool ioctl waits for the kernel's rtnl lock and calls the driver, so the daemon's loop never
issues it: it gets the flags read last, {} if there are none, and requests others.

Rule: the flags of a netdev are read when they are first requested, and again when they are first
requested after its link has come up. Until then the flags read before stay valid. Example: eth0
receives no LLDP frame, so its flags are read, once. After each further observation the same flags
are returned. Somebody sets `disable-fw-lldp`, which resets the link; the next observation has the
flags read again.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from agent.lldp.socket_opener import Run

    Flags = dict[str, bool]  # by name


class DriverFlags:
    """The flags by netdev; see Host.private_flags.

    `read` returns the flags of a netdev, or raises OSError if it is gone. `run` runs a call: at
    once, or in another thread.
    """

    def __init__(self, read: Callable[[str], Flags], run: Run) -> None:
        self._read, self._run = read, run
        self._links: dict[str, bool] = {}  # the netdevs of the last observation: link up?
        self._flags: dict[str, Flags] = {}
        self._current: set[str] = set()  # netdevs whose flags were read since their link came up
        self._reading: set[str] = set()
        self._results: deque[tuple[str, Flags]] = deque()  # appended by the worker

    def __call__(self, netdev: str) -> Flags:
        """Return the flags read last, {} if there are none; read them again if that is due."""
        if netdev not in self._current and netdev not in self._reading:
            self._start_reading(netdev)
            self.collect()
        return self._flags.get(netdev, {})

    def set_links(self, links: Mapping[str, bool]) -> None:
        """Record the netdevs that are observed and whether their link is up."""
        self._forget(self._links.keys() - links.keys())
        came_up = {netdev for netdev, up in links.items() if up and not self._links.get(netdev)}
        self._current -= came_up
        self._links = dict(links)

    def collect(self) -> bool:
        """Take in the flags that were read; return True if any have changed."""
        changed = False
        while self._results:
            netdev, flags = self._results.popleft()
            self._reading.discard(netdev)
            if netdev in self._links:
                changed |= self._update(netdev, flags)
        return changed

    def _update(self, netdev: str, flags: Flags) -> bool:
        """Keep the flags of a netdev; return True if they have changed."""
        changed = flags != self._flags.get(netdev, {})
        self._current.add(netdev)
        self._flags[netdev] = flags
        return changed

    def _forget(self, netdevs: Iterable[str]) -> None:
        for netdev in netdevs:
            self._flags.pop(netdev, None)
            self._current.discard(netdev)

    def _start_reading(self, netdev: str) -> None:
        self._reading.add(netdev)
        try:
            self._run(partial(self._read_into_results, netdev))
        except RuntimeError:  # no thread can be started; the next observation tries again
            self._reading.discard(netdev)

    def _read_into_results(self, netdev: str) -> None:
        try:
            flags = self._read(netdev)
        except OSError:
            flags = {}
        self._results.append((netdev, flags))
