r"""The wiring of a fleet as CSV and DOT: the cable of each port that has a neighbor.

Nodes and neighbors choose their own names, so every text here is made one printable line: what
does not print becomes an escape as in Python, and a backslash two, so that different texts stay
different.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable

from agent import encode
from agent.cabling.plans.own import COLUMNS, rows_text
from agent.encode import Naming
from agent.fleet.exports.text import Exported, commented, listed
from agent.fleet.exports.topology import Levels
from agent.fleet.model import Fleet, FleetPort, Wire, wires
from agent.kube.managed_fields import Keys
from agent.text import natural, visible

MAX_CELL = 1000  # characters
TITLES = (*COLUMNS, "rate", "pci", "switch-id", "leaf-group", "tier-1", "tier-2", "accelerator")


def csv_rows(fleet: Fleet, naming: Naming, _given: Levels = ()) -> Exported:
    """Return CSV in the form that `verify --plan` reads: a title row, and a row for each cable."""
    links, notes = _wiring(fleet)
    if not links:
        return Exported("", notes)
    rows: list[Iterable[str]] = [TITLES]
    tiers = Keys(naming).tiers
    for node, port, end in links:
        cells = [node.name, port.interface, end.device, end.port_id, end.port_name, _rate(port)]
        cells += [port.pci, end.id, node.leaf_group, *map(node.labels.get, tiers), node.accelerator]
        rows.append([visible(cell or "", MAX_CELL) for cell in cells])
    return Exported(rows_text(rows, names=True), notes)


def graph(fleet: Fleet, _naming: Naming, _given: Levels = ()) -> Exported:
    r"""Return an undirected graph in DOT, edges as `"leaf":"port" -- "node":"interface"`.

    https://graphviz.org/doc/info/lang.html. Every ID is quoted; `\"` is the only escape within
    one, and `plain` leaves backslashes in pairs only, so that none is in front of the closing
    quote. ptmd and `verify --plan` read the same form.
    """
    links, notes = _wiring(fleet)
    if not links:
        return Exported("", notes)
    # the name of each switch, in natural order; with its identity if two share the name
    names_of: dict[str, set[str]] = {}
    for link in links:
        names_of.setdefault(link.end.switch, set()).add(link.end.device)
    first = {switch: min(names, key=natural) for switch, names in names_of.items()}
    times = Counter(first.values())
    named = {
        switch: name if times[name] == 1 else f"{name} {switch}" for switch, name in first.items()
    }
    text = io.StringIO()  # the wiring has millions of lines: no list of them
    text.write(commented(notes, "//"))
    text.write("graph wiring {\n  rankdir=TB\n")
    text.writelines(f"  {_id(name)} [shape=box]\n" for name in sorted(named.values(), key=natural))
    nodes = dict.fromkeys(link.node.name for link in links)
    text.writelines(f"  {_id(name)} [shape=ellipse]\n" for name in nodes)
    for node, port, end in links:
        far = f"{_id(named[end.switch])}:{_id(end.port or '?')}"
        rate = f" [rate={_id(rated)}]" if (rated := _rate(port)) else ""
        text.write(f"  {far} -- {_id(node.name)}:{_id(port.interface)}{rate}\n")
    text.write("}\n")
    return Exported(text.getvalue(), notes)


def _rate(port: FleetPort) -> str | None:
    """Return the rate that a port counts, `400G`; None if it counts nothing."""
    return encode.gbps(port.gbps) if port.gbps else None


def _id(text: str) -> str:
    escaped = plain(text).replace('"', '\\"')
    return f'"{escaped}"'


def _wiring(fleet: Fleet) -> tuple[list[Wire], tuple[str, ...]]:
    """Return all cables, and a note on the ports without a neighbor."""
    ports = ((node.name, port) for node in fleet.nodes for port in node.ports)
    silent = [f"{name}/{port.interface}" for name, port in ports if not port.far_end]
    bare = [node.name for node in fleet.nodes if not node.ports]
    notes = [f"without a neighbor: {listed(silent, 'port')}"] if silent else []
    notes += [f"without a port: {listed(bare)}"] if bare else []
    return [*wires(fleet.nodes)], tuple(notes)


def plain(text: str) -> str:
    """Return text as one printable line, different for different texts."""
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(
        character
        if character.isprintable() and character != "\\"
        else character.encode("unicode_escape").decode()
        for character in text
    )
