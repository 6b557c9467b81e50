"""Rule 6: what the rules left out of the backend, and what would settle a doubt.

Nothing is lost silently: each doubt is a hint of `probe` and `doctor` with the flag that settles
it, and the ACTIVE ports that it names are a metric.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agent.grouped import grouped
from agent.model import Hint, Observation, PortRole
from agent.sources.cards import socket_direct_twin
from agent.sources.interfaces import IN_USE, RoleEvidence, rate_of
from agent.sources.kinds import Candidates, by_kind, is_even, number_of_devices, text_of
from agent.sysfs.bus import NEAR
from agent.text import listed, natural

# The rules whose ports are doubted where they add up to the backend, or are like it.
DOUBTED = frozenset({"gpu-affinity", "link-layer", "kind", "nvswitch-pattern"})
ALIKE = frozenset({"link-layer", "kind"})
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


class Decided(NamedTuple):
    """The roles, and what they were decided by."""

    roles: Sequence[PortRole]
    backend: Sequence[PortRole]
    evidence: RoleEvidence
    candidates: Candidates

    @property
    def model(self) -> str:
        """The kind of the backend in words."""
        return text_of(self.backend[0].device)


def hints(
    roles: Sequence[PortRole], evidence: RoleEvidence, candidates: Candidates
) -> tuple[Hint, ...]:
    """Return the doubts about the backend."""
    backend = [role for role in roles if role.backend]
    decided = Decided(roles, backend, evidence, candidates)
    doubts = [*ALWAYS, *(OF_BACKEND if backend else ())]
    return tuple(hint for doubt in doubts for hint in doubt(decided))


def _suspected(decided: Decided) -> Iterator[Hint]:
    """Yield the functions that may manage NVSwitches."""
    suspects = [role.interface for role in decided.roles if role.rule == "nvswitch-pattern"]
    if suspects:
        text = "not counted, since they look like NVSwitch management functions: run as root, or"
        yield Hint(tuple(suspects), f"{listed(suspects)}: {text} {NAME}")


def _not_counted(decided: Decided) -> Iterator[Hint]:
    """Yield the ACTIVE ports that a rule took out: as much as the backend, or alike."""
    doubted = DOUBTED
    if decided.backend:
        doubted |= {"omni-path"}
        doubted |= ROUTED if decided.evidence.front_end.is_first_hop_only else set()
    active = [role for role in decided.backend if role.port.state == IN_USE]
    others = [role for role in decided.roles if role.rule in doubted and not role.backend]
    for rule, group in grouped(others, lambda role: role.rule).items():
        up = [role for role in group if role.port.state == IN_USE]
        named = [role for role in group if rule in ALIKE and _is_alike(role, decided, active)]
        if up and sum(map(rate_of, up)) >= sum(map(rate_of, active)):
            told = rule == "link-layer" and group[0].port.link_layer == "InfiniBand"
            named = group if told else up
        for reason, alike in grouped(named, lambda role: role.reason).items():
            names = [role.interface for role in alike]
            yield Hint(tuple(names), f"{listed(names)}: not counted ({reason}): {SETTLES}")


def _is_alike(role: PortRole, decided: Decided, active: Sequence[PortRole]) -> bool:
    """Return True for InfiniBand, and for a port with the PCI ids or the rate of the backend."""
    is_infiniband = role.port.link_layer == "InfiniBand"
    if role.port.state != IN_USE:
        return is_infiniband and role.rule == "link-layer"
    models = {other.device.pci_ids for other in decided.backend} - {None}
    is_as_fast = rate_of(role) >= max(map(rate_of, active), default=0.0)
    return is_infiniband or role.device.pci_ids in models or is_as_fast


def _of_unknown_rate(decided: Decided) -> Iterator[Hint]:
    """Yield the ports of kinds that may be more than the backend: nothing tells their rate.

    What the kernel prints of a RoCE link that is down is a default, 2.5 Gb/s (ib_get_eth_speed of
    drivers/infiniband/core/verbs.c).
    """
    number = len({role.device.name for role in decided.backend})
    others = {role.device.name for role in decided.roles if role.rule == "kind"}
    others -= {role.device.name for role in decided.backend}
    unknown = [nic for nic in decided.candidates if nic.gbps is None and nic.device.name in others]
    for kind in by_kind(unknown).values():
        if number_of_devices(kind) >= number:
            names = sorted({nic.device.name for nic in kind}, key=natural)
            text = "not counted, without a link, and of unknown rate"
            yield Hint(tuple(names), f"{listed(names)}: {text}: {NAME}")


def _without_speed(decided: Decided) -> Iterator[Hint]:
    """Yield the ports whose netdev tells no speed, where others of their model have another rate.

    bnxt_re prints 100 Gb/s for each of its ports.
    """
    up = [role for role in decided.backend if role.port.state == IN_USE]
    nics = [role for role in up if role.port.link_layer == "Ethernet" and role.device.pci_ids]
    for alike in grouped(nics, lambda role: role.device.pci_ids).values():
        told = [role for role in alike if role.netdev and role.netdev.speed_mbps is not None]
        rates = {*map(rate_of, told)}
        odd = [role for role in alike if role not in told and rates and rate_of(role) not in rates]
        if odd:
            text = f"its netdev tells no speed, and the RDMA device prints {rate_of(odd[0]):g}G"
            text += f"; others of its model have {max(rates):g}G"
            names = [role.interface for role in odd]
            yield Hint(tuple(names), f"{listed(names)}: {text}")


def _counted_twice(decided: Decided) -> Iterator[Hint]:
    """Yield each PCI function of which several devices count."""
    devices = {role.device.name: role.device.pci for role in decided.backend if role.device.pci}
    for pci, names in grouped(devices, devices.__getitem__).items():
        if len(names) > 1:
            text = f"all are PCI function {pci}, and may be one port that is counted several times"
            yield Hint(tuple(names), f"{listed(names)}: {text}: {SETTLES}")


def _two_ports_or_one(decided: Decided) -> Iterator[Hint]:
    """Yield the ports of a guest that may be two functions of one port."""
    devices: set[str] = set()
    for role in decided.backend if decided.evidence.ambiguous else ():
        if twin := socket_direct_twin(role.device, decided.evidence.devices):
            devices |= {twin.name, role.device.name}
    pairs = [role for role in decided.backend if role.device.name in devices]
    for layer in sorted(decided.evidence.ambiguous):
        if names := [role.interface for role in pairs if role.port.link_layer == layer]:
            text = f"two ports or one Socket-Direct port: {AMBIGUOUS[layer]}"
            yield Hint(tuple(names), f"{listed(names)}: {text}: --exclude-device settles that")


def _dark(decided: Decided) -> Iterator[Hint]:
    """Yield the ACTIVE ports of other kinds, or of a front end alike, beside a backend without."""
    if any(role.port.state == IN_USE for role in decided.backend):
        return
    models = {role.device.pci_ids for role in decided.backend}
    others = [
        role.interface
        for role in decided.roles
        if role.port.state == IN_USE
        and (role.rule == "kind" or (role.rule in ROUTED and role.device.pci_ids in models))
    ]
    if others:
        text = f"no port of {decided.model} is ACTIVE, but {listed(others)}"
        yield Hint(tuple(others), f"{text}: {NAME}")


def _uneven(decided: Decided) -> Iterator[Hint]:
    """Yield a backend whose devices and GPUs cannot be shared out evenly.

    Machines have an even number of GPUs, or one.
    """
    gpus, names = len(decided.evidence.bus.gpus), {role.device.name for role in decided.backend}
    kinds = {(role.device.pci_ids, role.port.link_layer) for role in decided.backend}
    unread = [nic for nic in decided.candidates if nic.port is None]
    names |= {nic.device.name for nic in unread if (nic.device.pci_ids, nic.layer) in kinds}
    if gpus and not is_even(len(names), gpus):
        text = "storage NICs may be among them"
        if gpus % 2:
            text = f"a GPU may be missing, or {text}"
        elif is_even(len(names) + 1, gpus):
            text = f"a NIC may be missing, or {text}"
        count = f"{len(names)} x {decided.model} beside {gpus} GPUs count"
        interfaces = tuple(role.interface for role in decided.backend)
        yield Hint(interfaces, f"{count}: {text}: --exclude-device settles that")


def _partly_near(decided: Decided) -> Iterator[Hint]:
    """Yield what is not near a GPU of a backend of which a part is, and nothing tells the rest."""
    near = {role.device.pci_ids for role in decided.backend if role.distance in NEAR}
    far = [
        role.interface
        for role in decided.backend
        if role.device.pci_ids in near and role.distance not in NEAR
    ]
    if far:
        text = "not near a GPU, as others of its model are, and counts: storage NICs may be among"
        yield Hint(tuple(far), f"{listed(far)}: {text} them: --exclude-device settles that")


def _routes(decided: Decided) -> Iterator[Hint]:
    """Yield what the front end is not certain of, where the backend is Ethernet."""
    evidence, backend = decided.evidence, decided.backend
    if {role.port.link_layer for role in backend} != {"Ethernet"}:
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


ALWAYS = (_suspected, _not_counted)
OF_BACKEND = (
    *(_of_unknown_rate, _without_speed, _counted_twice, _two_ports_or_one),
    *(_dark, _uneven, _partly_near, _routes),
)
