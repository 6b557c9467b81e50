"""Send and receive the management datagrams of one InfiniBand port through libibumad, by ctypes.

Invariant: nothing leaves but a Get of class 0x81 and, to the subnet administrator, a GetTable of
class 3. `UmadPort.send` is the only caller of umad_send(), and it sends no bytes that the `require`
of its Management rejects: `smp.require_get`, `smp.require_routed_get`, `sa.require_get_table`.

libibumad is a thin layer over /dev/infiniband/umadN (Linux, Documentation/infiniband/user_mad.rst;
rdma-core, libibumad/umad.c), and the kernel's rules show through:

- The kernel puts its agent's number into the upper half of a request's TransactionID, so only the
  lower half identifies the reply.
- A request that nobody answered within its timeout is returned as it was sent, with status
  ETIMEDOUT. That timeout counts; the agent's own is TIMEOUT_SLACK longer, for requests that the
  kernel drops without returning them, as when a device goes away.
- A TransactionID that is still outstanding cannot be sent again (EINVAL), so a repetition waits for
  that timeout.
- Registering an agent of class 0x81 fails where there is no subnet management interface: RoCE, many
  VFs, planes of ConnectX-8. On other VFs sending fails, with EPERM (mlx5_ib_post_send).
- Virtual ports of one LID differ by the GID, so a reply reaches such a port only if it has a global
  route, as the request then has: ib_sa sends it to the SA's well-known GID where the port requires
  that (update_sm_ah in drivers/infiniband/core/sa_query.c), which sysfs does not show.
- For an agent that is registered with an RMPP version the kernel acknowledges and joins segments.
  A joined reply stays in its queue (ENOSPC) if the buffer is too small.

The library is not thread-safe, and a fault in it ends the process: it runs in a helper process
(agent/helper/main.py). libibmad, on top of it, prints on stderr and is not thread-safe either.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from agent.infiniband import smp
from agent.infiniband.smp import PortUnavailable
from agent.reasons import NeighborReason

LIBRARY = "libibumad.so.3"
TIMEOUT_SLACK = 0.1  # seconds that the kernel may be late with its own timeout

QP1_KEY = 0x80010000  # IBTA vol. 1, 10.2.4.4
SA_GUID = 0x0200000000000002  # IB_SA_WELL_KNOWN_GUID, include/rdma/ib_sa.h
_NOT_READY = {errno.EAGAIN, errno.ETIMEDOUT, errno.EINTR}

_INT, _POINTER = ctypes.c_int, ctypes.c_void_p
_PROTOTYPES = {  # name: (result, arguments), infiniband/umad.h
    "umad_init": (_INT, ()),
    "umad_open_port": (_INT, (ctypes.c_char_p, _INT)),
    "umad_close_port": (_INT, (_INT,)),
    "umad_get_fd": (_INT, (_INT,)),
    "umad_register": (_INT, (_INT, _INT, _INT, ctypes.c_uint8, _POINTER)),
    "umad_unregister": (_INT, (_INT, _INT)),
    "umad_size": (ctypes.c_size_t, ()),
    "umad_get_mad": (_POINTER, (_POINTER,)),
    "umad_set_addr": (_INT, (_POINTER, _INT, _INT, _INT, _INT)),
    "umad_set_grh": (_INT, (_POINTER, _POINTER)),
    "umad_set_pkey": (_INT, (_POINTER, _INT)),
    "umad_send": (_INT, (_INT, _INT, _POINTER, _INT, _INT, _INT)),
    "umad_recv": (_INT, (_INT, _POINTER, ctypes.POINTER(_INT), _INT)),
    "umad_status": (_INT, (_POINTER,)),
}


class Management(NamedTuple):
    """A class of management datagrams: how an agent is registered, and where it sends to."""

    mgmt_class: int
    version: int
    lid: int
    require: Callable[[bytes], object]  # raises Malformed for any other datagram
    qp: int = 1
    qkey: int = QP1_KEY
    rmpp: int = 0  # version of RMPP; 0: none
    max_length: int = smp.LENGTH  # bytes of a reply
    sl: int = 0
    pkey_index: int = 0
    subnet_prefix: int | None = None  # send with a global route, to the SA's GID in this subnet


SMPS = Management(0x81, 1, lid=0xFFFF, qp=0, qkey=0, require=smp.require_get)
ROUTED_SMPS = SMPS._replace(require=smp.require_routed_get)


def global_route(subnet_prefix: int) -> bytes:
    """Return the ib_mad_addr_t (infiniband/umad.h) that umad_set_grh() takes for the SA's GID.

    Traffic class, flow label and hop limit are 0, as in the kernel's own requests.
    """
    return bytes(16) + struct.pack(">QQ", subnet_prefix, SA_GUID) + bytes(12)


def load(library: str = LIBRARY) -> ctypes.CDLL:
    """Load libibumad; raises PortUnavailable(NO_UMAD) if that fails."""
    try:
        lib = ctypes.CDLL(library, use_errno=True)
        for name, (result, arguments) in _PROTOTYPES.items():
            function = getattr(lib, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        # most messages of the dynamic loader begin with the library's name
        text = str(error) if library in str(error) else f"{library}: {error}"
        raise PortUnavailable(NeighborReason.NO_UMAD, text) from error
    lib.umad_init()
    return lib


def opener(library: str | None = None) -> Callable[..., UmadPort]:
    """Return what opens ports through a libibumad, loaded anew each time."""
    return partial(UmadPort, library or LIBRARY)


class UmadPort:
    """An open umad device of an RDMA device's port, with a registered agent; close it after use.

    Raises PortUnavailable.
    """

    def __init__(
        self, library: str, device: str, number: int, management: Management = SMPS
    ) -> None:
        self._lib, self._to = load(library), management
        # libibumad itself would choose for these: port 0 is "any port", no name "any device"
        if number < 1 or not device or "\0" in device:
            raise PortUnavailable(NeighborReason.NO_UMAD, f"{device!r} port {number}: no such port")
        self.name = f"{device} port {number}"
        opened = self._lib.umad_open_port(os.fsencode(device), number)
        self._id = self._check(opened, NeighborReason.NO_UMAD, "umad_open_port")
        of_agent = management.mgmt_class, management.version, management.rmpp
        registered = self._lib.umad_register(self._id, *of_agent, None)
        try:
            self._agent = self._check(registered, NeighborReason.REFUSED, "umad_register")
        except PortUnavailable:
            self._lib.umad_close_port(self._id)
            raise

    def close(self) -> None:
        """Unregister the agent and close the device."""
        self._lib.umad_unregister(self._id, self._agent)
        self._lib.umad_close_port(self._id)

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when a MAD can be received."""
        return int(self._lib.umad_get_fd(self._id))

    def send(self, request: bytes, timeout_ms: int) -> None:
        """Send a request that the kernel drops after `timeout_ms`, without retransmissions."""
        self._to.require(request)
        buffer, to = self._buffer(), self._to
        self._lib.umad_set_addr(buffer, to.lid, to.qp, to.sl, to.qkey)
        self._lib.umad_set_pkey(buffer, to.pkey_index)
        if to.subnet_prefix is not None:
            self._lib.umad_set_grh(buffer, global_route(to.subnet_prefix))
        ctypes.memmove(self._lib.umad_get_mad(buffer), request, len(request))
        sent = self._lib.umad_send(self._id, self._agent, buffer, len(request), timeout_ms, 0)
        self._check(sent, NeighborReason.SEND_FAILED, "umad_send", NeighborReason.REFUSED)

    def receive(self, request: bytes) -> bytes | None:
        """Receive the reply to `request`; None if no MAD or that of another request is there."""
        most = self._to.max_length
        buffer, length = self._buffer(), ctypes.c_int(most)
        received = self._lib.umad_recv(self._id, buffer, ctypes.byref(length), 0)
        if received < 0 and ctypes.get_errno() in _NOT_READY:
            return None
        if received < 0 and ctypes.get_errno() == errno.ENOSPC:
            text = f"{self.name}: a reply of more than {most} bytes"
            raise PortUnavailable(NeighborReason.MALFORMED, text)
        self._check(received, NeighborReason.NO_UMAD, "umad_recv")
        # libibumad's length may exceed the buffer: ibsim's includes its header.
        octets = max(0, min(length.value, most))
        mad = ctypes.string_at(self._lib.umad_get_mad(buffer), octets)
        if smp.transaction(mad) != smp.transaction(request):
            return None
        if status := self._lib.umad_status(buffer):
            raise PortUnavailable(NeighborReason.NO_ANSWER, f"{self.name}: {os.strerror(status)}")
        return mad

    def _buffer(self) -> ctypes.Array[ctypes.c_char]:
        return ctypes.create_string_buffer(self._lib.umad_size() + self._to.max_length)

    def _check(
        self,
        result: int,
        reason: NeighborReason,
        function: str,
        eperm: NeighborReason = NeighborReason.NOT_PERMITTED,
    ) -> int:
        if result >= 0:
            return result
        # The cause is in errno: the result itself is often only -EIO or -EPERM.
        number = ctypes.get_errno() or -result
        reasons = {errno.EACCES: NeighborReason.NOT_PERMITTED, errno.EPERM: eperm}
        reason = reasons.get(number, reason)
        raise PortUnavailable(reason, f"{self.name}: {function}: {os.strerror(number)}")
