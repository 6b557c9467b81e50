"""The best default route: its netdevs, and the network namespace of the routing tables.

- /proc/net/route has the IPv4 routes of the main table: the default routes of the lowest metric
  are the best ones. /proc/net/ipv6_route counts only where no IPv4 default route exists, since a
  router advertisement on any link adds a route there.
- On an Open vSwitch bridge the route is on an internal port, a netdev without lower ones. The NIC
  is a member of `ovs-system`, and has the MAC address of the internal port where a cluster network
  has put the two together (OVN-Kubernetes: br-ex).
- The tables are those of this process's network namespace, /sys/class/net has the netdevs of the
  namespace that mounted it. A Pod without the host's network has routes of its own, which say
  nothing of the host's NICs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agent.errors import Unavailable
from agent.model import Problem
from agent.sysfs import parse as kernel
from agent.sysfs.reader import UNSET

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent.sources.roles import DevicePort
    from agent.sysfs.reader import Reader

    Routed = frozenset[str]  # netdevs of the best default route
    Hints = tuple[Problem, ...]

NET = "sys/class/net"
OPEN_VSWITCH = f"{NET}/ovs-system"  # the datapath, master of all netdevs in its bridges
OWN_NETDEVS = "proc/net/dev"
TABLES = (
    ("proc/net/route", kernel.ipv4_default_netdevs),
    ("proc/net/ipv6_route", kernel.ipv6_default_netdevs),
)
UNREAD = "the routing tables cannot be read"
OTHER_NAMESPACE = (
    "the routing tables are those of another network namespace than {}'s:"
    " run on the host's network (hostNetwork), or name the backend with --backend-device"
)


class DefaultRoutes(NamedTuple):
    """The netdevs of the best default route."""

    netdevs: Routed = frozenset()
    failure: str | None = None  # the reason why they are not known
    hints: Hints = ()


def read_default_routes(reader: Reader) -> DefaultRoutes:
    """Read the best default route of the process's namespace; a missing table is an empty one."""
    try:
        return _best(reader)
    except Unavailable as error:
        return DefaultRoutes(failure=str(error))


def _best(reader: Reader) -> DefaultRoutes:
    before = len(reader.problems)
    found = _of_first_table(reader)
    if len(reader.problems) > before:
        return DefaultRoutes(failure=UNREAD)
    uplinks, hints = _uplinks(reader, found)
    if any(problem.error for problem in reader.problems[before:]):
        return DefaultRoutes(failure="the netdevs of Open vSwitch cannot be read")
    return DefaultRoutes(found | uplinks, hints=hints)


def namespace_fault(reader: Reader, data_ports: Sequence[DevicePort], routed: Routed) -> str | None:
    """Return the reason why the routing tables say nothing of these ports; None if they do.

    Nothing is known without /proc/net/dev, as in a copied /sys: the tables, if any, count.
    """
    before = len(reader.problems)
    own = reader.table(OWN_NETDEVS, kernel.listed_netdevs)
    if own is None:
        return f"/{OWN_NETDEVS} cannot be read" if len(reader.problems) > before else None
    netdevs = _netdevs(data_ports)
    others = [name for name in netdevs if name not in own and _exists(reader, name)]
    if others:
        return OTHER_NAMESPACE.format(others[0])
    if not netdevs and routed and _lacks_hardware(reader):
        return OTHER_NAMESPACE.format(data_ports[0].device.name)
    return None


def _of_first_table(reader: Reader) -> Routed:
    """Return the netdevs of the first table that has a default route.

    Default routes are at the beginning of a table (net/ipv4/fib_trie.c, fib_route_seq_next).
    """
    for path, parse in TABLES:
        if found := reader.table(path, parse):
            return frozenset(found)
    return frozenset()


def _uplinks(reader: Reader, routed: Routed) -> tuple[Routed, Hints]:
    """Return the NICs of the internal ports of Open vSwitch, and a hint for a port without one."""
    entries = reader.names(OPEN_VSWITCH) if routed else None
    if entries is None:
        return frozenset(), ()
    members = _lower_netdevs(entries)
    uplinks, hints = set(), []
    for port in sorted(name for name in routed if _is_internal(reader, name)):
        match _with_address_of(reader, port, members):
            case [uplink]:
                uplinks.add(uplink)
            case found:
                hints.append(_no_uplink(port, found))
    return frozenset(uplinks), tuple(hints)


def _is_internal(reader: Reader, name: str) -> bool:
    """Return True for a netdev without hardware and without lower netdevs."""
    entries = reader.names(f"{NET}/{name}") or []
    return bool(entries) and "device" not in entries and not _lower_netdevs(entries)


def _lower_netdevs(entries: Iterable[str]) -> list[str]:
    """Return the names behind `lower_` (net/core/dev.c, netdev_adjacent_sysfs_add)."""
    return [entry.removeprefix("lower_") for entry in entries if entry.startswith("lower_")]


def _with_address_of(reader: Reader, port: str, members: Iterable[str]) -> list[str]:
    """Return the members that have the MAC address of an internal port."""
    address = _address(reader, port)
    return [name for name in members if address and _address(reader, name) == address]


def _address(reader: Reader, name: str) -> str | None:
    """Read `address`; EINVAL for a netdev that is being removed."""
    return reader.value(f"{NET}/{name}/address", kernel.mac_address, quiet=UNSET)


def _no_uplink(port: str, found: Sequence[str]) -> Problem:
    same = f"several netdevs there have its MAC address ({', '.join(found)})"
    text = (
        "the default route is on this port of Open vSwitch, and "
        f"{same if found else 'no netdev there has its MAC address'}:"
        " the front end is not known; name the backend with --backend-device"
    )
    return Problem("rdma", port, None, text)


def _netdevs(data_ports: Iterable[DevicePort]) -> list[str]:
    """Return the netdevs of these ports and of their PCI functions."""
    found: dict[str, None] = {}
    for device, port in data_ports:
        of_port = (netdev.name for netdev in (port.netdev, *port.legs) if netdev)
        found |= dict.fromkeys((*of_port, *device.netdevs))
    return list(found)


def _exists(reader: Reader, name: str) -> bool:
    """Return True if the tree has the netdev still: it may have been lent since it was read."""
    return reader.link(f"{NET}/{name}") is not None


def _lacks_hardware(reader: Reader) -> bool:
    """Return True if the tree has netdevs, and none of them is a hardware device.

    So it is in a Pod, whose own /sys shows the RDMA devices of the host without their netdevs.
    """
    names = reader.names(NET) or ()
    return bool(names) and all(reader.link(f"{NET}/{name}/device") is None for name in names)
