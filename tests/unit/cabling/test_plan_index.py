"""The expected half of a node, of which the daemon keeps a part, and the Nodes of hosts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from agent.cabling.expected import Expected, dump, load
from agent.cabling.judge import verify
from agent.cabling.names import same_name
from agent.cabling.plan_index import Hosts, index_of
from agent.cabling.plans.model import End, FilePlace, PlanCable
from agent.cabling.seen import SeenNode
from agent.errors import Malformed
from tests.support.cabling import NODE, cable, node, rails

LEAVES = st.sampled_from(
    [
        *("leaf01", "leaf02", "leaf11", "LEAF02", "leaf1", "leaf01.site.example"),
        *("core-a", "SW_B", "gpu-018"),
    ]
)
PORTS = st.sampled_from(["swp1", "swp2", "swp11", "1", "1/2", "Ethernet1/2"])
NODES = st.sampled_from([NODE, NODE, f"{NODE}.site.example", "gpu-018", "gpu-019"])
INTERFACES = st.sampled_from(["mlx5_0", "mlx5_1", "mlx5_2", "HCA 0", "HCA 1", "rail3", "eth9"])
MARKS = st.sampled_from([None, "ignore", "link-state-only"])
CABLES = st.tuples(NODES, INTERFACES, LEAVES, PORTS, MARKS, st.booleans())


def cables(rows: list[Any]) -> tuple[PlanCable, ...]:
    """Return cables, the host on either side."""
    found = []
    for row, (host, interface, leaf, port, mark, swapped) in enumerate(rows, 2):
        ends = End(host, interface, rack="R1"), End(leaf, port, port)
        a, b = reversed(ends) if swapped else ends
        found.append(
            PlanCable(a, b, FilePlace("plan.csv", None, row), 400.0, mark, {"Label": f"C-{row}"})
        )
    return tuple(found)


def far_ports(seen: SeenNode) -> list[tuple[str, str]]:
    ends = [end for port in seen.ports.values() for end in port.far_ends]
    return [(end.device, port) for end in ends for port in (end.port_id, end.port_name) if port]


def outcome(expected: Expected, seen: SeenNode) -> Any:
    try:
        return verify(expected, seen)
    except Malformed as error:
        return str(error)


def without_owners(found: Any) -> Any:
    """Return a result without the nodes to which the plan gives the ports of wrong cables."""
    if isinstance(found, str):
        return found
    findings = tuple(
        one._replace(
            text=one.text.partition("; the plan gives ")[0].rstrip("."),
            facts=tuple(fact for fact in one.facts if fact[0] != "planned-for"),
        )
        for one in found.findings
    )
    return found._replace(findings=findings)


@pytest.mark.slow
@given(
    st.lists(CABLES, min_size=1, max_size=9),
    st.lists(st.none() | st.tuples(LEAVES, PORTS), min_size=1, max_size=4),
)
def test_a_comparison_reads_no_more(rows: list[Any], ends: list[Any]) -> None:
    """Findings, facts and assumptions are those of the whole plan: of what the node sees, and, but
    for the owners of ports, of what the daemon keeps, through JSON as well.
    """
    try:
        index = index_of(cables(rows), [NODE])
        whole = index.of(NODE)
    except Malformed:
        reject()
    seen = node(ends)
    wanted = outcome(whole, seen)
    assert outcome(index.of(NODE, far_ports(seen)), seen) == wanted
    kept = load(json.loads(json.dumps(dump(index.of_any(NODE)))))
    assert without_owners(outcome(kept, seen)) == without_owners(wanted)


@pytest.mark.slow
def test_the_rest_of_a_big_plan_is_dropped() -> None:
    """What stays is bounded by the ports of the node, not by the plan."""
    others = [
        cable(f"mlx5_{rail}", f"leaf{rail:02}", f"swp{number}", node=f"host-{number}-{name}")
        for number, name in enumerate(["ant", "bee", "cat", "dog"] * 125)
        for rail in range(8)
    ]
    own = [cable(f"mlx5_{number}", *end) for number, end in enumerate(rails())]
    index = index_of([*own, *others], [NODE])
    ends = [("leaf01", "swp7"), ("leaf99", "swp1")]
    whole, kept = index.of(NODE), index.of(NODE, ends)
    assert len(whole.taken) == 8008  # both ends of each cable, and the ports of this node
    known = [end for end in (*rails(), ends[0]) if end in whole.taken]
    assert kept.taken == {end: whole.taken[end] for end in known}
    assert ends[0] in kept.taken
    assert len(kept.devices) <= len(ends)
    assert kept.rows == whole.rows
    assert not kept.numbers
    of_any = index.of_any(NODE)
    assert of_any.taken.keys() <= {*rails()}
    assert len(of_any.devices) == 6  # forms of names: leaf#, gpu-#, host-#-ant, ...
    assert (of_any.rows, of_any.numbers) == (kept.rows, frozenset())


def test_the_daemon_does_not_know_the_owner_of_a_wrong_port() -> None:
    other = cable("mlx5_0", "leaf07", "swp9", node="gpu-018")
    index = index_of([cable("mlx5_0", "leaf01", "swp5"), other], [NODE])
    seen = node([("leaf07", "swp9")])
    [finding] = verify(index.of(NODE, far_ports(seen)), seen).findings
    assert dict(finding.facts)["planned-for"] == "gpu-018 mlx5_0"
    [late] = verify(index.of_any(NODE), seen).findings
    assert "planned-for" not in dict(late.facts)
    assert (late.id, late.code) == (finding.id, finding.code)


@pytest.mark.parametrize(
    ("host", "node"),
    [
        ("gpu-001", "gpu-001"),
        ("GPU-001", "gpu-001"),
        ("gpu-001.dc1.example.com", "gpu-001"),
        ("gpu-001", "gpu-001.dc1.example.com"),
        ("GPU-001", "gpu-001.dc1.example.com"),
        ("L90.1.3.example.com", "L90.1.3"),
        ("10.0.1.5", "10.0.1.5"),
    ],
)
def test_which_node_a_host_is(host: str, node: str) -> None:
    """By the name, the case, and the short name of either."""
    assert Hosts([node, "other"], [host]).node(host) == node
    assert Hosts(["other"], [host]).node(host) is None


def test_tolerances_of_hosts_may_be_off() -> None:
    off = frozenset({"fqdn"})
    assert Hosts(["gpu-001"], ["gpu-001.example.com"], off).node("gpu-001.example.com") is None


def test_names_that_begin_alike_cost_no_square() -> None:
    """Addresses as names of Nodes, and hosts in one long domain."""
    names = [f"10.{number >> 8}.{number & 255}.1" for number in range(1000)]
    hosts = [f"{name}.dc1.example.com" for name in names]
    same_name.cache_clear()
    found = Hosts(names, hosts)
    assert [found.node(host) for host in hosts] == names
    assert same_name.cache_info().misses == len(hosts)
