"""Hold published labels for a limited time while their sources fail.

Invariants:
- The hold of a label starts with the first observation in which it was held or incomplete; for a
  label that the Node carried at the start of the agent, with the start.
- It ends `hold` seconds later. A held label is then removed; a label with a new, incomplete value
  follows the incomplete values from then on.
- Only an observation that is complete for a label, or lacks it before its hold ends, resets it.
- A label of an interface whose netdev is in a pod is held without limit: the device comes back.

Times are seconds of a clock that does not jump; nothing here reads a clock.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from agent.model import Link, NeighborReason, Seen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent.labels.render import Rendered
    from agent.model import Observation

LINK_DOWN_GRACE = 30.0  # seconds that a link must be down before its neighbor's labels go


class Holds:
    """The published labels, and the start of the hold of each label that is not seen in full."""

    def __init__(self, hold: float, labels: Mapping[str, str], now: float) -> None:
        self._hold = hold
        self._labels = dict(labels)
        self._since = dict.fromkeys(labels, now)

    def previous(self, now: float, is_lent: Callable[[str], bool]) -> dict[str, str]:
        """Return the published labels that an observation at `now` may hold.

        `is_lent` returns True for the keys that are held without limit.
        """
        return {
            key: text
            for key, text in self._labels.items()
            if key not in self._since or not self._has_ended(key, now) or is_lent(key)
        }

    def update(
        self, rendered: Rendered, now: float, is_lent: Callable[[str], bool]
    ) -> dict[str, str]:
        """Take over the rendered labels; return those that go because their hold has ended.

        The rule for the hold of a label in `rendered`:
        - held or incomplete: it goes on, or starts now; without limit it does not run.
        - complete, or absent before the hold ends: it stops.
        - absent at the end of the hold: its start is kept, so that the label gets no second hold
          when it comes back incomplete.

        Example: a device fails at 0 s, `hold` is 600. Up to 599 s its labels are rendered as held.
        At 600 s `previous` lacks them, so `rendered` does, and this returns them.
        """
        since: dict[str, float] = {}
        expired: dict[str, str] = {}
        for key, start in self._since.items():
            gone = key not in rendered.labels
            if gone and self._has_ended(key, now) and not is_lent(key):
                since[key] = start
                if key in self._labels:
                    expired[key] = self._labels[key]
        for key in (*rendered.held, *rendered.incomplete):
            if not is_lent(key):
                since[key] = self._since.get(key, now)
        self._since = since
        self._labels = dict(rendered.labels)
        return expired

    def next_end(self, now: float) -> float:
        """Return the time at which the next hold ends; infinity if none is running."""
        ends = (since + self._hold for since in self._since.values())
        return min((end for end in ends if end > now), default=math.inf)

    def _has_ended(self, key: str, now: float) -> bool:
        return now >= self._since[key] + self._hold


class LinkDownGrace:
    """Holds the labels of an InfiniBand port's neighbor while its link goes down for a moment.

    agent/lldp/neighbors.py does the same for LLDP neighbors.
    """

    def __init__(self) -> None:
        self._down_since: dict[str, float] = {}

    def apply(self, observation: Observation, now: float) -> Observation:
        """Return the observation with the links held that went down LINK_DOWN_GRACE ago or less."""
        links = observation.ib.value if isinstance(observation.ib, Seen) else ()
        self._down_since = {
            link.interface: self._down_since.get(link.interface, now)
            for link in links
            if link.missing == NeighborReason.LINK_DOWN
        }
        if not self._down_since:
            return observation
        return replace(observation, ib=Seen(tuple(self._held(link, now) for link in links)))

    def next_end(self, now: float) -> float:
        """Return the time at which the next link has been down for too long; infinity if none."""
        ends = (since + LINK_DOWN_GRACE for since in self._down_since.values())
        return min((end for end in ends if end > now), default=math.inf)

    def _held(self, link: Link, now: float) -> Link:
        since = self._down_since.get(link.interface)
        if since is None or now >= since + LINK_DOWN_GRACE:
            return link
        return link._replace(hold=True)


def lent_interfaces(observation: Observation) -> frozenset[str]:
    """Return the interfaces whose netdev was moved into the network namespace of a pod."""
    return frozenset(
        link.interface
        for outcome in (observation.lldp, observation.ib)
        if isinstance(outcome, Seen)
        for link in outcome.value
        if link.missing == NeighborReason.NO_NETDEV
    )
