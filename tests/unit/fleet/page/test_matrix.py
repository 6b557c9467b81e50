"""The matrix of a group: its rails, cells, and rows that are shared."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agent.findings.finding import PortRef
from agent.fleet.model import FleetNode, FleetPort
from agent.fleet.page.groups import FOLDED_FROM, RUN, Matrix, matrix
from agent.fleet.page.lookup import Leaves, Marks
from tests.support import judged

if TYPE_CHECKING:
    from agent.fleet.model import Judged


def of(fleet: Judged, group: int = 0) -> Matrix:
    """Return the matrix of one group."""
    nodes = {node.name: node for node in fleet.fleet.nodes}
    names = fleet.groups[group].nodes
    return matrix([nodes[name] for name in names], Leaves(fleet), Marks(fleet.findings))


def of_nodes(*nodes: FleetNode) -> Matrix:
    """Return the matrix of nodes whose leaves do not matter."""
    fleet = judged.fleet(0, 1)
    return matrix(nodes, Leaves(fleet), Marks(()))


def names(found: Matrix) -> list[str]:
    """Return the names of the rows."""
    return [row.name for row in found.rows]


def test_rails_are_pci_functions() -> None:
    """A node with other names has its ports in the columns of the same addresses."""
    nodes = [judged.node(name, 0, at) for at, name in enumerate("abc")]
    ports = tuple(port._replace(interface=f"ibp{at}") for at, port in enumerate(nodes[2].ports))
    fleet = judged.fleet(3, 3)
    fleet = fleet._replace(fleet=replace(fleet.fleet, nodes=tuple(nodes)))
    renamed = replace(nodes[2], ports=ports[1:])
    found = matrix([*nodes[:2], renamed], Leaves(fleet), Marks(()))
    assert [rail.interface for rail in found.rails] == [f"mlx5_{rail}" for rail in range(8)]
    cells = found.rows[2].cells[0]
    assert cells[0].port is None
    assert [cell.other_name for cell in cells[1:]] == [f"ibp{at}" for at in range(1, 8)]


def test_two_ports_of_one_function() -> None:
    """The legs of a bond and the planes of an HCA have a column each."""
    ports = tuple(FleetPort(f"mlx5_0-{at}", "0000:18:00.0") for at in (3, 6, 9, 12))
    found = of_nodes(FleetNode("a", ports=ports), FleetNode("b", ports=ports))
    assert [rail.interface for rail in found.rails] == [
        "mlx5_0-3",
        "mlx5_0-6",
        "mlx5_0-9",
        "mlx5_0-12",
    ]


def test_nodes_without_common_rails() -> None:
    """Nodes that share no address go by the order of their ports, not by a column each."""
    nodes = [
        FleetNode(str(at), ports=tuple(FleetPort(f"p{i}", f"{at}:{i}") for i in range(4)))
        for at in range(20)
    ]
    assert len(of_nodes(*nodes).rails) == 4


def test_no_ports() -> None:
    """A node without backend ports is a row without cells."""
    found = of_nodes(FleetNode("a"))
    assert (found.rails, names(found)) == ((), ["a"])


def test_small_groups_show_every_node() -> None:
    """Equal rows are shared in large groups only."""
    size = FOLDED_FROM - 1
    assert len(of(judged.fleet(size, size)).rows) == size
    assert names(of(judged.fleet(size + 1, size + 1))) == [f"gpu-001 to gpu-{size + 1:03}"]


def test_odd_nodes_stand_alone() -> None:
    """A node with a finding has its own row, between the runs of the other ones."""
    fleet = judged.swapped(
        judged.fleet(32, 32), PortRef("gpu-010", "mlx5_1"), PortRef("gpu-012", "mlx5_2")
    )
    expected = ["gpu-001 to gpu-009", "gpu-010", "gpu-011", "gpu-012", "gpu-013 to gpu-032"]
    assert names(of(fleet)) == expected


def test_a_short_run_is_not_shared() -> None:
    """Fewer than RUN equal nodes in a row stay apart."""
    fleet = judged.silent(judged.fleet(20, 20), f"gpu-{RUN:03}")
    assert names(of(fleet))[: RUN - 1] == [f"gpu-{at:03}" for at in range(1, RUN)]


def test_a_shared_row_tells_every_port() -> None:
    """The first and the last port in a cell; each node's own in the list."""
    fleet = judged.fleet(20, 20)
    port = PortRef("gpu-020", "mlx5_7")
    end = judged.far_end(judged.leaf(0, 7), 33)
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
    fleet = judged.changed(
        judged.fleet(20, 20), [PortRef("gpu-010", "mlx5_1")], lambda one: one._replace(gbps=200.0)
    )
    row = of(fleet).rows[1]
    assert (row.name, row.cells[0][1].other_gbps) == ("gpu-010", 200.0)
