"""The label changes that a failed read may cause: every exception from the rules of `untrue`.

Written by hand from the label contract and the README of each machine, and read by eye; nothing
here is computed by the agent. A row says which reads, on which machines, and which changes; the
comment above it says why an operator would want that.

No row is about a node that has labels and a failure that is shorter than the hold: there, no failed
read changes any label. (A link's state that cannot be read is not known to be down, ENODEV of an
attribute means that a device is about to go, and its labels go when its PCI function has gone.)
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tests.simulation.failed_reads import Case
from tests.simulation.untrue import Change
from tests.support.machines import MACHINES

ANY = ".*"
# No value is published, neither a new nor an old one, of any label that the RDMA devices give.
NO_RDMA_LABEL = r"(backend|ib)\.coreweave\.cloud/.*: .* -> None"
ACCELERATOR_LOST = r"network\.topology\.nvidia\.com/accelerator: .* -> None"
# Those with RoCE labels, and those whose only card is the front end's.
ROCE_MACHINES = "|".join(
    ["alibaba-erdma", "azure-mana", "cpu-roce-front-end", "vsphere-pvrdma"]
    + [one.name for one in MACHINES if "/flavor=roce\n" in (one / "expected.labels").read_text()]
)
WITHOUT_RDMA = (
    "bnxt-re-not-loaded|cpu-node|empty-class|gcp-a3-mega|gcp-cpu-gvnic|ionic-rdma-not-loaded|"
    "mlx5-ib-not-loaded"
)


class Row(NamedTuple):
    """Regular expressions that match as a whole."""

    files: str  # Read.file_class
    changes: str  # a Change as text
    machines: str = ANY


ROWS = (
    # The devices of the node are not known at all. "speed.current is never absent, once sysfs could
    # be read": it could not.
    Row(r"sys/class/infiniband/", NO_RDMA_LABEL),
    # The front end of a RoCE node is the NIC with the default route. Without the routes any NIC may
    # be it: no port is published as backend ("with nothing published there are no RoCE labels").
    # An InfiniBand node does not need them.
    Row(r"proc/net/((ipv6_)?route|dev)", NO_RDMA_LABEL, ROCE_MACHINES),
    # So it is while a netdev with the route, or one below it, cannot be read: a bond's members, or
    # those of a bridge of Open vSwitch.
    Row(r"sys/class/net/(ovs-system|IF)(@|/.*)", NO_RDMA_LABEL, ROCE_MACHINES),
    Row(r"sys/bus/pci/devices/BDF/(\*\*|physfn@)", NO_RDMA_LABEL, ROCE_MACHINES),
    # The place and the kind of each NIC are known from the PCI bus. Where it cannot even be listed,
    # nobody knows which of them are the backend.
    Row(r"sys/bus/pci/devices/", NO_RDMA_LABEL),
    # A node has no RDMA hardware, hence 0G, if /sys is mounted (it has netdevs) and no function on
    # the whole PCI bus is an InfiniBand controller that the host drives. Before all of that is read
    # 0G would be a guess: the node may be one whose driver is about to load.
    Row(r"sys/class/net/", NO_RDMA_LABEL, WITHOUT_RDMA),
    Row(r"sys/bus/pci/devices/BDF/(class|driver@)", NO_RDMA_LABEL, WITHOUT_RDMA),
    # "0G is said of ports that were read, or where there is no backend port": what is unread may be
    # one, or a GPU that makes a front end one. A netdev that blocks hides its device.
    Row(r"sys/(class/(infiniband|net)|bus/pci/devices)/.*", r".*/speed\.current: 0G -> None"),
    # A device of which nothing was ever read may be an InfiniBand HCA, unless the PCI class of its
    # function is another one: "`roce` is not published while a function that is, or may be,
    # InfiniBand is unread". A read that blocks leaves nothing of the function, its class included.
    Row(r"sys/bus/pci/devices/BDF(/.*|@)?", r".*/flavor: roce -> None", ROCE_MACHINES),
    # Two functions reach one cable. The second stands for it while the first is unread, and a port
    # that never had a link is judged without the ports that cannot be read.
    Row(
        r"sys/(bus/pci/devices|class/(infiniband|net))/.*",
        r"(port|interface) (roceP2p1s0f[01]|mlx5_[23])(/1)?: (ignored|None) -> backend"
        r"|port rocep1s0f0/1: backend -> ignored|.*/(flavor|speed\.current): .* -> None",
        "dgx-spark|lassen-ac922",
    ),
    # GPUs are found on the PCI bus. While a function of it cannot be read nobody knows whether all
    # GPUs were asked; the identity is published when all of them agree.
    Row(r"sys/bus/pci/devices/(BDF/(class|vendor|driver@|\*\*))?", ACCELERATOR_LOST),
    # Of several kinds of Ethernet NICs the most numerous is the backend. While a device of which
    # nothing was ever read is not counted, that may be another: of two and two one is missing, or
    # of two and one (mlx5_4, beside it, has the default route). Then no port has labels, and the
    # speed is that of none, or of those that cannot be outnumbered.
    Row(
        r"sys/(class|bus/pci/devices)/.*",
        r".*/(flavor|speed\.current|neighbors\.current\..*|leaves\.current|leafgroup\.current): .* "
        r"-> None",
        "ib-and-roce-tie|bond-roce|hgx-h100-four-nics|oci-bm-hpc-e5",
    ),
    Row(
        r"sys/(class|bus/pci/devices)/.*",
        r".*/speed\.current: [46]00G -> (0|200|400)G",
        "ib-and-roce-tie|bond-roce",
    ),
    # Every VF of a guest has has_smi 0 and no physfn, as the second function of a Socket-Direct
    # card has, and is a backend port because no device with has_smi 1 has its sys_image_guid. While
    # a device of which nothing was ever read may have it, the others may be left out.
    Row(
        r"sys/(class|bus/pci/devices)/.*",
        r".*/(flavor|speed\.current): .* -> None|.*/speed\.current: 3200G -> .*"
        r"|port mlx5_\d/1: backend -> ignored",
        "azure-ndv5-vm|vm-guest-vfs",
    ),
    # How many functions a card has is part of its kind. While the class of one is unread (here a
    # VF's), a port of the card is none that counts in any case, as one that is unread itself.
    Row(
        r"sys/bus/pci/devices/BDF(/.*|@)?",
        r".*/speed\.current: 3200G -> 2800G|.*/neighbors\.current\..*: .* -> None"
        r"|.*/(leaves|leafgroup|ports)\.current: .*|port mlx5_\d+/1: backend -> ignored",
        "sriov-host",
    ),
    # One card of the backend was replaced by another model: it counts since it is beside a GPU, as
    # the others are. While any function is unread that may be a GPU, that is not known.
    Row(
        r"sys/bus/pci/devices/BDF(/.*|@)?",
        r".*/speed\.current: 3200G -> 2800G|port mlx5_4/1: backend -> ignored",
        "h200-roce-replaced-card",
    ),
    # The GPU beside one NIC is missing. That the NIC is one of the backend is known by its bridges
    # alone, which are those of the other NICs.
    Row(
        r"sys/bus/pci/devices/BDF/(vendor|device)",
        r".*/speed\.current: 3200G -> 2800G|port mlx5_5/1: backend -> ignored",
        "hgx-h100-ib",
    ),
)


def permits(machine: str, case: Case, change: Change) -> bool:
    """Return True if a row of the table permits a change."""
    return any(is_about(row, machine, case) and _matches(row.changes, change) for row in ROWS)


def is_about(row: Row, machine: str, case: Case) -> bool:
    """Return True if a row is about this read of this machine."""
    return _matches(row.files, case.read.file_class) and _matches(row.machines, machine)


def _matches(pattern: str, text: object) -> bool:
    return re.fullmatch(pattern, str(text)) is not None
