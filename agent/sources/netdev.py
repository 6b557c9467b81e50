"""The network device of an RDMA port: its name, facts and bond members; the best default routes.

- The GID table names the netdev of a RoCE port. If it is empty (link down, old kernel), the netdevs
  of the PCI function are matched to ports by `dev_port`, or `dev_id`. A bond has one RDMA device,
  that of its first member; all members are read as the legs of its port.
- /proc/net/route has the IPv4 routes of the main table: the default routes of the lowest metric
  are the best ones. /proc/net/ipv6_route counts only where no IPv4 default route exists, since a
  router advertisement on any link adds a route there.
- On an Open vSwitch bridge the route is on an internal port, a netdev without lower ones. The NIC
  is a member of `ovs-system`, and has the MAC address of the internal port where a cluster network
  has put the two together (OVN-Kubernetes: br-ex).
- The tables are those of this process's network namespace, /sys/class/net has the netdevs of the
  namespace that mounted it. A Pod without the host's network has routes of its own, which say
  nothing of the host's NICs.

Files: Documentation/ABI/testing/sysfs-class-net, Documentation/networking/bonding.rst.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from agent.errors import Unavailable
from agent.host import Host
from agent.model import Netdev, Problem, RdmaDevice, RdmaPort
from agent.sysfs import parse as kernel
from agent.sysfs.reader import UNSET, Reader

SOURCE = "netdev"
NET = "sys/class/net"
PCI = "sys/bus/pci/devices"
NO_LINK = frozenset({"down", "lowerlayerdown"})  # operstate of a bond member without a link
IFF_UP = 0x1  # of `flags`, include/uapi/linux/if.h
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
# The phys_port_name of a VF, SF or PF representor; that of an uplink is "p0"
# (Documentation/networking/devlink/devlink-port.rst, net/devlink/port.c).
_REPRESENTOR = re.compile(r"(c\d+)?pf\d+((vf|sf)\d+|hpf)?", re.ASCII)

ByPort = dict[int, str | None]  # by port number
Network = tuple[Netdev | None, tuple[Netdev, ...]]  # of a port: its netdev and its legs
Routed = frozenset[str]  # netdevs of the best default route


def netdev_names(host: Host) -> frozenset[str]:
    """Return the netdevs of the node; empty if they cannot be read."""
    try:
        return frozenset(Reader(host.root, SOURCE).names(NET) or ())
    except Unavailable:
        return frozenset()


def is_representor(phys_port_name: str | None) -> bool:
    """Return True for the netdev of a port of the embedded switch that is not its uplink."""
    return bool(_REPRESENTOR.fullmatch(phys_port_name or ""))


def port_netdevs(
    reader: Reader, base: str, link_layers: ByPort, netdevs: tuple[str, ...]
) -> ByPort:
    """Return the name of each port's netdev, by port number.

    `base` is the path of the RDMA device, `netdevs` are those of its PCI function.
    """
    if len(link_layers) == len(netdevs) == 1:
        return dict.fromkeys(link_layers, netdevs[0])
    by_gid: ByPort = dict.fromkeys(link_layers)
    for number, layer in link_layers.items():
        if layer == "Ethernet":
            gid = f"{base}/ports/{number}/gid_attrs/ndevs/0"
            by_gid[number] = reader.decisive.value(gid, kernel.netdev_name, quiet=UNSET)
    # The GIDs of a bonded port name the bond. The member on the device's own PCI function leads to
    # the same bond and belongs to this device only, so it is preferred.
    folder = f"{base}/device/net"
    others = [netdev for netdev in netdevs if netdev not in by_gid.values()]
    # Of several netdevs with one port number the first counts. Representors have that of their
    # uplink, so they come last.
    if len(others) > 1:
        others.sort(key=lambda name: is_representor(_phys_port_name(reader, f"{folder}/{name}")))
    by_number = {}
    for name in reversed(others):
        # 1 + `dev_port`, before Linux 3.15 1 + `dev_id`
        files = (f"{folder}/{name}/{file}" for file in ("dev_port", "dev_id"))
        numbers = (reader.decisive.value(file, kernel.number) for file in files)
        by_number[1 + next(filter(None, numbers), 0)] = name
    return {
        number: name if name in netdevs else by_number.get(number, name)
        for number, name in by_gid.items()
    }


def _phys_port_name(reader: Reader, path: str) -> str | None:
    """Read `phys_port_name`; EOPNOTSUPP for most netdevs, EINVAL for one that is being removed."""
    return reader.decisive.text(f"{path}/phys_port_name", quiet=UNSET)


def read_netdev(
    reader: Reader, device: str, name: str | None, link_layer: str | None, routed: Routed
) -> Network:
    """Read the netdev of a port of RDMA device `device`, and the members of its bond.

    `routed` are the netdevs of the default routes. Of an IPoIB netdev only the
    link messages are used, so it has no facts but whether there are any.
    """
    if name is None:
        return None, ()
    if link_layer != "Ethernet":
        flags = reader.value(f"{NET}/{name}/flags", kernel.number, quiet=UNSET)
        is_up = None if flags is None else bool(flags & IFF_UP)
        operstate = reader.text(f"{NET}/{name}/operstate", quiet=UNSET)
        return Netdev(name, None, operstate, None, default_route=False, is_up=is_up), ()
    master = _master(reader, name)
    members = _members_of(reader, name)
    if master and not members:
        members = _members_of(reader, master)
    functions = {}
    # A bond over several RDMA devices has no legs: none of these is a bonded device. Only the names
    # of the others are read, so they may be excluded or failed.
    for member in members:
        pci = kernel.pci_address(reader.decisive.link(f"{NET}/{member}") or "")
        functions[member] = pci
        devices = reader.decisive.names(f"{PCI}/{pci}/infiniband") if pci else None
        if devices and device not in devices:
            members = []
            break
    legs = tuple(_read_facts(reader, member, routed, functions[member]) for member in members)
    return _read_facts(reader, name, routed), legs


def _members_of(reader: Reader, bond: str) -> list[str]:
    """Read `bonding/slaves`; [] if the netdev is no bond."""
    return reader.decisive.value(f"{NET}/{bond}/bonding/slaves", kernel.netdev_names) or []


def _master(reader: Reader, name: str) -> str | None:
    """Read the target of the `master` link: the bond or bridge that the netdev is a member of."""
    path = f"{NET}/{name}/master"
    target = (reader.decisive.link(path) or "").rpartition("/")[2]
    return reader.parsed(path, target or None, kernel.netdev_name)


def _read_facts(reader: Reader, name: str, routed: Routed, function: str | None = None) -> Netdev:
    path = f"{NET}/{name}"
    operstate = reader.decisive.text(f"{path}/operstate")
    bond_state, files = None, ["address"]
    if _master(reader, name) is not None:
        # A bond without link monitoring (miimon 0, the default) reports a member without a link as
        # active, and its mii_status as up; its operstate is right.
        bond_state = reader.decisive.text(f"{path}/bonding_slave/state")
        mii_status = reader.decisive.text(f"{path}/bonding_slave/mii_status")
        if bond_state and (mii_status == "down" or operstate in NO_LINK):
            bond_state = "backup"
        # A bond gives its own address to its members; the firmware of a member keeps the permanent
        # one (drivers/net/bonding/bond_sysfs_slave.c).
        files.append("bonding_slave/perm_hwaddr")
    # A frame from one of these is the NIC's own: a device has failed if they cannot be read.
    addresses: dict[str, None] = {}
    for file in files:
        text = reader.decisive.text(f"{path}/{file}", quiet=UNSET)
        if address := reader.parsed(f"{path}/{file}", text, kernel.mac_address):
            addresses[address] = None
    return Netdev(
        name,
        speed_mbps=reader.decisive.value(f"{path}/speed", kernel.known, quiet=UNSET) or None,
        operstate=operstate,
        bond_state=bond_state,
        default_route=bool(routed) and not routed.isdisjoint(_stack(reader, name)),
        carrier_changes=reader.value(f"{path}/carrier_changes", kernel.number),
        carrier_up_count=reader.decisive.value(f"{path}/carrier_up_count", kernel.number),
        addresses=tuple(addresses),
        phys_port_name=_phys_port_name(reader, path),
        function=function,
    )


def _stack(reader: Reader, name: str) -> set[str]:
    """Return the netdev and every netdev on top of it: bonds, bridges, VLANs (`upper_*`)."""
    found: set[str] = set()
    queue = [name]
    while queue:
        netdev = queue.pop()
        if netdev in found:
            continue
        found.add(netdev)
        queue += _behind("upper_", reader.decisive.names(f"{NET}/{netdev}") or ())
        if master := _master(reader, netdev):
            queue.append(master)
    return found


def _behind(prefix: str, entries: Iterable[str]) -> list[str]:
    """Return the netdevs behind `upper_`, `lower_` (net/core/dev.c, netdev_adjacent_sysfs_add)."""
    return [entry.removeprefix(prefix) for entry in entries if entry.startswith(prefix)]


# The best default routes


class DefaultRoutes(NamedTuple):
    """The netdevs of the best default route."""

    netdevs: Routed = frozenset()
    failure: str | None = None  # the reason why they are not known
    hints: tuple[Problem, ...] = ()


def read_default_routes(reader: Reader) -> DefaultRoutes:
    """Read the best default route of the process's namespace; a missing table is an empty one.

    Default routes are at the beginning of a table (net/ipv4/fib_trie.c, fib_route_seq_next).
    """
    before = len(reader.problems)
    try:
        found = next((netdevs for table in TABLES if (netdevs := reader.table(*table))), set())
        if len(reader.problems) > before:
            return DefaultRoutes(failure=UNREAD)
        uplinks, hints = _uplinks(reader, found)
    except Unavailable as error:
        return DefaultRoutes(failure=str(error))
    if any(problem.error for problem in reader.problems[before:]):
        return DefaultRoutes(failure="the netdevs of Open vSwitch cannot be read")
    return DefaultRoutes(frozenset(found | uplinks), hints=tuple(hints))


def _uplinks(reader: Reader, routed: set[str]) -> tuple[set[str], list[Problem]]:
    """Return the NICs of the internal ports of Open vSwitch, and a hint for a port without one."""
    uplinks: set[str] = set()
    hints: list[Problem] = []
    entries = reader.names(OPEN_VSWITCH) if routed else None
    if entries is None:
        return uplinks, hints
    members = _behind("lower_", entries)
    for port in sorted(routed):
        own = reader.names(f"{NET}/{port}") or []
        if not own or "device" in own or _behind("lower_", own):
            continue  # not an internal port: it has hardware, or lower netdevs
        address = _address(reader, port)
        same = [name for name in members if address and _address(reader, name) == address]
        if len(same) == 1:
            uplinks.update(same)
            continue
        text = "no netdev there has its MAC address"
        if same:
            text = f"several netdevs there have its MAC address ({', '.join(same)})"
        text = (
            f"the default route is on this port of Open vSwitch, and {text}:"
            " the front end is not known; name the backend with --backend-device"
        )
        hints.append(Problem("rdma", port, None, text))
    return uplinks, hints


def _address(reader: Reader, name: str) -> str | None:
    """Read `address`; EINVAL for a netdev that is being removed."""
    return reader.value(f"{NET}/{name}/address", kernel.mac_address, quiet=UNSET)


def namespace_fault(
    reader: Reader, data_ports: Sequence[tuple[RdmaDevice, RdmaPort]], routed: Routed
) -> str | None:
    """Return the reason why the routing tables say nothing of these ports; None if they do.

    Nothing is known without /proc/net/dev, as in a copied /sys: the tables, if any, count.
    """
    before = len(reader.problems)
    own = reader.table(OWN_NETDEVS, kernel.listed_netdevs)
    if own is None:
        return f"/{OWN_NETDEVS} cannot be read" if len(reader.problems) > before else None
    # The netdevs of these ports and of their PCI functions.
    netdevs: dict[str, None] = {}
    for device, port in data_ports:
        of_port = (netdev.name for netdev in (port.netdev, *port.legs) if netdev)
        netdevs |= dict.fromkeys((*of_port, *device.netdevs))
    for name in netdevs:
        # It may have been lent since it was read; then the tree lacks it, too.
        if name not in own and reader.link(f"{NET}/{name}") is not None:
            return OTHER_NAMESPACE.format(name)
    if netdevs or not routed:
        return None
    # The /sys of a Pod shows the RDMA devices of the host without their netdevs: the tree has
    # netdevs, and none of them is a hardware device.
    names = reader.names(NET) or ()
    lacks_hardware = all(reader.link(f"{NET}/{name}/device") is None for name in names)
    return OTHER_NAMESPACE.format(data_ports[0][0].name) if names and lacks_hardware else None
