"""One InfiniBand port's management datagrams, over libibumad by ctypes.

The law of this module: nothing but a Get of class 0x81 leaves. `Port.send` is the only caller of umad_send(), and it
sends no bytes that `smp.require_get` refuses.

libibumad is a thin layer over /dev/infiniband/umadN (Linux, Documentation/infiniband/user_mad.rst; rdma-core,
libibumad/umad.c), and the kernel behind it has habits that show through:

- it puts its agent's number into the upper half of every request's TransactionID, so that only the lower half tells
  whether a reply is ours;
- a request that nobody answered within its timeout comes back as it was sent, with the status ETIMEDOUT. That is the
  clock that counts; ours runs GRACE longer, for what is flushed without a word, as when a device goes away;
- the same TransactionID may not be under way twice (EINVAL), so a repetition waits until then as well;
- registering an agent fails where there is no subnet management interface: RoCE, many VFs, planes of ConnectX-8.

The library is not thread-safe, and a fault in it is a fault of the process: this runs in a child (helper.py).
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import time
from contextlib import closing

from agent.errors import Unavailable
from agent.infiniband import smp

LIBRARY = "libibumad.so.3"
GRACE = 0.1  # seconds that the kernel may be late with its own timeout

_CLASS, _CLASS_VERSION, _NO_RMPP = 0x81, 1, 0
_PERMISSIVE_LID, _QP0, _SL, _NO_QKEY = 0xFFFF, 0, 0, 0
_REFUSED = {errno.EACCES: "not-permitted", errno.EPERM: "not-permitted"}
_NOTHING_YET = {errno.EAGAIN, errno.ETIMEDOUT, errno.EINTR}

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
    "umad_send": (_INT, (_INT, _INT, _POINTER, _INT, _INT, _INT)),
    "umad_recv": (_INT, (_INT, _POINTER, ctypes.POINTER(_INT), _INT)),
    "umad_status": (_INT, (_POINTER,)),
}


class PortUnavailable(Unavailable):
    """A port that cannot be asked, or does not answer.

    `reason` is one of `no-answer`, `not-permitted`, `no-umad` (library, kernel module or device node missing),
    `refused` (no subnet management on this port) and `send-failed`.
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Umad:
    """libibumad, loaded; Shut("no-umad") where that fails."""

    def __init__(self, library: str = LIBRARY) -> None:
        try:
            self.lib = ctypes.CDLL(library, use_errno=True)
            for name, (result, arguments) in _PROTOTYPES.items():
                function = getattr(self.lib, name)
                function.restype, function.argtypes = result, arguments
        except (OSError, AttributeError) as error:
            raise PortUnavailable("no-umad", f"{library}: {error}") from error
        self.lib.umad_init()

    def open(self, device: str, port: int) -> Port:
        """The umad device of an RDMA device's port, with an agent of class 0x81 registered."""
        # Port 0 would be "any port" to the library, and a missing name "any device".
        if port < 1 or not device or "\0" in device:
            raise PortUnavailable("no-umad", f"{device!r} port {port}: no such port")
        return Port(self, device, port)

    def ask(self, device: str, port: int, request: bytes, timeout_ms: int) -> bytes:
        """The reply to one request; Shut, or Malformed where the request is no Get that may leave."""
        with closing(self.open(device, port)) as opened:
            opened.send(request, timeout_ms)
            deadline = time.monotonic() + timeout_ms / 1000 + GRACE
            while opened.wait(deadline - time.monotonic()):
                if (reply := opened.receive(request)) is not None:
                    return reply
            raise PortUnavailable("no-answer", f"{opened.name}: no answer within {timeout_ms} ms")


class Port:
    """An open umad device; close it."""

    def __init__(self, umad: Umad, device: str, number: int) -> None:
        self.name = f"{device} port {number}"
        self._lib = umad.lib
        self._id = self._check(
            self._lib.umad_open_port(os.fsencode(device), number), "no-umad", "umad_open_port"
        )
        try:
            registered = self._lib.umad_register(self._id, _CLASS, _CLASS_VERSION, _NO_RMPP, None)
            self._agent = self._check(registered, "refused", "umad_register")
        except PortUnavailable:
            self._lib.umad_close_port(self._id)
            raise

    def close(self) -> None:
        """Unregister and close."""
        self._lib.umad_unregister(self._id, self._agent)
        self._lib.umad_close_port(self._id)

    def fileno(self) -> int:
        """The descriptor that becomes readable when there is something to receive."""
        return int(self._lib.umad_get_fd(self._id))

    def wait(self, seconds: float) -> bool:
        """Wait until there is something to receive."""
        poll = select.poll()
        poll.register(self, select.POLLIN)
        return seconds > 0 and bool(poll.poll(seconds * 1000))

    def send(self, request: bytes, timeout_ms: int) -> None:
        """Send a request that the kernel gives up after `timeout_ms`; it repeats nothing by itself."""
        smp.require_get(request)
        buffer = self._buffer()
        self._lib.umad_set_addr(buffer, _PERMISSIVE_LID, _QP0, _SL, _NO_QKEY)
        ctypes.memmove(self._lib.umad_get_mad(buffer), request, len(request))
        sent = self._lib.umad_send(self._id, self._agent, buffer, len(request), timeout_ms, 0)
        self._check(sent, "send-failed", "umad_send")

    def receive(self, request: bytes) -> bytes | None:
        """The reply to `request` if one is there; None if nothing is, or something that is not for it."""
        buffer, length = self._buffer(), ctypes.c_int(smp.LENGTH)
        received = self._lib.umad_recv(self._id, buffer, ctypes.byref(length), 0)
        if received < 0 and ctypes.get_errno() in _NOTHING_YET:
            return None
        self._check(received, "no-umad", "umad_recv")
        # The length that libibumad gives is not to be trusted beyond the buffer (ibsim's counts its header, too).
        mad = ctypes.string_at(
            self._lib.umad_get_mad(buffer), max(0, min(length.value, smp.LENGTH))
        )
        return self._ours(mad, request, self._lib.umad_status(buffer))

    def _ours(self, mad: bytes, request: bytes, status: int) -> bytes | None:
        if smp.transaction(mad) != smp.transaction(request):
            return None
        if status:
            raise PortUnavailable("no-answer", f"{self.name}: {os.strerror(status)}")
        return mad

    def _buffer(self) -> ctypes.Array[ctypes.c_char]:
        return ctypes.create_string_buffer(self._lib.umad_size() + smp.LENGTH)

    def _check(self, result: int, reason: str, function: str) -> int:
        # Why is in errno: the result itself is often no more than -EIO or -EPERM.
        if result >= 0:
            return result
        number = ctypes.get_errno() or -result
        raise PortUnavailable(
            _REFUSED.get(number, reason), f"{self.name}: {function}: {os.strerror(number)}"
        )
