"""Read the values of the label table's rows out of an observation.

Invariants:
- A complete text is published.
- A value with a hold reason leaves the published labels that it covers as they are. Its text was
  made from incomplete facts; it is published where the Node has no such label yet.
- A label that no value covers is removed.

So absence removes and failure holds, for each interface on its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agent.model import Failed, HoldReason, NeighborReason, Seen, natural
from agent.sources.table import NEIGHBOR_SOURCES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agent.model import Link, Neighbor, Observation


class Value(NamedTuple):
    """The raw text of one row's labels, not encoded yet, and the interfaces that it covers."""

    text: str | None  # None: cannot be read now, and `hold` is the reason
    interface: str | None = None  # None: all interfaces, or a row without interfaces
    hold: HoldReason | None = None  # None: the text is complete
    is_device: bool = False  # `interface` is a device: its ports and bond legs are covered
    except_for: tuple[str, ...] = ()  # not covered by a value for all interfaces

    def covers(self, interface: str) -> bool:
        """Return True if the value is about the labels of this interface."""
        if self.interface is None:
            return interface not in self.except_for
        if self.is_device and interface.startswith(f"{self.interface}-"):
            return True
        return interface == self.interface


def flavor(observation: Observation) -> Iterable[Value]:
    """Yield `infiniband` or `roce`, the link layer of the backend ports."""
    hold = _failure(observation, "rdma") or unread(observation)
    layers = link_layers(observation)
    if "InfiniBand" in layers:
        yield Value("infiniband")
    elif "Ethernet" in layers or hold:
        yield Value("roce" if "Ethernet" in layers else None, hold=hold)


def speed(observation: Observation) -> Iterable[Value]:
    """Yield the sum of the rates of the ACTIVE backend ports in Gb/s, `2800G`.

    The sum is incomplete while the state or rate of a backend port, or a whole device, is unread.
    """
    if failure := _failure(observation, "rdma"):
        yield Value(None, hold=failure)
        return
    rates = [role.counted_gbps for role in _backend(observation)]
    incomplete = HoldReason.INCOMPLETE if None in rates else None
    yield Value(_gigabits(sum(filter(None, rates))), hold=unread(observation) or incomplete)


def _gigabits(rate: float) -> str:
    """Return a rate in Gb/s without trailing zeros: `2800G`, `2.5G`."""
    return f"{rate:.3f}".rstrip("0").rstrip(".") + "G"


def neighbor_device(observation: Observation) -> Iterable[Value]:
    """Yield the name of the node at the far end of each backend port."""
    return _of_neighbors(observation, lambda neighbor: neighbor.device)


def neighbor_port_id(observation: Observation) -> Iterable[Value]:
    """Yield the ID of the far port of each backend port."""
    return _of_neighbors(observation, lambda neighbor: neighbor.port_id)


def neighbor_port_name(observation: Observation) -> Iterable[Value]:
    """Yield the name of the far port of each backend port."""
    return _of_neighbors(observation, lambda neighbor: neighbor.port_name)


def leaves(observation: Observation) -> Iterable[Value]:
    """Yield the distinct neighbor devices in natural order, joined with `_`."""
    devices = {link.neighbors[0].device for link in _links(observation) if link.neighbors}
    return _joined(observation, sorted(devices, key=natural))


def ports(observation: Observation) -> Iterable[Value]:
    """Yield the port IDs of the neighbors in interface order, joined with `_`."""
    port_ids = [link.neighbors[0].port_id for link in _links(observation) if link.neighbors]
    return _joined(observation, port_ids)


def accelerator(observation: Observation) -> Iterable[Value]:
    """Yield the NVLink domain that all GPUs of the node agree on."""
    found = observation.accelerator
    if found.value:
        yield Value(found.value)
    elif found.holds:
        yield Value(None, hold=_failure(observation, "nvml") or HoldReason.NO_DOMAIN)


def unread(observation: Observation) -> HoldReason | None:
    """Return the reason why a device that may belong to the backend was not read; None if all were.

    Ports of a device that was read may still have unread facts.
    """
    if isinstance(observation.rdma, Failed):
        return HoldReason.SOURCE_FAILED
    if _failed_devices(observation):
        return HoldReason.DEVICE_FAILED
    return HoldReason.DEVICE_GONE if observation.unbound else None


def _of_neighbors(
    observation: Observation, text_of: Callable[[Neighbor], str | None]
) -> Iterable[Value]:
    yield from _of_failed_sources(observation)
    for link in _links(observation):
        if link.neighbors:
            yield Value(text_of(link.neighbors[0]) or "", link.interface)
        elif link.hold:
            yield Value(None, link.interface, _hold_of(link))
    for device in _failed_devices(observation):
        yield Value(None, device, HoldReason.DEVICE_FAILED, is_device=True)
    for interface in observation.unbound:
        yield Value(None, interface, HoldReason.DEVICE_GONE)


def _of_failed_sources(observation: Observation) -> Iterable[Value]:
    """Hold the neighbor labels that a failed source covers.

    - rdma failed: the labels of all interfaces.
    - lldp or ib failed: those of the backend ports of its link layer. An interface that is no
      backend port any more loses its labels, since the RDMA source read that.
    - lldp or ib switched off: those of all interfaces but the backend ports of other link layers.

    Example: a RoCE node has the port mlx5_1, and the labels of mlx5_1 and of a former mlx5_2. With
    LLDP failed those of mlx5_1 are held, with LLDP switched off those of both.
    """
    if isinstance(observation.rdma, Failed):
        yield Value(None, hold=HoldReason.SOURCE_FAILED)
    layers = {role.interface: role.port.link_layer for role in observation.ports if role.backend}
    for source, link_layer in NEIGHBOR_SOURCES:
        failure = _failure(observation, source)
        if failure is HoldReason.SOURCE_OFF:
            others = (name for name, layer in layers.items() if layer != link_layer)
            yield Value(None, hold=failure, except_for=tuple(others))
        elif failure:
            covered = (name for name, layer in layers.items() if layer == link_layer)
            yield from (Value(None, name, failure) for name in covered)


def _failure(observation: Observation, source: str) -> HoldReason | None:
    """Return the reason why a source was not read; None if it saw something or nothing."""
    if source in observation.off:
        return HoldReason.SOURCE_OFF
    failed = isinstance(getattr(observation, source), Failed)
    return HoldReason.SOURCE_FAILED if failed else None


def _hold_of(link: Link) -> HoldReason:
    if link.missing == NeighborReason.NO_NETDEV:
        return HoldReason.LENT
    if link.missing == NeighborReason.LINK_DOWN:
        return HoldReason.LINK_DOWN
    return HoldReason.NO_NEIGHBOR


def _joined(observation: Observation, parts: list[str]) -> Iterable[Value]:
    """Yield the parts as one text; incomplete while a backend port may have an unread neighbor."""
    holds = (_hold_of(link) for link in _links(observation) if link.hold and not link.neighbors)
    hold = unread(observation) or _failure(observation, "ib") or next(holds, None)
    if parts or hold:
        yield Value("_".join(parts) or None, hold=hold)


def _links(observation: Observation) -> Iterable[Link]:
    for outcome in (observation.ib, observation.lldp):
        if isinstance(outcome, Seen):
            yield from outcome.value


def _failed_devices(observation: Observation) -> list[str]:
    """Return the devices whose link layer is unknown."""
    devices = observation.rdma.value if isinstance(observation.rdma, Seen) else ()
    return [
        device.name
        for device in devices
        if device.failure or any(port.link_layer is None for port in device.ports)
    ]
