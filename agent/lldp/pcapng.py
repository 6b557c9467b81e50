"""LLDP frames in pcapng files (draft-ietf-opsawg-pcapng), read with scapy.

scapy is an optional extra (`bwagent[pcap]`) because it is GPL-2.0-only and takes 50 MB; a pcap file
needs none (agent/lldp/pcap.py).
"""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING, Any

from agent.errors import Malformed, Unavailable
from agent.lldp.frame import Frame, is_lldp
from agent.lldp.pcap import ETHERNET, MICROSECONDS, check_count, check_link_type, cut_fault

if TYPE_CHECKING:
    from collections.abc import Iterator

SECTION = b"\x0a\x0d\x0d\x0a"  # block type of the Section Header Block
SECTION_LITTLE_ENDIAN = b"\x4d\x3c\x2b\x1a"


def read(netdev: str, data: bytes) -> tuple[list[Frame], str | None]:
    """Return the LLDP frames of a file, and where it is truncated (or None).

    Raises Malformed for data that is no Ethernet capture, Unavailable without scapy.
    """
    whole = data[: _whole_blocks(data)]
    utils, scapy_error = _scapy()
    file = io.BytesIO(whole)
    try:
        packets = list(_lldp_packets(utils.RawPcapReader(file)))
    except (EOFError, ValueError, OverflowError, struct.error, scapy_error) as error:
        raise Malformed(f"no pcap or pcapng file: {error}") from error
    fault = (
        None if file.tell() == len(data) else f"breaks off at octet {file.tell()} of {len(data)}"
    )
    frames = [
        Frame(netdev, _seconds(meta), packet)
        for packet, meta in packets
        if not _is_cut(packet, meta)
    ]
    return frames, fault or cut_fault(len(packets) - len(frames))


def _lldp_packets(reader: Any) -> Iterator[tuple[bytes, Any]]:
    for number, (packet, meta) in enumerate(reader, 1):
        check_count(number)
        check_link_type(getattr(meta, "linktype", ETHERNET))
        if is_lldp(packet):
            yield packet, meta


def _is_cut(packet: bytes, meta: Any) -> bool:
    return len(packet) < int(meta.wirelen or 0)


def _whole_blocks(data: bytes) -> int:
    """Return the offset of the first incomplete block; each section has its own byte order."""
    order = "<"
    at = 0
    while at + 12 <= len(data):
        if data[at : at + 4] == SECTION:
            order = "<" if data[at + 8 : at + 12] == SECTION_LITTLE_ENDIAN else ">"
        length = int(struct.unpack_from(f"{order}I", data, at + 4)[0])
        if not _is_block(data, at, length):
            break
        at += length
    return at


def _is_block(data: bytes, at: int, length: int) -> bool:
    """Return True for a whole block, which has its length at its start and at its end."""
    if length < 12 or length % 4:
        return False
    return data[at + 4 : at + 8] == data[at + length - 4 : at + length]


def _seconds(meta: Any) -> float:
    """Return the seconds since the epoch of a block, 0 for one without a time.

    The time has two halves in the resolution of the block's interface.
    """
    if meta.tshigh is None or meta.tslow is None:
        return 0.0
    ticks = (int(meta.tshigh) << 32) + int(meta.tslow)
    return ticks / int(meta.tsresol or MICROSECONDS)


def _scapy() -> tuple[Any, type[Exception]]:
    """Scapy's module for capture files, and the exception that it raises."""
    try:
        from scapy import error, utils
    except ImportError:
        raise Unavailable(
            "a pcapng file needs scapy: pip install 'bwagent[pcap]', or convert it: "
            "tcpdump -r FILE -w FILE.pcap"
        ) from None
    import logging  # used only with scapy: a replay without frames starts faster without it

    # scapy warns about a truncated file, which `read` reports itself
    logging.getLogger("scapy.runtime").setLevel(logging.ERROR)
    return utils, error.Scapy_Exception
