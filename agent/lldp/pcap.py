"""LLDP frames in capture files: writes pcap, reads pcap and pcapng, both with scapy.

The formats are those of draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng. scapy is an optional
extra (`bwagent[pcap]`) because it is GPL-2.0-only and takes 50 MB, and only captures and their
replay need it.
"""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING, Any

from agent.errors import Malformed, Unavailable
from agent.lldp.frame import Frame, is_lldp

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_FILE_SIZE = 16 << 20  # bytes
MAX_FRAMES = 100_000
ETHERNET = 1  # LINKTYPE_ETHERNET
LINK_TYPE = 0xFFFF  # mask; the bits above it are the length of the frame check sequence
MICROSECONDS, NANOSECONDS = 1_000_000, 1_000_000_000
GZIP = b"\x1f\x8b"  # refused, because scapy decompresses without a limit
SECTION = b"\x0a\x0d\x0d\x0a"  # block type of a pcapng file's Section Header Block
SECTION_LITTLE_ENDIAN = b"\x4d\x3c\x2b\x1a"


def read(netdev: str, data: bytes) -> tuple[list[Frame], str | None]:
    """Return the LLDP frames of a capture file by time, and where the file is truncated (or None).

    Frames before the truncation count. Raises Malformed for data that is no Ethernet capture file.
    """
    if data.startswith(GZIP):
        raise Malformed("is compressed: gunzip it first")
    whole = _whole(data)
    found, end = _frames(netdev, data[:whole])
    return found, None if end == len(data) else f"breaks off at octet {end} of {len(data)}"


def _frames(netdev: str, data: bytes) -> tuple[list[Frame], int]:
    """Return the LLDP frames by time, and the offset at which scapy stopped."""
    utils, scapy_error = _scapy()
    file = io.BytesIO(data)
    try:
        frames = list(_lldp_frames(netdev, utils.RawPcapReader(file)))
    except (EOFError, ValueError, OverflowError, struct.error, scapy_error) as error:
        raise Malformed(f"no pcap or pcapng file: {error}") from error
    return sorted(frames, key=lambda frame: frame.time), file.tell()


def _lldp_frames(netdev: str, reader: Any) -> Iterator[Frame]:
    nano = getattr(reader, "nano", False)
    for number, (packet, meta) in enumerate(reader):
        if number >= MAX_FRAMES:
            raise Malformed(f"more than {MAX_FRAMES} frames")
        _check_link_type(getattr(meta, "linktype", getattr(reader, "linktype", ETHERNET)))
        if is_lldp(packet):
            yield Frame(netdev, _seconds(meta, nano=nano), packet)


def _whole(data: bytes) -> int:
    """Return the offset of the first incomplete record or block, or the end of the data."""
    return _whole_blocks(data) if data[:4] == SECTION else _whole_records(data)


def _whole_records(data: bytes) -> int:
    """Return that of a pcap file: a record of 16 octets has the length of the packet behind it."""
    order = "<" if data[3:4] == b"\xa1" else ">"
    at = 24
    while at + 16 <= len(data):
        behind = at + 16 + _number(data, at + 8, order)
        if behind > len(data):
            break
        at = behind
    return min(at, len(data))


def _whole_blocks(data: bytes) -> int:
    """Return that of a pcapng file; each section has its own byte order."""
    order = "<"
    at = 0
    while at + 12 <= len(data):
        if data[at : at + 4] == SECTION:
            order = "<" if data[at + 8 : at + 12] == SECTION_LITTLE_ENDIAN else ">"
        length = _number(data, at + 4, order)
        if not _is_block(data, at, length):
            break
        at += length
    return at


def _is_block(data: bytes, at: int, length: int) -> bool:
    """Return True for a whole block, which has its length at its start and at its end."""
    if length < 12 or length % 4:
        return False
    return data[at + 4 : at + 8] == data[at + length - 4 : at + length]


def _number(data: bytes, at: int, order: str) -> int:
    return int(struct.unpack_from(f"{order}I", data, at)[0])


def write(frames: Iterable[Frame]) -> bytes:
    """Return a pcap file of the frames, with times in microseconds."""
    utils, _ = _scapy()
    out = io.BytesIO()
    out.close = lambda: None  # type: ignore[method-assign]  # scapy closes what it writes to
    writer = utils.RawPcapWriter(out, linktype=ETHERNET)
    writer.write_header(None)
    for frame in frames:
        _write_frame(writer, frame)
    writer.flush()
    return out.getvalue()


def _write_frame(writer: Any, frame: Frame) -> None:
    seconds, micro = divmod(round(frame.time * MICROSECONDS), MICROSECONDS)
    writer.write_packet(frame.data, sec=seconds, usec=micro)


def _check_link_type(link_type: int) -> None:
    if (kind := link_type & LINK_TYPE) != ETHERNET:
        raise Malformed(
            f"its link type is {kind}, not Ethernet (capture on one interface, not on 'any')"
        )


def _seconds(meta: Any, *, nano: bool) -> float:
    """Seconds since the epoch; a pcapng block has two halves in its interface's resolution."""
    if hasattr(meta, "sec"):
        resolution = NANOSECONDS if nano else MICROSECONDS
        return float((meta.sec * resolution + meta.usec) / resolution)
    return float(_ticks(meta) / (meta.tsresol or MICROSECONDS))


def _ticks(meta: Any) -> int:
    """Return the time of a pcapng block, 0 for one without a time."""
    if meta.tshigh is None or meta.tslow is None:
        return 0
    return int(meta.tshigh << 32) + int(meta.tslow)


def _scapy() -> tuple[Any, type[Exception]]:
    """Scapy's module for capture files, and the exception that it raises."""
    try:
        from scapy import error, utils
    except ImportError:
        raise Unavailable(
            "frames in capture files need scapy: pip install 'bwagent[pcap]'"
        ) from None
    import logging  # used only with scapy: a replay without frames starts faster without it

    # scapy warns about a truncated file, which `read` reports itself
    logging.getLogger("scapy.runtime").setLevel(logging.ERROR)
    return utils, error.Scapy_Exception
