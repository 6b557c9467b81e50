"""The pictures of a group, compared with its cables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent.findings.finding import PortRef, finding
from agent.fleet.model import Fleet, FleetNode, FleetPort, Group, Judged
from agent.fleet.page.groups import BOX, LEAF_BOTTOM, NODE_TOP, PER_PICTURE, matrix, pictures
from agent.fleet.page.lookup import Leaves, Marks
from tests.support import judged

if TYPE_CHECKING:
    from agent.fleet.page.groups import Box, Picture


def drawn(fleet: Judged, group: int = 0) -> list[Picture]:
    """Return the pictures of one group."""
    nodes = {node.name: node for node in fleet.fleet.nodes}
    leaves, marks = Leaves(fleet), Marks(fleet.findings)
    ours = fleet.groups[group]
    return pictures(
        ours, matrix([nodes[name] for name in ours.nodes], leaves, marks), leaves, marks
    )


def at(boxes: tuple[Box, ...], x: float) -> str:
    """Return the title of the box at a place."""
    (box,) = (box for box in boxes if box.x - 1 <= x <= box.x + BOX + 1)
    return box.title


def cables(picture: Picture) -> list[tuple[str, str]]:
    """Return the ends of the thin cables."""
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
    fleet = judged.swapped(
        judged.fleet(4, 4), PortRef("gpu-002", "mlx5_3"), PortRef("gpu-003", "mlx5_4")
    )
    (picture,) = drawn(fleet)
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
    assert (
        "gpu-002 mlx5_3 is on su01-leaf05/3; gpu-002 mlx5_3 belongs to su01-leaf04/2"
        in picture.text
    )
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
    ends = [judged.far_end(name, 1) for name in names]
    ports = tuple(FleetPort(f"mlx5_{rail}", far_end=end) for rail, end in enumerate(ends))
    group = Group("g", ("a",), tuple(end.switch for end in ends), None)
    down = finding("leaf-down", (), "look", key=["x"], actual=(names[2], None))
    fleet = Fleet((FleetNode("a", ports=ports),), "nodes.json", judged.NOW)
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
    fleet = judged.swapped(
        judged.fleet(8, 4), PortRef("gpu-001", "mlx5_0"), PortRef("gpu-005", "mlx5_0")
    )
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
