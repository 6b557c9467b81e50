"""Identities that are used twice, and what only looks so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.cabling.findings.finding import Finding
from agent.cabling.seen import SeenEnd
from agent.fleet.identity import findings
from agent.fleet.model import INFINIBAND, FleetNode
from tests.support.small_fleets import NOW, cabled, far_end, fleet, node, rack

ONE, OTHER = "00:1c:73:00:00:01", "00:1c:73:00:00:02"
GUIDS = "fc6a1c0300aabb00", "fc6a1c0300aabb40"


def found(nodes: list[FleetNode], *silent: str) -> list[Finding]:
    return [*findings(fleet(nodes), silent)]


def seen(*ends: tuple[str, str, str | None]) -> list[FleetNode]:
    """One node for each of these far ends: name, port, identifier."""
    return [
        node(f"gpu-{one:03}", [SeenEnd(name, port, None, identity, name)])
        for one, (name, port, identity) in enumerate(ends, 1)
    ]


def test_a_fleet_in_order() -> None:
    assert found(rack(20)) == []


def test_one_identifier_with_two_names_at_one_port() -> None:
    """Two switches; their ports are not claimed twice besides."""
    (one,) = found(seen(("leaf01", "swp1", ONE), ("leaf02", "swp1", ONE), ("leaf02", "swp2", ONE)))
    assert (one.code, one.severity) == ("switch-identity", "error")
    assert one.nodes == ("gpu-001", "gpu-002", "gpu-003")
    assert one.text == (
        f"Look at the switch {ONE}, which is called leaf01 and leaf02: two switches have one "
        "identifier, so give each its own."
    )


def test_one_identifier_with_two_names_at_two_ports() -> None:
    """Perhaps it was renamed: some agents have the former name."""
    (one,) = found(seen(("leaf01", "swp1", ONE), ("leaf-new", "swp2", ONE)))
    assert "it was renamed, or two switches have one identifier" in one.text


@pytest.mark.parametrize("ids", [(ONE, OTHER), GUIDS])
def test_one_name_with_two_identifiers_at_one_port(ids: tuple[str, str]) -> None:
    ends = [("leaf01", port, identity) for port in ("swp1", "swp2") for identity in ids]
    (one,) = found(seen(*ends))
    assert one.text == (
        f"Rename all but one of the switches called leaf01: they are {ids[0]} and {ids[1]}, seen "
        "by gpu-001 mlx5_0, gpu-002 mlx5_0."
    )


def test_two_fabrics_with_the_same_names_are_one_finding() -> None:
    """Or the Nodes of two clusters in one file."""
    ends = [
        (f"leaf{leaf:02}", port, f"00:1c:73:00:{leaf:02x}:{fabric:02x}")
        for leaf in range(1, 5)
        for port in ("swp1", "swp2")
        for fabric in (1, 2)
    ]
    (one,) = found(seen(*ends))
    assert (one.code, one.severity, len(one.ports)) == ("switch-identity", "error", 16)
    assert one.actual == (None, None)
    assert one.text == (
        "Give each switch a name of its own: 4 names (leaf01, leaf02, leaf03, leaf04) are each of "
        "several switches; two fabrics may have the same names, or the Nodes be of two clusters."
    )


def test_one_name_for_two_asics_of_a_chassis() -> None:
    """Their ports differ, so it may be one switch."""
    ends = [("leaf01", f"swp{port}", ONE if port < 33 else OTHER) for port in range(1, 65)]
    assert found(seen(*ends)) == []


def test_switches_with_an_identifier_for_each_port() -> None:
    """The MAC address of the port as Chassis ID, even where a cable was moved meanwhile."""
    ends = [("leaf01", f"swp{port}", f"00:1c:73:00:01:{port:02x}") for port in range(8)]
    assert found(seen(*ends)) == []
    moved = found(seen(*ends, ("leaf01", "swp1", ONE)))
    assert "switch-identity" not in [one.code for one in moved]


@pytest.mark.parametrize(
    "identity", ["1", "default", "00:00:00:00:00:00", "0" * 16, "f" * 16, None]
)
def test_identifiers_that_identify_nothing(identity: str | None) -> None:
    assert found(seen(("leaf01", "swp1", identity), ("leaf02", "swp2", identity))) == []


def test_a_silent_node_accuses_no_switch() -> None:
    """It may have the name of before."""
    nodes = seen(("leaf01", "swp1", ONE), ("leaf02", "swp2", ONE))
    assert found(nodes, "gpu-001") == []


def test_names_that_differ_in_case_are_one() -> None:
    assert found(seen(("leaf01", "swp1", ONE), ("LEAF01", "swp2", ONE))) == []


def test_a_short_and_a_qualified_name_are_one() -> None:
    """One chassis, as agents before and after a change of its System Name saw it."""
    nodes = seen(("leaf01", "swp1", ONE), ("leaf01.dc.example.com", "swp2", ONE))
    assert found(nodes) == []
    (one,) = findings(fleet(nodes), (), frozenset({"fqdn"}))
    assert one.code == "switch-identity"
    domains = ("leaf01.a.example.com", "swp1", ONE), ("leaf01.b.example.com", "swp2", ONE)
    assert [one.code for one in found(seen(*domains))] == ["switch-identity"]


def test_a_port_is_claimed_under_a_short_and_a_qualified_name() -> None:
    """It is one switch port."""
    nodes = seen(
        ("leaf01", "swp1", ONE), ("leaf01.dc.example.com", "swp1", ONE), ("leaf01", "swp2", ONE)
    )
    assert [one.code for one in found(nodes)] == ["claimed"]


def test_a_switch_port_that_two_nodes_see() -> None:
    nodes = cabled(rack(), "gpu-002", "mlx5_1", far_end=far_end("leaf01", "swp4"))
    (one,) = found(nodes)
    assert (one.code, one.severity, one.nodes) == ("claimed", "error", ("gpu-002", "gpu-004"))
    assert one.text == (
        "gpu-002 mlx5_1 and gpu-004 mlx5_1 see the same port, leaf01 port swp4: look for a device "
        "between them and the switch, or for a label that is stale."
    )


def test_a_silent_node_claims_no_port() -> None:
    """Another node has its ports now; that it is silent is said once."""
    nodes = cabled(rack(), "gpu-002", "mlx5_1", far_end=far_end("leaf01", "swp4"))
    assert found(nodes, "gpu-004") == []


def test_two_nodes_that_see_the_same_ports_are_one_finding() -> None:
    """The Node of a machine that another one has replaced within two hours."""
    nodes = [*rack(8), node("gpu-new", [far_end(f"leaf{rail:02}", "swp4") for rail in range(4)])]
    nodes[3] = replace(nodes[3], time=NOW - 5000)
    (one,) = found(nodes)
    assert (one.code, one.nodes, len(one.ports)) == ("claimed", ("gpu-004", "gpu-new"), 8)
    assert one.text == (
        "gpu-004 and gpu-new see the same 4 ports, such as leaf00 port swp4 (mlx5_0 and mlx5_0): "
        "the report of gpu-004 is older, so look at its cable first."
    )


def test_the_older_claim() -> None:
    nodes = cabled(rack(), "gpu-002", "mlx5_1", far_end=far_end("leaf01", "swp4"))
    nodes[3] = replace(nodes[3], time=NOW - 5000)
    (one,) = found(nodes)
    assert (one.severity, dict(one.facts)["stale"]) == ("error", "gpu-004")
    assert "the report of gpu-004 is older" in one.text


def test_two_interfaces_of_one_node_that_see_one_port() -> None:
    nodes = cabled(rack(), "gpu-002", "mlx5_1", far_end=far_end("leaf00", "swp2"))
    (one,) = found(nodes)
    assert (one.code, one.nodes, len(one.ports)) == ("claimed", ("gpu-002",), 2)


def test_a_switch_that_sends_one_port_id_from_all_ports() -> None:
    """No claims: neither for two nodes of many, nor if its names of ports differ."""
    ends = [far_end("leaf00", "00-1c-73-aa-bb-cc") for _ in range(6)]
    assert found([node(f"gpu-{one}", [end]) for one, end in enumerate(ends)]) == []
    named = [end._replace(port_name=f"swp{one}") for one, end in enumerate(ends[:2])]
    assert found([node(f"gpu-{one}", [end]) for one, end in enumerate(named)]) == []


def test_one_hca_on_two_nodes() -> None:
    """One finding for all its ports, which are not claimed twice besides."""
    nodes = rack()
    nodes.append(replace(nodes[1], name="gpu-copy"))
    (one,) = found(nodes)
    assert (one.code, one.nodes) == ("cloned", ("gpu-002", "gpu-copy"))
    assert one.text == (
        "gpu-002, gpu-copy have the same HCA: delete the stale Node, or give each machine its own "
        "GUIDs if an image was cloned."
    )
    (one,) = found(nodes, "gpu-002")
    assert "the agent of gpu-002 is silent, so delete that Node if it is stale" in one.text


def test_guids_of_zeros_are_no_clones() -> None:
    nodes = rack()
    for one in ("gpu-001", "gpu-002"):
        nodes = cabled(nodes, one, "mlx5_0", node_guid="0" * 16)
    assert found(nodes) == []


def test_lost_ports_claim_nothing() -> None:
    nodes = cabled(rack(), "gpu-002", "mlx5_1", far_end=far_end("leaf01", "swp4"), is_lost=True)
    assert found(nodes) == []


def test_an_image_on_all_nodes_is_one_finding() -> None:
    """A thousand Nodes with one GUID cost no thousand squared."""
    nodes = [cabled([one], one.name, "mlx5_0", node_guid=GUIDS[0])[0] for one in rack(1000, 2)]
    (one,) = found([replace(node, flavor=INFINIBAND) for node in nodes])
    assert len(one.nodes) == 1000
