"""Receive LLDP frames on packet sockets (man 7 packet).

Invariants: nothing is sent, and promiscuous mode is never set. Each netdev has a socket of its own,
bound to the LLDP ethertype, so that only LLDP frames wake the process, and a member of the three
group addresses, so that the NIC passes them. CAP_NET_RAW is sufficient.

A link that goes down gives ENETDOWN once; the socket receives again when the link is back. A netdev
that was deleted, renamed or moved to another namespace leaves its socket without frames, or with
another name, permanently. getsockname() shows that: the kernel returns the present name of the
bound ifindex, none if it is gone. `Listener.watch` compares it each time and replaces the socket.

The kernel removes a VLAN tag before it dispatches packets by ethertype (net/core/dev.c,
__netif_receive_skb_core). So a frame with one tag arrives untagged, and a frame with two tags does
not arrive.

Open vSwitch takes the frames of its ports before sockets that are bound to an ethertype. With
`openvswitch=True` a socket is bound to all ethertypes, and a classic BPF program passes LLDP only;
it runs for each packet of the port. Such a socket gets the removed tag as ancillary data, and
receives frames with two tags.
"""

from __future__ import annotations

import array
import ctypes
import errno
import math
import os
import select
import socket
import struct
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from agent.errors import Unavailable
from agent.lldp.frame import ETHERTYPE, GROUPS, MAX_FRAME, TPIDS, Frame, drop_reason
from agent.lldp.socket_filter import lldp_program
from agent.lldp.socket_opener import SocketOpener, run_at_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agent.lldp.socket_filter import Instruction
    from agent.lldp.socket_opener import Open, Run

    Ancillary = tuple[int, int, bytes]  # level, type, payload

RECEIVE_BUFFER = 1 << 16  # octets for each socket; the kernel doubles it for its own overhead
MAX_FRAMES = 64  # taken from a socket in one call of `receive`

_ETH_P_ALL = 0x0003  # include/uapi/linux/if_ether.h
_SOL_PACKET = 263  # include/linux/socket.h
# include/uapi/linux/if_packet.h
_PACKET_ADD_MEMBERSHIP = 1
_PACKET_AUXDATA = 8
_PACKET_IGNORE_OUTGOING = 23
_PACKET_MR_MULTICAST = 0
_TP_STATUS_VLAN_VALID = 1 << 4
_TP_STATUS_VLAN_TPID_VALID = 1 << 6
_SO_ATTACH_FILTER = 26  # include/uapi/asm-generic/socket.h
_MREQ = struct.Struct("@iHH8s")  # struct packet_mreq: ifindex, type, address length, address
_INSTRUCTION = struct.Struct("@HBBI")  # struct sock_filter: code, jump if true, if false, operand
_PROGRAM = struct.Struct("@HP")  # struct sock_fprog: number of instructions, their address
# struct tpacket_auxdata: status, len, snaplen, mac, net, VLAN TCI, VLAN TPID
_AUXDATA = struct.Struct("@IIIHHHH")
_DOWN = frozenset({errno.ENETDOWN, errno.ENODEV, errno.ENXIO})  # the netdev is down or gone
_AGAIN = frozenset({errno.EAGAIN, errno.EINTR})
_LIBC = ctypes.CDLL(None, use_errno=True)


class Listener:
    """The packet sockets of a changing set of netdevs.

    `run` runs a call that may wait for the kernel's rtnl lock: at once, or in another thread, and
    the socket is open later. `open_socket` opens the socket of a netdev, or raises OSError.

    `dropped` counts discarded frames by reason (agent/lldp/frame.py, drop_reason).
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        *,
        openvswitch: bool = False,
        run: Run = run_at_once,
        open_socket: Open | None = None,
    ) -> None:
        self.dropped = {"oversize": 0, "destination": 0, "own": 0}
        self._clock = clock
        open_socket = open_socket or partial(open_lldp_socket, openvswitch=openvswitch)
        self._opener = SocketOpener(open_socket, run)
        self._wanted: frozenset[str] = frozenset()
        self._sockets: dict[str, socket.socket] = {}
        self._names: dict[int, str] = {}  # netdevs by file descriptor
        self._poll = select.poll()

    @property
    def errors(self) -> dict[str, str]:
        """The error of each netdev whose socket could not be opened."""
        return {netdev: _text(error) for netdev, error in self._opener.errors.items()}

    def watch(self, netdevs: Iterable[str]) -> dict[str, str | None]:
        """Receive on these netdevs and no others; return those without a socket.

        Their values are the error of the last attempt, None during the first one. Each call is
        another attempt. The socket of a netdev that was renamed, or deleted and made again, is
        replaced. Raise Unavailable without CAP_NET_RAW.
        """
        self._wanted = frozenset(netdevs)
        self._add_opened()
        self._drop_unusable()
        self._opener.request(self._wanted - self._sockets.keys())
        self._add_opened()
        self._check_permission()
        errors, missing = self.errors, sorted(self._wanted - self._sockets.keys())
        return {netdev: errors.get(netdev) for netdev in missing}

    def receive(self, timeout: float) -> list[Frame]:
        """Return the frames received; wait up to `timeout` seconds for the first.

        A netdev that is down or gone has none, which is no error.
        """
        self._add_opened()
        ready = self._poll.poll(math.ceil(timeout * 1000))
        return [frame for fd, _ in ready for frame in self._drain(fd)]

    def filenos(self) -> list[int]:
        """Return the descriptors that are readable when `receive` has something to do.

        The sockets opened since the last call are among them.
        """
        self._add_opened()
        return list(self._names)

    def close(self) -> None:
        """Close all sockets; `watch` may open new ones."""
        self._wanted = frozenset()
        for netdev in list(self._sockets):
            self._drop(netdev)

    def _drop_unusable(self) -> None:
        """Close the sockets of other netdevs, and those whose netdev is gone or was renamed."""
        for netdev, sock in list(self._sockets.items()):
            if netdev not in self._wanted or _bound_to(sock)[0] != netdev:
                self._drop(netdev)

    def _check_permission(self) -> None:
        for netdev, error in sorted(self._opener.errors.items()):
            if isinstance(error, PermissionError):
                text = f"{netdev}: no packet socket for LLDP: CAP_NET_RAW is missing"
                raise Unavailable(text) from error

    def _add_opened(self) -> None:
        for netdev, sock in self._opener.take():
            if netdev in self._wanted:
                self._add(netdev, sock)
            else:
                self._opener.close(sock)

    def _add(self, netdev: str, sock: socket.socket) -> None:
        self._sockets[netdev] = sock
        self._names[sock.fileno()] = netdev
        self._poll.register(sock, select.POLLIN)

    def _drop(self, netdev: str) -> None:
        sock = self._sockets.pop(netdev)
        self._poll.unregister(sock)
        del self._names[sock.fileno()]
        self._opener.close(sock)

    def _drain(self, fd: int) -> Iterable[Frame]:
        netdev = self._names[fd]
        sock = self._sockets[netdev]
        _, own = _bound_to(sock)
        for _ in range(MAX_FRAMES):
            data = _receive(sock)
            if data is None:
                return
            if self._accepts(data, own):
                yield Frame(netdev, self._clock(), data)

    def _accepts(self, data: bytes, own: bytes) -> bool:
        """Return True for a frame to keep, else count it; `own` is the netdev's MAC address."""
        reason = drop_reason(data, own)
        if reason:
            self.dropped[reason] += 1
        return reason is None


def open_lldp_socket(netdev: str, *, openvswitch: bool) -> socket.socket:
    """Open the packet socket of a netdev; raise OSError.

    The memberships wait for the kernel's rtnl lock (net/packet/af_packet.c, packet_mc_add), as
    closing does (packet_flush_mclist).
    """
    # A protocol of 0 receives nothing, so no frame of another netdev arrives before the bind.
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    try:
        _set_options(sock)
        _bind(sock, netdev, openvswitch=openvswitch)
        _join_groups(sock, socket.if_nametoindex(netdev))
    except BaseException:
        sock.close()
        raise
    return sock


def _bind(sock: socket.socket, netdev: str, *, openvswitch: bool) -> None:
    if openvswitch:
        _attach(sock, lldp_program())
    sock.bind((netdev, _ETH_P_ALL if openvswitch else ETHERTYPE))


def _set_options(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
    sock.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
    with suppress(OSError):  # ENOPROTOOPT before Linux 4.20; _receive() skips outgoing frames, too
        sock.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)


def _join_groups(sock: socket.socket, ifindex: int) -> None:
    for group in GROUPS:
        _join(sock, _MREQ.pack(ifindex, _PACKET_MR_MULTICAST, len(group), group))


def _join(sock: socket.socket, request: bytes) -> None:
    """Join a group by libc's setsockopt, which waits for the rtnl lock without the GIL.

    Python's own holds the GIL (Modules/socketmodule.c, sock_setsockopt): all threads would wait.
    """
    option = _SOL_PACKET, _PACKET_ADD_MEMBERSHIP
    if _LIBC.setsockopt(sock.fileno(), *option, request, len(request)):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _attach(sock: socket.socket, program: list[Instruction]) -> None:
    code = array.array("B", b"".join(_INSTRUCTION.pack(*instruction) for instruction in program))
    program_header = _PROGRAM.pack(len(program), code.buffer_info()[0])
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program_header)


def _bound_to(sock: socket.socket) -> tuple[str, bytes]:
    """Return the present name and the MAC address of the netdev that a socket is bound to.

    The name is "" if the netdev is gone, or was renamed to bytes that are not UTF-8, which Python
    refuses to decode (Modules/socketmodule.c, makesockaddr).
    """
    try:
        name, _, _, _, address = sock.getsockname()
    except UnicodeDecodeError:
        return "", b""
    return name, address


def _receive(sock: socket.socket) -> bytes | None:
    """Return the next frame with its VLAN tag; None if there is none."""
    while True:
        try:
            data, ancillary, _, address = sock.recvmsg(
                MAX_FRAME + 5, socket.CMSG_SPACE(_AUXDATA.size)
            )
        except OSError as error:
            if error.errno in _DOWN | _AGAIN:
                return None
            raise
        except UnicodeDecodeError:  # see _bound_to(); the frame is lost, and `watch` closes this
            return None
        if address[2] != socket.PACKET_OUTGOING:
            return _with_tag(data, ancillary)


def _with_tag(data: bytes, ancillary: list[Ancillary]) -> bytes:
    """Insert the outer VLAN tag that the NIC or the kernel removed.

    It is in the ancillary data of sockets for all ethertypes.
    """
    for level, kind, payload in ancillary:
        if (level, kind) == (_SOL_PACKET, _PACKET_AUXDATA) and len(payload) >= _AUXDATA.size:
            return data[:12] + _tag(payload) + data[12:]
    return data


def _tag(payload: bytes) -> bytes:
    """Return the VLAN tag in the auxiliary data of a frame; it is empty if there is none."""
    status, *_, tci, tpid = _AUXDATA.unpack_from(payload)
    if not status & _TP_STATUS_VLAN_VALID:
        return b""
    return struct.pack("!HH", tpid if status & _TP_STATUS_VLAN_TPID_VALID else TPIDS[0], tci)


def _text(error: OSError) -> str:
    number = error.errno or errno.ENODEV  # if_nametoindex() sets none
    return f"{errno.errorcode.get(number, number)}: {os.strerror(number)}"
