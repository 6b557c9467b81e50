"""Build and decode performance management datagrams (PerfMgt, class 0x04), Get only.

They are general management datagrams to queue pair 1 of the LID that has the port: a switch's LID
for all ports of that switch. IBTA vol. 1, clause 16.1; rdma-core has the fields in libibmad
(IB_PC_*, IB_PC_EXT_*), the kernel in include/rdma/ib_pma.h and ib_mad.h (struct
ib_class_port_info), opensm in ib_types.h.

Invariants:
- No request built here can change anything: `require_get` rejects any bytes that `get` cannot make.
- A reply is accepted only if it is 256 bytes long, matches the request's TransactionID and
  attribute, reports success and is about the port that was selected. Anything else is Malformed;
  the message names the field.

PortCounters is mandatory, and its counters stop at their maximum. Where one stands there, and
ClassPortInfo says that the node has error counters of 64 bits, PortCountersExtended is asked for.
So a link without errors costs one request.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable
from typing import NamedTuple

from agent.errors import Malformed
from agent.infiniband import smp
from agent.infiniband.smp import Conversation, Exchange, expect, transaction

CLASS, CLASS_VERSION = 0x04, 1  # UMAD_CLASS_PERF_MGMT, 16.1.1
_DATA = 64  # octet of the attribute
_EXTENDED, _ADDITIONAL = 1 << 9, 1 << 1  # CapabilityMask, CapabilityMask2 of ClassPortInfo

_CLASS_PORT_INFO = struct.Struct(">2xHI")  # CapabilityMask; CapabilityMask2 (27 bits), RespTime
_COUNTERS = struct.Struct(">xB2xHBBHH7xB")
_EXTENDED_COUNTERS = struct.Struct(">xB70x5Q32x2Q")  # no switch relay errors, discards, constraints


class PerfAttribute(enum.IntEnum):
    """AttributeID of the attributes that a request may Get, 16.1.3."""

    CLASS_PORT_INFO = 0x0001
    PORT_COUNTERS = 0x0012
    PORT_COUNTERS_EXTENDED = 0x001D


_ATTRIBUTE = 17  # octet of a MAD: the lower half of AttributeID
_KEPT = {  # octets of an attribute that are decoded
    PerfAttribute.CLASS_PORT_INFO: (slice(2, 8),),
    PerfAttribute.PORT_COUNTERS: (slice(1, 2), slice(4, 12), slice(19, 20)),
    PerfAttribute.PORT_COUNTERS_EXTENDED: (slice(1, 2), slice(72, 112), slice(144, 160)),
}


class Counters(NamedTuple):
    """The error counters of a port, PortCounters (16.1.3.5)."""

    symbol_error: int
    link_error_recovery: int
    link_downed: int
    port_rcv_errors: int
    port_rcv_remote_physical_errors: int
    local_link_integrity_errors: int
    excessive_buffer_overrun_errors: int


WIDTHS = Counters(16, 8, 8, 16, 16, 4, 4)  # bits in PortCounters, at whose maximum they stop
MAXIMA = Counters(*((1 << bits) - 1 for bits in WIDTHS))


class PortReading(NamedTuple):
    """The counters of a port as they were read."""

    counters: Counters
    is_extended: bool = False  # of 64 bits, so that none stands at a maximum

    @property
    def saturated(self) -> tuple[str, ...]:
        """The counters that stand at their maximum, and may have counted on."""
        if self.is_extended:
            return ()
        rows = zip(Counters._fields, self.counters, MAXIMA, strict=True)
        return tuple(name for name, value, most in rows if value == most)


def get(attribute: PerfAttribute, tid: int, port: int) -> bytes:
    """Build the 256 bytes of a Get about a port (1 to 254) of the node with the LID sent to.

    Raises Malformed if `port` is out of range.
    """
    if not 1 <= port <= smp.LAST_PORT:
        raise Malformed(f"PerfMgt request: {port} is no port number (1 to {smp.LAST_PORT})")
    fields = 0, 0, tid & 0xFFFFFFFF, PerfAttribute(attribute), 0
    head = smp.HEADER.pack(1, CLASS, CLASS_VERSION, smp.GET, *fields)
    select = b"\0" if attribute is PerfAttribute.CLASS_PORT_INFO else bytes((0, port))
    return (head.ljust(_DATA, b"\0") + select).ljust(smp.LENGTH, b"\0")


def require_get(request: bytes) -> tuple[int, int]:
    """Return (port, TransactionID) of a request that `get` can build, port 0 for ClassPortInfo.

    Raises Malformed for any other bytes.
    """
    smp.require_length("PerfMgt request", request)
    attribute, tid = smp.allowed("PerfMgt request", request, PerfAttribute), transaction(request)
    port = request[_DATA + 1]
    if request != get(attribute, tid, port or 1):
        raise Malformed("PerfMgt request: not a plain Get")
    return port, tid


def decode(reply: bytes, request: bytes) -> bytes:
    """Return the 192 bytes of attribute data of the reply to `request`.

    Raises Malformed if the reply does not match the request or reports an error.
    """
    smp.require_length("PerfMgt request", request)
    smp.require_length("PerfMgt reply", reply)
    smp.require_reply("PerfMgt reply", reply, request)
    smp.require_success("PerfMgt reply", int.from_bytes(reply[smp.STATUS], "big"))
    if request[_ATTRIBUTE] != PerfAttribute.CLASS_PORT_INFO:
        expect("PerfMgt reply", "PortSelect", reply[_DATA + 1], request[_DATA + 1])
    return reply[_DATA:]


def has_extended_errors(data: bytes) -> bool:
    """Return True if ClassPortInfo says that PortCountersExtended has the error counters, too."""
    mask, mask2 = _CLASS_PORT_INFO.unpack_from(data)
    return bool(mask & _EXTENDED and (mask2 >> 5) & _ADDITIONAL)


def port_counters(data: bytes) -> PortReading:
    """Decode PortCounters; the last two counters share an octet."""
    _, symbol, recovery, downed, received, remote, links = _COUNTERS.unpack_from(data)
    both = links >> 4, links & 0x0F
    return PortReading(Counters(symbol, recovery, downed, received, remote, *both))


def port_counters_extended(data: bytes) -> PortReading:
    """Decode the error counters of PortCountersExtended."""
    _, *counters = _EXTENDED_COUNTERS.unpack_from(data)
    return PortReading(Counters(*counters), is_extended=True)


def conversation(port: int, tid: int) -> Conversation[PortReading]:
    """Read the counters of a port: yield requests, return what was read.

    Takes three transaction IDs from `tid` on. Raises Malformed, and the exception that was thrown
    in for an unanswered request.
    """
    reading = port_counters((yield from _query(get(PerfAttribute.PORT_COUNTERS, tid, port))))
    if reading.saturated:
        about = yield from _query(get(PerfAttribute.CLASS_PORT_INFO, tid + 1, port))
        if has_extended_errors(about):
            request = get(PerfAttribute.PORT_COUNTERS_EXTENDED, tid + 2, port)
            reading = port_counters_extended((yield from _query(request)))
    return reading


def _query(request: bytes) -> Conversation[bytes]:
    reply = yield request
    return decode(reply, request)


def rebuilt(exchange: Exchange) -> Exchange:
    """Return a recorded exchange whose reply has nothing but what is decoded of it."""
    request, reply = exchange.request, exchange.reply
    require_get(request)
    if reply is None:
        return exchange
    data = bytearray(len(decode(reply, request)))
    for octets in _KEPT[PerfAttribute(request[_ATTRIBUTE])]:
        data[octets] = reply[_DATA:][octets]
    head = request[:3] + bytes((smp.GET | smp.RESPONSE, 0, 0)) + request[6:_DATA]
    return Exchange(request, head + bytes(data), exchange.error)


def replay(exchanges: Iterable[Exchange], port: int) -> PortReading:
    """Return what a recorded conversation about a port has read.

    Raises Unavailable with the recorded reason, and Malformed for other content.
    """

    def begin(first: bytes) -> Conversation[PortReading]:
        asked, tid = require_get(first)
        expect("PerfMgt request", "PortSelect", asked, port)
        return conversation(port, tid)

    return smp.replay_of(exchanges, begin)
