"""Since when InfiniBand links are down; the oracle's model of what the agent can see of that.

The agent looks at the port states at most once a second, so it may not see an up that is shorter
than BLINK. It counts the grace from any such down on. A port that cannot be read may have been up
meanwhile, so the grace may begin anew after that. Shares no code with the agent.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from tests.simulation.neighbors import BLINK, GRACE


class Down(NamedTuple):
    """A link that is down."""

    since: float
    earliest: float  # since when it may seem to be down


class Downs:
    """The links that are down, by PCI address."""

    def __init__(self) -> None:
        self._downs: dict[str, Down] = {}
        self._ended: dict[str, tuple[Down, float]] = {}  # the last one, and its end
        self._hidden: set[str] = set()

    def __contains__(self, pci: str) -> bool:
        return pci in self._downs

    def note(self, pci: str, now: float, *, up: bool) -> None:
        """Record the state of a link."""
        if up and pci in self._downs:
            self._ended[pci] = self._downs.pop(pci), now
        elif not up and pci not in self._downs:
            before, end = self._ended.pop(pci, (Down(now, now), -math.inf))
            self._downs[pci] = Down(now, before.earliest if now < end + BLINK else now)

    def see(self, pci: str, now: float, *, visible: bool) -> None:
        """Record whether the state of a link can be read for certain."""
        if not visible:
            self._hidden.add(pci)
        elif pci in self._hidden:
            self._hidden.remove(pci)
            if pci in self._downs:
                self._downs[pci] = self._downs[pci]._replace(since=now)

    def find(self, pci: str, now: float) -> Down:
        return self._downs.get(pci, Down(now, now))

    def next_changes(self) -> list[float]:
        """Return the times at which the grace of a link ends, or may end."""
        return [moment + GRACE for down in self._downs.values() for moment in down]

    def clear(self) -> None:
        self._downs.clear()
        self._ended.clear()
