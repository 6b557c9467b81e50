"""LLDP frames that scapy builds."""

from __future__ import annotations

import random


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
