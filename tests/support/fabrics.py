"""Fabrics for ibsim, and the neighbor that smpquery (infiniband-diags) finds on one."""

from __future__ import annotations

from tests.support.fabric import Fabric

LINKED = """
Switch 8 "leaf1"
[1] "host1"[1]
[2] "host2"[1]
[8] "leaf2"[8]

Switch 8 "leaf2"
[3] "host3"[1]
[8] "leaf1"[8]

Hca 1 "host1"
[1] "leaf1"[1]

Hca 1 "host2"
[1] "leaf1"[2]

Hca 1 "host3"
[1] "leaf2"[3]
"""
BACK_TO_BACK = """
Hca 1 "left"
[1] "right"[1]

Hca 1 "right"
[1] "left"[1]
"""
TWO_LEAVES = LINKED + BACK_TO_BACK  # one opensm manages either part
# What ibnetdiscover prints of one NDR switch with one host on it.
MANAGED = """
vendid=0x2c9
devid=0xd2f2
sysimgguid=0xb0cf0e0300d66c80
switchguid=0xb0cf0e0300d66c80(b0cf0e0300d66c80)
Switch\t65 "S-b0cf0e0300d66c80"\t\t# "MF0;L90.1.3:MQM9700/U1" enhanced port 0 lid 1 lmc 0
[3]\t"H-b83fd20300aabb00"[1](b83fd20300aabb00) \t\t# "node005 mlx5_0" lid 22 4xNDR

vendid=0x2c9
devid=0x1021
sysimgguid=0xb83fd20300aabb00
caguid=0xb83fd20300aabb00
Ca\t1 "H-b83fd20300aabb00"\t\t# "node005 mlx5_0"
[1](b83fd20300aabb00) \t"S-b0cf0e0300d66c80"[3]\t\t# lid 22 lmc 0 "MF0;L90.1.3:MQM9700/U1" \
lid 1 4xNDR
"""
# Its NodeDescription, "node005 mlx5_0", is no name that ibsim takes.
MANAGED_HOST = "H-b83fd20300aabb00"


# Two pods below two cores; an HCA with the DeviceID of a CA inside a switch.
_PODS = """
devid=0xcf09
Hca 1 "inside"
[1] "leaf1"[8]

devid=0x1021
Hca 1 "host1"
[1] "leaf1"[1]

Hca 1 "host2"
[1] "leaf3"[1]
"""
_PODS_LINKS = [
    *((f"leaf{leaf}", 3 + spine, f"spine{spine}", leaf) for leaf in (1, 2) for spine in (1, 2)),
    *((f"leaf{leaf}", 1 + spine, f"spine{spine}", leaf) for leaf in (3, 4) for spine in (3, 4)),
    *(
        (f"spine{spine}", 4 + core, f"core{core}", spine)
        for spine in (1, 2, 3, 4)
        for core in (1, 2)
    ),
    ("leaf1", 8, "inside", 1),
    ("leaf1", 1, "host1", 1),
    ("leaf3", 1, "host2", 1),
]


def pods() -> str:
    """Return the netlist, which has each link at both ends."""
    rows: dict[str, list[str]] = {}
    for one, port, other, far in _PODS_LINKS:
        rows.setdefault(one, []).append(f'[{port}] "{other}"[{far}]')
        rows.setdefault(other, []).append(f'[{far}] "{one}"[{port}]')
    switches = [
        "\n".join([f'Switch 8 "{name}"', *links, ""])
        for name, links in rows.items()
        if name.startswith(("leaf", "spine", "core"))
    ]
    return "\n".join(["", *switches]) + _PODS


def one_leaf(*hosts: str) -> str:
    """Return the netlist of a switch `leaf1` with these hosts on its ports."""
    rows = [f'[{port}] "{host}"[1]' for port, host in enumerate(hosts, 1)]
    ends = [f'\nHca 1 "{host}"\n[1] "leaf1"[{port}]' for port, host in enumerate(hosts, 1)]
    return "\n".join(['Switch 8 "leaf1"', *rows, *ends, ""])


NODE_TYPES = {"Channel Adapter": "CA", "Switch": "switch", "Router": "router"}


def by_smpquery(fabric: Fabric, host: str) -> tuple[str, str, str, str]:
    """Return type, GUID, port and name of a host's neighbor, read by infiniband-diags."""
    info = fabric.smpquery(host, "nodeinfo", "0,1")
    return (
        NODE_TYPES[info["NodeType"]],
        info["Guid"].removeprefix("0x"),
        info["LocalPort"],
        fabric.smpquery(host, "nodedesc", "0,1")["Node Description"],
    )
