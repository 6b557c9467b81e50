"""Rule 6: what the rules left out of the backend, and what would settle a doubt.

A port that is ACTIVE, of the backend's link layer and at its rate or more is never lost silently:
it is a hint of `probe` and `doctor` and a metric, with the flag that settles it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from agent.ids import card_of
from agent.model import PortRole
from agent.sources.kinds import Nic, kinds, number_of_devices, text_of
from agent.sources.roles import IN_USE, rate_of
from agent.sysfs.bus import EMPTY, NEAR, NOWHERE
from agent.text import listed

DOUBTED = frozenset({"gpu-affinity", "link-layer", "kind", "nvswitch-pattern"})


class Hint(NamedTuple):
    """A doubt about the backend, and what would settle it."""

    interfaces: tuple[str, ...]
    text: str


def left_out(roles: Iterable[PortRole]) -> list[PortRole]:
    """Return the ACTIVE ports that may belong to the backend: of its link layer, and its rate.

    One of another link layer is among them if it is a card of the backend's model, or beside a GPU
    as the backend's are. The second port of a VPI card is not.
    """
    roles = list(roles)
    backend = [role for role in roles if role.backend]
    layers = {role.port.link_layer for role in backend}
    models = {role.device.pci_ids for role in backend} - {None}
    cards = {card_of(role.device.pci) for role in backend}
    has_affinity = any(role.rule == "gpu-affinity" for role in roles)
    rate = min((rate_of(role) for role in backend if role.port.state == IN_USE), default=0.0)

    def is_alike(role: PortRole) -> bool:
        if not layers or role.port.link_layer in layers:
            return True
        is_near = has_affinity and role.distance in NEAR
        is_card_of_model = role.device.pci_ids in models and card_of(role.device.pci) not in cards
        return role.rule == "link-layer" and (is_near or is_card_of_model)

    found = (role for role in roles if role.rule in DOUBTED and not role.backend)
    return [
        role
        for role in found
        if role.port.state == IN_USE and is_alike(role) and rate_of(role) >= rate
    ]


def hints(roles: Sequence[PortRole]) -> list[Hint]:
    """Return the doubts about the backend."""
    found = []
    groups: dict[str, list[str]] = {}
    suspects = [role.interface for role in roles if role.rule == "nvswitch-pattern"]
    if suspects:
        text = (
            f"{listed(suspects)}: not counted, since they look like NVSwitch management functions:"
            " run as root, or name the backend with --backend-device"
        )
        found.append(Hint(tuple(suspects), text))
    found += _counted_twice(role for role in roles if role.backend)
    if dark := dark_backend(roles):
        return [*found, dark]
    # InfiniBand HCAs of a kind of their own are told in any case.
    others = [role for role in roles if role.rule == "kind" and not role.backend]
    other_hcas = [role for role in others if role.port.link_layer == "InfiniBand"]
    for role in dict.fromkeys([*left_out(roles), *other_hcas]):
        if role.rule != "nvswitch-pattern":
            groups.setdefault(role.reason, []).append(role.interface)
    for reason, names in groups.items():
        text = (
            f"{listed(names)}: ACTIVE and not counted ({reason}):"
            " --exclude-device settles that, --backend-device names the backend otherwise"
        )
        found.append(Hint(tuple(names), text))
    has_gpus = any(role.distance for role in roles)  # else nothing tells compute from storage
    if has_gpus and (several := _several_kinds([role for role in roles if role.backend])):
        found.append(several)
    return found


def _counted_twice(backend: Iterable[PortRole]) -> Iterator[Hint]:
    """Yield a hint for each PCI function of which several devices count."""
    by_function: dict[str, dict[str, None]] = {}
    for role in backend:
        if role.device.pci:
            by_function.setdefault(role.device.pci, {})[role.device.name] = None
    for pci, names in by_function.items():
        if len(names) > 1:
            text = (
                f"{listed([*names])}: all are PCI function {pci}, and may be one port that is"
                " counted several times: --exclude-device settles that"
            )
            yield Hint(tuple(names), text)


def dark_backend(roles: Iterable[PortRole]) -> Hint | None:
    """Return a hint if no port of the chosen kind is ACTIVE while one of another kind is."""
    chosen, active = [], []
    for role in roles:
        if role.backend:
            chosen.append(role)
        elif role.port.state == IN_USE and role.rule == "kind":
            active.append(role.interface)
    if not active or not chosen or any(role.port.state == IN_USE for role in chosen):
        return None
    text = (
        f"no port of {text_of(chosen[0].device)} is ACTIVE, but {', '.join(active)} of another"
        " kind: name the backend with --backend-device"
    )
    return Hint(tuple(active), text)


def _several_kinds(backend: Sequence[PortRole]) -> Hint | None:
    """Return a hint if InfiniBand HCAs of several kinds count: some may be for storage."""
    nics = [Nic(role.device, role.port, role.port.link_layer, NOWHERE) for role in backend]
    found = list(kinds(nics, [role.device for role in backend], EMPTY).values())
    if len(found) < 2 or all(nic.layer != "InfiniBand" for nic in nics):
        return None
    counted = ", ".join(f"{number_of_devices(one)} x {text_of(one[0].device)}" for one in found)
    names = tuple(role.interface for role in backend)
    return Hint(names, f"{counted}: exclude the storage HCAs with --exclude-device")
