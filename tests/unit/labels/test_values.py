"""Labels of neighbours: their values, what joins them, and what is held for which interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.labels.table import Naming, Rendered, render
from agent.model import (
    Absent,
    Failed,
    IbNeighbor,
    Link,
    LldpNeighbor,
    Neighbor,
    Observation,
    RdmaDevice,
    Seen,
)
from agent.sources.backend import assign
from tests.support.devices import eth, ib, netdev, port

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

P, IB = "backend.coreweave.cloud", "ib.coreweave.cloud"
NOBODY = Absent("no such port")
OFF = Failed("switched off by --source")
KINDS = ("device", "port-id", "port-name")
TOLD_LLDP = LldpNeighbor(
    "00:1c:73:00:00:01", "01:80:c2:00:00:0e", "00:1c:73:00:00:01", 4, "swp1", 5, 120
)
TOLD_IB = IbNeighbor("switch", "b0cf0e0300d66c81", None, 3, 65, None)


def key(interface: str, kind: str, prefix: str = P) -> str:
    return f"{prefix}/neighbors.current.{interface}.{kind}"


def roce_link(
    interface: str, device: str = "leaf-1", port_id: str = "swp1", name: str | None = "swp1"
) -> Link:
    return Link(interface, "eth0", (Neighbor(device, port_id, name, TOLD_LLDP, 1.0),))


def ib_link(interface: str, device: str = "L90.1.3", port_id: str = "3") -> Link:
    return Link(interface, None, (Neighbor(device, port_id, None, TOLD_IB),))


def held(interface: str, missing: str = "silent") -> Link:
    return Link(interface, None, missing=missing, hold=True)


def gone(interface: str, missing: str = "link-down") -> Link:
    return Link(interface, None, missing=missing)


def nics(*names: str) -> list[RdmaDevice]:
    """RoCE devices, each with a netdev."""
    return [eth(name, bus, port(netdev=netdev(f"eth{bus}"))) for bus, name in enumerate(names)]


def hcas(*names: str) -> list[RdmaDevice]:
    return [ib(name, bus) for bus, name in enumerate(names)]


def rendered(
    devices: list[RdmaDevice],
    previous: Mapping[str, str] | None = None,
    naming: Naming | None = None,
    **outcomes: Any,
) -> Rendered:
    """What an observation of these devices and links makes of the labels from before."""
    off = outcomes.pop("off", frozenset())
    facts: dict[str, Any] = {
        "rdma": Seen(tuple(devices)),
        "lldp": NOBODY,
        "ib": NOBODY,
        "nvml": NOBODY,
    } | outcomes
    facts["ports"] = assign(devices) if isinstance(facts["rdma"], Seen) else ()
    observation = Observation(0.0, "n1", None, off=off, **facts)
    return render(observation, naming or Naming(), previous)


def neighbors(found: Rendered) -> dict[str, str]:
    """The labels about neighbours, without flavor and speed."""
    return {
        name: text
        for name, text in found.labels.items()
        if not name.endswith(("/flavor", "/speed.current"))
    }


def seen(*links: Link) -> Seen[tuple[Link, ...]]:
    return Seen(links)


def about(interface: str, *texts: str | None, prefix: str = P) -> dict[str, str]:
    """The labels of one interface: device, port-id, port-name."""
    return {
        key(interface, kind, prefix): text for kind, text in zip(KINDS, texts, strict=False) if text
    }


# Values.


def test_roce() -> None:
    """Three labels an interface, under one prefix."""
    found = rendered(
        nics("mlx5_0", "mlx5_1"),
        lldp=seen(roce_link("mlx5_0"), roce_link("mlx5_1", "leaf-2", "513", None)),
    )
    assert neighbors(found) == about("mlx5_0", "leaf-1", "swp1", "swp1") | about(
        "mlx5_1", "leaf-2", "513"
    )
    assert found.problems == ()


def test_infiniband() -> None:
    """Two labels an interface, under both prefixes, and what joins them."""
    found = rendered(
        hcas("ibp0", "ibp1"), ib=seen(ib_link("ibp0"), ib_link("ibp1", "L90.1.4", "7"))
    )
    assert neighbors(found) == {
        **about("ibp0", "L90.1.3", "3"),
        **about("ibp1", "L90.1.4", "7"),
        **about("ibp0", "L90.1.3", "3", prefix=IB),
        **about("ibp1", "L90.1.4", "7", prefix=IB),
        f"{IB}/leaves.current": "L90.1.3_L90.1.4",
        f"{IB}/ports.current": "3_7",
    }


def test_without_the_infiniband_prefix_its_family_is_off() -> None:
    """The labels under the other prefix stay."""
    found = rendered(hcas("ibp0"), naming=Naming(ib_prefix=""), ib=seen(ib_link("ibp0")))
    assert neighbors(found) == about("ibp0", "L90.1.3", "3")


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("Ethernet1/1", "Ethernet1-1"),
        ("00:1c:73:aa:bb:cc", "00-1c-73-aa-bb-cc"),
        ("leaf-1.pod.example", "leaf-1.pod.example"),
        ("x" * 63, "x" * 63),
        ("feuille-é", "feuille"),
        (r"leaf\x0a1", "leaf-x0a1"),
        ("to-gpu-node-12 rail 3", "to-gpu-node-12-rail-3"),
        ("--", None),
        ("叶", None),
        ("", None),
    ],
)
def test_values_are_encoded(raw: str, text: str | None) -> None:
    """What is too long is hashed, what is no letter replaced, and what is empty then is no
    label.
    """
    found = rendered(nics("mlx5_0"), lldp=seen(roce_link("mlx5_0", raw, raw, raw)))
    assert neighbors(found) == about("mlx5_0", text, text, text)


def fnv(text: str) -> str:
    """An FNV-1a of our own: 64 bits, printed without zeros in front."""
    state = 14695981039346656037
    for octet in text.encode():
        state = ((state ^ octet) * 1099511628211) % (1 << 64)
    return f"x{state:x}"


@given(st.text("abcXYZ019./:_ -é", min_size=64, max_size=255))
def test_long_names_become_their_hash(name: str) -> None:
    """The raw name is hashed, not what is left of it."""
    assert fnv("foobar") == "x85944171f73967e8"  # a test vector of RFC 9923
    found = rendered(nics("mlx5_0"), lldp=seen(roce_link("mlx5_0", name)))
    assert found.labels[key("mlx5_0", "device")] == fnv(name)


def test_of_several_neighbors_the_first_is_published() -> None:
    """The others are in the report only."""
    one, two = roce_link("mlx5_0").neighbors + roce_link("mlx5_0", "bmc", "1").neighbors
    found = rendered(nics("mlx5_0"), lldp=seen(Link("mlx5_0", "eth0", (one, two))))
    assert neighbors(found) == about("mlx5_0", "leaf-1", "swp1", "swp1")


def test_leaves_are_distinct_and_in_natural_order() -> None:
    """Ports are neither: they stand in the order of the interfaces."""
    told = [("ibp0", "leaf10", "9"), ("ibp1", "leaf9", "10"), ("ibp2", "leaf10", "9")]
    found = rendered(hcas("ibp0", "ibp1", "ibp2"), ib=seen(*(ib_link(*one) for one in told)))
    assert found.labels[f"{IB}/leaves.current"] == "leaf9_leaf10"
    assert found.labels[f"{IB}/ports.current"] == "9_10_9"


def test_raw_names_are_joined_and_then_encoded() -> None:
    """Together they may be too long, or hold what no label may."""
    found = rendered(
        hcas("ibp0", "ibp1"), ib=seen(ib_link("ibp0", "spine a/1"), ib_link("ibp1", "spine b/2"))
    )
    assert found.labels[f"{IB}/leaves.current"] == "spine-a-1_spine-b-2"
    long = ["L" * 40 + str(number) for number in range(2)]
    found = rendered(hcas("ibp0", "ibp1"), ib=seen(*map(ib_link, ("ibp0", "ibp1"), long)))
    assert found.labels[f"{IB}/leaves.current"] == fnv("_".join(long))


def test_unknown_leaves_are_left_out() -> None:
    """A port that is down has none, and that is sure."""
    before = {f"{IB}/leaves.current": "a_b", f"{IB}/ports.current": "1_2"}
    found = rendered(hcas("ibp0", "ibp1"), before, ib=seen(ib_link("ibp0"), gone("ibp1")))
    assert found.labels[f"{IB}/leaves.current"] == "L90.1.3"
    assert found.labels[f"{IB}/ports.current"] == "3"
    assert found.held == ()


def test_without_a_neighbor_nothing_is_joined() -> None:
    """All ports are down: no label, not an empty one."""
    before = {f"{IB}/leaves.current": "a_b", f"{IB}/ports.current": "1_2"}
    assert neighbors(rendered(hcas("ibp0"), before, ib=seen(gone("ibp0")))) == {}


def test_an_interface_whose_key_is_too_long_is_reported() -> None:
    """Its labels are not written, the others are."""
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


def test_what_cannot_be_seen_now_is_held() -> None:
    """The labels of that interface only: one was seen, another is truly gone."""
    links = seen(held("mlx5_1"), roce_link("mlx5_10"), gone("mlx5_2"))
    found = rendered(nics("mlx5_1", "mlx5_2", "mlx5_10"), BEFORE, lldp=links)
    assert neighbors(found) == about("mlx5_1", "old-1", "1", "n1") | about(
        "mlx5_10", "leaf-1", "swp1", "swp1"
    )
    assert set(found.held) == set(about("mlx5_1", "old-1", "1", "n1"))


def test_what_was_never_published_is_not_held() -> None:
    """A first look that hears nobody has nothing to say."""
    assert neighbors(rendered(nics("mlx5_1"), {}, lldp=seen(held("mlx5_1")))) == {}
    assert neighbors(rendered(nics("mlx5_1"), None, lldp=seen(held("mlx5_1")))) == {}


def test_a_port_name_that_is_told_no_more_goes() -> None:
    """The neighbour is seen, without a description now."""
    found = rendered(nics("mlx5_1"), BEFORE, lldp=seen(roce_link("mlx5_1", name=None)))
    assert neighbors(found) == about("mlx5_1", "leaf-1", "swp1")
    assert found.held == ()


def test_an_interface_that_is_gone_takes_its_labels() -> None:
    """A rename removes the old name's labels in the same patch."""
    found = rendered(nics("mlx5_7"), BEFORE, lldp=seen(roce_link("mlx5_7")))
    assert neighbors(found) == about("mlx5_7", "leaf-1", "swp1", "swp1")


def test_a_failed_device_keeps_those_of_all_its_ports_and_legs() -> None:
    """And of no other device whose name begins like its own."""
    before = {
        **about("mlx5_1", "a", "1"),
        **about("mlx5_1-3", "b", "2"),
        **about("mlx5_1-eth2", "c", "3", "n"),
        **about("mlx5_10", "d", "4"),
        **about("mlx5_10-3", "e", "5"),
        **about("xmlx5_1", "f", "6"),
        **about("mlx5_bond_1-eth2", "g", "7"),
    }
    sick = RdmaDevice("mlx5_1", failure="blocks")
    found = rendered([*nics("mlx5_2"), sick], before, lldp=seen(roce_link("mlx5_2")))
    kept = (
        about("mlx5_1", "a", "1")
        | about("mlx5_1-3", "b", "2")
        | about("mlx5_1-eth2", "c", "3", "n")
    )
    assert neighbors(found) == kept | about("mlx5_2", "leaf-1", "swp1", "swp1")


def test_a_device_name_is_no_pattern() -> None:
    """Dots and stars in it match themselves only."""
    before = about("mlxX0", "a", "1") | about("mlx.0", "b", "2")
    found = rendered([RdmaDevice("mlx.0", failure="blocks")], before)
    assert neighbors(found) == about("mlx.0", "b", "2")


def test_foreign_labels_are_never_held() -> None:
    """The expected half stands under the same prefix."""
    before = {
        f"{P}/neighbors.expected.mlx5_1.device": "leaf-1",
        f"{P}/neighbors.current.mlx5_1.rack": "r1",
        f"{P}/neighbors.current.device": "x",
        "other/neighbors.current.mlx5_1.device": "x",
    }
    assert neighbors(rendered(nics("mlx5_1"), before, lldp=seen(held("mlx5_1")))) == {}


@pytest.mark.parametrize("failed", ["rdma", "lldp"])
def test_a_source_that_fails_holds_what_it_tells(failed: str) -> None:
    """All interfaces keep their neighbours."""
    outcomes: dict[str, Any] = {failed: Failed("it broke")}
    found = rendered(nics("mlx5_1", "mlx5_2", "mlx5_10"), BEFORE, **outcomes)
    assert neighbors(found) == BEFORE


IB_BEFORE = {
    **about("ibp0", "old", "1"),
    **about("ibp1", "old", "2"),
    **about("ibp0", "old", "1", prefix=IB),
    **about("ibp1", "old", "2", prefix=IB),
    f"{IB}/leaves.current": "old",
    f"{IB}/ports.current": "1_2",
}


def test_a_helper_that_fails_holds_the_whole_family() -> None:
    """Leaves and ports as well."""
    found = rendered(
        hcas("ibp0", "ibp1"), IB_BEFORE, ib=Failed("helper smp: no answer within 10 s")
    )
    assert neighbors(found) == IB_BEFORE


def test_a_helper_that_fails_holds_nothing_of_a_device_that_is_gone() -> None:
    """The hardware says so, whoever else is silent."""
    found = neighbors(
        rendered(hcas("ibp0"), IB_BEFORE, ib=Failed("helper smp: no answer within 10 s"))
    )
    assert f"{P}/neighbors.current.ibp0.device" in found
    assert not [label for label in found if ".ibp1." in label]


def test_one_silent_port_leaves_the_joined_labels_as_they_were() -> None:
    """They are right only when all of their parts are known."""
    found = rendered(
        hcas("ibp0", "ibp1"), IB_BEFORE, ib=seen(ib_link("ibp0"), held("ibp1", "no-answer"))
    )
    assert neighbors(found) == IB_BEFORE | about("ibp0", "L90.1.3", "3") | about(
        "ibp0", "L90.1.3", "3", prefix=IB
    )


def test_where_nothing_was_joined_before_the_known_part_is() -> None:
    """A first look says what it knows."""
    found = rendered(hcas("ibp0", "ibp1"), {}, ib=seen(ib_link("ibp0"), held("ibp1", "no-answer")))
    assert found.labels[f"{IB}/leaves.current"] == "L90.1.3"
    assert found.labels[f"{IB}/ports.current"] == "3"


def test_a_sick_hca_holds_its_own_and_the_joined_labels() -> None:
    """Its far end may be there still."""
    devices = [*hcas("ibp0"), RdmaDevice("ibp1", failure="blocks")]
    found = rendered(devices, IB_BEFORE, ib=seen(ib_link("ibp0")))
    assert neighbors(found) == IB_BEFORE | about("ibp0", "L90.1.3", "3") | about(
        "ibp0", "L90.1.3", "3", prefix=IB
    )


def test_a_change_of_flavor_takes_the_family() -> None:
    """HCAs that were switched to Ethernet."""
    found = rendered(nics("ibp0"), IB_BEFORE, lldp=seen(roce_link("ibp0")))
    assert neighbors(found) == about("ibp0", "leaf-1", "swp1", "swp1")


def test_a_source_that_is_switched_off_leaves_its_labels() -> None:
    """`probe --source rdma` on either fabric."""
    off = frozenset({"lldp", "ib", "nvml"})
    assert neighbors(rendered(nics("mlx5_1"), BEFORE, lldp=OFF, ib=OFF, off=off)) == BEFORE
    assert (
        neighbors(rendered(hcas("ibp0", "ibp1"), IB_BEFORE, lldp=OFF, ib=OFF, off=off)) == IB_BEFORE
    )


def test_the_source_of_another_fabric_holds_nothing_of_this_one() -> None:
    """LLDP off, or failed, has nothing to say about an InfiniBand port whose cable is out."""
    found = rendered(
        hcas("ibp0", "ibp1"),
        IB_BEFORE,
        lldp=OFF,
        ib=seen(ib_link("ibp0", "old", "1"), gone("ibp1")),
    )
    assert not [label for label in found.labels if ".ibp1." in label]


def test_switching_off_the_ports_holds_all() -> None:
    """Without the RDMA source only the neighbours that are looked for are seen."""
    found = rendered(
        nics("mlx5_1"), BEFORE, off=frozenset({"rdma"}), lldp=seen(roce_link("mlx5_1"))
    )
    assert about("mlx5_1", "leaf-1", "swp1", "swp1").items() <= neighbors(found).items()


links_of_three = st.tuples(*[st.sampled_from(("seen", "held", "gone"))] * 3)


@given(now=links_of_three, before=st.sets(st.sampled_from(("ibp0", "ibp1", "ibp10"))))
def test_each_interface_follows_its_own_rule(now: tuple[str, ...], before: set[str]) -> None:
    """Seen: the new value; held: the old one where there was one; gone: none."""
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
