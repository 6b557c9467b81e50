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
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from agent.labels.leaf_group import device_of
from agent.model import natural
from agent.text import listed, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent.kube.negotiation import Refusal
    from agent.model import LastNeighbor, LostPort, Observation

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
        self._known: frozenset[tuple[str, ...]] = frozenset()

    def observed(self, observation: Observation) -> list[Notice]:
        """Return the ports that this observation is the first to miss."""
        lost = observation.lost or ()
        before, self._known = self._known, frozenset(map(_identity, lost))
        now = int(observation.time)
        return [_loss(one) for one in lost if one.since == now and _identity(one) not in before]


def _identity(lost: LostPort) -> tuple[str, ...]:
    return lost.interface, lost.pci, lost.port_guid or ""


def _loss(lost: LostPort) -> Notice:
    text = f"{lost.interface} was at PCI address {lost.pci}, is gone from the bus"
    return Notice(Reason.PORT_LOST, lost.interface, text)


def cables(observation: Observation) -> list[Notice]:
    """Return the ports whose neighbor is another one than in the observation before."""
    last = observation.last_neighbors
    was: Mapping[str, LastNeighbor] = last.was if last else {}
    return [_cable(name, was[name], last.of[name]) for name in sorted(was, key=natural) if last]


def _cable(interface: str, was: LastNeighbor, now: LastNeighbor) -> Notice:
    text = f"{interface} was connected to {_end(was)}, is connected to {_end(now)}"
    return Notice(Reason.CABLE_CHANGED, interface, text)


def _end(neighbor: LastNeighbor) -> str:
    device = visible(device_of(neighbor), MAX_NAME)
    return f"{device} port {visible(neighbor.port_id, MAX_NAME)}" if neighbor.port_id else device


def refusals(refused: Iterable[Refusal]) -> list[Notice]:
    """Return the keys that a request was refused for, those with one answer together."""
    keys = defaultdict(list)
    for one in refused:
        keys[f"status {one.status}: {one.text}"].append(one.key)
    return [_refusal(sorted(found), answer) for answer, found in keys.items()]


def _refusal(keys: list[str], answer: str) -> Notice:
    text = f"{listed(keys, MAX_NAMED)} refused: {visible(answer, MAX_TEXT)}"
    return Notice(Reason.LABELS_REFUSED, keys[0], text)
