"""Build and decode questions to the subnet administrator (SA): the far end of a LID's link.

The second way to a neighbor, for ports that cannot send SMPs: virtual functions, HCAs without a
subnet management interface, fabrics whose M_Key drops SMPs. It takes two questions: LinkRecord has
the LID and the port at the other end of a link, NodeRecord the node with that LID. The switches
above the neighbor take two tables more, of the whole subnet (agent/infiniband/exploration.py).

Invariants:
- No request built here can change anything. `get_table` makes a SubnAdmGetTable() of one of two
  record types for one LID, `get_switches` and `get_aggregation_nodes` one of NodeRecords, and
  `require_get_table` rejects any other bytes.
- A reply is accepted only if it matches the request's TransactionID and attribute, reports success,
  and consists of whole records. Anything else is Malformed, or PortUnavailable with the reason; the
  message names the field.
- A reply about one LID has at most MAX_LENGTH bytes, one about a subnet MAX_TABLE.

The layouts are those of IBTA vol. 1: 13.4.2 (MAD header), 13.6.2.1 (RMPP header), 15.2.1.1 (SA
header), 15.2.5 (records); rdma-core has them in umad_sa.h, opensm in ib_types.h. The kernel sends
and reassembles RMPP segments (drivers/infiniband/core/mad_rmpp.c), so a reply here is one packet of
any length, with the RMPP header of its first segment.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Generator, Iterable, Iterator
from typing import NamedTuple

from agent import node_description as nodedesc
from agent.errors import Malformed
from agent.infiniband import smp
from agent.infiniband.devices import AGGREGATION_NODE, LAST_UNICAST_LID
from agent.infiniband.smp import Conversation, Exchange, PortUnavailable, transaction
from agent.model import IbNeighbor
from agent.reasons import NeighborReason

CLASS, CLASS_VERSION = 0x03, 2  # UMAD_CLASS_SUBN_ADM, 15.2.1
MAX_LENGTH = 4096  # bytes of a reply: 35 NodeRecords, where one is expected
MAX_NODES = 10_000  # NodeRecords of a subnet
MAX_PLANES = 16  # links of one LID
TRIES = 2  # rounds of both questions: a LID may move to another node between them
_GET_TABLE = 0x12
# ComponentMask: the LID of a NodeRecord or the FromLID of a LinkRecord; of a NodeRecord
_BY_LID, _BY_NODE_TYPE, _BY_DEVICE_ID = 1 << 0, 1 << 4, 1 << 10
_RMPP_ACTIVE, _RMPP_LAST, _RMPP_DATA = 0x01, 0x04, 1  # RMPPFlags, RMPPType

_NO_RESOURCES, _NO_RECORDS = 0x0100, 0x0300  # 15.2.2
_STATUSES = smp.STATUSES | {  # 15.2.2
    0x0100: "insufficient resources",
    0x0200: "invalid request",
    0x0400: "too many records",
    0x0500: "invalid GID",
    0x0600: "insufficient components",
    0x0700: "request denied",
}


class RecordType(enum.IntEnum):
    """AttributeID of the records that a request may get, 15.2.5."""

    NODE_RECORD = 0x0011
    LINK_RECORD = 0x0020


class _Sa(NamedTuple):
    """The fields of a packet; the defaults are those of a SubnAdmGetTable by LID."""

    base_version: int = 1
    mgmt_class: int = CLASS
    class_version: int = CLASS_VERSION
    method: int = _GET_TABLE
    status: int = 0
    tid: int = 0
    attribute: int = 0
    modifier: int = 0
    rmpp_version: int = 0
    rmpp_type: int = 0
    rmpp_flags: int = 0  # the lower 3 bits; the others are RRespTime
    rmpp_status: int = 0
    segment: int = 0
    payload_length: int = 0
    sm_key: int = 0
    offset: int = 0  # AttributeOffset: of one record to the next, in units of 8 bytes
    component_mask: int = _BY_LID


_SA = struct.Struct(">4BH2xQH2xI4BIIQH2xQ")
_LINK_RECORD = struct.Struct(">HBBH")
_NODE_RECORD = struct.Struct(">H2x40s64s")
_SIZES = {RecordType.LINK_RECORD: _LINK_RECORD.size, RecordType.NODE_RECORD: _NODE_RECORD.size}
MAX_TABLE = _SA.size + MAX_NODES * (_NODE_RECORD.size + 4)  # bytes; of a multiple of 8 each
_NODE_INFO = 4  # octet of a NodeRecord
_NODE_TYPE, _DEVICE_ID, _LOCAL_PORT = 2, 30, 36  # octets in NodeInfo
_SWITCH = 2  # NodeType


class LinkRecord(NamedTuple):
    """A link: its near end, and its far end."""

    from_lid: int
    from_port: int
    to_port: int
    to_lid: int


def get_table(record_type: RecordType, tid: int, lid: int) -> bytes:
    """Build the 256 bytes of a SubnAdmGetTable of the records with this LID (FromLID of a link).

    Raises Malformed unless `lid` is a unicast LID.
    """
    if not 1 <= lid <= LAST_UNICAST_LID:
        raise Malformed(f"SA request: {lid:#06x} is no unicast LID")
    header = _Sa(tid=tid & 0xFFFFFFFF, attribute=RecordType(record_type))
    return (_SA.pack(*header) + lid.to_bytes(2, "big")).ljust(smp.LENGTH, b"\0")


def get_switches(tid: int) -> bytes:
    """Build a SubnAdmGetTable of the NodeRecords of all switches, which have one each."""
    return _get_nodes(tid, _BY_NODE_TYPE, _NODE_TYPE, bytes((_SWITCH,)))


def get_aggregation_nodes(tid: int) -> bytes:
    """Build a SubnAdmGetTable of the NodeRecords with DeviceID AGGREGATION_NODE."""
    return _get_nodes(tid, _BY_DEVICE_ID, _DEVICE_ID, AGGREGATION_NODE.to_bytes(2, "big"))


def _get_nodes(tid: int, component: int, octet: int, value: bytes) -> bytes:
    """Build a request for the NodeRecords whose NodeInfo has this value at an octet."""
    node = RecordType.NODE_RECORD
    header = _Sa(tid=tid & 0xFFFFFFFF, attribute=node, component_mask=component)
    return (_SA.pack(*header) + bytes(_NODE_INFO + octet) + value).ljust(smp.LENGTH, b"\0")


def require_get_table(request: bytes) -> tuple[int, int]:
    """Return (LID, TransactionID) of a request that can be built here, 0 for one without LID.

    Raises Malformed for any other.
    """
    header = _header(request, "request")
    if header.component_mask != _BY_LID:
        tid = transaction(request)
        if request not in (get_switches(tid), get_aggregation_nodes(tid)):
            raise Malformed("SA request: not a plain SubnAdmGetTable by LID, or of switches")
        return 0, tid
    tid, lid = transaction(request), int.from_bytes(request[_SA.size : _SA.size + 2], "big")
    record_type = smp.allowed("SA request", request, RecordType)
    if request != get_table(record_type, tid, lid):
        raise Malformed("SA request: not a plain SubnAdmGetTable by LID")
    return lid, tid


def max_length(request: bytes) -> int:
    """Return how many bytes the reply to a request may have."""
    is_by_lid = _header(request, "request").component_mask == _BY_LID
    return MAX_LENGTH if is_by_lid else MAX_TABLE


def _header(mad: bytes, kind: str, most: int = MAX_LENGTH) -> _Sa:
    if not _SA.size <= len(mad) <= most:
        raise Malformed(f"SA {kind}: {len(mad)} bytes instead of {_SA.size} to {most}")
    return _Sa._make(_SA.unpack_from(mad))


def decode(reply: bytes, request: bytes) -> Iterator[bytes]:
    """Iterate over the records of the reply to `request`; none if the SA has none.

    Raises Malformed for a reply that does not match the request, PortUnavailable for a refusal.
    """
    asked, header = _header(request, "request"), _header(reply, "reply", max_length(request))
    smp.require_reply("SA reply", reply, request)
    if header.status == _NO_RECORDS:
        return iter(())
    if header.status:
        is_busy = header.status & smp.BUSY or header.status == _NO_RESOURCES
        reason = NeighborReason.SA_BUSY if is_busy else NeighborReason.SA_REFUSED
        word = _STATUSES.get(header.status, "unknown")
        raise PortUnavailable(reason, f"SA reply: Status is {header.status:#06x} ({word})")
    # RMPPVersion 0: without the kernel, as under ibsim, nobody makes segments
    if header.rmpp_flags & _RMPP_ACTIVE and header.rmpp_version:
        if header.rmpp_type != _RMPP_DATA or header.rmpp_status:
            text = f"SA reply: RMPPType {header.rmpp_type}, RMPPStatus {header.rmpp_status}"
            raise Malformed(f"{text}: the transfer was given up")
        # The kernel gives a transfer of several segments as one packet, longer than a MAD.
        if len(reply) <= smp.LENGTH and not header.rmpp_flags & _RMPP_LAST:
            size = header.payload_length
            raise Malformed(f"SA reply: one segment of a transfer of {size} bytes")
    return _records(reply[_SA.size :], header.offset * 8, _SIZES[RecordType(asked.attribute)])


def encode(request: bytes, records: Iterable[bytes]) -> bytes:
    """Build the reply to `request` with these records, each as long as `decode` returns it."""
    asked = _header(request, "request")
    size = _padded(_SIZES[RecordType(asked.attribute)])
    header = asked._replace(method=_GET_TABLE | smp.RESPONSE, offset=size // 8)
    return _SA.pack(*header) + b"".join(record.ljust(size, b"\0") for record in records)


def _padded(size: int) -> int:
    return -(-size // 8) * 8


def node_record(record: bytes) -> tuple[int, bytes, bytes]:
    """Return the LID, NodeInfo (40 bytes) and NodeDescription (64 bytes) of a NodeRecord."""
    lid, info, description = _NODE_RECORD.unpack(record)
    return lid, info, description


class SubnetNode(NamedTuple):
    """A node of a subnet."""

    lid: int  # the base LID, 0 of a node that the subnet manager has not configured yet
    info: smp.NodeInfo
    description: str


def nodes(reply: bytes, request: bytes) -> Iterator[SubnetNode]:
    """Decode the reply to `get_switches` or `get_aggregation_nodes`; raises as `decode`.

    Raises Malformed for a node of another kind than was asked for.
    """
    is_of_switches = _header(request, "request").component_mask == _BY_NODE_TYPE
    for record in decode(reply, request):
        lid, octets, description = node_record(record)
        info = _node_info(octets, 1)
        kind = "switch" if is_of_switches else "CA"
        if info.node_type != kind or not (is_of_switches or info.device_id == AGGREGATION_NODE):
            text = f"{info.node_type} {info.device_id:04x}"
            raise Malformed(f"SA reply: NodeRecord of the {text} {info.node_guid}, not of a {kind}")
        if lid > LAST_UNICAST_LID:
            raise Malformed(f"SA reply: NodeRecord of LID {lid:#06x}")
        yield SubnetNode(lid, info, nodedesc.text(description))


def _node_info(octets: bytes, port: int) -> smp.NodeInfo:
    """Decode NodeInfo with this LocalPortNum: its own is where the SM's packet arrived."""
    info = octets[:_LOCAL_PORT] + bytes((port,)) + octets[_LOCAL_PORT + 1 :]
    return smp.node_info(info.ljust(64, b"\0"))


def links(reply: bytes, request: bytes) -> list[LinkRecord]:
    """Return the links of the LID in the request, each once, in the order of its ports (planes).

    Raises as `decode`; PortUnavailable for a record of another LID.
    """
    lid, _ = require_get_table(request)
    decoded = sorted({LinkRecord._make(_LINK_RECORD.unpack(row)) for row in decode(reply, request)})
    for link in decoded:
        if link.from_lid != lid:
            text = f"SA reply: LinkRecord of LID {link.from_lid} instead of {lid}"
            raise PortUnavailable(NeighborReason.SA_FOREIGN, text)
        if not 1 <= link.to_lid <= LAST_UNICAST_LID:
            raise Malformed(f"SA reply: LinkRecord from LID {lid} to {link.to_lid:#06x}")
    return decoded


def _records(data: bytes, offset: int, size: int) -> Iterator[bytes]:
    """Iterate over the records of `size` bytes, each `offset` bytes after the other.

    A MAD is as long as without padding, or filled with zeros; a record has no LID of zero. Nothing
    stands between two records but the padding of the first to a multiple of 8 bytes.
    """
    if not any(data):
        return
    starts = range(0, len(data) - size + 1, max(offset, 1))
    if offset < size or any(any(data[at + _padded(size) : at + offset]) for at in starts):
        raise Malformed(f"SA reply: AttributeOffset of {offset} bytes, a record has {size}")
    if any(data[len(starts) * offset :]):
        raise Malformed("SA reply: its last record is cut")
    yield from (data[at : at + size] for at in starts if any(data[at : at + size]))


def conversation(lid: int, tid: int) -> Conversation[IbNeighbor]:
    """Identify the far end of a LID's link: yield requests, return the neighbor.

    Takes transaction IDs from `tid` on. Raises PortUnavailable with the reason why there is none,
    Malformed, and the exception that was thrown in for an unanswered request.
    """
    tids = iter(range(tid, tid + TRIES * (MAX_PLANES + 1)))
    missing: set[int] = set()
    for _ in range(TRIES):
        request = get_table(RecordType.LINK_RECORD, next(tids), lid)
        of_lid = links((yield request), request)
        if not of_lid:
            raise PortUnavailable(NeighborReason.SA_NO_RECORD, f"no LinkRecord of LID {lid}")
        if len(of_lid) > MAX_PLANES:
            raise Malformed(f"SA reply: {len(of_lid)} links of LID {lid}")
        if any(link.to_lid == lid for link in of_lid):
            raise Malformed(f"SA reply: LinkRecord from LID {lid} to {lid:#06x}")
        ends = {}
        for link in of_lid:
            node = yield from _node(next(tids), link)
            if node is None:
                missing.add(link.to_lid)
                break
            ends[link] = node
        else:
            break
    else:
        text = f"no NodeRecord of LID {', '.join(map(str, sorted(missing)))}"
        raise PortUnavailable(NeighborReason.SA_NO_RECORD, text)
    # The first plane's far end, as the SMI device of a multi-plane HCA has it. The planes of one
    # port lead to one switch, which may have a node for each.
    (first_link, first), *others = ends.items()
    for link, node in others:
        is_same = node.node_guid == first.node_guid or (
            first.sys_image_guid is not None and node.sys_image_guid == first.sys_image_guid
        )
        if not is_same or link.from_port == first_link.from_port:
            names = f"{first.node_guid} port {first.port} and {node.node_guid} port {node.port}"
            raise PortUnavailable(NeighborReason.SA_AMBIGUOUS, f"LID {lid} leads to {names}")
    return first


def _node(tid: int, link: LinkRecord) -> Generator[bytes, bytes, IbNeighbor | None]:
    """Ask for the node at the far end of a link; None if no node has that LID (any more)."""
    request = get_table(RecordType.NODE_RECORD, tid, link.to_lid)
    far_ends = set()
    for record in decode((yield request), request):
        lid, info, description = node_record(record)
        if lid != link.to_lid:
            text = f"SA reply: NodeRecord of LID {lid} instead of {link.to_lid}"
            raise PortUnavailable(NeighborReason.SA_FOREIGN, text)
        node = _node_info(info, link.to_port)
        if link.to_port > node.ports:
            raise Malformed(f"SA reply: port {link.to_port} of a node with {node.ports}")
        text = nodedesc.text(description)
        ids = node.node_type, node.node_guid, node.sys_image_guid
        far_ends.add(IbNeighbor(*ids, link.to_port, text, "sa", lid))
    if len(far_ends) > 1:
        raise PortUnavailable(
            NeighborReason.SA_AMBIGUOUS, f"{len(far_ends)} nodes have LID {link.to_lid}"
        )
    return far_ends.pop() if far_ends else None


def replay(exchanges: Iterable[Exchange]) -> IbNeighbor:
    """Return the neighbor of a recorded conversation with the SA.

    Raises Unavailable with the recorded reason, PortUnavailable, and Malformed for other content.
    """
    return smp.replay_of(exchanges, lambda first: conversation(*require_get_table(first)))
