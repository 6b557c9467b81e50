"""What an observation says of each label: the claims.

A claim with a text is published. A claim without one says "this cannot be seen now", and the label stays as it was
published before. What nobody claims is removed. So absence removes and failure holds, for each interface on its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agent.model import Failed, Seen, natural
from agent.nvml.domain import verdict
from agent.sources.table import NEIGHBOR_SOURCES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agent.model import Link, Neighbor, Observation


class Claim(NamedTuple):
    """What a row says of one key: its raw text (None: not to be seen now), and whether all of it is sure.

    A text that is not sure is published only where nothing was published before.
    """

    raw: str | None
    interface: str | None = None  # None: of every interface
    sure: bool = True
    whole_device: bool = (
        False  # `interface` is a device, and the claim is about all of its ports and legs
    )
    but: tuple[str, ...] = ()  # interfaces that a claim of every interface is not about


def flavor(observation: Observation) -> Iterable[Claim]:
    """`infiniband` or `roce`, from the link layer of the backend ports."""
    if "rdma" in observation.off:
        yield Claim(None)
        return
    link_layers = {role.port.link_layer for role in observation.ports if role.backend}
    if "InfiniBand" in link_layers:
        yield Claim("infiniband")
    elif "Ethernet" in link_layers:
        yield Claim("roce", sure=not blind_spots(observation))
    elif blind_spots(observation):
        yield Claim(None)


def speed(observation: Observation) -> Iterable[Claim]:
    """The sum of the backend's ACTIVE rates in Gb/s; a backend port that cannot be read makes it unsure."""
    if isinstance(observation.rdma, Failed) or "rdma" in observation.off:
        yield Claim(None)
        return
    counted = [role.counted_gbps for role in observation.ports if role.backend]
    total = f"{sum(filter(None, counted)):.3f}".rstrip("0").rstrip(".")
    yield Claim(f"{total}G", sure=None not in counted and not blind_spots(observation))


def neighbor_device(observation: Observation) -> Iterable[Claim]:
    """The node at the far end of each backend port."""
    return _of_neighbors(observation, lambda neighbor: neighbor.device)


def neighbor_port_id(observation: Observation) -> Iterable[Claim]:
    """Its port there."""
    return _of_neighbors(observation, lambda neighbor: neighbor.port_id)


def neighbor_port_name(observation: Observation) -> Iterable[Claim]:
    """The name of that port."""
    return _of_neighbors(observation, lambda neighbor: neighbor.port_name)


def leaves(observation: Observation) -> Iterable[Claim]:
    """The distinct neighbour devices; those of ports that cannot be seen now are missing."""
    known = {link.neighbors[0].device for link in _links(observation) if link.neighbors}
    return _joined(observation, sorted(known, key=natural))


def ports(observation: Observation) -> Iterable[Claim]:
    """The neighbours' port-ids."""
    return _joined(
        observation, [link.neighbors[0].port_id for link in _links(observation) if link.neighbors]
    )


def accelerator(observation: Observation) -> Iterable[Claim]:
    """The NVLink domain, where all GPUs agree about it."""
    found = verdict(observation.nvml)
    if found.value or found.holds:
        yield Claim(found.value)


def _of_neighbors(
    observation: Observation, of: Callable[[Neighbor], str | None]
) -> Iterable[Claim]:
    yield from _unseen(observation)
    for link in _links(observation):
        if link.neighbors:
            yield Claim(of(link.neighbors[0]) or "", link.interface)
        elif link.hold:
            yield Claim(None, link.interface)
    for device in _failed_devices(observation):
        yield Claim(None, device, whole_device=True)
    for interface in observation.unbound:
        yield Claim(None, interface)


def _unseen(observation: Observation) -> Iterable[Claim]:
    """What a failed source would have told of: the ports of its link layer; one that is switched off, of any other."""
    if isinstance(observation.rdma, Failed):
        yield Claim(None)
    for name, link_layer in NEIGHBOR_SOURCES:
        if not isinstance(getattr(observation, name), Failed):
            continue
        backend = {
            role.interface: role.port.link_layer for role in observation.ports if role.backend
        }
        if name in observation.off:
            yield Claim(
                None, but=tuple(one for one, layer in backend.items() if layer != link_layer)
            )
        else:  # what has no port any more is gone, whoever fails
            yield from (Claim(None, one) for one, layer in backend.items() if layer == link_layer)


def _joined(observation: Observation, parts: list[str]) -> Iterable[Claim]:
    blind = blind_spots(observation) or isinstance(observation.ib, Failed)
    blind = blind or any(link.hold and not link.neighbors for link in _links(observation))
    if parts or blind:
        yield Claim("_".join(parts) or None, sure=not blind)


def _links(observation: Observation) -> Iterable[Link]:
    for outcome in (observation.ib, observation.lldp):
        if isinstance(outcome, Seen):
            yield from outcome.value


def blind_spots(observation: Observation) -> bool:
    """Something that may belong to the backend could not be read at all."""
    return isinstance(observation.rdma, Failed) or bool(
        _failed_devices(observation) or observation.unbound
    )


def _failed_devices(observation: Observation) -> list[str]:
    """The devices of which not even the ports' link layer is known."""
    devices = observation.rdma.value if isinstance(observation.rdma, Seen) else ()
    return [
        device.name
        for device in devices
        if device.failure or any(port.link_layer is None for port in device.ports)
    ]
