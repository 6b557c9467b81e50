"""The finding `unstable` of a fleet: which end, or which part that bad links have in common."""

from __future__ import annotations

from random import Random

import pytest

from agent.encode import Naming
from agent.fleet.judge import judge as of_fleet
from agent.fleet.model import INFINIBAND
from agent.fleet.nodes import NodeReader
from agent.host import Host
from agent.infiniband.perf import MAXIMA, Counters
from agent.kube.annotation import render
from agent.kube.managed_fields import Keys
from agent.kube.remembered import annotate
from agent.labels.render import render as render_labels
from agent.memory import known_of
from agent.model import IbNeighbor, Link, Neighbor, Seen
from agent.snapshot.tree import MemoryStore, Tree
from agent.sources import counters
from tests.support.devices import assign, ib
from tests.support.observations import observation
from tests.support.perf import poisson, side
from tests.support.planned_fleets import judge, plan_of
from tests.support.small_fleets import fleet, with_errors

RAILS = 8
ALL = [(number, rail) for number in range(1, 33) for rail in range(RAILS)]


ONE_EACH = [(number, Random(number).randrange(RAILS)) for number in range(1, 33)]  # noqa: S311
CAUSES = {
    "one": ([(7, 3)], ["link"]),
    "none": ([], []),
    "three of a leaf": ([(1, 2), (9, 2), (30, 2)], ["leaf leaf02"]),
    "two of a leaf": ([(1, 2), (9, 2)], ["link", "link"]),
    "two of a block": ([(1, 2), (4, 2)], ["block leaf02"]),
    "beside a block": ([(4, 2), (5, 2)], ["link", "link"]),
    "a block, of three": ([(1, 2), (2, 2), (4, 2)], ["block leaf02"]),
    "two of a node": ([(5, 0), (5, 7)], ["node gpu-005"]),
    "a node and a leaf": (
        [(5, 0), (5, 7), (5, 3), (1, 2), (9, 2), (30, 2), (12, 2)],
        ["leaf leaf02", "node gpu-005"],
    ),
    "a whole leaf and a link": ([*((n, 2) for n in range(1, 33)), (7, 3)], ["leaf leaf02", "link"]),
    "one a node": (ONE_EACH, ["link"] * 32),
    "all": (ALL, ["link"] * len(ALL)),
}


@pytest.mark.parametrize("case", CAUSES)
def test_the_cause_of(case: str) -> None:
    """With a plan and without one, under the same ID; each bad link is in one finding."""
    bad, causes = CAUSES[case]
    nodes, ids = with_errors(*bad), []
    for plans in ([], [plan_of(nodes)]):
        found = judge(nodes, *plans).findings
        facts = [dict(each.facts) for each in found]
        told = []
        for each, of in zip(found, facts, strict=True):
            what = each.nodes[0] if of.get("common") == "node" else each.leaf
            told.append(f"{of['common']} {what}" if "common" in of else "link")
        assert sorted(told) == causes
        assert {each.code for each in found} <= {"unstable"}
        assert len(bad) == sum(len(each.ports) for each in found)
        assert all(len(each.moves) == len(each.ports) for each in found)
        ids.append({each.id for each in found})
    assert ids[0] == ids[1]


PLANTED = {"near": "near", "far": "far", "both": "cable", "nowhere": None}


def planted(number: int, where: str, random: Random) -> dict[str, object]:
    """The Node of an agent that has read its eight links twice, one of them with errors."""
    devices = [ib(f"ibp{rail}", 0x10 + rail) for rail in range(RAILS)]
    bad_port, links, entries = random.randrange(RAILS), [], []
    for rail in range(RAILS):
        leaf, port = f"L{number // 32}.{rail}", number % 32 + 1
        far = IbNeighbor("switch", f"b0cf0e0300{number // 32:04x}{rail:02x}", None, port, leaf)
        links.append(Link(f"ibp{rail}", None, (Neighbor(leaf, str(port), None, far),)))
        readings: list[list[object]] = [[], []]
        mean = random.uniform(25, 250)
        for end, of in (("near", 1), ("far", port)):
            is_bad = rail == bad_port and where in {end, "both"}
            rose = poisson(random, mean if is_bad else 0.5)
            before = Counters(*(random.randrange(int(most * 0.7) + 1) for most in MAXIMA))
            after = before._replace(
                symbol_error=before.symbol_error + rose,
                port_rcv_errors=before.port_rcv_errors + rose // 5,
            )
            for reading, values in zip(readings, (before, after), strict=True):
                reading.append(side(values, of))
        rows = [
            {"time": 3600.0 * place, "near": near, "far": far_side}
            for place, (near, far_side) in enumerate(readings)
        ]
        entries.append({"device": f"ibp{rail}", "port": 1, "error": None, "readings": rows})
    host = Host(Tree(MemoryStore({}), {}), lambda: 0.0, ask_perf=lambda _ports: {"ports": entries})
    ports, read = assign(devices), Seen(tuple(links))
    outcome = counters.read(host, ports, read).outcome
    seen = observation(ports=ports, rdma=Seen(tuple(devices)), ib=read, link_errors=outcome)
    known, keys = known_of(seen), Keys(Naming())
    metadata = {
        "name": f"gpu-{number:03}",
        "labels": render_labels(known, keys.naming).labels,
        "annotations": {keys.annotation: render(annotate(seen, known))},
    }
    return {"metadata": metadata}


def test_errors_planted_over_200_nodes() -> None:
    """Near, far, at both ends, nowhere: from the replies of both ends to the finding of the fleet.

    99 of 100 bad links have the right end, and no other link is accused.
    """
    random, right, reader = Random(46), 0, NodeReader(Naming(), 2e9)  # noqa: S311 - a model
    places = [[*PLANTED][number % 4] for number in range(200)]
    documents = [planted(number, where, random) for number, where in enumerate(places)]
    nodes = [read for document in documents if (read := reader.read(document))]
    assert {each.flavor for each in nodes} == {INFINIBAND}
    judged = of_fleet(fleet(nodes, now=nodes[0].time))
    found = [each for each in judged.findings if each.code == "unstable"]
    ends = {each.nodes[0]: dict(each.facts).get("bad-end") for each in found}
    for each, where in zip(nodes, places, strict=True):
        right += ends.get(each.name) == PLANTED[where]
    assert right >= 198
    assert len(found) == len(ends) == 150
