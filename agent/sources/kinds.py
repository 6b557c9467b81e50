"""The backend among several kinds of Ethernet NICs; a kind is (hca_type, board_id).

The most numerous kind is the backend; on a tie the faster one, then the one at the lower PCI
address. A bonded device counts as its legs, since each of them is a NIC port with a cable.
Example: of 1 x MT4123 and 8 x MT4129, the eight are the backend.

While a device cannot be read its kind cannot be counted, so a kind that had labels keeps its role.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from agent.sources.interfaces import IN_USE, had_labels, legs, nominal_gbps

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from agent.model import PortRole, RdmaDevice
    from agent.sources.interfaces import DevicePort, Reasons

    Kind = tuple[str | None, str | None]
    DataPorts = Sequence[DevicePort]

NO_ADDRESS = "ffffffff:ff:ff.7"  # sorts after every PCI address
OTHER_KIND = "Ethernet NIC of another kind than the backend's"  # the reason begins with this


class _Rank(NamedTuple):
    """The sort key of a kind; the highest one is the backend."""

    labeled: int  # ports that had labels; 0 if all devices were read
    cables: int  # devices, and the legs of bonded ones
    fastest: float  # nominal Gb/s of its fastest port, which may be down
    pci: list[int]  # its lowest address, negated


def of_other_kinds(data_ports: DataPorts, previous: Collection[str] | None = None) -> Reasons:
    """Return the ports of NICs that are not of the backend's kind.

    `previous` are the interfaces that have labels; given only if the set of devices is incomplete.
    """
    ranks = _ranks(data_ports, previous or ())
    backend = max(ranks, key=lambda kind: ranks[kind], default=None)
    if backend is None:
        return {}
    others = (one for one in data_ports if _kind(one.device) != backend)
    text = f"{OTHER_KIND} {_text(backend)}"
    return {one.key: text + _tie(ranks[backend], ranks[_kind(one.device)]) for one in others}


def lead(data_ports: DataPorts) -> float:
    """Return by how many cables the most numerous kind leads the next; infinity without one."""
    cables = sorted(rank.cables for rank in _ranks(data_ports, ()).values())
    return cables[-1] - cables[-2] if len(cables) > 1 else math.inf


def dark_backend(roles: Iterable[PortRole]) -> str | None:
    """Return a hint if no port of the chosen kind is ACTIVE while one of another kind is."""
    roles = list(roles)
    chosen = [role for role in roles if role.backend]
    active = [role.interface for role in roles if _is_active_of_other_kind(role)]
    if not active or not chosen or any(role.port.state == IN_USE for role in chosen):
        return None
    return (
        f"no port of {_text(_kind(chosen[0].device))} is ACTIVE,"
        f" but {', '.join(active)} of another kind:"
        " name the backend with --backend-device"
    )


def _is_active_of_other_kind(role: PortRole) -> bool:
    return role.port.state == IN_USE and role.reason.startswith(OTHER_KIND)


def _tie(backend: _Rank, other: _Rank) -> str:
    """Return the words for a choice between kinds of equal number; "" if the numbers differ."""
    if other.cables != backend.cables:
        return ""
    return " (tie: lower PCI address)" if other.fastest == backend.fastest else " (tie: faster)"


def _ranks(data_ports: DataPorts, previous: Collection[str]) -> dict[Kind, _Rank]:
    ports = defaultdict(list)
    for one in data_ports:
        ports[_kind(one.device)].append(one)
    devices = [one.device for one in data_ports]
    return {kind: _rank(of_kind, devices, previous) for kind, of_kind in ports.items()}


def _rank(ports: DataPorts, devices: Sequence[RdmaDevice], previous: Collection[str]) -> _Rank:
    """Return the rank of the kind that has these of all data ports."""
    cables = {(one.device.name, leg and leg.name) for one in ports for leg in legs(one, devices)}
    fastest = max(nominal_gbps(one.port.netdev, one.port) or 0 for one in ports)
    lowest = min(_pci_numbers(one.device.pci) for one in ports)
    labeled = sum(had_labels(one.device, previous) for one in ports)
    return _Rank(labeled, len(cables), fastest, [-number for number in lowest])


def _kind(device: RdmaDevice) -> Kind:
    return device.hca_type, device.board_id


def _text(kind: Kind) -> str:
    return " ".join(filter(None, kind)) or "unnamed kind"


def _pci_numbers(pci: str | None) -> list[int]:
    """Return [domain, bus, device, function]; an unknown address is higher than any other."""
    return [int(part, 16) for part in (pci or NO_ADDRESS).replace(".", ":").split(":")]
