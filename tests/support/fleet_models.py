"""Generated fleets as the model that a pattern is inferred from, and the oracle of its findings."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from typing import NamedTuple

from agent.findings.finding import Ends, Finding
from agent.fleet.model import INFINIBAND, ROCE, FleetNode, FleetPort
from agent.fleet.model import Fleet as Model
from agent.verify.seen import SeenEnd
from tests.support import fleets
from tests.support.fleets import Cable, End, Fleet


@lru_cache(100_000)
def far_end(end: End, style: str) -> SeenEnd:
    """Return a far end as the labels and the annotation have it."""
    names = fleets.names(end, style)
    label = re.sub(r"[^A-Za-z0-9._-]", "-", names.name)
    port_name = re.sub(r"[^A-Za-z0-9._-]", "-", names.port_name) if names.port_name else None
    return SeenEnd(label, names.port_id, port_name, names.id, names.name)


def model(fleet: Fleet) -> Model:
    """Return a fleet, without its detour by JSON."""
    flavor = INFINIBAND if fleet.style == fleets.INFINIBAND else ROCE
    nodes = []
    for number in range(fleet.size):
        time = fleets.NOW - (86_400 if number in fleet.silent else number % 3600)
        ports = tuple(_port(fleet, Cable(number, slot)) for slot in range(fleet.shape.slots))
        nodes.append(FleetNode(fleets.node_name(number), flavor=flavor, ports=ports, time=time))
    return Model(tuple(nodes), "generated", fleets.NOW)


def _port(fleet: Fleet, cable: Cable) -> FleetPort:
    built = fleet.wired(cable)
    end = fleet.ends.get(cable, built)
    kind = fleet.shape.addresses(cable.node)
    guid = 0xA088C20300000000 + cable.node * 64 + cable.slot * 2
    now, last = (far_end(one, fleet.style) if one else None for one in (end, end or built))
    return FleetPort(
        fleet.interface(cable),
        f"{'0001' if kind else '0000'}:{0x10 + 8 * cable.slot:02x}:00.0",
        f"{guid:016x}",
        f"{guid + 1:016x}",
        400.0 if end else 0.0,
        now,
        last,
    )


class Score(NamedTuple):
    """Counts of findings and faults."""

    right: int  # findings whose ports are all in one injected fault
    wrong: int  # other findings
    found: int  # injected faults of which every port is in a right finding
    faults: int
    restored: int  # found faults whose moves lead every cable back to where it was built

    def __add__(self, other: Score) -> Score:  # type: ignore[override]
        """Add the counts."""
        return Score(*(one + more for one, more in zip(self, other, strict=True)))

    @property
    def precision(self) -> float:
        """The part of the findings that are right; 1 without findings."""
        return self.right / (self.right + self.wrong) if self.right + self.wrong else 1.0

    @property
    def recall(self) -> float:
        """The part of the faults that are found; 1 without faults."""
        return self.found / self.faults if self.faults else 1.0


def score(fleet: Fleet, findings: tuple[Finding, ...]) -> Score:
    """Judge findings by the injected faults, and by nothing else.

    A finding is right if it names ports, and all of them are ports of one injected fault.
    """
    owner = {
        (fleets.node_name(cable.node), fleet.interface(cable)): number
        for number, fault in enumerate(fleet.faults)
        for cable in fault.before
    }
    right = 0
    named: set[tuple[str, str]] = set()
    moved: dict[tuple[str, str], Ends] = {}
    for one in findings:
        owners = {owner.get((port.node, port.interface), -1) for port in one.ports}
        if len(owners) == 1 and owners != {-1}:
            right += 1
            named |= {(port.node, port.interface) for port in one.ports}
            moved |= {(port.node, port.interface): wanted for port, _, wanted, *_ in one.moves}
    total = Counter(owner.values())
    found = {
        number
        for number, count in Counter(owner[port] for port in named).items()
        if count == total[number]
    }
    back = sum(1 for number in found if _is_restored(fleet, number, moved))
    return Score(right, len(findings) - right, len(found), len(fleet.faults), back)


def _is_restored(fleet: Fleet, number: int, moved: dict[tuple[str, str], Ends]) -> bool:
    """Return True if the moves lead every cable of a fault back."""
    for cable, end in fleet.faults[number].before.items():
        names = fleets.names(end, fleet.style)
        device, port = moved.get(
            (fleets.node_name(cable.node), fleet.interface(cable)), (None, None)
        )
        spelled = {names.port_id, names.port_name, (names.port_name or "").replace("/", "-")}
        if device != names.name or port not in spelled:
            return False
    return True
