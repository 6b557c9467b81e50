"""Render the labels of what is known of a node: a pure function of the facts (agent/memory.py)."""

from __future__ import annotations

from collections.abc import Iterable

from agent.ids import GUID
from agent.labels import encode
from agent.labels.table import Naming
from agent.memory import Fact, Known, group_of
from agent.model import natural
from agent.reasons import HoldReason


def labels(known: Known, naming: Naming) -> dict[str, str]:
    """Return the labels by key."""
    found: dict[str, str] = {}
    is_infiniband = False
    for name, text in node_texts(known).items():
        found[f"{naming.prefix}/{name}"] = text
        is_infiniband |= (name, text) == ("flavor", "infiniband")
    for name, text in _neighbor_texts(known.facts):
        found[f"{naming.prefix}/{name}"] = text
    if naming.ib_prefix and is_infiniband:
        for key, text in list(found.items()):
            name = key.partition("/")[2]
            if name not in {"flavor", "leafgroup.current"} and not name.endswith(".port-name"):
                found[f"{naming.ib_prefix}/{name}"] = text
        if ports := "_".join(fact.far.port_id or "" for fact in known.facts if fact.far):
            found[f"{naming.ib_prefix}/ports.current"] = ports
    if known.domain and naming.accelerator:
        found[naming.accelerator] = known.domain
    encoded = {key: encode.value(text) for key, text in found.items()}
    return {
        key: encoded[key] for key in sorted(encoded) if encoded[key] and not encode.key_fault(key)
    }


def node_texts(known: Known) -> dict[str, str]:
    """Return the texts of the rows without interface."""
    devices = {fact.far.device for fact in known.facts if fact.far} - {""}
    found = {
        "flavor": _flavor(known),
        "speed.current": _speed(known),
        "leaves.current": "_".join(sorted(devices, key=natural)),
        "leafgroup.current": _group(known),
    }
    return {name: text for name, text in found.items() if text}


def _flavor(known: Known) -> str | None:
    """Return the link layer of the backend ports.

    `roce` is not published while a port that is InfiniBand is unread.
    """
    layers = {fact.layer for fact in known.facts if not fact.has_ended}
    if "InfiniBand" in layers:
        return "infiniband"
    if known.unknown and "flavor" in known.texts:
        return known.texts["flavor"]
    is_ethernet = "Ethernet" in layers and all(fact.layer == "Ethernet" for fact in known.facts)
    return "roce" if is_ethernet else None


def _speed(known: Known) -> str | None:
    """Return the sum of what the backend ports count; None if it is not known at all."""
    if known.unknown and "speed" in known.texts:
        return known.texts["speed"]
    if not known.is_read and not known.facts:
        return None
    is_gone = [fact.state_why is HoldReason.DEVICE_GONE for fact in known.facts]
    if known.facts and all(fact.has_ended for fact in known.facts) and not any(is_gone):
        return None
    return encode.gbps(sum(fact.gbps or 0 for fact in known.facts))


def _group(known: Known) -> str | None:
    """Return the leaves that the node hangs on, each port with the last far end that it had."""
    if known.group_hold:
        return known.texts.get("group")
    return group_of(fact.last_far.device for fact in known.facts if fact.last_far)


def _neighbor_texts(facts: Iterable[Fact]) -> Iterable[tuple[str, str]]:
    for fact in facts:
        if (far := fact.far) and fact.interface:
            base = f"neighbors.current.{fact.interface}"
            yield f"{base}.device", far.device
            yield f"{base}.port-id", _port_id(far.port_id or "")
            if far.port_name and not GUID.fullmatch(far.id or ""):
                yield f"{base}.port-name", far.port_name


def _port_id(text: str) -> str:
    return text if encode.value(text) or not text else encode.hashed(text)
