"""Render the labels of an observation, and hold published labels that cannot be read now."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from agent.labels import encode
from agent.labels.table import LABELS
from agent.labels.values import unread
from agent.model import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.labels.table import Naming
    from agent.labels.values import Value
    from agent.model import HoldReason, Observation


class Rendered(NamedTuple):
    """The labels that the Node should carry, by key, and the problems of those that it cannot."""

    labels: dict[str, str]
    held: Mapping[str, HoldReason] = MappingProxyType({})  # keys that keep their published value
    problems: tuple[Problem, ...] = ()
    incomplete: tuple[str, ...] = ()  # keys with a new value made from incomplete facts


def render(
    observation: Observation,
    naming: Naming,
    previous: Mapping[str, str] | None = None,
) -> Rendered:
    """Render the labels of an observation.

    `previous` are the labels that may be held: those that the Node carries, that the agent owns and
    whose hold has not ended.
    """
    previous = previous or {}
    labels: dict[str, str] = {}
    held: dict[str, HoldReason] = {}
    incomplete: list[str] = []
    problems: list[Problem] = []
    infiniband = _is_infiniband(observation, previous.get(f"{naming.prefix}/flavor"))
    for row in LABELS:
        template = _template(row.key, naming)
        if template is None or (row.key.startswith("IB/") and not infiniband):
            continue
        for value in row.values(observation):
            if value.hold and (kept := _kept(template, value, previous)):
                labels |= kept
                held |= dict.fromkeys(kept, value.hold)
                continue
            new = _encoded(template, value, problems)
            labels |= new
            if value.hold:
                incomplete += new
    return Rendered(dict(sorted(labels.items())), held, tuple(problems), tuple(incomplete))


def _is_infiniband(observation: Observation, published: str | None) -> bool:
    """Return True if a backend port is InfiniBand; while a device is unread, the published flavor.

    `published` is the value of the label `P/flavor`.
    """
    roles = observation.ports
    if any(role.backend and role.port.link_layer == "InfiniBand" for role in roles):
        return True
    return unread(observation) is not None and published == "infiniband"


def _template(key: str, naming: Naming) -> str | None:
    """Return a row's key with its prefix, `{if}` left in it; None if the naming turns it off."""
    if key == "ACC":
        return naming.accelerator or None
    family, _, name = key.partition("/")
    prefix = {"P": naming.prefix, "IB": naming.ib_prefix}[family]
    return f"{prefix}/{name}" if prefix else None


def _kept(template: str, value: Value, previous: Mapping[str, str]) -> dict[str, str]:
    """Return the published labels of a row that a value holds: those of interfaces it covers.

    Example: mlx5_1 cannot be read, so the value covers mlx5_1 and its ports mlx5_1-*. Of the row
    `P/neighbors.current.{if}.device` the published labels of mlx5_1 and mlx5_1-3 are kept, those of
    mlx5_10 are not.
    """
    if "{if}" not in template:
        return {template: previous[template]} if template in previous else {}
    kept = {}
    for key, text in previous.items():
        interface = _interface(key, template)
        if interface and value.covers(interface):
            kept[key] = text
    return kept


def _interface(key: str, template: str) -> str:
    """Return the part of the key at the template's `{if}`; "" if the key is another row's."""
    before, _, behind = template.partition("{if}")
    if not (key.startswith(before) and key.endswith(behind)):
        return ""
    return key[len(before) : len(key) - len(behind)]


def _encoded(template: str, value: Value, problems: list[Problem]) -> dict[str, str]:
    """Return the value's label; none, and a problem, if Kubernetes would refuse its key."""
    key = template.replace("{if}", value.interface or "")
    text = encode.value(value.text or "")
    if not text:
        return {}
    if fault := encode.key_fault(key):
        problems.append(Problem("labels", key, None, f"label not written: {fault}"))
        return {}
    return {key: text}
