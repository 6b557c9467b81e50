"""The Nodes of a fleet, read one by one: from the API server, or from a file.

Those of the API server are listed page by page, metadata only. A file is what `kubectl get nodes -o
json` prints, or other JSON with Nodes in it. The clock of its fleet is that of its Nodes, so that a
file of last week is judged as of last week: the newest of the times that kubelets and agents wrote
into them. A folder of snapshots is read by agent/fleet/snapshots.py.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from io import TextIOWrapper
from typing import Any, NamedTuple, TextIO

from agent.cabling.seen import SeenEnd
from agent.encode import Naming
from agent.errors import Malformed, Unavailable
from agent.facts import parse_time
from agent.fleet.json_items import Item, Items
from agent.fleet.model import Fleet, FleetNode, FleetPort
from agent.fleet.nodes import NodeReader
from agent.kube.answers import Kube, objects, one_line, part
from agent.kube.nodes import pages
from agent.limits import uncollected
from agent.text import Json, natural, visible

OnProgress = Callable[[int, int | None], None]  # Nodes read, and in all if that is known

MAX_QUOTE = 64  # characters of a name, or of a file's text, in a message
GLOB = frozenset("*?[")
STDIN = "-"
KINDS = frozenset({"Node", "PartialObjectMetadata"})
LISTS = frozenset({"List", "NodeList", "PartialObjectMetadataList"})

_UTC = re.compile(r"[0-9]{4}(-[0-9]{2}){2}T([0-9]{2}:){2}[0-9]{2}Z", re.ASCII)


class Selection(NamedTuple):
    """The Nodes and labels that are asked for."""

    naming: Naming
    names: tuple[str, ...] = ()  # of Nodes, or globs; empty: all
    progress: OnProgress | None = None


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
        if self._selection.progress:
            self._selection.progress(self.total, None if left is None else self.total + left)
        globs = self._selection.names
        matching = [glob for glob in globs if fnmatchcase(name, glob)]
        self._unmatched.difference_update(matching)
        if globs and not matching:
            return
        if node := self._reader.read(document):
            self._nodes[name] = node
            self.newest = max(self.newest or 0, node.time or 0) or None
        else:
            self._others += 1

    def fleet(self, source: str, now: float) -> Fleet:
        """Return the fleet; raises Unavailable if a name is that of no Node."""
        if self._unmatched:
            names = ", ".join(visible(name, MAX_QUOTE) for name in sorted(self._unmatched))
            raise Unavailable(f"{source}: none of {self.total} Nodes is named {names}")
        nodes = _identified([self._nodes[name] for name in sorted(self._nodes, key=natural)])
        return Fleet(nodes, source, int(now), self._others, tuple(self.problems))


def _identified(nodes: Sequence[FleetNode]) -> tuple[FleetNode, ...]:
    """Return the nodes, each far end with the identifier that other ports know for its label.

    Without it one switch would be two: by its identifier, and by its label. One label may have
    several switches, two of one name: it is left as it is.
    """
    every = [port.far_end for node in nodes for port in node.ports if port.far_end]
    lacking = {end.label for end in every if end.id is None}
    if not lacking:
        return tuple(nodes)
    ends = defaultdict[str, dict[str, SeenEnd]](dict)
    for end in every:
        if end.id is not None and end.label in lacking:
            ends[end.label].setdefault(end.id, end)
    known = {label: next(iter(some.values())) for label, some in ends.items() if len(some) == 1}

    def identified(port: FleetPort) -> FleetPort:
        end = port.far_end
        if end is None or end.id is not None or end.label not in known:
            return port
        other = known[end.label]
        return port._replace(far_end=end._replace(id=other.id, name=other.name))

    return tuple(
        replace(node, ports=tuple(map(identified, node.ports)))
        if any(port.far_end and port.far_end.id is None for port in node.ports)
        else node
        for node in nodes
    )


def name_of(document: Mapping[str, Any]) -> str | None:
    """Return the name of a Node; None for what has none."""
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return sys.intern(name) if isinstance(name, str) and name else None


def read_cluster(kube: Kube, selector: str, selection: Selection, clock: float) -> Fleet:
    """List the Nodes; raises Unavailable unless all of them could be listed."""
    collected, server, names = Collected(selection, clock), "", selection.names
    # the API server selects the Node of an only name that is no glob
    only = names[0] if len(names) == 1 and not GLOB.intersection(names[0]) else None
    for page in pages(kube, selector, only):
        server = one_line(page.server)
        if page.is_first:
            collected = Collected(selection, clock)
        for number, node in enumerate(page.nodes, 1):
            left = None if page.left is None else page.left + len(page.nodes) - number
            collected.add(dict(node), name_of(node) or "", left=left)
    if not collected.total:
        selected = " that --selector and --node select" if selector or names else ""
        raise Unavailable(f"{server}: no Nodes{selected}")
    return collected.fleet(server, clock)


def read_file(path: str, selection: Selection, clock: float) -> Fleet:
    """Read the Nodes of a file, or of standard input.

    Raises Malformed with line and column for anything but Nodes, Unavailable.
    """
    collected = Collected(selection, clock)
    source = "standard input" if path == STDIN else path
    heartbeat, lines = "", dict[str, int]()
    with _opened(path, source) as file, uncollected():
        for item in Items(file):
            if item.is_list:
                _require(item, LISTS)
                continue
            if not isinstance(item.value, dict):
                raise _fault(item, "no Node, and not a JSON object")
            if "kind" in item.value:
                _require(item, KINDS)
            name = name_of(item.value)
            if name is None:
                raise _fault(item, "no Node: it has no metadata.name")
            if first := lines.get(name):
                text = f"Node {visible(name, MAX_QUOTE)} again, the first is at line {first}"
                raise _fault(item, text)
            lines[name] = item.line
            collected.add(item.value, name)
            # when the kubelet reported a condition; of whole Nodes only
            conditions = objects(part(item.value, "status").get("conditions"))
            times = (condition.get("lastHeartbeatTime") for condition in conditions)
            texts = (time for time in times if isinstance(time, str) and _UTC.fullmatch(time))
            heartbeat = max(heartbeat, *texts, "")
    if not collected.total:
        raise Malformed(f"{source}: no Node in it")
    known = [collected.newest]
    with suppress(ValueError):
        known.append(parse_time(heartbeat))
    return collected.fleet(source, min(max(filter(None, known), default=clock), clock))


def _require(item: Item, kinds: frozenset[str]) -> None:
    kind = item.value.get("kind", "List")
    if not isinstance(kind, str) or kind not in kinds:
        raise _fault(item, f"no Node: its kind is {visible(ascii(kind), MAX_QUOTE)}")


def _fault(item: Item, text: str) -> Malformed:
    return Malformed(f"line {item.line}, column {item.column}: {text}")


@contextmanager
def _opened(path: str, source: str) -> Iterator[TextIO]:
    """Open the text; every error names it."""
    try:
        if path == STDIN:
            yield TextIOWrapper(sys.stdin.buffer, "utf-8-sig")
        else:
            with open(path, encoding="utf-8-sig") as file:
                yield file
    except Malformed as error:
        raise Malformed(f"{source}: {error}") from error
    except UnicodeDecodeError as error:
        raise Malformed(f"{source}: no text in UTF-8: {error.reason}") from error
    except OSError as error:
        raise Unavailable(f"{source}: {error.strerror or error}") from error
