"""Build and decode directed-route subnet management packets (SMPs), Get only.

Invariants:
- No request built here can change anything. `get` makes a SubnGet() of a read-only attribute for
  the node at the far end of the local port's cable, or, for agent/infiniband/walk.py, over several
  hops; `require_get` rejects any other bytes.
- A reply is accepted only if it is 256 bytes long, matches the request's TransactionID and
  attribute, has the D bit set and reports success. Anything else is Malformed; the message names
  the field.

Directed routing (IBTA vol. 1, 14.2.2) needs neither a LID nor a subnet manager, so neighbors are
known from INIT on: both ends of the path are the permissive LID, and the path is "out of this
port", InitialPath [0, port]. The layouts are those of 13.4.2 (MAD header), 14.2.1.2 (directed-route
SMP) and 14.2.5 (attributes); rdma-core has them as struct umad_smp in umad_sm.h, and as the
IB_NODE_* fields of libibmad.

A conversation is a generator that yields requests and is sent replies, so that an HCA and a
recording can both answer it. A caller without a reply throws Unavailable into it. NodeInfo alone
identifies the neighbor. NodeDescription is requested up to DESCRIPTION_TRIES times, since a busy
switch drops or refuses it; after that it is unknown.
"""

import enum
import struct
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, Self, TypeVar, cast

from agent import node_description as nodedesc
from agent.errors import Malformed, Unavailable
from agent.infiniband.devices import LAST_UNICAST_LID, recorded_reason
from agent.model import IbNeighbor
from agent.reasons import NeighborReason

A = TypeVar("A", bound=enum.IntEnum)
T = TypeVar("T")
Conversation = Generator[bytes, bytes, T]  # yields requests, is sent replies, returns T

LENGTH = 256  # bytes of a MAD, 13.4.2
DESCRIPTION_TRIES = 3
GET, RESPONSE = 0x01, 0x80  # Method, and its bit R
_CLASS, _CLASS_VERSION = 0x81, 1  # UMAD_CLASS_SUBN_DIRECTED_ROUTE
_RETURNING = 0x8000  # the D bit of Status: the packet is on its way back
LAST_PORT = 254
MAX_HOPS = 6  # agent/infiniband/walk.py: the leaf, its tiers, and what is beside and beyond them
# BaseVersion, MgmtClass, ClassVersion, Method, Status, what a class defines, TransactionID,
# AttributeID, AttributeModifier
HEADER = struct.Struct(">4B2HQH2xI")
STATUS, _ATTRIBUTE, _MODIFIER = slice(4, 6), slice(16, 18), slice(20, 24)  # octets of a header
# octets that a reply has as its request; the upper half of TransactionID is the kernel's
_ECHOED = {
    "BaseVersion": slice(1),
    "MgmtClass": slice(1, 2),
    "ClassVersion": slice(2, 3),
    "AttributeID": _ATTRIBUTE,
    "TransactionID": slice(12, 16),
}
_HOPS = 7  # octet of HopCount, the lower one of a header that a class defines
_DATA, _INITIAL_PATH = slice(64, 128), slice(128, 192)
_M_KEY_TO_DATA = bytes(8) + b"\xff\xff" * 2 + bytes(28 + 64)  # both LIDs are the permissive one
_LID, PORT_STATE = slice(16, 18), 32  # octets of PortInfo, 14.2.5.6

_NODE_TYPES = {1: "CA", 2: "switch", 3: "router"}
BUSY = 0x0001  # the bit of any MAD's status, 13.4.7
STATUSES = {  # of any MAD, 13.4.7
    BUSY: "busy",
    0x0002: "redirected",
    0x0004: "bad version",
    0x0008: "method not supported",
    0x000C: "attribute not supported",
    0x001C: "invalid attribute value",
}


class Attribute(enum.IntEnum):
    """AttributeID of the attributes that a request may Get, 14.2.5.

    PORT_INFO has the far end's LID; of neighbors only bwagent 0.1.0 recorded it.
    """

    NODE_DESCRIPTION = 0x0010
    NODE_INFO = 0x0011
    PORT_INFO = 0x0015


_NODE_INFO = struct.Struct(">2x2B8s8s8s2xH4xB27x")


class PortUnavailable(Unavailable):
    """A port that cannot be queried, or whose far end or subnet administrator does not answer.

    `reason` is NO_ANSWER, NOT_PERMITTED, NO_UMAD (library, kernel module or device node missing),
    REFUSED (no subnet management interface), SEND_FAILED, or one of agent/infiniband/sa.py.
    """

    def __init__(self, reason: NeighborReason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Busy(Malformed):
    """A reply without data, of a node that is busy: the same request may be answered later."""


class Exchange(NamedTuple):
    """One request and its reply; without a reply, `error` is the reason (`no-answer`)."""

    request: bytes
    reply: bytes | None
    error: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the exchange as the SMP helper writes it, with both packets in hex."""
        reply = None if self.reply is None else self.reply.hex()
        return {"request": self.request.hex(), "reply": reply, "error": self.error}

    @classmethod
    def from_json(cls, entry: Any) -> Self:
        """Return the exchange that `as_json` wrote; raises Malformed for any other content."""
        try:
            request, reply, error = (entry[key] for key in ("request", "reply", "error"))
            return cls(
                bytes.fromhex(request),
                None if reply is None else bytes.fromhex(reply),
                None if error is None else recorded_reason(error),
            )
        except (KeyError, TypeError, ValueError) as fault:
            raise Malformed(f"a recorded exchange is malformed: {fault}") from fault


def get(attribute: Attribute, tid: int, *route: int, modifier: int = 0) -> bytes:
    """Build the 256 bytes of a Get from the node at the end of a route.

    That is the local port (1 to 254) of the cable, then the ports of switches. `tid` has 32 bits:
    the kernel puts its agent's number into the upper half of the TransactionID. Raises Malformed if
    a port is out of range, and for more than MAX_HOPS.
    """
    for port in route:
        if not 1 <= port <= LAST_PORT:
            raise Malformed(f"SMP request: {port} is no port number (1 to {LAST_PORT})")
    if not 1 <= (hops := len(route)) <= MAX_HOPS:
        raise Malformed(f"SMP request: {hops} hops (1 to {MAX_HOPS})")
    fields = 0, hops, tid & 0xFFFFFFFF, Attribute(attribute), modifier
    head = HEADER.pack(1, _CLASS, _CLASS_VERSION, GET, *fields)
    return (head + _M_KEY_TO_DATA + bytes((0, *route))).ljust(LENGTH, b"\0")


def require_get(request: bytes, hops: int = 1) -> tuple[tuple[int, ...], int]:
    """Return (route, TransactionID) of a request that `get` can build, over up to so many hops.

    Raises Malformed for any other bytes.
    """
    require_length("SMP request", request)
    expect("SMP request", "MgmtClass", request[1], _CLASS)
    expect("SMP request", "Method", request[3], GET)
    attribute = allowed("SMP request", request, Attribute)
    modifier = int.from_bytes(request[_MODIFIER], "big")
    tid, count = transaction(request), request[_HOPS]
    route = tuple(request[_INITIAL_PATH][1 : count + 1])
    if not 1 <= count <= hops or request != get(attribute, tid, *route, modifier=modifier):
        words = "one hop" if hops == 1 else f"1 to {hops} hops"
        raise Malformed(f"SMP request: not a plain Get over {words}")
    return route, tid


require_routed_get = partial(require_get, hops=MAX_HOPS)


def is_smp(mad: bytes) -> bool:
    """Return True for a MAD of this class."""
    return mad[1] == _CLASS


def transaction(mad: bytes) -> int:
    """Return the lower half of the TransactionID (bytes 8 to 15); the upper is the kernel's."""
    return int.from_bytes(mad[12:16], "big")


def decode(reply: bytes, request: bytes) -> bytes:
    """Return the 64 bytes of attribute data of the reply to `request`.

    Raises Malformed if the reply does not match the request or reports an error, Busy for that one.
    """
    require_length("SMP reply", reply)
    require_length("SMP request", request)
    require_reply("SMP reply", reply, request)
    status = int.from_bytes(reply[STATUS], "big")
    expect("SMP reply", "D bit", status & _RETURNING, _RETURNING)
    if request[_HOPS] > 1 and reply[_INITIAL_PATH] != request[_INITIAL_PATH]:
        raise Malformed("SMP reply: InitialPath is that of another route")
    require_success("SMP reply", status & ~_RETURNING)
    return reply[_DATA]


def require_reply(mad: str, reply: bytes, request: bytes) -> None:
    """Raise Malformed unless a reply is that to a request, by its header."""
    expect(mad, "Method", reply[3], request[3] | RESPONSE)
    for field, octets in _ECHOED.items():
        value, wanted = (int.from_bytes(packet[octets], "big") for packet in (reply, request))
        expect(mad, field, value, wanted)


def require_success(mad: str, status: int) -> None:
    """Raise Malformed for a Status other than 0, Busy for that one."""
    if status:
        kind = Busy if status & BUSY else Malformed
        raise kind(f"{mad}: Status is {status:#06x} ({STATUSES.get(status, 'unknown')})")


def require_length(mad: str, octets: bytes) -> None:
    """Raise Malformed for a MAD of another length than LENGTH."""
    if len(octets) != LENGTH:
        raise Malformed(f"{mad}: {len(octets)} bytes instead of {LENGTH}")


def allowed(mad: str, request: bytes, attributes: type[A]) -> A:
    """Return the AttributeID of a request; raises Malformed for one that is none of these."""
    number = int.from_bytes(request[_ATTRIBUTE], "big")
    try:
        return attributes(number)
    except ValueError:
        raise Malformed(f"{mad}: AttributeID {number:#06x} is not allowed") from None


def expect(mad: str, field: str, value: int, wanted: int) -> None:
    """Raise Malformed unless a field of a MAD ("SMP reply") has this value."""
    if value != wanted:
        raise Malformed(f"{mad}: {field} is {value:#x} instead of {wanted:#x}")


def port_state(data: bytes) -> int:
    """Return PortState of PortInfo: 1 is Down, 4 Active."""
    return data[PORT_STATE] & 0x0F


class NodeInfo(NamedTuple):
    """The fields of NodeInfo (14.2.5.3) that are used here; GUIDs are 16 lower-case hex digits."""

    node_type: str  # NodeType: "CA" | "switch" | "router"
    ports: int  # NumPorts
    sys_image_guid: str | None  # SystemImageGUID; None if zero
    node_guid: str  # NodeGUID
    device_id: int  # DeviceID
    local_port: int  # LocalPortNum: the far end's port that the request arrived on


def node_info(data: bytes) -> NodeInfo:
    """Decode NodeInfo from 64 bytes of attribute data.

    Raises Malformed for an unknown NodeType, or a NodeGUID or LocalPortNum of zero.
    """
    node_type, ports, system, node, _, device_id, local_port = _NODE_INFO.unpack(data)
    if node_type not in _NODE_TYPES:
        raise Malformed(f"NodeInfo: NodeType {node_type} does not exist")
    if not any(node):
        raise Malformed("NodeInfo: NodeGUID is zero")
    if not local_port:
        raise Malformed("NodeInfo: LocalPortNum is zero")
    return NodeInfo(
        node_type=_NODE_TYPES[node_type],
        ports=ports,
        sys_image_guid=system.hex() if any(system) else None,
        node_guid=node.hex(),
        device_id=device_id,
        local_port=local_port,
    )


def conversation(local_port: int, tid: int) -> Conversation[IbNeighbor]:
    """Identify the node at the far end of `local_port`: yield requests, return the neighbor.

    Takes two transaction IDs from `tid` on. Raises Malformed for a malformed NodeInfo, and the
    exception that was thrown in for an unanswered request.
    """
    info = node_info((yield from _query(get(Attribute.NODE_INFO, tid, local_port))))
    request, description = get(Attribute.NODE_DESCRIPTION, tid + 1, local_port), None
    for _ in range(DESCRIPTION_TRIES):  # None if no try has a valid reply
        with suppress(Malformed, Unavailable):
            description = nodedesc.text((yield from _query(request)))
            break
    return IbNeighbor(
        info.node_type, info.node_guid, info.sys_image_guid, info.local_port, description
    )


def far_lid(local_port: int, tid: int) -> Conversation[int]:
    """Ask the node at the far end of `local_port` for its LID: that of its port 0, or of a CA's.

    PortInfo is 14.2.5.6. Raises as `conversation`, and Malformed for a LID that is none.
    """
    data = yield from _query(get(Attribute.PORT_INFO, tid, local_port))
    lid = int.from_bytes(data[_LID], "big")
    if not 1 <= lid <= LAST_UNICAST_LID:
        raise Malformed(f"PortInfo: LID is {lid:#06x}")
    return lid


def _query(request: bytes) -> Conversation[bytes]:
    reply = yield request
    return decode(reply, request)


def converse(steps: Conversation[T], ask: Callable[[bytes], bytes]) -> T:
    """Run a conversation; `ask` returns the reply to a request or raises Unavailable."""
    try:
        request = next(steps)
        while True:
            try:
                reply = ask(request)
            except Unavailable as failure:
                request = steps.throw(failure)
            else:
                request = steps.send(reply)
    except StopIteration as end:
        return cast("T", end.value)


def replay(exchanges: Iterable[Exchange]) -> IbNeighbor:
    """Return the neighbor of a recorded conversation over SMPs; raises as `replay_of`."""

    def begin(first: bytes) -> Conversation[IbNeighbor]:
        (local_port,), tid = require_get(first)
        return conversation(local_port, tid)

    return replay_of(exchanges, begin)


def replay_of(exchanges: Iterable[Exchange], begin: Callable[[bytes], Conversation[T]]) -> T:
    """Return the result of a recorded conversation; `begin` makes it from its first request.

    Raises Unavailable with the recorded reason (`no-answer`), and Malformed for other content.
    """
    recorded = {exchange.request: exchange for exchange in exchanges}
    if not recorded:
        raise Unavailable("not-recorded")

    def ask(request: bytes) -> bytes:
        exchange = recorded.get(request)
        if exchange is None or exchange.reply is None:
            raise Unavailable((exchange and exchange.error) or "not-recorded")
        return exchange.reply

    return converse(begin(next(iter(recorded))), ask)
