"""Link messages of the kernel: which netdevs may have changed (man 7 netlink, man 7 rtnetlink).

The socket is our own and not pyroute2's. Importing any part of pyroute2 0.9 imports all of it and asyncio: 23 MB in a
bare interpreter, and still 12 MB where everything else that the agent needs is loaded, which brings that to 39.6 MB of
the 40 that it may have. Its IPRoute queues without a bound, too, and never hears again after an ENOBUFS.

Only the group RTMGRP_LINK is joined: others carry neighbours and routes. Nothing is filtered in the kernel: a filter
knows interfaces by index, and would drop the message of one that is made again under another index. What is passed over
here instead costs a tenth of a millisecond of CPU for each pod that comes and goes (benchmarks/idle_wakeups.py).
"""

from __future__ import annotations

import os
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

BURST = 256  # messages taken at once, before others have their turn
RECEIVE_BUFFER = (
    1 << 20
)  # octets, doubled by the kernel; a link message takes about 2.3 KiB of that

_RTMGRP_LINK = 1  # include/uapi/linux/rtnetlink.h
_RTM_NEWLINK, _RTM_DELLINK = 16, 17
_IFLA_IFNAME = 3  # include/uapi/linux/if_link.h
_SO_RCVBUFFORCE = 33  # include/uapi/asm-generic/socket.h
_NLMSGHDR = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_IFINFOMSG = struct.Struct("=BxHiII")  # family, type, index, flags, change
_RTATTR = struct.Struct("=HH")  # length, type


class LinkMessage(NamedTuple):
    """RTM_NEWLINK or RTM_DELLINK of an interface."""

    ifindex: int
    name: str  # "" where it is missing
    gone: bool


class LinkSocket:
    """Link messages of the netdevs in `names`, a set that its owner may change; raises OSError."""

    def __init__(self, names: set[str], receive_buffer: int = RECEIVE_BUFFER) -> None:
        self._names = names
        kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        self._sock = socket.socket(socket.AF_NETLINK, kind, socket.NETLINK_ROUTE)
        enlarge(self._sock, receive_buffer)
        self._sock.bind((0, _RTMGRP_LINK))
        # A message tells the new name of what was renamed; by its index we know whom that concerns.
        self._known = {index: name for index, name in socket.if_nameindex() if name in names}

    def fileno(self) -> int:
        """Readable when `changed` has something to do."""
        return self._sock.fileno()

    def changed(self) -> set[str]:
        """The netdevs that at most BURST messages were about; never waits.

        An OSError says that messages were lost (ENOBUFS) or the socket is dead: close it, open another, look at all.
        """
        return {
            name
            for data in self._received()
            for message in parse(data)
            for name in self._concerned(message)
        }

    def close(self) -> None:
        """Stop listening."""
        self._sock.close()

    def _received(self) -> Iterator[bytes]:
        with suppress(BlockingIOError):
            for _ in range(BURST):
                yield self._sock.recv(1 << 16)

    def _concerned(self, message: LinkMessage) -> set[str]:
        known = self._known.pop(message.ifindex, message.name)
        if message.name in self._names and not message.gone:
            self._known[message.ifindex] = message.name
        return {known, message.name} & self._names


def parse(data: bytes) -> Iterator[LinkMessage]:
    """The link messages in a datagram from the kernel; what is cut short is passed over."""
    at = 0
    while at + _NLMSGHDR.size + _IFINFOMSG.size <= len(data):
        length, kind, *_ = _NLMSGHDR.unpack_from(data, at)
        if kind in (_RTM_NEWLINK, _RTM_DELLINK):
            body = data[at + _NLMSGHDR.size : at + length]
            if len(body) >= _IFINFOMSG.size:
                family, _, ifindex, *_ = _IFINFOMSG.unpack_from(body)
                # A bridge speaks in its own family when it lets go of a port that lives on.
                yield LinkMessage(
                    ifindex, _name(body), gone=kind == _RTM_DELLINK and family == socket.AF_UNSPEC
                )
        at += max(_aligned(length), _NLMSGHDR.size)


def _name(body: bytes) -> str:
    at = _IFINFOMSG.size
    while at + _RTATTR.size <= len(body):
        length, kind = _RTATTR.unpack_from(body, at)
        if kind == _IFLA_IFNAME:
            return os.fsdecode(body[at + _RTATTR.size : at + length].partition(b"\0")[0])
        at += max(_aligned(length), _RTATTR.size)
    return ""


def _aligned(length: int) -> int:
    return (length + 3) & ~3  # NLMSG_ALIGN and RTA_ALIGN


def enlarge(sock: socket.socket, size: int) -> None:
    """Ask for a receive buffer of `size` octets; without CAP_NET_ADMIN net.core.rmem_max is the limit."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, size)
    except PermissionError:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
