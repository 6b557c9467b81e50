"""The network device of an RDMA port: its name, facts, bond members and default route.

The GID table names the netdev of a RoCE port. If it is empty (link down, old kernel), the netdevs
of the PCI function are matched to ports by `dev_port`, or `dev_id`. A bond has one RDMA device,
that of its first member; all members are read as the legs of its port.

Files: Documentation/ABI/testing/sysfs-class-net, Documentation/networking/bonding.rst.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent.errors import Unavailable
from agent.model import Netdev
from agent.sysfs import parse as kernel
from agent.sysfs.reader import UNSET, Reader

if TYPE_CHECKING:
    from agent.host import Host
    from agent.sources.routes import Routed

    ByPort = dict[int, str | None]  # by port number
    Network = tuple[Netdev | None, tuple[Netdev, ...]]  # of a port: its netdev and its legs

SOURCE = "netdev"
NET = "sys/class/net"
PCI = "sys/bus/pci/devices"
NO_LINK = frozenset({"down", "lowerlayerdown"})  # operstate of a bond member without a link
# The phys_port_name of a VF, SF or PF representor; that of an uplink is "p0"
# (Documentation/networking/devlink/devlink-port.rst, net/devlink/port.c).
_REPRESENTOR = re.compile(r"(c\d+)?pf\d+((vf|sf)\d+|hpf)?", re.ASCII)


def netdev_names(host: Host) -> frozenset[str]:
    """Return the netdevs of the node; empty if they cannot be read."""
    try:
        return frozenset(Reader(host.root, SOURCE).names(NET) or ())
    except Unavailable:
        return frozenset()


def port_netdevs(
    reader: Reader, base: str, link_layers: ByPort, netdevs: tuple[str, ...]
) -> ByPort:
    """Return the name of each port's netdev, by port number.

    `base` is the path of the RDMA device, `netdevs` are those of its PCI function.
    """
    if len(link_layers) == len(netdevs) == 1:
        return dict.fromkeys(link_layers, netdevs[0])
    by_gid = _by_gid(reader, base, link_layers)
    # The GIDs of a bonded port name the bond. The member on the device's own PCI function leads to
    # the same bond and belongs to this device only, so it is preferred.
    others = [netdev for netdev in netdevs if netdev not in by_gid.values()]
    by_number = _by_number(reader, base, others)
    return {
        number: name if name in netdevs else by_number.get(number, name)
        for number, name in by_gid.items()
    }


def read_netdev(
    reader: Reader, device: str, name: str | None, link_layer: str | None, routed: Routed
) -> Network:
    """Read the netdev of a port of RDMA device `device`, and the members of its bond.

    `routed` are the netdevs of the default routes. An IPoIB netdev has no facts but its name: only
    its link messages are used.
    """
    if name is None:
        return None, ()
    if link_layer != "Ethernet":
        ipoib = Netdev(name, speed_mbps=None, operstate=None, bond_state=None, default_route=False)
        return ipoib, ()
    members = _legs(reader, device, name)
    legs = tuple(_read_facts(reader, member, routed) for member in members)
    return _read_facts(reader, name, routed), legs


def is_representor(phys_port_name: str | None) -> bool:
    """Return True for the netdev of a port of the embedded switch that is not its uplink."""
    return bool(_REPRESENTOR.fullmatch(phys_port_name or ""))


def _legs(reader: Reader, device: str, name: str) -> list[str]:
    """Read the members of a netdev's bond.

    A bond over several RDMA devices has none: none of these is a bonded device.
    """
    members = _bond_members(reader, name)
    if any(_has_other_device(reader, device, member) for member in members):
        return []
    return members


def _has_other_device(reader: Reader, device: str, netdev: str) -> bool:
    """Return True if the netdev's PCI function has an RDMA device other than `device`.

    Only the name of that device is read, so it may be excluded or failed.
    """
    devices = _devices(reader, netdev)
    return bool(devices) and device not in devices


def _devices(reader: Reader, netdev: str) -> list[str]:
    """Read the names of the RDMA devices of the netdev's PCI function."""
    pci = kernel.pci_address(reader.decisive.link(f"{NET}/{netdev}") or "")
    return (reader.decisive.names(f"{PCI}/{pci}/infiniband") or []) if pci else []


def _by_gid(reader: Reader, base: str, link_layers: ByPort) -> ByPort:
    """Read the netdevs of the ports that have RoCE GIDs."""
    return {
        number: _gid_netdev(reader, base, number) if layer == "Ethernet" else None
        for number, layer in link_layers.items()
    }


def _gid_netdev(reader: Reader, base: str, number: int) -> str | None:
    """Read the netdev of a port's first GID, `gid_attrs/ndevs/0`."""
    path = f"{base}/ports/{number}/gid_attrs/ndevs/0"
    return reader.decisive.value(path, kernel.netdev_name, quiet=UNSET)


def _by_number(reader: Reader, base: str, netdevs: list[str]) -> dict[int, str]:
    """Return the netdevs by their port number; of several with the same one the first.

    Representors have the port number of their uplink, so they come last.
    """
    folder = f"{base}/device/net"
    ordered = _uplinks_first(reader, folder, netdevs) if len(netdevs) > 1 else netdevs
    return {_port_number(reader, f"{folder}/{name}"): name for name in reversed(ordered)}


def _uplinks_first(reader: Reader, folder: str, netdevs: list[str]) -> list[str]:
    """Return the netdevs in their order, but representors after all others."""
    return sorted(
        netdevs, key=lambda name: is_representor(_phys_port_name(reader, f"{folder}/{name}"))
    )


def _phys_port_name(reader: Reader, path: str) -> str | None:
    """Read `phys_port_name`; EOPNOTSUPP for most netdevs, EINVAL for one that is being removed."""
    return reader.decisive.text(f"{path}/phys_port_name", quiet=UNSET)


def _port_number(reader: Reader, path: str) -> int:
    """Read the port number of a netdev: 1 + `dev_port`, before Linux 3.15 1 + `dev_id`."""
    files = (f"{path}/dev_port", f"{path}/dev_id")
    numbers = (reader.decisive.value(file, kernel.number) for file in files)
    return 1 + next(filter(None, numbers), 0)


def _bond_members(reader: Reader, name: str) -> list[str]:
    """Read the members of the bond that the netdev is, or that it is a member of."""
    master = _master(reader, name)
    members = _members_of(reader, name)
    return _members_of(reader, master) if master and not members else members


def _members_of(reader: Reader, bond: str) -> list[str]:
    """Read `bonding/slaves`; [] if the netdev is no bond."""
    return reader.decisive.value(f"{NET}/{bond}/bonding/slaves", kernel.netdev_names) or []


def _read_facts(reader: Reader, name: str, routed: Routed) -> Netdev:
    path = f"{NET}/{name}"
    operstate = reader.decisive.text(f"{path}/operstate")
    is_member = _master(reader, name) is not None
    return Netdev(
        name,
        speed_mbps=reader.decisive.value(f"{path}/speed", kernel.known, quiet=UNSET) or None,
        operstate=operstate,
        bond_state=_bond_state(reader, path, operstate) if is_member else None,
        default_route=bool(routed) and not routed.isdisjoint(_stack(reader, name)),
        carrier_changes=reader.value(f"{path}/carrier_changes", kernel.number),
        addresses=_addresses(reader, path, is_member=is_member),
        phys_port_name=_phys_port_name(reader, path),
    )


def _addresses(reader: Reader, path: str, *, is_member: bool) -> tuple[str, ...]:
    """Read the MAC address of a netdev and, of a bond member, its permanent one.

    A frame from one of them is the NIC's own: a device has failed if they cannot be read.
    A bond gives its own address to its members; the firmware of a member keeps the permanent one,
    `bonding_slave/perm_hwaddr` (drivers/net/bonding/bond_sysfs_slave.c).
    """
    files = ("address", "bonding_slave/perm_hwaddr") if is_member else ("address",)
    found = (_address(reader, f"{path}/{file}") for file in files)
    return tuple(dict.fromkeys(filter(None, found)))


def _address(reader: Reader, path: str) -> str | None:
    """Read a MAC address; a netdev may have another kind of address."""
    return reader.parsed(path, reader.decisive.text(path, quiet=UNSET), kernel.mac_address)


def _bond_state(reader: Reader, path: str, operstate: str | None) -> str | None:
    """Read `bonding_slave/state`; "backup" for a member without a link.

    A bond without link monitoring (miimon 0, the default) reports such a member as active, and its
    mii_status as up; its operstate is right.
    """
    state = reader.decisive.text(f"{path}/bonding_slave/state")
    mii_status = reader.decisive.text(f"{path}/bonding_slave/mii_status")
    has_link = mii_status != "down" and operstate not in NO_LINK
    return state if has_link or not state else "backup"


def _stack(reader: Reader, name: str) -> set[str]:
    """Return the netdev and every netdev on top of it: bonds, bridges, VLANs (`upper_*`)."""
    found: set[str] = set()
    queue = [name]
    while queue:
        netdev = queue.pop()
        if netdev not in found:
            found.add(netdev)
            queue += _uppers(reader, netdev)
    return found


def _uppers(reader: Reader, name: str) -> list[str]:
    """Return the netdevs directly on top of a netdev."""
    linked = _upper_links(reader, name)
    master = _master(reader, name)
    return [*linked, master] if master else linked


def _upper_links(reader: Reader, name: str) -> list[str]:
    """Read the names behind `upper_`."""
    entries = reader.decisive.names(f"{NET}/{name}") or ()
    return [entry.removeprefix("upper_") for entry in entries if entry.startswith("upper_")]


def _master(reader: Reader, name: str) -> str | None:
    """Read the target of the `master` link: the bond or bridge that the netdev is a member of."""
    path = f"{NET}/{name}/master"
    target = (reader.decisive.link(path) or "").rpartition("/")[2]
    return reader.parsed(path, target or None, kernel.netdev_name)
