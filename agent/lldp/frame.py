r"""Decode an Ethernet frame that carries an LLDPDU (IEEE Std 802.1AB-2016) into an LldpNeighbor.

`encode` makes such a frame, and `tlv_texts` what people read of it.

Invariants: `decode` returns a neighbor or raises `Malformed`, which names the TLV and its octet in
the frame. Every length is checked against the frame and against its clause. Octets after the End
Of LLDPDU TLV are ignored.

    destination 6 | source 6 | VLAN tag 4, none to two | 88 cc | TLV ... TLV | End | padding
    TLV: type 7 bits | length 9 bits | value     (8.4; Chassis ID, Port ID, Time To Live first, 8.2)

Stricter than the standard: 9.2.7.7.2 d) and e) discard a wrong TLV and keep the rest. Here the
whole frame is refused if the TLV is one that names the neighbor, or whose end is not in the frame,
since a neighbor without its System Name would be published under another name. A Port Description
of more than 255 octets and System Capabilities of another length than four are discarded. System
Descriptions, Management Addresses and organizationally specific TLVs are not decoded, so a wrong
TLV of these types is not noticed (lldpd 1.0 refuses the frame). Of several Port Descriptions,
System Capabilities and TLVs that are not decoded the first counts (in lldpd the last).

Accepted: a Time To Live TLV longer than two octets (9.2.7.7.1 c), a frame without an End TLV
(9.2.7.7.1 h; as Wireshark, unlike lldpd), empty strings, and MAC addresses of other than six octets
(no clause limits them, and lldpd shows them).

The sender is not trusted: an identifier with an octet that is no printable text is given in hex as
a whole, 0x0ac0de9d0a74; in other texts unprintable characters (line end, ESC, bidirectional mark)
are escaped as \xNN.

scapy 2.8 accepts a name that runs past its frame, loses all TLVs after a reserved TLV, and takes
seventy times as long (benchmarks/lldp_decode.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from agent.errors import Malformed
from agent.model import LldpNeighbor
from agent.text import with_octets

ETHERTYPE = 0x88CC  # clause 7; ETH_P_LLDP, include/uapi/linux/if_ether.h
_UNTAGGED = ETHERTYPE.to_bytes(2, "big")
TPIDS = (0x8100, 0x88A8, 0x9100)  # IEEE Std 802.1Q C-tag and S-tag, and the S-tag before 802.1ad
# Table 7-1: nearest bridge, nearest non-TPMR bridge, nearest customer bridge.
GROUPS = tuple(map(bytes.fromhex, ("0180c200000e", "0180c2000003", "0180c2000000")))
MAX_LLDPDU = 9216  # octets, the MTU of a switch's ports; 380 VLANs take some thousand
MAX_FRAME = 22 + MAX_LLDPDU  # octets, with two VLAN tags

# TLV types, Table 8-1; 9 to 126 are reserved, and skipped.
END, CHASSIS_ID, PORT_ID, TTL, PORT_DESCRIPTION, SYSTEM_NAME = range(6)
CAPABILITIES = 7
_NAMES = (
    "End Of LLDPDU",
    "Chassis ID",
    "Port ID",
    "Time To Live",
    "Port Description",
    "System Name",
    "System Description",
    "System Capabilities",
    "Management Address",
)
# System Capabilities from bit 0, Table 8-4
_CAPABILITIES = (
    "Other",
    "Repeater",
    "Bridge",
    "WLAN Access Point",
    "Router",
    "Telephone",
    "DOCSIS cable device",
    "Station Only",
    "C-VLAN component",
    "S-VLAN component",
    "Two-port MAC Relay",
)
_UNIQUE = frozenset({CHASSIS_ID, PORT_ID, TTL, SYSTEM_NAME})  # 9.2.7.7.1 a), 8.5.6.3
_HEX = re.compile("[0-9a-f]{2}(:[0-9a-f]{2})*")  # a MAC address of any length
CHASSIS_MAC, _CHASSIS_NETWORK = 4, 5  # chassis ID subtypes, Table 8-2
PORT_MAC, _PORT_NETWORK = 3, 4  # port ID subtypes, Table 8-3
_MAX_STRING = 255  # octets; 8.5.5.2, 8.5.6.2
_MAX_VALUE = 511  # octets; the length field has nine bits
_MIN_FRAME = 60  # octets, without the frame check sequence


@dataclass(frozen=True, slots=True)
class Frame:
    """A received LLDP frame."""

    netdev: str
    time: float  # seconds since the epoch
    data: bytes  # from the destination address on, with VLAN tags, without the frame check sequence


_Tlv = tuple[int, int, bytes]  # type, offset in the frame, value


def drop_reason(frame: bytes, own: bytes = b"") -> str | None:
    """Return the reason to drop a frame undecoded: "destination" or "own", or None.

    Bridges filter the three group addresses (7.1; IEEE Std 802.1Q, 8.6.3) and forward others, so
    that any station of the broadcast domain could pass for the switch. `own` is the MAC address of
    the netdev: a NIC's firmware may announce the NIC.
    """
    if frame[:6] not in GROUPS:
        return "destination"
    return "own" if frame[6:12] == own else None


def is_lldp(frame: bytes) -> bool:
    """Return True if the frame has the LLDP ethertype, after at most two VLAN tags."""
    try:
        return bool(lldpdu_offset(frame))
    except Malformed:
        return False


def msap(frame: bytes) -> tuple[bytes, bytes]:
    """Return Chassis ID and Port ID undecoded, each with its subtype; Malformed as for `decode`.

    Together they are the MSAP identifier of IEEE Std 802.1AB-2016, equal in all frames of a
    sender, its shutdown frame included.
    """
    tlvs = _split(frame, lldpdu_offset(frame))
    return tlvs[CHASSIS_ID][2], tlvs[PORT_ID][2]


def decode(frame: bytes) -> LldpNeighbor:
    """Decode a frame, given as in `Frame.data`; raise `Malformed` and nothing else."""
    tlvs = _split(frame, lldpdu_offset(frame))
    addresses = frame[:12].hex(":")
    chassis_subtype, chassis_id = _identifier(tlvs[CHASSIS_ID], CHASSIS_MAC, _CHASSIS_NETWORK)
    port_subtype, port_id = _identifier(tlvs[PORT_ID], PORT_MAC, _PORT_NETWORK)
    ttl = tlvs[TTL]
    if len(ttl[2]) < 2:
        raise _wrong_length(ttl, 2, _MAX_VALUE)
    description = name = capabilities = None
    if (tlv := tlvs.get(PORT_DESCRIPTION)) and len(tlv[2]) <= _MAX_STRING:
        description = _text(tlv[2]) or None
    if tlv := tlvs.get(SYSTEM_NAME):
        if len(tlv[2]) > _MAX_STRING:
            raise _wrong_length(tlv, 0, _MAX_STRING)
        name = _text(tlv[2]) or None
    if (tlv := tlvs.get(CAPABILITIES)) and len(tlv[2]) == 4:
        capabilities = int.from_bytes(tlv[2][2:], "big")
    return LldpNeighbor(
        addresses[18:],
        addresses[:17],
        chassis_id,
        chassis_subtype,
        port_id,
        port_subtype,
        int.from_bytes(ttl[2][:2], "big"),
        description,
        name,
        capabilities,
    )


def encode(neighbor: LldpNeighbor, tags: bytes = _UNTAGGED) -> bytes:
    """Return the frame that `decode` reads as this neighbor; `tags` ends with the ethertype.

    An identifier of the MAC subtype becomes its octets, any other its text, a network address
    too.
    """
    tlvs = [
        (CHASSIS_ID, _octets(neighbor.chassis_subtype, neighbor.chassis_id, CHASSIS_MAC)),
        (PORT_ID, _octets(neighbor.port_id_subtype, neighbor.port_id, PORT_MAC)),
        (TTL, neighbor.ttl.to_bytes(2, "big")),
    ]
    if neighbor.port_description:
        tlvs.append((PORT_DESCRIPTION, neighbor.port_description.encode()))
    if neighbor.system_name:
        tlvs.append((SYSTEM_NAME, neighbor.system_name.encode()))
    if neighbor.capabilities is not None:
        tlvs.append((CAPABILITIES, 2 * neighbor.capabilities.to_bytes(2, "big")))
    data = bytes.fromhex((neighbor.destination_mac + neighbor.source_mac).replace(":", "")) + tags
    for kind, value in (*tlvs, (END, b"")):
        data += (kind << 9 | len(value)).to_bytes(2, "big") + value
    return data.ljust(_MIN_FRAME, b"\0")


def _octets(subtype: int, text: str, mac: int) -> bytes:
    """Return subtype and octets of a Chassis ID or Port ID; `mac` is the subtype of an address."""
    is_hex = subtype == mac and _HEX.fullmatch(text)
    return bytes((subtype,)) + (bytes.fromhex(text.replace(":", "")) if is_hex else text.encode())


def tlv_texts(neighbor: LldpNeighbor) -> list[tuple[str, str | None]]:
    """Return the names and values of the TLVs of a frame, for people; None: it has none."""
    capabilities, enabled = neighbor.capabilities, None
    if capabilities is not None:  # those of later editions as their bits
        names = [name for bit, name in enumerate(_CAPABILITIES) if capabilities >> bit & 1]
        if rest := capabilities >> len(_CAPABILITIES) << len(_CAPABILITIES):
            names.append(f"0x{rest:04x}")
        enabled = ", ".join(names) or "none"
    return [
        ("System Name TLV", neighbor.system_name),
        (f"Chassis ID TLV (subtype {neighbor.chassis_subtype})", neighbor.chassis_id),
        (f"Port ID TLV (subtype {neighbor.port_id_subtype})", neighbor.port_id),
        ("Port Description TLV", neighbor.port_description),
        ("Time To Live TLV", f"{neighbor.ttl} s"),
        ("System Capabilities TLV, enabled", enabled),
    ]


def lldpdu_offset(frame: bytes) -> int:
    """Return the offset after the LLDP ethertype, which follows at most two VLAN tags."""
    if frame[12:14] == _UNTAGGED:
        return 14
    for at in (12, 16, 20):
        ethertype = int.from_bytes(frame[at : at + 2], "big")
        if ethertype == ETHERTYPE:
            return at + 2
        if ethertype not in TPIDS:
            break
    raise Malformed(f"no LLDP ethertype at octet {at}, after {(at - 12) // 4} VLAN tags")


def _split(frame: bytes, at: int) -> dict[int, _Tlv]:
    """Split the LLDPDU at an offset; return the first TLV of each type.

    The LLDPDU ends with the End TLV or with the frame. The first three TLVs are mandatory and in
    order (8.2).
    """
    tlvs: dict[int, _Tlv] = {}
    end = len(frame)
    if end - at > MAX_LLDPDU:
        raise Malformed(f"LLDPDU of more than {MAX_LLDPDU} octets")
    mandatory = CHASSIS_ID  # the next mandatory TLV; past TTL: none
    while at + 2 <= end:
        header = frame[at] << 8 | frame[at + 1]
        kind, following = header >> 9, at + 2 + (header & _MAX_VALUE)
        tlv = kind, at, frame[at + 2 : following]
        if following > end:
            left = end - at - 2
            raise _malformed(tlv, f"length {following - at - 2} exceeds the {left} octets left")
        if mandatory <= TTL:
            if kind != mandatory:
                break
            tlvs[kind] = tlv
            mandatory += 1
        elif kind == END:
            if following == at + 2:
                return tlvs
            break
        elif kind not in tlvs:
            tlvs[kind] = tlv
        elif kind in _UNIQUE:
            raise _malformed(tlv, "duplicate")
        at = following
    _check_end(frame, at, mandatory)
    return tlvs


def _check_end(frame: bytes, at: int, mandatory: int) -> None:
    """Check that the LLDPDU may end at this offset; `mandatory` is the next mandatory TLV type.

    It ends with an End TLV without a value or with the frame, after the mandatory TLVs.
    """
    header = frame[at : at + 2]
    if len(header) == 1:
        raise Malformed(f"LLDP TLV at octet {at}: the frame ends in its header")
    kind = header[0] >> 1 if header else END
    value = frame[at + 2 : at + 2 + (int.from_bytes(header, "big") & _MAX_VALUE)]
    tlv = kind, at, value
    if mandatory <= TTL and kind != END:
        raise _malformed(tlv, f"in place of the {_NAMES[mandatory]} TLV")
    if value:
        raise _wrong_length(tlv, 0, 0)  # 9.2.7.7.2 b)
    if mandatory <= TTL:
        raise Malformed(f"LLDP {_NAMES[mandatory]} TLV: missing, the LLDPDU ends before it")


def _malformed(tlv: _Tlv, text: str) -> Malformed:
    name = _NAMES[tlv[0]] if tlv[0] < len(_NAMES) else f"type {tlv[0]}"
    return Malformed(f"LLDP {name} TLV at octet {tlv[1]}: {text}")


def _wrong_length(tlv: _Tlv, low: int, high: int) -> Malformed:
    """Return the error for a length; callers compare inline, which saves a call for each TLV."""
    return _malformed(tlv, f"length {len(tlv[2])}, expected {low} to {high}")


def _identifier(tlv: _Tlv, mac: int, network: int) -> tuple[int, str]:
    """Return subtype and text of a Chassis ID (8.5.2) or Port ID (8.5.3).

    `mac` and `network` are the subtypes of a MAC address and of a network address.
    """
    value = tlv[2]
    if not 2 <= len(value) <= 256:
        raise _wrong_length(tlv, 2, 256)
    subtype, octets = value[0], value[1:]
    if not 1 <= subtype <= 7:  # Tables 8-2 and 8-3
        raise _malformed(tlv, f"subtype {subtype} is reserved")
    if subtype == mac:
        return subtype, octets.hex(":")
    return subtype, _address(octets) if subtype == network else _identifier_text(octets)


def _address(octets: bytes) -> str:
    """Return the text of an IANA address family number and an address.

    An address that does not have its family's length is shown like any other identifier.
    """
    family, address = octets[0], octets[1:]
    match family, len(address):
        case (1, 4):
            return ".".join(map(str, address))
        case (2, 16):
            from ipaddress import IPv6Address  # takes 2.6 ms to import, for few senders

            ipv6 = IPv6Address(address)
            if ipv6.ipv4_mapped:  # Python 3.13 changed its text, and that of a label may not
                high, low = divmod(int(ipv6.ipv4_mapped), 1 << 16)
                return f"::ffff:{high:x}:{low:x}"
            return str(ipv6)
        case (6, 6):
            return address.hex(":")
    return _identifier_text(octets)


def _text(octets: bytes) -> str:
    return with_octets(octets.rstrip(b"\0").decode("utf-8", "backslashreplace"))


def _identifier_text(octets: bytes) -> str:
    """Return printable text, never empty; the octets in hex if they are not that."""
    text = octets.rstrip(b"\0").decode("utf-8", "surrogateescape")  # surrogates do not print
    return text if text and text.isprintable() else f"0x{octets.hex()}"
