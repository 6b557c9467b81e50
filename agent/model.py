"""What can be observed on a node.

The law of this module: a field says the file, TLV or attribute it comes from, and None is "unknown", never 0 or "".
Nothing here judges: which ports are the backend is decided in roles.py, what becomes a label in labels.py.

Rates are in Gb/s, netdev speeds in Mb/s as the kernel gives them, GUIDs are 16 lower-case hex digits. What is
never told apart by its type alone is a named tuple: a frozen dataclass takes half a millisecond of every start.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from typing import Self

T = TypeVar("T")

_DIGITS = re.compile(r"(\d+)")


@lru_cache(4096)  # the same few names are sorted again at every look
def natural(name: str) -> tuple[str | int, ...]:
    """The key of the order in which people list names: mlx5_9 before mlx5_10."""
    return tuple(
        int(part) if number % 2 else part for number, part in enumerate(_DIGITS.split(name))
    )


@dataclass(frozen=True, slots=True)
class Seen(Generic[T]):
    """The source looked, and this is what it saw."""

    value: T


@dataclass(frozen=True, slots=True)
class Absent:
    """The source looked, and what it looks for is truly not there."""

    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The source could not look: what was published last stays for a while."""

    reason: str


class Problem(NamedTuple):
    """One thing that could not be read or made no sense; it never stops the rest."""

    source: str  # "rdma", "lldp", "ib", "nvml"
    subject: str  # a path, an interface, a flag
    error: str | None  # errno name where the kernel gave one
    text: str


class Reading(NamedTuple, Generic[T]):
    """What a source saw, and what it stumbled over."""

    outcome: Seen[T] | Absent | Failed
    problems: tuple[Problem, ...] = ()


class Reason(StrEnum):
    """A word of the JSON document, its text for people, and whether it holds labels.

    A member is the word itself: it compares equal to it, and `json` writes it.
    """

    text: str
    holds: bool

    def __new__(cls, word: str, text: str, holds: bool = True) -> Self:
        member = str.__new__(cls, word)
        member._value_, member.text, member.holds = word, text, holds
        return member


class NeighborReason(Reason):
    """Why a backend port has no neighbor (`missing_neighbors` of the JSON document)."""

    LINK_DOWN = "link-down", "no link", False
    EXPIRED = "expired", "LLDP TTL expired", False
    SHUTDOWN = "shutdown", "LLDP shutdown received (TTL 0)", False
    SILENT = "silent", "no LLDP frame received (switches send one every 30 s)", True
    NOT_LISTENED = "not-listened", "LLDP was not listened for", True
    BLOCKED_BY_FIRMWARE = "blocked-by-firmware", "the NIC's firmware consumes LLDP frames", True
    NOT_PERMITTED = (
        "not-permitted",
        "not permitted (LLDP needs CAP_NET_RAW, InfiniBand /dev/infiniband/umad*)",
        True,
    )
    NO_NETDEV = "no-netdev", "no network device in this namespace: lent to a pod", True
    NO_ANSWER = "no-answer", "no answer to subnet management packets", True
    NO_UMAD = "no-umad", "no libibumad, or no umad device (module ib_umad)", True
    REFUSED = "refused", "the port has no subnet management interface", True
    SEND_FAILED = "send-failed", "the subnet management packet could not be sent", True
    MALFORMED = "malformed", "malformed answer", True
    NOT_RECORDED = "not-recorded", "the snapshot has no answer for this port", True
    UNAVAILABLE = "unavailable", "the packet socket could not be opened", True


class AcceleratorReason(Reason):
    """Why there is no accelerator label (`accelerator.reason` of the JSON document)."""

    NOT_FOUND = "not-found", "no NVIDIA GPU on the PCI bus", False
    UNSUPPORTED = "unsupported", "no NVLink fabric, or a cluster UUID of zeros", False
    UNHEALTHY = "unhealthy", "fabric registration completed without success", False
    INCONSISTENT = "inconsistent", "the GPUs report different domains", False
    NOT_STARTED = "not-started", "fabric registration has not started", True
    IN_PROGRESS = "in-progress", "fabric registration is in progress", True
    FAILED = "failed", "the GPUs could not be queried", True


class HoldReason(Reason):
    """Reasons why a published label stays as it is though its source does not confirm it."""

    SOURCE_OFF = "source-off", "its source is switched off by --source"
    SOURCE_FAILED = "source-failed", "its source could not be read"
    DEVICE_FAILED = "device-failed", "an RDMA device could not be read"
    DEVICE_GONE = (
        "device-gone",
        "the RDMA device is gone, but its PCI function is not: the driver may be reloading",
    )
    LENT = "lent", "the port's network device is in another namespace: lent to a pod"
    LINK_DOWN = "link-down", "the link went down a moment ago"
    NO_NEIGHBOR = "no-neighbor", "the neighbor is not known now"
    INCOMPLETE = "incomplete", "the state or rate of a backend port could not be read"
    NO_DOMAIN = "no-domain", "the NVLink domain is not known now"


@dataclass(frozen=True, slots=True)
class Netdev:
    """A network device, `/sys/class/net/{name}` (Documentation/ABI/testing/sysfs-class-net)."""

    name: str
    speed_mbps: int | None  # speed; None when the link is down or the driver does not know
    operstate: str | None  # operstate, RFC 2863 in lower case
    bond_state: str | None  # bonding_slave/state: "active" | "backup"; None: no bond member
    default_route: bool  # it, or a device on top of it, carries a default route
    carrier_changes: int | None = (
        None  # carrier_changes: how often the link has gone down or come up
    )


@dataclass(frozen=True, slots=True)
class RdmaPort:
    """One port of an RDMA device, `/sys/class/infiniband/{device}/ports/{number}`."""

    number: int
    link_layer: str | None  # link_layer: "InfiniBand" | "Ethernet" | "Unknown"
    state: str | None  # state: "ACTIVE" | "DOWN" | "INIT" | "ARMED" | ...
    phys_state: str | None  # phys_state: "LinkUp" | "Polling" | "Disabled" | ...
    rate_text: str | None  # rate, as the kernel wrote it
    rate_gbps: float | None  # the number in it
    port_guid: str | None  # gids/0, lower half
    has_smi: bool | None  # has_smi: the port has a subnet management interface
    link_downed: int | None  # counters/link_downed
    netdev: Netdev | None  # gid_attrs/ndevs, else device/net by dev_port or dev_id
    legs: tuple[Netdev, ...]  # members of the bond that the netdev is or belongs to


@dataclass(frozen=True, slots=True)
class RdmaDevice:
    """An RDMA device, `/sys/class/infiniband/{name}` (Documentation/ABI/stable/sysfs-class-infiniband)."""

    name: str
    excluded: bool = False  # named by --exclude-device: nothing below it was read
    failure: str | None = None  # why nothing below it could be read
    pci: str | None = None  # address of the PCI function behind it
    driver: str | None = None  # device/driver
    virtual_function: bool = False  # device/physfn exists
    nvswitch_management: bool | None = None  # device/vpd carries SW_MNG
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
    """One LLDPDU as its sender meant it (IEEE Std 802.1AB-2016, clause 8.5).

    A tuple, since many are made: a frozen dataclass takes a sixth of the time that a frame takes to decode.
    """

    source_mac: str  # of the frame that carried it
    destination_mac: str  # 01:80:c2:00:00:0e nearest bridge, :03 nearest non-TPMR bridge, :00 nearest customer bridge
    chassis_id: str  # Chassis ID TLV, 8.5.2
    chassis_subtype: int
    port_id: str  # Port ID TLV, 8.5.3
    port_id_subtype: int
    ttl: int  # Time To Live TLV, 8.5.4, seconds; 0 is a goodbye
    port_description: str | None = None  # 8.5.5
    system_name: str | None = None  # 8.5.6
    system_description: str | None = None  # 8.5.7
    capabilities: int | None = None  # System Capabilities TLV, 8.5.8: the enabled ones
    management_addresses: tuple[str, ...] = ()  # 8.5.9


@dataclass(frozen=True, slots=True)
class IbNeighbor:
    """The far end of an InfiniBand port, as it told by directed-route SMPs (IBTA vol. 1, chapter 14.2)."""

    node_type: str  # NodeInfo.NodeType: "CA" | "switch" | "router"
    node_guid: str  # NodeInfo.NodeGUID
    sys_image_guid: str | None  # NodeInfo.SystemImageGUID
    port: int  # NodeInfo.LocalPortNum: the far end's port that the request came in by
    ports: int  # NodeInfo.NumPorts
    node_description: str | None  # NodeDescription.NodeString
    port_state: str | None = None  # PortInfo.PortState of that far port


@dataclass(frozen=True, slots=True)
class Gpu:
    """One NVIDIA GPU and its place in the NVLink fabric (nvml.h, nvmlGpuFabricInfo_v3_t and its forerunners)."""

    index: int  # as NVML counts
    uuid: str | None = None  # nvmlDeviceGetUUID, "GPU-..."
    pci: str | None = None  # nvmlPciInfo_t.busId, as sysfs writes it
    version: int | None = None  # of the structure: 1, 2 or 3
    state: str | None = (
        None  # .state: "not-supported" | "not-started" | "in-progress" | "completed"
    )
    status: str | None = (
        None  # .status, an nvmlReturn_t by name: "success" | "insufficient-resources" | ...
    )
    cluster_uuid: str | None = None  # .clusterUuid, lower-case 8-4-4-4-12
    clique_id: int | None = (
        None  # .cliqueId; status and both identifiers mean nothing unless state is "completed"
    )
    health_mask: int | None = None  # .healthMask, since version 2
    health: tuple[tuple[str, str], ...] = ()  # its parts by name: ("degraded_bandwidth", "false")
    health_summary: str | None = (
        None  # .healthSummary, since version 3: "healthy" | "unhealthy" | ...
    )
    error: str | None = (
        None  # what a call came back with, by name, or "malformed": facts are missing
    )
    text: str | None = None  # the same in words


class Verdict(NamedTuple):
    """The NVLink domain of a node, or the reason why it has none with an explanation."""

    value: str | None  # <ClusterUUID>.<CliqueID>, the value of the accelerator label
    reason: AcceleratorReason | None = None
    text: str | None = None

    @property
    def holds(self) -> bool:
        """True if the last published label stays."""
        return self.reason is not None and self.reason.holds


class PortRole(NamedTuple):
    """A port, or one leg of a bonded port, with its name in label keys and its part in the backend network."""

    interface: str
    device: RdmaDevice
    port: RdmaPort
    leg: Netdev | None
    backend: bool
    reason: str
    counted_gbps: float | None  # None: its state or its rate is unknown


class Neighbor(NamedTuple):
    """One node at the far end of a backend port, under the names that become labels; they are not encoded yet."""

    device: str
    port_id: str
    port_name: str | None
    facts: LldpNeighbor | IbNeighbor
    age: float | None = None  # seconds since it was last heard; None: it was asked just now


class Link(NamedTuple):
    """What is known of the far end of one backend port; of several neighbours the selected one is first."""

    interface: str
    netdev: str | None
    neighbors: tuple[Neighbor, ...] = ()
    missing: str | None = (
        None  # the word why there is no neighbour: "silent", "no-answer", "link-down", ...
    )
    hold: bool = False  # the labels published last stay: the neighbour may be there


@dataclass(frozen=True, slots=True)
class Observation:
    """All that one look at the node gave, a field for each source."""

    time: float  # seconds since the epoch, UTC
    node: str | None  # host name; the Node's name unless told otherwise
    boot_id: str | None  # /proc/sys/kernel/random/boot_id
    ports: tuple[PortRole, ...]  # what each port of `rdma` is for
    rdma: Seen[tuple[RdmaDevice, ...]] | Absent | Failed
    lldp: Seen[tuple[Link, ...]] | Absent | Failed  # Ethernet backend ports
    ib: Seen[tuple[Link, ...]] | Absent | Failed  # InfiniBand backend ports
    nvml: Seen[tuple[Gpu, ...]] | Absent | Failed = Failed("NVML was not asked")
    accelerator: Verdict = Verdict(None, AcceleratorReason.FAILED)  # over the GPUs of `nvml`
    off: frozenset[str] = frozenset()  # the sources that are switched off
    unbound: tuple[
        str, ...
    ] = ()  # interfaces labelled before whose device is gone, while its PCI function is not
    problems: tuple[Problem, ...] = ()
