"""An Ethernet frame to the LLDP neighbour that it tells of (IEEE Std 802.1AB-2016).

The law of this module: a frame yields what its sender meant, or `Malformed` with the TLV and its octet in the frame.
Every length is held against the frame and against its clause; nothing behind the End Of LLDPDU TLV is looked at.

    destination 6 | source 6 | VLAN tag 4, none to two | 88 cc | TLV ... TLV | End | padding
    TLV: type 7 bits | length 9 bits | value          (8.4; the first three are Chassis ID, Port ID, Time To Live, 8.2)

Where 9.2.7.7.2 d) and e) drop a wrong TLV and keep the rest, the whole frame is refused: a neighbour that lost its name
on the way would be published under another one. A description that is too long names nobody and is dropped alone.
Let through: a Time To Live TLV longer than two octets (9.2.7.7.1 c), no End TLV where the frame ends (9.2.7.7.1 h,
which Wireshark follows and lldpd does not), empty strings, a management address without its OID part, and MAC addresses
that are not six octets (no clause counts them, and lldpd shows them).

A neighbour is a stranger: no text leaves here with an unprintable character in it (line end, ESC, bidirectional mark).
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.errors import Malformed
from agent.model import LldpNeighbor

ETHERTYPE = 0x88CC  # clause 7; ETH_P_LLDP, include/uapi/linux/if_ether.h
_UNTAGGED = ETHERTYPE.to_bytes(2, "big")
TPIDS = (0x8100, 0x88A8, 0x9100)  # IEEE Std 802.1Q C-tag and S-tag, and what came before the S-tag
NEAREST_BRIDGE = bytes.fromhex("0180c200000e")  # Table 7-1, as the next two
NEAREST_NON_TPMR_BRIDGE = bytes.fromhex("0180c2000003")
NEAREST_CUSTOMER_BRIDGE = bytes.fromhex("0180c2000000")

# Table 8-1; 9 to 126 are reserved, and skipped.
(
    _END,
    _CHASSIS_ID,
    _PORT_ID,
    _TTL,
    _PORT_TEXT,
    _SYSTEM_NAME,
    _SYSTEM_TEXT,
    _CAPABILITIES,
    _ADDRESS,
) = range(9)
_ORGANISATION = 127
_NAMES = ("End Of LLDPDU", "Chassis ID", "Port ID", "Time To Live", "Port Description", "System Name",
          "System Description", "System Capabilities", "Management Address")  # fmt: skip
# 9.2.7.7.1 a), 8.5.6.3, 8.5.7.3, 8.5.8.3; a second Port Description breaks a "should" only (8.5.5.3).
_ONCE = frozenset({_CHASSIS_ID, _PORT_ID, _TTL, _SYSTEM_NAME, _SYSTEM_TEXT, _CAPABILITIES})
_CHASSIS_MAC, _CHASSIS_NETWORK = 4, 5  # Table 8-2
_PORT_MAC, _PORT_NETWORK = 3, 4  # Table 8-3
_STRING = 255  # octets; 8.5.5.2, 8.5.6.2, 8.5.7.2
_ANY = 511  # octets; what nine bits can say
_OUI_AND_SUBTYPE = 4  # octets, 8.6.1


@dataclass(frozen=True, slots=True)
class Frame:
    """One LLDP frame as it came in."""

    netdev: str
    time: float  # seconds since the epoch
    data: bytes  # from the destination address on, VLAN tags in place, without the frame check sequence


_Tlv = tuple[int, int, bytes]  # type, octet in the frame where it begins, value


def is_lldp(frame: bytes) -> bool:
    """Whether a frame claims to be LLDP, behind at most two VLAN tags."""
    try:
        return bool(_lldpdu(frame))
    except Malformed:
        return False


def decode(frame: bytes) -> LldpNeighbor:
    """The neighbour in an LLDP frame, given as in `Frame.data`; raises `Malformed` and nothing else."""
    single, management = _tlvs(frame, _lldpdu(frame))
    addresses = frame[:12].hex(":")
    chassis_subtype, chassis_id = _identifier(single[_CHASSIS_ID], _CHASSIS_MAC, _CHASSIS_NETWORK)
    port_subtype, port_id = _identifier(single[_PORT_ID], _PORT_MAC, _PORT_NETWORK)
    return LldpNeighbor(
        addresses[18:],
        addresses[:17],
        chassis_id,
        chassis_subtype,
        port_id,
        port_subtype,
        _ttl(single[_TTL]),
        _description(single[_PORT_TEXT]) if _PORT_TEXT in single else None,
        _system_name(single[_SYSTEM_NAME]) if _SYSTEM_NAME in single else None,
        _description(single[_SYSTEM_TEXT]) if _SYSTEM_TEXT in single else None,
        _capabilities(single[_CAPABILITIES]) if _CAPABILITIES in single else None,
        tuple(map(_management_address, management)) if management else (),
    )


def _lldpdu(frame: bytes) -> int:
    """The octet behind the LLDP ethertype, past at most two VLAN tags."""
    if frame[12:14] == _UNTAGGED:
        return 14
    for at in (12, 16, 20):
        ethertype = int.from_bytes(frame[at : at + 2], "big")
        if ethertype == ETHERTYPE:
            return at + 2
        if ethertype not in TPIDS:
            break
    raise Malformed(f"no LLDP ethertype at octet {at}, after {(at - 12) // 4} VLAN tags")


def _tlvs(frame: bytes, at: int) -> tuple[dict[int, _Tlv], list[_Tlv]]:  # noqa: C901 - one pass, for speed
    """The TLVs that come once, by type, and the management addresses, which may come often.

    Up to the End, or up to where the frame ends. The first three are mandatory and in order (8.2).
    """
    single: dict[int, _Tlv] = {}
    addresses: list[_Tlv] = []
    end = len(frame)
    expected = _CHASSIS_ID
    while at + 2 <= end:
        header = frame[at] << 8 | frame[at + 1]
        kind, behind = header >> 9, at + 2 + (header & _ANY)
        tlv = kind, at, frame[at + 2 : behind]
        if behind > end:
            raise _fault(
                tlv, f"runs past the frame: says {behind - at - 2} octets, {end - at - 2} are left"
            )
        if expected <= _TTL:
            if kind != expected:
                break
            single[kind] = tlv
            expected += 1
        elif kind == _ORGANISATION:  # most of them, so that they cost a compare
            if behind - at < 2 + _OUI_AND_SUBTYPE:
                raise _length(tlv, _OUI_AND_SUBTYPE, _ANY)
        elif kind == _END:
            if behind == at + 2:
                return single, addresses
            break
        elif kind == _ADDRESS:
            addresses.append(tlv)
        elif kind not in single:
            single[kind] = tlv
        elif kind in _ONCE:
            raise _fault(tlv, "comes a second time")
        at = behind
    _check_end(frame, at, expected)
    return single, addresses


def _check_end(frame: bytes, at: int, expected: int) -> None:
    """What the TLVs ended with: an End, or nothing; and that the mandatory ones were there."""
    rest = frame[at : at + 2]
    kind = rest[0] >> 1 if len(rest) == 2 else _END
    tlv = kind, at, frame[at + 2 : at + 2 + (int.from_bytes(rest, "big") & _ANY)]
    if len(rest) == 1:
        raise Malformed(f"LLDP TLV at octet {at}: the frame ends in its header")
    if expected <= _TTL and rest and kind != _END:
        raise _fault(tlv, f"stands where the {_NAMES[expected]} TLV belongs")
    if rest and tlv[2]:
        raise _length(tlv, 0, 0)  # 9.2.7.7.2 b)
    if expected <= _TTL:
        raise Malformed(f"LLDP {_NAMES[expected]} TLV: the LLDPDU ends before it")


def _fault(tlv: _Tlv, text: str) -> Malformed:
    name = _NAMES[tlv[0]] if tlv[0] < len(_NAMES) else f"type {tlv[0]}"
    return Malformed(f"LLDP {name} TLV at octet {tlv[1]}: {text}")


def _length(tlv: _Tlv, low: int, high: int) -> Malformed:
    """What is wrong with a length; that it is wrong is found out where it costs no call."""
    return _fault(tlv, f"{len(tlv[2])} octets, should be {low} to {high}")


def _identifier(tlv: _Tlv, mac: int, network: int) -> tuple[int, str]:
    """Subtype and text of a Chassis ID (8.5.2) or Port ID (8.5.3); `mac` and `network` are the address subtypes."""
    value = tlv[2]
    if not 2 <= len(value) <= 256:
        raise _length(tlv, 2, 256)
    subtype, octets = value[0], value[1:]
    if not 1 <= subtype <= 7:  # Tables 8-2 and 8-3
        raise _fault(tlv, f"subtype {subtype} is reserved")
    if subtype == mac:
        return subtype, octets.hex(":")
    return subtype, _address(octets) if subtype == network else _shown(octets)


def _ttl(tlv: _Tlv) -> int:
    if len(tlv[2]) < 2:
        raise _length(tlv, 2, _ANY)
    return int.from_bytes(tlv[2][:2], "big")


def _system_name(tlv: _Tlv) -> str | None:
    if len(tlv[2]) > _STRING:
        raise _length(tlv, 0, _STRING)
    return _text(tlv[2]) or None


def _description(tlv: _Tlv) -> str | None:
    return _text(tlv[2]) or None if len(tlv[2]) <= _STRING else None


def _capabilities(tlv: _Tlv) -> int:
    if len(tlv[2]) != 4:
        raise _length(tlv, 4, 4)
    return int.from_bytes(tlv[2][2:], "big")


def _management_address(tlv: _Tlv) -> str:
    """8.5.9: string length 1, address family 1, address 1-31, interface numbering 1, interface number 4, OID."""
    value = tlv[2]
    if len(value) < 8:
        raise _length(tlv, 8, _ANY)
    length = value[0]
    if not 2 <= length <= 32 or len(value) < 1 + length + 5:
        raise _fault(tlv, f"an address string of {length} octets does not fit into {len(value)}")
    return _address(value[1 : 1 + length])


def _address(octets: bytes) -> str:
    """An IANA address family number and an address; what is not of its family's shape is shown like any identifier."""
    family, address = octets[0], octets[1:]
    match family, len(address):
        case (1, 4):
            return ".".join(map(str, address))
        case (2, 16):
            return _ipv6(address)
        case (6, 6):
            return address.hex(":")
    return _shown(octets)


def _ipv6(address: bytes) -> str:
    """The form of RFC 5952, 4."""
    # ipaddress takes 2.6 ms to import, and gives mapped addresses one form up to Python 3.12 and another one since.
    groups = [group.lstrip("0") or "0" for group in address.hex(":", 2).split(":")]
    text = f":{':'.join(groups)}:"
    for count in range(8, 1, -1):
        before, zeros, behind = text.partition(":0" * count + ":")
        if zeros:
            return f"{before[1:]}::{behind[:-1]}"
    return text[1:-1]


def _text(octets: bytes) -> str:
    text = octets.rstrip(b"\0").decode("utf-8", "backslashreplace")
    if not text.isprintable():
        for letter in set(text):
            text = text if letter.isprintable() else text.replace(letter, _escaped(letter.encode()))
    return text


def _shown(octets: bytes) -> str:
    """An identifier is never empty: one of NULs only is a binary number that happens to be zero."""
    return _text(octets) or _escaped(octets)


def _escaped(octets: bytes) -> str:
    return "".join(f"\\x{octet:02x}" for octet in octets)
