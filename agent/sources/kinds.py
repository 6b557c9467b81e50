"""The backend among several kinds of Ethernet NICs; a kind is (hca_type, board_id).

The most numerous kind is the backend; on a tie the faster one, then the one at the lower PCI
address. Example: of 1 x MT4123 and 8 x MT4129, the eight are the backend.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from agent.sources.interfaces import nominal_gbps

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent.model import RdmaDevice
    from agent.sources.interfaces import DevicePort, Reasons

    Kind = tuple[str | None, str | None]

NO_ADDRESS = "ffffffff:ff:ff.7"  # sorts after every PCI address


def of_other_kinds(data_ports: Sequence[DevicePort]) -> Reasons:
    """Return the ports of NICs that are not of the backend's kind."""
    if not data_ports:
        return {}
    backend = _backend_kind(data_ports)
    reason = f"Ethernet NIC of another kind than the backend's {_text(backend)}"
    return {one.key: reason for one in data_ports if _kind(one.device) != backend}


def _backend_kind(data_ports: Iterable[DevicePort]) -> Kind:
    """Return the kind that is first by `_rank`."""
    ports = _by_kind(data_ports)
    return max(ports, key=lambda kind: _rank(ports[kind]))


def _by_kind(data_ports: Iterable[DevicePort]) -> dict[Kind, list[DevicePort]]:
    ports = defaultdict(list)
    for one in data_ports:
        ports[_kind(one.device)].append(one)
    return ports


def _kind(device: RdmaDevice) -> Kind:
    return device.hca_type, device.board_id


def _text(kind: Kind) -> str:
    return " ".join(filter(None, kind)) or "unnamed kind"


def _rank(ports: Sequence[DevicePort]) -> tuple[int, float, list[int]]:
    """Return the sort key of a kind: number of devices, nominal rate, lower PCI address.

    The nominal rate counts for ports that are down, too.
    """
    devices = {one.device.name for one in ports}
    fastest = max(nominal_gbps(one.port.netdev, one.port) or 0 for one in ports)
    lowest = min(_pci_numbers(one.device.pci) for one in ports)
    return len(devices), fastest, [-number for number in lowest]


def _pci_numbers(pci: str | None) -> list[int]:
    """Return [domain, bus, device, function]; an unknown address is higher than any other."""
    return [int(part, 16) for part in (pci or NO_ADDRESS).replace(".", ":").split(":")]
