"""RDMA devices for tests of port roles: one plain port of each kind, and variations of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agent.model import Netdev, PortRole, RdmaDevice, RdmaPort
from agent.sources import roles
from agent.sources.interfaces import RoleEvidence
from agent.sources.roles import Decision
from agent.sources.steady import RoleMemory
from agent.sysfs.bus import EMPTY, Bus, Function

PORT = RdmaPort(
    number=1,
    link_layer="InfiniBand",
    state="ACTIVE",
    phys_state="LinkUp",
    rate_text="400 Gb/sec (4X NDR)",
    rate_gbps=400.0,
    port_guid=None,
    has_smi=True,
    link_downed=0,
    netdev=None,
    legs=(),
)
UP = Netdev("eth0", speed_mbps=400_000, operstate="up", bond_state=None, default_route=False)


# A bus with GPUs whose places are not known.
GPUS = Bus({f"0000:f{n}:00.0": Function(f"0000:f{n}:00.0", 0x0302, "10de:2330") for n in (0, 1)})


def decide(
    devices: Iterable[RdmaDevice],
    globs: Sequence[str] = (),
    labeled: Mapping[str, str | None] | None = None,
    bus: Bus = EMPTY,
    memory: RoleMemory | None = None,
    **facts: Any,
) -> Decision:
    """The decision by these facts; the other ones are those of a tree that lacks them."""
    evidence = RoleEvidence([*devices], bus, labeled=labeled or {}, **facts)
    return roles.decide(evidence, globs, memory)


def assign(*evidence: Any, **more: Any) -> tuple[PortRole, ...]:
    """The roles that `decide` assigns, certain or not."""
    return decide(*evidence, **more).roles


def netdev(name: str, **facts: Any) -> Netdev:
    """A netdev that is up, at 400 Gb/s."""
    return UP._replace(name=name, **facts)


def ib(name: str, bus: int, *ports: RdmaPort, **facts: Any) -> RdmaDevice:
    """A ConnectX-7 on InfiniBand at PCI bus number `bus`, each with GUIDs of its own."""
    guid = f"{bus:016x}"
    device = RdmaDevice(
        name,
        pci=f"0000:{bus:02x}:00.0",
        driver="mlx5_core",
        pci_ids="15b3:1021",
        node_type="CA",
        node_guid=guid,
        sys_image_guid=guid,
        hca_type="MT4129",
        board_id="MT_0000000838",
        ports=ports or (PORT._replace(port_guid=guid),),
    )
    return device._replace(**facts)


def port(number: int = 1, **facts: Any) -> RdmaPort:
    """An Ethernet port with a netdev of its own."""
    facts = {"link_layer": "Ethernet", "netdev": UP, "has_smi": None, **facts}
    return PORT._replace(number=number, **facts)


def eth(name: str, bus: int, *ports: RdmaPort, **facts: Any) -> RdmaDevice:
    """A plain port of the same device on Ethernet."""
    return ib(name, bus, *(ports or (port(netdev=netdev(f"eth{bus}")),)), **facts)


def backend(roles: tuple[PortRole, ...]) -> list[str]:
    """The interfaces of the backend, in their order."""
    return [role.interface for role in roles if role.backend]


def reasons(roles: tuple[PortRole, ...]) -> dict[str, str]:
    """The reasons of the other interfaces."""
    return {role.interface: role.reason for role in roles if not role.backend}


def plain(device: RdmaDevice, **facts: Any) -> RdmaDevice:
    """The same device, with other facts of every port of it."""
    return device._replace(ports=tuple(p._replace(**facts) for p in device.ports))


def without_route(device: RdmaDevice) -> RdmaDevice:
    """The same device, with no default route on any netdev of it."""

    def bare(netdev: Netdev) -> Netdev:
        return netdev._replace(default_route=False)

    ports = tuple(
        port._replace(netdev=port.netdev and bare(port.netdev), legs=tuple(map(bare, port.legs)))
        for port in device.ports
    )
    return device._replace(ports=ports)
