"""The data model of a plan: cables between two ends, in any order.

Invariants:
- a text is that of the file, without white space at its ends; None is "not given", never "";
- nothing here compares names: agent/cabling/findings/names.py does.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

IGNORE, LINK_STATE_ONLY = "ignore", "link-state-only"  # marks of a cable
NO_FIELDS: Mapping[str, str] = MappingProxyType({})


class FilePlace(NamedTuple):
    """Where a fact stands, for messages: `plan.xlsx, sheet Links, row 17`."""

    file: str
    sheet: str | None = None
    row: int | None = None  # counted from 1, the header included
    column: str | None = None

    def __str__(self) -> str:
        parts = [self.file]
        parts += [f"sheet {self.sheet}"] if self.sheet else []
        parts += [f"row {self.row}"] if self.row else []
        parts += [f"column {self.column}"] if self.column else []
        return ", ".join(parts)


class End(NamedTuple):
    """One end of a cable: a port of a host or of a switch."""

    node: str  # host name, Node name, switch name or GUID
    interface: str  # RDMA device, netdev, PCI address, HCA number, rail; or the switch's port
    port_name: str | None = None  # another name of the port
    rack: str | None = None
    unit: str | None = None

    @property
    def port(self) -> tuple[str, str]:
        """Node and interface, by which two ends are one port."""
        return self.node, self.interface


class PlanCable(NamedTuple):
    """One row of a plan."""

    a: End
    b: End
    place: FilePlace
    rate_gbps: float | None = None
    mark: str | None = None  # "ignore" or "link-state-only"
    fields: Mapping[str, str] = NO_FIELDS  # all other columns, by their header
    # between two switches, as a dump says; None: several switches have the name of one of them
    is_trunk: bool | None = False


class Plan(NamedTuple):
    """The contents of one file: its kind, its cables, and labels if it is a file of labels."""

    file: str
    kind: str  # "point-to-point", "labels", ...: the name that --plan-format takes
    sheet: str | None
    cables: tuple[PlanCable, ...]
    labels: Mapping[str, str] = NO_FIELDS  # expected labels, key to value
    notes: tuple[str, ...] = ()  # one line each: what was skipped, and why

    @property
    def title(self) -> str:
        """The file, its kind and its sheet, for a note."""
        return f"{self.file}: {self.kind}" + (f", sheet {self.sheet}" if self.sheet else "")

    @property
    def placed_notes(self) -> list[str]:
        """The notes, each with the file."""
        return [
            note if note.startswith(self.file) else f"{self.file}: {note}" for note in self.notes
        ]
