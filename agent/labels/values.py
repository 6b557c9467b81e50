"""Read the values of the label table's rows out of an observation.

Invariants:
- A complete text is published.
- A value with a hold reason leaves the published labels that it covers as they are. Its text was
  made from incomplete facts; it is published where the Node has no such label yet.
- A label that no value covers is removed.
- A device whose hold has ended is absent for the labels of the whole node: it does not end the
  holds that the failure of another device begins.

So absence removes and failure holds, for each interface on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from agent.labels import encode
from agent.model import Failed, Link, LldpNeighbor, Neighbor, Observation, RdmaDevice, Seen, natural
from agent.reasons import HoldReason, NeighborReason
from agent.sources.roles import is_of_device, is_unread
from agent.sources.table import NEIGHBOR_SOURCES
from agent.text import visible

Values = Iterable["Value"]  # of one row
Text = tuple[str, str | None]  # the text of a neighbor's label, and the note of its Value

MAX_QUOTE = 64  # characters of a neighbor's text in a note


class Value(NamedTuple):
    """The raw text of one row's labels, not encoded yet, and the interfaces that it covers."""

    text: str | None  # None: cannot be read now, and `hold` is the reason
    interface: str | None = None  # None: all interfaces, or a row without interfaces
    hold: HoldReason | None = None  # None: the text is complete
    is_device: bool = False  # `interface` is a device: its ports and bond legs are covered
    except_for: tuple[str, ...] = ()  # not covered by a value for all interfaces
    note: str | None = None  # the reason why the text is not the one that the neighbor sent
    part: HoldReason | None = None  # the reason why a part of a complete text is held

    def covers(self, interface: str) -> bool:
        """Return True if the value is about the labels of this interface."""
        if self.interface is None:
            return interface not in self.except_for
        if self.is_device and interface.startswith(f"{self.interface}-"):
            return True
        return interface == self.interface


def flavor(observation: Observation) -> Values:
    """Yield `infiniband` or `roce`, the link layer of the backend ports."""
    if failure := _failure(observation, "rdma"):
        yield Value(None, hold=failure)
    elif "InfiniBand" in link_layers(observation):
        yield Value("infiniband")
    else:
        yield from _ethernet_flavor(observation)


def _ethernet_flavor(observation: Observation) -> Values:
    """Yield `roce` if there is a backend port; a device that is unread may be InfiniBand."""
    text = "roce" if "Ethernet" in link_layers(observation) else None
    hold = unread(observation)
    if text or hold:
        yield Value(text, hold=hold)


def speed(observation: Observation) -> Values:
    """Yield the sum of the rates of the ACTIVE backend ports in Gb/s, `2800G`.

    A port that is unread counts what it did last (agent/labels/counts.py). Where nobody knows that,
    the sum is incomplete.
    """
    if failure := _failure(observation, "rdma"):
        yield Value(None, hold=failure)
        return
    is_part_held = any(not one.has_ended for one in observation.held_counts)
    yield Value(
        total_text(counts(observation)),
        hold=_uncounted(observation),
        part=HoldReason.LAST_COUNT if is_part_held else None,
    )


def counts(observation: Observation) -> list[float]:
    """Return the parts of the speed label in Gb/s, without those that are unknown."""
    seen = {role.interface: role.counted_gbps for role in observation.backend}
    held = [one.gbps for one in observation.held_counts if one.interface not in seen]
    return [*filter(None, seen.values()), *held]


def total_text(rates: Iterable[float]) -> str:
    """Return the sum of rates in Gb/s: `2800G`."""
    return encode.gbps(sum(rates))


def _uncounted(observation: Observation) -> HoldReason | None:
    """Return the reason why the count of a backend port is unknown; None if none is."""
    held = [one.interface for one in observation.held_counts]
    for device in failed_devices(observation):
        if not any(is_of_device(interface, device) for interface in held):
            return HoldReason.DEVICE_FAILED
    if not {*held}.issuperset(observation.unbound):
        return HoldReason.DEVICE_GONE
    is_unknown = any(role.counted_gbps is None for role in observation.backend)
    return HoldReason.INCOMPLETE if is_unknown else None


def neighbor_device(observation: Observation) -> Values:
    """Yield the name of the node at the far end of each backend port."""
    return _of_neighbors(observation, device_text)


def neighbor_port_id(observation: Observation) -> Values:
    """Yield the ID of the far port of each backend port."""
    return _of_neighbors(observation, _port_id)


def neighbor_port_name(observation: Observation) -> Values:
    """Yield the name of the far port of each backend port."""
    return _of_neighbors(observation, lambda neighbor: (neighbor.port_name or "", None))


def leaves(observation: Observation) -> Values:
    """Yield the distinct neighbor devices in natural order, joined with `_`."""
    devices = {device_text(neighbor)[0] for neighbor in _neighbors(observation)}
    return joined(observation, sorted(devices, key=natural))


def ports(observation: Observation) -> Values:
    """Yield the port IDs of the neighbors in interface order, joined with `_`."""
    return joined(observation, [neighbor.port_id for neighbor in _neighbors(observation)])


def accelerator(observation: Observation) -> Values:
    """Yield the NVLink domain that all GPUs of the node agree on."""
    found = observation.accelerator
    if found.value:
        yield Value(found.value)
    elif found.holds:
        yield Value(None, hold=_failure(observation, "nvml") or HoldReason.NO_DOMAIN)


def link_layers(observation: Observation) -> set[str | None]:
    """Return the link layers of the backend ports."""
    return {role.port.link_layer for role in observation.backend}


def unread(observation: Observation) -> HoldReason | None:
    """Return the reason why a device that may belong to the backend was not read; None if all were.

    Ports of a device that was read may still have unread facts. A device that was given up is left
    out.
    """
    if isinstance(observation.rdma, Failed):
        return _hold_of_failed(observation.rdma)
    if not observation.given_up.issuperset(failed_devices(observation)):
        return HoldReason.DEVICE_FAILED
    is_complete = observation.given_up.issuperset(observation.unbound)
    return None if is_complete else HoldReason.DEVICE_GONE


def device_text(neighbor: Neighbor) -> Text:
    """Return the name, or the chassis ID or node GUID if the name encodes to nothing.

    Two switches with such names are two devices.
    """
    name = neighbor.device
    if encode.value(name) or not name:
        return name, None
    kind, found = identifier(neighbor)
    label = f"the {kind}" if encode.value(found) else "missing"
    return found, f"{_invalid('name', name)}: the device label is {label}"


def identifier(neighbor: Neighbor) -> tuple[str, str]:
    """Return the kind and the text of the identifier that its protocol gives a node."""
    facts = neighbor.facts
    if isinstance(facts, LldpNeighbor):
        return "chassis ID", facts.chassis_id
    return "node GUID", facts.node_guid


def _port_id(neighbor: Neighbor) -> Text:
    """Return the port ID, or its hash if it encodes to nothing."""
    port_id = neighbor.port_id
    if encode.value(port_id) or not port_id:
        return port_id, None
    return encode.hashed(port_id), f"{_invalid('port ID', port_id)}: the port-id label is its hash"


def _invalid(kind: str, text: str) -> str:
    shown = visible(text, MAX_QUOTE)
    return f"no character of the neighbor's {kind} '{shown}' is valid in a label"


def _of_neighbors(observation: Observation, text_of: Callable[[Neighbor], Text]) -> Values:
    yield from _of_failed_sources(observation)
    for link in links(observation):
        if link.neighbors:
            text, note = text_of(link.neighbors[0])
            yield Value(text, link.interface, note=note)
        elif link.hold:
            yield Value(None, link.interface, _hold_of(link))
    yield from _of_failed_devices(observation)
    yield from _of_unbound(observation)


def _of_failed_devices(observation: Observation) -> Values:
    """Hold the neighbor labels of devices that could not be read."""
    for device in failed_devices(observation):
        yield Value(None, device, HoldReason.DEVICE_FAILED, is_device=True)


def _of_unbound(observation: Observation) -> Values:
    """Hold the neighbor labels of devices whose driver is not loaded."""
    for interface in observation.unbound:
        yield Value(None, interface, HoldReason.DEVICE_GONE)


def _of_failed_sources(observation: Observation) -> Values:
    """Hold the neighbor labels that a failed source covers.

    - rdma failed: the labels of all interfaces.
    - lldp or ib failed: those of the backend ports of its link layer. An interface that is no
      backend port any more loses its labels, since the RDMA source read that.
    - lldp or ib switched off: those of all interfaces but the backend ports of other link layers.

    Example: a RoCE node has the port mlx5_1, and the labels of mlx5_1 and of a former mlx5_2. With
    LLDP failed those of mlx5_1 are held, with LLDP switched off those of both.
    """
    if isinstance(observation.rdma, Failed):
        yield Value(None, hold=_hold_of_failed(observation.rdma))
    for source, link_layer in NEIGHBOR_SOURCES:
        if failure := _failure(observation, source):
            yield from _of_failed_source(observation, failure, link_layer)


def _of_failed_source(observation: Observation, failure: HoldReason, link_layer: str) -> Values:
    """Hold the neighbor labels that one failed source of neighbors covers."""
    layers = {role.interface: role.port.link_layer for role in observation.backend}
    covered = [interface for interface in layers if layers[interface] == link_layer]
    if failure is HoldReason.SOURCE_OFF:
        others = tuple(interface for interface in layers if interface not in covered)
        return [Value(None, hold=failure, except_for=others)]
    return [Value(None, interface, failure) for interface in covered]


def _failure(observation: Observation, source: str) -> HoldReason | None:
    """Return the reason why a source was not read; None if it saw something or nothing."""
    if source in observation.off:
        return HoldReason.SOURCE_OFF
    outcome = getattr(observation, source)
    return _hold_of_failed(outcome) if isinstance(outcome, Failed) else None


def _hold_of_failed(outcome: Failed) -> HoldReason:
    return outcome.hold or HoldReason.SOURCE_FAILED


def _hold_of(link: Link) -> HoldReason:
    if link.missing == NeighborReason.NO_NETDEV:
        return HoldReason.LENT
    if link.missing == NeighborReason.LINK_DOWN:
        return HoldReason.LINK_DOWN
    return HoldReason.NO_NEIGHBOR


def _neighbors(observation: Observation) -> list[Neighbor]:
    """Return the selected neighbor of each link that has one, in interface order."""
    return [link.neighbors[0] for link in links(observation) if link.neighbors]


def joined(observation: Observation, parts: list[str]) -> Values:
    """Yield the parts as one text; incomplete while a backend port may have an unread neighbor."""
    hold = unread(observation) or _source_failure(observation) or _link_hold(observation)
    if parts or hold:
        yield Value("_".join(parts) or None, hold=hold)


def _source_failure(observation: Observation) -> HoldReason | None:
    """Return the reason why no neighbor of the backend ports was read; None if one may have been.

    Without backend port it is None, unless all sources of neighbors are switched off.
    """
    layers = link_layers(observation)
    failures = [_failure(observation, source) for source in sources_of(layers)]
    if not layers and {*failures} != {HoldReason.SOURCE_OFF}:
        return None
    return next(filter(None, failures), None)


def sources_of(layers: Collection[str | None]) -> list[str]:
    """Return the sources of the neighbors of ports of these link layers; all if there is none."""
    found = [source for source, layer in NEIGHBOR_SOURCES if layer in layers]
    return found or [source for source, _ in NEIGHBOR_SOURCES]


def _link_hold(observation: Observation) -> HoldReason | None:
    """Return the hold reason of the first link without its neighbor; None if there is none."""
    holds = (_hold_of(link) for link in links(observation) if link.hold and not link.neighbors)
    return next(holds, None)


def links(observation: Observation) -> Iterable[Link]:
    """Yield the links of all backend ports that were read."""
    for outcome in (observation.ib, observation.lldp):
        if isinstance(outcome, Seen):
            yield from outcome.value


def failed_devices(observation: Observation) -> list[str]:
    """Return the devices that may belong to the backend, but whose link layer is unknown."""
    return [device.name for device in _devices(observation) if is_unread(device)]


def _devices(observation: Observation) -> tuple[RdmaDevice, ...]:
    return observation.rdma.value if isinstance(observation.rdma, Seen) else ()
