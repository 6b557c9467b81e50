"""Receive LLDP frames on packet sockets (man 7 packet).

Invariants: nothing is sent, and promiscuous mode is never set. Each netdev has a socket of its own,
bound to the LLDP ethertype, so that only LLDP frames wake the process, and a member of the three
group addresses, so that the NIC passes them. CAP_NET_RAW is sufficient. scapy's sniffer takes all
ethertypes in promiscuous mode, which stops zero-copy transmit on the host.

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

Opening and closing a packet socket waits for the kernel's rtnl lock, in uninterruptible sleep. A
driver that resets its device may hold the lock for seconds, and a driver that hangs meanwhile never
releases it. So the daemon opens and closes sockets in an RtnlWorker: each netdev has at most one
attempt under way, however often it is requested, and an attempt that does not return holds up no
caller.
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
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import islice
from queue import SimpleQueue

from agent.errors import Unavailable
from agent.limits import start_thread
from agent.lldp.frame import ETHERTYPE, GROUPS, MAX_FRAME, TPIDS, Frame, drop_reason

Run = Callable[[Callable[[], None]], None]
Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, operand

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
# include/uapi/linux/bpf_common.h
_LDH_ABS = 0x28  # BPF_LD | BPF_H | BPF_ABS
_JEQ = 0x15  # BPF_JMP | BPF_JEQ
_RET = 0x06  # BPF_RET
_WHOLE_FRAME = 0xFFFFFFFF  # octets to pass
_MREQ = struct.Struct("@iHH8s")  # struct packet_mreq: ifindex, type, address length, address
_INSTRUCTION = struct.Struct("@HBBI")  # struct sock_filter: code, jump if true, if false, operand
_PROGRAM = struct.Struct("@HP")  # struct sock_fprog: number of instructions, their address
# struct tpacket_auxdata: status, len, snaplen, mac, net, VLAN TCI, VLAN TPID
_AUXDATA = struct.Struct("@IIIHHHH")
_DOWN = frozenset({errno.ENETDOWN, errno.ENODEV, errno.ENXIO})  # the netdev is down or gone
_AGAIN = frozenset({errno.EAGAIN, errno.EINTR})
_LIBC = ctypes.CDLL(None, use_errno=True)


def run_at_once(call: Callable[[], None]) -> None:
    """Run a call in the calling thread."""
    call()


class RtnlWorker:
    """A thread for calls that wait for the rtnl lock; `notify` is called in it after each of them.

    The first call starts it. However many calls wait, at most this thread is stuck. Calls run in
    the order of `submit`.
    """

    def __init__(self, notify: Callable[[], None] = lambda: None) -> None:
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._notify = notify
        self._thread: threading.Thread | None = None

    def submit(self, call: Callable[[], None]) -> None:
        """Run `call`, which raises nothing, in the thread; RuntimeError if none can be started."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="rtnl", daemon=True)
            start_thread(thread)
            self._thread = thread
        self._calls.put(call)

    def _run(self) -> None:
        while True:
            self._calls.get()()
            self._notify()


class Listener:
    """The packet sockets of a changing set of netdevs.

    `run` runs a call that may wait for the kernel's rtnl lock: at once, or in another thread
    (RtnlWorker.submit), and the socket is open later. `open_socket` opens the socket of a netdev,
    or raises OSError.

    `dropped` counts discarded frames by reason (agent/lldp/frame.py, drop_reason).
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        *,
        openvswitch: bool = False,
        run: Run = run_at_once,
        open_socket: Callable[[str], socket.socket] | None = None,
    ) -> None:
        self.dropped = {"destination": 0, "own": 0}
        self._clock, self._run = clock, run
        self._open_socket = open_socket or partial(open_lldp_socket, openvswitch=openvswitch)
        self._wanted: frozenset[str] = frozenset()
        self._sockets: dict[str, socket.socket] = {}
        self._names: dict[int, str] = {}  # netdevs by file descriptor
        self._poll = select.poll()
        self._opening: set[str] = set()
        self._results: deque[tuple[str, socket.socket | OSError]] = deque()  # appended in `run`
        self._errors: dict[str, OSError] = {}  # each stays until the next attempt has ended

    @property
    def errors(self) -> dict[str, str]:
        """The error of each netdev whose socket could not be opened."""
        texts = {}
        for netdev, error in self._errors.items():
            number = error.errno or errno.ENODEV  # if_nametoindex() sets none
            texts[netdev] = f"{errno.errorcode.get(number, number)}: {os.strerror(number)}"
        return texts

    def watch(self, netdevs: Iterable[str]) -> dict[str, str | None]:
        """Receive on these netdevs and no others; return those without a socket.

        Their values are the error of the last attempt, None during the first attempt. Each call is
        another attempt. The socket of a netdev that was renamed, or deleted and made again, is
        replaced. Raise Unavailable without CAP_NET_RAW.
        """
        self._wanted = frozenset(netdevs)
        self._take_results()
        for netdev, sock in list(self._sockets.items()):
            if netdev not in self._wanted or _bound_to(sock)[0] != netdev:
                self._drop(netdev)
        missing = self._wanted - self._sockets.keys()
        self._errors = {name: error for name, error in self._errors.items() if name in missing}
        for netdev in sorted(missing - self._opening):
            self._opening.add(netdev)
            try:
                self._run(partial(self._open, netdev))
            except RuntimeError as limit:  # no thread can be started
                self._results.append((netdev, OSError(errno.EAGAIN, str(limit))))
        self._take_results()
        for netdev, error in sorted(self._errors.items()):
            if isinstance(error, PermissionError):
                text = f"{netdev}: no packet socket for LLDP: CAP_NET_RAW is missing"
                raise Unavailable(text) from error
        errors = self.errors
        return {netdev: errors.get(netdev) for netdev in sorted(missing - self._sockets.keys())}

    def receive(self, timeout: float) -> list[Frame]:
        """Return the frames received; wait up to `timeout` seconds for the first.

        A netdev that is down or gone has none, which is no error.
        """
        self._take_results()
        frames = []
        for fd, _ in self._poll.poll(math.ceil(timeout * 1000)):
            netdev = self._names[fd]
            sock = self._sockets[netdev]
            _, own = _bound_to(sock)
            for data in islice(iter(partial(_receive, sock), None), MAX_FRAMES):
                if reason := drop_reason(data, own):
                    self.dropped[reason] += 1
                else:
                    frames.append(Frame(netdev, self._clock(), data))
        return frames

    def filenos(self) -> list[int]:
        """Return the descriptors that are readable when `receive` has something to do.

        The sockets opened since the last call are among them.
        """
        self._take_results()
        return list(self._names)

    def close(self) -> None:
        """Close all sockets; `watch` may open new ones."""
        self._wanted = frozenset()
        for netdev in list(self._sockets):
            self._drop(netdev)

    def _open(self, netdev: str) -> None:
        try:
            self._results.append((netdev, self._open_socket(netdev)))
        except OSError as error:
            self._results.append((netdev, error))

    def _take_results(self) -> None:
        """Add the sockets opened since the last call; close those no longer wanted."""
        while self._results:
            netdev, result = self._results.popleft()
            self._opening.discard(netdev)
            self._errors.pop(netdev, None)
            if isinstance(result, OSError):
                self._errors[netdev] = result
            elif netdev in self._wanted:
                self._sockets[netdev] = result
                self._names[result.fileno()] = netdev
                self._poll.register(result, select.POLLIN)
            else:
                self._run(result.close)

    def _drop(self, netdev: str) -> None:
        sock = self._sockets.pop(netdev)
        self._poll.unregister(sock)
        del self._names[sock.fileno()]
        self._run(sock.close)


def open_lldp_socket(netdev: str, *, openvswitch: bool) -> socket.socket:
    """Open the packet socket of a netdev; raise OSError.

    The memberships wait for the kernel's rtnl lock (net/packet/af_packet.c, packet_mc_add), as
    closing does (packet_flush_mclist).
    """
    # A protocol of 0 receives nothing, so no frame of another netdev arrives before the bind.
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        sock.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
        with suppress(OSError):  # ENOPROTOOPT before Linux 4.20; _receive() skips outgoing frames
            sock.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        if openvswitch:
            program = [_INSTRUCTION.pack(*instruction) for instruction in lldp_program()]
            code = array.array("B", b"".join(program))
            header = _PROGRAM.pack(len(program), code.buffer_info()[0])
            sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, header)
        sock.bind((netdev, _ETH_P_ALL if openvswitch else ETHERTYPE))
        ifindex = socket.if_nametoindex(netdev)
        for group in GROUPS:
            _join(sock, _MREQ.pack(ifindex, _PACKET_MR_MULTICAST, len(group), group))
    except BaseException:
        sock.close()
        raise
    return sock


def _join(sock: socket.socket, request: bytes) -> None:
    """Join a group by libc's setsockopt, which waits for the rtnl lock without the GIL.

    Python's own holds the GIL (Modules/socketmodule.c, sock_setsockopt): all threads would wait.
    """
    option = _SOL_PACKET, _PACKET_ADD_MEMBERSHIP
    if _LIBC.setsockopt(sock.fileno(), *option, request, len(request)):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def lldp_program() -> list[Instruction]:
    """Return the classic BPF program that passes LLDP frames only.

    At each of the three offsets of an ethertype, after no VLAN tag, one or two, a block of
    instructions loads the ethertype and compares it: LLDP accepts the frame, a TPID continues with
    the next block, anything else rejects the frame. The last two instructions accept and reject
    (Documentation/networking/filter.rst).
    """
    offsets = (12, 16, 20)
    block = 2 + len(TPIDS)  # instructions: load, compare with LLDP and with each TPID
    accept = len(offsets) * block  # the index of an instruction, as the next
    reject = accept + 1
    program: list[Instruction] = []
    for offset in offsets:
        tagged = len(program) + block if offset != offsets[-1] else reject
        program.append((_LDH_ABS, 0, 0, offset))
        for ethertype, target in ((ETHERTYPE, accept), *((tpid, tagged) for tpid in TPIDS)):
            following = len(program) + 1  # jumps count from there
            otherwise = reject if ethertype == TPIDS[-1] else following
            program.append((_JEQ, target - following, otherwise - following, ethertype))
    return [*program, (_RET, 0, 0, _WHOLE_FRAME), (_RET, 0, 0, 0)]


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
                MAX_FRAME + 1, socket.CMSG_SPACE(_AUXDATA.size)
            )
        except OSError as error:
            if error.errno in _DOWN | _AGAIN:
                return None
            raise
        except UnicodeDecodeError:  # see _bound_to(); the frame is lost, and `watch` closes this
            return None
        if address[2] != socket.PACKET_OUTGOING:
            break
    # The outer VLAN tag, which the NIC or the kernel removed; of sockets for all ethertypes only
    for level, kind, payload in ancillary:
        if (level, kind) == (_SOL_PACKET, _PACKET_AUXDATA) and len(payload) >= _AUXDATA.size:
            status, *_, tci, tpid = _AUXDATA.unpack_from(payload)
            if status & _TP_STATUS_VLAN_VALID:
                tpid = tpid if status & _TP_STATUS_VLAN_TPID_VALID else TPIDS[0]
                return data[:12] + struct.pack("!HH", tpid, tci) + data[12:]
    return data
