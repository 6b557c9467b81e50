"""Nodes of the API server: the metadata of all of them, page by page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.errors import Unavailable
from agent.fleet.collect import Collected, name_of
from agent.kube.answers import Kube, one_line
from agent.kube.listing import pages

if TYPE_CHECKING:
    from agent.fleet.collect import Selection
    from agent.fleet.model import Fleet

GLOB = frozenset("*?[")


def read_cluster(kube: Kube, selector: str, selection: Selection, clock: float) -> Fleet:
    """List the Nodes; raises Unavailable unless all of them could be listed."""
    found, server = Collected(selection, clock), ""
    for page in pages(kube, selector, _only(selection.names)):
        server = one_line(page.server)
        if page.is_first:
            found = Collected(selection, clock)
        for number, node in enumerate(page.nodes, 1):
            left = None if page.left is None else page.left + len(page.nodes) - number
            found.add(dict(node), name_of(node) or "", left=left)
    if not found.total:
        selected = " that --selector and --node select" if selector or selection.names else ""
        raise Unavailable(f"{server}: no Nodes{selected}")
    return found.fleet(server, clock)


def _only(names: tuple[str, ...]) -> str | None:
    """Return the only name that is no glob: the API server selects its Node."""
    return names[0] if len(names) == 1 and not GLOB.intersection(names[0]) else None
