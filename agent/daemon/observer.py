"""Observation cycles: each observes the node and renders its labels, given the cycles before.

One observation does not determine the labels. The label of a port whose source fails is held
(agent/labels/holds.py), a port that cannot be read counts what it did
(agent/labels/counts.py), a port that went down keeps its neighbor for a grace period, and a device
that has gone is known by its port GUID and PCI address (agent/kube/lost.py). So each cycle starts
from the one before, and the first from the Node's labels and annotation.

A source that is disabled by --source is absent: its labels are removed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from agent.host import Host
from agent.kube.annotation import Annotation, Identity, annotation_of, lost_in, without_lost
from agent.kube.interfaces import annotate, published_counts
from agent.kube.last_neighbors import SETTLE_TIME, NeighborMemory, is_held_without_limit
from agent.kube.last_switches import last_switches
from agent.kube.lost import Losses
from agent.kube.managed_fields import Keys, state_of
from agent.kube.reconcile import Result
from agent.labels.counts import PortCounts
from agent.labels.holds import Holds, LinkDownGrace, lent_interfaces
from agent.labels.render import Rendered, render
from agent.labels.table import Naming
from agent.lldp.neighbors import NeighborTable
from agent.model import Absent, Failed, Observation, Seen
from agent.sources.observe import observe
from agent.sources.table import SOURCES

DISABLED = Absent("switched off by --source")
RDMA_ONLY_LABELS = frozenset({"flavor", "speed.current"})


class Cycle(NamedTuple):
    """One observation with its labels."""

    observation: Observation
    rendered: Rendered
    annotation: Annotation
    expired: Mapping[str, str]  # labels whose hold just expired, with their last values
    took: Mapping[str, float]  # seconds, by source
    expires_at: float  # time at which a hold, a grace period or a neighbor's TTL expires
    degraded: bool  # something that was observed before cannot be read

    @property
    def state(self) -> tuple[object, ...]:
        """The desired state of the Node without the annotation's time; two are compared."""
        labels = tuple(self.rendered.labels.items())
        return labels, self.annotation.facts


@dataclass(slots=True)
class Observer:
    """Runs the observation cycles of one agent."""

    host: Host
    neighbors: NeighborTable  # the LLDP neighbors that the host's observations show
    naming: Naming
    sources: Collection[str]
    hold: float  # seconds
    wall: Callable[[], float]  # seconds since the epoch
    # the lost interfaces that the Node's annotation had at the last request
    confirmed: frozenset[Identity] = frozenset()
    _annotation: Annotation | None = None
    _grace: LinkDownGrace = field(default_factory=LinkDownGrace)
    _netdevs: tuple[str, ...] = ()  # those whose neighbors were observed
    _keys: Keys = field(init=False)
    _holds: Holds = field(init=False)
    _counts: PortCounts = field(init=False)
    _losses: Losses = field(default_factory=Losses)
    _memory: NeighborMemory = field(default_factory=NeighborMemory)
    _is_seeded: bool = False

    def __post_init__(self) -> None:
        self._keys = Keys(self.naming)
        self._holds = Holds(self.hold, {}, self.host.clock())
        self._counts = PortCounts(self.hold)

    def seed(self, labels: Mapping[str, str], annotation: Annotation | None) -> None:
        """Start from the labels and the annotation that the Node has."""
        kept = {key: value for key, value in labels.items() if not self._is_disabled(key)}
        now = self.host.clock()
        self._holds = Holds(self.hold, kept, now)
        self._counts.seed(published_counts(annotation, labels, self._keys), now)
        self._annotation = self._memory.seed(annotation, kept, self._keys, now + SETTLE_TIME)
        self._is_seeded = True
        self.confirmed = lost_in(annotation)
        if self.host.switch_names:
            self.host.switch_names.seed(last_switches(annotation, labels, self._keys))

    def observe(self, *, refresh: bool = True) -> Cycle:
        """Run one cycle; `refresh` reads the facts of all devices anew."""
        took: dict[str, float] = {}
        observation = self._observation(took, refresh=refresh)
        rendered, expired = self._render(observation, self.host.clock())
        self._annotation = annotate(observation, rendered.labels, self._keys, self._annotation)
        # Those whose neighbors were observed.
        links = observation.lldp.value if isinstance(observation.lldp, Seen) else ()
        self._netdevs = tuple(link.netdev for link in links if link.netdev)
        # The label of a netdev that is lent to a pod is held as well; that is no degradation.
        is_lent = self._lent(observation)
        is_held = any(not is_lent(key) for key in rendered.held)
        degraded = is_held or isinstance(observation.rdma, Failed)
        ends = self.expires_at()
        return Cycle(observation, rendered, self._annotation, expired, took, ends, degraded)

    def _observation(self, took: dict[str, float], *, refresh: bool) -> Observation:
        """Observe the node; a port that went down keeps its neighbor for the grace period."""
        if refresh:
            self.host.readers.refresh()
        addresses = self._annotation.addresses if self._annotation else {}
        found = observe(self.host, self.sources, addresses, took)
        now = self.host.clock()
        found = self._grace.apply(replace(_without_disabled(found), time=self.wall()), now)
        found = self._counts.apply(found, now)
        if not self._is_seeded:
            return found
        found = self._losses.apply(self.host, found, self._annotation)
        return self._memory.apply(found, self._annotation, now)

    def reconciled(self, result: Result) -> bool:
        """Take over the lost interfaces of the Node; return True if some are forgotten.

        Another program has removed those from the annotation.
        """
        if result.node:
            self.confirmed = lost_in(annotation_of(state_of(result.node), self._keys)[0])
        forgotten = result.plan.forgotten if result.plan else ()
        if self._annotation and forgotten:
            self._annotation = without_lost(self._annotation, forgotten)
        return bool(forgotten)

    def expires_at(self) -> float:
        """Return the time at which a part of the last observation expires by itself.

        A later frame of the same neighbor moves it on.
        """
        now = self.host.clock()
        return min(
            self._holds.next_end(now),
            self._counts.next_end(now),
            self._grace.next_end(now),
            self._memory.next_end(),
            self.neighbors.next_expiry(self._netdevs),
        )

    def _render(self, observation: Observation, now: float) -> tuple[Rendered, Mapping[str, str]]:
        """Render the labels, and return the labels whose hold has expired with them."""
        is_lent, keys = self._lent(observation), self._keys

        def is_endless(key: str) -> bool:
            return is_lent(key) or is_held_without_limit(key, observation, keys)

        rendered = render(observation, self.naming, self._holds.previous(now, is_endless))
        if self._keys.speed in rendered.incomplete:
            self._counts.publish_incomplete()
        return rendered, self._holds.update(rendered, now, is_endless)

    def _lent(self, observation: Observation) -> Callable[[str], bool]:
        """Return a predicate: True for the key of an interface that is lent to a pod."""
        away = lent_interfaces(observation)
        return lambda key: self._keys.interface(key) in away

    def _is_disabled(self, key: str) -> bool:
        """Return True for a label of the RDMA source if --source disables that.

        The source runs in any case, since the others need its ports. The labels of another
        disabled source are removed because the source is absent.
        """
        if not self.sources or "rdma" in self.sources:
            return False
        return key.rpartition("/")[2] in RDMA_ONLY_LABELS


def _without_disabled(observation: Observation) -> Observation:
    """Return the observation with each disabled source but "rdma" absent, and named as disabled."""
    absent: dict[str, Any] = {}
    for source in SOURCES:
        if source.name in observation.off and source.name != "rdma":
            absent |= {source.name: DISABLED, **source.derived(DISABLED)}
    off = observation.off
    return replace(observation, off=off & {"rdma"}, disabled=off, **absent)
