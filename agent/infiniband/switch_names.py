"""The name of the node at the far end of each InfiniBand port, over several answers.

A switch that boots or is busy answers NodeInfo and not NodeDescription, or gives factory text or a
default host name for some minutes. Its name is known from earlier answers with the same node GUID.

    NodeDescription              a name is known                 no name is known
    a name                       it is published                 it is published
    factory text, a default      the known name is published,    the node GUID is published
    host name, empty, or none    without limit

Invariants:
- Any answer without a name makes a retry due.
- Each answer changes the state once; observations between two answers do not change it.

Pure: times are those of the answers, in seconds of a clock that does not jump.
"""

from collections.abc import Mapping
from typing import NamedTuple

from agent.model import IbNeighbor
from agent.node_description import switch_name
from agent.text import visible

MAX_NAMES = 1024  # node GUIDs whose names are remembered
MAX_TEXT = 64  # characters of a name in a problem


class Answered(NamedTuple):
    """An answer, identified by the port that was queried and the time."""

    sender: tuple[str, int]  # device, port
    time: float


class Name(NamedTuple):
    """The text that a far end is labeled by."""

    device: str  # its name or node GUID
    # the NodeDescription that `device` is from, if the last answer lacks it
    last_description: str | None = None
    problem: str | None = None


class _FarEnd:
    """The far end of an interface, as long as it has the same node GUID."""

    def __init__(self, guid: str, description: str | None) -> None:
        self.guid = guid
        self.description = description  # the last NodeDescription with a name
        self.answer: Answered | None = None  # the last
        self.is_named = True  # the last answer had a name
        self.unnamed = 0  # answers in a row that had none, since the last event

    def name(self, description: str | None) -> Name:
        """Return its name; `description` is that of the last answer."""
        name, lost = _name(self.description), "no answer to NodeDescription"
        if name and _name(description) == name:
            return Name(name)
        if name:
            fault = lost if description is None else "factory NodeDescription"
            return Name(name, self.description, f"{fault}: {visible(name, MAX_TEXT)} is kept")
        problem = f"{lost}: labeled by its node GUID" if description is None else None
        return Name(self.guid, problem=problem)


class SwitchNames:
    """Derives the names."""

    def __init__(self) -> None:
        self._far_ends: dict[str, _FarEnd] = {}  # by interface
        self._names: dict[str, str] = {}  # by node GUID: the last NodeDescription with a name

    def seed(self, far_ends: Mapping[str, tuple[str, str | None]]) -> None:
        """Start from the last far end of these interfaces: node GUID and NodeDescription.

        The others have their answers so far, and the name of their node GUID where these have none:
        an interface may have another name than before.
        """
        for interface, (guid, description) in far_ends.items():
            named = description if _name(description) else None
            self._far_ends[interface] = _FarEnd(guid, named)
            self._remember(guid, named)
        for interface in self._far_ends.keys() - far_ends.keys():
            far_end = self._far_ends[interface]
            far_end.description = far_end.description or self._names.get(far_end.guid)

    def name(self, interface: str, facts: IbNeighbor, answer: Answered) -> Name:
        """Return the name of an interface's far end by an answer; it counts once."""
        guid, far_end = facts.node_guid, self._far_ends.get(interface)
        if far_end is None or far_end.guid != guid:
            far_end = _FarEnd(guid, self._names.get(guid))
            self._far_ends[interface] = far_end
        description = facts.node_description
        if far_end.answer != answer:
            far_end.answer, far_end.is_named = answer, _name(description) is not None
            far_end.unnamed += 1
            if far_end.is_named:
                far_end.description, far_end.unnamed = description, 0
            self._remember(guid, far_end.description)
        return far_end.name(description)

    def retry(self, answer: Answered) -> int | None:
        """Return the number of retries before the retry that an answer made due; None: none is."""
        answered = [far_end for far_end in self._far_ends.values() if far_end.answer == answer]
        tries = [max(far_end.unnamed - 1, 0) for far_end in answered if not far_end.is_named]
        return min(tries, default=None)

    def trigger(self) -> None:
        """Count the retries from zero again: an event happened."""
        for far_end in self._far_ends.values():
            far_end.unnamed = 0

    def _remember(self, guid: str, description: str | None) -> None:
        if description and self._names.get(guid) != description:
            self._names.pop(guid, None)
            self._names[guid] = description
        if len(self._names) > MAX_NAMES:
            del self._names[next(iter(self._names))]


def _name(description: str | None) -> str | None:
    return switch_name(description) if description else None
