"""A driver's private flags, read through the ethtool ioctl; nothing is ever set (man 8 ethtool, --show-priv-flags).

They tell whether a NIC's firmware keeps LLDP frames to itself: i40e's `disable-fw-lldp` off, ice's `fw-lldp-agent` on.
The three commands here are open to every user (net/core/ethtool.c, dev_ethtool).
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

_SIOCETHTOOL = 0x8946  # include/uapi/linux/sockios.h
# include/uapi/linux/ethtool.h
_GET_STRINGS, _GET_PRIVATE_FLAGS, _GET_SET_INFO = (
    0x1B,
    0x27,
    0x37,
)  # ETHTOOL_GSTRINGS, _GPFLAGS, _GSSET_INFO
_PRIVATE_FLAGS = 2  # ETH_SS_PRIV_FLAGS
_STRING = 32  # ETH_GSTRING_LEN
_MOST = 32  # flags that fit into ETHTOOL_GPFLAGS' 32 bits
_ROOM = 256  # strings
_IFREQ = struct.Struct("@16sP")  # struct ifreq: name, pointer
_SET_INFO = struct.Struct(
    "@IIQI"
)  # struct ethtool_sset_info: command, reserved, set mask, length of the first set
_STRINGS = struct.Struct("@III")  # struct ethtool_gstrings: command, set, strings
_VALUE = struct.Struct("@II")  # struct ethtool_value: command, value
_UNSUPPORTED = frozenset({errno.EOPNOTSUPP, errno.EINVAL})


def ethtool(netdev: str, request: bytes) -> bytes:
    """One ethtool command; the kernel answers in place. Raises OSError: EOPNOTSUPP where the driver has no answer."""
    buffer = array.array("B", request)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCETHTOOL, _IFREQ.pack(netdev.encode(), buffer.buffer_info()[0]))
    return buffer.tobytes()


def private_flags(netdev: str, ask: Callable[[str, bytes], bytes] = ethtool) -> dict[str, bool]:
    """The private flags of a netdev by name; {} where its driver has none. Raises OSError: ENODEV when it is gone."""
    try:
        names = _names(netdev, ask)
        bits = _VALUE.unpack(ask(netdev, _VALUE.pack(_GET_PRIVATE_FLAGS, 0)))[1] if names else 0
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return {}
        raise
    return {name: bool(bits >> number & 1) for number, name in enumerate(names)}


def _names(netdev: str, ask: Callable[[str, bytes], bytes]) -> list[str]:
    _, _, supported, count = _SET_INFO.unpack(
        ask(netdev, _SET_INFO.pack(_GET_SET_INFO, 0, 1 << _PRIVATE_FLAGS, 0))
    )
    if not supported or not count:
        return []
    # The kernel writes as many strings as the driver has, whatever is asked for (net/ethtool/ioctl.c): leave them room.
    answer = ask(
        netdev, _STRINGS.pack(_GET_STRINGS, _PRIVATE_FLAGS, 0) + bytes(max(count, _ROOM) * _STRING)
    )
    strings = answer[_STRINGS.size :]
    return [
        _string(strings[number * _STRING : (number + 1) * _STRING])
        for number in range(min(count, _MOST))
    ]


def _string(octets: bytes) -> str:
    return octets.partition(b"\0")[0].decode("ascii", "backslashreplace")
