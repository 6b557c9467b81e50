"""Outcomes that changed a moment ago: an observation may have one of two changes only.

A neighbor may expire at the instant at which the frame of another arrives. Shares no code with the
agent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tests.simulation.outcome import Outcome

MOMENT = 1.0  # seconds


@dataclass(slots=True)
class _Changed:
    now: Outcome
    before: Outcome
    at: float = -math.inf


class Recent:
    """The outcomes of ports, by PCI address."""

    def __init__(self) -> None:
        self._changed: dict[str, _Changed] = {}

    def outcome(self, pci: str, outcome: Outcome, now: float) -> Outcome:
        """Return the outcome of a port; for a moment, that from before is right as well."""
        one = self._changed.setdefault(pci, _Changed(outcome, outcome))
        if one.now != outcome:
            one.before, one.now, one.at = one.now, outcome, now
        if now >= one.at + MOMENT:
            return outcome
        both = outcome.now | one.before.now
        later = outcome.later | one.before.later
        return Outcome(both, outcome.held or one.before.held, later, outcome.endless)

    def next_changes(self) -> list[float]:
        """Return the times at which only the present outcome of a port is right."""
        return [one.at + MOMENT for one in self._changed.values()]
