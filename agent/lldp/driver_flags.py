"""Read the private flags of netdevs' drivers by the ethtool ioctl, and keep them.

They show NIC firmware that consumes LLDP frames: i40e's `disable-fw-lldp` off, ice's
`fw-lldp-agent` on (man 8 ethtool, --show-priv-flags). Nothing is set. The three commands used here
are open to every user (net/ethtool/ioctl.c, dev_ethtool). They wait for the kernel's rtnl lock and
call the driver, so the daemon's loop never issues them: it gets the flags read last, {} if there
are none, and requests others, which a worker thread reads.

Rule: the flags of a netdev are read when they are first requested, and again when they are first
requested after its link has come up. Until then the flags read before stay valid. Example: eth0
receives no LLDP frame, so its flags are read, once. After each further observation the same flags
are returned. Somebody sets `disable-fw-lldp`, which resets the link; the next observation has the
flags read again.
"""

from __future__ import annotations

import array
import fcntl
import socket
import struct
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.lldp.packet_socket import Run

PrivateFlags = dict[str, bool]  # by name
Ask = Callable[[str, bytes], bytes]  # (netdev, request); returns the answer

_SIOCETHTOOL = 0x8946  # include/uapi/linux/sockios.h
# include/uapi/linux/ethtool.h
_GET_STRINGS = 0x1B  # ETHTOOL_GSTRINGS
_GET_PRIVATE_FLAGS = 0x27  # ETHTOOL_GPFLAGS
_GET_SET_INFO = 0x37  # ETHTOOL_GSSET_INFO
_PRIVATE_FLAGS = 2  # ETH_SS_PRIV_FLAGS
_STRING_LENGTH = 32  # ETH_GSTRING_LEN
_MAX_FLAGS = 32  # bits in the answer of ETHTOOL_GPFLAGS
_MIN_BUFFER = 256  # strings
_IFREQ = struct.Struct("@16sP")  # struct ifreq: name, pointer
_SET_INFO = struct.Struct("@IIQI")  # struct ethtool_sset_info: command, -, set mask, first length
_STRINGS = struct.Struct("@III")  # struct ethtool_gstrings: command, set, strings
_VALUE = struct.Struct("@II")  # struct ethtool_value: command, value


def ethtool(netdev: str, request: bytes) -> bytes:
    """Run one ethtool command; the kernel writes the answer over the request.

    Raise OSError: EOPNOTSUPP if the driver does not implement it.
    """
    buffer = array.array("B", request)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCETHTOOL, _IFREQ.pack(netdev.encode(), buffer.buffer_info()[0]))
    return buffer.tobytes()


def private_flags(netdev: str, ask: Ask = ethtool) -> PrivateFlags:
    """Return the private flags of a netdev by name; {} if its driver has none, or it is gone."""
    try:
        request = _SET_INFO.pack(_GET_SET_INFO, 0, 1 << _PRIVATE_FLAGS, 0)
        _, _, supported, count = _SET_INFO.unpack(ask(netdev, request))
        if not supported or not count:
            return {}
        # The kernel writes all strings that the driver has, whatever the buffer's size is
        # (net/ethtool/ioctl.c, ethtool_get_strings), so the buffer is larger than the count.
        buffer = bytes(max(count, _MIN_BUFFER) * _STRING_LENGTH)
        strings = ask(netdev, _STRINGS.pack(_GET_STRINGS, _PRIVATE_FLAGS, 0) + buffer)
        _, bits = _VALUE.unpack(ask(netdev, _VALUE.pack(_GET_PRIVATE_FLAGS, 0)))
    except OSError:
        return {}
    flags = {}
    for number in range(min(count, _MAX_FLAGS)):
        offset = _STRINGS.size + number * _STRING_LENGTH
        octets = strings[offset : offset + _STRING_LENGTH].partition(b"\0")[0]
        flags[octets.decode("ascii", "backslashreplace")] = bool(bits >> number & 1)
    return flags


class DriverFlags:
    """The flags by netdev; see Host.private_flags.

    `read` returns the flags of a netdev. `run` runs a call: at once, or in another thread.
    """

    def __init__(self, read: Callable[[str], PrivateFlags], run: Run) -> None:
        self._read, self._run = read, run
        self._links: dict[str, bool] = {}  # netdev of the last observation -> its link is up
        self._flags: dict[str, PrivateFlags] = {}
        self._current: set[str] = set()  # netdevs whose flags were read since their link came up
        self._reading: set[str] = set()
        self._results: deque[tuple[str, PrivateFlags]] = deque()  # appended by the worker

    def __call__(self, netdev: str) -> PrivateFlags:
        """Return the flags read last, {} if there are none; read them again if due."""
        if netdev not in self._current and netdev not in self._reading:
            self._reading.add(netdev)
            try:
                self._run(lambda: self._results.append((netdev, self._read(netdev))))
            except RuntimeError:  # no thread can be started; the next observation tries again
                self._reading.discard(netdev)
            self.collect()
        return self._flags.get(netdev, {})

    def set_links(self, links: Mapping[str, bool]) -> None:
        """Record the netdevs that are observed and whether their link is up; forget others."""
        for netdev in self._links.keys() - links.keys():
            self._flags.pop(netdev, None)
            self._current.discard(netdev)
        came_up = {netdev for netdev, up in links.items() if up and not self._links.get(netdev)}
        self._current -= came_up
        self._links = dict(links)

    def collect(self) -> bool:
        """Take in the flags that were read; return True if any have changed."""
        changed = False
        while self._results:
            netdev, flags = self._results.popleft()
            self._reading.discard(netdev)
            if netdev in self._links:
                changed |= flags != self._flags.get(netdev, {})
                self._current.add(netdev)
                self._flags[netdev] = flags
        return changed
