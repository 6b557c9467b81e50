"""Topology files of ibdm (ibdm-topo-file(1)), as ibdiagnet and UFM write them: `master.topo`.

    MQM8700 sw-01
       P2 -4x-50G-> HCA_1 gpu-017 mlx5_0/P1

A section begins with the type and the name of a system; each line below it is a cable: a local
port, its width and the speed of a lane, the type, name and port of the far system. Cables between
two systems of the file occur in both sections.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent.errors import Malformed
from agent.plans.cables import Cables, quoted
from agent.plans.model import Cable, Place
from agent.plans.ports import panel_end
from agent.plans.rates import LANES, lanes

if TYPE_CHECKING:
    from agent.plans.model import Plan
    from agent.plans.source import Source

KIND = "topo"
_CABLE = re.compile(
    r"(?P<port>\S+)\s+(?:-(?P<width>\d{1,2})x)?(?:-(?P<speed>[\w.]{1,8}))?->\s+"
    r"(?P<type>\S+)\s+(?P<node>\S+)\s+(?P<far>\S+)"
)
_SYSTEM = re.compile(r"(?P<type>\S+)\s+(?P<node>\S+)(?:\s+CFG:.*)?")
_SPEED = re.compile(r"(\d{1,3}(?:\.\d)?)G?")


def recognizes(source: Source) -> bool:
    """Return True if the first lines are a system and one of its cables."""
    lines = [line for line in source.head.splitlines() if _content(line)][:2]
    return len(lines) == 2 and bool(
        _SYSTEM.fullmatch(_content(lines[0])) and _CABLE.fullmatch(_content(lines[1]))
    )


def read(source: Source) -> list[Plan]:
    """Return the plan of a topology file."""
    cables = Cables(source.place, mirrored=True)
    system: re.Match[str] | None = None
    for row, line in source.lines():
        text = _content(line)
        if match := _CABLE.fullmatch(text):
            cables.add(_cable(match, system, Place(source.file, None, row)))
        elif text:
            system = _system(text, Place(source.file, None, row))
    return [cables.whole(KIND, source.notes)]


def _system(text: str, place: Place) -> re.Match[str]:
    system = _SYSTEM.fullmatch(text)
    if not system or "->" in text:
        raise Malformed(f"{place}: neither a system nor a cable: {quoted(text)}")
    return system


def _content(line: str) -> str:
    return line.partition("#")[0].strip()


def _cable(match: re.Match[str], system: re.Match[str] | None, place: Place) -> Cable:
    if system is None:
        raise Malformed(f"{place}: a cable before the first system")
    ends = (system["node"], match["port"]), (match["node"], match["far"])
    a, b = (panel_end(node, port) for node, port in ends)
    fields = {f"{system['node']} type": system["type"], f"{match['node']} type": match["type"]}
    return Cable(a, b, place, _rate(match["width"], match["speed"]), None, fields)


def _rate(width: str | None, speed: str | None) -> float | None:
    if not width or not speed:
        return None
    number = _SPEED.fullmatch(speed)
    return lanes(int(width), float(number[1]) if number else LANES.get(speed.upper()))
