"""Generated fleets as the model that a pattern is inferred from, and the oracle of its findings."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from agent.cabling.finding import Finding
from agent.cabling.seen import SeenEnd
from agent.fleet.model import INFINIBAND, ROCE, FleetNode, FleetPort
from agent.fleet.model import Fleet as Model
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
    guid = 0xA088C20300000001 + cable.node * 64 + cable.slot * 2
    now, last = (far_end(one, fleet.style) if one else None for one in (end, end or built))
    return FleetPort(
        fleet.interface(cable),
        f"{'0001' if kind else '0000'}:{0x10 + 8 * cable.slot:02x}:00.0",
        f"{guid:016x}",
        400.0 if end else 0.0,
        now,
        last,
    )


class Score(NamedTuple):
    """Counts of findings and faults."""

    right: int  # findings that lead cables of faults back to their leaves
    wrong: int  # other findings
    found: int  # injected faults of which every cable off its leaf is in a right finding
    faults: int  # those with a cable off its leaf

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

    A finding is right if it names ports, each is one of a fault, and its moves lead each back to
    its leaf. Which port of the leaf a cable is on is not judged.
    """
    built: dict[tuple[str, str], str] = {}  # the leaf of each cable of a fault
    off: list[set[tuple[str, str]]] = []  # of each fault, the cables that are off their leaves
    for fault in fleet.faults:
        astray = set()
        for cable, before in fault.before.items():
            port, after = (fleets.node_name(cable.node), fleet.interface(cable)), fault.after[cable]
            built[port] = fleets.names(before, fleet.style).name
            if after is None or after.leaf != before.leaf:
                astray.add(port)
        off += [astray] if astray else []
    right = 0
    named: set[tuple[str, str]] = set()
    for one in findings:
        wanted = {(*move.port,): move.wanted[0] for move in one.moves}
        ports = {(port.node, port.interface) for port in one.ports}
        if ports and all(port in built and wanted.get(port) == built[port] for port in ports):
            right += 1
            named |= ports
    found = sum(astray <= named for astray in off)
    return Score(right, len(findings) - right, found, len(off))
