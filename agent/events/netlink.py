"""Events of the kernel: link messages (man 7 rtnetlink), uevents (lib/kobject_uevent.c), devlink's.

Link messages name netdevs that may have changed. The socket is our own rather than pyroute2's.
Importing any part of pyroute2 0.9 imports all of it and asyncio: 23 MB in a bare interpreter, and
still 12 MB on top of what the agent has loaded. Its IPRoute queues without a bound, and receives
nothing any more after an ENOBUFS.

Only the group RTMGRP_LINK is joined: others carry neighbors and routes. Nothing is filtered in the
kernel: a socket filter knows interfaces by index, and would drop the message of a netdev that is
created again under another index. Skipping the messages of other netdevs here costs a tenth of a
millisecond of CPU for each pod that comes and goes (benchmarks/idle_wakeups.py).

Uevents are those of RDMA devices, netdevs and drivers, read through pyudev. A driver that binds a
PCI function causes "bind": the driver of a GPU or HCA was loaded.

Uevents come from the kernel's own multicast group rather than udevd's. Those of udevd follow only
after its rules have run; in a container that does not see /run/udev they never come, and no error
is reported. The kernel sends a device's uevents to the network namespace of the device, hence to a
pod with hostNetwork, and never into a user namespace.

A notification of devlink tells that a health reporter of a NIC has changed its state. The kernel
multicasts DEVLINK_CMD_HEALTH_REPORTER_RECOVER for each error and each recovery
(devlink_recover_notify in net/devlink/health.c) to the group `config` of the generic netlink family
`devlink`; anyone may join it. A test of a reporter (DEVLINK_CMD_HEALTH_REPORTER_TEST) is an error
as any other. Numbers are those of include/uapi/linux/genetlink.h and devlink.h. The event names the
device only: the helper's verb `nics` reads the reporters.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from agent.errors import Unavailable
from agent.events.event import Event
from agent.netlink import (
    ATTRIBUTE,
    NLM_F_REQUEST,
    NLMSG_ERROR,
    SOL_NETLINK,
    attributes,
    error_of,
    message,
    messages,
    number,
    text,
)

MAX_MESSAGES = 256  # read at once, before the other monitors are polled again
RECEIVE_BUFFER = 1 << 20  # octets; the kernel doubles it, and charges 2.3 KiB for a link message
DEVLINK_BUFFER = 1 << 17  # octets; the other notifications of the group are few

_RTMGRP_LINK = 1  # include/uapi/linux/rtnetlink.h
_RTM_NEWLINK, _RTM_DELLINK = 16, 17
_IFLA_IFNAME = 3  # include/uapi/linux/if_link.h
_SO_RCVBUFFORCE = 33  # include/uapi/asm-generic/socket.h
_IFINFOMSG = struct.Struct("=BxHiII")  # family, type, index, flags, change
_NETLINK_GENERIC, _NETLINK_ADD_MEMBERSHIP = 16, 1  # include/uapi/linux/netlink.h
_GENL_ID_CTRL = 16
_GENLMSGHDR = struct.Struct("=BBxx")  # command, version
_CTRL_CMD_GETFAMILY = 3
_FAMILY_ID, _FAMILY_NAME, _MCAST_GROUPS = 1, 2, 7  # CTRL_ATTR_*
_GROUP_NAME, _GROUP_ID = 1, 2  # CTRL_ATTR_MCAST_GRP_*
_REPORTER_RECOVER = 54  # DEVLINK_CMD_HEALTH_REPORTER_RECOVER
_BUS_NAME, _DEV_NAME = 1, 2  # DEVLINK_ATTR_*


class LinkMessage(NamedTuple):
    """RTM_NEWLINK or RTM_DELLINK of an interface."""

    ifindex: int
    name: str  # "" if the message has no IFLA_IFNAME
    gone: bool  # the netdev itself was deleted or moved to another namespace


class LinkMonitor:
    """Reads link messages of the netdevs in `names`; raises OSError if no socket can be opened."""

    def __init__(self, names: set[str], receive_buffer: int = RECEIVE_BUFFER) -> None:
        self._names = names
        self._sock = open_socket(socket.NETLINK_ROUTE)
        set_receive_buffer(self._sock, receive_buffer)
        self._sock.bind((0, _RTMGRP_LINK))
        # The message of a rename carries the new name only; the index leads to the old name.
        # It is known without a wait for the rtnl lock: SIOCGIFINDEX runs under RCU
        # (net/core/dev_ioctl.c). if_nameindex(3) is an RTM_GETLINK dump, which waits for the lock,
        # and Python holds the GIL meanwhile, so that not even a thread helps.
        self._by_index: dict[int, str] = {}
        for name in names:
            with suppress(OSError):
                self._by_index[socket.if_nametoindex(name)] = name

    def fileno(self) -> int:
        return self._sock.fileno()

    def read(self) -> set[Event]:
        """Return an event for each netdev that at most MAX_MESSAGES messages name.

        Raises OSError if messages were lost (ENOBUFS) or the socket has failed.
        """
        changed: set[str] = set()
        for data in datagrams(self._sock):
            for link in parse(data):
                # two netdevs for a rename, often none
                old = self._by_index.pop(link.ifindex, link.name)
                if link.name in self._names and not link.gone:
                    self._by_index[link.ifindex] = link.name
                changed |= {old, link.name} & self._names
        return {Event("link", name) for name in changed}

    def close(self) -> None:
        self._sock.close()


def parse(data: bytes) -> Iterator[LinkMessage]:
    """Yield the link messages of a datagram from the kernel; a truncated message is skipped."""
    for kind, body in messages(data):
        if kind in (_RTM_NEWLINK, _RTM_DELLINK) and len(body) >= _IFINFOMSG.size:
            family, _, ifindex, *_ = _IFINFOMSG.unpack_from(body)
            # A bridge sends RTM_DELLINK with family AF_BRIDGE when a port leaves it; that netdev
            # lives on.
            gone = kind == _RTM_DELLINK and family == socket.AF_UNSPEC
            name = text(attributes(body[_IFINFOMSG.size :]).get(_IFLA_IFNAME))
            yield LinkMessage(ifindex, name, gone)


def open_socket(protocol: int) -> socket.socket:
    """Open a netlink socket that does not block; raises OSError."""
    kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    return socket.socket(socket.AF_NETLINK, kind, protocol)


def datagrams(sock: socket.socket) -> Iterator[bytes]:
    """Yield at most MAX_MESSAGES datagrams that have arrived; raises OSError as recv(2)."""
    with suppress(BlockingIOError):
        for _ in range(MAX_MESSAGES):
            yield sock.recv(1 << 16)


def set_receive_buffer(sock: socket.socket, size: int) -> None:
    """Set SO_RCVBUF to `size` octets; without CAP_NET_ADMIN net.core.rmem_max limits it."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, size)
    except PermissionError:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)


class UeventMonitor:
    """Reads uevents of all RDMA devices, of bound PCI functions, and of the netdevs in `names`.

    Raises Unavailable where pyudev or libudev is missing, OSError where no socket can be opened.
    """

    def __init__(self, names: set[str], receive_buffer: int = RECEIVE_BUFFER) -> None:
        self._names = names
        try:
            import pyudev  # type: ignore[import-untyped]

            self._monitor: Any = pyudev.Monitor.from_netlink(pyudev.Context(), source="kernel")
        except ImportError as error:  # pyudev raises it for a missing libudev, too
            raise Unavailable(f"uevents: {error}") from error
        for subsystem in ("infiniband", "net", "pci"):
            self._monitor.filter_by(subsystem)
        # pyudev's own function needs CAP_NET_ADMIN.
        with socket.socket(fileno=os.dup(self._monitor.fileno())) as sock:
            set_receive_buffer(sock, receive_buffer)
        self._monitor.start()

    def fileno(self) -> int:
        return int(self._monitor.fileno())

    def read(self) -> set[Event]:
        """Return events for at most MAX_MESSAGES uevents; OSError (ENOBUFS) if some were lost.

        A rename ("move") names the old device as well. A name that is not UTF-8 gives "resync".
        """
        events: set[Event] = set()
        for _ in range(MAX_MESSAGES):
            device = self._monitor.poll(0)
            if device is None:
                break
            try:
                names = {device.sys_name}
                if device.action == "move":
                    names.add(device.properties.get("DEVPATH_OLD", "").rpartition("/")[2])
                if device.subsystem == "net":
                    events |= {Event("link", name) for name in names & self._names}
                elif device.subsystem == "infiniband" or device.action == "bind":
                    events |= {Event("device", name) for name in names if name}
            except UnicodeDecodeError:  # by pyudev: any bytes but a few are a netdev name
                events.add(Event("resync", "uevents"))
        return events

    def close(self) -> None:
        self._monitor = None  # libudev closes the socket with the last reference


class DevlinkFamily(NamedTuple):
    """The numbers that the kernel has given to devlink since the boot; 0: it has none."""

    id: int = 0
    group: int = 0  # `config`


class DevlinkMonitor:
    """Reads the notifications of all devices; without devlink in the kernel there are none.

    Raises OSError if no socket can be opened, or the kernel refuses the question.
    """

    def __init__(
        self,
        _netdevs: set[str],
        connect: Callable[[], socket.socket] = lambda: open_socket(_NETLINK_GENERIC),
    ) -> None:
        self._sock = connect()
        try:
            set_receive_buffer(self._sock, DEVLINK_BUFFER)
            self._sock.send(family_request())
            # The kernel answers before `send` returns.
            self._family = family(self._sock.recv(1 << 16))
            if group := self._family.group:
                self._sock.setsockopt(SOL_NETLINK, _NETLINK_ADD_MEMBERSHIP, group)
        except OSError:
            self._sock.close()
            raise

    def fileno(self) -> int:
        return self._sock.fileno()

    def read(self) -> set[Event]:
        """Return an event for each device that at most MAX_MESSAGES notifications name.

        Raises OSError if notifications were lost (ENOBUFS) or the socket has failed.
        """
        devices: set[str] = set()
        for data in datagrams(self._sock):
            devices |= {*notified(data, self._family.id)}
        return {Event("health", device) for device in devices}

    def close(self) -> None:
        self._sock.close()


def family_request() -> bytes:
    """Return the question for devlink's numbers, CTRL_CMD_GETFAMILY."""
    name = b"devlink\0"
    body = _GENLMSGHDR.pack(_CTRL_CMD_GETFAMILY, 1)
    body += ATTRIBUTE.pack(ATTRIBUTE.size + len(name), _FAMILY_NAME) + name
    return message(_GENL_ID_CTRL, NLM_F_REQUEST, body)


def family(answer: bytes) -> DevlinkFamily:
    """Decode the answer; OSError for any refusal but ENOENT, of a kernel without devlink."""
    for kind, body in messages(answer):
        if kind == NLMSG_ERROR:
            if (error := error_of(body)) != errno.ENOENT:
                raise OSError(error, os.strerror(error))
        elif kind == _GENL_ID_CTRL:
            of_family = attributes(body[_GENLMSGHDR.size :])
            for group in attributes(of_family.get(_MCAST_GROUPS, b"")).values():
                of_group = attributes(group)
                if text(of_group.get(_GROUP_NAME)) == "config":
                    return DevlinkFamily(
                        number(of_family.get(_FAMILY_ID)), number(of_group.get(_GROUP_ID))
                    )
    return DevlinkFamily()


def notified(data: bytes, family_id: int) -> Iterator[str]:
    """Yield the devices whose reporters a datagram tells of; what is cut short is skipped.

    A device of another bus than PCI is `BUS/NAME`, as in agent/nic/driver.py.
    """
    for kind, body in messages(data):
        if kind == family_id and body[:1] == bytes([_REPORTER_RECOVER]):
            told = attributes(body[_GENLMSGHDR.size :])
            bus, device = (text(told.get(key)) for key in (_BUS_NAME, _DEV_NAME))
            if bus and device:
                yield device if bus == "pci" else f"{bus}/{device}"
