"""The front end: the NICs that carry the best default route.

The best default routes are all next hops of all unicast routes of the lowest IPv4 metric in the
main table. IPv6 counts only where no IPv4 default route exists, since a router advertisement on any
link adds a route there. /proc/net/route, which lists only the first next hop of a route, stands in
where nothing else was recorded.

The route may be on a netdev above the NIC: a bond, a bridge, a VLAN or a NIC of hv_netvsc has its
NICs as `lower_*`. On an Open vSwitch bridge the route is on an internal port, a netdev without
lower ones, and the NICs are members of `ovs-system`. On a node with GPUs, rails may be members as
well: the members with the MAC address of the internal port count there (OVN-Kubernetes: br-ex), if
there are any.

The tables are those of this process's network namespace; /sys/class/net has the netdevs of the
namespace that mounted it. A Pod without the host's network has routes of its own, which say nothing
of the host's NICs.

Files: Documentation/ABI/testing/sysfs-class-net; net/core/dev.c, netdev_adjacent_sysfs_add.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from agent.errors import Unavailable
from agent.model import Problem, RdmaDevice, RdmaPort
from agent.sysfs import parse
from agent.sysfs.reader import UNSET, Reader

SOURCE = "rdma"
NET = "sys/class/net"
OPEN_VSWITCH = "ovs-system"  # the datapath, master of all netdevs in its bridges
HYPER_V = "hv_netvsc"  # the driver of Azure's synthetic NIC, master of a VF
OWN_NETDEVS = "proc/net/dev"
TABLES = (
    (4, "proc/net/route", parse.ipv4_default_routes),
    (6, "proc/net/ipv6_route", parse.ipv6_default_routes),
)
UNREAD = "the routing tables cannot be read"
NO_NIC = "no NIC carries the default route{}"
OTHER_NAMESPACE = (
    "the routing tables are those of another network namespace than {}'s:"
    " run on the host's network (hostNetwork), or name the backend with --backend-device"
)

DMI = ("sys_vendor", "product_name")
# Words in the DMI names of virtual machines (systemd, src/basic/virt.c, detect_vm_dmi)
GUESTS = (
    *("KVM", "OpenStack", "QEMU", "VMware", "innotek GmbH", "Xen", "Bochs"),
    *("Parallels", "BHYVE", "Virtual Machine", "Google Compute Engine", "Alibaba Cloud ECS"),
)

Routed = frozenset[str]  # netdevs that carry the best default route


class Hop(NamedTuple):
    """A next hop of a unicast default route in the main table."""

    family: int  # 4 | 6
    metric: int
    netdev: str


# Returns all next hops; None: they were not recorded. Raises Unavailable.
RouteQuery = Callable[[], Sequence[Hop] | None]


class FrontEnd(NamedTuple):
    """The NICs of the best default route."""

    netdevs: Routed = frozenset()  # of the route, and all below them
    nics: Routed = frozenset()  # the hardware among them
    functions: frozenset[str] = (
        frozenset()
    )  # PCI functions of those, and those that they are VFs of
    accelerated: Routed = frozenset()  # members of a NIC of hv_netvsc
    # The reason why it is not known. "": the tree was copied without routes.
    unknown: str | None = None
    is_first_hop_only: bool = False  # read from /proc/net/route
    problems: tuple[Problem, ...] = ()  # hints, where the backend is Ethernet

    def carries_route(self, device: RdmaDevice) -> bool:
        """Return True if the device, read or not, is one of these NICs."""
        return device.pci in self.functions or not self.netdevs.isdisjoint(netdevs_of(device))


NOT_RECORDED = FrontEnd(unknown="")


def netdevs_of(device: RdmaDevice) -> set[str]:
    """Return the netdevs of a device, and of the legs of its bonds."""
    names = {netdev.name for port in device.ports for netdev in port.netdevs}
    return names | set(device.netdevs)


def read_front_end(reader: Reader, query: RouteQuery, *, has_gpus: bool) -> FrontEnd:
    """Read the best default routes and the NICs below them; a missing table counts as empty."""
    hops = None
    try:
        hops = query()
    except Unavailable as error:
        reader.report(TABLES[0][1], f"stands in for netlink: {error}")
    before = len(reader.problems)
    try:
        netdevs = set() if hops is None else best(hops)
        if hops is None:
            tables = []
            for family, path, parser in TABLES:
                tables.append(reader.table(path, parser))
                if netdevs := best(Hop(family, *route) for route in tables[-1] or ()):
                    break
            if len(reader.problems) > before:
                return FrontEnd(unknown=UNREAD)
            if tables.count(None) == len(TABLES):
                return NOT_RECORDED
        front_end = _below(reader, netdevs, has_gpus=has_gpus)
    except Unavailable as error:
        return FrontEnd(unknown=str(error))
    if any(problem.error for problem in reader.problems[before:]):
        return FrontEnd(unknown="the netdevs of the default route cannot be read")
    unknown = None
    if not front_end.nics:
        on = f": it is on {', '.join(sorted(netdevs))}" if netdevs else ""
        unknown = NO_NIC.format(on)
    return front_end._replace(unknown=unknown, is_first_hop_only=hops is None)


def best(hops: Iterable[Hop]) -> set[str]:
    """Return the netdevs of the lowest IPv4 metric, or IPv6 metric without IPv4 default route."""
    beyond = [hop for hop in hops if hop.netdev != "lo"]
    first = min(((hop.family, hop.metric) for hop in beyond), default=None)
    return {hop.netdev for hop in beyond if (hop.family, hop.metric) == first}


def _below(reader: Reader, routed: Iterable[str], *, has_gpus: bool) -> FrontEnd:
    """Return the netdevs of the routes and below them, and the hardware among these."""
    queue = [(name, False) for name in sorted(routed)]
    netdevs: set[str] = set()
    nics: set[str] = set()
    functions: set[str | None] = set()
    accelerated: set[str] = set()
    problems: list[Problem] = []
    while queue:
        name, is_below_hyper_v = queue.pop(0)
        if name in netdevs:
            continue
        netdevs.add(name)
        path = f"{NET}/{name}"
        entries = reader.names(path) or []
        target = reader.link(path) or ""
        lower = _lower(entries)
        lower += reader.value(f"{path}/bonding/slaves", parse.netdev_names) or []
        function = _function(reader, name)
        driver = ""
        if function is None and "device" in entries:
            driver = (reader.link(f"{path}/device/driver") or "").rpartition("/")[2]
        if "device" in entries or function:
            nics.add(name)
            physical = parse.pci_address(reader.link(f"{path}/device/physfn") or "")
            functions |= {function, physical}
            if is_below_hyper_v:
                accelerated.add(name)
        elif entries and not lower and name != OPEN_VSWITCH:
            lower, hints = _uplinks(reader, name, has_gpus=has_gpus)
            problems += hints
        # VMBus is the bus of Hyper-V's own devices.
        is_hyper_v = driver == HYPER_V or "/VMBUS:" in target.upper()
        queue += [(below, is_hyper_v) for below in lower]
    return FrontEnd(
        frozenset(netdevs),
        frozenset(nics),
        frozenset(address for address in functions if address),
        frozenset(accelerated),
        problems=tuple(problems),
    )


def _uplinks(reader: Reader, port: str, *, has_gpus: bool) -> tuple[list[str], list[Problem]]:
    """Return the members of Open vSwitch below an internal port, and hints.

    On a node with GPUs they are those with the MAC address of the port, if there are any. A hint
    names the NICs with a link and another address: they may be the front end as well.
    """
    members = _lower(reader.names(f"{NET}/{OPEN_VSWITCH}") or ())
    address = _address(reader, port) if has_gpus else None
    same = [name for name in members if address and _address(reader, name) == address]
    if not same:
        return members, []
    others = [
        name
        for name in members
        if name not in same
        and _function(reader, name)
        and reader.text(f"{NET}/{name}/operstate", quiet=UNSET) == "up"
    ]
    if not others:
        return same, []
    text = (
        f"{', '.join(others)}: members of Open vSwitch beside the default route's"
        f" {port}, with another MAC address: name the backend with --backend-device"
    )
    return same, [Problem(SOURCE, port, None, text)]


def _function(reader: Reader, netdev: str) -> str | None:
    """Return the PCI function of a netdev, by either of its links."""
    links = (reader.link(f"{NET}/{netdev}{end}") for end in ("", "/device"))
    return next(filter(None, (parse.pci_address(link or "") for link in links)), None)


def _lower(entries: Iterable[str]) -> list[str]:
    """Return the netdevs below one, by the entries of its folder."""
    return [entry.removeprefix("lower_") for entry in entries if entry.startswith("lower_")]


def _address(reader: Reader, name: str) -> str | None:
    """Read `address`; EINVAL for a netdev that is being removed."""
    return reader.value(f"{NET}/{name}/address", parse.mac_address, quiet=UNSET)


def namespace_fault(
    reader: Reader, data_ports: Sequence[tuple[RdmaDevice, RdmaPort]], routed: Routed
) -> str | None:
    """Return the reason why the routing tables are not those of these ports; None if they are.

    Nothing is known without /proc/net/dev, as in a copied /sys: the tables, if any, count.
    """
    before = len(reader.problems)
    own = reader.table(OWN_NETDEVS, parse.listed_netdevs)
    if own is None:
        return f"/{OWN_NETDEVS} cannot be read" if len(reader.problems) > before else None
    # The netdevs of these ports and of their PCI functions.
    netdevs: dict[str, None] = {}
    for device, port in data_ports:
        netdevs |= dict.fromkeys([netdev.name for netdev in port.netdevs] + [*device.netdevs])
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


def ambiguous_layers(release: str | None, *, is_guest: bool) -> frozenset[str]:
    """Return the link layers of which two ports of a card look like two functions of one port.

    In a virtual machine both functions may be in slots of their own. Of Ethernet phys_port_name
    tells them apart, but before Linux 5.16 mlx5 named both p0 (mlx5_get_dev_index).
    """
    if not is_guest:
        return frozenset()
    numbers = parse.release(release or "")
    is_old = numbers is not None and numbers < (5, 16)
    return frozenset({"InfiniBand", "Ethernet"} if is_old else {"InfiniBand"})


def is_guest(reader: Reader) -> bool | None:
    """Return True in a virtual machine; None if a file cannot be read.

    A processor marks it by the flag `hypervisor`, the firmware by the name of the product.
    """
    before = len(reader.problems)
    try:
        if b" hypervisor" in (reader.data("proc/cpuinfo") or b""):
            return True
        firmware = [reader.text(f"sys/class/dmi/id/{file}") for file in DMI]
    except Unavailable:
        return None
    is_named = any(word in text for text in firmware if text for word in GUESTS)
    return None if not is_named and len(reader.problems) > before else is_named
