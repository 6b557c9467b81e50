"""The door to LLDP frames for one look: listen until every netdev has spoken, or time is up.

Switches speak every 30 s, so a look takes patience; a person at a terminal is told what is awaited.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from agent.errors import Malformed
from agent.lldp import frame as lldp
from agent.lldp.packet_socket import Listener
from agent.model import Problem, natural

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent.lldp.frame import Frame

    Tell = Callable[[int, set[str], float], None]

PATIENCE = 65.0  # seconds: two transmit intervals and a little (IEEE Std 802.1AB-2016, 9.2.5.7, msgTxInterval)
BEAT = 0.5  # seconds between two words of progress
LINE = 79  # characters that fit into one line of every terminal, and leave the cursor in it


def progress(spoken: int, awaited: set[str], left: float) -> None:
    """Say on stderr what is awaited and for how long yet, where a person is watching."""
    if sys.stderr.isatty():
        line = f"LLDP: {spoken} of {spoken + len(awaited)} ports have spoken, {left:.0f} s left"
        if awaited:
            line = f"{line}; awaited: {' '.join(sorted(awaited, key=natural))}"
        sys.stderr.write(f"\r{_fit(line):<{LINE}}" if left else f"\r{'':<{LINE}}\r")
        sys.stderr.flush()


def _fit(line: str) -> str:
    return line if len(line) <= LINE else f"{line[: LINE - 1]}~"


class LldpWait:
    """Frames of one look. `wait` None: until all have spoken, or PATIENCE; a number: that many seconds, all of them.

    `tell` is told how many netdevs have spoken, which are awaited, and for how many seconds yet; at the end that is 0.
    `elapsed` says then how long it took.
    """

    def __init__(self, wait: float | None, tell: Tell, listener: Listener | None = None) -> None:
        self.elapsed = 0.0
        self._listened = False
        self._wait = wait
        self._tell = tell
        self._listener = listener or Listener()

    def __call__(self, netdevs: Mapping[str, bool]) -> tuple[list[Frame], dict[str, str]]:
        """Listen; raises Unavailable without CAP_NET_RAW."""
        refused = self._listener.watch(netdevs)
        try:
            return self._listen({name for name, up in netdevs.items() if up}, refused), refused
        finally:
            self._listener.close()

    def _listen(self, netdevs: set[str], refused: dict[str, str]) -> list[Frame]:
        """Collect frames; a netdev that goes meanwhile is refused, one that comes back is heard again."""
        frames: list[Frame] = []
        awaited = netdevs - refused.keys()
        start = time.monotonic()
        self._listened = bool(awaited)
        limit = PATIENCE if self._wait is None else self._wait
        try:
            while (left := limit - self.elapsed) > 0 and (awaited or self._wait is not None):
                self._tell(len(netdevs) - len(awaited), awaited, left)
                got = self._listener.receive(min(left, BEAT))
                frames += got
                refused |= self._listener.watch(netdevs)
                awaited -= {frame.netdev for frame in got if _speaks(frame)} | refused.keys()
                self.elapsed = time.monotonic() - start
        finally:
            self._tell(len(netdevs) - len(awaited), awaited, 0)
        return frames

    def notes(self) -> list[Problem]:
        """What a report should say about how long was listened."""
        if not self._listened or self.elapsed >= PATIENCE:
            return []
        text = f"listened for {self.elapsed:.0f} s: a port's second neighbour may be unheard (--wait {PATIENCE:.0f})"
        return [Problem("lldp", "lldp", None, text)]


def _speaks(frame: Frame) -> bool:
    try:
        lldp.decode(frame.data)
    except Malformed:
        return False
    return True
