"""Names of nodes in Slurm: what `hostname -s` prints, by which slurmd finds its NodeName.

A Node may bear a fully qualified name; the first label is its name in Slurm, but for the Nodes
whose first labels are equal, and for addresses: these keep the whole name.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from agent.fleet.exports.exported import listed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.fleet.model import FleetNode


def hosts(nodes: Iterable[FleetNode]) -> tuple[dict[str, str], list[str]]:
    """Return the host names by Node name, and a note on those that could not be shortened."""
    short = {node.name: _short(node.name) for node in nodes}
    times = Counter(short.values())
    twice = [name for name, host in short.items() if times[host] > 1]
    notes = [f"equal up to the first dot, so with whole names: {listed(twice)}"] if twice else []
    return short | {name: name for name in twice}, notes


def _short(name: str) -> str:
    host = name.partition(".")[0]
    return name if host.isdigit() else host
