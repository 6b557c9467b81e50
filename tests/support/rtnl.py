"""The kernel's rtnl lock, held by a process of its own for as long as a test needs it.

An ethtool request lies across two pages, the second of which faults into userfaultfd (man 2
userfaultfd). dev_ethtool (net/ethtool/ioctl.c) reads the command from the first page, takes the
lock, and then waits for the second page. The lock is one for the whole machine, so it is held for
MAX_HELD seconds at most, and a process that ends, however it ends, releases it.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import select
import socket
import struct
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_HELD = 5.0  # seconds
_SYS_USERFAULTFD = {"x86_64": 323, "aarch64": 282}  # asm/unistd_64.h, asm-generic/unistd.h
_PAGE = mmap.PAGESIZE
# include/uapi/linux/userfaultfd.h
_UFFDIO_API, _UFFDIO_REGISTER, _UFFDIO_ZEROPAGE = 0xC018AA3F, 0xC020AA00, 0xC020AA04
_API, _MODE_MISSING = 0xAA, 1
_SIOCETHTOOL, _GSTRINGS = 0x8946, 0x1B  # include/uapi/linux/sockios.h, ethtool.h


def missing() -> str | None:
    """Return the missing part that holding the lock needs; None if there is none."""
    if os.uname().machine not in _SYS_USERFAULTFD:
        return "userfaultfd: unknown architecture"
    try:
        os.close(_userfaultfd())
    except OSError as error:
        return f"userfaultfd: {error.strerror}"
    return None


@contextmanager
def held() -> Iterator[Callable[[], None]]:
    """Hold the lock; the value releases it before the end."""
    command = [sys.executable, "-m", __name__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin
        assert holder.stdout
        try:
            assert holder.stdout.readline() == b"held\n"
            yield holder.stdin.close
        finally:
            holder.stdin.close()


def main() -> None:
    """Hold the lock until stdin is closed, or for MAX_HELD."""
    fault = _userfaultfd()
    memory = mmap.mmap(-1, 2 * _PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory[_PAGE - 4 : _PAGE] = struct.pack("@I", _GSTRINGS)
    second = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + _PAGE
    fcntl.ioctl(fault, _UFFDIO_REGISTER, struct.pack("@QQQQ", second, _PAGE, _MODE_MISSING, 0))
    threading.Thread(target=_ask, args=(second - 4,)).start()
    assert select.select([fault], [], [], MAX_HELD)[0], "the ethtool request did not fault"
    sys.stdout.write("held\n")
    sys.stdout.flush()
    select.select([sys.stdin], [], [], MAX_HELD)
    fcntl.ioctl(fault, _UFFDIO_ZEROPAGE, struct.pack("@QQQq", second, _PAGE, 0, 0))


def _userfaultfd() -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    number = _SYS_USERFAULTFD[os.uname().machine]
    fault: int = libc.syscall(number, os.O_CLOEXEC | os.O_NONBLOCK)
    if fault < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    fcntl.ioctl(fault, _UFFDIO_API, struct.pack("@QQQ", _API, 0, 0))
    return fault


def _ask(address: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, suppress(OSError):
        fcntl.ioctl(sock, _SIOCETHTOOL, struct.pack("@16sP", b"lo", address))


if __name__ == "__main__":
    main()
