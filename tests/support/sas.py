"""Packets of a subnet administrator, and the helper's record of them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from agent.infiniband import sa
from agent.infiniband.devices import AskingPort, Entries, SubnetPort
from agent.infiniband.exploration import (
    Exploration,
    KnownNames,
    LeafLook,
    Lids,
    Uplinks,
    explore,
    look,
    recording,
)
from agent.infiniband.sa import RecordType
from agent.model import IbNeighbor
from tests.support.smps import node_info

LID, LEAF_LID, TID = 22, 1, 1
ASK_LINK = sa.get_table(RecordType.LINK_RECORD, TID, LID)
ASK_NODE = sa.get_table(RecordType.NODE_RECORD, TID + 1, LEAF_LID)
ASK_SWITCHES, ASK_AGGREGATION = sa.get_switches(TID), sa.get_aggregation_nodes(TID)
LEAF = IbNeighbor(
    "switch",
    "b0cf0e0300d66c81",
    "b0cf0e0300d66c80",
    3,
    "MF0;L90.1.3:MQM9700/U1",
    via="sa",
    lid=LEAF_LID,
)
NAME = b"MF0;L90.1.3:MQM9700/U1"
GUID = 0xB0CF0E0300000000  # of a node, but for its LID
SEGMENTED = bytes((1, 1, 0x07, 0)) + struct.pack(">II", 1, 0)  # RMPP: the first and last segment


def link(to_lid: int = LEAF_LID, to_port: int = 3, lid: int = LID, port: int = 1) -> bytes:
    """A LinkRecord with its padding."""
    return struct.pack(">HBBH2x", lid, port, to_port, to_lid)


def node(
    lid: int = LEAF_LID, name: bytes = NAME, kind: int = 2, guid: int = 0xB0CF0E0300D66C81
) -> bytes:
    """A NodeRecord with its padding; its LocalPortNum is that of another port."""
    return struct.pack(">H2x40s64s4x", lid, node_info(kind, guid=guid, local_port=60), name)


def aggregation_node(lid: int, guid: int = 0xB0CF0E0300D66C88, device_id: int = 0xCF09) -> bytes:
    """The NodeRecord of the CA inside a switch."""
    record = bytearray(node(lid, b"Mellanox Technologies Aggregation Node", 1, guid))
    record[34:36] = device_id.to_bytes(2, "big")
    return bytes(record)


def reply(
    request: bytes,
    *records: bytes,
    status: int = 0,
    offset: int | None = None,
    rmpp: bytes = SEGMENTED,
) -> bytes:
    """Return the SA's reply of these records, as the kernel hands it over."""
    words = len(records[0]) // 8 if records and offset is None else offset or 0
    tid = int.from_bytes(request[8:16], "big") | 0x0000_0012_0000_0000
    head = request[:3] + struct.pack(">BHHQ", 0x92, status, 0, tid) + request[16:24]
    return head + rmpp + struct.pack(">QHHQ", 0, words, 0, 1) + b"".join(records)


LINKS, NODES = reply(ASK_LINK, link()), reply(ASK_NODE, node())


def exchanges(**of: Any) -> list[dict[str, Any]]:
    """A conversation in the helper's answer; `of` are the arguments of `node`."""
    replies = ((ASK_LINK, LINKS), (ASK_NODE, reply(ASK_NODE, node(**of))))
    return [
        {"request": request.hex(), "reply": answer.hex(), "error": None}
        for request, answer in replies
    ]


# Two pods of two leaves and two spines, below two cores; two hosts, and the CA inside a leaf.
CABLES = (
    ("leaf1/1", "host1/1"),
    ("leaf1/65", "inside1/1"),
    ("leaf2/1", "host2/1"),
    *((f"leaf{leaf}/{40 + spine}", f"spine{spine}/{leaf}") for leaf in (1, 2) for spine in (1, 2)),
    *((f"leaf{leaf}/{40 + spine}", f"spine{spine}/{leaf}") for leaf in (3, 4) for spine in (3, 4)),
    *(
        (f"spine{spine}/{30 + core}", f"core{core}/{spine}")
        for spine in (1, 2, 3, 4)
        for core in (1, 2)
    ),
)


class Administrator:
    """The SA of a subnet: the `AskSa` of an exploration.

    `cables` are pairs of ends, `leaf1/3`. A node that begins with host is a host, with inside a CA
    inside a switch, any other one a switch. Their LIDs count from 1, their GUIDs from `guid`.
    """

    def __init__(self, *cables: tuple[str, str], guid: int = GUID) -> None:
        ends = [[end.split("/") for end in cable] for cable in cables]
        names = dict.fromkeys(name for cable in ends for name, _ in cable)
        self.lids = {name: lid for lid, name in enumerate(names, 1)}
        self.links: dict[int, list[bytes]] = {lid: [] for lid in self.lids.values()}
        for (name, port), (far, far_port) in ends:
            self.join(name, int(port), far, int(far_port))
            self.join(far, int(far_port), name, int(port))
        self.asked, self._guid = list[bytes](), guid

    def join(self, name: str, port: int, far: str, far_port: int) -> None:
        """Add a LinkRecord."""
        row = link(self.lids[far], far_port, self.lids[name], port)
        self.links[self.lids[name]].append(row)

    def guid(self, name: str) -> str:
        """Return the node GUID of a node."""
        return f"{self._guid + self.lids[name]:016x}"

    def port(self, name: str, lid: int = LID) -> tuple[SubnetPort, str]:
        """Return a port, and the GUID of its leaf."""
        return SubnetPort(f"ib-{name}", 1, lid, 9, 0, 0), self.guid(name)

    def nodes(self, kind: int) -> list[bytes]:
        """Return the NodeRecords of all switches, or of the CAs inside them."""
        if kind == 1:
            inside = [name for name in self.lids if name.startswith("inside")]
            return [
                aggregation_node(self.lids[name], self._guid + self.lids[name]) for name in inside
            ]
        return [
            node(lid, name.encode(), kind, self._guid + lid)
            for name, lid in self.lids.items()
            if not name.startswith(("host", "inside"))
        ]

    def records(self, request: bytes) -> list[bytes]:
        """Return the records that were asked for."""
        lid, _ = sa.require_get_table(request)
        if lid:
            return self.links.get(lid, [])
        return self.nodes(2 if request[55] == 0x10 else 1)

    def explore(
        self,
        ports: Sequence[AskingPort],
        entries: Entries | None = None,
        known: KnownNames = MappingProxyType({}),
    ) -> Exploration:
        """Explore it: that of a Host."""
        ask = self if entries is None else recording(self, entries)
        return explore(ports, ask, TID, known)

    def look(self, ports: Sequence[AskingPort], uplinks: Uplinks, lids: Lids) -> LeafLook:
        """Look at the leaves: that of a Host."""
        return look(ports, self, TID, uplinks, lids)

    def renumber(self, by: int = 100) -> None:
        """Give each node another LID, as `opensm -r` does; their GUIDs stay."""
        self._guid -= by
        self.lids = {name: lid + by for name, lid in self.lids.items()}
        self.links = {
            lid + by: [
                link(*(int.from_bytes(row[4:6]) + by, row[3], lid + by, row[2])) for row in rows
            ]
            for lid, rows in self.links.items()
        }

    def __call__(self, _port: SubnetPort, request: bytes) -> bytes:
        self.asked.append(request)
        return reply(request, *self.records(request))
