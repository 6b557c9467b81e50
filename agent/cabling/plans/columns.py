"""The columns of our own CSV: the table from which its readers and writers derive.

Each row names a column of our CSV and of --columns, the end of the cable that it describes, and the
field of `End` or `PlanCable` that holds it. The titles are those of the same field in other tables,
in the form of `headers.key`, without the word for a side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from agent.cabling.plans.cables import mark_of
from agent.cabling.plans.model import End, FilePlace
from agent.cabling.plans.rates import rate

NEAR, FAR = 0, 1  # sides: the end at the node, the other end
SidedField = tuple[int | None, str]  # side and field of a column

# Text, place and the unit of a bare number to the value; None for text that is no such value.
Parse = Callable[[str, FilePlace, str], object]


class PlanColumn(NamedTuple):
    """One column."""

    name: str
    side: int | None  # NEAR or FAR; None: of the cable
    field: str
    titles: str = ""  # of both sides, so one side has them
    parse: Parse = lambda text, _place, _unit: text  # of the cable
    values: str = ""  # its values in words


# In every file that we write.
NAMES = (
    PlanColumn(
        "node",
        NEAR,
        "node",
        "node nodename name device devicename host hostname system systemname switch server",
    ),
    PlanColumn("interface", NEAR, "interface", "port hcaport hca interface nic"),
    PlanColumn("device", FAR, "node"),
    PlanColumn("port-id", FAR, "interface"),
    PlanColumn("port-name", FAR, "port_name", "portname portdescription"),
)
# In a file whose cables have them. Those of an end are facts of a finding.
OTHERS = (
    PlanColumn(
        "rate",
        None,
        "rate_gbps",
        "bandwidth speed linkspeed rate portspeed",
        lambda text, _place, unit: rate(text, unit),
        "rate such as 400G",
    ),
    PlanColumn("mark", None, "mark", "mark", lambda text, place, _unit: mark_of(text, place)),
    PlanColumn("rack", NEAR, "rack", "rack rackname cabinet"),
    PlanColumn("unit", NEAR, "unit", "u ru unit rackunit uheight"),
    PlanColumn("far-rack", FAR, "rack"),
    PlanColumn("far-unit", FAR, "unit"),
)
COLUMNS = (*NAMES, *OTHERS)

OF_CABLE = tuple(column for column in COLUMNS if column.side is None)
FIELDS: dict[str, SidedField] = {column.name: (column.side, column.field) for column in COLUMNS}
FACTS = {column.name: (column.side, column.field) for column in OTHERS if column.side is not None}
PLACE = tuple(field for side, field in FACTS.values() if side == NEAR)  # of a node in the hall
TITLES = {column.field: column.titles.split() for column in COLUMNS if column.titles}


def of_side(side: int, at: Mapping[SidedField, int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Return what takes the fields of an end from a row, behind whose last cell is None."""
    return itemgetter(*[at.get((side, field), -1) for field in End._fields])
