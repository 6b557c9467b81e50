"""LLDP frames in the shapes that vendors send, with their decoded values; names and
addresses are made up.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from agent.model import LldpNeighbor

NEAREST_BRIDGE = "0180c200000e"
SWITCH = "001c73aabbcc"
MAC = bytes.fromhex(SWITCH)
DOT1_PVID = bytes.fromhex("0080c2010001")  # IEEE 802.1, Port VLAN ID 1
DOT3_MTU = bytes.fromhex("00120f042400")  # IEEE 802.3, maximum frame size 9216
MED = bytes.fromhex("0012bb01002104")  # ANSI/TIA-1057 capabilities
DCBX = bytes.fromhex(
    "0080c20900000000006464000000000000000000000202020202020202"
)  # ETS configuration
JUNIPER = b"\x00\x90\x69\x01" + b"TA3713480228"  # chassis serial number
END = b"\0\0"
BRIDGE, STATION = 0x04, 0x80  # enabled capabilities, Table 8-4


class Case(NamedTuple):
    """A frame and its decoded values."""

    name: str
    data: bytes
    value: LldpNeighbor


def tlv(kind: int, value: bytes) -> bytes:
    """A TLV, 8.4."""
    return (kind << 9 | len(value)).to_bytes(2, "big") + value


def tlv_types(frame: bytes) -> set[int]:
    """The types of the TLVs of a well-formed frame, the End TLV's included."""
    at, found = frame.index(b"\x88\xcc") + 2, set()
    while 0 not in found:
        header = int.from_bytes(frame[at : at + 2], "big")
        found.add(header >> 9)
        at += 2 + (header & 0x1FF)
    return found


def identity(chassis: bytes, port: bytes, ttl: int = 120) -> bytes:
    """The three mandatory TLVs; each identifier begins with its subtype."""
    return tlv(1, chassis) + tlv(2, port) + tlv(3, ttl.to_bytes(2, "big"))


def ethernet(
    lldpdu: bytes, *, destination: str = NEAREST_BRIDGE, source: str = SWITCH, tags: str = ""
) -> bytes:
    """A frame of at least 60 octets, padded with zeros as a sender's MAC does it."""
    return (bytes.fromhex(destination + source + tags + "88cc") + lldpdu).ljust(60, b"\0")


def switch(name: str = "leaf-1", port: bytes = b"\x05swp1", ttl: int = 120, **where: str) -> bytes:
    """A frame of a bridge."""
    return ethernet(
        identity(b"\x04" + MAC, port, ttl) + tlv(5, name.encode()) + capabilities(4) + END, **where
    )


def station(name: str = "PowerEdge-R750", ttl: int = 120, enabled: int = STATION) -> bytes:
    """A frame of a BMC, which says Station Only."""
    chassis = bytes.fromhex("b07b25aa0001")
    lldpdu = identity(b"\x04" + chassis, b"\x03" + chassis, ttl)
    lldpdu += tlv(5, name.encode()) + capabilities(enabled) + END
    return ethernet(lldpdu, source=chassis.hex())


def management(address: bytes, family: int, index: int = 1) -> bytes:
    """A Management Address TLV without an OID, numbered by ifIndex."""
    return tlv(
        8, bytes([len(address) + 1, family]) + address + b"\x02" + index.to_bytes(4, "big") + b"\0"
    )


def capabilities(enabled: int) -> bytes:
    """A System Capabilities TLV of a device that could also be an access point."""
    return tlv(7, (enabled | 8).to_bytes(2, "big") + enabled.to_bytes(2, "big"))


IPV4 = management(bytes([192, 0, 2, 17]), 1)
IPV6 = management(bytes.fromhex("20010db8000000000000000000000017"), 2)
BRIDGE_ROUTER = 0x14

_PLAIN = LldpNeighbor(
    source_mac="00:1c:73:aa:bb:cc",
    destination_mac="01:80:c2:00:00:0e",
    chassis_id="00:1c:73:aa:bb:cc",
    chassis_subtype=4,
    port_id="",
    port_id_subtype=5,
    ttl=120,
)


def _case(name: str, lldpdu: bytes, **value: object) -> Case:
    return Case(name, ethernet(lldpdu), _PLAIN._replace(**value))  # type: ignore[arg-type]


def _switch(
    name: str, port: bytes, texts: tuple[str | None, str, str], extra: bytes = b"", **value: object
) -> Case:
    """A switch with a MAC address as its chassis ID, a name and a description."""
    description, system, model = texts
    lldpdu = identity(b"\x04" + MAC, port)
    lldpdu += tlv(4, description.encode()) if description is not None else b""
    lldpdu += (
        tlv(5, system.encode()) + tlv(6, model.encode()) + capabilities(BRIDGE_ROUTER) + extra + END
    )
    texts_read = {"port_description": description, "system_name": system}
    return _case(name, lldpdu, **texts_read | {"capabilities": BRIDGE_ROUTER} | value)


VENDORS = (
    _switch(
        "cumulus",
        b"\x05swp1s0",
        ("fabric_link", "leaf-r1-01", "Cumulus Linux version 5.9.1 running on Mellanox MSN3700"),
        IPV4 + IPV6 + tlv(127, DOT3_MTU),
        port_id="swp1s0",
    ),
    _switch(
        "arista-eos",
        b"\x05Ethernet1/1",
        (
            None,
            "leaf2.pod1.example.net",
            "Arista Networks EOS version 4.31.2F running on a DCS-7060X6",
        ),
        tlv(127, DOT1_PVID) + tlv(127, DOT3_MTU) + IPV4,
        port_id="Ethernet1/1",
    ),
    _switch(
        "cisco-nx-os",
        b"\x05Ethernet1/4",
        (
            "Ethernet1/4",
            "n9k-leaf-3",
            "Cisco Nexus Operating System (NX-OS) Software 10.4(2)\nTAC support: example\n",
        ),
        IPV4 + tlv(127, DOT1_PVID),
        port_id="Ethernet1/4",
    ),
    _switch(
        "cisco-ios",
        b"\x05Gi1/0/4",
        (
            "GigabitEthernet1/0/4",
            "sw4.example.net",
            "Cisco IOS Software, C3750E Software, Version 15.2(4)E10",
        ),
        port_id="Gi1/0/4",
    ),
    _switch(
        "juniper",
        b"\x07" + b"513",
        (
            "et-0/0/4",
            "qfx5",
            "Juniper Networks, Inc. qfx5220-32cd Ethernet Switch, kernel JUNOS 22.2R3",
        ),
        tlv(127, JUNIPER) + tlv(127, DOT3_MTU),
        port_id="513",
        port_id_subtype=7,
    ),
    _switch(
        "sonic",
        b"\x07etp1a",
        (
            "Ethernet0",
            "sonic-leaf-6",
            "SONiC Software Version: SONiC.202311 - HwSku: Mellanox-SN5600-C256",
        ),
        IPV4 + IPV6,
        port_id="etp1a",
        port_id_subtype=7,
    ),
    _switch(
        "sonic-before-its-alias",
        b"\x03" + MAC,
        (
            "Ethernet0",
            "sonic-leaf-6",
            "SONiC Software Version: SONiC.202311 - HwSku: Mellanox-SN5600-C256",
        ),
        port_id="00:1c:73:aa:bb:cc",
        port_id_subtype=3,
    ),
    _switch(
        "onyx",
        b"\x05Eth1/4",
        ("", "mlx-leaf-7", "MSN2700,Onyx,SWv3.10.4302"),
        port_id="Eth1/4",
        port_description=None,
    ),
    _switch(
        "dell-os10",
        b"\x05ethernet1/1/4",
        (
            "Ethernet 1/1/4",
            "OS10",
            "Dell EMC Networking OS10 Enterprise. System Description: OS10 Enterprise.",
        ),
        tlv(127, DCBX),
        port_id="ethernet1/1/4",
    ),
    _switch(
        "huawei-alias",
        b"\x01to-gpu-node-12 rail 3",
        ("25GE1/0/4", "CE6881-9", "Huawei Versatile Routing Platform Software"),
        port_id="to-gpu-node-12 rail 3",
        port_id_subtype=1,
    ),
    _case(
        "lldpd-on-a-host",
        identity(b"\x04" + MAC, b"\x03" + MAC)
        + tlv(5, b"node-1.example.net")
        + tlv(6, b"Debian GNU/Linux 12 (bookworm) Linux 6.1.0 x86_64")
        + tlv(7, b"\x00\x9c\x00\x80")
        + IPV6
        + tlv(4, b"eth0")
        + tlv(127, MED)
        + END,
        port_id="00:1c:73:aa:bb:cc",
        port_id_subtype=3,
        port_description="eth0",
        system_name="node-1.example.net",
        capabilities=0x80,
    ),
    _case(
        "nic-firmware",
        identity(b"\x04" + MAC, b"\x03" + MAC) + END,
        port_id="00:1c:73:aa:bb:cc",
        port_id_subtype=3,
    ),
    _case(
        "network-addresses",
        identity(b"\x05\x01\xc0\x00\x02\x11", b"\x04\x02" + bytes(15) + b"\x01") + END,
        chassis_id="192.0.2.17",
        chassis_subtype=5,
        port_id="::1",
        port_id_subtype=4,
    ),
    _case(
        "goodbye",
        identity(b"\x04" + MAC, b"\x05swp1s0", ttl=0) + END,
        port_id="swp1s0",
        ttl=0,
    ),
)

_MINIMAL = identity(b"\x04" + MAC, b"\x05swp1") + tlv(5, b"leaf-1")
_MEANT = _PLAIN._replace(port_id="swp1", system_name="leaf-1")
TAGGED = tuple(
    Case(name, ethernet(_MINIMAL + END, tags=tags), _MEANT)
    for name, tags in (
        ("priority-tag", "81000000"),
        ("vlan", "81000fff"),
        ("q-in-q", "88a80064" + "81000065"),
        ("old-q-in-q", "91000064" + "81000065"),
    )
)


def named(octets: bytes, text: str) -> Case:
    """Return a frame of a switch with a name that a switch should not have."""
    lldpdu = identity(b"\x04" + MAC, b"\x05swp1") + tlv(5, octets) + END
    return _case(text, lldpdu, port_id="swp1", system_name=text)


STRANGE = (
    named(b"leaf-1\0\0\0", "leaf-1"),
    named(b"leaf\xff1\xc3", r"leaf\xff1\xc3"),
    named(b"leaf\n1\x1b[2J\x7f", r"leaf\x0a1\x1b[2J\x7f"),
    named("leaf\u202e1\u2066\u2028".encode(), r"leaf\xe2\x80\xae1\xe2\x81\xa6\xe2\x80\xa8"),
    named("feuille-é 叶".encode(), "feuille-é 叶"),
    named(b"\xed\xa0\x80", r"\xed\xa0\x80"),
    named(b"x" * 255, "x" * 255),
    _case(
        "binary-local-ids",
        identity(b"\x07\x00\x00\x00\x05", b"\x07\x01\xfe\x02") + END,
        chassis_id="0x00000005",
        chassis_subtype=7,
        port_id="0x01fe02",
        port_id_subtype=7,
    ),
    _case(
        "zero-ids",
        identity(b"\x07\x00\x00", b"\x07\x00") + END,
        chassis_id="0x0000",
        chassis_subtype=7,
        port_id="0x00",
        port_id_subtype=7,
    ),
    _case(
        "long-macs",
        identity(b"\x04" + MAC + b"\x00\x01", b"\x03" + MAC[:5]) + END,
        chassis_id="00:1c:73:aa:bb:cc:00:01",
        port_id="00:1c:73:aa:bb",
        port_id_subtype=3,
    ),
    _case(
        "odd-network-addresses",
        identity(b"\x05\x01\xc0\x00\x02", b"\x04\x06" + MAC) + END,
        chassis_id="0x01c00002",
        chassis_subtype=5,
        port_id="00:1c:73:aa:bb:cc",
        port_id_subtype=4,
    ),
    _case(
        "widest-ids",
        identity(b"\x07" + b"c" * 255, b"\x07" + b"p" * 255) + END,
        chassis_id="c" * 255,
        chassis_subtype=7,
        port_id="p" * 255,
        port_id_subtype=7,
    ),
)
CASES = VENDORS + TAGGED + STRANGE


def scapy_frames() -> list[bytes]:
    """Two hundred frames, the same in every run."""
    roll = random.Random(8021)  # noqa: S311 - the same frames every time
    return [_frame(roll) for _ in range(200)]


def _frame(roll: random.Random) -> bytes:
    """A frame that scapy built out of random, valid fields."""
    # Imported, scapy asks the kernel for its interfaces.
    from scapy.contrib import lldp as scapy
    from scapy.layers.l2 import Dot1Q, Ether

    def text(least: int, most: int) -> bytes:
        return bytes(roll.choices(range(0x21, 0x7F), k=roll.randint(least, most)))

    frame = Ether(
        dst=roll.choice(["01:80:c2:00:00:0e", "01:80:c2:00:00:03"]), src="02:00:00:00:00:01"
    )
    frame = frame / Dot1Q(vlan=5) if roll.getrandbits(1) else frame
    chassis = roll.choice(
        [(4, "02:00:00:00:00:07"), (7, text(1, 255)), (6, text(1, 20)), (5, "198.51.100.9")]
    )
    port = roll.choice(
        [(3, "02:00:00:00:00:08"), (7, text(1, 255)), (5, text(1, 20)), (1, text(1, 60))]
    )
    frame /= scapy.LLDPDUChassisID(subtype=chassis[0], family=1, id=chassis[1])
    frame /= scapy.LLDPDUPortID(subtype=port[0], id=port[1])
    frame /= scapy.LLDPDUTimeToLive(ttl=roll.randint(0, 65535))
    optional = [
        scapy.LLDPDUPortDescription(description=text(1, 255)),
        scapy.LLDPDUSystemName(system_name=text(1, 255)),
        scapy.LLDPDUSystemDescription(description=text(1, 255)),
        scapy.LLDPDUSystemCapabilities(
            mac_bridge_available=1, mac_bridge_enabled=1, router_available=1
        ),
        scapy.LLDPDUManagementAddress(
            management_address_subtype=1,
            management_address=bytes([192, 0, 2, roll.randint(1, 254)]),
        ),
        scapy.LLDPDUGenericOrganisationSpecific(org_code=0x00120F, subtype=4, data=b"\x24\x00"),
    ]
    for layer in roll.sample(optional, roll.randint(0, len(optional))):
        frame /= layer
    return bytes(frame / scapy.LLDPDUEndOfLLDPDU())
