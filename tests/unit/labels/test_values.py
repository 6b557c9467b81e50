"""Labels of neighbors: their values, the joined labels, and the holds of each interface."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import encode
from agent.encode import Naming
from agent.kube.annotation import Annotation
from agent.kube.managed_fields import Keys
from agent.labels.render import Rendered, render
from agent.memory import Fact
from agent.model import (
    Absent,
    Failed,
    Gpu,
    IbNeighbor,
    Link,
    LldpNeighbor,
    Neighbor,
    Observation,
    RdmaDevice,
    Seen,
)
from agent.nvml.domain import domain_of
from agent.reasons import HoldReason
from agent.sources.pci import Place
from agent.sources.roles import Decision
from agent.sysfs.bus import Bus, Function
from agent.text import visible
from tests.support.devices import decide, eth, ib, netdev, port
from tests.support.remembering import completed

P, IB = "backend.coreweave.cloud", "ib.coreweave.cloud"
ACCELERATOR = "network.topology.nvidia.com/accelerator"
NONE = Absent("no such port")
OFF = Failed("switched off by --source")
KINDS = ("device", "port-id", "port-name")
LLDP_FACTS = LldpNeighbor(
    "00:1c:73:00:00:01", "01:80:c2:00:00:0e", "00:1c:73:00:00:01", 4, "swp1", 5, 120
)
IB_FACTS = IbNeighbor("switch", "b0cf0e0300d66c81", None, 3, None)


def key(interface: str, kind: str, prefix: str = P) -> str:
    return f"{prefix}/neighbors.current.{interface}.{kind}"


def roce_link(
    interface: str, device: str = "leaf-1", port_id: str = "swp1", name: str | None = "swp1"
) -> Link:
    chassis = LLDP_FACTS.chassis_id if device else ""
    facts = LLDP_FACTS._replace(system_name=device, port_id=port_id, chassis_id=chassis)
    return Link(interface, "eth0", (Neighbor(device, port_id, name, facts, 1.0),))


def ib_link(interface: str, device: str = "L90.1.3", port_id: str = "3") -> Link:
    facts = IB_FACTS._replace(node_description=f"MF0;{device}:MQM9700/U1", port=int(port_id))
    return Link(interface, None, (Neighbor(device, port_id, None, facts),))


def held(interface: str, missing: str = "silent") -> Link:
    return Link(interface, None, missing=missing, hold=True)


def gone(interface: str, missing: str = "link-down") -> Link:
    return Link(interface, None, missing=missing)


def nics(*names: str) -> list[RdmaDevice]:
    return [eth(name, bus, port(netdev=netdev(f"eth{bus}"))) for bus, name in enumerate(names)]


def hcas(*names: str) -> list[RdmaDevice]:
    return [ib(name, bus) for bus, name in enumerate(names)]


BUS = Bus({"0000:f9:00.0": Function("0000:f9:00.0", 0x0200, "15b3:1021")})


def rendered(
    devices: list[RdmaDevice],
    previous: Mapping[str, str] | None = None,
    naming: Naming | None = None,
    before: float = 60.0,
    **outcomes: Any,
) -> Rendered:
    """Render the first observation of these devices and links of a new agent.

    `previous` are the labels of the Node.
    """
    off = outcomes.pop("off", frozenset())
    facts = {"rdma": Seen(tuple(devices)), "lldp": NONE, "ib": NONE, "nvml": NONE, **outcomes}
    facts["accelerator"] = domain_of(facts["nvml"])
    decision = decide(devices, bus=BUS) if isinstance(facts["rdma"], Seen) else Decision(())
    facts["ports"], facts["unread"] = decision.roles, decision.unread
    observation = Observation(0.0, "n1", None, off=off, **facts)
    naming = naming or Naming()
    _, known = completed(observation, previous, place=Place.BUS, keys=Keys(naming), before=before)
    return render(known, naming)


def neighbors(found: Rendered) -> dict[str, str]:
    """The labels of neighbors; none of flavor and speed, and none joined of both flavors."""
    others = ("/flavor", "/speed.current", f"{P}/leaves.current", "/leafgroup.current")
    return {name: text for name, text in found.labels.items() if not name.endswith(others)}


def seen(*links: Link) -> Seen[tuple[Link, ...]]:
    return Seen(links)


def about(interface: str, *texts: str | None, prefix: str = P) -> dict[str, str]:
    """The labels of one interface: device, port-id, port-name."""
    return {
        key(interface, kind, prefix): text for kind, text in zip(KINDS, texts, strict=False) if text
    }


# Values.


def test_roce() -> None:
    links = seen(roce_link("mlx5_0"), roce_link("mlx5_1", "leaf-2", "513", None))
    found = rendered(nics("mlx5_0", "mlx5_1"), lldp=links)
    expected = about("mlx5_0", "leaf-1", "swp1", "swp1") | about("mlx5_1", "leaf-2", "513")
    assert (neighbors(found), found.problems) == (expected, ())


def test_infiniband() -> None:
    """Two labels for each interface, below both prefixes, and the two joined ones."""
    links = seen(ib_link("ibp0"), ib_link("ibp1", "L90.1.4", "7"))
    assert neighbors(rendered(hcas("ibp0", "ibp1"), ib=links)) == {
        **about("ibp0", "L90.1.3", "3"),
        **about("ibp1", "L90.1.4", "7"),
        **about("ibp0", "L90.1.3", "3", prefix=IB),
        **about("ibp1", "L90.1.4", "7", prefix=IB),
        f"{IB}/leaves.current": "L90.1.3_L90.1.4",
        f"{IB}/ports.current": "3_7",
    }


def test_without_the_infiniband_prefix_its_family_is_off() -> None:
    """The labels below the other prefix stay."""
    found = rendered(hcas("ibp0"), naming=Naming(ib_prefix=""), ib=seen(ib_link("ibp0")))
    assert neighbors(found) == about("ibp0", "L90.1.3", "3")


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("Ethernet1/1", "Ethernet1-1"),
        ("leaf-1.pod.example", "leaf-1.pod.example"),
        ("x" * 64, "xb96a5acbb56db825"),
        ("", None),
    ],
)
def test_values_are_encoded(raw: str, text: str | None) -> None:
    """Invalid characters are replaced; what is empty is no label."""
    found = rendered(nics("mlx5_0"), lldp=seen(roce_link("mlx5_0", raw, raw, raw)))
    assert neighbors(found) == about("mlx5_0", text, text, text)


UNNAMED = ["---", "…", "._-", " ", "\udcff"]


@pytest.mark.parametrize("name", UNNAMED)
def test_a_name_that_encodes_to_nothing_gives_way_to_the_identifier(name: str) -> None:
    """The chassis ID or the node GUID is the device, and the operator is told, once."""
    by_lldp = rendered(nics("mlx5_0"), lldp=seen(roce_link("mlx5_0", name)))
    assert by_lldp.labels[key("mlx5_0", "device")] == "00-1c-73-00-00-01"
    by_smp = rendered(hcas("ibp0"), ib=seen(ib_link("ibp0", name)))
    for prefix in (P, IB):
        assert by_smp.labels[key("ibp0", "device", prefix)] == "b0cf0e0300d66c81"
    assert by_smp.labels[f"{IB}/leaves.current"] == "b0cf0e0300d66c81"
    for found, kind in ((by_lldp, "chassis ID"), (by_smp, "node GUID")):
        (note,) = found.notes
        assert note.text.endswith(f"is valid in a label: the device label is the {kind}")
        assert visible(name, 64) in note.text
        assert found.problems == ()


@pytest.mark.parametrize("name", ["東京-01", "北京-01"])
def test_names_of_another_script_are_two(name: str) -> None:
    """Without the letters that a label cannot have both would be 01."""
    by_lldp = rendered(nics("mlx5_0"), lldp=seen(roce_link("mlx5_0", name)))
    by_smp = rendered(hcas("ibp0"), ib=seen(ib_link("ibp0", name)))
    values = by_lldp.labels[key("mlx5_0", "device")], by_smp.labels[key("ibp0", "device")]
    assert values == (encode.hashed(name), encode.hashed(name))
    assert by_lldp.labels[f"{P}/leafgroup.current"] == values[0]
    assert not by_lldp.notes


@pytest.mark.parametrize(("port_id", "text"), [("---", "xde7cc417de1b3246")])
def test_a_port_id_that_encodes_to_nothing_is_its_hash(port_id: str, text: str) -> None:
    """So that two ports of a switch stay two; the port has no name then. The hashes are Go's."""
    link = roce_link("mlx5_0", port_id=port_id, name=port_id)
    found = rendered(nics("mlx5_0"), lldp=seen(link))
    assert found.labels[key("mlx5_0", "port-id")] == text
    assert key("mlx5_0", "port-name") not in found.labels
    (note,) = found.notes
    assert note.subject == "mlx5_0"
    assert note.text.endswith("is valid in a label: the port-id label is its hash")


def test_an_identifier_that_encodes_to_nothing_is_no_label() -> None:
    """Its port is labeled, and the operator is told."""
    facts = LLDP_FACTS._replace(chassis_id="---", chassis_subtype=7)
    link = Link("mlx5_0", "eth0", (Neighbor("---", "swp1", "swp1", facts, 1.0),))
    found = rendered(nics("mlx5_0"), lldp=seen(link))
    assert key("mlx5_0", "device") not in found.labels
    assert found.labels[key("mlx5_0", "port-id")] == "swp1"
    assert found.notes[0].text.endswith("the device label is missing")


def test_a_note_is_bounded() -> None:
    """A name may have 255 characters."""
    found = rendered(nics("mlx5_0"), lldp=seen(roce_link("mlx5_0", "-" * 63, "." * 63)))
    assert max(len(note.text) for note in found.notes) < 200
    assert all(note.text.isprintable() for note in found.notes)


def test_of_several_neighbors_the_first_is_published() -> None:
    """The others are only in the document."""
    one, two = roce_link("mlx5_0").neighbors + roce_link("mlx5_0", "bmc", "1").neighbors
    found = rendered(nics("mlx5_0"), lldp=seen(Link("mlx5_0", "eth0", (one, two))))
    assert neighbors(found) == about("mlx5_0", "leaf-1", "swp1", "swp1")


def test_leaves_are_distinct_and_in_natural_order() -> None:
    """Port IDs are neither: they follow the order of the interfaces."""
    names = [("ibp0", "leaf10", "9"), ("ibp1", "leaf9", "10"), ("ibp2", "leaf10", "9")]
    found = rendered(hcas("ibp0", "ibp1", "ibp2"), ib=seen(*(ib_link(*one) for one in names)))
    assert found.labels[f"{IB}/leaves.current"] == "leaf9_leaf10"
    assert found.labels[f"{IB}/ports.current"] == "9_10_9"


def test_leaves_of_both_flavors() -> None:
    """They are below the common prefix; an InfiniBand node has them below both."""
    roce = rendered(
        nics("mlx5_0", "mlx5_1"), lldp=seen(roce_link("mlx5_0"), roce_link("mlx5_1", "a-1"))
    )
    assert roce.labels[f"{P}/leaves.current"] == "a-1_leaf-1"
    assert f"{IB}/leaves.current" not in roce.labels
    infiniband = rendered(hcas("ibp0"), ib=seen(ib_link("ibp0")))
    assert {infiniband.labels[f"{one}/leaves.current"] for one in (P, IB)} == {"L90.1.3"}


@pytest.mark.parametrize("link", [held("mlx5_1"), Link("mlx5_1", None, missing="x", hold=True)])
def test_leaves_of_a_roce_node_are_held(link: Link) -> None:
    """While one of its neighbors is not known, or LLDP failed; a source of InfiniBand is none."""
    before, devices = about("mlx5_1", "old", "1"), nics("mlx5_0", "mlx5_1")
    for lldp, leaves in ((seen(roce_link("mlx5_0"), link), "leaf-1_old"), (Failed("x"), "old")):
        assert rendered(devices, before, lldp=lldp).labels[f"{P}/leaves.current"] == leaves
    both = seen(roce_link("mlx5_0"), gone("mlx5_1"))
    found = rendered(devices, before, lldp=both, ib=OFF, off=frozenset({"ib"}))
    assert found.labels[f"{P}/leaves.current"] == "leaf-1"


def test_raw_names_are_joined_and_then_encoded() -> None:
    """The joined text may be too long, or contain invalid characters."""
    found = rendered(
        hcas("ibp0", "ibp1"), ib=seen(ib_link("ibp0", "spine a/1"), ib_link("ibp1", "spine b/2"))
    )
    assert found.labels[f"{IB}/leaves.current"] == "spine-a-1_spine-b-2"
    long = ["L" * 40 + str(number) for number in range(2)]
    found = rendered(hcas("ibp0", "ibp1"), ib=seen(*map(ib_link, ("ibp0", "ibp1"), long)))
    assert found.labels[f"{IB}/leaves.current"] == encode.hashed("_".join(long))


def test_unknown_leaves_are_left_out() -> None:
    """A port that is down has no neighbor, and the value is complete."""
    before = {f"{IB}/leaves.current": "a_b", f"{IB}/ports.current": "1_2"}
    found = rendered(hcas("ibp0", "ibp1"), before, ib=seen(ib_link("ibp0"), gone("ibp1")))
    assert found.labels[f"{IB}/leaves.current"] == "L90.1.3"
    assert found.labels[f"{IB}/ports.current"] == "3"
    assert found.held == {}


def test_without_a_neighbor_nothing_is_joined() -> None:
    """With all ports down there is no label, not an empty one."""
    before = {f"{IB}/leaves.current": "a_b", f"{IB}/ports.current": "1_2"}
    assert neighbors(rendered(hcas("ibp0"), before, ib=seen(gone("ibp0")))) == {}


def test_an_interface_whose_key_is_too_long_is_reported() -> None:
    name = "mlx5_bond_" + "0" * 40
    found = rendered(nics(name, "mlx5_1"), lldp=seen(roce_link(name), roce_link("mlx5_1")))
    assert set(about("mlx5_1", "leaf-1", "swp1", "swp1")) <= set(found.labels)
    assert not [label for label in found.labels if name in label]
    assert {problem.subject for problem in found.problems} == {key(name, kind) for kind in KINDS}


# The hold, for each interface on its own.

BEFORE = {
    **about("mlx5_1", "old-1", "1", "n1"),
    **about("mlx5_10", "old-10", "10", "n10"),
    **about("mlx5_2", "old-2", "2", "n2"),
}


def test_a_held_link_keeps_its_labels() -> None:
    """One neighbor was not seen, one was, one link is down: only the first keeps its labels."""
    links = seen(held("mlx5_1"), roce_link("mlx5_10"), gone("mlx5_2"))
    found = rendered(nics("mlx5_1", "mlx5_2", "mlx5_10"), BEFORE, lldp=links)
    assert neighbors(found) == about("mlx5_1", "old-1", "1", "n1") | about(
        "mlx5_10", "leaf-1", "swp1", "swp1"
    )
    leaves = f"{P}/leaves.current"
    assert set(found.held) == {leaves, *about("mlx5_1", "old-1", "1", "n1")}


def test_a_port_name_that_is_no_longer_sent_goes() -> None:
    """The neighbor is seen, now without a port description."""
    found = rendered(nics("mlx5_1"), BEFORE, lldp=seen(roce_link("mlx5_1", name=None)))
    assert neighbors(found) == about("mlx5_1", "leaf-1", "swp1")
    assert found.held == {}


def test_a_failed_device_holds_all_its_ports_and_legs() -> None:
    """And none of another device whose name starts with its own."""
    own = about("mlx5_1", "a", "1") | about("mlx5_1-3", "b", "2")
    own |= about("mlx5_1-eth2", "c", "3", "n")
    others = {
        **about("mlx5_10", "d", "4"),
        **about("mlx5_10-3", "e", "5"),
        **about("xmlx5_1", "f", "6"),
        **about("mlx5_bond_1-eth2", "g", "7"),
    }
    stuck = RdmaDevice("mlx5_1", failure="blocks", pci="0000:f9:00.0")
    found = rendered([*nics("mlx5_2"), stuck], own | others, lldp=seen(roce_link("mlx5_2")))
    assert neighbors(found) == own | about("mlx5_2", "leaf-1", "swp1", "swp1")


IB_BEFORE = {
    **about("ibp0", "old", "1"),
    **about("ibp1", "old", "2"),
    **about("ibp0", "old", "1", prefix=IB),
    **about("ibp1", "old", "2", prefix=IB),
    f"{IB}/leaves.current": "old",
    f"{IB}/ports.current": "1_2",
}
RAILS, HCAS = nics("mlx5_1", "mlx5_2", "mlx5_10"), hcas("ibp0", "ibp1")
SWITCHED_OFF = {"lldp": OFF, "ib": OFF, "off": frozenset({"lldp", "ib", "nvml"})}
HELD: dict[str, tuple[list[RdmaDevice], dict[str, str], dict[str, Any]]] = {
    "the RDMA class failed": (RAILS, BEFORE, {"rdma": Failed("it broke")}),
    "LLDP failed": (RAILS, BEFORE, {"lldp": Failed("it broke")}),
    "the helper failed": (HCAS, IB_BEFORE, {"ib": Failed("helper smp: no answer within 10 s")}),
    "--source rdma on RoCE": (RAILS, BEFORE, SWITCHED_OFF),
    "--source rdma on InfiniBand": (HCAS, IB_BEFORE, SWITCHED_OFF),
}


@pytest.mark.parametrize(("devices", "before", "outcomes"), HELD.values(), ids=HELD)
def test_a_source_without_outcome_holds_its_labels(
    devices: list[RdmaDevice], before: dict[str, str], outcomes: dict[str, Any]
) -> None:
    """All interfaces keep their neighbors; the joined labels stay, too."""
    assert neighbors(rendered(devices, before, **outcomes)) == before


# With ibp0 seen, on another leaf
def test_the_joined_labels_follow_each_port() -> None:
    """The part of a silent port is the last one that it had."""
    found = rendered(HCAS, IB_BEFORE, ib=seen(ib_link("ibp0"), held("ibp1", "no-answer")))
    now = about("ibp0", "L90.1.3", "3") | about("ibp0", "L90.1.3", "3", prefix=IB)
    joined = {f"{IB}/leaves.current": "L90.1.3_old", f"{IB}/ports.current": "3_2"}
    assert neighbors(found) == IB_BEFORE | now | joined
    assert found.held[f"{IB}/leaves.current"] == found.held[f"{P}/neighbors.current.ibp1.device"]


def test_a_first_joined_label_has_the_known_parts() -> None:
    """Without a published label, the known neighbors are joined."""
    found = rendered(hcas("ibp0", "ibp1"), {}, ib=seen(ib_link("ibp0"), held("ibp1", "no-answer")))
    assert found.labels[f"{IB}/leaves.current"] == "L90.1.3"
    assert found.labels[f"{IB}/ports.current"] == "3"


def test_switching_off_lldp_holds_nothing_of_an_infiniband_port() -> None:
    """Its link is down, so its labels go; so do those of an interface that is not there."""
    before = about("ibp0", "old", "1") | about("mlx5_1", "old-1", "1", "n1")
    found = rendered(hcas("ibp0"), before, lldp=OFF, off=frozenset({"lldp"}), ib=seen(gone("ibp0")))
    assert neighbors(found) == {}


def test_switching_off_the_ports_holds_all() -> None:
    """`probe --source lldp`: neighbors that were seen are published."""
    found = rendered(
        nics("mlx5_1"), BEFORE, off=frozenset({"rdma"}), lldp=seen(roce_link("mlx5_1"))
    )
    assert about("mlx5_1", "leaf-1", "swp1", "swp1").items() <= neighbors(found).items()


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ("silent", HoldReason.NO_NEIGHBOR),
        ("no-netdev", HoldReason.LENT),
        ("link-down", HoldReason.LINK_DOWN),
        ("a reason of a snapshot", HoldReason.NO_NEIGHBOR),
    ],
)
def test_a_held_link_has_its_reason(missing: str, reason: HoldReason) -> None:
    """The joined labels have the reason of the first link that is held."""
    found = rendered(hcas("ibp0"), IB_BEFORE, before=10.0, ib=seen(held("ibp0", missing)))
    device = f"{P}/neighbors.current.ibp0.device"
    assert (found.held[device], found.held[f"{IB}/leaves.current"]) == (reason, reason)


def test_a_held_label_has_the_reason_of_its_failure() -> None:
    """A failed source, one that is switched off, a device that failed, a device that is gone."""
    device, leaves = f"{P}/neighbors.current.ibp0.device", f"{IB}/leaves.current"
    failed = rendered(hcas("ibp0"), IB_BEFORE, ib=Failed("no answer"))
    assert {failed.held[device], failed.held[leaves]} == {HoldReason.SOURCE_FAILED}
    off = rendered(hcas("ibp0"), IB_BEFORE, ib=OFF, off=frozenset({"ib"}))
    assert {off.held[device], off.held[leaves]} == {HoldReason.SOURCE_OFF}
    stuck = rendered([RdmaDevice("ibp0", failure="blocks")], IB_BEFORE, ib=seen())
    assert set(stuck.held.values()) == {HoldReason.DEVICE_FAILED}
    row = Fact("ibp0", "0000:18:00.0")
    unloaded = Observation(0.0, "n1", None, (), Seen(()), NONE, seen())
    labels = IB_BEFORE | {f"{P}/flavor": "infiniband"}
    _, known = completed(unloaded, labels, Annotation(None, None, (row,)), Place.BUS)
    gone = render(known, Naming())
    assert {gone.held[device], gone.held[leaves]} == {HoldReason.DEVICE_GONE}
    assert f"{P}/neighbors.current.ibp1.device" not in gone.labels


def test_a_domain() -> None:
    """The value that all GPUs agree on is published, whatever was before."""
    gpu = Gpu(0, state="completed", status="success", cluster_uuid="u", clique_id=1)
    for before in ({}, {ACCELERATOR: "u.0"}):
        found = rendered([], before, nvml=Seen((gpu, gpu)))
        assert found.labels[ACCELERATOR] == "u.1"
    assert ACCELERATOR not in rendered([], {ACCELERATOR: "u.0"}, nvml=NONE).labels


def test_an_unknown_domain_has_its_reason() -> None:
    """GPUs that register, or a source that failed."""
    before = {ACCELERATOR: "u.1"}
    registering = rendered([], before, nvml=Seen((Gpu(0, state="in-progress"),)))
    assert list(registering.held.values()) == [HoldReason.NO_DOMAIN]
    assert list(rendered([], before, nvml=OFF).held.values()) == [HoldReason.SOURCE_FAILED]
    off = rendered([], before, nvml=OFF, off=frozenset({"nvml"}))
    assert off.held == dict.fromkeys(before, HoldReason.SOURCE_OFF)


links_of_three = st.tuples(*[st.sampled_from(("seen", "held", "gone"))] * 3)


@given(now=links_of_three, before=st.sets(st.sampled_from(("ibp0", "ibp1", "ibp10"))))
def test_each_interface_follows_its_own_rule(now: tuple[str, ...], before: set[str]) -> None:
    """Seen: the new value; held: the published one, if any; gone: none."""
    names = ("ibp0", "ibp1", "ibp10")
    make: dict[str, Callable[[str], Link]] = {"seen": ib_link, "held": held, "gone": gone}
    previous = {
        label: text for name in before for label, text in about(name, f"old-{name}", "9").items()
    }
    links = [make[state](name) for name, state in zip(names, now, strict=True)]
    found = neighbors(
        rendered(hcas(*names), previous, naming=Naming(ib_prefix=""), ib=seen(*links))
    )
    expected: dict[str, str] = {}
    for name, state in zip(names, now, strict=True):
        if state == "seen":
            expected |= about(name, "L90.1.3", "3")
        if state == "held" and name in before:
            expected |= about(name, f"old-{name}", "9")
    assert found == expected
