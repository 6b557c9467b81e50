"""A group on the page: its matrix, with rails, cells and rows that are shared, and its pictures."""

from __future__ import annotations

import re
from dataclasses import replace

from agent.cabling.finding import PortRef, finding
from agent.fleet.model import Fleet, FleetNode, FleetPort, Group, Judged
from agent.fleet.page.groups import (
    BOX,
    FOLDED_FROM,
    LEAF_BOTTOM,
    NODE_TOP,
    PER_PICTURE,
    RUN,
    Box,
    Matrix,
    Picture,
    matrix,
    pictures,
)
from agent.fleet.page.lookup import LeafTable, Marks
from tests.support import judged
from tests.support.small_fleets import NOW, far_end


def of(fleet: Judged, group: int = 0) -> Matrix:
    nodes = {node.name: node for node in fleet.fleet.nodes}
    names = fleet.groups[group].nodes
    return matrix([nodes[name] for name in names], LeafTable(fleet), Marks(fleet.findings))


def of_nodes(*nodes: FleetNode) -> Matrix:
    fleet = judged.fleet(0, 1)
    return matrix(nodes, LeafTable(fleet), Marks(()))


def names(found: Matrix) -> list[str]:
    return [row.name for row in found.rows]


def test_rails_are_pci_functions() -> None:
    """A node with other names has its ports in the columns of the same addresses."""
    nodes = [judged.node(name, 0, at) for at, name in enumerate("abc")]
    ports = tuple(port._replace(interface=f"ibp{at}") for at, port in enumerate(nodes[2].ports))
    fleet = judged.fleet(3, 3)
    fleet = fleet._replace(fleet=replace(fleet.fleet, nodes=tuple(nodes)))
    renamed = replace(nodes[2], ports=ports[1:])
    found = matrix([*nodes[:2], renamed], LeafTable(fleet), Marks(()))
    assert [rail.interface for rail in found.rails] == [f"mlx5_{rail}" for rail in range(8)]
    cells = found.rows[2].cells[0]
    assert cells[0].port is None
    assert [cell.other_name for cell in cells[1:]] == [f"ibp{at}" for at in range(1, 8)]


def test_two_ports_of_one_function() -> None:
    """The legs of a bond and the planes of an HCA have a column each."""
    ports = tuple(FleetPort(f"mlx5_0-{at}", "0000:18:00.0") for at in (3, 6, 9, 12))
    found = of_nodes(FleetNode("a", ports=ports), FleetNode("b", ports=ports))
    assert [rail.interface for rail in found.rails] == [port.interface for port in ports]


def test_nodes_without_common_rails() -> None:
    """Nodes that share no address go by the order of their ports, not by a column each."""
    nodes = [
        FleetNode(str(at), ports=tuple(FleetPort(f"p{i}", f"{at}:{i}") for i in range(4)))
        for at in range(20)
    ]
    assert len(of_nodes(*nodes).rails) == 4


def test_no_ports() -> None:
    found = of_nodes(FleetNode("a"))
    assert (found.rails, names(found)) == ((), ["a"])


def test_small_groups_show_every_node() -> None:
    size = FOLDED_FROM - 1
    assert len(of(judged.fleet(size, size)).rows) == size
    assert names(of(judged.fleet(size + 1, size + 1))) == [f"gpu-001 to gpu-{size + 1:03}"]


def test_odd_nodes_stand_alone() -> None:
    """A node with a finding has its own row, between the runs of the other ones."""
    refs = PortRef("gpu-010", "mlx5_1"), PortRef("gpu-012", "mlx5_2")
    fleet = judged.swapped(judged.fleet(32, 32), *refs)
    expected = ["gpu-001 to gpu-009", "gpu-010", "gpu-011", "gpu-012", "gpu-013 to gpu-032"]
    assert names(of(fleet)) == expected


def test_a_short_run_is_not_shared() -> None:
    fleet = judged.silent(judged.fleet(20, 20), f"gpu-{RUN:03}")
    assert names(of(fleet))[: RUN - 1] == [f"gpu-{at:03}" for at in range(1, RUN)]


def test_a_shared_row_tells_every_port() -> None:
    """The first and the last port in a cell; each node's own in the list."""
    fleet = judged.fleet(20, 20)
    port = PortRef("gpu-020", "mlx5_7")
    end = far_end(judged.leaf(0, 7), 33)
    fleet = judged.changed(fleet, [port], lambda one: one._replace(far_end=end))
    (row,) = of(fleet).rows
    assert (row.ports(0), row.ports(7)) == ("1 to 20", "1 to 33")
    assert (row.ports_of(1), row.ports_of(19)) == ("2", "20 20 20 20 20 20 20 33")


def test_a_leaf_that_is_down_keeps_the_row_shared() -> None:
    """One cause on one leaf does not unfold a group; the cells are marked all the same."""
    (row,) = of(judged.leaf_down(judged.fleet(20, 20), 0, 7)).rows
    assert len(row.nodes) == 20
    mark = row.cells[0][7].mark
    assert mark
    assert (mark.sign, mark.numbers, row.mark) == ("✗", (1,), None)
    assert row.last(7) == judged.leaf(0, 7)


def test_differing_speeds_stand_alone() -> None:
    """A node or a port of another rate is no part of a run, finding or not."""
    ref = PortRef("gpu-010", "mlx5_1")
    fleet = judged.changed(judged.fleet(20, 20), [ref], lambda one: one._replace(gbps=200.0))
    row = of(fleet).rows[1]
    assert (row.name, row.cells[0][1].other_gbps) == ("gpu-010", 200.0)


# The pictures.


def drawn(fleet: Judged, group: int = 0) -> list[Picture]:
    return pictures(fleet.groups[group], of(fleet, group), LeafTable(fleet), Marks(fleet.findings))


def at(boxes: tuple[Box, ...], x: float) -> str:
    (box,) = (box for box in boxes if box.x - 1 <= x <= box.x + BOX + 1)
    return box.title


def cables(picture: Picture) -> list[tuple[str, str]]:
    lines = re.findall(rf"M(\d+) {NODE_TOP}L(\d+) {LEAF_BOTTOM}", picture.right)
    return [(at(picture.nodes, int(a)), at(picture.leaves, int(b))) for a, b in lines]


def test_right_cables() -> None:
    """Every cable of a group without findings leads from its node to its leaf."""
    fleet = judged.fleet(6, 6)
    (picture,) = drawn(fleet)
    expected = [
        (node.name, port.far_end.device)
        for node in fleet.fleet.nodes
        for port in node.ports
        if port.far_end
    ]
    assert cables(picture) == expected
    assert not picture.wrong
    assert picture.text == "6 nodes below, 8 leaves above. No cable is marked."


def test_wrong_cables_are_drawn_out() -> None:
    """A swap is two cables as seen and two as wanted, and no thin ones."""
    refs = PortRef("gpu-002", "mlx5_3"), PortRef("gpu-003", "mlx5_4")
    (picture,) = drawn(judged.swapped(judged.fleet(4, 4), *refs))
    found = [
        (w.kind, w.sign, at(picture.nodes, w.start), at(picture.leaves, w.end))
        for w in picture.wrong
    ]
    assert found == [
        ("error", "✗", "gpu-002", "su01-leaf05"),
        ("wanted", "○", "gpu-002", "su01-leaf04"),
        ("error", "✗", "gpu-003", "su01-leaf04"),
        ("wanted", "○", "gpu-003", "su01-leaf05"),
    ]
    assert len(cables(picture)) == 4 * 8 - 2
    there = "gpu-002 mlx5_3 is on su01-leaf05/3; gpu-002 mlx5_3 belongs to su01-leaf04/2"
    assert there in picture.text
    assert [box.lines[1] for box in picture.nodes] == ["", "✗ #1", "✗ #1", ""]


def test_a_pulled_cable_is_drawn_where_it_belongs() -> None:
    """Nothing is seen, so only the wanted end is drawn."""
    (picture,) = drawn(judged.pulled(judged.fleet(4, 4), PortRef("gpu-001", "mlx5_0")))
    assert [wrong.kind for wrong in picture.wrong] == ["wanted"]


def test_a_leaf_that_is_down_is_marked_itself() -> None:
    """The leaf has the sign, its nodes have none."""
    (picture,) = drawn(judged.leaf_down(judged.fleet(4, 4), 0, 7))
    assert [box.lines[1] for box in picture.leaves] == [*[""] * 7, "✗ #1"]
    assert not any(box.mark for box in picture.nodes)


def test_a_marked_leaf_of_a_domain() -> None:
    """A leaf is found by the name that its ports have, not by the one that is shown."""
    names = [f"leaf{rail}.example.net" for rail in range(8)]
    ends = [far_end(name, 1) for name in names]
    ports = tuple(FleetPort(f"mlx5_{rail}", far_end=end) for rail, end in enumerate(ends))
    group = Group("g", ("a",), tuple(end.switch for end in ends), None)
    down = finding("leaf-down", (), "look", key=["x"], actual=(names[2], None))
    fleet = Fleet((FleetNode("a", ports=ports),), "nodes.json", NOW)
    (picture,) = drawn(Judged(fleet, (down,), (group,)))
    assert [box.lines for box in picture.leaves if box.mark] == [("leaf2", "✗ #1")]


def test_pictures_stay_small() -> None:
    """A large group is drawn in parts, those with findings only."""
    names = [f"gpu-{number:03}" for number in range(1, 33)]
    fleet = judged.fleet(32, 32)
    for name in names[1::2]:
        fleet = judged.slow(fleet, PortRef(name, "mlx5_0"))
    assert [len(picture.nodes) for picture in drawn(fleet)] == [PER_PICTURE] * 4
    only = judged.slow(judged.fleet(32, 32), PortRef("gpu-031", "mlx5_0"))
    (picture,) = drawn(only)
    assert [box.title for box in picture.nodes] == [
        "gpu-001 to gpu-030: 30 nodes",
        "gpu-031",
        "gpu-032",
    ]


def test_leaves_of_other_groups() -> None:
    """A cable to a leaf of another group brings that leaf into the picture."""
    refs = PortRef("gpu-001", "mlx5_0"), PortRef("gpu-005", "mlx5_0")
    fleet = judged.swapped(judged.fleet(8, 4), *refs)
    first, second = (drawn(fleet, group)[0] for group in (0, 1))
    assert first.leaves[-1].title == "su02-leaf01"
    assert second.leaves[-1].title == "su01-leaf01"


def test_many_numbers_and_long_names_fit() -> None:
    """A box has room for two numbers and fourteen characters."""
    fleet = judged.fleet(4, 4)
    for rail in range(4):
        fleet = judged.slow(fleet, PortRef("gpu-001", f"mlx5_{rail}"))
    (picture,) = drawn(fleet)
    assert picture.nodes[0].lines[1] == "! #1 #2 …"
    hostile = drawn(judged.hostile())[0]
    assert max(len(line) for box in (*hostile.nodes, *hostile.leaves) for line in box.lines) <= 14
