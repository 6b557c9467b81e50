"""What is observed, as labels: the table of the label contract, and the rule that holds what cannot be seen.

A row of LABELS turns an observation into claims. A claim with a text is published; a claim without one says "this
cannot be seen now", and the label stays as it was published before; what nobody claims is removed. So absence removes
and failure holds, for each interface on its own.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from agent import encode
from agent.model import Absent, Failed, Problem, Seen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from agent.model import Observation
    from agent.roles import PortRole


class Naming(NamedTuple):
    """Where the keys live."""

    prefix: str = "backend.coreweave.cloud"
    ib_prefix: str = "ib.coreweave.cloud"  # "": the family is not written


class Claim(NamedTuple):
    """What a row says of one key: its raw text (None: not to be seen now), and whether all of it is sure.

    A text that is not sure is published only where nothing was published before.
    """

    raw: str | None
    interface: str | None = None
    sure: bool = True


class Label(NamedTuple):
    """One row of the table: its key with the prefix as P or IB, its value and its absence in words, and its claims."""

    key: str
    value: str
    absent: str
    claims: Callable[[Observation, tuple[PortRole, ...]], Iterable[Claim]]


class Rendered(NamedTuple):
    """The labels that the Node should carry, by key; those held from before; and what could not be written."""

    labels: dict[str, str]
    held: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()


def flavor(observation: Observation, roles: tuple[PortRole, ...]) -> Iterable[Claim]:
    """`infiniband` or `roce`, from the link layer of the backend ports."""
    link_layers = {role.port.link_layer for role in roles if role.backend}
    if "InfiniBand" in link_layers:
        yield Claim("infiniband")
    elif "Ethernet" in link_layers:
        yield Claim("roce", sure=not _blind_spots(observation))
    elif _blind_spots(observation):
        yield Claim(None)


def speed(observation: Observation, roles: tuple[PortRole, ...]) -> Iterable[Claim]:
    """The sum of the backend's ACTIVE rates in Gb/s; a backend port that cannot be read makes it unsure."""
    if isinstance(observation.rdma, Failed):
        yield Claim(None)
        return
    counted = [role.counted_gbps for role in roles if role.backend]
    total = f"{sum(filter(None, counted)):.3f}".rstrip("0").rstrip(".")
    yield Claim(f"{total}G", sure=None not in counted and not _blind_spots(observation))


def _blind_spots(observation: Observation) -> bool:
    """Something that may belong to the backend could not be read at all."""
    match observation.rdma:
        case Seen(devices):
            return any(device.failure or any(p.link_layer is None for p in device.ports) for device in devices)
        case Absent():
            return False
    return True


LABELS = (
    Label(
        "P/flavor",
        "`infiniband` or `roce`, from the link layer of the backend ports",
        "no backend port",
        flavor,
    ),
    Label(
        "P/speed.current",
        "sum of the rates of the ACTIVE backend ports in Gb/s, then `G`: `3200G`, `2.5G`; `0G` when none is active",
        "never, once sysfs could be read",
        speed,
    ),
    Label("IB/speed.current", "the same", "flavor is not infiniband", speed),
)


def render(
    observation: Observation,
    roles: tuple[PortRole, ...],
    naming: Naming,
    previous: Mapping[str, str] | None = None,
) -> Rendered:
    """The labels for an observation; `previous` are the owned labels whose hold has not run out."""
    labels: dict[str, str] = {}
    held: list[str] = []
    problems: list[Problem] = []
    for row in LABELS:
        template = _key(row.key, naming)
        if template is None or (row.key.startswith("IB/") and labels.get(f"{naming.prefix}/flavor") != "infiniband"):
            continue
        for claim in row.claims(observation, roles):
            kept = _kept(template, claim, previous or {})
            held += kept
            labels |= kept or _published(template, claim, problems)
    return Rendered(dict(sorted(labels.items())), tuple(held), tuple(problems))


def _key(key: str, naming: Naming) -> str | None:
    family, _, name = key.partition("/")
    prefix = {"P": naming.prefix, "IB": naming.ib_prefix}[family]
    return f"{prefix}/{name}" if prefix else None


def _kept(template: str, claim: Claim, previous: Mapping[str, str]) -> dict[str, str]:
    """The labels published before that an unsure claim leaves as they are."""
    if claim.raw is not None and claim.sure:
        return {}
    interface = ".+" if claim.interface is None else re.escape(claim.interface)
    pattern = re.compile(re.escape(template).replace(r"\{if\}", interface))
    return {key: text for key, text in previous.items() if pattern.fullmatch(key)}


def _published(template: str, claim: Claim, problems: list[Problem]) -> dict[str, str]:
    key = template.replace("{if}", claim.interface or "")
    text = encode.value(claim.raw or "")
    if not text:
        return {}
    if fault := encode.key_fault(key):
        problems.append(Problem("labels", key, None, f"label not written: {fault}"))
        return {}
    return {key: text}
