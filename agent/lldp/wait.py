"""Receive LLDP frames for one observation: wait until each netdev has a neighbor, or for a time.

Switches send every 30 s by default, so the wait is long, and its progress is shown on a terminal.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from agent.errors import Malformed
from agent.lldp import frame as lldp
from agent.lldp.packet_socket import Listener
from agent.model import Problem, natural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agent.lldp.frame import Frame
    from agent.lldp.reception import Links, Received

    Progress = Callable[["Netdevs", float], None]

# seconds: two transmit intervals and a margin (IEEE Std 802.1AB-2016, 9.2.5.7, msgTxInterval)
WAIT_TIMEOUT = 65.0
PROGRESS_INTERVAL = 0.5  # seconds
MAX_LINE = 79  # characters that fit into one line of every terminal, with the cursor in it


class Netdevs(NamedTuple):
    """The netdevs of one wait, each in one of the sets."""

    received: set[str]  # have a neighbor
    failed: set[str]  # have no socket
    awaited: set[str]


def progress(netdevs: Netdevs, left: float) -> None:
    """Show on stderr, if it is a terminal, the netdevs awaited and the seconds left."""
    if sys.stderr.isatty():
        line = _fit(_line(netdevs, left))
        sys.stderr.write(f"\r{line:<{MAX_LINE}}" if left else f"\r{'':<{MAX_LINE}}\r")
        sys.stderr.flush()


def _line(netdevs: Netdevs, left: float) -> str:
    received, failed, awaited = map(len, netdevs)
    ports = f"LLDP: neighbors on {received} of {received + failed + awaited} ports"
    line = f"{ports}, {failed} failed" if failed else ports
    names = " ".join(sorted(netdevs.awaited, key=natural))
    return f"{line}, {left:.0f} s left" + (f"; awaited: {names}" if names else "")


def _fit(line: str) -> str:
    return line if len(line) <= MAX_LINE else f"{line[: MAX_LINE - 1]}~"


class LldpWait:
    """The frames of one observation.

    With a `wait` of None it ends when each netdev with a link has a neighbor, at the latest after
    WAIT_TIMEOUT; a number is the seconds to wait in any case. `progress` is called with the
    netdevs that have a neighbor, failed or are awaited, and the seconds left, 0 at the end.
    `elapsed` is the duration in seconds.
    """

    def __init__(
        self, wait: float | None, progress: Progress, listener: Listener | None = None
    ) -> None:
        self.elapsed = 0.0
        self._received = False
        self._wait = wait
        self._progress = progress
        self._listener = listener or Listener()

    def __call__(self, netdevs: Links) -> Received:
        """Receive; raise Unavailable without CAP_NET_RAW. See LldpNeighbors."""
        errors = self._listener.watch(netdevs)
        up = {netdev for netdev, has_link in netdevs.items() if has_link}
        try:
            return self._receive(up, errors), errors
        finally:
            self._listener.close()

    def notes(self) -> list[Problem]:
        """Return a note for the report if the wait was too short to show all neighbors."""
        if not self._received or self.elapsed >= WAIT_TIMEOUT:
            return []
        text = (
            f"waited {self.elapsed:.0f} s for LLDP frames: "
            f"a port's second neighbor may be missing (--wait {WAIT_TIMEOUT:.0f})"
        )
        return [Problem("lldp", "lldp", None, text)]

    def _receive(self, netdevs: set[str], errors: dict[str, str | None]) -> list[Frame]:
        """Collect frames; a netdev that goes meanwhile is added to `errors`."""
        frames: list[Frame] = []
        status = _status(netdevs, frames, errors)
        start = time.monotonic()
        self._received = bool(status.awaited)
        try:
            while left := self._left(status.awaited):
                self._progress(status, left)
                frames += self._listener.receive(min(left, PROGRESS_INTERVAL))
                errors |= self._listener.watch(netdevs)
                status = _status(netdevs, frames, errors)
                self.elapsed = time.monotonic() - start
        finally:
            self._progress(status, 0)
        return frames

    def _left(self, awaited: set[str]) -> float:
        """Return the seconds left; 0 at the end."""
        if self._wait is None and not awaited:
            return 0
        limit = WAIT_TIMEOUT if self._wait is None else self._wait
        return max(limit - self.elapsed, 0)


def _status(netdevs: set[str], frames: Iterable[Frame], errors: Iterable[str]) -> Netdevs:
    received = _senders(frames)
    failed = netdevs.intersection(errors) - received
    return Netdevs(received, failed, netdevs - received - failed)


def _senders(frames: Iterable[Frame]) -> set[str]:
    """Return the netdevs that have a neighbor by these frames."""
    return {frame.netdev for frame in frames if _is_valid(frame)}


def _is_valid(frame: Frame) -> bool:
    try:
        lldp.decode(frame.data)
    except Malformed:
        return False
    return True
