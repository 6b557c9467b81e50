"""LLDP frames in capture files: pcap (draft-ietf-opsawg-pcap), and pcapng, which scapy reads.

    file    magic 4 | version 2, 2 | reserved 4, 4 | snap length 4 | link type 4 | record ...
    record  seconds 4 | fraction 4 | captured length 4 | original length 4 | octets

The magic number of a pcap file has the byte order of all numbers and the unit of the fractions.

Invariant: a record is read as a whole or not at all. A frame that the snap length has cut is left
out, since it may lack the TLV that names its sender.

scapy is an optional extra (`bwagent[pcap]`) because it is GPL-2.0-only and takes 50 MB; a pcap file
needs none.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable
from typing import Any

from agent.errors import Malformed, not_installed
from agent.lldp.frame import Frame, is_lldp

MAX_SIZE = 16 << 20  # bytes of a file
MAX_FRAMES = 100_000
MAX_LENGTH = 262_144  # octets of one frame, the largest snap length of libpcap
GZIP = b"\x1f\x8b"
VERSION = 2, 4
ETHERNET = 1  # LINKTYPE_ETHERNET
LINK_TYPE = 0xFFFF  # mask; the bits above it are the length of the frame check sequence
MICROSECONDS, NANOSECONDS = 1_000_000, 1_000_000_000
RESOLUTIONS = {0xA1B2C3D4: MICROSECONDS, 0xA1B23C4D: NANOSECONDS}  # by magic number
# pcapng (draft-ietf-opsawg-pcapng): the type of a Section Header Block, its magic number
SECTION = b"\x0a\x0d\x0d\x0a"
SECTION_LITTLE_ENDIAN = b"\x4d\x3c\x2b\x1a"
_FILE_HEADER = "IHHIIII"
_RECORD_HEADER = "IIII"


def read(netdev: str, data: bytes) -> tuple[list[Frame], str | None]:
    """Return the LLDP frames of a capture file by time, and a fault in the file (or None).

    Frames before the fault count. Raises Malformed for data that is no Ethernet capture file,
    Unavailable for a pcapng file without scapy.
    """
    if data.startswith(GZIP):
        raise Malformed("is compressed: gunzip it first")
    is_pcapng = data.startswith(SECTION)
    packets, fault = _pcapng_packets(data) if is_pcapng else _pcap_packets(data)
    frames = [
        Frame(netdev, time, octets) for time, octets, length in packets if len(octets) >= length
    ]
    cut = len(packets) - len(frames)
    if cut and not fault:
        fault = f"LLDP frames cut by the snap length: {cut} (use tcpdump -s 0)"
    return sorted(frames, key=lambda frame: frame.time), fault


def is_empty(data: bytes) -> bool:
    """Return True for a pcap file without frames; a pcapng file is not examined."""
    return not data.startswith(SECTION) and len(data) == struct.calcsize(f"={_FILE_HEADER}")


def write(frames: Iterable[Frame]) -> bytes:
    """Return a pcap file of the frames, with times in microseconds."""
    file = [struct.pack(f"<{_FILE_HEADER}", 0xA1B2C3D4, *VERSION, 0, 0, MAX_LENGTH, ETHERNET)]
    for frame in frames:
        seconds, micro = divmod(round(frame.time * MICROSECONDS), MICROSECONDS)
        length = len(frame.data)
        file += [struct.pack(f"<{_RECORD_HEADER}", seconds, micro, length, length), frame.data]
    return b"".join(file)


# Of the LLDP frames of a file: seconds since the epoch, octets, length before the snap length
_Packets = list[tuple[float, bytes, int]]


def _pcap_packets(data: bytes) -> tuple[_Packets, str | None]:
    """Return the LLDP packets in whole records, and the fault of the first other record."""
    at, record, resolution = _pcap_header(data)
    packets: _Packets = []
    number = 0
    while at < len(data):
        start = at + record.size
        if start > len(data):
            return packets, f"truncated at octet {at} of {len(data)}"
        seconds, fraction, length, original_length = record.unpack_from(data, at)
        if length > MAX_LENGTH:
            return packets, f"no record at octet {at}: its length is {length}"
        if start + length > len(data):
            return packets, f"truncated at octet {at} of {len(data)}"
        if fraction >= resolution:
            return packets, f"no record at octet {at}: its time has a fraction beyond one second"
        number += 1
        _check_count(number)
        octets = data[start : start + length]
        if is_lldp(octets):
            time = (seconds * resolution + fraction) / resolution
            packets.append((time, octets, original_length))
        at = start + length
    return packets, None


def _pcap_header(data: bytes) -> tuple[int, struct.Struct, int]:
    """Return the offset of the first record, the form of its header, and fractions per second."""
    magics = {"<": int.from_bytes(data[:4], "little"), ">": int.from_bytes(data[:4], "big")}
    order = next((order for order, magic in magics.items() if magic in RESOLUTIONS), None)
    if order is None:
        start = f"it begins with {data[:4].hex()}" if data else "it is empty"
        raise Malformed(f"not a pcap or pcapng file: {start}")
    header = struct.Struct(order + _FILE_HEADER)
    if len(data) < header.size:
        raise Malformed(f"not a pcap or pcapng file: it ends in its header, at octet {len(data)}")
    magic, major, minor, *_, link_type = header.unpack_from(data)
    if (major, minor) != VERSION:
        raise Malformed(f"not a pcap or pcapng file: version {major}.{minor} instead of 2.4")
    _check_link_type(link_type)
    return header.size, struct.Struct(order + _RECORD_HEADER), RESOLUTIONS[magic]


def _pcapng_packets(data: bytes) -> tuple[_Packets, str | None]:
    """Return the LLDP packets of the whole blocks, and where the file is truncated (or None)."""
    try:
        from scapy import error as scapy_error
        from scapy import utils
    except ImportError:
        instead = ", or convert it: tcpdump -r FILE -w FILE.pcap"
        raise not_installed("a pcapng file", "scapy", "pcap", instead) from None
    import logging  # used only with scapy: a replay without frames starts faster without it

    # scapy warns about a truncated file, which is reported here
    logging.getLogger("scapy.runtime").setLevel(logging.ERROR)
    file: Any = io.BytesIO(data[: _whole_blocks(data)])  # scapy's annotation is a file name
    packets: _Packets = []
    meta: Any  # of two classes, with different fields
    try:
        for number, (octets, meta) in enumerate(utils.RawPcapReader(file), 1):
            _check_count(number)
            _check_link_type(getattr(meta, "linktype", ETHERNET))
            if not is_lldp(octets):
                continue
            time = 0.0  # of a block without a time
            if meta.tshigh is not None and meta.tslow is not None:
                # two halves of a number in the resolution of the block's interface
                ticks = (int(meta.tshigh) << 32) + int(meta.tslow)
                time = ticks / int(meta.tsresol or MICROSECONDS)
            packets.append((time, octets, int(meta.wirelen or 0)))
    except (
        EOFError,
        ValueError,
        OverflowError,
        struct.error,
        scapy_error.Scapy_Exception,
    ) as error:
        raise Malformed(f"not a pcap or pcapng file: {error}") from error
    end = file.tell()
    return packets, None if end == len(data) else f"truncated at octet {end} of {len(data)}"


def _whole_blocks(data: bytes) -> int:
    """Return the offset of the first incomplete block of a pcapng file.

    Each section has its own byte order, and each block its length at its start and at its end.
    """
    order = "<"
    at = 0
    while at + 12 <= len(data):
        if data[at : at + 4] == SECTION:
            order = "<" if data[at + 8 : at + 12] == SECTION_LITTLE_ENDIAN else ">"
        length = int(struct.unpack_from(f"{order}I", data, at + 4)[0])
        if length < 12 or length % 4:
            break
        if data[at + 4 : at + 8] != data[at + length - 4 : at + length]:
            break
        at += length
    return at


def _check_link_type(link_type: int) -> None:
    if (kind := link_type & LINK_TYPE) != ETHERNET:
        raise Malformed(
            f"its link type is {kind}, not Ethernet (capture on one interface, not on 'any')"
        )


def _check_count(number: int) -> None:
    if number > MAX_FRAMES:
        raise Malformed(f"more than {MAX_FRAMES} frames")
