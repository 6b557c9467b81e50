"""NICs whose firmware differs from that of most NICs of the same model.

Only captures have it (agent/fleet/snapshots.py); of a running fleet `bwagent_port_info` has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from agent.cabling.findings.finding import Finding, PortRef, finding
from agent.fleet.model import FleetNode
from agent.grouped import grouped
from agent.text import listed, many

MIN_PORTS = 4  # of one model
USUAL = 0.75  # the share of them that has the usual firmware


def findings(nodes: Iterable[FleetNode]) -> Iterator[Finding]:
    """Yield a remark for each version that few ports of a model have."""
    ports = [
        (port.nic, PortRef(node.name, port.interface))
        for node in nodes
        for port in node.ports
        if port.nic and not port.is_lost
    ]
    for model, same in grouped(ports, lambda port: port[0].model).items():
        versions = grouped(same, lambda port: port[0].firmware)
        usual, count = Counter(nic.firmware for nic, _ in same).most_common(1)[0]
        if len(same) < MIN_PORTS or count < USUAL * len(same):
            continue
        for version, others in versions.items():
            if version != usual:
                refs = [ref for _, ref in others]
                names = [*dict.fromkeys(ref.node for ref in refs)]
                where = f"{many(len(refs), 'port')} of {many(len(names), 'node')} ({listed(names)})"
                text = (
                    f"Firmware {version} on {where}: {count:,} of {len(same):,} ports of {model} "
                    f"have {usual}."
                )
                facts = {"model": model, "firmware": version, "usual": usual}
                yield finding("firmware", refs, text, key=[model, version], facts=facts)
