"""The data model of one observation of a node.

Invariants:
- every field names the file, TLV or attribute that it comes from;
- None is "unknown", never 0 or "";
- nothing here decides: agent/sources/roles.py assigns port roles, agent/labels/table.py renders
  labels.

Rates are in Gb/s, netdev speeds in Mb/s as in the kernel, GUIDs are 16 lower-case hex digits.
Types are named tuples, since each frozen dataclass adds half a millisecond to every start. `Seen`
is none: of a generic named tuple mypy forgets the parameter after isinstance. Annotations are no
texts here, since typing.NamedTuple compiles each text at every start.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from agent.reasons import AcceleratorReason, HoldReason

if TYPE_CHECKING:  # a package that imports this module
    from agent.infiniband.bad_link import LinkErrors
    from agent.infiniband.exploration import Exploration
    from agent.nic.driver import NicHealth, Nics

T = TypeVar("T")

BRIDGE, ROUTER = 1 << 2, 1 << 4  # System Capabilities, IEEE Std 802.1AB-2016, Table 8-4


class Seen(Generic[T]):
    """The source was read and found `value`."""

    __slots__ = __match_args__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Seen) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return f"Seen({self.value!r})"


class Absent(NamedTuple):
    """The source was read, and its subject does not exist on this node: its labels are removed."""

    reason: str


class Failed(NamedTuple):
    """The source could not be read: what it told is remembered (agent/memory.py)."""

    reason: str
    pending: bool = False  # a background query has not had its first answer yet: no problem
    hold: HoldReason | None = None  # the reason of the holds; None: HoldReason.SOURCE_FAILED


OF_NOTE = "note"  # the source of a problem that is none: a remark on the observation


class Problem(NamedTuple):
    """One failed read or one malformed value; the rest of the observation goes on."""

    # the name of a source (agent/sources/__init__.py), "tiers", "nics", "host", "labels", "node",
    # or OF_NOTE
    source: str
    subject: str  # a path, an interface, a flag or a label key
    error: str | None  # errno name, where the kernel returned one
    text: str  # one line for an operator


class Reading(NamedTuple, Generic[T]):
    """The result of reading one source: its outcome, and the problems met on the way."""

    outcome: Seen[T] | Absent | Failed
    problems: tuple[Problem, ...] = ()


class Netdev(NamedTuple):
    """A network device, `/sys/class/net/{name}` (Documentation/ABI/testing/sysfs-class-net)."""

    name: str
    speed_mbps: int | None  # speed; None when the link is down or the driver does not know
    operstate: str | None  # operstate, RFC 2863 in lower case
    bond_state: str | None  # bonding_slave/state: "active" | "backup"; None: not in a bond
    default_route: bool  # this netdev, or a device stacked on it, has a default route
    carrier_changes: int | None = None  # carrier_changes: number of carrier losses and gains
    # address and, of a bond member, bonding_slave/perm_hwaddr; in lower case, no duplicates
    addresses: tuple[str, ...] = ()
    phys_port_name: str | None = None  # phys_port_name: "p0"; of a representor "pf0vf1"
    carrier_up_count: int | None = None  # carrier_up_count: 0 if it never had a link
    function: str | None = None  # device: the address of the PCI function of a bond's leg
    is_up: bool | None = None  # flags, IFF_UP: administratively up; of an IPoIB netdev


class RdmaPort(NamedTuple):
    """One port of an RDMA device, `/sys/class/infiniband/{device}/ports/{number}`."""

    number: int
    link_layer: str | None  # link_layer: "InfiniBand" | "Ethernet" | "Unknown"
    state: str | None  # state: "ACTIVE" | "DOWN" | "INIT" | "ARMED" | ...
    phys_state: str | None  # phys_state: "LinkUp" | "Polling" | "Disabled" | ...
    rate_text: str | None  # rate, unaltered: "400 Gb/sec (4X NDR)"
    rate_gbps: float | None  # the number in rate_text
    port_guid: str | None  # gids/0, lower half
    has_smi: bool | None  # has_smi: the port has a subnet management interface
    link_downed: int | None  # counters/link_downed
    netdev: Netdev | None  # gid_attrs/ndevs, else device/net by dev_port or dev_id
    legs: tuple[Netdev, ...]  # the bond's members, if netdev is a bond or a member of one

    @property
    def netdevs(self) -> list[Netdev]:
        """The netdev, and the members of its bond."""
        return [netdev for netdev in (self.netdev, *self.legs) if netdev]


class RdmaDevice(NamedTuple):
    """An RDMA device, `/sys/class/infiniband/{name}`.

    The files are those of Documentation/ABI/stable/sysfs-class-infiniband.
    """

    name: str
    excluded: bool = False  # matched by --exclude-device: nothing below it was read
    failure: str | None = None  # the error, if nothing below it could be read
    pci: str | None = None  # address of its PCI function: "0000:18:00.0"
    driver: str | None = None  # device/driver
    virtual_function: bool = False  # device/physfn exists
    sub_function: bool = False  # device is an auxiliary device, mlx5_core.sf.N
    pci_ids: str | None = None  # vendor and device of its PCI function: "15b3:1021"
    subsystem: str | None = None  # subsystem_vendor and subsystem_device
    # it looks like a function that manages NVSwitches (agent/sources/cards.py)
    nvswitch_pattern: bool = False
    nvswitch_management: bool | None = None  # device/vpd carries SW_MNG; None: not known
    node_type: str | None = None  # node_type: "CA" | "RNIC" | ...
    node_guid: str | None = None
    sys_image_guid: str | None = None
    hca_type: str | None = None
    board_id: str | None = None
    fw_ver: str | None = None
    numa_node: int | None = None  # device/numa_node
    netdevs: tuple[str, ...] = ()  # device/net
    ports: tuple[RdmaPort, ...] = ()


class LldpNeighbor(NamedTuple):
    """One decoded LLDPDU (IEEE Std 802.1AB-2016, clause 8.5).

    A tuple because many are made: a frozen dataclass adds a sixth to the time to decode a frame.
    """

    source_mac: str  # of the frame
    # 01:80:c2:00:00:0e nearest bridge, :03 nearest non-TPMR bridge, :00 nearest customer bridge
    destination_mac: str
    chassis_id: str  # Chassis ID TLV, 8.5.2
    chassis_subtype: int
    port_id: str  # Port ID TLV, 8.5.3
    port_id_subtype: int
    ttl: int  # Time To Live TLV, 8.5.4, seconds; 0 is a shutdown LLDPDU
    port_description: str | None = None  # 8.5.5
    system_name: str | None = None  # 8.5.6
    capabilities: int | None = None  # System Capabilities TLV, 8.5.8: enabled capabilities

    @property
    def is_switch(self) -> bool | None:
        """True: Bridge or Router is enabled; False: only others are; None: it does not say."""
        return bool(self.capabilities & (BRIDGE | ROUTER)) if self.capabilities else None


class IbNeighbor(NamedTuple):
    """The far end of an InfiniBand port, by SMPs (IBTA vol. 1, 14.2) or by the SA (15)."""

    node_type: str  # NodeInfo.NodeType: "CA" | "switch" | "router"
    node_guid: str  # NodeInfo.NodeGUID
    sys_image_guid: str | None  # NodeInfo.SystemImageGUID
    port: int  # NodeInfo.LocalPortNum: the far end's port of this link
    node_description: str | None  # NodeDescription.NodeString; None: not answered
    # "smp" | "sa": the way it was read
    via: str = "smp"
    lid: int | None = None  # LinkRecord.ToLID; None: by SMPs


class PlatformPosition(NamedTuple):
    """The position of a node in its chassis (nvml.h, nvmlPlatformInfo_v2_t).

    The NVLink domain is another thing: one chassis may have several, or a domain several racks.
    """

    chassis: str  # .chassisSerialNumber
    slot: int  # .slotNumber; switch trays have slots, too
    tray: int  # .trayIndex: of the compute trays
    host: int  # .hostId: of the tray's hosts

    def __str__(self) -> str:
        """Return `tray 4 of chassis 1823825185529`."""
        return f"tray {self.tray} of chassis {self.chassis}"


class Gpu(NamedTuple):
    """One NVIDIA GPU and its place in the NVLink fabric (nvml.h, nvmlGpuFabricInfo_t to _v3_t)."""

    number: int  # position in NVML's enumeration
    uuid: str | None = None  # nvmlDeviceGetUUID, "GPU-..."
    pci: str | None = None  # nvmlPciInfo_t.busId, in the form of sysfs
    version: int | None = None  # of the structure: 1, 2 or 3
    # .state: "not-supported" | "not-started" | "in-progress" | "completed"
    state: str | None = None
    # .status, an nvmlReturn_t by name: "success" | "insufficient-resources" | ...
    status: str | None = None
    # status, cluster_uuid and clique_id are meaningless unless state is "completed"
    cluster_uuid: str | None = None  # .clusterUuid, lower-case 8-4-4-4-12
    clique_id: int | None = None  # .cliqueId
    health_mask: int | None = None  # .healthMask, since version 2
    health: tuple[tuple[str, str], ...] = ()  # its parts: ("degraded_bandwidth", "false")
    # .healthSummary, since version 3: "healthy" | "unhealthy" | ...
    health_summary: str | None = None
    position: PlatformPosition | None = None  # of its node; None: the driver tells none
    module_id: int | None = None  # nvmlPlatformInfo_v2_t.moduleId, of the GPUs of a tray
    # the nvmlReturn_t of the failed call by name, or "malformed"; other fields are None then
    error: str | None = None
    text: str | None = None  # the error as a sentence


class NvlinkDomain(NamedTuple):
    """The NVLink domain of a node, or the reason why it has none with an explanation."""

    value: str | None  # <ClusterUUID>.<CliqueID>, the value of the accelerator label
    reason: AcceleratorReason | None = None
    text: str | None = None

    @property
    def holds(self) -> bool:
        """True if the last published label stays."""
        return self.reason is not None and self.reason.holds


NO_DOMAIN = NvlinkDomain(None, AcceleratorReason.FAILED)


class RoleChange(NamedTuple):
    """A port whose role was contradicted, and is another now; the verdicts in words."""

    device: str
    port: int
    before: str
    after: str


class Hint(NamedTuple):
    """A doubt about the backend, and what would settle it."""

    interfaces: tuple[str, ...]
    text: str


class PortRole(NamedTuple):
    """The role of a port, or of one leg of a bonded port, in the backend network."""

    interface: str  # its name in label keys
    device: RdmaDevice
    port: RdmaPort
    leg: Netdev | None  # None: not one leg but the whole port
    backend: bool
    reason: str  # the evidence that decided `backend`, in words
    # its part of the speed label; None: state or rate is unknown, and so is what it counted last
    counted_gbps: float | None
    rule: str = ""  # the rule of agent/sources/roles.py that decided, as a word
    gpu: str | None = None  # the PCI address of the nearest GPU
    distance: str | None = None  # of that GPU: "PIX" | "PXB" | "PHB" | "NODE" | "SYS"

    @property
    def netdev(self) -> Netdev | None:
        """The netdev of the leg, or of the whole port."""
        return self.leg or self.port.netdev


def ethernet_netdevs(roles: Iterable[PortRole]) -> list[str]:
    """Return the names of the netdevs of Ethernet ports: the legs of a bond, not the bond."""
    netdevs = (role.netdev for role in roles if role.port.link_layer == "Ethernet")
    return [*dict.fromkeys(netdev.name for netdev in netdevs if netdev)]


def backend_functions(ports: Iterable[PortRole]) -> frozenset[str]:
    """Return the PCI functions of backend ports, and of the legs of their bonds."""
    roles = [role for role in ports if role.backend]
    legs = {role.leg.function for role in roles if role.leg and role.leg.function}
    return frozenset(legs | {role.device.pci for role in roles if role.device.pci})


class Neighbor(NamedTuple):
    """A node at the far end of a backend port, under the names that labels are encoded from."""

    device: str
    port_id: str
    port_name: str | None
    facts: LldpNeighbor | IbNeighbor
    age: float | None = None  # seconds since its last LLDP frame; None: read by SMP
    # NodeDescription.NodeString of an earlier answer that `device` is from, if `facts` lacks it
    last_description: str | None = None

    @property
    def via(self) -> str:
        """The protocol that it was read by: "lldp" | "smp" | "sa"."""
        return self.facts.via if isinstance(self.facts, IbNeighbor) else "lldp"


class Link(NamedTuple):
    """The far end of one backend port; of several neighbors the selected one is first."""

    interface: str
    netdev: str | None
    neighbors: tuple[Neighbor, ...] = ()
    missing: str | None = None  # a NeighborReason; None: there is a neighbor
    hold: bool = False  # keep the published labels: the neighbor may still be there
    is_unasked: bool = False  # no query has been answered or has failed since the start


class Observation(NamedTuple):
    """The result of one observation of the node, one field per source."""

    time: float  # seconds since the epoch, UTC
    node: str | None  # host name; the Node's name unless --node-name is given
    boot_id: str | None  # /proc/sys/kernel/random/boot_id
    ports: tuple[PortRole, ...]  # the role of each port of `rdma`
    rdma: Seen[tuple[RdmaDevice, ...]] | Absent | Failed
    lldp: Seen[tuple[Link, ...]] | Absent | Failed  # Ethernet backend ports
    ib: Seen[tuple[Link, ...]] | Absent | Failed  # InfiniBand backend ports
    nvml: Seen[tuple[Gpu, ...]] | Absent | Failed = Failed("the GPUs were not queried")
    accelerator: NvlinkDomain = NO_DOMAIN  # over those GPUs
    # the switches above the leaves of `ib`; None: --tiers is off
    tiers: "Seen[Exploration] | Absent | Failed | None" = None
    # the error counters of both ends of the links of `ib`; None: not read
    link_errors: "Seen[tuple[LinkErrors, ...]] | Absent | Failed | None" = None
    # what the drivers of the backend NICs told; None: they were not asked
    nics: "Seen[Nics] | Absent | Failed | None" = None
    off: frozenset[str] = frozenset()  # the sources that --source leaves out
    # the link layers of unread devices that may be the backend (agent/sources/roles.py)
    unread: Mapping[str, str] = MappingProxyType({})
    problems: tuple[Problem, ...] = ()
    hints: tuple[Hint, ...] = ()  # doubts about the backend (agent/sources/left_out.py)
    disabled: frozenset[str] = frozenset()  # sources that --source leaves out of `run`: absent

    @property
    def backend(self) -> list[PortRole]:
        """The ports of the backend network."""
        return [role for role in self.ports if role.backend]

    @property
    def links(self) -> tuple[Link, ...]:
        """The far ends of the backend ports that a source saw, Ethernet ports first."""
        read = [outcome for outcome in (self.lldp, self.ib) if isinstance(outcome, Seen)]
        return tuple(link for outcome in read for link in outcome.value)

    def is_asked(self, source: str) -> bool:
        """Return False for a source that --source leaves out, and for tiers without --tiers."""
        if source == "tiers":
            return self.tiers is not None
        return source not in self.off and source not in self.disabled

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs; none if they could not be read."""
        return self.nvml.value if isinstance(self.nvml, Seen) else ()

    @property
    def read_links(self) -> "tuple[LinkErrors, ...]":
        """The links whose error counters were read; none if they could not be."""
        return self.link_errors.value if isinstance(self.link_errors, Seen) else ()

    @property
    def nic_health(self) -> "tuple[NicHealth, ...]":
        """The backend NICs whose driver told its health; none if they could not be asked."""
        return tuple(self.nics.value.health.values()) if isinstance(self.nics, Seen) else ()

    @property
    def positions(self) -> tuple[PlatformPosition, ...]:
        """The distinct platform positions that the GPUs tell; a node has one."""
        return tuple(dict.fromkeys(gpu.position for gpu in self.gpus if gpu.position))

    @property
    def position(self) -> PlatformPosition | None:
        """The platform position of the node; None if the GPUs tell none, or several."""
        return self.positions[0] if len(self.positions) == 1 else None

    def position_after(self, last: PlatformPosition | None) -> PlatformPosition | None:
        """Return the platform position; the last one while the GPUs cannot be read."""
        return last if isinstance(self.nvml, Failed) else self.position
