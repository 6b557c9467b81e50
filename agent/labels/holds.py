"""Hold published labels for a limited time while their sources fail.

Invariants:
- The hold of a label starts with the first observation in which it was held or incomplete; for a
  label that the Node carried at the start of the agent, with the start.
- It ends `hold` seconds later. A held label is then removed; a label with a new, incomplete value
  follows the incomplete values from then on.
- Only an observation that is complete for a label, or lacks it before its hold ends, resets it.
- A label of an interface whose netdev is in a pod is held without limit: the device comes back.
- Without a device whose own hold has ended a label may be complete. If it is incomplete again when
  the device returns, it has a hold again, and is late by that.
- The counts in the speed label have holds of their own (agent/labels/counts.py).

Times are seconds of a clock that does not jump; nothing here reads a clock.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from agent.labels.values import links
from agent.model import Seen
from agent.reasons import HoldReason, NeighborReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    IsLent = Callable[[str], bool]  # True for the keys that are held without limit

    from agent.labels.render import Rendered
    from agent.model import Link, Observation

# Seconds that a neighbor outlives its link, its TTL or its shutdown frame.
NEIGHBOR_GRACE = 30.0


def next_end(starts: Mapping[str, float], duration: float, now: float) -> float:
    """Return the time at which the next of these ends; infinity if none is running."""
    ends = (start + duration for start in starts.values())
    return min((end for end in ends if end > now), default=math.inf)


class Holds:
    """The published labels, and the start of the hold of each label that is not seen in full."""

    def __init__(self, hold: float, labels: Mapping[str, str], now: float) -> None:
        self._hold = hold
        self._labels = dict(labels)
        self._since = dict.fromkeys(labels, now)

    def previous(self, now: float, is_lent: IsLent) -> dict[str, str]:
        """Return the published labels that an observation at `now` may hold."""
        labels = self._labels.items()
        return {key: text for key, text in labels if not self._has_ended(key, now, is_lent)}

    def update(self, rendered: Rendered, now: float, is_lent: IsLent) -> dict[str, str]:
        """Take over the rendered labels; return those that go because their hold has ended.

        The rule for the hold of a label in `rendered`:
        - held or incomplete: it goes on, or starts now; without limit it does not run.
        - complete, or absent before the hold ends: it stops.
        - absent at the end of the hold: its start is kept, so that the label gets no second hold
          when it comes back incomplete.

        Example: a device fails at 0 s, `hold` is 600. Up to 599 s its labels are rendered as held.
        At 600 s `previous` lacks them, so `rendered` does, and this returns them.
        """
        gone = (key for key in self._since if key not in rendered.labels)
        ended = [key for key in gone if self._has_ended(key, now, is_lent)]
        running = [key for key in _unseen(rendered) if not is_lent(key)]
        self._since = {key: self._since.get(key, now) for key in (*ended, *running)}
        expired = {key: self._labels[key] for key in ended if key in self._labels}
        self._labels = dict(rendered.labels)
        return expired

    def next_end(self, now: float) -> float:
        """Return the time at which the next hold ends; infinity if none is running."""
        return next_end(self._since, self._hold, now)

    def _has_ended(self, key: str, now: float, is_lent: IsLent) -> bool:
        """Return True if the label had a hold, which has ended."""
        start = self._since.get(key)
        return start is not None and now >= start + self._hold and not is_lent(key)


def _unseen(rendered: Rendered) -> list[str]:
    """Return the labels that were not seen in full, but for sums with counts that are held."""
    held = [key for key, reason in rendered.held.items() if reason is not HoldReason.LAST_COUNT]
    return [*held, *rendered.incomplete]


class LinkDownGrace:
    """Holds the labels of an InfiniBand port's neighbor while its link goes down for a moment.

    agent/lldp/neighbors.py does the same for LLDP neighbors.
    """

    def __init__(self) -> None:
        self._down_since: dict[str, float] = {}

    def apply(self, observation: Observation, now: float) -> Observation:
        """Return the observation with the links held that went down NEIGHBOR_GRACE ago or less."""
        found = observation.ib.value if isinstance(observation.ib, Seen) else ()
        self._down_since = {name: self._down_since.get(name, now) for name in _down(found)}
        if not self._down_since:
            return observation
        return replace(observation, ib=Seen(tuple(self._held(link, now) for link in found)))

    def next_end(self, now: float) -> float:
        """Return the time at which the next link has been down for too long; infinity if none."""
        return next_end(self._down_since, NEIGHBOR_GRACE, now)

    def _held(self, link: Link, now: float) -> Link:
        return link._replace(hold=True) if self._is_in_grace(link.interface, now) else link

    def _is_in_grace(self, interface: str, now: float) -> bool:
        """Return True if the link went down less than NEIGHBOR_GRACE ago."""
        since = self._down_since.get(interface)
        return since is not None and now < since + NEIGHBOR_GRACE


def _down(found: Iterable[Link]) -> list[str]:
    """Return the interfaces whose link is down."""
    return [link.interface for link in found if link.missing == NeighborReason.LINK_DOWN]


def lent_interfaces(observation: Observation) -> frozenset[str]:
    """Return the interfaces whose netdev was moved into the network namespace of a pod."""
    lent = (link for link in links(observation) if link.missing == NeighborReason.NO_NETDEV)
    return frozenset(link.interface for link in lent)
