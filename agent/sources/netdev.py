"""The network device of an RDMA port: its name, its facts and the members of its bond.

- The GID table names the netdev of a RoCE port. If it is empty (link down, old kernel), the netdevs
  of the PCI function are matched to ports by `dev_port`, or `dev_id`. A bond of the ports of
  a card has one RDMA device, that of its first member; these members are read as its port's legs.

Files: Documentation/ABI/testing/sysfs-class-net, Documentation/networking/bonding.rst.
"""

from __future__ import annotations

import re

from agent.errors import Unavailable
from agent.host import Host
from agent.ids import card_of
from agent.model import Netdev, RdmaDevice
from agent.sysfs import parse
from agent.sysfs.bus import DEVICES as PCI
from agent.sysfs.bus import read_ids
from agent.sysfs.front_end import NET, Routed, is_guest
from agent.sysfs.reader import UNSET, Reader

SOURCE = "netdev"
NO_LINK = frozenset({"down", "lowerlayerdown"})  # operstate of a bond member without a link
IFF_UP = 0x1  # of `flags`, include/uapi/linux/if.h
# The phys_port_name of a VF, SF or PF representor; that of an uplink is "p0"
# (Documentation/networking/devlink/devlink-port.rst, net/devlink/port.c).
_REPRESENTOR = re.compile(r"(c\d+)?pf\d+((vf|sf)\d+|hpf)?", re.ASCII)

ByPort = dict[int, str | None]  # by port number

# In /sys/class/net beside NICs: the loopback, and a file (drivers/net/bonding/bond_sysfs.c)
NO_NICS = frozenset({"lo", "bonding_masters"})


def netdev_names(host: Host) -> frozenset[str]:
    """Return the netdevs of the node but for the loopback; empty if they cannot be read."""
    try:
        return frozenset(Reader(host.root, SOURCE).names(NET) or ()) - NO_NICS
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
            by_gid[number] = reader.decisive.value(gid, parse.netdev_name, quiet=UNSET)
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
        numbers = (reader.decisive.value(file, parse.number) for file in files)
        by_number[1 + next(filter(None, numbers), 0)] = name
    return {
        number: name if name in netdevs else by_number.get(number, name)
        for number, name in by_gid.items()
    }


def _phys_port_name(reader: Reader, path: str) -> str | None:
    """Read `phys_port_name`; EOPNOTSUPP for most netdevs, EINVAL while it is being removed."""
    return reader.decisive.text(f"{path}/phys_port_name", quiet=UNSET)


def read_netdev(
    reader: Reader, device: RdmaDevice, name: str | None, link_layer: str | None, routed: Routed
) -> tuple[Netdev | None, tuple[Netdev, ...]]:
    """Read the netdev of a port of an RDMA device, and the members of its bond.

    `routed` are the netdevs that carry the best default route. Of an IPoIB netdev only the link
    messages are used, so it has no facts but whether there are any.
    """
    if name is None:
        return None, ()
    if link_layer != "Ethernet":
        flags = reader.value(f"{NET}/{name}/flags", parse.number, quiet=UNSET)
        is_up = None if flags is None else bool(flags & IFF_UP)
        operstate = reader.text(f"{NET}/{name}/operstate", quiet=UNSET)
        return Netdev(name, None, operstate, None, default_route=False, is_up=is_up), ()
    functions = legs_of(reader, device, name)
    legs = tuple(_read_facts(reader, leg, routed, pci) for leg, pci in functions.items())
    return _read_facts(reader, name, routed), legs


def legs_of(reader: Reader, device: RdmaDevice, name: str) -> dict[str, str | None]:
    """Return the members of a bond that the RDMA device stands for, with their functions.

    `name` is the bond, or a member of it.

    A driver makes one device of the functions of one card (mlx5_same_hw_devs,
    drivers/net/ethernet/mellanox/mlx5/core/lag/lag.c); the netdevs of other cards are no legs,
    whether these have an RDMA device or not. There is no leg if one of the functions has a device
    of its own, of which the name alone is read, so it may be excluded or failed; nor for a lone
    member, unless the card has another function that is joined with it.
    """
    members = _members_of(reader, name)
    if not members and (master := _master(reader, name)):
        members = _members_of(reader, master)
    functions = {
        member: parse.pci_address(reader.decisive.link(f"{NET}/{member}") or "")
        for member in members
    }
    legs = {leg: pci for leg, pci in functions.items() if _is_of_card(reader, pci, device)}
    for pci in legs.values():
        names = reader.decisive.names(f"{PCI}/{pci}/infiniband") if pci else None
        if names and device.name not in names:
            return {}
    return legs if len(legs) > 1 or (legs and _is_joined(reader, device)) else {}


def _is_of_card(reader: Reader, pci: str | None, device: RdmaDevice) -> bool:
    """Return True if a function is on the device's card.

    The functions of a card that was given to a virtual machine may be in different slots there.
    """
    if not (pci and device.pci) or card_of(pci) == card_of(device.pci):
        return True
    return read_ids(reader, f"{PCI}/{pci}") == device.pci_ids is not None and bool(is_guest(reader))


def _is_joined(reader: Reader, device: RdmaDevice) -> bool:
    """Return True if another function of the card, of the same model, has no RDMA device."""
    others = (f"{PCI}/{card_of(device.pci)}.{number}" for number in range(8))
    return device.pci_ids is not None and any(
        read_ids(reader, other) == device.pci_ids
        and not reader.decisive.names(f"{other}/infiniband")
        for other in others
        if not other.endswith(f"/{device.pci}")
    )


def _members_of(reader: Reader, bond: str) -> list[str]:
    """Read `bonding/slaves`; [] if the netdev is no bond."""
    return reader.decisive.value(f"{NET}/{bond}/bonding/slaves", parse.netdev_names) or []


def _master(reader: Reader, name: str) -> str | None:
    """Read the target of the `master` link: the bond or bridge that the netdev is a member of."""
    path = f"{NET}/{name}/master"
    target = (reader.decisive.link(path) or "").rpartition("/")[2]
    return reader.parsed(path, target or None, parse.netdev_name)


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
        if address := reader.parsed(f"{path}/{file}", text, parse.mac_address):
            addresses[address] = None
    return Netdev(
        name,
        speed_mbps=reader.decisive.value(f"{path}/speed", parse.known, quiet=UNSET) or None,
        operstate=operstate,
        bond_state=bond_state,
        default_route=name in routed,
        carrier_changes=reader.value(f"{path}/carrier_changes", parse.number),
        carrier_up_count=reader.decisive.value(f"{path}/carrier_up_count", parse.number),
        addresses=tuple(addresses),
        phys_port_name=_phys_port_name(reader, path),
        function=function,
    )
