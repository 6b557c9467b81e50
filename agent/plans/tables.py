"""Plans in tables: the sheets of a workbook, or one CSV file."""

from __future__ import annotations

from typing import TYPE_CHECKING
from warnings import catch_warnings, simplefilter

from agent.errors import Malformed
from agent.plans import csv_file, sheets, xlsx
from agent.plans.cables import quoted
from agent.plans.places import placed, places

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.plans.model import Plan
    from agent.plans.places import Location
    from agent.plans.source import Source


def recognizes(source: Source) -> bool:
    """Return True for a workbook, and for a CSV file with a header."""
    return xlsx.is_workbook(source) or csv_file.separator(source) is not None


def read(source: Source) -> list[Plan]:
    """Return a plan for each sheet with cables; raises Malformed if there is none."""
    with catch_warnings():
        simplefilter("ignore")  # openpyxl warns of styles and extensions that it does not know
        return _plans(source)


def _plans(source: Source) -> list[Plan]:
    if xlsx.is_workbook(source):
        tables, notes = xlsx.tables(source)
    else:
        tables, notes = [csv_file.table(source)], list(source.notes)
    found = [(table, sheets.plan_of(table)) for table in tables]
    plans = [plan for _, plan in found if plan and plan.cables]
    if not plans:
        raise _without_cables(source, found, notes)
    located = _located([table for table, plan in found if plan is None], notes)
    first, *others = (placed(plan, located) for plan in plans)
    return [first._replace(notes=(*notes, *first.notes)), *others]


def _located(tables: Iterable[sheets.Table], notes: list[str]) -> dict[str, Location]:
    """Return the places of the sheets of nodes, and note what each sheet is."""
    found: dict[str, Location] = {}
    for table in tables:
        of_sheet = places(table)
        found |= of_sheet
        what = "gives the racks of nodes" if of_sheet else "has no header of cables: skipped"
        notes.append(f"sheet {quoted(table.place.sheet)} {what}")
    return found


def _without_cables(
    source: Source, found: list[tuple[sheets.Table, Plan | None]], notes: list[str]
) -> Malformed:
    """Return the error for a file without cables."""
    for table, plan in found:
        if plan is not None:
            reasons = "; ".join(plan.notes) or "no row below the header"
            return Malformed(f"{table.place}: no cables: {reasons}")
    if found:
        return sheets.without_header(found[0][0])
    return Malformed(f"{source.file}: no sheet to read: {'; '.join(notes)}")
