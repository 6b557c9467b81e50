"""What --tiers asks of subnet managers: `python -m benchmarks.tier_questions DIR`.

DIR holds dumps of ibnetdiscover, as for benchmarks.tiers. Each is asked by the agent's own packets,
from every leaf group. The table has the questions of a node, and what NODES nodes ask in a second:
at rest (a look a day, an exploration a week) and on the first day (two explorations within it).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from agent.infiniband import sa, smp
from agent.infiniband.devices import SubnetPort
from agent.infiniband.exploration import explore, look
from benchmarks.tiers import Dump, read
from tests.support import sas

NODES, DAY = 10_000, 86_400
COLUMNS = (
    *("fabric", "leaves of a node", "exploration: questions, kB", "look: questions, kB"),
    *("without LIDs", "at rest: questions a second, kB/s", "first day"),
)


class Load(NamedTuple):
    """Questions, and octets of their answers."""

    questions: float
    octets: float

    def __str__(self) -> str:
        return f"{self.questions:.1f}, {self.octets / 1000:.1f}"


class Subnet:
    """The administrator of a dump's subnet."""

    def __init__(self, dump: Dump) -> None:
        subnet = dump.subnet
        lids = {guid: lid for lid, guid in enumerate(subnet.kinds, 1)}
        nodes = {guid: int(guid, 16) for guid in lids}
        self._asked = list[int]()
        self._switches = [
            sas.node(lids[guid], (name or "").encode()[:64], 2, nodes[guid])
            for guid, name in subnet.names.items()
        ]
        inside = [guid for guid, kind in subnet.kinds.items() if kind == "sharp"]
        self._inside = [sas.aggregation_node(lids[guid], nodes[guid]) for guid in inside]
        self._links = {
            lids[guid]: [
                sas.link(lids[far], far_port, lids[guid], port)
                for port, (far, far_port) in sorted(subnet.ports[guid].items())
            ]
            for guid in subnet.names
        }

    def ask(self, _port: SubnetPort, request: bytes) -> bytes:
        """Answer a question."""
        lid, _ = sa.require_get_table(request)
        rows = (
            self._switches if request == sa.get_switches(smp.transaction(request)) else self._inside
        )
        reply = sas.reply(request, *(self._links[lid] if lid else rows))
        self._asked.append(len(reply))
        return reply

    def load(self, work: Callable[[], Any]) -> tuple[Any, Load]:
        """Return the result of some work, and what it has asked."""
        self._asked.clear()
        return work(), Load(len(self._asked), sum(self._asked))


def measured(dump: Dump) -> tuple[float, list[Load]]:
    """Return the leaves of a node, and its exploration, its look, and its look without LIDs."""
    subnet, loads = Subnet(dump), list[tuple[Load, ...]]()
    for leaves in dump.groups:
        ports = [(SubnetPort("a", n, 5, 9, 0, 0), leaf) for n, leaf in enumerate(sorted(leaves), 1)]
        found, first = subnet.load(lambda: explore(ports, subnet.ask, 1))  # noqa: B023
        known = found.tiers.uplinks
        looks = [
            subnet.load(lambda: look(ports, subnet.ask, 1, known, lids))  # noqa: B023
            for lids in (found.lids, dict[str, int]())
        ]
        if not all(told.agrees for told, _ in looks):
            raise SystemExit(f"{dump.name}: a look contradicts its exploration")
        loads.append((first, *(load for _, load in looks)))
    means = [Load(*map(mean, zip(*kind, strict=True))) for kind in zip(*loads, strict=True)]
    return mean(map(len, dump.groups)), means


def main(folder: Path) -> None:
    """Print the table."""
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for path in sorted(folder.iterdir()):
        if path.suffix == ".md":
            continue
        dump = read(path)
        leaves, (first, again, unknown) = measured(dump)
        rest, day = (
            Load(
                *(NODES / DAY * (a * one + b * two) for one, two in zip(first, again, strict=True))
            )
            for a, b in ((1 / 7, 6 / 7), (2, 0))
        )
        row = dump.name, f"{leaves:.1f}", first, again, unknown, rest, day
        print(f"| {' | '.join(map(str, row))} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
