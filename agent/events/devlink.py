"""Notifications of devlink: a health reporter of a NIC has changed its state.

The kernel multicasts DEVLINK_CMD_HEALTH_REPORTER_RECOVER for each error and each recovery
(devlink_recover_notify in net/devlink/health.c) to the group `config` of the generic netlink family
`devlink`; anyone may join it. A test of a reporter (DEVLINK_CMD_HEALTH_REPORTER_TEST) is an error
as any other. Numbers are those of include/uapi/linux/genetlink.h and devlink.h.

The socket is our own, as that of agent/events/netlink.py. The event names the device only: the
helper's verb `nics` reads the reporters.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from agent.events.event import Event
from agent.events.netlink import datagrams, open_socket, set_receive_buffer
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

RECEIVE_BUFFER = 1 << 17  # octets; the other notifications of the group are few
_NETLINK_GENERIC, _NETLINK_ADD_MEMBERSHIP = 16, 1  # include/uapi/linux/netlink.h
_GENL_ID_CTRL = 16
_GENLMSGHDR = struct.Struct("=BBxx")  # command, version
_CTRL_CMD_GETFAMILY = 3
_FAMILY_ID, _FAMILY_NAME, _MCAST_GROUPS = 1, 2, 7  # CTRL_ATTR_*
_GROUP_NAME, _GROUP_ID = 1, 2  # CTRL_ATTR_MCAST_GRP_*
_REPORTER_RECOVER = 54  # DEVLINK_CMD_HEALTH_REPORTER_RECOVER
_BUS_NAME, _DEV_NAME = 1, 2  # DEVLINK_ATTR_*


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
            set_receive_buffer(self._sock, RECEIVE_BUFFER)
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
