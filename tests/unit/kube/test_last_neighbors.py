"""The last neighbor of each backend port, and the leaf group that is made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from agent import encode
from agent.encode import Naming
from agent.kube.annotation import Annotation, cut, fitted
from agent.kube.remembered import annotate, published
from agent.labels.render import render
from agent.memory import SETTLE, Fact, FarEnd, Memory, known_of
from agent.model import (
    Absent,
    Failed,
    IbNeighbor,
    Link,
    LldpNeighbor,
    Neighbor,
    Observation,
    Seen,
)
from agent.reasons import HoldReason
from agent.sources.pci import Place
from tests.support.devices import netdev
from tests.support.nodes import BOOT, KEYS, LEAF_GROUP, NOW
from tests.support.observations import PORT, observation, role

HOLD = 600.0


def guid(leaf: str) -> str:
    return leaf.encode().hex().rjust(16, "0")[-16:]


def pci(number: int) -> str:
    return f"0000:{0x18 + number:02x}:00.0"


SILENT = "?"  # a leaf that does not answer


def link(name: str, leaf: str | None) -> Link:
    """Return the link of a port to a leaf, `x@a` to leaf x with the GUID of a; None: no link."""
    if leaf in {None, SILENT}:
        return Link(name, None, missing="no-answer" if leaf else "link-down", hold=bool(leaf))
    leaf, _, of = str(leaf).partition("@")
    facts = IbNeighbor("switch", guid(of or leaf), None, 1, f"MF0;{leaf}:MQM9700/U1")
    return Link(name, None, (Neighbor(leaf, "1", None, facts),))


def seen(*leaves: str | None, **changes: Any) -> Observation:
    """Return an observation of ibp0, ibp1, ... with these leaves."""
    names = [f"ibp{number}" for number in range(len(leaves))]
    found = observation(*((name, pci(number)) for number, name in enumerate(names)))
    devices = tuple(role.device for role in found.ports)
    return found._replace(
        **{"rdma": Seen(devices), "ib": Seen((*map(link, names, leaves),)), **changes}
    )


def last(leaf: str) -> FarEnd:
    return FarEnd(guid(leaf), f"MF0;{leaf}:MQM9700/U1", "1")


def annotated(*leaves: str | None, **changes: Any) -> Annotation:
    """Return an annotation with these last leaves."""
    rows = (
        Fact(f"ibp{number}", pci(number), last_far=last(leaf) if leaf else None)
        for number, leaf in enumerate(leaves)
    )
    return replace(Annotation(NOW, BOOT, tuple(rows)), **changes)


class Agent:
    """An agent that remembers over its observations; `label` is what the Node has."""

    def __init__(self, annotation: Annotation | None, label: str | None = None) -> None:
        self.now, self.place = 1000.0, Place.GONE
        self.labels: Mapping[str, str] = {LEAF_GROUP: label} if label else {}
        self.memory, self.annotation = Memory(HOLD), annotation
        self.memory.seed(published(annotation, self.labels, KEYS, BOOT), self.now)

    def sees(self, found: Observation, after: float = SETTLE) -> str | None:
        """Observe this; return the leaf group."""
        self.now += after
        found, known = self.memory.complete(found, lambda _address: self.place, self.now)
        rendered = render(known, Naming()).over(self.labels)
        self.annotation = annotate(found, known, self.annotation)
        self.labels, self.known = rendered.labels, known
        return rendered.labels.get(LEAF_GROUP)

    @property
    def hold(self) -> HoldReason | None:
        """The reason for which the group is held."""
        return self.known.group_hold

    @property
    def remembered(self) -> list[str | None]:
        """The names of the switches in the annotation."""
        rows = self.annotation.interfaces if self.annotation else ()
        return [row.last_far and row.last_far.name for row in rows]

    def restarts(self) -> Agent:
        assert self.annotation
        return Agent(fitted(self.annotation), self.labels.get(LEAF_GROUP))


def roce(name: str, leaf: str | None, chassis: str = "00:1c:73:00:00:01") -> Link:
    if leaf is None:
        return Link(name, "eth0", missing="link-down")
    facts = LldpNeighbor("m", "m", chassis, 4, "swp1", 5, 120, None, leaf)
    return Link(name, "eth0", (Neighbor(leaf, "swp1", "swp1", facts, 1.0),))


def ethernet(*links: Link) -> Observation:
    found = observation(*((one.interface, pci(n)) for n, one in enumerate(links)))
    ports = tuple(
        role._replace(port=role.port._replace(link_layer="Ethernet")) for role in found.ports
    )
    return found._replace(ports=ports, lldp=Seen(links), ib=Absent("no InfiniBand"))


UNREAD = observation(rdma=Failed("x"), ib=Absent("x"))
LONG_NAMES = ["L" * 40 + letter for letter in "abc"]
R0, R1, R2 = "mlx5_0", "mlx5_1", "mlx5_2"
RESTART = (None, None)
# Published rows and group of a Node; then what its agent sees, the group, and the time until then.
STORIES: dict[str, tuple[Annotation | None, str | None, list[Any]]] = {
    "a port that is down keeps its leaf, over restarts, until it has another one": (
        *(None, None),
        [
            *((seen("a", "b"), "a_b"), (seen("a", None), "a_b"), RESTART),
            *((seen("a", None), "a_b", 0.0), (seen("a", None), "a_b", 1e6), RESTART),
            *((seen("a", None), "a_b", 0.0), (seen("a", "c"), "a_c"), (seen("a", None), "a_c")),
        ],
    ),
    "another neighbor takes effect at once, while a port does not answer, too": (
        *(annotated("a", "b", "c"), "a_b_c"),
        [(seen("a", "x", SILENT), "a_c_x", 0.0)],
    ),
    "cables moved while the agent was away: in one boot a port without link keeps its leaf": (
        *(annotated("a", "b", "c"), "a_b_c"),
        [(seen("x", SILENT, None), "b_c_x", 0.0), (seen("x", "y", None), "c_x_y", 9.0)],
    ),
    "the first neighbor of another boot is the one of before: the node is where it was": (
        *(annotated("a", "b", "c", boot_id="before"), "a_b_c"),
        [
            *((seen("a", SILENT, None), "a_b_c", 0.0), (seen("x", SILENT, None), "b_c_x", 9.0)),
            *((seen("x", "y", None), "x_y", 9.0), (seen("x", "y", None), "x_y")),
        ],
    ),
    "a switch of another boot that was replaced by one of its name": (
        *(annotated("a", "b", boot_id="before"), "a_b"),
        [(seen("a@z", None), "a_b", 0.0)],
    ),
    "a port that never had a neighbor delays nothing": (
        *(annotated("a", "b", None), "a_b"),
        [(seen("x", "b", SILENT), "b_x", 0.0)],
    ),
    "ports without link are not waited for": (None, None, [(seen("a", None), "a", 0.0)]),
    "a renamed switch is no other one, and the node is where it was": (
        *(annotated("a", "b"), "a_b"),
        [(seen("new@a", None), "b_new", 0.0)],
    ),
    "a renamed switch keeps its new name, of the port that was down, too": (
        *(annotated("a", "a", "b"), "a_b"),
        [
            *((seen("new@a", None, "b"), "b_new"), (seen(None, None, "b"), "b_new")),
            *(RESTART, (seen(None, None, "b"), "b_new")),
        ],
    ),
    "switches that share a chassis ID, as virtual ones do": (
        *(None, None),
        [
            (ethernet(roce(R0, "s1"), roce(R1, "s2"), roce(R2, "s3", "x")), "s1_s2_s3"),
            (ethernet(roce(R0, "s1"), roce(R1, "s2"), roce(R2, None)), "s1_s2_s3"),
            (ethernet(roce(R0, "s1"), roce(R1, "s2"), roce(R2, "s1")), "s1_s2"),
        ],
    ),
    "a port that is down beside one of the same chassis ID keeps its own name": (
        *(None, None),
        [
            (ethernet(roce(R0, "s1"), roce(R1, "s2")), "s1_s2"),
            (ethernet(roce(R0, "s1"), roce(R1, None)), "s1_s2"),
            (ethernet(roce(R0, "new"), roce(R1, None)), "new_s2"),
        ],
    ),
    "a name that encodes to nothing: the chassis ID is the leaf": (
        *(None, None),
        [
            (ethernet(roce(R0, "---"), roce(R1, "s2", "x")), "00-1c-73-00-00-01_s2"),
            (ethernet(roce(R0, None), roce(R1, "s2", "x")), "00-1c-73-00-00-01_s2"),
        ],
    ),
    "a port of another fabric has no last neighbor": (
        *(annotated("a", "b"), "a_b"),
        [
            (ethernet(roce("ibp0", None), roce("ibp1", None)), None),
            (ethernet(roce("ibp0", "s1"), roce("ibp1", None)), "s1"),
            (seen(None, None), None),
        ],
    ),
    "`probe` leaves the label, `run` removes it; the source of another link layer is none": (
        *(annotated("a", "b"), "a_b"),
        [
            (seen("x", "y", ib=Failed("off"), off=frozenset({"ib", "nvml"})), "a_b"),
            (seen("a", None, lldp=Failed("off"), off=frozenset({"lldp"})), "a_b"),
            (seen("a", "b", ib=Absent("off"), disabled=frozenset({"ib"})), None),
            (seen("a", None), "a_b"),
        ],
    ),
    "an annotation without room changes no label, without limit": (
        *(annotated("a", left_out=1), "a_b"),
        [(seen("a", None), "a_b"), (seen("a", None), "a_b", 1e6), (seen("a", "b"), "a_b")],
    ),
    "an annotation without room, and then no device that can be read": (
        *(annotated("a", left_out=1), "a_b"),
        [(UNREAD, "a_b"), (seen("a", None), "a_b")],
    ),
    "an annotation without room, and another port": (
        *(annotated("a", left_out=1), "a_b"),
        [(seen("x", None), "x")],
    ),
    "a row of an interface that does not exist": (
        replace(
            annotated("a", "b"),
            interfaces=(
                *annotated("a", "b").interfaces,
                Fact("ibp9", pci(9), last_far=last("x")),
            ),
        ),
        "a_b",
        [(UNREAD, "a_b"), (seen("a", None), "a_b")],
    ),
    "no port ever had a neighbor": (annotated(None, None), None, [(seen(None, None), None)]),
    "no port ever had a neighbor, and the source fails": (
        *(None, None),
        [(seen(None, None, ib=Failed("x")), None)],
    ),
    "names that differ in zeros have one order": (
        *(None, None),
        [
            (seen("leaf01", "leaf1"), "leaf1_leaf01"),
            (seen(None, "leaf1"), "leaf1_leaf01"),
            (seen("leaf01", None), "leaf1_leaf01"),
        ],
    ),
}


@pytest.mark.parametrize("story", STORIES)
def test_the_leaf_group(story: str) -> None:
    annotation, label, steps = STORIES[story]
    agent = Agent(annotation, label)
    for number, (found, group, *after) in enumerate(steps):
        if found is None:
            agent = agent.restarts()
        else:
            assert agent.sees(found, *after) == group, number


@pytest.mark.parametrize("ib", [Failed("x"), Failed("x", pending=True), Seen(())])
def test_a_failed_source_changes_nothing(ib: Any) -> None:
    """What is remembered is complete: the label is not held, and has no end."""
    agent = Agent(annotated("a", "b"), "a_b")
    for after in (0.0, 10.0, 1e6):
        assert agent.sees(seen("a", "b", ib=ib), after) == "a_b"
    assert agent.hold is None


def test_an_interface_takes_its_leaf() -> None:
    """A device that left the bus; when it is back its leaf is, too."""
    agent = Agent(annotated("a", "b"), "a_b")
    assert agent.sees(seen("a")) == "a"
    row = Fact("ibp1", pci(1), last_far=last("b"))
    agent.annotation = annotated("a", lost=(row._replace(lost_since=NOW),))
    assert agent.sees(seen("a", None)) == "a_b"


def test_a_node_that_was_moved_forgets() -> None:
    """No port that is seen has the leaf that it had."""
    agent = Agent(annotated("a", "b", "c", boot_id="before"), "a_b_c")
    assert agent.sees(seen("x", "y", None), after=0.0) == "x_y"
    assert agent.remembered == ["MF0;x:MQM9700/U1", "MF0;y:MQM9700/U1", None]


def test_the_first_port_that_speaks_says_that_the_node_was_moved() -> None:
    """All rows of earlier boots are forgotten then, over a restart in between, too: the annotation
    has of which boot each one is.
    """
    agent = Agent(annotated("a", "b", "c", "d", boot_id="before"), "a_b_c_d")
    assert agent.sees(seen(None, SILENT, SILENT, SILENT), after=0.0) == "a_b_c_d"
    agent = agent.restarts()
    assert agent.sees(seen(None, "x", SILENT, SILENT), after=0.0) == "x"
    assert agent.remembered == [None, "MF0;x:MQM9700/U1", None, None]
    assert agent.sees(seen("y", "x", "z", None), after=9.0) == "x_y_z"


def test_renumbered_devices_keep_their_leaves() -> None:
    """The PCI function is the same; the names were swapped by a reboot."""
    agent = Agent(annotated("a", "b", "c"), "a_b_c")
    found = observation(("ibp1", pci(0)), ("ibp0", pci(1)), ("ibp7", pci(2)))
    links = (link("ibp1", None), link("ibp0", "b"), link("ibp7", None))
    assert agent.sees(found._replace(ib=Seen(links)), after=0.0) == "a_b_c"
    assert agent.remembered == [f"MF0;{leaf}:MQM9700/U1" for leaf in "bac"]


def test_ports_and_legs_of_one_function_are_told_apart() -> None:
    """By what their names add to the device's, which may have another name."""
    rows = tuple(
        Fact(f"mlx5_1{end}", pci(0), last_far=last(leaf))
        for end, leaf in (("-3", "a"), ("-6", "b"), ("-eth2", "c"))
    )
    ports = tuple(
        role(f"mlx5_4{end}", port, leg, device="mlx5_4", pci=pci(0))
        for end, port, leg in (
            ("-6", PORT._replace(number=6), None),
            ("-eth2", PORT, netdev("eth2")),
            ("-9", PORT._replace(number=9), None),
        )
    )
    agent = Agent(Annotation(NOW, BOOT, rows), "a_b_c")
    down = Seen(tuple(link(role.interface, None) for role in ports))
    assert agent.sees(observation()._replace(ports=ports, ib=down)) == "b_c"
    assert agent.remembered == ["MF0;b:MQM9700/U1", None, "MF0;c:MQM9700/U1"]


def test_a_new_node_is_labeled_when_its_ports_have_spoken() -> None:
    """Or after a while: half of the leaves would be another group."""
    agent, some = Agent(None), seen("a", SILENT)
    assert agent.sees(some, after=0.0) is None
    assert agent.known.next_end == agent.now + SETTLE
    assert agent.sees(some, after=SETTLE) == "a"
    assert agent.sees(seen("a", "b"), after=1.0) == "a_b"


def test_an_annotation_that_is_gone() -> None:
    """The published label is held while a port is down; all are seen, and it follows."""
    agent = Agent(None, "a_b")
    assert agent.sees(seen("a", None)) == "a_b"
    assert agent.hold is HoldReason.NO_NEIGHBOR
    assert Agent(None, "a_b").sees(seen("a", None), after=HOLD) == "a"
    assert agent.sees(seen("a", "c")) == "a_c"


def test_without_a_node() -> None:
    """`probe --dry-run` and a replay know the neighbors that are seen."""
    found = render(known_of(seen("a", None)), Naming())
    assert found.labels[LEAF_GROUP] == "a"
    assert render(known_of(seen(None, None)), Naming()).labels.get(LEAF_GROUP) is None


@pytest.mark.parametrize("name", ["MF0;evil:x/U3", "Quantum Mellanox Technologies", None])
def test_a_chassis_id_that_looks_like_a_node_guid(name: str | None) -> None:
    """The label is the same when the port is down."""
    chassis = "0123456789abcdef"
    facts = LldpNeighbor("m", "m", chassis, 7, "swp1", 5, 120, None, name)
    up = Link("mlx5_0", "eth0", (Neighbor(name or chassis, "swp1", None, facts, 1.0),))
    agent = Agent(None)
    value = agent.sees(ethernet(up, roce("mlx5_1", "s2")))
    assert value
    assert agent.sees(ethernet(roce("mlx5_0", None), roce("mlx5_1", "s2"))) == value


@pytest.mark.parametrize("leaf", ["EVIL", "_", "a" * 64])
def test_a_last_neighbor_that_the_label_speaks_against(leaf: str) -> None:
    """Somebody has edited the annotation: the published label is held, and that text never used."""
    agent = Agent(annotated("a", leaf, "c"), "a_b_c")
    assert agent.sees(seen("a", None, None)) == "a_b_c"
    assert agent.hold is HoldReason.NO_NEIGHBOR
    assert agent.remembered == ["MF0;a:MQM9700/U1", None, "MF0;c:MQM9700/U1"]
    assert agent.sees(seen("a", "d", None)) == "a_c_d"


def test_a_hash_that_the_annotation_does_not_make_up() -> None:
    """None of its neighbors counts; one that does make it up counts in full."""
    value = encode.value("_".join(LONG_NAMES))
    assert Agent(annotated(*LONG_NAMES), value).sees(seen(LONG_NAMES[0], None, None)) == value
    forged = Agent(annotated(*LONG_NAMES[:2], "EVIL"), value)
    assert forged.sees(seen(LONG_NAMES[0], None, None)) == value
    assert forged.remembered == [f"MF0;{LONG_NAMES[0]}:MQM9700/U1", None, None]
    assert forged.sees(seen(*LONG_NAMES)) == value


@pytest.mark.parametrize("leaves", [("-a", "b."), ("(x)", "y/z"), ("a_b", "b_a"), ("xa", "xb")])
def test_names_with_invalid_characters_are_found_in_the_label(leaves: tuple[str, str]) -> None:
    agent = Agent(None)
    value = agent.sees(seen(*leaves))
    again = agent.restarts()
    assert again.sees(seen(leaves[0], None)) == value
    assert again.hold is None


def changed(agent: Agent, found: Observation) -> dict[str, str | None]:
    """Observe this; return the ports with another neighbor, and the name of the last one."""
    agent.sees(found)
    return {name: one.name for name, one in agent.known.was.items()}


def test_a_cable_that_changed_is_known_once() -> None:
    """The running agent and one that was down meanwhile know what was; a first neighbor, a port
    that is down, and a restart that finds the same are no change.
    """
    agent = Agent(None)
    assert changed(agent, seen("a", None)) == {}
    assert changed(agent, seen("a", "b")) == {}
    assert changed(agent, seen("a", None)) == {}
    assert changed(agent, seen("a", "b")) == {}
    agent = agent.restarts()
    assert changed(agent, seen("a", "b")) == {}
    assert changed(agent, seen("a", "c")) == {"ibp1": last("b").name}
    assert changed(agent, seen("a", "c")) == {}
    agent = agent.restarts()
    assert changed(agent, seen("a", "d")) == {"ibp1": last("c").name}


def test_another_port_of_the_same_switch_is_a_change() -> None:
    """A switch that was renamed, or replaced by one of its name, is none."""
    agent = Agent(annotated("a", "b"), "a_b")
    assert changed(agent, seen("x@a", "b@y")) == {}
    facts = IbNeighbor("switch", guid("y"), None, 2, "MF0;b:MQM9700/U1")
    moved = Link("ibp1", None, (Neighbor("b", "2", None, facts),))
    found = seen("a", "b", ib=Seen((link("ibp0", "x@a"), moved)))
    assert changed(agent, found) == {"ibp1": last("b").name}


def test_a_node_that_was_moved_changes_all_its_cables() -> None:
    """Once each, while another port leaves the move undecided, too."""
    agent = Agent(annotated("a", "b", "c"), "a_b_c")
    first = changed(agent, seen("x", SILENT, "z"))
    assert first == {"ibp0": last("a").name, "ibp2": last("c").name}
    assert changed(agent, seen("x", SILENT, "z")) == {}
    assert changed(agent, seen("x", "y", "z")) == {"ibp1": last("b").name}


def test_an_unknown_port_is_no_change() -> None:
    """The annotation has none, or the neighbor names none."""
    row = Fact("ibp0", pci(0), last_far=last("a")._replace(port_id=None))
    agent = Agent(Annotation(NOW, BOOT, (row,)), "a")
    assert changed(agent, seen("a")) == {}


def test_a_name_that_was_cut_makes_no_other_hash() -> None:
    """The annotation has no room for the whole of it: the published group stays."""
    names = [f"leaf-{number}.{'x' * 70}" for number in range(2)]
    group = encode.value("_".join(names))
    rows = tuple(
        Fact(f"ibp{number}", pci(number), port=1, last_far=FarEnd(f"02:{number:02}", cut(name)))
        for number, name in enumerate(names)
    )
    found = published(Annotation(NOW, BOOT, rows), {LEAF_GROUP: group}, KEYS, BOOT)
    assert found.gap is HoldReason.NOT_REMEMBERED
    assert [row.last_far for row in found.rows] == [None, None]
