"""The table of the label contract, and what it makes of an observation.

A row of LABELS names a key, says in words what its value is and when it is absent, and has the claims that an
observation makes about it (agent/labels/values.py). Rendering encodes them, and holds what cannot be seen now.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from agent.labels import encode
from agent.labels import values as claims
from agent.model import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from agent.model import Observation


class Naming(NamedTuple):
    """How the keys are called."""

    prefix: str = "backend.coreweave.cloud"
    ib_prefix: str = "ib.coreweave.cloud"  # "": the family is not written
    accelerator: str = "network.topology.nvidia.com/accelerator"  # a whole key; "": not written


class Label(NamedTuple):
    """One row of the table: its key (P and IB are prefixes, ACC is all of it), value and absence in words, claims."""

    key: str
    value: str
    absent: str
    claims: Callable[[Observation], Iterable[claims.Claim]]


class Rendered(NamedTuple):
    """The labels that the Node should carry, by key; those held from before; what could not be written.

    `unsure` are those that are new though not all of what they say could be seen.
    """

    labels: dict[str, str]
    held: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    unsure: tuple[str, ...] = ()


LABELS = (
    Label(
        "P/flavor",
        "`infiniband` or `roce`, from the link layer of the backend ports",
        "no backend port",
        claims.flavor,
    ),
    Label(
        "P/speed.current",
        "sum of the rates of the ACTIVE backend ports in Gb/s, then `G`: `3200G`, `2.5G`; `0G` when none is active",
        "never, once sysfs could be read",
        claims.speed,
    ),
    Label(
        "P/neighbors.current.{if}.device",
        "the switch at the other end: InfiniBand its name, else its node GUID; LLDP its System Name, else Chassis ID",
        "no neighbour known",
        claims.neighbor_device,
    ),
    Label(
        "P/neighbors.current.{if}.port-id",
        "the port there: InfiniBand the switch's port number; RoCE the LLDP Port ID",
        "no neighbour known",
        claims.neighbor_port_id,
    ),
    Label(
        "P/neighbors.current.{if}.port-name",
        "the port's name where the fabric tells one: RoCE the Port ID where it is a name, else the Port Description",
        "the fabric tells none (InfiniBand)",
        claims.neighbor_port_name,
    ),
    Label("IB/speed.current", "the same", "flavor is not infiniband", claims.speed),
    Label(
        "IB/neighbors.current.{if}.device",
        "the same",
        "flavor is not infiniband",
        claims.neighbor_device,
    ),
    Label(
        "IB/neighbors.current.{if}.port-id",
        "the same",
        "flavor is not infiniband",
        claims.neighbor_port_id,
    ),
    Label(
        "IB/leaves.current",
        "the distinct neighbour devices in natural order, joined with `_`",
        "no neighbour known",
        claims.leaves,
    ),
    Label(
        "IB/ports.current",
        "the neighbour port-ids in interface order, joined with `_`",
        "no neighbour known",
        claims.ports,
    ),
    Label(
        "ACC",
        "`<ClusterUUID>.<CliqueID>`, the string that GPU Feature Discovery writes as `nvidia.com/gpu.clique`",
        "the GPUs name no NVLink domain (see below)",
        claims.accelerator,
    ),
)


def render(
    observation: Observation,
    naming: Naming,
    previous: Mapping[str, str] | None = None,
) -> Rendered:
    """The labels for an observation; `previous` are the owned labels whose hold has not run out."""
    labels: dict[str, str] = {}
    held: list[str] = []
    unsure: list[str] = []
    problems: list[Problem] = []
    infiniband = _is_infiniband(observation, (previous or {}).get(f"{naming.prefix}/flavor"))
    for row in LABELS:
        template = _key(row.key, naming)
        if template is None or (row.key.startswith("IB/") and not infiniband):
            continue
        for claim in row.claims(observation):
            kept = _kept(template, claim, previous or {})
            held += kept
            found = kept or _published(template, claim, problems)
            unsure += [] if kept or claim.sure else found
            labels |= found
    return Rendered(dict(sorted(labels.items())), tuple(held), tuple(problems), tuple(unsure))


def _is_infiniband(observation: Observation, before: str | None) -> bool:
    """By its backend ports; where something could not be seen, as it was before."""
    seen = any(role.backend and role.port.link_layer == "InfiniBand" for role in observation.ports)
    return seen or (claims.blind_spots(observation) and before == "infiniband")


def _key(key: str, naming: Naming) -> str | None:
    if key == "ACC":
        return naming.accelerator or None
    family, _, name = key.partition("/")
    prefix = {"P": naming.prefix, "IB": naming.ib_prefix}[family]
    return f"{prefix}/{name}" if prefix else None


def _kept(template: str, claim: claims.Claim, previous: Mapping[str, str]) -> dict[str, str]:
    """The labels published before that an unsure claim leaves as they are."""
    if not previous or (claim.raw is not None and claim.sure):
        return {}
    interface = ".+" if claim.interface is None else re.escape(claim.interface)
    if claim.whole_device:
        interface += "(?:-.+)?"
    pattern = re.compile(re.escape(template).replace(r"\{if\}", interface))
    others = {template.replace("{if}", interface) for interface in claim.but}
    return {
        key: text for key, text in previous.items() if pattern.fullmatch(key) and key not in others
    }


def _published(template: str, claim: claims.Claim, problems: list[Problem]) -> dict[str, str]:
    key = template.replace("{if}", claim.interface or "")
    text = encode.value(claim.raw or "")
    if not text:
        return {}
    if fault := encode.key_fault(key):
        problems.append(Problem("labels", key, None, f"label not written: {fault}"))
        return {}
    return {key: text}
