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

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from agent.errors import Malformed
from agent.ids import MAC
from agent.lldp import frame as lldp
from agent.lldp.frame import Frame
from agent.model import LldpNeighbor

if TYPE_CHECKING:  # a package that imports this one
    from agent.snapshot.names import Names

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
    ethertype = lldp.ETHERTYPE.to_bytes(2, "big")
    end = next(at for at in (14, 18, 22) if frame.data[at - 2 : at] == ethertype)
    addresses = names.mac(neighbor.destination_mac) + names.mac(neighbor.source_mac)
    tags = frame.data[12:end]  # and the ethertype
    data = addresses + tags
    for kind, value in _tlvs(neighbor, names):
        data += (kind << 9 | len(value)).to_bytes(2, "big") + value
    return Frame(names.text(frame.netdev), frame.time, data.ljust(MIN_FRAME, b"\0"))


def _tlvs(neighbor: LldpNeighbor, names: Names) -> Iterator[tuple[int, bytes]]:
    """Yield type and value of each TLV."""
    is_mac = neighbor.chassis_subtype == _CHASSIS_MAC
    chassis_id = _identifier(neighbor.chassis_id, names, names.peer, is_mac=is_mac)
    yield _CHASSIS_ID, bytes((neighbor.chassis_subtype,)) + chassis_id
    is_mac = neighbor.port_id_subtype == _PORT_MAC
    port_id = _identifier(neighbor.port_id, names, names.port, is_mac=is_mac)
    yield _PORT_ID, bytes((neighbor.port_id_subtype,)) + port_id
    yield _TTL, neighbor.ttl.to_bytes(2, "big")
    if neighbor.port_description:
        yield _PORT_DESCRIPTION, names.port(neighbor.port_description).encode()
    if neighbor.system_name:
        yield _SYSTEM_NAME, names.peer(neighbor.system_name).encode()
    if neighbor.capabilities is not None:
        yield _CAPABILITIES, 2 * neighbor.capabilities.to_bytes(2, "big")
    yield _END, b""


def _identifier(
    text: str, names: Names, replacement: Callable[[str], str], *, is_mac: bool
) -> bytes:
    """Return the octets of an ID; a subtype MAC address without the form of one is a name."""
    if is_mac and MAC.fullmatch(text):
        return names.mac(text)
    return replacement(text).encode()
