"""Notices: what is worth an Event about the Node.

Rules:
- A cable has changed if the port's neighbor is another device or port than the last one that is
  known, be that from the annotation. A neighbor that is seen for the first time is no change.
- A port is lost once: when it is found missing (agent/kube/lost.py). One that the annotation has as
  lost already is not lost again.
- A refusal is noticed each time that the API server refuses; a key that is left out of a request
  because of an earlier refusal is not refused anew.
- A text has the interface or the keys, what was, and what is. What a neighbor or a server chose is
  made printable.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from agent.kube.negotiation import Refusal
from agent.labels.leaf_group import device_of
from agent.model import LastNeighbor, Observation, natural
from agent.text import listed, visible

MAX_NAME = 64  # characters of a neighbor's name, or of its port's
MAX_NAMED = 3  # keys
MAX_TEXT = 500  # characters


class Reason(StrEnum):
    """The reason of an Event; all have the type Warning."""

    CABLE_CHANGED = "CableChanged"
    PORT_LOST = "PortLost"
    LABELS_REFUSED = "LabelsRefused"


class Notice(NamedTuple):
    """One change, in a sentence; `subject` is an interface, or the first of several keys."""

    reason: Reason
    subject: str
    text: str


class Losses:
    """Finds the ports that are lost since the observation before."""

    def __init__(self) -> None:
        self._known: frozenset[tuple[str, str, str | None]] = frozenset()

    def observed(self, observation: Observation) -> list[Notice]:
        """Return the ports that this observation is the first to miss."""
        lost = {(one.interface, one.pci, one.port_guid): one for one in observation.lost or ()}
        before, self._known = self._known, frozenset(lost)
        now = int(observation.time)
        return [
            Notice(
                Reason.PORT_LOST,
                one.interface,
                f"{one.interface} was at PCI address {one.pci}, is gone from the bus",
            )
            for identity, one in lost.items()
            if one.since == now and identity not in before
        ]


def cables(observation: Observation) -> list[Notice]:
    """Return the ports whose neighbor is another one than in the observation before."""
    last = observation.last_neighbors
    if last is None:
        return []
    found = []
    for name in sorted(last.was, key=natural):
        was, now = _end(last.was[name]), _end(last.of[name])
        text = f"{name} was connected to {was}, is connected to {now}"
        found.append(Notice(Reason.CABLE_CHANGED, name, text))
    return found


def _end(neighbor: LastNeighbor) -> str:
    device = visible(device_of(neighbor), MAX_NAME)
    return f"{device} port {visible(neighbor.port_id, MAX_NAME)}" if neighbor.port_id else device


def refusals(refused: Iterable[Refusal]) -> list[Notice]:
    """Return the keys that a request was refused for, those with one answer together."""
    keys = defaultdict(list)
    for one in refused:
        keys[f"status {one.status}: {one.text}"].append(one.key)
    return [
        Notice(
            Reason.LABELS_REFUSED,
            min(found),
            f"{listed(sorted(found), MAX_NAMED)} refused: {visible(answer, MAX_TEXT)}",
        )
        for answer, found in keys.items()
    ]
