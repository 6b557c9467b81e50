"""The wiring as CSV: one cable a row, in the form that `verify --plan` reads."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from agent.fleet.exports.exported import Exported
from agent.fleet.exports.wiring import wiring
from agent.plans.own import COLUMNS, rows_text
from agent.text import visible

if TYPE_CHECKING:
    from agent.fleet.exports.wiring import Link
    from agent.fleet.model import Fleet
    from agent.labels.table import Naming

MAX_CELL = 1000  # characters
TITLES = (*COLUMNS, "rate", "pci", "switch-id", "leaf-group", "accelerator")


def csv_rows(fleet: Fleet, _naming: Naming) -> Exported:
    """Return the table; a title row, and a row for each port with a neighbor."""
    found = wiring(fleet)
    if not found.links:
        return Exported("", found.notes)
    rows = ([visible(cell or "", MAX_CELL) for cell in _row(link)] for link in found.links)
    return Exported(rows_text(chain([TITLES], rows)), found.notes)


def _row(link: Link) -> tuple[str | None, ...]:
    node, port, end = link
    return (
        *(node.name, port.interface, end.device, end.port_id, end.port_name),
        *(link.rate, port.pci, end.id, node.leaf_group, node.accelerator),
    )
