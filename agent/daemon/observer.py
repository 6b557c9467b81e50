"""Observation cycles: each observes the node and renders what is known after it.

One observation does not determine the labels: the memory of facts (agent/memory.py) goes from cycle
to cycle, and begins with the Node's labels and annotation.

A source that is disabled by --source is absent: its labels are removed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from agent import encode
from agent.check import NOT_PERMITTED
from agent.daemon.schedule import Settings
from agent.host import Host
from agent.kube.annotation import Annotation, annotation_of, is_cut, lost_in
from agent.kube.managed_fields import Keys, state_of
from agent.kube.reconcile import Result
from agent.kube.remembered import Globs, annotate, pins, published, switches
from agent.labels.render import Rendered, freezable, render
from agent.lldp.neighbors import AWAITED, Former, NeighborTable
from agent.memory import Fact, FarEnd, Identity, Known, Memory, far_end, remembered
from agent.model import Absent, Failed, LldpNeighbor, Observation, Seen
from agent.nvml.domain import domain_of
from agent.reasons import HoldReason
from agent.sources.interfaces import is_unread
from agent.sources.lldp import named
from agent.sources.observe import Memories, observe
from agent.sources.pci import place
from agent.sources.steady import NOTHING, Inventory

if TYPE_CHECKING:  # an agent without --tiers does not load these
    from agent.infiniband.exploration import Exploration
    from agent.infiniband.fabric_memory import FabricMemory

DISABLED = Absent("switched off by --source")
READABLE = NOT_PERMITTED | {None}  # errors of a Problem that do not pass, or none
RDMA_ONLY_LABELS = frozenset({"flavor", "speed.current"})


class Cycle(NamedTuple):
    """One observation, what is known after it, and the labels of that."""

    observation: Observation
    known: Known
    rendered: Rendered
    annotation: Annotation
    took: Mapping[str, float]  # seconds, by source
    degraded: bool  # something is held, or cannot be read
    # about the tiers, by outcome (agent/infiniband/exploration.py); None: --tiers is off
    sa_questions: Mapping[str, int] | None = None

    @property
    def state(self) -> tuple[object, ...]:
        """The desired state of the Node without the annotation's time; two are compared."""
        labels = tuple(self.rendered.labels.items())
        return labels, *self.rendered.frozen, self.annotation.facts, self.known.fabric


@dataclass(slots=True)
class Observer:
    """Runs the observation cycles of one agent."""

    host: Host
    memories: Memories  # of the sources
    neighbors: NeighborTable  # the LLDP neighbors that the host's observations show
    keys: Keys
    sources: Collection[str]
    settings: Settings
    wall: Callable[[], float]  # seconds since the epoch
    # Seconds that the host's clock is behind CLOCK_BOOTTIME
    left_out: Callable[[], float] = lambda: 0.0
    # the lost interfaces that the Node's annotation had at the last request
    confirmed: frozenset[Identity] = frozenset()
    _memory: Memory = field(init=False)
    _started: float = field(init=False)
    _annotation: Annotation | None = None
    _explored: Exploration | None = None  # the last one that the memory of the tiers has
    _cycle: Cycle | None = None  # the last one

    def __post_init__(self) -> None:
        self._started = self.host.clock()
        self._memory = Memory(self.settings.hold, started=self._started)

    def seed(
        self,
        labels: Mapping[str, str],
        annotation: Annotation | None,
        fabric: FabricMemory | None = None,
    ) -> list[Fact]:
        """Start from the labels and the annotations that the Node has; return the rows of these.

        `fabric` are the switches above; None: nothing is remembered, or --tiers is off.
        """
        if fabric and self.memories.fabric:
            self.memories.fabric, self._explored = fabric, None
        # Those of the RDMA source end where --source disables that: it runs in any case, since the
        # others need its ports. Those of another disabled source end, since that is absent.
        is_on = not self.sources or "rdma" in self.sources
        disabled = frozenset[str]() if is_on else RDMA_ONLY_LABELS
        kept = {
            key: value for key, value in labels.items() if key.rpartition("/")[2] not in disabled
        }
        globs = self._globs
        if self.memories.roles:
            seen = NOTHING
            if annotation:
                seen = Inventory(annotation.gpus, annotation.away, annotation.missed)
            self.memories.roles.seed(pins(annotation, globs), seen)
        boot_id = self._cycle.observation.boot_id if self._cycle else None
        on_node = published(annotation, kept, self.keys, boot_id, globs)
        age = 0.0  # seconds since the last report; only over a boot by the wall clock
        if annotation:
            time, boot = annotation.reported
            age = 0.0 if time is None else self.wall() - time
            uptime = annotation.uptime if boot_id is not None and boot == boot_id else None
            if uptime and (since := self.host.clock() - uptime) >= 0:
                age = since
        on_node = on_node._replace(overdue=max(age - self.settings.resync, 0.0))
        self._memory.seed(on_node, self.host.clock())
        self._annotation = annotation
        self.confirmed = lost_in(annotation)
        self.memories.switch_names.seed(switches(on_node.rows))
        self._expect(on_node.rows, self._started)
        return [*on_node.rows, *on_node.excluded]

    def observe(self, *, refresh: bool = True) -> Cycle:
        """Run one cycle; `refresh` reads the facts of all devices anew."""
        if refresh:
            self.memories.readers.refresh()
        took: dict[str, float] = {}
        addresses = self._annotation.addresses if self._annotation else {}
        seen = observe(self.host, self.sources, addresses, took, self.memories)
        off = seen.off
        absent: dict[str, Any] = dict.fromkeys(off - {"rdma"}, DISABLED)
        domain = domain_of(absent.get("nvml", seen.nvml))
        absent |= {"accelerator": domain, "time": self.wall()}
        seen = seen._replace(off=off & {"rdma"}, disabled=off, **absent)
        where, now = partial(place, self.host), self.host.clock()
        observation, known = self._memory.complete(seen, where, now)
        # What is known of the switches above, after an exploration that is new, too.
        fabric = None if "ib" in known.disabled else self.memories.fabric
        tiers = observation.tiers
        if fabric is not None and isinstance(tiers, Seen) and tiers.value is not self._explored:
            self._explored = tiers.value
            fabric = self.memories.fabric = remembered(fabric, observation, known)
        known = known._replace(fabric=fabric)
        rendered = render(known, self.keys.naming)
        labels = rendered.labels
        whole = (labels.keys() - rendered.incomplete.keys()) | rendered.frozen.keys()
        rows = freezable(self.keys.naming)
        self._memory.published(frozenset(row for row, key in rows.items() if key in whole))
        roles = self._globs, self.memories.roles.known if self.memories.roles else NOTHING
        annotation = annotate(observation, known, self._annotation, self.left_out(), roles)
        self._annotation = replace(annotation, prefixes=self.keys.written)
        # The table forgets netdevs whose neighbors are not observed; here the last of them.
        before = _netdevs(self._cycle.observation) if self._cycle else set[str]()
        if isinstance(observation.lldp, Absent) and not isinstance(observation.rdma, Failed):
            self.neighbors.forget(before)
        back = _netdevs(observation) - before
        self._expect((row for row in known.facts if row.far_why and row.netdev in back), now)
        # The label of a netdev that is lent to a pod is held as well; that is no degradation.
        is_held = any(why is not HoldReason.LENT for why in rendered.kept.values())
        degraded = is_held or _is_degraded(seen)
        questions = dict(self.memories.sa_questions) if self.memories.fabric else None
        self._cycle = Cycle(
            *(observation, known, rendered, self._annotation, took, degraded, questions)
        )
        return self._cycle

    def reconciled(self, result: Result) -> bool:
        """Take over the lost interfaces of the Node; return True if some are forgotten.

        Another program has removed those from the annotation.
        """
        if result.node:
            self.confirmed = lost_in(annotation_of(state_of(result.node), self.keys)[0])
        forgotten = result.change.forgotten if result.change else ()
        self._memory.forget([row.identity for row in forgotten])
        return bool(forgotten)

    def expires_at(self) -> float:
        """Return the time at which a part of the last observation expires by itself.

        A later frame of the same neighbor moves it on.
        """
        if self._cycle is None:
            return math.inf
        netdevs = _netdevs(self._cycle.observation)
        return min(self._cycle.known.next_end, self.neighbors.next_expiry(netdevs))

    def _expect(self, rows: Iterable[Fact], since: float) -> None:
        """Start the netdevs of these rows, heard `since`, with the neighbors they had before.

        A new agent takes those that the Node has; later a netdev that is back has that of its port:
        its driver was loaded again, or a Pod gave it back.
        """
        for row in rows:
            if row.netdev and row.far and row.layer == "Ethernet":
                former = Former(partial(_is_same, row.far, self.host.name), since + AWAITED)
                self.neighbors.seed(row.netdev, former)

    @property
    def _globs(self) -> Globs:
        """The flags that name devices."""
        return self.host.excluded, self.host.backend


def _is_same(far: FarEnd, own: str | None, facts: LldpNeighbor) -> bool:
    """Return True if a frame to host `own` makes the labels of a far end.

    The annotation cuts long texts, and a label has its neighbor's text encoded. A shutdown frame,
    which has Chassis ID and Port ID alone, is that of the far end if they are.
    """
    end = far_end(named(facts, own))
    if not facts.ttl:
        is_chassis = not far.id or _label(far.id) == _label(facts.chassis_id)
        return is_chassis and _label(far.port_id) == _label(end.port_id)
    ends = ([end.device, end.port_id, end.port_name], [far.device, far.port_id, far.port_name])
    return all(_label(seen) == _label(known) for seen, known in zip(*ends, strict=True))


def _label(text: str | None) -> str:
    """Return the label of a text, which may be cut or a label; its hash if it has none."""
    if text and is_cut(text):
        return text.rpartition("~")[2]
    return encode.value(text) or encode.hashed(text) if text else ""


def _netdevs(observation: Observation) -> set[str]:
    """Return the netdevs whose neighbors were observed."""
    links = observation.lldp.value if isinstance(observation.lldp, Seen) else ()
    return {link.netdev for link in links if link.netdev}


def _is_degraded(observation: Observation) -> bool:
    """Return True if something on the node cannot be read: no event tells when it can be.

    A hold may have ended long before. What is not permitted stays so, but for what a label needs.
    """
    if isinstance(observation.rdma, Failed):
        return True
    devices = observation.rdma.value if isinstance(observation.rdma, Seen) else ()
    netdevs = (role.netdev for role in observation.backend)
    return (
        any(map(is_unread, devices))
        or any(role.counted_gbps is None for role in observation.backend)
        or any(netdev.operstate is None for netdev in netdevs if netdev)
        or any(problem.error not in READABLE for problem in observation.problems)
    )
