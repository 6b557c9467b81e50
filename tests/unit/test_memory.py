"""The memory of facts: each part of a port stays for its own time, whatever happens to the others.

A node has InfiniBand or RoCE ports; `observed` makes the observation of each step. Times are
seconds, HOLD is that of the label contract.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.encode import Naming
from agent.infiniband.bad_link import BadEnd, LinkErrors, LinkVerdict
from agent.infiniband.devices import SA_SPREAD
from agent.labels.render import render
from agent.labels.table import FLAVOR, LEAF_GROUP
from agent.memory import (
    BAD_LINK_KEPT,
    GRACE,
    HOLDS,
    KEPT,
    LONG,
    Fact,
    FarEnd,
    Known,
    Memory,
    Published,
)
from agent.model import (
    Failed,
    IbNeighbor,
    Link,
    LldpNeighbor,
    Neighbor,
    NvlinkDomain,
    Observation,
    PortRole,
    RdmaDevice,
    Seen,
)
from agent.reasons import AcceleratorReason, BadLink, HoldReason, NeighborReason
from agent.sources.pci import Place
from tests.support.lldp_frames import BRIDGE, STATION
from tests.support.observations import PORT, observation
from tests.support.observations import role as role_of

SPEED = "P/speed.current"
HOLD = 600.0
IB, ROCE = "InfiniBand", "Ethernet"
PCI = {f"ibp{number}": f"0000:{0x10 + number:02x}:00.0" for number in range(10)}
GUIDS = {f"ibp{number}": f"{number + 1:016x}" for number in range(10)}


def role(name: str, gbps: float | None = 400.0, *, backend: bool = True, **facts: Any) -> PortRole:
    pci = facts.pop("pci", PCI.get(name))
    guid = facts.pop("guid", GUIDS.get(name))
    found = PORT._replace(port_guid=guid, link_layer=facts.pop("layer", IB), **facts)
    return role_of(name, found, pci=pci, backend=backend, gbps=gbps)


def neighbor(name: str, number: int = 1) -> Neighbor:
    guid = f"{sum(map(ord, name)):016x}"
    return Neighbor(name, str(number), None, IbNeighbor("switch", guid, None, number, name))


def link(interface: str, leaf: str | None = None, missing: str | None = None) -> Link:
    found = (neighbor(leaf),) if leaf else ()
    return Link(interface, None, found, missing)


def observed(
    roles: Sequence[PortRole],
    links: Sequence[Link] = (),
    failed: Sequence[str] = (),
    **changes: Any,
) -> Observation:
    """Return an observation of these ports; the devices in `failed` could not be read."""
    unread = tuple(RdmaDevice(name, failure="EIO", pci=PCI.get(name)) for name in failed)
    devices = tuple({one.device.name: one.device for one in roles}.values()) + unread
    outcomes = {"rdma": Seen(devices), "ib": Seen(tuple(links))} | changes
    return observation(ports=tuple(roles), unread=dict.fromkeys(failed, "InfiniBand"), **outcomes)


def on_bus(_pci: str) -> Place:
    return Place.BUS


def gone(_pci: str) -> Place:
    return Place.GONE


def two() -> tuple[Memory, Known]:
    """Two InfiniBand ports, on leaves L0 and L1."""
    memory = Memory(HOLD)
    found = observed([role("ibp0"), role("ibp1")], [link("ibp0", "L0"), link("ibp1", "L1")])
    return memory, memory.merge(found, on_bus, 0.0)


def labels(known: Known, naming: Naming) -> dict[str, str]:
    return render(known, naming).labels


def node_texts(known: Known) -> dict[str, str]:
    """Return the labels of the whole node by the name of their row."""
    found = ((key.partition("/"), text) for key, text in labels(known, Naming()).items())
    return {
        name: text
        for (prefix, _, name), text in found
        if prefix == Naming().prefix and not name.startswith("neighbors.")
    }


def frozen(known: Known) -> set[str]:
    """Return the rows of the whole node whose labels stay as the Node has them."""
    found = render(known, Naming()).frozen
    return {name for prefix, _, name in (key.partition("/") for key in found)}


def rows(known: Known) -> dict[str, Fact]:
    return {fact.interface: fact for fact in known.facts}


def leaf(known: Known, interface: str) -> str | None:
    far = rows(known)[interface].far
    return far and far.name


def test_what_is_read_is_the_fact() -> None:
    """Labels are a function of it."""
    _, known = two()
    found = labels(known, Naming())
    assert found["backend.coreweave.cloud/speed.current"] == "800G"
    assert found["backend.coreweave.cloud/flavor"] == "infiniband"
    assert found["ib.coreweave.cloud/leaves.current"] == "L0_L1"
    assert found["backend.coreweave.cloud/neighbors.current.ibp1.device"] == "L1"


def test_merge_is_idempotent() -> None:
    memory, known = two()
    found = observed([role("ibp0", None), role("ibp1")], [link("ibp0", None, "no-answer")])
    first = memory.merge(found, on_bus, 10.0)
    assert memory.merge(found, on_bus, 10.0) == first
    assert known != first


def lldp(name: str, capabilities: int | None) -> Neighbor:
    facts = LldpNeighbor("", "", f"chassis of {name}", 7, "p1", 5, 120, None, name, capabilities)
    return Neighbor(name, "p1", "p1", facts)


@pytest.mark.parametrize(
    ("capabilities", "group"),
    [
        (STATION, None),
        (0x08, None),
        (BRIDGE, "x"),
        (0x10, "x"),
        (BRIDGE | STATION, "x"),
        (0, "x"),
        (None, "x"),
    ],
)
def test_who_says_neither_bridge_nor_router_is_no_leaf(
    capabilities: int | None, group: str | None
) -> None:
    """One that says nothing may be a switch."""
    memory = Memory(HOLD)
    found = observed([role("ibp0", layer=ROCE)], [Link("ibp0", None, (lldp("x", capabilities),))])
    texts = node_texts(known := memory.merge(found, on_bus, 0.0))
    assert (texts.get("leaves.current"), texts.get("leafgroup.current")) == (group, group)
    assert labels(known, Naming())["backend.coreweave.cloud/neighbors.current.ibp0.device"] == "x"


def test_a_station_beside_a_moved_cable() -> None:
    """It is no other leaf: no cable was moved, and the last leaf stays."""
    memory = Memory(HOLD)
    ports = [role("ibp0", layer=ROCE), role("ibp1", layer=ROCE)]

    def merged(now: float, *neighbors: Neighbor) -> Known:
        links = [Link(f"ibp{number}", None, (end,)) for number, end in enumerate(neighbors)]
        return memory.merge(observed(ports, links), on_bus, now)

    merged(0.0, lldp("a", BRIDGE), lldp("b", BRIDGE))
    known = merged(200.0, lldp("a", BRIDGE), lldp("bmc", STATION))
    assert (node_texts(known)["leafgroup.current"], dict(known.was)) == ("a_b", {})
    known = merged(300.0, lldp("c", BRIDGE), lldp("bmc", STATION))
    assert [*known.was] == ["ibp0"]


@pytest.mark.parametrize("moment", [1.0, HOLD - 1])
def test_one_unread_port_holds_its_own_parts_only(moment: float) -> None:
    """The cable of the other port was moved meanwhile: its labels and the leaves follow at once."""
    memory, _ = two()
    third = role("ibp2"), link("ibp2", "L2")
    all_read = (
        [role("ibp0"), role("ibp1"), third[0]],
        [link("ibp0", "L0"), link("ibp1", "L1"), third[1]],
    )
    memory.merge(observed(*all_read), on_bus, 0.1)
    found = observed([role("ibp1"), third[0]], [link("ibp1", "L7"), third[1]], failed=["ibp0"])
    memory.merge(found, on_bus, 0.5)
    known = memory.merge(found, on_bus, 0.5 + moment)
    assert node_texts(known) == {
        "flavor": "infiniband",
        "speed.current": "1200G",
        "leaves.current": "L0_L2_L7",
        "leafgroup.current": "L0_L2_L7",
    }


def test_without_any_port_that_is_read_the_speed_goes_and_roce_does_not_come() -> None:
    """All InfiniBand devices are unread for longer than the hold, beside an Ethernet port."""
    memory, _ = two()
    storage = role("mlx5_8", 100.0, backend=False, layer=ROCE, pci="0000:40:00.0", guid=None)
    found = observed([storage], failed=["ibp0", "ibp1"])
    memory.merge(found, on_bus, 1.0)
    texts = node_texts(memory.merge(found, on_bus, 1.0 + HOLD))
    assert texts == {"leafgroup.current": "L0_L1"}


def test_a_function_without_driver_counts_nothing_after_its_hold() -> None:
    """Nothing can pass: the speed says so, it does not go."""
    memory, _ = two()
    memory.merge(observed([]), on_bus, 1.0)
    known = memory.merge(observed([]), on_bus, 1.0 + HOLD)
    assert [fact.state_why for fact in known.facts] == [HoldReason.DEVICE_GONE] * 2
    assert node_texts(known)["speed.current"] == "0G"


def test_names_that_a_reboot_swapped_carry_nothing_over() -> None:
    """Rows are those of PCI functions; neither switch answers yet."""
    memory, known = two()
    swapped = [role("ibp0", pci=PCI["ibp1"], guid=GUIDS["ibp1"])]
    swapped += [role("ibp1", pci=PCI["ibp0"], guid=GUIDS["ibp0"])]
    memory = Memory(HOLD)
    memory.seed(Published(known.facts), 100.0)
    silent = [link("ibp0", None, "no-answer"), link("ibp1", None, "no-answer")]
    known = memory.merge(observed(swapped, silent), on_bus, 101.0)
    assert (leaf(known, "ibp0"), leaf(known, "ibp1")) == ("L1", "L0")


def test_a_bus_that_was_renumbered_is_known_by_the_port_guid() -> None:
    """The far end stays with the port."""
    memory, _ = two()
    moved = role("ibp5", pci="0000:99:00.0", guid=GUIDS["ibp0"])
    found = observed([moved, role("ibp1")], [link("ibp5", None, "no-answer"), link("ibp1", "L1")])
    assert leaf(memory.merge(found, gone, 5.0), "ibp5") == "L0"


@pytest.mark.parametrize(
    ("via", "changes", "lasts"),
    [
        ("sa", {"is_unasked": True}, HOLD + SA_SPREAD),
        ("sa", {}, HOLD),
        ("smp", {"is_unasked": True}, HOLD),
        ("sa", {"is_unasked": True, "missing": NeighborReason.LINK_DOWN}, GRACE),
    ],
)
def test_a_far_end_waits_for_its_question(via: str, changes: dict[str, Any], lasts: float) -> None:
    """A new agent asks the SA up to an hour after its start; a second restart renews nothing."""
    _, known = two()
    unasked = link("ibp0", None, NeighborReason.REFUSED)._replace(**changes)
    found = observed([role("ibp0"), role("ibp1")], [unasked, link("ibp1", "L1")])
    rows_of = tuple(fact._replace(via=via) for fact in known.facts)
    for start in (0.0, HOLD - 1.0):
        memory = Memory(HOLD)
        memory.seed(Published(rows_of), start)
        known = memory.merge(found, on_bus, start)
        rows_of = known.facts
        assert (leaf(known, "ibp0"), known.now) == ("L0" if start < lasts else None, start)
    if lasts >= HOLD:
        known = memory.merge(found, on_bus, lasts - 1.0)
        assert (leaf(known, "ibp0"), known.next_end) == ("L0", lasts)
    assert leaf(memory.merge(found, on_bus, lasts), "ibp0") is None


def test_a_question_that_failed_ends_the_wait() -> None:
    """The hold counts from the start."""
    memory, known = Memory(HOLD), two()[1]
    memory.seed(Published(tuple(fact._replace(via="sa") for fact in known.facts)), 0.0)
    ports = [role("ibp0"), role("ibp1")]
    unasked = link("ibp0", None, NeighborReason.REFUSED)._replace(is_unasked=True)
    known = memory.merge(observed(ports, [unasked, link("ibp1", "L1")]), on_bus, 0.0)
    assert rows(known)["ibp0"].far_why is HoldReason.NOT_ASKED
    assert leaf(memory.merge(observed(ports, [unasked]), on_bus, 2000.0), "ibp0") == "L0"
    failed = link("ibp0", None, NeighborReason.SA_NO_ANSWER)
    assert leaf(memory.merge(observed(ports, [failed]), on_bus, 2001.0), "ibp0") is None


def test_a_flap_does_not_use_up_the_hold() -> None:
    """A far end that is seen again resets its clock."""
    memory, _ = two()
    links = [link("ibp0", None, NeighborReason.LINK_DOWN), link("ibp1", "L1")]
    down = observed([role("ibp0", 0.0, state="DOWN"), role("ibp1")], links)
    up = observed([role("ibp0"), role("ibp1")], [link("ibp0", "L0"), link("ibp1", "L1")])
    for now in (10.0, 50.0, 90.0):
        memory.merge(down, on_bus, now)
        memory.merge(up, on_bus, now + 20)
    known = memory.merge(down, on_bus, 120.0)
    assert leaf(known, "ibp0") == "L0"
    assert known.next_end == 120.0 + GRACE


def test_a_port_that_left_the_bus_is_lost_if_it_was_there_for_a_minute() -> None:
    """A VF that passed for a moment leaves nothing."""
    memory, _ = two()
    brief = role("ibp9", guid=GUIDS["ibp9"])
    memory.merge(observed([role("ibp0"), role("ibp1"), brief]), on_bus, LONG)
    known = memory.merge(observed([role("ibp0")]), gone, LONG + 1)
    assert [fact.interface for fact in known.lost] == ["ibp1"]
    assert list(rows(known)) == ["ibp0"]
    back = memory.merge(observed([role("ibp0"), role("ibp1")]), on_bus, LONG + 9)
    assert (back.lost, list(rows(back))) == ((), ["ibp0", "ibp1"])


def test_a_device_that_loses_its_ports_before_it_goes_is_lost() -> None:
    """It is seen once without ports, its function gone; it is no less lost than the others."""
    memory, _ = two()
    going = role("ibp1").device._replace(ports=())
    found = observed([role("ibp0")])
    found = found._replace(rdma=Seen((*found.rdma.value, going)))  # type: ignore[union-attr]
    known = memory.merge(found, gone, LONG + 1)
    assert [fact.interface for fact in known.lost] == ["ibp1"]
    known = memory.merge(observed([role("ibp0")]), gone, LONG + 2)
    assert [fact.interface for fact in known.lost] == ["ibp1"]


def test_a_port_that_is_no_backend_port_any_more_is_forgotten() -> None:
    """It was read, so nothing is held."""
    memory, _ = two()
    found = observed([role("ibp0", backend=False), role("ibp1")], [link("ibp1", "L1")])
    assert list(rows(memory.merge(found, on_bus, 1.0))) == ["ibp1"]


def test_a_device_of_which_nothing_is_known_keeps_the_published_sum() -> None:
    """A new agent without annotation: the sum would lack it. It stays for the hold."""
    memory = Memory(HOLD)
    memory.seed(Published(whole=frozenset({SPEED, FLAVOR})), 0.0)
    found = observed([role("ibp1")], [link("ibp1", "L1")], failed=["ibp0"])
    assert frozen(known := memory.merge(found, on_bus, 1.0)) == {"speed.current"}
    assert "speed.current" not in node_texts(known)
    assert node_texts(memory.merge(found, on_bus, HOLD + 1))["speed.current"] == "400G"


def test_a_label_without_row_is_its_own_far_end() -> None:
    """Its text stays, as any far end that is not seen."""
    memory = Memory(HOLD)
    label = Fact("ibp0", None, layer=IB, far=FarEnd(None, "L0", "1"))
    memory.seed(Published([label], whole=frozenset({FLAVOR})), 0.0)
    found = observed([role("ibp0")], [link("ibp0", None, "no-answer")])
    known = memory.merge(found, on_bus, 1.0)
    assert leaf(known, "ibp0") == "L0"
    assert leaf(memory.merge(found, on_bus, HOLD), "ibp0") is None


def test_while_the_class_cannot_be_read_everything_stays_for_the_hold() -> None:
    """The end of the hold is a time to look again, and the one when the annotation has it."""
    memory, known = two()
    before: Mapping[str, str] = labels(known, Naming())
    broken = observed([])._replace(rdma=Failed("EIO"))
    known = memory.merge(broken, on_bus, 10.0)
    assert labels(known, Naming()) == before
    assert known.next_end == 10.0 + KEPT
    known = memory.merge(broken, on_bus, 10.0 + KEPT)
    assert known.next_end == 10.0 + HOLD
    known = memory.merge(broken, on_bus, 10.0 + HOLD)
    assert set(node_texts(known)) == {"leafgroup.current"}


def test_a_hold_ends_while_another_begins() -> None:
    """A device is unread, then the whole class: what the device counted goes with its own hold."""
    memory, _ = two()
    memory.published(frozenset({SPEED, FLAVOR}))
    memory.merge(observed([role("ibp1")], [link("ibp1", "L1")], failed=["ibp0"]), on_bus, 10.0)
    broken = observed([])._replace(rdma=Failed("EIO"))
    known = memory.merge(broken, on_bus, HOLD)
    assert node_texts(known)["speed.current"] == "800G"
    known = memory.merge(broken, on_bus, 10.0 + HOLD)
    assert node_texts(known)["speed.current"] == "400G"
    assert node_texts(known)["flavor"] == "infiniband"
    assert set(node_texts(memory.merge(broken, on_bus, 2 * HOLD))) == {"leafgroup.current"}


def test_a_port_that_is_read_has_its_name() -> None:
    """The unread port that had this name before keeps its leaf and its rate, and no label."""
    memory, _ = two()
    back = role("ibp0", pci=PCI["ibp1"], guid=GUIDS["ibp1"])  # the driver of the other is off
    known = memory.merge(observed([back], [link("ibp0", "L9")]), on_bus, 10.0)
    found = labels(known, Naming())
    assert found["backend.coreweave.cloud/neighbors.current.ibp0.device"] == "L9"
    assert found["backend.coreweave.cloud/leaves.current"] == "L0_L9"
    assert found["backend.coreweave.cloud/speed.current"] == "800G"


def test_the_class_is_unread_when_a_node_was_moved() -> None:
    """Nothing is forgotten until a port of this boot has another leaf; a station is none."""
    names = ["ibp0", "ibp1"]
    last = FarEnd(f"{0:016x}", "OLD", "1")
    rows = [Fact(name, PCI[name], 1, layer=IB, last_far=last, is_earlier=True) for name in names]
    memory = Memory(HOLD)
    memory.seed(Published(rows, whole=frozenset({LEAF_GROUP})), 0.0)
    silent = [link(name, None, "no-answer") for name in names]
    for found in (
        observed([])._replace(rdma=Failed("EIO")),
        observed([role(name) for name in names], silent),
    ):
        known = memory.merge(found, on_bus, 10.0)
        assert node_texts(known)["leafgroup.current"] == "OLD"
    known = memory.merge(
        observed([role(name) for name in names], [link("ibp0", "NEW"), silent[1]]), on_bus, 13.0
    )
    assert node_texts(known)["leafgroup.current"] == "NEW"


def test_a_cable_is_moved_before_the_node_is_read() -> None:
    """The first far end of this boot tells that the node was not: another port keeps its own."""
    published = [row._replace(is_earlier=True) for row in two()[1].facts]
    roles, unread = [role("ibp0")], ["ibp1"]
    memory = Memory(HOLD, started=100.0)
    for leaf_name in ("L0", "L9"):
        links = [link("ibp0", leaf_name)]
        memory.merge(observed(roles, links, failed=unread), on_bus, 100.0)
    memory.seed(Published(published), 200.0)
    known = memory.merge(observed(roles, links, failed=unread), on_bus, 200.0)
    assert node_texts(known)["leafgroup.current"] == "L1_L9"


def test_a_domain_that_was_read_before_the_node_is_held_since_it_is_not() -> None:
    """Not since the start of the agent."""
    seen = observed([])._replace(accelerator=NvlinkDomain("u.1"))
    failed = observed([])._replace(accelerator=NvlinkDomain(None, AcceleratorReason.FAILED))
    memory = Memory(HOLD, started=0.0)
    for now, found in ((0.0, seen), (HOLD, seen), (HOLD + 10, failed)):
        memory.merge(found, on_bus, now)
    memory.seed(Published(domain="u.1"), HOLD + 20)
    assert memory.merge(failed, on_bus, HOLD + 30).domain == "u.1"
    assert memory.merge(failed, on_bus, 2 * HOLD + 10).domain is None


def test_a_node_that_is_read_late_renews_no_grace() -> None:
    """The agent has observed for minutes when it can read the Node: a link was down meanwhile."""
    published = two()[1].facts
    links = [link("ibp0", "L0"), link("ibp1", None, NeighborReason.LINK_DOWN)]
    found = observed([role("ibp0"), role("ibp1", 0.0, state="DOWN")], links)
    memory = Memory(HOLD, started=100.0)
    memory.merge(found, on_bus, 100.0)
    memory.seed(Published(published), 200.0)
    assert leaf(memory.merge(found, on_bus, 200.0), "ibp1") is None


def test_a_lost_port_that_comes_back_unread_is_not_forgotten() -> None:
    """It has its last leaf once it is read."""
    memory, _ = two()
    only = observed([role("ibp1")], [link("ibp1", "L1")])
    memory.merge(only, gone, LONG)
    memory.merge(observed([role("ibp1")], [link("ibp1", "L1")], failed=["ibp0"]), on_bus, LONG + 1)
    both = observed(
        [role("ibp0"), role("ibp1")], [link("ibp0", None, "no-answer"), link("ibp1", "L1")]
    )
    known = memory.merge(both, on_bus, LONG + 2)
    assert node_texts(known)["leafgroup.current"] == "L0_L1"


def test_a_port_is_known_by_its_number() -> None:
    """A second port of its HCA becomes a backend port: the first has another name now."""
    memory, _ = two()
    first = role("ibp0", None)
    second = first.port.__class__(2, IB, "ACTIVE", None, None, None, "f" * 16, None, None, None, ())
    ports = [first._replace(interface="ibp0-1")]
    ports.append(first._replace(interface="ibp0-2", port=second, counted_gbps=400.0))
    links = [link("ibp0-1", None, "no-answer"), link("ibp0-2", "L5")]
    known = memory.merge(observed(ports, links), on_bus, 100.0)
    assert leaf(known, "ibp0-1") == "L0"
    assert rows(known)["ibp0-1"].gbps == 400.0


@pytest.mark.parametrize("slot", ["ibp1", "ibp3"])
def test_a_lost_port_that_is_back_before_the_node_is_read(slot: str) -> None:
    """In its slot or in another one: it is a port that is read, and no lost one."""
    lost = rows(two()[1])["ibp1"]._replace(lost_since=1, gbps=0.0)
    back = role("ibp1", pci=PCI[slot])
    found = observed([role("ibp0"), back], [link("ibp0", "L0"), link("ibp1", "L1")])
    memory = Memory(HOLD, started=0.0)
    memory.merge(found, on_bus, 1.0)
    memory.seed(Published((rows(two()[1])["ibp0"],), (lost,)), 2.0)
    known = memory.merge(found, on_bus, 3.0)
    assert known.lost == ()
    assert {fact.interface for fact in known.facts} == {"ibp0", "ibp1"}


# Random sequences: each port is what its own history says, whatever happens to the other.


class Case(NamedTuple):
    """How a port is observed."""

    gbps: float | None = 400.0  # None: it is not read
    leaf: str | None = None  # None: it is not seen
    missing: NeighborReason | None = None
    state: str = "ACTIVE"
    is_unread: bool = False  # all of it


LEFT, RIGHT = Case(leaf="L8"), Case(leaf="L9")
SILENT = Case(missing=NeighborReason.NO_ANSWER)
ENDING = Case(missing=NeighborReason.EXPIRED)
NO_LINK = Case(0.0, missing=NeighborReason.LINK_DOWN, state="DOWN")
LENT = Case(missing=NeighborReason.NO_NETDEV)
NO_RATE = Case(None, leaf="L8")
UNREAD = Case(is_unread=True)
SITUATIONS = [LEFT, RIGHT, SILENT, ENDING, NO_LINK, LENT, NO_RATE, UNREAD]


class Port:
    """What one port counts, and its far end, by the rules M1 to M3; they are sure."""

    def __init__(self) -> None:
        self.gbps, self.leaf, self.last = 400.0, "L8", "L8"
        self.count_since: float | None = None
        self.far_since: float | None = None
        self.far_stays = HOLD

    def see(self, case: Case, now: float) -> None:
        if case.is_unread or case.gbps is None:
            self.count_since = now if self.count_since is None else self.count_since
        else:
            self.gbps, self.count_since = case.gbps, None
        if case.leaf:
            self.leaf = self.last = case.leaf
            self.far_since = None
        else:
            self.far_stays = GRACE if case in (NO_LINK, ENDING) else HOLD
            since = now if self.far_since is None else self.far_since
            self.far_since = None if case is LENT else since
        if self.count_since is not None and now >= self.count_since + HOLD:
            self.gbps = 0.0
        if self.far_since is not None and now >= self.far_since + self.far_stays:
            self.leaf = ""

    def restart(self, now: float) -> None:
        """A new agent knows what has been unread for a minute."""
        self.count_since, self.far_since = (
            since if since is not None and now >= since + KEPT else now
            for since in (self.count_since, self.far_since)
        )


def restarted(known: Known, now: float) -> Memory:
    """Return the memory of the next agent, which has read the annotation of this one."""

    def kept(since: float | None) -> float | None:
        return since if since is not None and now >= since + KEPT else None

    nothing = Fact("", None)
    found = tuple(
        row._replace(
            state_since=kept(row.state_since),
            far_since=kept(row.far_since),
            role_since=kept(row.role_since),
            state_why=nothing.state_why,
            far_why=nothing.far_why,
            state_ended=nothing.state_ended,
            has_ended=nothing.has_ended,
        )
        for row in known.facts
    )
    memory = Memory(HOLD)
    memory.seed(Published(found, whole=frozenset({SPEED, FLAVOR}), is_whole=True), now)
    return memory


steps = st.lists(
    st.tuples(
        st.lists(st.sampled_from(SITUATIONS), min_size=2, max_size=2),
        st.sampled_from([1.0, 20.0, 31.0, 61.0, 300.0, 599.0, 601.0]),
        st.sampled_from(["", "", "", "class", "agent"]),
    ),
    max_size=12,
)


@pytest.mark.slow
@given(steps)
@example([([UNREAD, LEFT], 599.0, ""), ([LEFT, LEFT], 1.0, "class"), ([LEFT, LEFT], 61.0, "class")])
def test_a_port_is_what_its_own_history_says(found: list[tuple[list[Case], float, str]]) -> None:
    """Each part outlives its last read by its own time, over restarts of the agent, too."""
    names = ["ibp0", "ibp1"]
    memory, ports, now = Memory(HOLD), [Port(), Port()], 0.0
    first = [role(name) for name in names], [link(name, "L8") for name in names]
    known = memory.merge(observed(*first), on_bus, now)
    for cases, after, what in found:
        now += after
        if what == "agent":
            memory = restarted(known, now)
            for one in ports:
                one.restart(now)
        seen = dict(zip(names, [UNREAD] * 2 if what == "class" else cases, strict=True))
        read = {name: case for name, case in seen.items() if not case.is_unread}
        whole = observed(
            [role(name, case.gbps, state=case.state) for name, case in read.items()],
            [link(name, case.leaf, case.missing) for name, case in read.items()],
            failed=[name for name in names if name not in read],
        )
        whole = whole._replace(rdma=Failed("EIO")) if what == "class" else whole
        known = memory.merge(whole, on_bus, now)
        for name, one in zip(names, ports, strict=True):
            one.see(seen[name], now)
            fact = rows(known)[name]
            assert (fact.gbps, leaf(known, name) or "") == (one.gbps, one.leaf)
            assert one.leaf in (one.last, "")
        texts = node_texts(known)
        total = sum(one.gbps for one in ports)
        assert texts.get("speed.current") in ({f"{total:g}G"} if total else {"0G", None})
        assert texts.get("leaves.current", "") == "_".join(sorted({p.leaf for p in ports} - {""}))
        assert memory.merge(whole, on_bus, now) == known._replace(was={})


# The table of how long a value stays that may be false.

OTHER = (role("ibp1"), link("ibp1", "L1"))


def seen(port: object, far: object) -> Observation:
    return observed([port, OTHER[0]], [far, OTHER[1]])  # type: ignore[list-item]


def left_out(name: str) -> Observation:
    device = role(name).device._replace(ports=(), excluded=True)
    found = observed([OTHER[0]], [OTHER[1]])
    return found._replace(rdma=Seen((*found.rdma.value, device)))  # type: ignore[union-attr]


DOWN = role("ibp0", 0.0, state="DOWN")
NO_QUESTION = "the subnet administrator, by which it was read, has not been asked since the start"
NOT_ASKED = link("ibp0", None, NeighborReason.REFUSED)._replace(is_unasked=True)
# By cause: the observation, and where a function without device is.
EXAMPLES: dict[str, tuple[Observation, Place]] = {
    "the state or rate of a port cannot be read": (
        seen(role("ibp0", None), link("ibp0", "L0")), Place.BUS),
    "a device cannot be read": (
        observed([OTHER[0]], [OTHER[1]], failed=["ibp0"]), Place.BUS),
    "a driver is unloaded, the function is on the bus": (
        observed([OTHER[0]], [OTHER[1]]), Place.BUS),
    "the RDMA class cannot be read": (
        observed([])._replace(rdma=Failed("EIO", hold=HoldReason.SOURCE_FAILED)), Place.BUS),
    "a switch is silent, or its source fails": (
        seen(role("ibp0"), link("ibp0", None, "no-answer")), Place.BUS),
    "the TTL of the neighbor expired, or it sent a shutdown frame": (
        seen(role("ibp0"), link("ibp0", None, "expired")), Place.BUS),
    NO_QUESTION: (
        seen(role("ibp0"), NOT_ASKED), Place.BUS),
    "the link is down": (seen(DOWN, link("ibp0", None, "link-down")), Place.BUS),
    "the link is down, and the source fails": (
        observed([DOWN, OTHER[0]])._replace(ib=Failed("EIO")), Place.BUS),
    "the network device is lent to a Pod, the port ACTIVE": (
        seen(role("ibp0"), link("ibp0", None, "no-netdev")), Place.BUS),
    "the port has another link layer": (
        seen(role("ibp0", 100.0, layer=ROCE), link("ibp0", None, "silent")), Place.BUS),
    "the function left the bus, or was given to a VM": (
        observed([OTHER[0]], [OTHER[1]]), Place.VM),
    "the device is left out by a flag": (left_out("ibp0"), Place.BUS),
    "the port is no backend port any more": (
        seen(role("ibp0", backend=False), link("ibp0", "L0")), Place.BUS),
}  # fmt: skip


def table() -> dict[str, list[float]]:
    """Return the times of each cause: speed, neighbor, leaf group."""
    return {
        cause.text: [stay.seconds_of(HOLD) for stay in (cause.state, cause.far, cause.last_far)]
        for cause in HOLDS
    }


def test_every_cause_is_walked_through() -> None:
    assert table().keys() == EXAMPLES.keys()


@pytest.mark.parametrize("cause", EXAMPLES)
def test_a_value_stays_for_its_time_and_no_longer(cause: str) -> None:
    """Each part of the port has the old value until its time, and not from then on."""
    found, place = EXAMPLES[cause]
    memory, known = two()
    if found is EXAMPLES[NO_QUESTION][0]:
        by_sa = tuple(fact._replace(via="sa") for fact in known.facts)
        memory = Memory(HOLD)
        memory.seed(Published(by_sa, whole=frozenset({LEAF_GROUP})), 100.0)
    old = rows(known)["ibp0"]
    speed, neighbor, group = table()[cause]
    ends = {GRACE, HOLD, HOLD + SA_SPREAD}
    for moment in sorted({0.0, 1e6} | {end + step for end in ends for step in (-1.0, 0.0)}):
        now = rows(memory.merge(found, lambda _pci: place, 100.0 + moment)).get("ibp0")
        is_old = (
            now is not None and now.gbps == old.gbps and (now.state_why is not None),
            now is not None and now.far == old.far and bool(now.far_why),
            now is not None and now.last_far == old.last_far,
        )
        assert is_old[0] == (moment < speed), ("speed", moment)
        assert is_old[1] == (moment < neighbor), ("neighbor", moment)
        if group:
            assert is_old[2] == (moment < group), ("leaf group", moment)
        elif now and not now.far:
            assert now.last_far is None, ("leaf group", moment)


@pytest.mark.parametrize("missing", NeighborReason)
def test_every_reason_of_a_missing_neighbor_is_a_cause(missing: NeighborReason) -> None:
    """A far end that is missing for it stays as long as the table says."""
    ended = "the TTL of the neighbor expired, or it sent a shutdown frame"
    cause = {
        NeighborReason.EXPIRED: ended,
        NeighborReason.SHUTDOWN: ended,
        NeighborReason.LINK_DOWN: "the link is down",
        NeighborReason.NO_NETDEV: "the network device is lent to a Pod, the port ACTIVE",
    }.get(missing, "a switch is silent, or its source fails")
    lasts = table()[cause][1]
    memory, _ = two()
    found = seen(role("ibp0"), link("ibp0", None, missing))
    ends = {0.0, GRACE, HOLD, 1e6}
    stays = {
        end
        for end in sorted(ends)
        if leaf(memory.merge(found, on_bus, 100.0 + end), "ibp0") == "L0"
    }
    assert stays == {end for end in ends if end < lasts}


def unstable(reading: float, end: BadEnd = BadEnd.NEAR, time: float = 1e9) -> dict[str, Any]:
    """The fields of an observation of ibp0 with errors, or without any, as they were read last."""
    verdict = LinkVerdict(end, end is not BadEnd.QUIET, "errors")
    read = LinkErrors("ibp0", "L0 port 1", "", "", 3600.0, verdict, reading)
    return {"link_errors": Seen((read,)), "time": time}


def test_the_last_bad_link_of_a_port_stays_for_a_day() -> None:
    """It has the time of the reading that told it, and a new agent has it from the Node."""
    ports, ends = [role("ibp0"), role("ibp1")], [link("ibp0", "L0"), link("ibp1", "L1")]
    memory = Memory(HOLD)

    def bad(
        memory: Memory, links: Sequence[Link] = ends, now: float = 0.0, **changes: Any
    ) -> BadLink | None:
        known = memory.merge(observed(ports, links, **changes), on_bus, now)
        assert rows(known)["ibp1"].bad_link is None
        return rows(known)["ibp0"].bad_link

    first = BadLink("near", 10**9, 7.0)
    assert bad(memory, **unstable(7.0)) == first
    assert bad(memory, **unstable(7.0, time=1e9 + 60)) == first
    assert bad(memory, **unstable(9.0, BadEnd.FAR, time=1e9 + 90)) == ("far", 10**9 + 90, 9.0)
    assert bad(memory, **unstable(11.0, BadEnd.QUIET, time=1e9 + 99)) == ("far", 10**9 + 90, 9.0)
    assert bad(memory, time=1e9 + 90 + BAD_LINK_KEPT) is None
    old = BAD_LINK_KEPT + 7
    assert bad(memory, now=old, **unstable(7.0, time=1e9 + old)) is None, "none was read since"
    assert bad(memory, **unstable(7.0, time=2e9)) == ("near", 2 * 10**9, 7.0)
    assert bad(memory, now=67.0, **unstable(7.0)) == ("near", 10**9 - 60, 7.0), "the clock was set"
    fact = rows(memory.merge(observed(ports, ends, **unstable(7.0)), on_bus, 0.0))["ibp0"]
    for own, expected in ((unstable(3.0, BadEnd.CABLE), "cable"), ({"time": 1e9}, "near")):
        later = Memory(HOLD)
        bad(later, **own)
        later.seed(Published([fact]), 0.0)
        assert bad(later, **own)[0] == expected  # type: ignore[index]
    moved = [link("ibp0", "L9"), link("ibp1", "L1")]
    assert bad(memory, moved, time=1e9) is None, "another link"
