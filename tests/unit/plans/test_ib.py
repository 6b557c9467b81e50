"""Topologies of ibdm and dumps of infiniband-diags: names of nodes and ports, and their defects."""

from __future__ import annotations

import pytest

from agent.errors import Malformed
from agent.plans.reader import read_source
from agent.plans.source import Source

HEAD = 'Switch\t65 "S-b0cf0e0300d66c80"\t\t# "{}" enhanced port 0 lid 1 lmc 0\n'
PORT = '[3]\t"H-b83fd20300aabb00"[{}](b83fd20300aabb01) \t\t# "{}" lid 22 4xNDR\n'


def ends(text: str, kind: str | None = None) -> list[str]:
    """Return the ends of the first cable."""
    (plan,) = read_source(Source("d", text.encode()), kind)
    one = plan.cables[0]
    return [f"{end.node} {end.interface}" for end in (one.a, one.b)]


@pytest.mark.parametrize(
    ("switch", "host", "port", "expected"),
    [
        ("MF0;L90.1.3:MQM9700/U1", "gpu-1 mlx5_0", 1, ["L90.1.3 3", "gpu-1 mlx5_0"]),
        ("MF0;x800:Q3400_RA/U3", "gpu-1 HCA-1", 2, ["x800-U3 3", "gpu-1 HCA-1-2"]),
        (
            *("Quantum Mellanox Technologies", "MT4129 ConnectX7 Mellanox Technologies", 1),
            ["b0cf0e0300d66c80 3", "b83fd20300aabb00 1"],
        ),
    ],
)
def test_names(switch: str, host: str, port: int, expected: list[str]) -> None:
    """Factory texts are no names: the node GUID stands for them."""
    assert ends(HEAD.format(switch) + PORT.format(port, host)) == expected


def test_hosts_of_a_dump() -> None:
    """A section of a host has its GUID in parentheses before the far end."""
    text = (
        'Ca\t1 "H-b83fd20300aabb00"\t\t# "gpu-1 mlx5_0"\n'
        '[1](b83fd20300aabb01) \t"S-b0cf0e0300d66c80"[3]\t\t# lid 22 lmc 0 "leaf" lid 1 4xNDR\n'
    )
    assert ends(text) == ["gpu-1 mlx5_0", "leaf 3"]


LINK = '{:>14}{:>5}[  ] ==( 4X  {} Gbps Active/  LinkUp)==> {:>7} {:>4}[  ] "{}" ( )\n'
CA = "CA: gpu-1 mlx5_0:\n      0xb83fd20300aabb01"
SWITCH = "Switch: 0xb0cf0e0300d66c80 leaf:\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SWITCH + LINK.format(1, 3, "106.25", 22, 1, "gpu-1 mlx5_0"), ["leaf 3", "gpu-1 mlx5_0"]),
        (SWITCH + LINK.format(1, 3, "9.9", 22, 7, "MF0;spine:MQM9700/U1"), ["leaf 3", "spine 7"]),
        (CA + LINK.format(4, 1, "53.125", 1, 3, "leaf"), ["gpu-1 mlx5_0", "leaf 3"]),
    ],
)
def test_iblinkinfo(text: str, expected: list[str]) -> None:
    """A far end that has no section is a switch by its description, else a host."""
    assert ends(text) == expected


def test_an_unnamed_far_end_is_skipped() -> None:
    """Without a section and without --line, factory text leaves nothing to name a node by."""
    text = SWITCH + LINK.format(1, 3, "50.0", 22, 1, "Quantum Mellanox Technologies")
    text += LINK.format(1, 4, "50.0", 23, 1, "gpu-1 mlx5_0")
    (plan,) = read_source(Source("d", text.encode()))
    assert [one.a.interface for one in plan.cables] == ["4"]
    assert plan.notes == (
        "1 row skipped, the far end has neither name nor GUID (the first: d, row 2)",
    )


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("ibnetdiscover", PORT.format(1, "g m"), "d, row 1: a port before the first node"),
        ("ibnetdiscover", HEAD.format("leaf") + "?\n", "d, row 2: not a line of this format: '?'"),
        ("ibnetdiscover", HEAD.format("leaf"), "d: no cables"),
        (
            "iblinkinfo",
            LINK.format(1, 3, "2.5", 4, 1, "x"),
            "d, row 1: a link before the first node",
        ),
        ("iblinkinfo", SWITCH + "?\n", "d, row 2: not a line of this format: '?'"),
        ("topo", "P1 -> T sw P2\n", "d, row 1: a cable before the first system"),
        ("topo", "T sw\n", "d: no cables"),
    ],
)
def test_defects(kind: str, text: str, message: str) -> None:
    """A line that is none of the format is named, and so is a dump without cables."""
    with pytest.raises(Malformed) as raised:
        read_source(Source("d", text.encode()), kind)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    ("line", "expected", "rate"),
    [
        ("P2 -4x-50G-> HCA_1 gpu mlx5_0/P1", ["sw 2", "gpu mlx5_0"], 200.0),
        ("P2 -4x-14G-> HCA_1 gpu mlx5_0/P2", ["sw 2", "gpu mlx5_0-2"], 56.0),
        ("P1/2 -2x-NDR-> HCA_1 gpu U1/P1", ["sw 1/2", "gpu U1"], 200.0),
        ("P2 -> MT23108 H-1 P1  # a note", ["sw 2", "H-1 1"], None),
        ("L1/P1 -4x-> SW other X7", ["sw L1", "other X7"], None),
    ],
)
def test_topologies(line: str, expected: list[str], rate: float | None) -> None:
    """Ports of switches are numbers, those of hosts are HCAs; both keep the file's text."""
    text = f"# generated\nMQM8700 sw CFG: leaf3=R\n  {line}\n"
    (plan,) = read_source(Source("m.topo", text.encode()))
    one = plan.cables[0]
    assert [f"{end.node} {end.interface}" for end in (one.a, one.b)] == expected
    assert one.rate_gbps == rate
    assert plan.kind == "topo"
