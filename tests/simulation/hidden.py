"""Since when devices are hidden, and whether the agent has given them up; shares no code with it.

A device that is hidden for HOLD counts as absent in the labels of the whole node. The hold starts
with the observation that finds the device hidden, or that could not read the whole class, if it is
hidden in the first one that can. A new agent knows its start from the annotation, which has it
after a minute.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tests.simulation.descriptions import HOLD
from tests.simulation.outcome import ABSENT, Outcome

PROMPT = 6.0  # seconds from the end of a hold to the observation without the device


class _Span(NamedTuple):
    """The time at which a device was hidden, and the time by which that must have been observed."""

    since: float
    observed_by: float

    @property
    def may_end(self) -> float:
        return self.since + HOLD

    @property
    def must_end(self) -> float:
        return self.observed_by + HOLD + PROMPT


class Hidden:
    """The devices that are hidden, by PCI address."""

    def __init__(self) -> None:
        self._spans: dict[str, _Span] = {}
        self._unseen_since: float | None = None  # the whole class

    def note(self, hidden: Iterable[str] | None, now: float, observed_by: float) -> None:
        """Record which devices are hidden; None while the class cannot be read.

        The agent does not observe then what it has not observed before.
        """
        if hidden is None:
            self._unseen_since = now if self._unseen_since is None else self._unseen_since
            for pci, span in self._spans.items():
                if now < span.observed_by:
                    self._spans[pci] = _Span(span.since, math.inf)
            return
        since = now if self._unseen_since is None else self._unseen_since
        self._spans = {pci: self._spans.get(pci, _Span(since, observed_by)) for pci in hidden}
        self._unseen_since = None
        for pci, span in self._spans.items():
            if math.isinf(span.observed_by):
                self._spans[pci] = _Span(span.since, observed_by)

    def outcome(self, pci: str, outcome: Outcome, now: float) -> Outcome:
        """Return the outcome of a neighbor in the labels that join those of all ports."""
        if self.is_given_up(pci, now):
            return ABSENT
        return ABSENT.murky() if self.may_be_given_up(pci, now) else outcome

    def may_be_given_up(self, pci: str, now: float) -> bool:
        """Return True if the agent may have given the device up."""
        return pci in self._spans and now >= self._spans[pci].may_end

    def is_given_up(self, pci: str, now: float) -> bool:
        """Return True if the agent must have given the device up."""
        return pci in self._spans and now >= self._spans[pci].must_end

    def next_changes(self) -> list[float]:
        """Return the times at which devices may, or must, be given up."""
        return [end for span in self._spans.values() for end in (span.may_end, span.must_end)]

    def begin(self, unread: Mapping[str, float | None]) -> None:
        """Start a new agent: it goes on with the holds that the annotation has, others are new."""
        self._spans = {
            pci: _Span(since, since) for pci, since in unread.items() if since is not None
        }
