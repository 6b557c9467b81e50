"""Packets of a subnet administrator, and the helper's record of them."""

from __future__ import annotations

import struct
from typing import Any

from agent.infiniband import sa
from agent.infiniband.sa import RecordType
from agent.model import IbNeighbor
from tests.support.smps import node_info

LID, LEAF_LID, TID = 22, 1, 1
ASK_LINK = sa.get_table(RecordType.LINK_RECORD, TID, LID)
ASK_NODE = sa.get_table(RecordType.NODE_RECORD, TID + 1, LEAF_LID)
ASK_SWITCHES, ASK_AGGREGATION = sa.get_switches(TID), sa.get_aggregation_nodes(TID)
LEAF = IbNeighbor(
    "switch", "b0cf0e0300d66c81", "b0cf0e0300d66c80", 3, "MF0;L90.1.3:MQM9700/U1", "sa"
)
NAME = b"MF0;L90.1.3:MQM9700/U1"
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
