"""The links with errors of a fleet, by the annotations of its Nodes (agent/cabling/unstable.py)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from agent.cabling import words
from agent.cabling.cables import IGNORED, ComparedCable
from agent.cabling.findings.finding import Finding, PortRef
from agent.cabling.unstable import UnstableLink
from agent.cabling.unstable import findings as of_links
from agent.fleet.model import FleetNode


def findings(nodes: Sequence[FleetNode], cables: Iterable[ComparedCable]) -> Iterator[Finding]:
    """Yield a finding for each cause of links with errors; `cables` are those of the plan."""
    bad = [
        UnstableLink(PortRef(node.name, port.interface), port.bad_link, port.far_end, "")
        for node in nodes
        for port in node.ports
        if port.bad_link and port.far_end and not port.is_lost
    ]
    planned, links = {cable.ref: cable for cable in cables} if bad else {}, []
    for link in bad:
        cable = planned.get(link.ref)
        near = words.near(cable.row) if cable else link.ref.interface
        if not cable or cable.status != IGNORED:
            links.append(link._replace(near=f"{link.ref.node} {near}", cable=cable))
    every = (
        (node.name, port.far_end)
        for node in nodes
        for port in node.ports
        if port.far_end and not port.is_lost
    )
    yield from of_links(links, every)
