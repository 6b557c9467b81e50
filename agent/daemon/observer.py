"""What an agent that runs makes of its looks: the labels as they should be now, given what they were.

The law of this module: a look alone does not know what to publish. What it cannot see is held (agent/labels/holds.py),
what has just gone down is given grace, and whose device has gone is told by where it was. So every look is seen through
the one before it, and the first through the Node.

A source that is switched off sees nothing, on purpose: its labels go.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from agent.kube.annotation import observed
from agent.kube.managed_fields import keys_of
from agent.labels.holds import Grace, Holds, lent
from agent.labels.table import render
from agent.model import Absent, Failed, Seen
from agent.sources.observe import observe

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from agent.host import Host
    from agent.kube.annotation import Annotation
    from agent.labels.table import Naming, Rendered
    from agent.model import Observation

OFF = Absent("switched off by --source")


class Cycle(NamedTuple):
    """One look, and what it means."""

    observation: Observation
    rendered: Rendered
    told: Annotation  # for the annotation
    expired: Mapping[
        str, str
    ]  # labels that have just gone because their hold ran out, with their last values
    took: Mapping[str, float]  # seconds, by source
    until: float  # when something runs out by itself
    uneasy: bool  # something that was seen before cannot be seen

    @property
    def state(self) -> tuple[object, ...]:
        """What the Node is to say, but for the time."""
        return tuple(self.rendered.labels.items()), self.told.boot_id, self.told.interfaces


class Observer:
    """The looks of one agent; `wall` is the clock on the wall, in seconds since the epoch, for people only."""

    def __init__(
        self,
        host: Host,
        naming: Naming,
        sources: Collection[str],
        hold: float,
        wall: Callable[[], float],
    ) -> None:
        self._host, self._naming, self._sources, self._hold, self._wall = (
            host,
            naming,
            sources,
            hold,
            wall,
        )
        self._keys = keys_of(naming)
        self._told: Annotation | None = None
        self._grace = Grace()
        self._netdevs: tuple[str, ...] = ()  # whose neighbours were looked at
        self._holds = Holds(hold, {}, host.clock())

    def seed(self, labels: Mapping[str, str], told: Annotation | None) -> None:
        """Begin with what the Node says."""
        kept = {key: value for key, value in labels.items() if not self._is_off(key)}
        self._holds = Holds(self._hold, kept, self._host.clock())
        self._told = told

    def look(self) -> Cycle:
        """Look once."""
        took: dict[str, float] = {}
        self._host.readers.refresh()
        labelled = dict(self._told.interfaces) if self._told else {}
        seen = observe(self._host, self._sources, labelled, took)
        now = self._host.clock()
        seen = self._grace.damp(_without(seen, self._wall()), now)
        away = lent(seen)
        rendered = render(
            seen, self._naming, self._holds.previous(now, lambda key: self._interface(key) in away)
        )
        expired = self._holds.rendered(rendered, now, lambda key: self._interface(key) in away)
        self._told = observed(seen, rendered.labels, self._keys, self._told)
        uneasy = isinstance(seen.rdma, Failed) or any(
            self._interface(key) not in away for key in rendered.held
        )
        links = seen.lldp.value if isinstance(seen.lldp, Seen) else ()
        self._netdevs = tuple(link.netdev for link in links if link.netdev)
        return Cycle(seen, rendered, self._told, expired, took, self.until(), uneasy)

    def until(self) -> float:
        """When something that the last look saw runs out by itself; neighbours who repeat themselves put it off."""
        now = self._host.clock()
        return min(
            self._holds.next_end(now),
            self._grace.next_end(now),
            self._host.neighbors.next_end(self._netdevs),
        )

    def _interface(self, key: str) -> str | None:
        return self._keys.interface(key)

    def _is_off(self, key: str) -> bool:
        """What only the RDMA source tells, which looks in any case; the others' absence says it for them."""
        if not self._sources or "rdma" in self._sources:
            return False
        return key.rpartition("/")[2] in {"flavor", "speed.current"}


def _without(seen: Observation, time: float) -> Observation:
    """The observation at this time, in which what is switched off is not there."""
    off: dict[str, Any] = dict.fromkeys(seen.off - {"rdma"}, OFF)
    return replace(seen, time=time, off=seen.off & {"rdma"}, **off)
