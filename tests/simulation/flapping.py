"""Ports that may be flapping: changes of their labels may be ten minutes old.

    five changes in ten minutes    flapping until the port was quiet for ten minutes
    a change of it alone           reaches the Node within ten minutes

The agent may see fewer changes than there are, and each of them late. Shares no code with it.
"""

from __future__ import annotations

from collections import defaultdict

MANY, WINDOW = 5, 600.0  # changes, seconds


class Flaps:
    """The changes of each port, by PCI address."""

    def __init__(self, slack: float) -> None:
        self._slack = slack  # seconds by which a change may be seen late
        self._changes: defaultdict[str, list[float]] = defaultdict(list)
        self._until: dict[str, float] = {}

    def note(self, pci: str, now: float) -> None:
        """Record a change of a port."""
        window = WINDOW + self._slack
        changes = [at for at in self._changes[pci] if at > now - window]
        self._changes[pci] = [*changes, now]
        if len(changes) + 1 >= MANY or now < self._until.get(pci, 0.0):
            self._until[pci] = now + window

    def may_flap(self, pci: str, now: float) -> bool:
        """Return True if changes of the port's labels may wait."""
        return now < self._until.get(pci, 0.0)
