"""LLDP frames off the wire, by packet sockets of our own (man 7 packet).

The law of this module: listen to what the switches send anyway, and leave no trace. One socket for each netdev, bound
to the LLDP ethertype, so that the kernel wakes us for LLDP frames only; membership in the three group addresses, so
that the NIC lets them through; never promiscuous mode; never a frame sent. CAP_NET_RAW is enough.

What a socket is bound to can change under it. A link that goes down says ENETDOWN once, and the socket hears again when
it is back. A netdev that is deleted, renamed or moved to another namespace leaves its socket deaf or misnamed for ever,
and getsockname() tells: the kernel gives the name behind the bound ifindex, none when it is gone. `Listener.watch` asks
each time, and builds a new socket where the answer is not the name that it is to watch.

Frames to other addresses are dropped: bridges forward those, so that anybody in the broadcast domain could play the
switch at the other end. The three group addresses are filtered by bridges (IEEE Std 802.1AB-2016, 7.1; 802.1Q, 8.6.3).

A VLAN tag is taken off by the kernel before it sorts packets by ethertype (net/core/dev.c, __netif_receive_skb_core).
So we hear tagged frames as untagged ones, and none with two tags.

Ports of an Open vSwitch are emptied before a socket bound to an ethertype is asked. `openvswitch=True` hears them, by
sockets for all ethertypes with a classic BPF program that passes LLDP only; it costs a run of it for each packet. Such
sockets are told the tag that was taken off, and hear two.
"""

from __future__ import annotations

import array
import errno
import math
import os
import select
import socket
import struct
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from agent.errors import Unavailable
from agent.lldp.frame import (
    ETHERTYPE,
    NEAREST_BRIDGE,
    NEAREST_CUSTOMER_BRIDGE,
    NEAREST_NON_TPMR_BRIDGE,
    TPIDS,
    Frame,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

GROUPS = (NEAREST_BRIDGE, NEAREST_NON_TPMR_BRIDGE, NEAREST_CUSTOMER_BRIDGE)
MAX_FRAME = 1518  # octets; with a VLAN tag four more
RECEIVE_BUFFER = 1 << 16  # octets a socket; the kernel doubles it for its own overhead
BURST = 64  # frames taken from a socket before the others have their turn

_ETH_P_ALL = 0x0003  # include/uapi/linux/if_ether.h
_SOL_PACKET = 263  # include/linux/socket.h
# include/uapi/linux/if_packet.h
_PACKET_ADD_MEMBERSHIP, _PACKET_AUXDATA, _PACKET_IGNORE_OUTGOING = 1, 8, 23
_PACKET_MR_MULTICAST = 0
_TP_STATUS_VLAN_VALID, _TP_STATUS_VLAN_TPID_VALID = 1 << 4, 1 << 6
_SO_ATTACH_FILTER = 26  # include/uapi/asm-generic/socket.h
_LDH_ABS, _JEQ, _RET = (
    0x28,
    0x15,
    0x06,
)  # include/uapi/linux/bpf_common.h: BPF_LD | BPF_H | BPF_ABS, BPF_JMP | BPF_JEQ, BPF_RET
_MREQ = struct.Struct("@iHH8s")  # struct packet_mreq: ifindex, type, address length, address
_INSTRUCTION = struct.Struct(
    "@HBBI"
)  # struct sock_filter: code, jump if true, jump if false, operand
_PROGRAM = struct.Struct("@HP")  # struct sock_fprog: instructions, their address
_AUXDATA = struct.Struct(
    "@IIIHHHH"
)  # struct tpacket_auxdata: status, len, snaplen, mac, net, VLAN TCI, VLAN TPID
_DOWN = frozenset(
    {errno.ENETDOWN, errno.ENODEV, errno.ENXIO}
)  # what a socket says whose netdev is down or gone
_LATER = frozenset({errno.EAGAIN, errno.EINTR})


class Listener:
    """LLDP frames of a changing set of netdevs.

    `dropped` counts frames by why they were not handed out: "oversize", "destination", "own".
    """

    def __init__(
        self, clock: Callable[[], float] = time.time, *, openvswitch: bool = False
    ) -> None:
        self.dropped = {"oversize": 0, "destination": 0, "own": 0}
        self._clock = clock
        self._openvswitch = openvswitch
        self._sockets: dict[str, socket.socket] = {}
        self._names: dict[int, str] = {}
        self._poll = select.poll()

    def watch(self, netdevs: Iterable[str]) -> dict[str, str]:
        """Listen on these netdevs and no others from now on; what cannot be opened comes back with its reason.

        A netdev that was renamed, or deleted and made again, gets a new socket. Raises Unavailable without CAP_NET_RAW.
        """
        wanted = set(netdevs)
        for netdev in [
            name
            for name, sock in self._sockets.items()
            if name not in wanted or _bound_to(sock) != name
        ]:
            self._drop(netdev)
        reasons = {
            netdev: self._try_open(netdev) for netdev in sorted(wanted - self._sockets.keys())
        }
        return {netdev: reason for netdev, reason in reasons.items() if reason}

    def receive(self, timeout: float) -> list[Frame]:
        """What has come in; waits up to `timeout` seconds for the first. A netdev that is down or gone is silent."""
        ready = self._poll.poll(math.ceil(timeout * 1000))
        return [frame for fd, _ in ready for frame in self._drain(fd)]

    def filenos(self) -> list[int]:
        """Descriptors that become readable when `receive(0)` has something to do."""
        return list(self._names)

    def close(self) -> None:
        """Close all sockets; `watch` may open new ones."""
        for netdev in list(self._sockets):
            self._drop(netdev)

    def _try_open(self, netdev: str) -> str | None:
        try:
            sock = _open(netdev, openvswitch=self._openvswitch)
        except PermissionError as error:
            raise Unavailable(
                f"{netdev}: no packet socket for LLDP: CAP_NET_RAW is missing"
            ) from error
        except OSError as error:
            return _reason(error)
        self._sockets[netdev] = sock
        self._names[sock.fileno()] = netdev
        self._poll.register(sock, select.POLLIN)
        return None

    def _drop(self, netdev: str) -> None:
        sock = self._sockets.pop(netdev)
        self._poll.unregister(sock)
        del self._names[sock.fileno()]
        sock.close()

    def _drain(self, fd: int) -> Iterable[Frame]:
        netdev = self._names[fd]
        own: bytes = self._sockets[netdev].getsockname()[4]
        for _ in range(BURST):
            data = _next(self._sockets[netdev])
            if data is None:
                return
            if self._accepts(data, own):
                yield Frame(netdev, self._clock(), data)

    def _accepts(self, data: bytes, own: bytes) -> bool:
        tagged = int.from_bytes(data[12:14], "big") in TPIDS
        why = None
        if len(data) > MAX_FRAME + 4 * tagged:
            why = "oversize"
        elif data[:6] not in GROUPS:
            why = "destination"
        elif data[6:12] == own:  # a NIC's firmware may announce the NIC
            why = "own"
        if why:
            self.dropped[why] += 1
        return why is None


def _open(netdev: str, *, openvswitch: bool) -> socket.socket:
    # Protocol 0 receives nothing, so that nothing of another netdev or ethertype gets in before the bind.
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    try:
        _set_options(sock)
        if openvswitch:
            _attach(sock, lldp_program())
        sock.bind((netdev, _ETH_P_ALL if openvswitch else ETHERTYPE))
        _join(sock, socket.if_nametoindex(netdev))
    except BaseException:
        sock.close()
        raise
    return sock


def _set_options(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
    sock.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
    with suppress(
        OSError
    ):  # ENOPROTOOPT before Linux 4.20; _next() passes over outgoing frames anyway
        sock.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)


def _join(sock: socket.socket, ifindex: int) -> None:
    for group in GROUPS:
        membership = _MREQ.pack(ifindex, _PACKET_MR_MULTICAST, len(group), group)
        sock.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, membership)


def lldp_program() -> list[tuple[int, int, int, int]]:
    """Classic BPF that passes LLDP behind at most two VLAN tags: code, jump if true, jump if false, operand."""
    places = (12, 16, 20)
    accept = len(places) * (2 + len(TPIDS))
    reject = accept + 1
    program: list[tuple[int, int, int, int]] = []
    for at in places:
        program.append((_LDH_ABS, 0, 0, at))
        behind_tag = len(program) + 1 + len(TPIDS) if at != places[-1] else reject
        for ethertype, target in [(ETHERTYPE, accept), *((tpid, behind_tag) for tpid in TPIDS)]:
            following = len(program) + 1
            otherwise = reject if ethertype == TPIDS[-1] else following
            program.append((_JEQ, target - following, otherwise - following, ethertype))
    return [*program, (_RET, 0, 0, 0xFFFFFFFF), (_RET, 0, 0, 0)]


def _attach(sock: socket.socket, program: list[tuple[int, int, int, int]]) -> None:
    code = array.array("B", b"".join(_INSTRUCTION.pack(*instruction) for instruction in program))
    sock.setsockopt(
        socket.SOL_SOCKET, _SO_ATTACH_FILTER, _PROGRAM.pack(len(program), code.buffer_info()[0])
    )


def _bound_to(sock: socket.socket) -> str:
    """The name, as it is now, of the netdev that a socket is bound to; "" when it is gone."""
    name: str = sock.getsockname()[0]
    return name


def _next(sock: socket.socket) -> bytes | None:
    """The next frame, with its VLAN tag; None when there is no more for now."""
    while True:
        try:
            data, ancillary, _, address = sock.recvmsg(
                MAX_FRAME + 5, socket.CMSG_SPACE(_AUXDATA.size)
            )
        except OSError as error:
            if error.errno in _DOWN | _LATER:
                return None
            raise
        if address[2] != socket.PACKET_OUTGOING:
            return _with_tag(data, ancillary)


def _with_tag(data: bytes, ancillary: list[tuple[int, int, bytes]]) -> bytes:
    """Put back the outer VLAN tag, which the NIC or the kernel took off; sockets for all ethertypes are told of it."""
    for level, kind, payload in ancillary:
        if (level, kind) == (_SOL_PACKET, _PACKET_AUXDATA) and len(payload) >= _AUXDATA.size:
            status, *_, tci, tpid = _AUXDATA.unpack_from(payload)
            if status & _TP_STATUS_VLAN_VALID:
                tpid = tpid if status & _TP_STATUS_VLAN_TPID_VALID else TPIDS[0]
                return data[:12] + struct.pack("!HH", tpid, tci) + data[12:]
    return data


def _reason(error: OSError) -> str:
    number = error.errno or errno.ENODEV  # if_nametoindex() gives none
    return f"{errno.errorcode.get(number, number)}: {os.strerror(number)}"
