"""The LLDP neighbors that ports had, as the neighbor table starts with them.

A new agent takes those that the Node has; later a netdev that is back has that of its port: its
driver was loaded again, or a Pod gave it back. The annotation cuts long texts, and a label has its
neighbor's text encoded: a frame is that of the neighbor before if its texts make the same labels.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from agent import encode
from agent.kube.annotation import is_cut
from agent.lldp.neighbors import AWAITED, Former
from agent.memory import Fact, FarEnd, far_end
from agent.model import LldpNeighbor
from agent.sources.lldp import named


def formers(rows: Iterable[Fact], own: str | None, since: float) -> dict[str, Former]:
    """Return the former neighbor of each netdev of an Ethernet port, whose frames count `since`.

    `own` names the host.
    """
    return {
        row.netdev: Former(partial(is_same, row.far, own), since + AWAITED)
        for row in rows
        if row.netdev and row.far and row.layer == "Ethernet"
    }


def is_same(far: FarEnd, own: str | None, facts: LldpNeighbor) -> bool:
    """Return True if a frame makes the labels of a far end.

    A shutdown frame, which has Chassis ID and Port ID alone, does if they are those of the far end.
    """
    end = far_end(named(facts, own))
    if not facts.ttl:
        is_chassis = not far.id or _label(far.id) == _label(facts.chassis_id)
        return is_chassis and _label(far.port_id) == _label(end.port_id)
    return _labels(end) == _labels(far)


def _labels(far: FarEnd) -> list[str]:
    return [_label(text) for text in (far.device, far.port_id, far.port_name)]


def _label(text: str | None) -> str:
    """Return the label of a text, which may be cut or a label; its hash if it has none."""
    if text and is_cut(text):
        return text.rpartition("~")[2]
    return encode.value(text) or encode.hashed(text) if text else ""
