"""Rebuilds LLDP frames with replaced names, for an anonymized snapshot.

Invariants:
- nothing is copied because it looked harmless: a frame is rebuilt from the fields that the decoder
  uses (agent/lldp/frame.py), so descriptions, management addresses, organizational TLVs and TLVs of
  a later standard are left out;
- subtypes, capabilities, TTLs and VLAN tags are kept, names and addresses replaced; port names that
  identify nobody are kept (agent/snapshot/names.py, INTERFACE);
- a name has the same replacement in a System Name, a Port Description and an InfiniBand
  NodeDescription.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.errors import Malformed
from agent.ids import MAC
from agent.lldp import frame as lldp
from agent.lldp.frame import Frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent.model import LldpNeighbor
    from agent.snapshot.names import Names

    Tlv = tuple[int, bytes]  # type, value

MIN_FRAME = 60  # octets, without the frame check sequence
# TLV types, Table 8-1
_END, _CHASSIS_ID, _PORT_ID, _TTL, _PORT_DESCRIPTION, _SYSTEM_NAME, _CAPABILITIES = *range(6), 7
_CHASSIS_MAC, _PORT_MAC = 4, 3  # subtypes, IEEE Std 802.1AB-2016, Tables 8-2 and 8-3


def anonymized(frame: Frame, names: Names) -> Frame | None:
    """Return the rebuilt frame; None for a malformed one."""
    try:
        neighbor = lldp.decode(frame.data)
    except Malformed:
        return None
    data = _addresses(neighbor, names) + _tags(frame.data) + _lldpdu(neighbor, names)
    return Frame(names.text(frame.netdev), frame.time, data.ljust(MIN_FRAME, b"\0"))


def _addresses(neighbor: LldpNeighbor, names: Names) -> bytes:
    return names.mac(neighbor.destination_mac) + names.mac(neighbor.source_mac)


def _lldpdu(neighbor: LldpNeighbor, names: Names) -> bytes:
    tlvs = [*_mandatory(neighbor, names), *_optional(neighbor, names), (_END, b"")]
    return b"".join(map(_encoded, tlvs))


def _mandatory(neighbor: LldpNeighbor, names: Names) -> Iterator[Tlv]:
    yield _CHASSIS_ID, bytes((neighbor.chassis_subtype,)) + _chassis_id(neighbor, names)
    yield _PORT_ID, bytes((neighbor.port_id_subtype,)) + _port_id(neighbor, names)
    yield _TTL, neighbor.ttl.to_bytes(2, "big")


def _optional(neighbor: LldpNeighbor, names: Names) -> Iterator[Tlv]:
    if neighbor.port_description:
        yield _PORT_DESCRIPTION, names.port(neighbor.port_description).encode()
    if neighbor.system_name:
        yield _SYSTEM_NAME, names.peer(neighbor.system_name).encode()
    if neighbor.capabilities is not None:
        yield _CAPABILITIES, 2 * neighbor.capabilities.to_bytes(2, "big")


def _encoded(tlv: Tlv) -> bytes:
    kind, value = tlv
    return (kind << 9 | len(value)).to_bytes(2, "big") + value


def _chassis_id(neighbor: LldpNeighbor, names: Names) -> bytes:
    is_mac = neighbor.chassis_subtype == _CHASSIS_MAC
    return _identifier(neighbor.chassis_id, names, names.peer, is_mac=is_mac)


def _port_id(neighbor: LldpNeighbor, names: Names) -> bytes:
    is_mac = neighbor.port_id_subtype == _PORT_MAC
    return _identifier(neighbor.port_id, names, names.port, is_mac=is_mac)


def _identifier(
    text: str, names: Names, replacement: Callable[[str], str], *, is_mac: bool
) -> bytes:
    """Return the octets of an ID; a subtype MAC address without the form of one is a name."""
    if is_mac and MAC.fullmatch(text):
        return names.mac(text)
    return replacement(text).encode()


def _tags(frame: bytes) -> bytes:
    """Return the VLAN tags and the LLDP ethertype."""
    ethertype = lldp.ETHERTYPE.to_bytes(2, "big")
    end = next(at for at in (14, 18, 22) if frame[at - 2 : at] == ethertype)
    return frame[12:end]
