"""How long a label outlives what it says: the holds, and the grace of a link that has gone down.

The law of this module: a label that cannot be seen stays, but not for ever. Its time begins with the first look that
did not see it (for what the Node carried when we began: with that moment), ends `hold` seconds later, and begins anew
only after a look that was sure of it. So a value that was published though half of it could not be seen, once its hold
has run out, follows what can be seen at once, for as long as the sickness lasts.

What is lent has no end: a device whose netdev a pod has taken comes back with it.

Pure: the time is told, in seconds of a clock that never jumps.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from agent.model import Link, Seen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent.labels.table import Rendered
    from agent.model import Observation

LENT = "no-netdev"  # why a port has no neighbour: its netdev is in a pod's network namespace
DOWN = "link-down"
GRACE = 30.0  # seconds that a link is down before its neighbour goes


class Holds:
    """The labels as they are published, and since when some of them cannot be seen."""

    def __init__(self, hold: float, labels: Mapping[str, str], now: float) -> None:
        self._hold = hold
        self._labels = dict(labels)
        self._unseen = dict.fromkeys(labels, now)

    def previous(self, now: float, is_lent: Callable[[str], bool]) -> dict[str, str]:
        """The labels that a look at `now` may leave as they are; `is_lent` knows the keys without an end."""
        kept = {
            key for key, since in self._unseen.items() if now < since + self._hold or is_lent(key)
        }
        return {
            key: value
            for key, value in self._labels.items()
            if key in kept or key not in self._unseen
        }

    def rendered(
        self, rendered: Rendered, now: float, is_lent: Callable[[str], bool]
    ) -> dict[str, str]:
        """Take in what a look has made of `previous`; the labels that have just gone because their hold ran out."""
        ended = {
            key
            for key, since in self._unseen.items()
            if now >= since + self._hold and not is_lent(key)
        }
        expired = {
            key: self._labels[key] for key in (ended & self._labels.keys()) - rendered.labels.keys()
        }
        unseen = [
            key
            for key in (*rendered.held, *rendered.unsure)
            if key in rendered.labels and not is_lent(key)
        ]
        # What has gone and comes back by halves has had its hold.
        self._unseen = {
            key: self._unseen.get(key, now) for key in (*(ended - rendered.labels.keys()), *unseen)
        }
        self._labels = dict(rendered.labels)
        return expired

    def next_end(self, now: float) -> float:
        """When the next hold ends; infinity where none is running."""
        ends = (since + self._hold for since in self._unseen.values())
        return min((end for end in ends if end > now), default=math.inf)


class Grace:
    """InfiniBand ports that have gone down: their neighbours stay for GRACE seconds.

    What LLDP has heard is forgotten with the same patience by agent/lldp/neighbors.py.
    """

    def __init__(self) -> None:
        self._down: dict[str, float] = {}

    def damp(self, observation: Observation, now: float) -> Observation:
        """The observation with the labels of these ports held."""
        links = observation.ib.value if isinstance(observation.ib, Seen) else ()
        self._down = {
            link.interface: self._down.get(link.interface, now)
            for link in links
            if link.missing == DOWN
        }
        if not self._down:
            return observation
        return replace(observation, ib=Seen(tuple(self._damped(link, now) for link in links)))

    def next_end(self, now: float) -> float:
        """When the next neighbour goes; infinity where none does."""
        return min(
            (since + GRACE for since in self._down.values() if since + GRACE > now),
            default=math.inf,
        )

    def _damped(self, link: Link, now: float) -> Link:
        since = self._down.get(link.interface)
        return link._replace(hold=True) if since is not None and now < since + GRACE else link


def lent(observation: Observation) -> frozenset[str]:
    """The interfaces whose netdev is in a pod."""
    outcomes = (
        outcome for outcome in (observation.lldp, observation.ib) if isinstance(outcome, Seen)
    )
    return frozenset(
        link.interface for outcome in outcomes for link in outcome.value if link.missing == LENT
    )
