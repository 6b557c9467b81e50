"""The name of the node at the far end of each InfiniBand port, over several answers.

A switch that boots or is busy answers NodeInfo and not NodeDescription, or gives factory text for
some minutes. Its name is known from earlier answers with the same node GUID.

    NodeDescription        a name is known                     no name is known
    the known name         it is published                     -
    another name           it is published once a second       it is published
                           answer confirms it
    factory text, or       the known name is published, the    the node GUID is published
    empty                  node GUID after `hold` seconds
    no answer to it        the known name is published         the node GUID is published; on an
                                                               interface without an earlier far
                                                               end, after `tries` such answers

Invariants:
- Any answer without the known name makes a retry due.
- Only answers change the state, and each of them once: observations in between do not.

Pure: times are those of the answers, in seconds of a clock that does not jump.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from agent.infiniband.node_description import switch_name
from agent.model import IbNeighbor
from agent.text import visible

TRIES = 3  # answers without NodeDescription until the node GUID is published
MAX_NAMES = 1024  # node GUIDs whose names are remembered
MAX_TEXT = 64  # characters of a name in a problem


class Answered(NamedTuple):
    """An answer, identified by the port that was queried and the time."""

    sender: tuple[str, int]  # device, port
    time: float


class Name(NamedTuple):
    """The text that a far end is labeled by."""

    device: str | None  # its name or node GUID; None: not known yet
    # the NodeDescription that `device` is from, if the last answer lacks it
    last_description: str | None = None
    problem: str | None = None


class Retry(NamedTuple):
    """A query that is due because of an answer."""

    number: int  # of retries before
    by: float = math.inf  # the latest time


@dataclass(slots=True)
class _FarEnd:
    """The far end of one interface, for as long as it has the same node GUID."""

    guid: str
    known: str | None  # the last confirmed NodeDescription with a name
    tries_left: int  # answers without NodeDescription until the node GUID is published
    answer: Answered | None = None  # the last
    other: str | None = None  # a NodeDescription with another name, to be confirmed
    factory_since: float | None = None
    is_settled: bool = True  # the last answer had the known name
    retries: int = 0  # answers since it had

    def take_in(self, description: str | None, answer: Answered, hold: float) -> None:
        """Change the state by the NodeDescription of a new answer."""
        self.answer, had_other = answer, self.other is not None
        if description is None:
            self.tries_left = max(self.tries_left - 1, 0)
        elif name := switch_name(description):
            if not self.known or name in {_name(self.known), _name(self.other)}:
                self.known, self.other = description, None
            else:
                self.other = description  # until a second answer confirms it
            self.factory_since, self.tries_left = None, 0
        else:  # factory text, or empty
            since = answer.time if self.factory_since is None else self.factory_since
            if answer.time >= since + hold:
                self.known = None
            self.factory_since = since if self.known else None
            self.other, self.tries_left = None, 0
        self.is_settled = description is not None and description == self.known
        if self.is_settled or (self.other and not had_other):
            self.retries = 0  # another name is to be confirmed soon
        self.retries += not self.is_settled

    def name(self, description: str | None) -> Name:
        """Return its name; `description` is that of the last answer."""
        known, lost = _name(self.known), "no answer to NodeDescription"
        if not known:
            if description is not None:
                return Name(self.guid)
            if self.tries_left:
                return Name(None, problem=lost)
            return Name(self.guid, problem=f"{lost}: labeled by its node GUID")
        given = _name(description)
        if given == known:
            return Name(known)
        if given:  # another name, to be confirmed
            return Name(known, self.known)
        fault = lost if description is None else "factory NodeDescription"
        return Name(known, self.known, f"{fault}: {visible(known, MAX_TEXT)} is kept")

    def retry(self, hold: float) -> Retry | None:
        """Return the retry that the last answer made due."""
        if self.is_settled:
            return None
        by = math.inf if self.factory_since is None else self.factory_since + hold
        return Retry(max(self.retries - 1, 0), by)


class SwitchNames:
    """Derives the names; `hold` is in seconds, `tries` counts answers."""

    def __init__(self, hold: float = math.inf, tries: int = 1) -> None:
        self._hold = hold
        self._tries = tries
        self._far_ends: dict[str, _FarEnd] = {}  # by interface
        self._names: dict[str, str] = {}  # by node GUID: the last confirmed NodeDescription

    def seed(self, known: Mapping[str, tuple[str, str | None]]) -> None:
        """Start from the last far end of these interfaces: node GUID and NodeDescription.

        The others have their answers so far.
        """
        for interface, (guid, description) in known.items():
            found = description if _name(description) else None
            self._far_ends[interface] = _FarEnd(guid, found, tries_left=0)
            self._remember(guid, found)

    def name(self, interface: str, facts: IbNeighbor, answer: Answered) -> Name:
        """Return the name of an interface's far end by an answer; it counts once."""
        guid, far_end = facts.node_guid, self._far_ends.get(interface)
        if far_end is None or far_end.guid != guid:
            known = None if _name(facts.node_description) else self._names.get(guid)
            far_end = _FarEnd(guid, known, tries_left=0 if far_end else self._tries)
            self._far_ends[interface] = far_end
        if far_end.answer != answer:
            before = far_end.known
            far_end.take_in(facts.node_description, answer, self._hold)
            if far_end.known != before:
                self._remember(guid, far_end.known)
        return far_end.name(facts.node_description)

    def retry(self, answer: Answered) -> Retry | None:
        """Return the retry that an answer made due; None if there is none."""
        answered = [one for one in self._far_ends.values() if one.answer == answer]
        return min(filter(None, (one.retry(self._hold) for one in answered)), default=None)

    def trigger(self) -> None:
        """Count the retries from zero again: an event happened."""
        for far_end in self._far_ends.values():
            far_end.retries = 0

    def is_unconfirmed(self) -> bool:
        """Return True if another name than the known one is to be confirmed."""
        return any(far_end.other for far_end in self._far_ends.values())

    def _remember(self, guid: str, description: str | None) -> None:
        """Remember the NodeDescription of a node GUID; None: forget it."""
        self._names.pop(guid, None)
        if description:
            self._names[guid] = description
        if len(self._names) > MAX_NAMES:
            del self._names[next(iter(self._names))]


def _name(description: str | None) -> str | None:
    return switch_name(description) if description else None
