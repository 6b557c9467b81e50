"""The Nodes of a fleet, read one by one."""

from __future__ import annotations

import sys
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

from agent.errors import Unavailable
from agent.fleet.far_ends import identified, with_identity
from agent.fleet.model import Fleet, FleetNode
from agent.fleet.nodes import NodeReader
from agent.model import natural
from agent.text import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from agent.labels.table import Naming

    Json = dict[str, Any]
    Progress = Callable[[int, int | None], None]  # Nodes read, and in all if that is known

MAX_QUOTE = 64  # characters of a name in a message


def _silent(_read: int, _total: int | None) -> None:
    """Show no progress."""


class Selection(NamedTuple):
    """The Nodes and labels that are asked for."""

    naming: Naming
    names: tuple[str, ...] = ()  # of Nodes, or globs; empty: all
    progress: Progress = _silent


class Collected:
    """The Nodes read so far."""

    def __init__(self, selection: Selection, clock: float) -> None:
        self.problems = list[str]()
        self.total = 0  # Nodes, selected or not
        self.newest: int | None = None  # time of an annotation
        self._selection = selection
        self._reader = NodeReader(selection.naming, clock)
        self._unmatched = set(selection.names)
        self._nodes = dict[str, FleetNode]()
        self._others = 0

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    def add(self, document: Json, name: str, *, left: int | None = None) -> None:
        """Read the Node of this name if it is selected; `left` Nodes come after it."""
        self.total += 1
        self._selection.progress(self.total, None if left is None else self.total + left)
        if not self._is_selected(name):
            return
        if node := self._reader.read(document):
            self._nodes[name] = node
            self.newest = max(filter(None, (self.newest, node.time)), default=None)
        else:
            self._others += 1

    def _is_selected(self, name: str) -> bool:
        globs = self._selection.names
        matching = [glob for glob in globs if fnmatchcase(name, glob)]
        self._unmatched.difference_update(matching)
        return bool(matching) or not globs

    def fleet(self, source: str, now: float) -> Fleet:
        """Return the fleet; raises Unavailable if a name is that of no Node."""
        if self._unmatched:
            names = ", ".join(visible(one, MAX_QUOTE) for one in sorted(self._unmatched))
            raise Unavailable(f"{source}: none of {self.total} Nodes is named {names}")
        nodes = _identified(self._nodes[name] for name in sorted(self._nodes, key=natural))
        return Fleet(nodes, source, int(now), self._others, tuple(self.problems))


def _identified(found: Iterable[FleetNode]) -> tuple[FleetNode, ...]:
    """Return the nodes, with the identity of each switch that any of them knows."""
    nodes = tuple(found)
    known = identified(nodes)
    return tuple(
        replace(node, ports=tuple(with_identity(port, known) for port in node.ports))
        if any(port.far_end and port.far_end.id is None for port in node.ports)
        else node
        for node in nodes
    )


def name_of(document: Mapping[str, Any]) -> str | None:
    """Return the name of a Node; None for what has none."""
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return sys.intern(name) if isinstance(name, str) and name else None
