"""Golden dumps: what ibnetdiscover(8) or iblinkinfo(8) of infiniband-diags printed on a good day.

    Switch 65 "S-b0cf0e0300d66c80"   # "MF0;L90.1.3:MQM9700/U1" enhanced port 0 lid 1 lmc 0
    [3] "H-b83fd20300aabb00"[1](b83fd20300aabb00)   # "node005 mlx5_0" lid 22 4xNDR

    SW  1  3 0xb0cf0e0300d66c80 4x NDR - CA 22  1 0xb83fd20300aabb00 ( 'L90' - 'node005 mlx5_0' )

    0xb0cf0e0300d66c80 "MF0;L90.1.3:MQM9700/U1" 1 3[  ] ==( 4X 106.25 Gbps Active/ LinkUp)==> ...

Read are ibnetdiscover's topology, with and without --group, its report of ports (-p), and
iblinkinfo, with and without --line. Every cable between two nodes of a dump occurs at both of its
ends. Ports that are down are no cables. Nodes are named as in labels: a switch by its description,
else by its node GUID.

A dump may be a log of a terminal: lines above the first and below the last one of the dump are left
out if they are a shell's prompt with its command, or what PuTTY and script(1) write. Any other line
that is none of the format refuses the file, since a part of the dump may be lost with it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from agent.cabling.plans.columns import SIGNALING, lanes, rate
from agent.cabling.plans.model import Cables, End, Plan, PlanCable, quoted
from agent.cabling.plans.source import PlanContent
from agent.errors import Malformed
from agent.node_description import switch_name
from agent.text import many

DumpLine = tuple[int, str, re.Match[str]]  # row, name of the pattern, match

# ibnetdiscover: a node, and a cable of it; logs of terminals lose the tabs between their parts
_NODE = re.compile(
    r'(?P<type>Switch|Ca|Rt)\s*(?P<ports>\d+)\s*"[SHR]-(?P<guid>[0-9a-f]{16})"'
    r'[^#]*# "(?P<text>.*)".*'
)
_PORT = re.compile(
    r"\[(?P<port>\d{1,3})\](?:\[[^]]*\])?(?:\([0-9a-f]+\))?\s*"
    r'"(?P<type>[SHR])-(?P<guid>[0-9a-f]{16})"\[(?P<far>\d{1,3})\](?:\[[^]]*\])?(?:\([0-9a-f]+\))?'
    r'\s*#[^"]*"(?P<text>.*)"(?: lid -?\d+)?(?: (?P<rate>\d+x\w+))?\s*'
)
# ibnetdiscover -p: a port with its far end, or with its own description alone
_REPORT = re.compile(
    r"(?P<type>CA|SW|RT)\s+-?\d+\s+(?P<port>\d+)\s+0x(?P<guid>[0-9a-f]{16})\s+(?P<rate>\S+ +\S+)\s+"
    r"(?:- +(?P<far_type>CA|SW|RT)\s+-?\d+\s+(?P<far>\d+)\s+0x(?P<far_guid>[0-9a-f]{16})\s+"
    r"\( '(?P<text>.*)' - '(?P<far_text>.*)' \)|'.*')\s*"
)
_DISCOVERED = {"port": _PORT, "node": _NODE, "report": _REPORT}
_IGNORED = re.compile(
    r"#|vendid=|devid=|sysimgguid=|switchguid=|caguid=|rtguid=|Chassis |Non-Chassis|ibwarn: |\s*$"
)
# iblinkinfo: a node, and a cable of it: LID, port, link, LID and port of the far end
_HEADING = re.compile(r"(?P<type>Switch|CA|RT): (?:0x(?P<guid>[0-9a-f]{16}) )?(?P<text>.*):\s*")
_LINK = re.compile(
    r'\s*(?:0x(?P<guid>[0-9a-f]{16})\s+)?(?:"(?P<text>[^"]*)"\s+)?(?P<lid>-?\d+)\s+(?P<port>\d+)'
    r"\[[^]]*\]\s*==\(\s*(?P<link>[^)]*(?:\([^)]*\)[^)]*)?)\)==>\s+(?:0x(?P<far_guid>[0-9a-f]{16})\s+)?"
    r'(?:(?P<far_lid>-?\d+)\s+)?(?P<far>\d+)?\[[^]]*\]\s*"(?P<far_text>.*)"\s*\(.*'
)
_LINKED = {"link": _LINK, "node": _HEADING}
_UP = re.compile(r"(?P<width>\d+)X\s+(?P<speed>[\d.]+) Gbps.*/\s*LinkUp")
# Around a dump: `[root@mgmt ~]# ibnetdiscover`, PuTTY's `=~=~=~=`, `Script done on ...`
_AROUND = re.compile(
    r"=~=~.*|Script (?:started|done)\b.*"
    r"|(?!\[\d+\]|0x|Switch|Ca\b|CA|SW|RT|Rt\b)\S[^\"]{0,80}[#$>%](?:\s.*)?"
)


_HOST = re.compile(r"(\S+)\s+(\S+)")  # the NodeDescription that rdma-ndd writes
_switch_name = lru_cache(maxsize=4096)(switch_name)


class Peer(NamedTuple):
    """One end of a cable, as a dump describes it."""

    is_switch: bool
    text: str  # NodeDescription
    guid: str  # of the node; in iblinkinfo and -p a host has that of its port
    port: str

    def end(self, several: Iterable[str]) -> End:
        """Return the end; `several` are the descriptions of HCAs with several ports.

        A switch is named by its description, else by its node GUID.
        """
        if self.is_switch:
            return End(_switch_name(self.text) or self.guid, self.port)
        return host_end(self.text, self.guid, self.port, is_one_of_several=self.text in several)


DumpLink = tuple[int, Peer, Peer, float | None]  # row, both ends, Gb/s: as one of them lists it


def is_ibnetdiscover(source: PlanContent) -> bool:
    """Return True for a topology or a report of ibnetdiscover."""
    lines = [line.removeprefix("\ufeff") for line in source.head.splitlines()]
    return any(_NODE.fullmatch(line) or _REPORT.fullmatch(line) for line in lines)


def is_iblinkinfo(source: PlanContent) -> bool:
    """Return True for the links of iblinkinfo."""
    return "]  ==(" in source.head or "] ==(" in source.head


def read_ibnetdiscover(source: PlanContent) -> list[Plan]:
    """Return the plan of a topology or of a report of ibnetdiscover."""
    several = set[str]()
    return _plan(source, "ibnetdiscover", [*discovered(source, several)], several)


def read_iblinkinfo(source: PlanContent) -> list[Plan]:
    """Return the plan of the links of iblinkinfo."""
    lines: list[tuple[int, re.Match[str] | None, re.Match[str]]] = []  # row, heading, link
    heading = None
    for row, name, match in _lines(source, _LINKED):
        if name == "node":
            heading = match
            continue
        if not heading and match["text"] is None:
            raise Malformed(f"{source.place.at(row)}: a link before the first node")
        lines.append((row, heading, match))
    # The nodes by LID: a switch has one for all its ports, an HCA one for each.
    ports: dict[str, set[str]] = {}
    for _, _, match in lines:
        ports.setdefault(match["lid"], set()).add(match["port"])
    nodes: dict[str, Peer] = {}
    for _, heading, match in lines:
        is_switch, text = len(ports[match["lid"]]) > 1, match["text"]
        if heading:
            is_switch, text = heading["type"] == "Switch", heading["text"]
        guid = match["guid"] or (heading and heading["guid"]) or ""
        nodes[match["lid"]] = Peer(is_switch, text.strip(), guid, "")
    links: list[DumpLink] = []
    for row, _, match in lines:
        up = _UP.match(match["link"])
        if not (up and match["far"]):
            continue
        far = nodes.get(match["far_lid"])
        if far is None:  # not listed itself
            text = match["far_text"].strip()
            is_switch = not is_host(text) or switch_name(text) != text
            far = Peer(is_switch, text, match["far_guid"] or "", "")
        near = nodes[match["lid"]]._replace(port=match["port"])
        gbps = lanes(int(up["width"]), SIGNALING.get(up["speed"]))
        links.append((row, near, far._replace(port=match["far"]), gbps))
    return _plan(source, "iblinkinfo", links, set())


def _plan(source: PlanContent, kind: str, links: list[DumpLink], several: set[str]) -> list[Plan]:
    """Return the plan; `several` are the descriptions of HCAs with several ports."""
    peers = [peer for _, near, far, _ in links for peer in (near, far)]
    several |= {peer.text for peer in peers if not peer.is_switch and int(peer.port) > 1}
    switches = {(peer.end(()).node, peer.guid) for peer in peers if peer.is_switch}
    own = {name for name, count in Counter(name for name, _ in switches).items() if count == 1}
    cables = Cables(source.place, mirrored=True)
    for row, near, far, gbps in links:
        place = source.place.at(row)
        a, b = near.end(several), far.end(several)
        if b.node:
            are_own = {a.node, b.node} <= own
            is_trunk = (are_own or None) if near.is_switch and far.is_switch else False
            cables.add(PlanCable(a, b, place, gbps, is_trunk=is_trunk))
        else:
            cables.skip("the far end has neither name nor GUID", place)
    return [cables.whole(kind, source.notes)]


def _lines(source: PlanContent, patterns: dict[str, re.Pattern[str]]) -> Iterator[DumpLine]:
    """Yield the lines of a dump; a note of the source counts those around it.

    Raises Malformed for a line within it that is none of the format.
    """
    around = list[int]()  # rows
    has_begun = False
    below: tuple[int, str] | None = None  # the first line since the last one of the dump
    for row, line in source.lines():
        text = line.removeprefix("\ufeff")
        matches = ((name, pattern.fullmatch(text)) for name, pattern in patterns.items())
        name, match = next(((name, match) for name, match in matches if match), ("", None))
        if match:
            if below:
                raise _unknown(source, *below)
            has_begun = True
            yield row, name, match
        elif not _IGNORED.match(text):
            if not _AROUND.fullmatch(text):
                raise _unknown(source, row, text)
            around.append(row)
            below = below or ((row, text) if has_begun else None)
    if around:
        what = f"{many(len(around), 'line')} around the dump left out"
        source.notes = (*source.notes, f"{what} (the first: row {around[0]})")


def _unknown(source: PlanContent, row: int, line: str) -> Malformed:
    return Malformed(f"{source.place.at(row)}: not a line of this format: {quoted(line)}")


def discovered(source: PlanContent, several: set[str]) -> Iterator[DumpLink]:
    """Yield the links of a topology or of a report of ibnetdiscover.

    Adds the descriptions of HCAs with several ports to `several`.
    """
    node: re.Match[str] | None = None
    for row, name, match in _lines(source, _DISCOVERED):
        if name == "node":
            node = match
            if match["type"] == "Ca" and int(match["ports"]) > 1:
                several.add(match["text"].strip())
        elif name == "port":
            if node is None:
                raise Malformed(f"{source.place.at(row)}: a port before the first node")
            near = Peer(node["type"] == "Switch", node["text"].strip(), node["guid"], match["port"])
            far = Peer(match["type"] == "S", match["text"].strip(), match["guid"], match["far"])
            yield row, near, far, rate(match["rate"] or "")
        elif match["far"]:
            near = Peer(match["type"] == "SW", match["text"].strip(), match["guid"], match["port"])
            text = match["far_text"].strip()
            far = Peer(match["far_type"] == "SW", text, match["far_guid"], match["far"])
            yield row, near, far, rate(match["rate"])


# Names of InfiniBand nodes and ports, as dumps and NDT files spell them


def described_end(end: End) -> End:
    """Return the end `gpu-017 mlx5_0`, `Port 1` of a UFM network definition (NDT).

    The port of a host may be `gpu-017 ibp11s0f0`.
    """
    description = end.node
    port = end.interface.removeprefix(f"{description} ")
    number = port.lower().removeprefix("port").strip()
    number = number if number.isdigit() else port
    node = switch_name(description)
    if is_host(description) and node == description and number.isdigit():
        node, number = host_end(description, "", number).port
    return end._replace(node=node or description, interface=number, port_name=port)


def host_end(description: str, guid: str, port: str, *, is_one_of_several: bool = False) -> End:
    """Return the end at a host: `gpu-017 mlx5_0` names both, another description neither.

    The name of an HCA with one port is that of its port; each of several has its number, as in
    labels: `mlx5_0-1`.
    """
    match = _HOST.fullmatch(description)
    if not match:
        return End(guid, port)
    is_alone = int(port) == 1 and not is_one_of_several
    return End(match[1], match[2] if is_alone else f"{match[2]}-{port}")


def is_host(description: str) -> bool:
    """Return True for a description of the form `gpu-017 mlx5_0`."""
    return _HOST.fullmatch(description) is not None
