"""Messages of netlink and their attributes in octets (man 7 netlink); what is cut is skipped."""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Iterator

NLMSG_ERROR, NLMSG_DONE = 2, 3
NLM_F_REQUEST, NLM_F_DUMP = 0x1, 0x300
SOL_NETLINK = 270  # include/linux/socket.h
HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
ATTRIBUTE = struct.Struct("=HH")  # length, type
_NLA_TYPE_MASK = 0x3FFF  # without NLA_F_NESTED and NLA_F_NET_BYTEORDER


def messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield type and body of the messages of a datagram, up to a truncated message."""
    return _parts(data, HEADER)


def attributes(data: bytes) -> dict[int, bytes]:
    """Return the attributes by type, up to a truncated attribute; of a type the last."""
    return {kind & _NLA_TYPE_MASK: value for kind, value in _parts(data, ATTRIBUTE)}


def error_of(body: bytes) -> int:
    """Return the errno of the body of an NLMSG_ERROR; 0 is an acknowledgment."""
    return -int.from_bytes(body[:4], sys.byteorder, signed=True)


def text(value: bytes | None) -> str:
    """Return the text of an attribute, "" without it."""
    return os.fsdecode((value or b"").partition(b"\0")[0])


def number(value: bytes | None, default: int = 0) -> int:
    """Return the number of an attribute of 16 or 32 bits; `default` for anything else."""
    return int.from_bytes(value, sys.byteorder) if value and len(value) in (2, 4) else default


def message(kind: int, flags: int, body: bytes) -> bytes:
    """Return a request to the kernel."""
    return HEADER.pack(HEADER.size + len(body), kind, flags, 1, 0) + body


def aligned(length: int) -> int:
    """Return a length as it is padded: NLMSG_ALIGN, NLA_ALIGN and RTA_ALIGN."""
    return (length + 3) & ~3


def _parts(data: bytes, header: struct.Struct) -> Iterator[tuple[int, bytes]]:
    """Yield type and contents of what has this header, which begins with the length of both."""
    at = 0
    while at + header.size <= len(data):
        length, kind, *_ = header.unpack_from(data, at)
        if not header.size <= length <= len(data) - at:
            return
        yield kind, data[at + header.size : at + length]
        at += aligned(length)
