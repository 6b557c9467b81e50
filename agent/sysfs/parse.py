"""Parsers for the text formats of sysfs and procfs.

Invariants:
- A parser takes the text of one file, without its trailing newline, and returns a value or raises
  `Malformed`.
- None is returned only for a value that the kernel itself marks as unknown: a zero GUID, NUMA
  node -1, speed -1.

Formats: Documentation/ABI/stable/sysfs-class-infiniband, drivers/infiniband/core/sysfs.c,
net/core/net-sysfs.c, net/ipv4/fib_trie.c (fib_route_seq_show), net/ipv6/route.c (rt6_info_route).
"""

from __future__ import annotations

import re

from agent.errors import Malformed
from agent.ids import MAC, PCI

_RATE = re.compile(r"([0-9]{1,6}(?:\.5)?) G[bB]/sec(?: \([0-9]{1,2}X(?: [A-Z][A-Z0-9]*)?\))?")
_ENUM = re.compile(r"[0-9]{1,3}: ([A-Za-z<][A-Za-z_<> -]{0,31})")
# ib_port_state, include/rdma/ib_verbs.h, without 0 (NOP, "no change"), 5 (ACTIVE_DEFER, on the way
# to DOWN or back to ACTIVE) and what state_show prints for other numbers: no state to act on.
_PORT_STATES = {"1: DOWN": "DOWN", "2: INIT": "INIT", "3: ARMED": "ARMED", "4: ACTIVE": "ACTIVE"}
_UNKNOWN = re.compile(r"[0-9]{1,3}: (<unknown>)")
# node_type_show of drivers/infiniband/core/sysfs.c, which prints another number as <unknown>
_NODE_TYPES = {
    "1: CA": "CA",
    "2: switch": "switch",
    "3: router": "router",
    "4: RNIC": "RNIC",
    "5: usNIC": "usNIC",
    "6: usNIC UDP": "usNIC UDP",
    "7: unspecified": "unspecified",
}
_LINK_LAYERS = {"InfiniBand", "Ethernet", "Unknown"}  # link_layer_show there
_GROUPS = re.compile(r"[0-9a-f]{4}(?::[0-9a-f]{4})*")
_NETDEV = re.compile(r"[^/:\s]+")
_NUMBER = re.compile(r"-?(?:0x[0-9a-f]{1,16}|[0-9]{1,20})")
_SPEED = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,2})?) GT/s(?: PCIe)?")
_RTF_UP, _RTF_REJECT = 0x0001, 0x0200  # include/uapi/linux/route.h


def _match(pattern: re.Pattern[str], text: str, noun: str) -> re.Match[str]:
    match = pattern.fullmatch(text)
    if not match:
        raise Malformed(f"{text[:64]!r} is not {noun}")
    return match


def rate(text: str) -> float:
    """Parse `ports/N/rate` in Gb/s: 400.0 of `400 Gb/sec (4X NDR)`.

    Old kernels omit the speed or the parentheses: `10 Gb/sec (4X)`, `2.5 Gb/sec`. The vendor's
    out-of-tree driver writes `0 GB/sec` for a port with neither width nor speed.
    """
    return float(_match(_RATE, text, "a rate in Gb/sec")[1])


def enumeration(text: str) -> str:
    """Parse `phys_state`: the name in `5: LinkUp`."""
    return _match(_ENUM, text, "of the form '5: LinkUp'")[1]


def node_type(text: str) -> str:
    """Parse `node_type`: the name in `1: CA`; `<unknown>` of a number that has none."""
    return _NODE_TYPES.get(text) or _match(_UNKNOWN, text, "a known node type")[1]


def port_state(text: str) -> str:
    """Parse `ports/N/state`: the name in `1: DOWN`, `2: INIT`, `3: ARMED`, `4: ACTIVE`.

    Any other number proves neither that traffic passes nor that it does not.
    """
    if text not in _PORT_STATES:
        raise Malformed(f"{text[:64]!r} is no known port state")
    return _PORT_STATES[text]


def link_layer(text: str) -> str:
    """Parse `ports/N/link_layer`: `InfiniBand`, `Ethernet`, `Unknown`."""
    if text not in _LINK_LAYERS:
        raise Malformed(f"{text[:64]!r} is not a link layer")
    return text


def guid(text: str) -> str | None:
    """Parse `node_guid` or `sys_image_guid`: `a088:c203:00ab:cdef` as 16 hex digits.

    None if all digits are zero (EFA).
    """
    return _hex_groups(text, 4)


def gid_guid(text: str) -> str | None:
    """Parse `ports/N/gids/0`: the port GUID, the lower half of the GID (IBTA vol. 1, 4.1.1)."""
    digits = _hex_groups(text, 8)
    return digits[16:] if digits and digits[16:].strip("0") else None


def gid_prefix(text: str) -> int | None:
    """Parse `ports/N/gids/0`: the subnet prefix, the upper half of the GID."""
    digits = _hex_groups(text, 8)
    return int(digits[:16], 16) if digits else None


def _hex_groups(text: str, count: int) -> str | None:
    if not _GROUPS.fullmatch(text) or text.count(":") != count - 1:
        raise Malformed(f"{text[:64]!r} is not {count} groups of four hex digits")
    digits = text.replace(":", "")
    return digits if digits.strip("0") else None


def number(text: str) -> int:
    """Parse a decimal or `0x` number: `dev_port`, `dev_id`, `has_smi`, `class`."""
    _match(_NUMBER, text, "a number")
    return int(text, 0) if "x" in text else int(text)


def known(text: str) -> int | None:
    """Parse a number that is negative if unknown: `numa_node`, `speed` (Mb/s).

    SPEED_UNKNOWN (include/uapi/linux/ethtool.h) is -1; some drivers print it as an unsigned 32-bit
    number.
    """
    value = number(text)
    return value if 0 <= value < 0xFFFFFFFF else None


def counter(text: str) -> int | None:
    """Parse a counter; None for `N/A (no PMA)` (drivers/infiniband/core/sysfs.c)."""
    return None if text.startswith("N/A") else number(text)


def pci_address(path: str) -> str | None:
    """Return the last PCI address in a sysfs path; None if there is none.

    `0000:18:00.0` of `../../devices/pci0000:16/0000:16:01.0/0000:18:00.0/infiniband/ibp0`.
    """
    addresses = pci_addresses(path)
    return addresses[-1] if addresses else None


def pci_addresses(path: str) -> list[str]:
    """Return all PCI addresses in a sysfs path: the bridges from the root port to the function."""
    return [part for part in path.split("/") if PCI.fullmatch(part)]


def link_speed(text: str) -> float | None:
    """Parse `current_link_speed` or `max_link_speed` in GT/s: 32.0 of `32.0 GT/s PCIe`.

    None for `Unknown` (drivers/pci/pci.c, pci_speed_string), before Linux 5.7 `Unknown speed`.
    """
    if text.startswith("Unknown"):
        return None
    return float(_match(_SPEED, text, "a speed in GT/s")[1])


def link_width(text: str) -> int | None:
    """Parse `current_link_width` or `max_link_width`; None for 0 and 255, the unknown widths."""
    value = number(text)
    return value if 0 < value < 255 else None


def uevent(text: str) -> dict[str, str]:
    """Parse `uevent`: lines of KEY=value."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def netdev_name(text: str) -> str:
    """Parse `gid_attrs/ndevs/N`: a netdev name.

    At most 15 bytes without "/", ":" and white space (net/core/dev.c, dev_valid_name), and
    printable, since the name becomes part of a path and of the output.
    """
    if (
        not _NETDEV.fullmatch(text)
        or text in {".", ".."}
        or not text.isprintable()
        or len(text.encode()) > 15
    ):
        raise Malformed(f"{text[:64]!r} is not a netdev name")
    return text


def netdev_names(text: str) -> list[str]:
    """Parse `bonding/slaves`: netdev names separated by spaces."""
    return [netdev_name(name) for name in text.split()]


def mac_address(text: str) -> str:
    """Parse `address` or `bonding_slave/perm_hwaddr`: `a0:88:c2:ab:cd:ef` in lower case."""
    return _match(MAC, text, "a MAC address")[0].lower()


def listed_netdevs(text: str) -> set[str]:
    """Parse `/proc/net/dev`: the netdevs of this process's network namespace."""
    return {line.partition(":")[0].strip() for line in text.splitlines()[2:]}


def ipv4_default_routes(text: str) -> list[tuple[int, str]]:
    """Parse `/proc/net/route`: metric and netdev of the IPv4 default routes."""
    routes = []
    for line in text.splitlines()[1:]:
        match line.split():
            case [netdev, "00000000", _, flags, _, _, metric, "00000000", *_] if _usable(flags):
                routes.append((number(metric), netdev_name(netdev)))
    return routes


def release(text: str) -> tuple[int, int] | None:
    """Parse the release of a kernel, `uname -r`: its first two numbers."""
    match re.match(r"(\d{1,4})\.(\d{1,4})", text, re.ASCII):
        case None:
            return None
        case numbers:
            return int(numbers[1]), int(numbers[2])


def ipv6_default_routes(text: str) -> list[tuple[int, str]]:
    """Parse `/proc/net/ipv6_route`: metric and netdev of the IPv6 default routes."""
    routes = []
    for line in text.splitlines():
        match line.split():
            case [target, "00", _, _, _, metric, _, _, flags, netdev] if not target.strip(
                "0"
            ) and _usable(flags):
                routes.append((number(f"0x{metric}"), netdev_name(netdev)))
    return routes


def _usable(flags: str) -> bool:
    """Return True if RTF_UP is set and RTF_REJECT is not; `flags` are hex digits."""
    try:
        value = int(flags, 16)
    except ValueError:
        return False
    return bool(value & _RTF_UP) and not value & _RTF_REJECT
