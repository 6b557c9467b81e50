"""The network device behind an RDMA port, and what carries traffic on top of it.

A RoCE port's netdev is named by its GID table; where that is empty (link down, old kernel) the netdevs of the PCI
function are matched by `dev_port`, else `dev_id`. A bond shows as the RDMA device of its first leg, so its members
are read as legs.
"""

from __future__ import annotations

from agent.model import Netdev
from agent.sysfs import parse as kernel
from agent.sysfs.reader import UNSET, Reader

NET = "sys/class/net"


def names(
    reader: Reader, base: str, link_layers: dict[int, str | None], netdevs: tuple[str, ...]
) -> dict[int, str | None]:
    """The netdev of each port of the RDMA device at `base`; `netdevs` are those of its PCI function."""
    if len(link_layers) == len(netdevs) == 1:
        return dict.fromkeys(link_layers, netdevs[0])
    named = {
        number: _gid_netdev(reader, base, number) if layer == "Ethernet" else None
        for number, layer in link_layers.items()
    }
    # A bond's GIDs name the bond; the leg on the device's own PCI function leads to it as well, and to nobody else's.
    free = [netdev for netdev in netdevs if netdev not in named.values()]
    own = {_port_of(reader, f"{base}/device/net/{netdev}"): netdev for netdev in reversed(free)}
    return {
        number: name if name in netdevs else own.get(number, name) for number, name in named.items()
    }


def facts(
    reader: Reader, device: str, name: str | None, link_layer: str | None, routed: frozenset[str]
) -> tuple[Netdev | None, tuple[Netdev, ...]]:
    """The netdev of a port of the RDMA device, and the legs of its bond."""
    if name is None:
        return None, ()
    if link_layer != "Ethernet":  # IPoIB: only its link messages matter
        return Netdev(
            name, speed_mbps=None, operstate=None, bond_state=None, default_route=False
        ), ()
    members = _bond_members(reader, name)
    if any(_belongs_elsewhere(reader, device, member) for member in members):
        members = []  # a bond over RDMA devices of their own: this one is no bonded device
    return _facts(reader, name, routed), tuple(_facts(reader, leg, routed) for leg in members)


def _belongs_elsewhere(reader: Reader, device: str, netdev: str) -> bool:
    """The netdev's PCI function has an RDMA device, and it is another one (which may be sick, or excluded)."""
    pci = kernel.pci_address(reader.link(f"{NET}/{netdev}") or "")
    others = reader.names(f"sys/bus/pci/devices/{pci}/infiniband") if pci else None
    return bool(others) and device not in (others or ())


def _gid_netdev(reader: Reader, base: str, number: int) -> str | None:
    return reader.value(f"{base}/ports/{number}/gid_attrs/ndevs/0", kernel.netdev_name, quiet=UNSET)


def _port_of(reader: Reader, path: str) -> int:
    """The port that a netdev belongs to: `dev_port`, or `dev_id` from before Linux 3.15, both counted from 0."""
    return 1 + (
        reader.value(f"{path}/dev_port", kernel.number)
        or reader.value(f"{path}/dev_id", kernel.number)
        or 0
    )


def _bond_members(reader: Reader, name: str) -> list[str]:
    """The members of the bond that the netdev is, or is a member of (Documentation/networking/bonding.rst)."""
    for bond in (name, _master(reader, name)):
        if bond and (members := reader.value(f"{NET}/{bond}/bonding/slaves", kernel.netdev_names)):
            return members
    return []


def _facts(reader: Reader, name: str, routed: frozenset[str]) -> Netdev:
    path = f"{NET}/{name}"
    operstate = reader.text(f"{path}/operstate")
    return Netdev(
        name,
        speed_mbps=reader.value(f"{path}/speed", kernel.known, quiet=UNSET) or None,
        operstate=operstate,
        bond_state=_bond_state(reader, path, operstate) if _master(reader, name) else None,
        default_route=bool(routed) and not routed.isdisjoint(_stack(reader, name)),
        carrier_changes=reader.value(f"{path}/carrier_changes", kernel.number),
        addresses=_addresses(reader, path),
    )


def _addresses(reader: Reader, path: str) -> tuple[str, ...]:
    """Return the MAC address of a netdev; of a bond's leg, the bond's address and its own."""
    files = ("address", "bonding_slave/perm_hwaddr")
    return tuple(text.lower() for file in files if (text := reader.text(f"{path}/{file}")))


def _bond_state(reader: Reader, path: str, operstate: str | None) -> str | None:
    state = reader.text(f"{path}/bonding_slave/state")
    # A bond with its monitor off (miimon 0, the default) calls a leg without a link active, and its mii_status up.
    down = reader.text(f"{path}/bonding_slave/mii_status") == "down" or operstate in {
        "down",
        "lowerlayerdown",
    }
    return "backup" if state and down else state


def _stack(reader: Reader, name: str) -> set[str]:
    """The netdev and every netdev on top of it: bonds, bridges, VLANs (`upper_*`)."""
    found: set[str] = set()
    todo = [name]
    while todo:
        netdev = todo.pop()
        if netdev not in found:
            found.add(netdev)
            entries = reader.names(f"{NET}/{netdev}") or ()
            todo += [
                entry.removeprefix("upper_") for entry in entries if entry.startswith("upper_")
            ]
            todo += filter(None, [_master(reader, netdev)])
    return found


def _master(reader: Reader, name: str) -> str | None:
    path = f"{NET}/{name}/master"
    target = (reader.link(path) or "").rpartition("/")[2]
    return reader.parsed(path, target or None, kernel.netdev_name)
