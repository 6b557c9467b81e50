"""The sheet of nodes in a workbook: rack and unit of the ends whose own sheet has none.

    Node Name,Type,Rack,U

Invariant: a node with two places has none, and neither has a sheet with two columns of nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.plans.headers import MAX_HEADER_ROW, WORDS, key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent.plans.model import End, Plan
    from agent.plans.sheets import Table

    Location = tuple[str | None, str | None]  # rack, unit

COLUMNS = ("node", "rack", "unit")


def places(table: Table) -> dict[str, Location]:
    """Return the places of a sheet of nodes by the node's name; none for any other sheet."""
    rows = iter(table.rows)
    for number, row in rows:
        if number > MAX_HEADER_ROW:
            break
        if columns := _columns(row):
            return _read((cells for _, cells in rows), columns)
    return {}


def placed(plan: Plan, found: dict[str, Location]) -> Plan:
    """Return the plan with the places of ends that have no rack."""
    cables = (c._replace(a=_end(c.a, found), b=_end(c.b, found)) for c in plan.cables)
    return plan._replace(cables=tuple(cables)) if found else plan


def _columns(row: Sequence[str]) -> dict[str, int] | None:
    """Return the columns of a header of nodes, None for another row."""
    keys = [key(cell) for cell in row]
    at = {name: [i for i, k in enumerate(keys) if k in WORDS[name]] for name in COLUMNS}
    if not at["node"] or not at["rack"] or max(map(len, at.values())) > 1:
        return None
    return {name: columns[0] for name, columns in at.items() if columns}


def _read(rows: Iterable[Sequence[str]], columns: dict[str, int]) -> dict[str, Location]:
    found: dict[str, Location] = {}
    for row in rows:
        node, location = _location(row, columns)
        if found.setdefault(node, location) != location:
            found[node] = None, None
    return found


def _location(row: Sequence[str], columns: dict[str, int]) -> tuple[str, Location]:
    """Return the node of a row in lower case, and its place."""
    cells = {name: row[i].strip() if i < len(row) else "" for name, i in columns.items()}
    return cells["node"].lower(), (cells["rack"] or None, cells.get("unit") or None)


def _end(end: End, found: dict[str, Location]) -> End:
    if end.rack or end.unit:
        return end
    rack, unit = found.get(end.node.lower(), (None, None))
    return end._replace(rack=rack, unit=unit)
