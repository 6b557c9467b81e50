"""Read the private flags of a netdev's driver by the ethtool ioctl.

They show NIC firmware that consumes LLDP frames: i40e's `disable-fw-lldp` off, ice's
`fw-lldp-agent` on (man 8 ethtool, --show-priv-flags). Nothing is set. The three commands used here
are open to every user (net/ethtool/ioctl.c, dev_ethtool), and wait for the kernel's rtnl lock.
"""

from __future__ import annotations

import array
import errno
import fcntl
import socket
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

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
_UNSUPPORTED = frozenset({errno.EOPNOTSUPP, errno.EINVAL})


def ethtool(netdev: str, request: bytes) -> bytes:
    """Run one ethtool command; the kernel writes the answer over the request.

    Raise OSError: EOPNOTSUPP if the driver does not implement it.
    """
    buffer = array.array("B", request)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCETHTOOL, _IFREQ.pack(netdev.encode(), buffer.buffer_info()[0]))
    return buffer.tobytes()


def private_flags(netdev: str, ask: Ask = ethtool) -> dict[str, bool]:
    """Return the private flags of a netdev by name; {} if its driver has none.

    Raise OSError: ENODEV if the netdev is gone.
    """
    try:
        names = _names(netdev, _count(netdev, ask), ask)
        bits = _bits(netdev, ask) if names else 0
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return {}
        raise
    return {name: bool(bits >> number & 1) for number, name in enumerate(names)}


def _bits(netdev: str, ask: Ask) -> int:
    """Return the values of the flags, the first one in the lowest bit."""
    _, bits = _VALUE.unpack(ask(netdev, _VALUE.pack(_GET_PRIVATE_FLAGS, 0)))
    return int(bits)


def _count(netdev: str, ask: Ask) -> int:
    """Return the number of flags that the driver has."""
    request = _SET_INFO.pack(_GET_SET_INFO, 0, 1 << _PRIVATE_FLAGS, 0)
    _, _, supported, count = _SET_INFO.unpack(ask(netdev, request))
    return int(count) if supported else 0


def _names(netdev: str, count: int, ask: Ask) -> list[str]:
    if not count:
        return []
    # The kernel writes all strings that the driver has, whatever the buffer's size is
    # (net/ethtool/ioctl.c, ethtool_get_strings), so the buffer is larger than the count.
    buffer = bytes(max(count, _MIN_BUFFER) * _STRING_LENGTH)
    answer = ask(netdev, _STRINGS.pack(_GET_STRINGS, _PRIVATE_FLAGS, 0) + buffer)
    return [_string(answer, number) for number in range(min(count, _MAX_FLAGS))]


def _string(answer: bytes, number: int) -> str:
    offset = _STRINGS.size + number * _STRING_LENGTH
    octets = answer[offset : offset + _STRING_LENGTH].partition(b"\0")[0]
    return octets.decode("ascii", "backslashreplace")
