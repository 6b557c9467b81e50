r"""The wiring as a graph in DOT: `"leaf":"port" -- "node":"interface"`.

https://graphviz.org/doc/info/lang.html. Every ID is quoted; `\"` is the only escape within one,
and `plain` leaves backslashes in pairs only, so that none is in front of the closing quote. ptmd
and `verify --plan` read the same form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.fleet.exports.exported import Exported, commented, joined
from agent.fleet.exports.wiring import plain, wiring

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agent.fleet.exports.wiring import Link, Wiring
    from agent.fleet.model import Fleet
    from agent.labels.table import Naming


def graph(fleet: Fleet, _naming: Naming) -> Exported:
    """Return an undirected graph of switches and nodes."""
    found = wiring(fleet)
    if not found.links:
        return Exported("", found.notes)
    head = commented(found.notes, "//")
    return Exported(head + joined(_lines(found)), found.notes)


def _lines(found: Wiring) -> Iterator[str]:
    yield "graph wiring {"
    yield "  rankdir=TB"
    for name in found.switches.values():
        yield f"  {_id(name)} [shape=box]"
    for node in found.nodes:
        yield f"  {_id(node.name)} [shape=ellipse]"
    for link in found.links:
        yield f"  {_edge(link, found.switches)}"
    yield "}"


def _edge(link: Link, names: Mapping[str, str]) -> str:
    switch, node = _id(names[link.end.switch]), _id(link.node.name)
    far, near = _id(link.end.port or "?"), _id(link.port.interface)
    rate = f" [rate={_id(link.rate)}]" if link.rate else ""
    return f"{switch}:{far} -- {node}:{near}{rate}"


def _id(text: str) -> str:
    escaped = plain(text).replace('"', '\\"')
    return f'"{escaped}"'
