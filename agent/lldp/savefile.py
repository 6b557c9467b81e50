"""LLDP frames in a capture file of either format: pcap (agent/lldp/pcap.py) or pcapng."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.errors import Malformed
from agent.lldp import pcap, pcapng

if TYPE_CHECKING:
    from agent.lldp.frame import Frame

MAX_SIZE = 16 << 20  # bytes
GZIP = b"\x1f\x8b"


def read(netdev: str, data: bytes) -> tuple[list[Frame], str | None]:
    """Return the LLDP frames of a capture file by time, and a fault in the file (or None).

    Frames before the fault count. Raises Malformed for data that is no Ethernet capture file,
    Unavailable for a pcapng file without scapy.
    """
    if data.startswith(GZIP):
        raise Malformed("is compressed: gunzip it first")
    is_pcapng = data.startswith(pcapng.SECTION)
    frames, fault = pcapng.read(netdev, data) if is_pcapng else pcap.read(netdev, data)
    return sorted(frames, key=lambda frame: frame.time), fault


def is_empty(data: bytes) -> bool:
    """Return True for a pcap file without frames; a pcapng file is not examined."""
    return not data.startswith(pcapng.SECTION) and pcap.is_empty(data)
