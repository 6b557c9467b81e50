"""LLDP frames in capture files: reads and writes pcap (draft-ietf-opsawg-pcap).

    file    magic 4 | version 2, 2 | reserved 4, 4 | snap length 4 | link type 4 | record ...
    record  seconds 4 | fraction 4 | captured length 4 | original length 4 | octets

The magic number has the byte order of all numbers and the unit of the fractions.

Invariant: a record is read as a whole or not at all. A frame that the snap length has cut is left
out, since it may lack the TLV that names its sender.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from agent.errors import Malformed
from agent.lldp.frame import Frame, is_lldp

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_FRAMES = 100_000
MAX_LENGTH = 262_144  # octets of one frame, the largest snap length of libpcap
VERSION = 2, 4
ETHERNET = 1  # LINKTYPE_ETHERNET
LINK_TYPE = 0xFFFF  # mask; the bits above it are the length of the frame check sequence
MICROSECONDS, NANOSECONDS = 1_000_000, 1_000_000_000
RESOLUTIONS = {0xA1B2C3D4: MICROSECONDS, 0xA1B23C4D: NANOSECONDS}  # by magic number
_FILE_HEADER = "IHHIIII"
_RECORD_HEADER = "IIII"


class _Format(NamedTuple):
    """The properties of one file, from its header."""

    record_header: struct.Struct
    resolution: int  # fractions per second
    first: int  # offset of the first record


class _Record(NamedTuple):
    """The header of one record, and the offset of its octets."""

    at: int
    seconds: int
    fraction: int
    length: int
    original_length: int

    @property
    def end(self) -> int:
        """Offset of the next record."""
        return self.at + self.length


def read(netdev: str, data: bytes) -> tuple[list[Frame], str | None]:
    """Return the LLDP frames of a file in its order, and a fault in the file (or None).

    Frames before the fault count. Raises Malformed for data that is no Ethernet pcap file.
    """
    file = _format(data)
    records, fault = _records(data, file)
    lldp = [record for record in records if is_lldp(data[record.at : record.end])]
    whole = [record for record in lldp if record.length >= record.original_length]
    frames = [_frame(netdev, data, file, record) for record in whole]
    return frames, fault or cut_fault(len(lldp) - len(whole))


def is_empty(data: bytes) -> bool:
    """Return True for a pcap file without records."""
    return len(data) == _format(data).first


def check_link_type(link_type: int) -> None:
    """Raise Malformed for a link type other than Ethernet."""
    if (kind := link_type & LINK_TYPE) != ETHERNET:
        raise Malformed(
            f"its link type is {kind}, not Ethernet (capture on one interface, not on 'any')"
        )


def check_count(number: int) -> None:
    """Raise Malformed for more than MAX_FRAMES frames."""
    if number > MAX_FRAMES:
        raise Malformed(f"more than {MAX_FRAMES} frames")


def cut_fault(count: int) -> str | None:
    """Return the fault of a file with so many LLDP frames that the snap length has cut."""
    return f"LLDP frames cut by the snap length: {count} (use tcpdump -s 0)" if count else None


def _frame(netdev: str, data: bytes, file: _Format, record: _Record) -> Frame:
    time = (record.seconds * file.resolution + record.fraction) / file.resolution
    return Frame(netdev, time, data[record.at : record.end])


def _format(data: bytes) -> _Format:
    """Decode the header of the file."""
    order, resolution = _magic(data)
    header = struct.Struct(order + _FILE_HEADER)
    if len(data) < header.size:
        raise Malformed(f"no pcap or pcapng file: it ends in its header, at octet {len(data)}")
    _, major, minor, *_, link_type = header.unpack_from(data)
    if (major, minor) != VERSION:
        raise Malformed(f"no pcap or pcapng file: version {major}.{minor} instead of 2.4")
    check_link_type(link_type)
    return _Format(struct.Struct(order + _RECORD_HEADER), resolution, header.size)


def _magic(data: bytes) -> tuple[str, int]:
    """Return the byte order, as `struct` has it, and the fractions per second."""
    for order, name in (("<", "little"), (">", "big")):
        if resolution := RESOLUTIONS.get(int.from_bytes(data[:4], name)):  # type: ignore[arg-type]
            return order, resolution
    raise Malformed(f"no pcap or pcapng file: it begins with {data[:4].hex() or 'nothing'}")


def _records(data: bytes, file: _Format) -> tuple[list[_Record], str | None]:
    """Return the whole records, and the fault of the first one that is not."""
    records: list[_Record] = []
    at = file.first
    while at < len(data):
        record = _record(data, at, file)
        if record and record.length > MAX_LENGTH:
            return records, f"no record at octet {at}: its length is {record.length}"
        if record is None or record.end > len(data):
            return records, f"breaks off at octet {at} of {len(data)}"
        if record.fraction >= file.resolution:
            return records, f"no record at octet {at}: its time has a fraction beyond one second"
        records.append(record)
        check_count(len(records))
        at = record.end
    return records, None


def _record(data: bytes, at: int, file: _Format) -> _Record | None:
    """Decode the header of a record; None for a truncated one."""
    octets = at + file.record_header.size
    if octets > len(data):
        return None
    return _Record(octets, *file.record_header.unpack_from(data, at))


def write(frames: Iterable[Frame]) -> bytes:
    """Return a pcap file of the frames, with times in microseconds."""
    header = struct.pack(f"<{_FILE_HEADER}", 0xA1B2C3D4, *VERSION, 0, 0, MAX_LENGTH, ETHERNET)
    return header + b"".join(map(_written, frames))


def _written(frame: Frame) -> bytes:
    seconds, micro = divmod(round(frame.time * MICROSECONDS), MICROSECONDS)
    length = len(frame.data)
    return struct.pack(f"<{_RECORD_HEADER}", seconds, micro, length, length) + frame.data
