"""Directed-route subnet management packets, one hop long, and nothing but questions.

The law of this module: what it builds can change nothing. `get` makes a SubnGet() of one of three read-only attributes,
addressed to whatever the local port's cable leads to, and `require_get` takes no other bytes for a request. A reply is
believed only if it is 256 bytes long, belongs to that very request, came back along the route and says success; what is
anything else is Malformed, and the message names the field.

Directed routing (IBTA vol. 1, 14.2.2) needs neither a LID nor a subnet manager, so neighbours are known from INIT on:
both ends of the path are the permissive LID, and the path is "out of this port", InitialPath [0, port]. The layouts
are those of 13.4.2 (MAD header), 14.2.1.2 (directed-route SMP) and 14.2.5 (attributes); rdma-core has them as struct
umad_smp in umad_sm.h, and as the IB_NODE_* and IB_PORT_* fields of libibmad.

A conversation is a generator: it yields requests and is sent replies, so that it does not matter whether a HCA answers
or a recording does. Who has no reply throws Unavailable into it. NodeInfo is the neighbour; what is asked after it
only adornes it, so a lost or broken NodeDescription or PortInfo leaves its field unknown and the neighbour known.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from agent.errors import Malformed, Unavailable
from agent.infiniband import node_description as nodedesc
from agent.model import IbNeighbor

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    Exchanged = Generator[bytes, bytes, bytes]  # yields requests, is sent replies

T = TypeVar("T")

LENGTH = 256  # a MAD, 13.4.2
_BASE_VERSION = 1
_CLASS = 0x81  # UMAD_CLASS_SUBN_DIRECTED_ROUTE
_CLASS_VERSION = 1
_GET, _GET_RESP = 0x01, 0x81
_RETURNING = 0x8000  # the D bit: the packet is on its way back
_PERMISSIVE_LID = 0xFFFF
_LAST_PORT = 254

_NODE_TYPES = {1: "CA", 2: "switch", 3: "router"}
_PORT_STATES = {
    1: "DOWN",
    2: "INIT",
    3: "ARMED",
    4: "ACTIVE",
    5: "ACTIVE_DEFER",
}  # as sysfs spells them
_STATUSES = {  # 13.4.7
    0x0001: "busy",
    0x0002: "redirected",
    0x0004: "bad version",
    0x0008: "method not supported",
    0x000C: "attribute not supported",
    0x001C: "invalid attribute value",
}


class Attribute(enum.IntEnum):
    """What can be asked for: AttributeID, 14.2.5."""

    NODE_DESCRIPTION = 0x0010
    NODE_INFO = 0x0011
    PORT_INFO = 0x0015


class _Smp(NamedTuple):
    base_version: int
    mgmt_class: int
    class_version: int
    method: int
    status: int
    hop_pointer: int
    hop_count: int
    tid: int
    attribute: int
    modifier: int
    m_key: int
    dr_slid: int
    dr_dlid: int
    data: bytes
    initial_path: bytes
    return_path: bytes


_SMP = struct.Struct(">4BH2BQH2xIQ2H28x64s64s64s")
_NODE_INFO = struct.Struct(">2x2B8s8s8s8xB27x")


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and what came of it: a reply, or the word why there is none."""

    request: bytes
    reply: bytes | None
    error: str | None = None


def get(attribute: Attribute, tid: int, local_port: int, modifier: int = 0) -> bytes:
    """A Get of `attribute` from the node at the far end of `local_port` (1 to 254), 256 bytes; `tid` has 32 bits.

    The upper half of the TransactionID is left to the kernel, which puts its agent's number there.
    """
    if not 1 <= local_port <= _LAST_PORT:
        raise Malformed(f"SMP request: {local_port} is no port to go out of")
    path = bytes((0, local_port))
    head = (
        _BASE_VERSION,
        _CLASS,
        _CLASS_VERSION,
        _GET,
        0,
        0,
        1,
        tid & 0xFFFFFFFF,
        Attribute(attribute),
        modifier,
    )
    return _SMP.pack(*head, 0, _PERMISSIVE_LID, _PERMISSIVE_LID, b"", path, b"")


def require_get(request: bytes) -> tuple[int, int]:
    """(TransactionID, local port) of a request that `get` could have built; Malformed for any other bytes."""
    smp = _unpack(request, "request")
    _expect("request", "MgmtClass", smp.mgmt_class, _CLASS)
    _expect("request", "Method", smp.method, _GET)
    tid, local_port = smp.tid & 0xFFFFFFFF, smp.initial_path[1]
    if smp.attribute not in set(Attribute):
        raise Malformed(f"SMP request: AttributeID {smp.attribute:#06x} is never asked for")
    if request != get(Attribute(smp.attribute), tid, local_port, smp.modifier):
        raise Malformed("SMP request: not a plain Get over one hop")
    return tid, local_port


def transaction(mad: bytes) -> int:
    """What tells replies apart: the lower half of the TransactionID (bytes 8 to 15); the upper is the kernel's."""
    return int.from_bytes(mad[12:16], "big")


def decode(reply: bytes, request: bytes) -> bytes:
    """The 64 bytes of attribute data in a good `reply` to `request`."""
    smp, asked = _unpack(reply, "reply"), _unpack(request, "request")
    _expect("reply", "BaseVersion", smp.base_version, _BASE_VERSION)
    _expect("reply", "MgmtClass", smp.mgmt_class, _CLASS)
    _expect("reply", "ClassVersion", smp.class_version, _CLASS_VERSION)
    _expect("reply", "Method", smp.method, _GET_RESP)
    _expect("reply", "D bit", smp.status & _RETURNING, _RETURNING)
    _expect("reply", "AttributeID", smp.attribute, asked.attribute)
    _expect("reply", "TransactionID", transaction(reply), transaction(request))
    _expect_success(smp.status & ~_RETURNING)
    return smp.data


def _unpack(smp: bytes, what: str) -> _Smp:
    if len(smp) != LENGTH:
        raise Malformed(f"SMP {what}: {len(smp)} bytes instead of {LENGTH}")
    return _Smp._make(_SMP.unpack(smp))


def _expect(what: str, field: str, value: int, wanted: int) -> None:
    if value != wanted:
        raise Malformed(f"SMP {what}: {field} is {value:#x} instead of {wanted:#x}")


def _expect_success(status: int) -> None:
    if status:
        raise Malformed(f"SMP reply: Status is {status:#06x} ({_STATUSES.get(status, 'unknown')})")


class NodeInfo(NamedTuple):
    """14.2.5.3, without the fields that nobody here needs; GUIDs are 16 lower-case hex digits."""

    node_type: str
    ports: int
    sys_image_guid: str | None
    node_guid: str
    local_port: int


def node_info(data: bytes) -> NodeInfo:
    """NodeInfo out of 64 bytes of attribute data; LocalPortNum is the far end's port that the request came in by."""
    kind, ports, system, node, _, local_port = _NODE_INFO.unpack(data)
    if kind not in _NODE_TYPES:
        raise Malformed(f"NodeInfo: NodeType {kind} does not exist")
    if not any(node):
        raise Malformed("NodeInfo: NodeGUID is zero")
    if not local_port:
        raise Malformed("NodeInfo: LocalPortNum is zero")
    return NodeInfo(
        _NODE_TYPES[kind], ports, system.hex() if any(system) else None, node.hex(), local_port
    )


def port_state(data: bytes) -> str:
    """PortInfo.PortState (14.2.5.6) out of 64 bytes of attribute data, spelled as sysfs does."""
    state = data[32] & 0x0F
    if state not in _PORT_STATES:
        raise Malformed(f"PortInfo: PortState {state} does not exist")
    return _PORT_STATES[state]


def conversation(local_port: int, tid: int) -> Generator[bytes, bytes, IbNeighbor]:
    """Asks the far end of `local_port` who it is: yields requests, is sent replies, returns the neighbour.

    Takes three transaction IDs from `tid` on. Raises what is wrong with NodeInfo: Malformed, or what was thrown in.
    """
    info = node_info((yield from _ask(get(Attribute.NODE_INFO, tid, local_port))))
    description = yield from _try(
        get(Attribute.NODE_DESCRIPTION, tid + 1, local_port), nodedesc.text
    )
    # Zero is "the port that this came in by"; a switch would take it for its management port.
    selected = info.local_port if info.node_type == "switch" else 0
    state = yield from _try(get(Attribute.PORT_INFO, tid + 2, local_port, selected), port_state)
    return IbNeighbor(
        info.node_type,
        info.node_guid,
        info.sys_image_guid,
        info.local_port,
        info.ports,
        description,
        state,
    )


def _ask(request: bytes) -> Exchanged:
    reply = yield request
    return decode(reply, request)


def _try(request: bytes, read: Callable[[bytes], T]) -> Generator[bytes, bytes, T | None]:
    try:
        return read((yield from _ask(request)))
    except (Malformed, Unavailable):
        return None


def converse(local_port: int, tid: int, ask: Callable[[bytes], bytes]) -> IbNeighbor:
    """Holds a whole conversation: `ask` gives the reply to a request or raises Unavailable."""
    talk = conversation(local_port, tid)
    try:
        request = next(talk)
        while True:
            try:
                reply = ask(request)
            except Unavailable as failure:
                request = talk.throw(failure)
            else:
                request = talk.send(reply)
    except StopIteration as end:
        return cast("IbNeighbor", end.value)


def replay(exchanges: Iterable[Exchange]) -> IbNeighbor:
    """The neighbour that a recorded conversation tells of; Unavailable's text is the recorded word (`no-answer`)."""
    recorded = {exchange.request: exchange for exchange in exchanges}
    if not recorded:
        raise Unavailable("not-recorded")
    tid, local_port = require_get(next(iter(recorded)))
    return converse(local_port, tid, lambda request: _recorded_reply(recorded, request))


def _recorded_reply(recorded: dict[bytes, Exchange], request: bytes) -> bytes:
    exchange = recorded.get(request)
    if exchange is None or exchange.reply is None:
        raise Unavailable((exchange and exchange.error) or "not-recorded")
    return exchange.reply
