"""Rule 6: what the rules left out of the backend, and what would settle a doubt.

Nothing is lost silently: each doubt is a hint of `probe` and `doctor` with the flag that settles
it, and the ACTIVE ports that it names are a metric.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

from agent.model import Hint, Observation, PortRole
from agent.sources.cards import socket_direct_twin
from agent.sources.drops import RoleEvidence
from agent.sources.interfaces import IN_USE, rate_of
from agent.sources.kinds import Candidate, is_even, text_of
from agent.sysfs.bus import NEAR
from agent.text import listed

# The rules whose ports are doubted where they add up to the backend, or are like it.
DOUBTED = frozenset({"gpu-affinity", "link-layer", "kind", "nvswitch-pattern"})
ROUTED = frozenset({"front-end", "spare-port"})  # where the kernel listed first next hops only
SETTLES = "--exclude-device settles that, --backend-device names the backend otherwise"
# Why two ports of a card and the two functions of one port look alike, by link layer
AMBIGUOUS = {
    "Ethernet": "kernels before 5.16 call both p0",
    "InfiniBand": "no file of a guest tells them apart",
}
NAME = "name the backend with --backend-device"


def left_out(observation: Observation) -> list[PortRole]:
    """Return the ACTIVE ports that are not counted and may belong to the backend."""
    named = {name for hint in observation.hints for name in hint.interfaces}
    return [
        role
        for role in observation.ports
        if role.interface in named and not role.backend and role.port.state == IN_USE
    ]


def hints(
    roles: Sequence[PortRole], evidence: RoleEvidence, unread: Collection[Candidate]
) -> tuple[Hint, ...]:
    """Return the doubts about the backend; `unread` may be a part of it."""
    return tuple(_hints(roles, evidence, unread))


def _hints(
    roles: Sequence[PortRole], evidence: RoleEvidence, unread: Collection[Candidate]
) -> Iterator[Hint]:
    backend = [role for role in roles if role.backend]
    suspects = [role.interface for role in roles if role.rule == "nvswitch-pattern"]
    if suspects:
        text = "not counted, since they look like NVSwitch management functions: run as root, or"
        yield Hint(tuple(suspects), f"{listed(suspects)}: {text} {NAME}")
    yield from _not_counted(roles, backend, evidence)
    yield from _counted_twice(backend)
    for layer in sorted(evidence.ambiguous):
        if pairs := _pairs(backend, layer, evidence):
            text = f"two ports or one Socket-Direct port: {AMBIGUOUS[layer]}"
            yield Hint(tuple(pairs), f"{listed(pairs)}: {text}: --exclude-device settles that")
    dark = not any(role.port.state == IN_USE for role in backend)
    models = {role.device.pci_ids for role in backend}
    others = [
        role.interface
        for role in roles
        if role.port.state == IN_USE
        and not role.backend
        and (role.rule == "kind" or (role.rule in ROUTED and role.device.pci_ids in models))
    ]
    if backend and dark and others:
        text = f"no port of {text_of(backend[0].device)} is ACTIVE, but {listed(others)}"
        yield Hint(tuple(others), f"{text}: {NAME}")
    gpus, names = len(evidence.bus.gpus), {role.device.name for role in backend}
    layers = {role.port.link_layer for role in backend}
    names |= {
        candidate.device.name
        for candidate in unread
        if candidate.device.pci_ids in models and candidate.layer in layers
    }
    if gpus and backend and not is_even(len(names), gpus):
        text = f"{len(names)} x {text_of(backend[0].device)} beside {gpus} GPUs count"
        interfaces = tuple(role.interface for role in backend)
        yield Hint(interfaces, f"{text}: exclude the storage NICs with --exclude-device")
    if layers != {"Ethernet"}:
        return
    routed = [role.interface for role in backend if evidence.carries_route(role.device)]
    if routed:
        text = "carries the default route and counts, as rails with gateways do: --exclude-device"
        yield Hint(tuple(routed), f"{listed(routed)}: {text} settles that")
    for problem in evidence.front_end.problems:
        yield Hint((), f"{problem.subject}: {problem.text}")
    if evidence.front_end.unknown == "" and any(role.distance not in NEAR for role in backend):
        interfaces = tuple(role.interface for role in backend)
        text = f"no routes were copied, so a NIC of the front end may be among them: {NAME}"
        yield Hint(interfaces, f"{listed(interfaces)}: {text}")


def _pairs(backend: Sequence[PortRole], layer: str, evidence: RoleEvidence) -> list[str]:
    """Return the ports of a guest that may be two functions of one port."""
    devices: set[str] = set()
    for role in backend:
        if twin := socket_direct_twin(role.device, evidence.devices):
            devices |= {twin.name, role.device.name}
    return [
        role.interface
        for role in backend
        if role.device.name in devices and role.port.link_layer == layer
    ]


def _not_counted(
    roles: Sequence[PortRole], backend: Sequence[PortRole], evidence: RoleEvidence
) -> Iterator[Hint]:
    """Yield the ACTIVE ports that a rule took out: as much as the backend, or alike.

    Alike is what has its PCI ids, of another link layer or kind; or its rate.
    """
    groups: defaultdict[str, list[PortRole]] = defaultdict(list)
    doubted = DOUBTED | ROUTED if evidence.front_end.is_first_hop_only and backend else DOUBTED
    for role in roles:
        is_told = role.rule == "link-layer" and role.port.link_layer == "InfiniBand"
        if role.rule in doubted and not role.backend and (role.port.state == IN_USE or is_told):
            groups[role.rule].append(role)
    models = {role.device.pci_ids for role in backend} - {None}
    active = [role for role in backend if role.port.state == IN_USE]
    speed = sum(map(rate_of, active))
    fastest = max(map(rate_of, active), default=0.0)
    for rule, group in groups.items():
        up = [role for role in group if role.port.state == IN_USE]
        alike = []
        if rule in {"link-layer", "kind"}:
            alike = [
                role
                for role in group
                if role.device.pci_ids in models
                or (role in up and rate_of(role) >= fastest)
                or role.port.link_layer == "InfiniBand"
            ]
        is_as_much = bool(up) and sum(map(rate_of, up)) >= speed
        if named := group if is_as_much else alike:
            by_reason: defaultdict[str, list[str]] = defaultdict(list)
            for role in named:
                by_reason[role.reason].append(role.interface)
            for reason, names in by_reason.items():
                yield Hint(tuple(names), f"{listed(names)}: not counted ({reason}): {SETTLES}")


def _counted_twice(backend: Iterable[PortRole]) -> Iterator[Hint]:
    """Yield a hint for each PCI function of which several devices count."""
    by_function: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for role in backend:
        if role.device.pci:
            by_function[role.device.pci][role.device.name] = None
    for pci, names in by_function.items():
        if len(names) > 1:
            text = f"all are PCI function {pci}, and may be one port that is counted several times"
            yield Hint(tuple(names), f"{listed([*names])}: {text}: {SETTLES}")
