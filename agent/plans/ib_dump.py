"""Golden dumps: what ibnetdiscover(8) or iblinkinfo(8) of infiniband-diags printed on a good day.

    Switch 65 "S-b0cf0e0300d66c80"   # "MF0;L90.1.3:MQM9700/U1" enhanced port 0 lid 1 lmc 0
    [3] "H-b83fd20300aabb00"[1](b83fd20300aabb00)   # "node005 mlx5_0" lid 22 4xNDR

    0xb0cf0e0300d66c80 "MF0;L90.1.3:MQM9700/U1" 1 3[  ] ==( 4X 106.25 Gbps Active/ LinkUp)==> ...

Read are ibnetdiscover's topology, with and without --group, and iblinkinfo with and without --line.
Every cable between two nodes of a dump occurs at both of its ends. Ports that are down are no
cables. Nodes are named as in labels: a switch by its description, else by its node GUID.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from agent.errors import Malformed
from agent.infiniband.node_description import switch_name
from agent.plans.cables import Cables, quoted
from agent.plans.model import Cable, End, Place
from agent.plans.ports import host_end, is_host, switch_end
from agent.plans.rates import SIGNALING, lanes, rate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent.plans.model import Plan
    from agent.plans.source import Source

# ibnetdiscover: a node, and a cable of it
_NODE = re.compile(
    r'(?P<type>Switch|Ca|Rt)\s+\d+\s+"[SHR]-(?P<guid>[0-9a-f]{16})"[^#]*# "(?P<text>.*)".*'
)
_NODES = ("Switch", "Ca", "Rt")
_PORT = re.compile(
    r"\[(?P<port>\d{1,3})\](?:\[[^]]*\])?(?:\([0-9a-f]+\))?\s*"
    r'"(?P<type>[SHR])-(?P<guid>[0-9a-f]{16})"\[(?P<far>\d{1,3})\](?:\[[^]]*\])?(?:\([0-9a-f]+\))?'
    r'\s*#[^"]*"(?P<text>.*)"(?: lid \d+)?(?: (?P<rate>\d+x\w+))?\s*'
)
_IGNORED = re.compile(
    r"(?:#|vendid=|devid=|sysimgguid=|switchguid=|caguid=|rtguid=|Chassis |Non-Chassis|$)"
)
# iblinkinfo: a node, and a cable of it: LID, port, link, LID and port of the far end
_HEADING = re.compile(r"(?P<type>Switch|CA|RT): (?:0x(?P<guid>[0-9a-f]{16}) )?(?P<text>.*):")
_LINK = re.compile(
    r'\s*(?:0x(?P<guid>[0-9a-f]{16})\s+)?(?:"(?P<text>[^"]*)"\s+)?(?P<lid>\d+)\s+(?P<port>\d+)'
    r"\[[^]]*\]\s*==\(\s*(?P<link>[^)]*(?:\([^)]*\)[^)]*)?)\)==>\s+(?:0x(?P<far_guid>[0-9a-f]{16})\s+)?"
    r'(?:(?P<far_lid>\d+)\s+)?(?P<far>\d+)?\[[^]]*\]\s*"(?P<far_text>.*)"\s*\(.*'
)
_UP = re.compile(r"(?P<width>\d+)X\s+(?P<speed>[\d.]+) Gbps.*/\s*LinkUp")


def is_ibnetdiscover(source: Source) -> bool:
    """Return True for a topology of ibnetdiscover."""
    head = source.head
    return any(_NODE.fullmatch(line) for line in head.splitlines())


def is_iblinkinfo(source: Source) -> bool:
    """Return True for the links of iblinkinfo."""
    return "]  ==(" in source.head or "] ==(" in source.head


def read_ibnetdiscover(source: Source) -> list[Plan]:
    """Return the plan of a topology of ibnetdiscover."""
    return _read(source, "ibnetdiscover", _discovered)


def read_iblinkinfo(source: Source) -> list[Plan]:
    """Return the plan of the links of iblinkinfo."""
    return _read(source, "iblinkinfo", _linked)


def _read(source: Source, kind: str, add: Callable[[Source, Cables], None]) -> list[Plan]:
    cables = Cables(source.place, mirrored=True)
    add(source, cables)
    return [cables.whole(kind, source.notes)]


def _discovered(source: Source, cables: Cables) -> None:
    node: tuple[str, str, str] | None = None
    for row, line in source.lines():
        if port := line.startswith("[") and _PORT.fullmatch(line):
            cables.add(_discovered_cable(node, port, Place(source.file, None, row)))
        elif found := line.startswith(_NODES) and _NODE.fullmatch(line):
            node = (found["type"], found["text"], found["guid"])
        elif not _IGNORED.match(line):
            raise _unknown(source.place._replace(row=row), line)


def _discovered_cable(
    node: tuple[str, str, str] | None, port: re.Match[str], place: Place
) -> Cable:
    if node is None:
        raise Malformed(f"{place}: a port before the first node")
    number, kind, guid, far, text, speed = port.groups()
    return Cable(_end(*node, number), _end(kind, text, guid, far), place, rate(speed or ""))


def _end(kind: str, text: str, guid: str, port: str) -> End:
    if kind in {"Switch", "S"}:
        return switch_end(text.strip(), guid, port)
    return host_end(text.strip(), guid, port)


class _Node(NamedTuple):
    """A node of iblinkinfo's output."""

    switch: bool
    text: str  # NodeDescription
    guid: str  # of a switch its own, else that of the port

    def end(self, port: str) -> End:
        """Return the end at one of its ports."""
        return _end("S" if self.switch else "H", self.text, self.guid, port)


class _Link(NamedTuple):
    """A line of iblinkinfo's output, and the heading above it (None with --line)."""

    row: int
    heading: re.Match[str] | None
    match: re.Match[str]


def _linked(source: Source, cables: Cables) -> None:
    links = list(_links(source))
    nodes = _nodes(links)
    for row, _, match in links:
        up = _UP.match(match["link"])
        if not up or not match["far"]:
            continue
        a = nodes[match["lid"]].end(match["port"])
        b = _far(match, nodes).end(match["far"])
        place = Place(source.file, None, row)
        if not b.node:
            cables.skip("the far end has neither name nor GUID", place)
            continue
        speed = SIGNALING.get(up["speed"])
        cables.add(Cable(a, b, place, lanes(int(up["width"]), speed)))


def _links(source: Source) -> Iterator[_Link]:
    heading = None
    for row, line in source.lines():
        if match := _LINK.fullmatch(line):
            if not heading and match["text"] is None:
                raise Malformed(f"{source.place._replace(row=row)}: a link before the first node")
            yield _Link(row, heading, match)
        elif found := _HEADING.fullmatch(line):
            heading = found
        elif line.strip() and not line.startswith("#"):
            raise _unknown(source.place._replace(row=row), line)


def _nodes(links: list[_Link]) -> dict[str, _Node]:
    """Return the nodes by LID. A switch has one for all its ports, an HCA one for each."""
    ports: dict[str, set[str]] = {}
    for link in links:
        ports.setdefault(link.match["lid"], set()).add(link.match["port"])
    nodes: dict[str, _Node] = {}
    for _, heading, match in links:
        lid = match["lid"]
        if heading:
            switch, text = heading["type"] == "Switch", heading["text"]
        else:
            switch, text = len(ports[lid]) > 1, match["text"]
        number = match["guid"] or (heading and heading["guid"]) or ""
        nodes[lid] = _Node(switch, text.strip(), number)
    return nodes


def _far(match: re.Match[str], nodes: dict[str, _Node]) -> _Node:
    """Return the node at the far end: as it is listed itself, else by its description."""
    if node := nodes.get(match["far_lid"]):
        return node
    text = match["far_text"].strip()
    switch = not is_host(text) or switch_name(text) != text
    return _Node(switch, text, match["far_guid"] or "")


def _unknown(place: Place, line: str) -> Malformed:
    return Malformed(f"{place}: not a line of this format: {quoted(line)}")
