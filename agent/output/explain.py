"""Where one label comes from: the document of `bwagent explain`, schema 1.

Its states are

    seen         the text was read now
    held         the label stays as it is, or has a part that does; `hold` has the reason
    incomplete   the text was read now, from facts of which some are missing; so has `hold`
    absent       there is no such label now; `reason` says why
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import agent
from agent.labels.render import keys_for, subject_of
from agent.labels.table import LABELS, Naming
from agent.labels.values import link_layers, links
from agent.model import Failed
from agent.output.absent import absent_ports
from agent.output.evidence import of_row
from agent.reasons import SWITCHED_OFF, HoldReason, NeighborReason
from agent.text import utc

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent.labels.render import Rendered, Subject
    from agent.labels.table import Label
    from agent.model import Observation
    from agent.output.evidence import Evidence

    Json = dict[str, Any]

SCHEMA = 1
MAX_NEAREST = 3
MIN_LIKENESS = 0.6  # of a key that is named as a near one, see difflib
MAX_KEY = 317  # characters of a valid key: prefix, slash, name
MAX_SHOWN = 64  # characters of an unknown key in its error
MAX_ERROR = 140  # characters of that error, unless its nearest key is longer
NO_INFINIBAND = "flavor is not infiniband"
NO_PORT_NAME = "no port name in the neighbor's frame"
FAMILIES = (  # rows that an empty flag turns off: their field of Naming
    ("ib_prefix", "--ib-label-prefix"),
    ("accelerator", "--accelerator-label"),
)


def known_interfaces(observation: Observation) -> list[str]:
    """Return the interfaces that keys may name: those of all ports, read or not."""
    names = [role.interface for role in observation.ports]
    names += [one.interface for one in absent_ports(observation)]
    return [*dict.fromkeys([*names, *(link.interface for link in links(observation))])]


def backend_interfaces(observation: Observation) -> list[str]:
    """Return the interfaces that may have labels: those of the backend ports."""
    names = {role.interface for role in observation.ports if not role.backend}
    return [name for name in known_interfaces(observation) if name not in names]


def unknown_key(key: str, naming: Naming, interfaces: Iterable[str]) -> str:
    """Return the error for a key that is none of a label: it names the nearest ones.

    Of rows that the naming turns off it names the flag.
    """
    shown = key[:MAX_SHOWN]
    if flag := _turned_off_by(key, naming):
        return f"{shown!r} is turned off by an empty {flag}"
    known = keys_for(naming, interfaces)
    full = key if "/" in key else f"{naming.prefix}/{key}"
    nearest = get_close_matches(full[:MAX_KEY], known, MAX_NEAREST, MIN_LIKENESS)
    error = f"{shown!r} is no label key of bwagent; "
    if not nearest:
        return f"{error}`bwagent probe -o labels` lists them"
    error += f"nearest: {nearest[0]}"
    for other in nearest[1:]:
        if len(error) + len(other) + 2 <= MAX_ERROR:
            error += f", {other}"
    return error


def _turned_off_by(key: str, naming: Naming) -> str | None:
    """Return the flag that turns off the rows of a key; None if the key would be no label's."""
    for field, flag in FAMILIES:
        default = getattr(Naming(), field)
        keys = (key, f"{default}/{key}", default if default.endswith(f"/{key}") else "")
        with_default = naming._replace(**{field: default})
        if not getattr(naming, field) and any(subject_of(one, with_default) for one in keys):
            return flag
    return None


def explained(
    subject: Subject, observation: Observation, rendered: Rendered, on_node: Json | None
) -> Json:
    """Return the document of a label; `on_node` are those of agent/kube/commands.py."""
    key, row, interface = subject
    hold, value = _hold(subject, observation, rendered), rendered.labels.get(key)
    evidence = list(of_row(row.key)(observation, interface))
    return {
        "schema": SCHEMA,
        "agent": agent.__version__,
        "node": observation.node,
        "boot_id": observation.boot_id,
        "key": key,
        "meaning": _meaning(row),
        "absent_when": row.absent,
        "state": _state(key, rendered),
        "value": value,
        "raw": _raw(row, interface, observation),
        "hold": {"reason": str(hold), "text": hold.text} if hold else None,
        "reason": _absence(row, interface, observation) if value is None else None,
        "evidence": [_evidence(one) for one in evidence],
        "problems": _problems(subject, evidence, observation, rendered),
        "on_node": on_node,
    }


def _meaning(row: Label) -> str:
    """Return the text of the first row with these values; a later one may say "the same"."""
    return next(one.value for one in LABELS if one.values is row.values)


def _state(key: str, rendered: Rendered) -> str:
    if key not in rendered.labels:
        return "absent"
    if key in rendered.held:
        return "held"
    return "incomplete" if key in rendered.incomplete else "seen"


def _hold(subject: Subject, observation: Observation, rendered: Rendered) -> HoldReason | None:
    """Return the reason why a label is held or incomplete."""
    if subject.key not in rendered.incomplete:
        return rendered.held.get(subject.key)
    values = subject.row.values(observation)
    return next((one.hold for one in values if one.hold), None)


def _raw(row: Label, interface: str | None, observation: Observation) -> str | None:
    """Return the text before it is encoded; None if it was not read now."""
    texts = [one.text for one in row.values(observation) if one.interface == interface]
    return next((text for text in texts if text), None)


def _evidence(one: Evidence) -> Json:
    return {**one._asdict(), "seen": None if one.seen is None else utc(int(one.seen))}


def _absence(row: Label, interface: str | None, observation: Observation) -> str:
    """Return the reason why there is no label."""
    if row.key != "ACC" and isinstance(observation.rdma, Failed):
        return observation.rdma.reason
    layers = link_layers(observation)
    lacks_infiniband = row.key.startswith("IB/") and "InfiniBand" not in layers
    is_roce = lacks_infiniband and bool(layers)
    if interface and not is_roce and (reason := _of_interface(interface, observation)):
        return reason
    if lacks_infiniband:
        return SWITCHED_OFF if "rdma" in observation.off else NO_INFINIBAND
    if _is_switched_off(row, interface, observation):
        return SWITCHED_OFF
    return _of_row(row, observation)


def _is_switched_off(row: Label, interface: str | None, observation: Observation) -> bool:
    """Return True if a source of the label is left out.

    The label's values have that reason, which would hold a published one.
    """
    values = row.values(observation)
    covering = (one for one in values if interface is None or one.covers(interface))
    return any(one.hold is HoldReason.SOURCE_OFF for one in covering)


def _of_row(row: Label, observation: Observation) -> str:
    """Return the reason why a row has no value though its sources were read."""
    if row.key == "ACC":
        return observation.accelerator.text or observation.accelerator.reason or row.absent
    if row.key.endswith(".port-name") and "InfiniBand" not in link_layers(observation):
        return NO_PORT_NAME
    return row.absent


def _of_interface(interface: str, observation: Observation) -> str | None:
    """Return the reason why an interface has no neighbor, or is no backend port."""
    reasons: Mapping[str, str] = {
        **{one.interface: one.reason for one in absent_ports(observation)},
        **{role.interface: role.reason for role in observation.ports if not role.backend},
        **{link.interface: _missing(link.missing) for link in links(observation) if link.missing},
    }
    return reasons.get(interface)


def _missing(word: str) -> str:
    reason = NeighborReason.of(word)
    return f"{word}: {reason.text}" if reason else word


def _problems(
    subject: Subject, evidence: Iterable[Evidence], observation: Observation, rendered: Rendered
) -> list[str]:
    """Return the problems of the key, and of the interfaces and devices of its evidence."""
    names = {subject.interface, *(one.interface for one in evidence)} - {None}
    roles = [role for role in observation.ports if role.interface in names]
    concerned = {subject.key, *names, *(role.device.name for role in roles)}
    return [
        f"{one.subject}: {one.text}"
        for one in (*rendered.problems, *rendered.notes, *observation.problems)
        if concerned.intersection([one.subject, *one.subject.split("/")])
    ]
