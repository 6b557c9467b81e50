"""Topologies in JSON: NVIDIA AIR and spcx-gen (the reference generator of Spectrum-X).

    {"nodes": [{"name": "gpu-017", "role": "host"}],
     "links": [[{"node": "leaf01", "interface": "swp1s0"},
                {"node": "gpu-017", "interface": "eth_p0_r0"}]]}

An export of AIR has both in `content`, its nodes in a map by name, and a text (`"exit"`) for an end
outside the topology. Plain values of an end, also those in its `attributes`, become fields of the
cable: `leaf01 rail` for the attribute `rail` of the end at node leaf01.
"""

from __future__ import annotations

from typing import Any

from agent.errors import Malformed
from agent.plans.cables import Cables, quoted
from agent.plans.model import NO_FIELDS, Cable, End, Place, Plan
from agent.plans.source import Source

KIND = "links"
HOSTS = frozenset({"host", "server"})  # values of `role`, `function`


def recognizes(source: Source) -> bool:
    """Return True for JSON with links of two ends."""
    return source.looks_like_json and isinstance(_content(source.json).get("links"), list)


def read(source: Source) -> list[Plan]:
    """Return the plan of a topology."""
    content = _content(source.json)
    links, nodes = content.get("links"), content.get("nodes")
    if not isinstance(links, list):
        raise Malformed(f"{source.file}: no list `links`")
    if isinstance(nodes, list):
        named = [(node.get("name"), node) for node in nodes if isinstance(node, dict)]
    else:
        named = [*nodes.items()] if isinstance(nodes, dict) else []
    hosts = {
        name
        for name, node in named
        if isinstance(name, str)
        and isinstance(node, dict)
        and str(node.get("role") or node.get("function") or "").lower() in HOSTS
    }
    cables = Cables(source.place)
    for number, link in enumerate(links, 1):
        place = Place(source.file, None, number)
        if not isinstance(link, list) or len(link) != 2:
            raise Malformed(f"{place}: no pair of ends")
        if any(isinstance(end, str) for end in link):
            cables.skip("without a far end", place)
            continue
        for end in link:
            names = [isinstance(end, dict) and end.get(key) for key in ("node", "interface")]
            if not all(isinstance(name, str) and name.strip() for name in names):
                raise Malformed(f"{place}: an end without node and interface")
        a, b = (End(end["node"].strip(), end["interface"].strip()) for end in link)
        if hosts.issuperset((a.node, b.node)):
            raise Malformed(f"{place}: both ends are hosts: {quoted(a.node)}, {quoted(b.node)}")
        fields = _fields(link[0], a.node) | _fields(link[1], b.node)
        cables.add(Cable(a, b, place, None, None, fields or NO_FIELDS))
    return [cables.whole(KIND, source.notes)]


def _content(document: Any) -> dict[str, Any]:
    content = document.get("content", document) if isinstance(document, dict) else None
    return content if isinstance(content, dict) else {}


def _fields(end: dict[str, Any], node: str) -> dict[str, str]:
    attributes = end.get("attributes")
    values = end | (attributes if isinstance(attributes, dict) else {})
    return {
        f"{node} {key}": str(value)
        for key, value in values.items()
        if key not in {"node", "interface"} and isinstance(value, (str, int, float))
    }
