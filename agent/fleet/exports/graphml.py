"""The wiring as GraphML 1.0, for NetworkX, igraph, Gephi, yEd and their like.

http://graphml.graphdrawing.org/. The IDs are `node:` and `switch:` with the name or identity, so
that no node is taken for a switch of its name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent.fleet.exports.exported import Exported, joined
from agent.fleet.exports.wiring import plain, wiring

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.fleet.exports.wiring import Link, Wiring
    from agent.fleet.model import Fleet
    from agent.labels.table import Naming

KEYS = {
    "node": ("kind", "name", "leaf_group", "accelerator"),
    "edge": ("interface", "pci", "port", "port_id", "rate"),
}
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})


def graphml(fleet: Fleet, _naming: Naming) -> Exported:
    """Return an undirected graph of switches and nodes, a cable an edge."""
    found = wiring(fleet)
    if not found.links:
        return Exported("", found.notes)
    return Exported(joined(_lines(found)), found.notes)


def _lines(found: Wiring) -> Iterator[str]:
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield from (f"<!-- {_comment(note)} -->" for note in found.notes)
    yield '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
    for kind, names in KEYS.items():
        for name in names:
            yield f'  <key id="{name}" for="{kind}" attr.name="{name}" attr.type="string"/>'
    yield '  <graph id="wiring" edgedefault="undirected">'
    for switch, name in found.switches.items():
        yield from _element("node", {"id": f"switch:{switch}"}, kind="switch", name=name)
    for node in found.nodes:
        facts = {"leaf_group": node.leaf_group, "accelerator": node.accelerator}
        yield from _element(
            "node", {"id": f"node:{node.name}"}, kind="node", name=node.name, **facts
        )
    for link in found.links:
        yield from _edge(link)
    yield "  </graph>"
    yield "</graphml>"


def _edge(link: Link) -> Iterator[str]:
    node, port, end = link
    ends = {
        "id": f"{node.name}/{port.interface}",
        "source": f"switch:{end.switch}",
        "target": f"node:{node.name}",
    }
    near = {"interface": port.interface, "pci": port.pci}
    far = {"port": end.port, "port_id": end.port_id, "rate": link.rate}
    return _element("edge", ends, **near, **far)


def _element(tag: str, attributes: dict[str, str], **data: str | None) -> Iterator[str]:
    shown = "".join(f' {name}="{_text(value)}"' for name, value in attributes.items())
    yield f"    <{tag}{shown}>"
    for name, value in data.items():
        if value is not None:
            yield f'      <data key="{name}">{_text(value)}</data>'
    yield f"    </{tag}>"


def _text(text: str) -> str:
    return plain(text).translate(_ENTITIES)


def _comment(note: str) -> str:
    """Return a note without two dashes in a row, which end a comment."""
    return re.sub("-(?=-)", "- ", note)
