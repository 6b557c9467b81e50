"""Default routes by rtnetlink: all next hops of the main table (man 7 rtnetlink).

/proc/net/route lists only the first next hop of a multipath route. A dump begins with the default
routes (net/ipv4/fib_trie.c, fib_table_dump), so of IPv4 it is read no further than these, and of
IPv6 up to MAX_OCTETS: a longer table is not known.

The kernel is asked again only after a change of a route. A socket that has joined the groups of
routes shows that, by a queued message or an overflow of its queue; it is never waited for.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial

from agent.errors import Unavailable
from agent.netlink import (
    NLM_F_DUMP,
    NLM_F_REQUEST,
    NLMSG_DONE,
    NLMSG_ERROR,
    SOL_NETLINK,
    aligned,
    attributes,
    error_of,
    message,
    messages,
    number,
)
from agent.sysfs.front_end import Hop

MAX_OCTETS = 1 << 22  # of one dump
TIMEOUT = 2.0  # seconds for one answer
QUEUE = 4096  # octets of messages about changes; one suffices

_RTM_NEWROUTE, _RTM_GETROUTE = 24, 26  # include/uapi/linux/rtnetlink.h
_RTMGRP_IPV4_ROUTE, _RTMGRP_IPV6_ROUTE = 0x40, 0x400
_RT_TABLE_MAIN, _RTN_UNICAST = 254, 1
_RTA_DST, _RTA_OIF, _RTA_PRIORITY, _RTA_MULTIPATH, _RTA_TABLE, _RTA_NH_ID = 1, 4, 6, 9, 15, 30
_NETLINK_GET_STRICT_CHK = 12  # Linux 4.20: the kernel selects the table
# family, length of the destination's prefix, of the source's, TOS, table, protocol, scope, type,
# flags
_RTMSG = struct.Struct("=BBBBBBBBI")
_RTNEXTHOP = struct.Struct("=HBBi")  # length, flags, weight, interface
FAMILIES = {socket.AF_INET: 4, socket.AF_INET6: 6}


class RouteTable:
    """The default routes of this network namespace, as of the last change."""

    def __init__(self) -> None:
        self._changes: socket.socket | None = None
        self._hops: tuple[Hop, ...] | None = None

    def __call__(self) -> tuple[Hop, ...]:
        """Return all next hops of the default routes; raises Unavailable."""
        try:
            if self._changes is None or self._has_changed():
                # A new socket has an empty queue; before the dump, so that no change is missed.
                self.close()
                self._hops = None
                self._changes = _socket(socket.SOCK_NONBLOCK)
                self._changes.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, QUEUE)
                self._changes.bind((0, _RTMGRP_IPV4_ROUTE | _RTMGRP_IPV6_ROUTE))
            if self._hops is None:
                self._hops = query(socket.AF_INET) or query(socket.AF_INET6)
        except OSError as error:
            self.close()
            raise Unavailable(f"routes: {error.strerror or error}") from error
        return self._hops

    def close(self) -> None:
        if self._changes:
            self._changes.close()
        self._changes = None

    def _has_changed(self) -> bool:
        try:
            return self._changes is not None and bool(self._changes.recv(1))
        except BlockingIOError:
            return False
        except OSError:  # ENOBUFS: more than the queue holds
            return True


def _socket(flags: int = 0) -> socket.socket:
    kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC | flags
    return socket.socket(socket.AF_NETLINK, kind, socket.NETLINK_ROUTE)


def query(family: socket.AddressFamily) -> tuple[Hop, ...]:
    """Return the next hops of the default routes of a family; raises OSError or Unavailable."""
    names: dict[int, str] = {}
    hops = []
    with closing(_socket()) as sock:
        sock.settimeout(TIMEOUT)
        with suppress(OSError):
            sock.setsockopt(SOL_NETLINK, _NETLINK_GET_STRICT_CHK, 1)
        body = _RTMSG.pack(family, 0, 0, 0, _RT_TABLE_MAIN, 0, 0, 0, 0)
        sock.send(message(_RTM_GETROUTE, NLM_F_REQUEST | NLM_F_DUMP, body))
        answers = iter(partial(sock.recv, 1 << 16), None)
        for metric, index in _default_routes(answers, family):
            if index not in names:
                names[index] = socket.if_indextoname(index)
            hops.append(Hop(FAMILIES[family], metric, names[index]))
    return tuple(hops)


def _default_routes(answers: Iterator[bytes], family: int) -> Iterator[tuple[int, int]]:
    """Yield metric and interface of each next hop, until the dump, or its default routes, end.

    Raises OSError, and Unavailable beyond MAX_OCTETS.
    """
    octets = 0
    for data in answers:
        octets += len(data)
        for kind, body in messages(data):
            if kind == NLMSG_ERROR:
                if (error := error_of(body)) in (0, errno.ENOENT):  # there is no such table
                    return
                raise OSError(error, os.strerror(error))
            if kind == NLMSG_DONE:
                return
            if kind != _RTM_NEWROUTE or len(body) < _RTMSG.size:
                continue
            _, prefix, _, _, table, _, _, route_type, _ = _RTMSG.unpack_from(body)
            route = attributes(body[_RTMSG.size :])
            table = number(route.get(_RTA_TABLE), table)
            if table == _RT_TABLE_MAIN and prefix == 0 and route_type == _RTN_UNICAST:
                yield from hops_of(route)
            destination = route.get(_RTA_DST, b"")
            is_beyond = table == _RT_TABLE_MAIN and any(destination)
            if is_beyond and family == socket.AF_INET:
                return
        if octets >= MAX_OCTETS:
            raise Unavailable(f"routes: more than {MAX_OCTETS} octets")


def hops_of(route: dict[int, bytes]) -> Iterator[tuple[int, int]]:
    """Yield metric and interface of each next hop of a route, given by its attributes."""
    metric = number(route.get(_RTA_PRIORITY), 0)
    interfaces = [number(route[_RTA_OIF], 0)] if _RTA_OIF in route else []
    rest = route.get(_RTA_MULTIPATH, b"")
    while len(rest) >= _RTNEXTHOP.size:
        length, _, _, index = _RTNEXTHOP.unpack_from(rest)
        interfaces.append(index)
        rest = rest[max(aligned(length), _RTNEXTHOP.size) :]
    if not interfaces and _RTA_NH_ID in route:  # net.ipv4.nexthop_compat_mode is 0
        raise Unavailable("routes: the kernel names next hops by their objects only")
    for index in interfaces:
        yield metric, index
