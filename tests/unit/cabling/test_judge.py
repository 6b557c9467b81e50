"""The findings of one node: each code, what is one finding, and what is none."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import encode
from agent.cabling.expected import from_labels, merged
from agent.cabling.judge import VerifyOptions, verify
from agent.cabling.plan_index import from_plans
from agent.cabling.plans.model import Plan
from agent.cabling.seen import SeenNode
from agent.encode import Naming
from agent.errors import Malformed
from tests.support.cabling import (
    NODE,
    cable,
    changed,
    codes,
    hca_map,
    labels,
    lldp,
    node,
    plan,
    rails,
    smp,
)

P, IB, *_ = Naming()


@given(st.permutations(range(6)), st.randoms())
def test_permutations_are_rings(order: list[int], shuffle: random.Random) -> None:
    """Every ring of cables is one finding, whatever the order of the rows."""
    ends = rails(6)
    seen = node(ends[position] for position in order)
    result = verify(plan(ends), seen)
    moved = {f"mlx5_{number}" for number in range(6) if order[number] != number}
    assert {one.code for one in result.findings} <= {"swapped"}
    assert sorted(name for one in result.findings for name in one.interfaces) == sorted(moved)
    rows = list(plan(ends).rows)
    shuffle.shuffle(rows)
    again = verify(plan(ends)._replace(rows=tuple(rows)), seen)
    assert again.findings == result.findings


def test_two_swapped_cables_are_one_sentence() -> None:
    """It names both cables, where each belongs, and the places that the plan has."""
    ends = rails(2)
    expected = plan(
        {},
        cable("mlx5_0", *ends[0], near=("A1", "20"), far=("B3", "40")),
        cable("mlx5_1", *ends[1], near=("A1", "20"), far=("B4", "41")),
    )
    [found] = verify(expected, node(reversed(ends))).findings
    assert found.text == (
        "Exchange the far ends of mlx5_0 and mlx5_1 of this node (rack A1, unit 20): "
        "mlx5_0 belongs to leaf00 port swp5 (rack B3, unit 40), mlx5_1 to leaf01 "
        "port swp5 (rack B4, unit 41)."
    )
    assert dict(found.facts).items() >= {"rack": "A1", "far-rack": "B3, B4"}.items()


def test_a_swap_by_labels_without_ports() -> None:
    """Distinct leaves are enough; two cables on one leaf are not told apart."""
    devices = {key: value for key, value in expected_labels().items() if key.endswith("device")}
    ends = rails()
    result = verify(labels(devices), node([ends[1], ends[0], *ends[2:]]))
    assert codes(result) == [("swapped", ("mlx5_0", "mlx5_1"))]
    shared = {**devices, "neighbors.expected.mlx5_2.device": "leaf01"}
    result = verify(labels(shared), node([ends[1], ends[0], *ends[2:]]))
    assert "swapped" not in {one.code for one in result.findings}


def test_another_device_and_another_port() -> None:
    seen = [("leaf09", "swp5"), ("leaf01", "swp6"), *rails()[2:]]
    result = verify(plan(rails()), node(seen))
    assert codes(result) == [("miscabled", ("mlx5_0",)), ("wrong-port", ("mlx5_1",))]
    assert [one.text for one in result.findings] == [
        "Move the far end of mlx5_0 from leaf09 port swp5 to leaf00 port swp5.",
        "Move the far end of mlx5_1 from port swp6 to leaf01 port swp5.",
    ]
    assert result.as_planned == 6


def test_the_owner_of_a_taken_port_is_named() -> None:
    """The plan gives the port to another node: the technician finds the other half of the swap."""
    other = cable("mlx5_0", "leaf00", "swp6", node="gpu-018")
    [found] = verify(plan(rails(2), other), node([("leaf00", "swp6"), rails()[1]])).findings
    assert found.text.endswith("; the plan gives port swp6 to gpu-018 mlx5_0.")


def test_an_id_stays() -> None:
    """It does not depend on what is at the far end now, nor on the other rows."""
    first = verify(plan(rails()), node([("leaf09", "swp5"), *rails()[1:]])).findings[0]
    again = verify(plan(rails(3)), node([("leaf07", "swp1"), *rails(3)[1:]])).findings[0]
    assert first.id == again.id
    assert first.id != verify(plan(rails()), node([rails()[0], ("x", "y")])).findings[0].id


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        (
            {"phys_state": "Polling", "link_layer": "InfiniBand"},
            ": Polling, no light from the far end.",
        ),
        ({}, ", and that eth1 is up here: no link."),
    ],
)
def test_nobody_at_the_far_end(facts: dict[str, str], text: str) -> None:
    """The state of the port says what a technician looks for."""
    seen = changed(node(rails()), "mlx5_1", state="DOWN", far_ends=(), rate_gbps=0.0, **facts)
    [found] = verify(plan(rails()), seen).findings
    text = f"Check the cable of mlx5_1 to leaf01 port swp5{text}"
    assert (found.code, found.text) == ("missing", text)


def test_down_by_design_is_no_finding() -> None:
    """A port without a row and without a link."""
    seen = changed(node(rails()), "mlx5_7", state="DOWN", far_ends=(), rate_gbps=0.0)
    assert verify(plan(rails(7)), seen).findings == ()


@pytest.mark.parametrize(
    "reason", ["silent", "not-permitted", "no-answer", "no-netdev", "not-heard-of"]
)
def test_what_is_not_known_is_unverifiable(reason: str) -> None:
    """A port with a link whose far end is not known, once for all ports of a reason."""
    seen = changed(node(rails()), "mlx5_1", far_ends=(), missing=reason)
    seen = changed(seen, "mlx5_2", far_ends=(), missing=reason)
    result = verify(plan(rails()), seen)
    assert codes(result) == [("unverifiable", ("mlx5_1", "mlx5_2"))]
    assert result.as_planned == 6


def test_a_cable_without_a_row_is_unexpected() -> None:
    result = verify(plan(rails(7)), node(rails()))
    assert codes(result) == [("unexpected", ("mlx5_7",))]


def test_a_switch_port_for_two() -> None:
    """In the plan, of this node or with another; a wrong cable there is not reported, too."""
    for spelling in ("leaf00", "LEAF00"):  # otherwise a cable would be moved to a port in use
        ends = [("leaf00", "swp5"), (spelling, "swp5"), *rails()[2:]]
        result = verify(plan(ends), node(rails()))
        assert codes(result) == [("duplicate", ("mlx5_0", "mlx5_1"))]
    other = cable("mlx5_3", "Leaf01", "SWP5", node="gpu-018")
    [found] = verify(plan(rails(), other), node(rails())).findings
    assert found.text == "Correct the plan: it gives leaf01 port swp5 to mlx5_1 and gpu-018 mlx5_3."


def test_a_switch_port_seen_by_two() -> None:
    """LLDP was forwarded by something in between."""
    result = verify(plan(rails(2)), node([rails()[0], rails()[0]]))
    assert ("duplicate", ("mlx5_0", "mlx5_1")) in codes(result)


def test_speed_names_the_ports_that_do_not_count() -> None:
    seen = changed(node(rails()), "mlx5_3", state="DOWN", rate_gbps=0.0)
    [found] = verify(labels({"speed.expected": "3200G"}), seen).findings
    assert (found.code, found.interfaces) == ("speed", ("mlx5_3",))
    assert "2800G of 3200G: mlx5_3 (0G)" in found.text
    assert verify(labels({"speed.expected": "2800G"}), seen).findings == ()
    unread = changed(seen, "mlx5_4", rate_gbps=None)
    [found] = verify(labels({"speed.expected": "3200G"}), unread).findings
    assert found.code == "unverifiable"


def expected_labels(**changes: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, (device, far_port) in enumerate(rails()):
        name = f"neighbors.expected.mlx5_{number}"
        found |= {f"{name}.device": device, f"{name}.port-id": far_port}
    return {**found, **changes}


@pytest.mark.parametrize("prefix", [P, IB])
def test_labels_of_both_families(prefix: str) -> None:
    """Any part may be missing."""
    assert verify(labels(expected_labels(), prefix), node(rails())).findings == ()
    devices = {key: value for key, value in expected_labels().items() if key.endswith("device")}
    assert verify(labels(devices), node(rails())).as_planned == 8


def test_a_missing_interface() -> None:
    """Its PCI function is on the bus, is not, or its address is not known."""
    expected = labels(expected_labels())
    seen = node(rails()[:7])
    for on_bus, word in (
        ({"0000:17:00.0"}, "load or repair its driver"),
        ({"0000:01:00.0"}, "reseat or replace the NIC"),
    ):
        former = {"mlx5_7": "0000:17:00.0"}
        known = seen._replace(former=former, on_bus=frozenset(on_bus))
        [found] = verify(expected, known).findings
        assert (found.code, found.interfaces) == ("missing-interface", ("mlx5_7",))
        assert word in found.text
    assert "look for its NIC" in verify(expected, seen).findings[0].text
    assert codes(verify(plan(rails()), seen)) == [("missing-interface", ("mlx5_7",))]


def test_a_device_that_cannot_be_read_is_not_missing() -> None:
    result = verify(plan(rails()), node(rails()[:7], unread=frozenset({"mlx5_7"})))
    assert codes(result) == [("unverifiable", ("mlx5_7",))]


def test_management_ports_of_the_plan_are_a_remark() -> None:
    """Rows for ports that are no backend, or that this node does not know."""
    rows = {f"mlx5_{n}": end for n, end in enumerate(rails())}
    rows |= {"BMC": ("oob1", "7"), "mlx5_bond_0": ("fe1", "1")}
    result = verify(plan(rows), node(rails(), others=frozenset({"mlx5_bond_0"})))
    assert {(one.code, one.severity) for one in result.findings} == {("unverifiable", "info")}
    assert result.as_planned == 8


def test_joined_labels() -> None:
    """The older leaves.expected and ports.expected."""
    leaves = "_".join(device for device, _ in rails())
    expected = labels({"leaves.expected": leaves, "ports.expected": "_".join(["swp5"] * 8)}, IB)
    assert verify(expected, node(rails())).findings == ()
    wrong = node([("leaf09", "swp5"), *rails()[1:]])
    assert [one.code for one in verify(expected, wrong).findings] == ["miscabled"]
    unknown = changed(node(rails()), "mlx5_0", far_ends=(), missing="silent")
    assert {one.code for one in verify(expected, unknown).findings} == {"unverifiable"}
    long = [(f"leaf-with-a-long-name-{number}", "swp5") for number in range(8)]
    raw = "_".join(device for device, _ in long)
    for value in (encode.value(raw), raw, "_".join(device for device, _ in reversed(long))):
        assert verify(labels({"leaves.expected": value}, IB), node(long)).findings == ()
    [found] = verify(labels({"leaves.expected": raw}, IB), node(long[1:])).findings
    assert found.text.endswith(f"the ports see {', '.join(device for device, _ in long[1:])}.")
    assert {one.code for one in verify(expected, node([])).findings} == {"unverifiable"}


def test_joined_labels_and_ignored_ports() -> None:
    """What --ignore leaves out may stand in the joined labels, and need not; the rest counts."""
    leaves = "_".join(device for device, _ in rails())
    expected = labels({"leaves.expected": leaves, "ports.expected": "_".join(["swp5"] * 8)}, IB)
    ignoring = VerifyOptions(ignore=("mlx5_0",))
    silent = changed(node(rails()), "mlx5_0", far_ends=(), missing="silent")
    wrong = node([("leaf09", "swp7"), *rails()[1:]])
    for seen in (silent, wrong):
        assert verify(expected, seen, ignoring).findings == ()
    for last, code in (("leaf09", "swp5"), "miscabled"), ((rails()[7][0], "swp6"), "wrong-port"):
        [found] = verify(expected, node([*rails()[:7], last]), ignoring).findings
        assert found.code == code
    without = labels({"leaves.expected": leaves.partition("_")[2]}, IB)
    assert verify(without, wrong, ignoring).findings == ()
    hashed = labels({"leaves.expected": encode.value(leaves * 8)}, IB)
    assert {one.code for one in verify(hashed, wrong, ignoring).findings} == {"unverifiable"}
    slashes = [(device, f"Eth1/{number}") for number, (device, _) in enumerate(rails())]
    ports = encode.value("_".join(port for _, port in slashes))
    assert verify(labels({"ports.expected": ports}, IB), node(slashes), ignoring).findings == ()


def test_numbers_that_do_not_fit_are_one_finding() -> None:
    """More than half of the cables would be wrong: the numbers are, not the cables."""
    rows = {f"HCA {number}": rails()[(number + 2) % 8] for number in range(8)}
    [found] = verify(plan(rows), node(rails())).findings
    assert (found.code, "numbering unknown, give --hca-map" in found.text) == ("unverifiable", True)


def test_numbers_of_an_incomplete_node_are_not_counted() -> None:
    """A NIC is missing, so the order has a gap somewhere."""
    rows = {f"HCA {number}": end for number, end in enumerate(rails())}
    for seen in (node(rails()[1:]), node(rails(), unread=frozenset({"mlx5_9"}))):
        [found] = verify(plan(rows), seen).findings
        assert found.code == "unverifiable"


@pytest.mark.parametrize(
    "text", ["eth0", "0000:10:00.0", "10:00.0", "mlx5_0/P1", "mlx5_0/1", "MLX5_0"]
)
def test_names_of_an_interface(text: str) -> None:
    """Netdev, PCI address, RDMA device and its port."""
    assert verify(plan({text: rails()[0]}), node(rails(1))).as_planned == 1


def test_a_whole_node_in_another_place_is_miscabled() -> None:
    """All its leaves are others, but of the plan's names."""
    moved = [(f"leaf{number:02}", "swp5") for number in range(8, 16)]
    assert {one.code for one in verify(plan(rails()), node(moved)).findings} == {"miscabled"}


def test_a_tolerance_for_two_rows_is_refused() -> None:
    """The short name would be equal to both."""
    ends = {"mlx5_0": ("leaf.a.com", "swp5"), "mlx5_1": ("leaf.b.com", "swp5")}
    result = verify(plan(ends), node([("leaf", "swp5"), ("leaf", "swp6")]))
    assert "both name its port" in result.findings[-1].text
    assert result.as_planned == 0


def test_a_switch_without_a_name() -> None:
    """Its GUID is all that is known: the plan's name may be right."""
    far_ends = (smp("fc6a1c0300aabb00", 1, named=False),)
    seen = changed(node(rails(1)), "mlx5_0", far_ends=far_ends)
    result = verify(plan({"mlx5_0": ("L1", "1")}), seen)
    assert ("unverifiable", ("mlx5_0",)) in codes(result)


def twins(*ends: tuple[str, int], twin: bool | None = True) -> SeenNode:
    """Return a node whose ports see these ports of switches with two in each cage."""
    seen = node([None] * len(ends))
    for number, (device, far_port) in enumerate(ends):
        seen = changed(seen, f"mlx5_{number}", far_ends=(smp(device, far_port, twin=twin),))
    return seen


@pytest.mark.parametrize(
    ("seen", "twin", "code"),
    [
        ((5, 8), True, "unverifiable"),  # the ports of cages 3 and 4
        ((5, 9), True, "wrong-port"),
        ((5, 8), None, "wrong-port"),
    ],
)
def test_numbers_of_cages(seen: tuple[int, int], twin: bool | None, code: str) -> None:
    """The plan has cages 3 and 4 of twin-port switches, whose ports have numbers of their own."""
    expected = plan({"mlx5_0": ("L0", "3"), "mlx5_1": ("L1", "4")})
    result = verify(expected, twins(("L0", seen[0]), ("L1", seen[1]), twin=twin))
    assert {one.code for one in result.findings} == {code}


def test_marks_and_ignore() -> None:
    """`ignore` compares nothing; `link-state-only` a link."""
    wrong = node([("leaf09", "swp9"), *rails()[1:]])
    others = {f"mlx5_{n}": rails()[n] for n in range(1, 8)}
    for mark in ("ignore", "link-state-only"):
        row = cable("mlx5_0", *rails()[0], mark=mark)
        assert verify(plan(others, row), wrong).findings == ()
    down = changed(wrong, "mlx5_0", state="DOWN", far_ends=())
    only = plan({}, cable("mlx5_0", "", "", mark="link-state-only"))
    assert ("missing", ("mlx5_0",)) in codes(verify(only, down))
    for glob in ("mlx5_0", "eth0", "0000:10:*"):
        assert verify(plan(rails()), wrong, VerifyOptions(ignore=(glob, "mlx5_0"))).findings == ()


def test_another_of_several_neighbors_may_be_the_planned_one() -> None:
    """A port that sees two devices is not miscabled because the other was selected."""
    seen = changed(node(rails(1)), "mlx5_0", far_ends=(lldp("bmc", "1"), lldp(*rails()[0])))
    assert verify(plan(rails(1)), seen).as_planned == 1


@given(st.lists(st.booleans(), min_size=8, max_size=8))
def test_ends_may_have_any_order(turned: list[bool]) -> None:
    cables = [cable(f"mlx5_{number}", *end) for number, end in enumerate(rails())]
    mixed = [one._replace(a=one.b, b=one.a) if turn else one
             for one, turn in zip(cables, turned, strict=True)]  # fmt: skip
    expected = from_plans([Plan("plan.csv", "own", None, tuple(mixed))], [NODE])
    assert expected.rows == from_plans([Plan("plan.csv", "own", None, tuple(cables))], [NODE]).rows


def test_two_plans_may_name_an_interface_differently() -> None:
    """The netdev in one, the RDMA device in the other: the cable is counted once."""
    both = merged([plan({"eth0": rails()[0]}), labels(expected_labels())])
    assert verify(both, node(rails())).planned == 8


def test_a_mapped_number_is_not_counted_in_pci_order() -> None:
    """The file says mlx5_9, which is not there; the first device in PCI order is another."""
    options = VerifyOptions(hca_map=hca_map({"HCA 0": "mlx5_9"}))
    result = verify(plan({"HCA 0": rails()[0]}), node(rails()), options)
    assert ("missing-interface", ("HCA 0",)) in codes(result)


def test_contradictions_name_both_places() -> None:
    """Two files, two prefixes, one cable with both ends here."""
    one = plan({"mlx5_0": ("leaf00", "swp5")})
    other = plan({"mlx5_0": ("leaf00", "swp6")})
    match = r"plan.csv, row 2: mlx5_0 is connected to leaf00 swp6, but"
    with pytest.raises(Malformed, match=match):
        verify(merged([one, other]), node(rails(1)))
    with pytest.raises(Malformed, match="under two prefixes"):
        from_labels({f"{P}/speed.expected": "1G", f"{IB}/speed.expected": "2G"}, Naming(), "n")
    by_label = labels({"neighbors.expected.mlx5_0.device": "leaf00",
                       "neighbors.expected.mlx5_0.port-id": "swp7"})  # fmt: skip
    with pytest.raises(Malformed, match="leaf00 swp7, but to leaf00 swp5"):
        verify(merged([plan({"eth0": ("leaf00", "swp5")}), by_label]), node(rails(1)))
    with pytest.raises(Malformed, match=r"gpu-017\.b\.com may be this node, and so may"):
        plan({}, *(cable("mlx5_0", "a", "1", node=f"gpu-017.{name}.com") for name in "ab"))
    with pytest.raises(Malformed, match="both ends are this node"):
        from_plans([Plan("f", "own", None, (cable("mlx5_0", NODE, "mlx5_1"),))], [NODE])


def test_labels_and_a_plan_complete_each_other() -> None:
    """Half of the labels, encoded, beside a plan: no contradiction, right or wrong."""
    end = ("leaf 00", "Ethernet1/1")
    label = "neighbors.expected.mlx5_0"
    halves: list[dict[str, str]] = [
        {f"{label}.device": "leaf-00"},
        {f"{label}.port-id": "Ethernet1-1"},
        {f"{label}.device": "LEAF-00", f"{label}.port-name": "Eth1-1"},
    ]
    for half in halves:
        for name in ("mlx5_0", "eth0"):
            both = merged([plan({name: end}), labels(half)])
            assert verify(both, node([end])).findings == ()
            for other, code in (
                (("leaf 09", end[1]), "miscabled"),
                ((end[0], "Ethernet1/2"), "wrong-port"),
            ):
                assert codes(verify(both, node([other]))) == [(code, ("mlx5_0",))]


def test_the_other_half_is_not_dropped() -> None:
    """The plan has the device, the label the port."""
    both = merged([plan({"eth0": ("leaf00", "")}),
                   labels({"neighbors.expected.mlx5_0.port-id": "swp6"})])  # fmt: skip
    assert codes(verify(both, node([("leaf00", "swp5")]))) == [("wrong-port", ("mlx5_0",))]


def test_two_rates_of_one_cable_contradict_each_other() -> None:
    rows = [cable("mlx5_0", *rails()[0], rate_gbps=rate) for rate in (400.0, 200.0)]
    with pytest.raises(Malformed, match="leaf00 swp5 at 200G, but to leaf00 swp5 at 400G"):
        verify(plan({}, *rows), node(rails(1)))


def test_one_cable_of_other_names_is_not_wrong() -> None:
    """Nothing shows that the plan and the fabric name switches alike."""
    [found] = verify(plan([("R1-U3-LEAF", "swp5")]), node(rails(1))).findings
    assert (found.code, "name switches differently" in found.text) == ("unverifiable", True)
    [found] = verify(plan([("leaf09", "swp5")]), node(rails(1))).findings
    assert found.code == "miscabled"


def test_switches_that_differ_in_leading_zeros_only() -> None:
    """If the plan has both, they are two."""
    other = cable("mlx5_0", "leaf0", "swp9", node="gpu-018")
    seen = [("leaf0", "swp5"), rails()[1]]
    assert verify(plan(rails(2)), node(seen)).findings == ()
    assert [one.code for one in verify(plan(rails(2), other), node(seen)).findings] == ["miscabled"]


def test_a_ring_of_three_says_each_move() -> None:
    ends = rails(3)
    [found] = verify(plan(ends), node([ends[1], ends[2], ends[0]])).findings
    assert found.text == (
        "Move the far ends of 3 cables of this node in a ring: "
        "mlx5_0 from leaf01 port swp5 to leaf00 port swp5, "
        "mlx5_1 from leaf02 port swp5 to leaf01 port swp5, "
        "mlx5_2 from leaf00 port swp5 to leaf02 port swp5."
    )


def test_a_swap_whose_other_end_is_out() -> None:
    """The cable that is left names whose port it is in."""
    seen = changed(node([rails()[1], rails()[0]]), "mlx5_1", state="DOWN", far_ends=())
    found = verify(plan(rails(2)), seen).findings
    assert [one.code for one in found] == ["miscabled", "missing"]
    assert found[0].text.endswith("; the plan gives its present port to mlx5_1.")


@pytest.mark.parametrize("reason", ["expired", "shutdown"])
def test_a_switch_that_ended_lldp_is_no_broken_cable(reason: str) -> None:
    """The port has a link, so LLDP is checked first."""
    seen = changed(node(rails(1)), "mlx5_0", far_ends=(), missing=reason)
    [found] = verify(plan(rails(1)), seen).findings
    assert found.text.startswith("Check LLDP of leaf00 port swp5, and that mlx5_0 is still cabled")


def test_cages_with_one_cable_elsewhere() -> None:
    """Most numbers are cages, so none is called a wrong port; port 1 tells nothing."""
    seen = twins(*(("L1", far_port) for far_port in (1, 3, 6, 8, 40)))
    found = verify(plan([("L1", str(cage)) for cage in (1, 2, 3, 4, 5)]), seen).findings
    assert [(one.code, len(one.interfaces)) for one in found] == [("unverifiable", 4)]
    ones = twins(("L0", 1), ("L1", 1), ("L2", 5))
    found = verify(plan([(f"L{number}", "1") for number in range(3)]), ones).findings
    assert [(one.code, one.interfaces) for one in found] == [("wrong-port", ("mlx5_2",))]
    both = verify(plan([("L1", "3"), ("L1", "3")]), twins(("L1", 5), ("L1", 6)))
    assert [one.code for one in both.findings] == ["unverifiable"]  # of one cage, no duplicate


def test_the_id_of_a_cause_stays() -> None:
    """One more port without an answer is the same finding; two findings have two IDs."""
    seen = changed(node(rails()), "mlx5_1", far_ends=(), missing="no-answer")
    more = changed(seen, "mlx5_2", far_ends=(), missing="no-answer")
    [first], [second] = (verify(plan(rails()), one).findings for one in (seen, more))
    assert first.id == second.id
    rows = {f"HCA {number}": rails()[(number + 2) % 8] for number in range(8)}
    rows["HCA 77"] = ("x", "1")
    found = verify(plan(rows), changed(more, "mlx5_3", missing="silent", far_ends=())).findings
    assert len({one.id for one in found}) == len(found)


def test_two_cables_of_a_front_end_bond_are_no_contradiction() -> None:
    """Its name is that of no backend port."""
    bond = [cable("bond0", f"fe{number}", "swp1") for number in range(2)]
    result = verify(plan(rails(), *bond), node(rails(), others=frozenset({"bond0"})))
    assert [(one.severity, one.interfaces) for one in result.findings] == [("info", ("bond0",))]
    backend = [cable("mlx5_0", f"leaf{number}", "swp5") for number in range(2)]
    with pytest.raises(Malformed, match="mlx5_0 is connected to leaf1 swp5, but to leaf0 swp5"):
        verify(plan({}, *backend), node(rails()))


def test_columns_of_a_plan_keep_their_values() -> None:
    """Also those with the name of a fact of ours that is not known."""
    row = cable("mlx5_0", *rails()[0], fields={"reason": "spare", "Label": "C-0815"})
    [found] = verify(plan({}, row), node([("leaf09", "swp5")])).findings
    assert dict(found.facts).items() >= {"reason": "spare", "Label": "C-0815"}.items()


def test_the_order_of_rows_changes_nothing() -> None:
    rows = [*plan(rails(6)).rows, *plan({"BMC": ("oob", "1"), "mlx5_8": ("x", "1")}).rows]
    seen = node([("leaf09", "swp5"), None, ("leaf02", "swp6"), None, *rails(6)[4:]])
    first, second = (
        verify(plan([])._replace(rows=tuple(one)), seen) for one in (rows, reversed(rows))
    )
    assert first.findings == second.findings
    assert [one.port.interface for one in first.cables] == [*seen.ports]


def test_a_label_with_the_port_only() -> None:
    """The sentence has the switch that is seen."""
    half = labels({"neighbors.expected.mlx5_0.port-name": "swp6"})
    [found] = verify(half, node(rails(1))).findings
    assert found.text == "Move the far end of mlx5_0 from port swp5 to leaf00 port swp6."


def test_a_hash_is_no_name_to_look_for() -> None:
    """The label of a long name tells only that the switch is another."""
    name = "neighbors.expected.mlx5_{}.device"
    value = encode.value("leaf-" + "x" * 80)
    found = verify(labels({name.format(0): value, name.format(1): "leaf01"}), node(rails(2)))
    assert found.findings[0].text.endswith(f"to the switch whose name has the hash {value}.")
