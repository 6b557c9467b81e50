"""The kernel's rtnl lock, really held: everything that configures or lists netdevs waits for it.

An ethtool request (SIOCETHTOOL, ETHTOOL_GLINK) writes its answer to user memory while it holds the
lock (net/ethtool/ioctl.c, ethtool_get_link). Here the second half of the answer lies in a page that
is registered with userfaultfd(2), so that the request sleeps until the descriptor is closed.

The lock is the whole machine's, not a network namespace's: hold it briefly. The holder is a process
that releases it after MAX_HOLD seconds even if the test was killed.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import platform
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

MAX_HOLD = 10  # seconds
_SYSCALL = {"x86_64": 323, "aarch64": 282}  # userfaultfd
_UFFDIO_API, _UFFDIO_REGISTER = 0xC018AA3F, 0xC020AA00  # include/uapi/linux/userfaultfd.h
_UFFD_API, _MODE_MISSING = 0xAA, 1
_SIOCETHTOOL, _ETHTOOL_GLINK = 0x8946, 0x0A  # include/uapi/linux/{sockios,ethtool}.h
_IFREQ = struct.Struct("=16sQ16x")  # ifr_name, ifr_data


def missing() -> str | None:
    """Return the reason that the lock cannot be held here; None if it can be."""
    if os.geteuid() != 0:
        return "holding the rtnl lock needs root"
    if platform.machine() not in _SYSCALL:
        return f"the number of userfaultfd(2) is not known for {platform.machine()}"
    try:
        os.close(_userfaultfd())
    except OSError as error:
        return f"userfaultfd(2): {error}"
    return None


@contextmanager
def held() -> Iterator[Callable[[], None]]:
    """Hold the lock within the block; the value releases it before the end."""
    command = [sys.executable, "-c", "from tests.support.rtnl_lock import hold; hold()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin
        assert holder.stdout
        try:
            assert holder.stdout.readline() == b"held\n"
            yield holder.stdin.close
            is_held = holder.stdin.closed or holder.poll() is None
            assert is_held, "the lock was released before its time"
        finally:
            holder.kill()


def hold() -> None:
    """Hold the lock until the parent closes standard input: the body of the holder."""
    signal.alarm(MAX_HOLD)
    uffd = _userfaultfd()
    fcntl.ioctl(uffd, _UFFDIO_API, struct.pack("=QQQ", _UFFD_API, 0, 0))
    pages = mmap.mmap(-1, 2 * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    second = ctypes.addressof(ctypes.c_char.from_buffer(pages)) + mmap.PAGESIZE
    region = struct.pack("=QQQQ", second, mmap.PAGESIZE, _MODE_MISSING, 0)
    fcntl.ioctl(uffd, _UFFDIO_REGISTER, region)
    # struct ethtool_value: the command ends at the page's end, the value begins behind it.
    pages[mmap.PAGESIZE - 4 : mmap.PAGESIZE] = struct.pack("=I", _ETHTOOL_GLINK)
    threading.Thread(target=_request, args=(second - 4,), daemon=True).start()
    os.read(uffd, 32)  # struct uffd_msg: the request has faulted
    sys.stdout.write("held\n")
    sys.stdout.flush()
    select.select([0], [], [])


def _request(address: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCETHTOOL, _IFREQ.pack(b"lo", address))


def _userfaultfd() -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    fd = int(libc.syscall(_SYSCALL[platform.machine()], os.O_CLOEXEC))
    if fd < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return fd
