"""The texts that the kernel writes into sysfs and procfs, to values.

The law of this module: a parser takes the text of one file, without its trailing newline, and returns a value or
raises `Malformed`. None is returned only where the kernel itself says "I do not know" (a zero GUID, NUMA node -1,
speed -1).

Formats: Documentation/ABI/stable/sysfs-class-infiniband, drivers/infiniband/core/sysfs.c, net/core/net-sysfs.c,
net/ipv4/fib_trie.c (fib_route_seq_show), net/ipv6/route.c (rt6_info_route).
"""

from __future__ import annotations

import re

from agent.errors import Malformed

_RATE = re.compile(r"([0-9]{1,6}(?:\.5)?) G[bB]/sec(?: \([0-9]{1,2}X(?: [A-Z][A-Z0-9]*)?\))?")
_ENUM = re.compile(r"[0-9]{1,3}: ([A-Za-z<][A-Za-z_<> -]{0,31})")
_WORD = re.compile(r"[A-Za-z]{1,32}")
_GROUPS = re.compile(r"[0-9a-f]{4}(?::[0-9a-f]{4})*")
_PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_NETDEV = re.compile(r"[^/:\s]+")
_NUMBER = re.compile(r"-?(?:0x[0-9a-f]{1,16}|[0-9]{1,20})")
_RTF_UP, _RTF_REJECT = 0x0001, 0x0200  # include/uapi/linux/route.h


def rate(text: str) -> float:
    """`ports/N/rate`: Gb/s. `400 Gb/sec (4X NDR)`, `2.5 Gb/sec (1X SDR)`.

    Old kernels leave the speed or the bracket out; the vendor's out-of-tree driver says `0 GB/sec` where there is
    neither width nor speed.
    """
    match = _RATE.fullmatch(text)
    if not match:
        raise Malformed(f"{text[:64]!r} is no rate in Gb/sec")
    return float(match[1])


def enumeration(text: str) -> str:
    """`state`, `phys_state`, `node_type`: the word of `4: ACTIVE`, `5: LinkUp`, `1: CA`."""
    match = _ENUM.fullmatch(text)
    if not match:
        raise Malformed(f"{text[:64]!r} is not of the form '4: ACTIVE'")
    return match[1]


def link_layer(text: str) -> str:
    """`ports/N/link_layer`: `InfiniBand`, `Ethernet`, `Unknown`."""
    if not _WORD.fullmatch(text):
        raise Malformed(f"{text[:64]!r} is no link layer")
    return text


def guid(text: str) -> str | None:
    """`node_guid`, `sys_image_guid`: 16 hex digits of `a088:c203:00ab:cdef`; None when all are zero (EFA)."""
    return _hex_groups(text, 4)


def gid_guid(text: str) -> str | None:
    """`ports/N/gids/0`: the port GUID, the lower half of the GID (IBTA vol. 1, 4.1.1)."""
    digits = _hex_groups(text, 8)
    return digits[16:] if digits and digits[16:].strip("0") else None


def _hex_groups(text: str, count: int) -> str | None:
    if not _GROUPS.fullmatch(text) or text.count(":") != count - 1:
        raise Malformed(f"{text[:64]!r} is not {count} groups of four hex digits")
    digits = text.replace(":", "")
    return digits if digits.strip("0") else None


def number(text: str) -> int:
    """A decimal or `0x` number: `dev_port`, `dev_id`, `has_smi`, `class`."""
    if not _NUMBER.fullmatch(text):
        raise Malformed(f"{text[:64]!r} is no number")
    return int(text, 0) if "x" in text else int(text)


def known(text: str) -> int | None:
    """A number whose negative values mean "not known": `numa_node`, `speed` (Mb/s, include/uapi/linux/ethtool.h)."""
    value = number(text)
    # SPEED_UNKNOWN is -1, which some drivers print as an unsigned 32-bit number.
    return value if 0 <= value < 0xFFFFFFFF else None


def counter(text: str) -> int | None:
    """A counter; None for `N/A (no PMA)` (drivers/infiniband/core/sysfs.c)."""
    return None if text.startswith("N/A") else number(text)


def pci_address(path: str) -> str | None:
    """The last PCI address in a sysfs path: of `../../devices/pci0000:16/0000:16:01.0/0000:18:00.0/infiniband/ibp0`."""
    found = [part for part in path.split("/") if _PCI.fullmatch(part)]
    return found[-1] if found else None


def uevent(text: str) -> dict[str, str]:
    """`uevent`: KEY=value lines."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def netdev_name(text: str) -> str:
    """`gid_attrs/ndevs/N`: a netdev name, at most 15 bytes without "/", ":" and white space (dev_valid_name).

    Such a name becomes a path and is shown to people, so it must be printable, too.
    """
    if (
        not _NETDEV.fullmatch(text)
        or text in {".", ".."}
        or not text.isprintable()
        or len(text.encode()) > 15
    ):
        raise Malformed(f"{text[:64]!r} is no netdev name")
    return text


def netdev_names(text: str) -> list[str]:
    """`bonding/slaves`: netdev names with spaces between."""
    return [netdev_name(name) for name in text.split()]


def ipv4_default_netdevs(text: str) -> set[str]:
    """`/proc/net/route`: netdevs that carry an IPv4 default route which is up and rejects nothing."""
    found = set()
    for line in text.splitlines()[1:]:
        match line.split():
            case [netdev, "00000000", _, flags, _, _, _, "00000000", *_] if _usable(flags):
                found.add(netdev)
    return found


def ipv6_default_netdevs(text: str) -> set[str]:
    """`/proc/net/ipv6_route`: netdevs that carry an IPv6 default route which is up and rejects nothing."""
    found = set()
    for line in text.splitlines():
        match line.split():
            case [target, "00", _, _, _, _, _, _, flags, netdev] if not target.strip(
                "0"
            ) and _usable(flags):
                found.add(netdev)
    return found


def _usable(flags: str) -> bool:
    try:
        value = int(flags, 16)
    except ValueError:
        return False
    return bool(value & _RTF_UP) and not value & _RTF_REJECT
