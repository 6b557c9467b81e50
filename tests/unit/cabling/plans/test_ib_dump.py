"""Dumps of infiniband-diags: names of nodes and ports, and their defects."""

from __future__ import annotations

import pytest

from tests.support.plans import read_one, refusal

HEAD = 'Switch\t65 "S-b0cf0e0300d66c80"\t\t# "{}" enhanced port 0 lid 1 lmc 0\n'
PORT = '[3]\t"H-b83fd20300aabb00"[{}](b83fd20300aabb01) \t\t# "{}" lid 22 4xNDR\n'


def ends(text: str) -> list[str]:
    one = read_one(text).cables[0]
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


def test_a_log_that_lost_its_tabs_is_read() -> None:
    """A terminal's log may have spaces in their place, or nothing."""
    text = HEAD.format("leaf") + PORT.format(1, "gpu-1 mlx5_0")
    for gap in ("", "    "):
        assert ends(text.replace("\t", gap)) == ["leaf 3", "gpu-1 mlx5_0"]


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
    plan = read_one(text)
    assert [one.a.interface for one in plan.cables] == ["4"]
    assert plan.notes == (
        "1 row skipped, the far end has neither name nor GUID (the first: p, row 2)",
    )


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("ibnetdiscover", PORT.format(1, "g m"), ", row 1: a port before the first node"),
        ("ibnetdiscover", HEAD.format("leaf") + "?\n", ", row 2: not a line of this format: '?'"),
        ("ibnetdiscover", HEAD.format("leaf"), ": no cables"),
        (
            "iblinkinfo",
            LINK.format(1, 3, "2.5", 4, 1, "x"),
            ", row 1: a link before the first node",
        ),
        ("iblinkinfo", SWITCH + "?\n", ", row 2: not a line of this format: '?'"),
    ],
)
def test_defects(kind: str, text: str, message: str) -> None:
    """A line that is none of the format is named, and so is a dump without cables."""
    assert refusal(text, kind).startswith(f"p{message}")


SW, CA_1 = "0x7cfe9003009ce5b0", "0x7cfe9003003b4bde"
REPORT = (
    f"SW  1719 10 {SW} 4x EDR - CA   134  1 {CA_1} ( 'leaf - 1' - 'g-1 mlx5_0' )\n"
    f"CA   134  1 {CA_1} 4x EDR - SW    -1 10 {SW} ( 'g-1 mlx5_0' - 'leaf - 1' )\n"
    f"SW  1719 11 {SW} 4x SDR                                    'leaf - 1'\n"
)


def test_a_report_of_ports() -> None:
    """`ibnetdiscover -p` has both descriptions in a line; ports without a link are no cables."""
    plan = read_one(REPORT)
    assert plan.kind == "ibnetdiscover"
    [one] = plan.cables
    assert (one.a[:2], one.b[:2], one.rate_gbps) == (("leaf - 1", "10"), ("g-1", "mlx5_0"), 100.0)


@pytest.mark.parametrize(
    "dump",
    [
        HEAD.format("leaf") + PORT.format(1, "g mlx5_0"),
        SWITCH + LINK.format(1, 3, "106.25", 22, 1, "g mlx5_0"),
        REPORT.replace("leaf - 1", "leaf").replace("g-1", "g").replace(" 10 ", "  3 "),
    ],
)
@pytest.mark.parametrize(
    ("above", "below"),
    [
        ("\ufeff", ""),
        ("[root@mgmt01 ~]# iblinkinfo --line\n\n", "[root@mgmt01 ~]# exit\n"),
        ("=~=~=~= PuTTY log 2026.11.22 10:00:00 =~=~=~=\nadmin@ufm:~$ sudo ibnetdiscover\n", ""),
        (
            "Script started on 2026-11-22\n\ufeff",
            "sw-ib [standalone: master] # \nScript done on 1\n",
        ),
        ("ibwarn: [6931] sim_connect: attached\n", ""),
    ],
)
def test_a_log_of_a_terminal(above: str, below: str, dump: str) -> None:
    """A byte order mark, prompts and what a terminal writes around a dump are no part of it."""
    assert ends(above + dump + below) == ["leaf 3", "g mlx5_0"]
    assert bool(read_one(above + dump + below).notes) == (
        "\n" in above.removeprefix("ibwarn: [6931] sim_connect: attached\n")
    )


@pytest.mark.parametrize("below", [PORT[:30], PORT[:-30], "[3]", "Switch\t65 #"])
def test_a_dump_that_breaks_off(below: str) -> None:
    """A cut line at the end is not taken for a prompt."""
    text = HEAD.format("leaf") + PORT.format(1, "g mlx5_0") + below
    assert refusal(text).startswith("p, row 3: not a line of this format")


def test_a_prompt_within_a_dump() -> None:
    text = HEAD.format("leaf") + "root@mgmt:~# x\n" + PORT.format(1, "g mlx5_0")
    assert refusal(text) == "p, row 2: not a line of this format: 'root@mgmt:~# x'"


def test_negative_lids() -> None:
    """A port without a LID may be printed with -1."""
    text = HEAD.format("leaf") + PORT.format(1, "g mlx5_0").replace("lid 22", "lid -1")
    assert ends(text) == ["leaf 3", "g mlx5_0"]
    assert ends(SWITCH + LINK.format(1, 3, "106.25", -1, 1, "g mlx5_0")) == ["leaf 3", "g mlx5_0"]


@pytest.mark.parametrize(
    "text",
    [
        HEAD.format("leaf")
        + PORT.format(1, "g mlx5_0")
        + 'Ca\t2 "H-b83fd20300aabb00"\t\t# "g mlx5_0"\n',
        HEAD.format("leaf")
        + PORT.format(1, "g mlx5_0")
        + PORT.replace("[3]", "[4]").format(2, "g mlx5_0"),
        SWITCH
        + LINK.format(1, 3, "50.0", 22, 1, "g mlx5_0")
        + LINK.format(1, 4, "50.0", 23, 2, "g mlx5_0"),
    ],
)
def test_an_hca_with_two_ports(text: str) -> None:
    """Its first port has its number, as in labels: the bare name would be that of both."""
    assert ends(text) == ["leaf 3", "g mlx5_0-1"]
