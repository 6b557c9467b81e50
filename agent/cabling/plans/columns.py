"""The columns of our own CSV: the table from which its readers and writers derive.

Each row names a column of our CSV and of --columns, the end of the cable that it describes, and the
field of `End` or `PlanCable` that holds it. The titles are those of the same field in other tables,
in the form of `headers.key`, without the word for a side.

The one parser of rates, as `ports/N/rate` of sysfs counts them, is here: also of the labels
`speed.expected` and `speed.current`, and of InfiniBand dumps. It assumes no unit, but where the
format of a file says what a bare number counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

from agent.cabling.plans.model import IGNORE, LINK_STATE_ONLY, End, FilePlace, quoted
from agent.errors import Malformed

MARKS = (IGNORE, LINK_STATE_ONLY)
_RATE = re.compile(
    r"(\d{1,9}(?:\.\d{1,6})?)(?: ?(m|g|t)(?:b|bit|bits|be|bps|b/|b/s|bit/s|bps/s|b/sec)?)?",
    re.ASCII | re.IGNORECASE,
)
MAX_RATE = 1e9  # Gb/s; what has more digits is no rate
_SCALE = {"m": 0.001, "g": 1.0, "t": 1000.0}
_LINK = re.compile(r"(\d{1,2})x ?([a-z]{3}(?:10)?)", re.IGNORECASE)
# The name of a lane's speed (IBTA vol. 1, 14.2.5.6), the signaling rate, which iblinkinfo prints,
# and Gb/s as the kernel counts them.
SPEEDS = (
    ("SDR", "2.5", 2.5),
    ("DDR", "5.0", 5.0),
    ("QDR", "10.0", 10.0),
    ("FDR10", "10.3125", 10.0),
    ("FDR", "14.0625", 14.0),
    ("EDR", "25.78125", 25.0),
    ("HDR", "53.125", 50.0),
    ("NDR", "106.25", 100.0),
    ("XDR", "212.5", 200.0),
)
LANES = {name: gbps for name, _, gbps in SPEEDS}
SIGNALING = {text: gbps for _, text, gbps in SPEEDS}

NEAR, FAR = 0, 1  # sides: the end at the node, the other end
SidedField = tuple[int | None, str]  # side and field of a column

# Text, place and the unit of a bare number to the value; None for text that is no such value.
Parse = Callable[[str, FilePlace, str], object]


@lru_cache(maxsize=256)
def rate(text: str, bare: str = "") -> float | None:
    """Parse `400G`, `100 Gb/s`, `1.6T`, `100000M`, `4xNDR` into Gb/s; None for anything else.

    `bare` is the unit of a number without one: G in our own CSV, M in `BandWidth` of SONiC's
    links.csv.
    """
    text = text.strip()
    if match := _RATE.fullmatch(text):
        unit = (match[2] or bare).lower()
        gbps = float(match[1]) * _SCALE[unit] if unit else MAX_RATE
        return gbps if gbps < MAX_RATE else None
    if match := _LINK.fullmatch(text):
        return lanes(int(match[1]), LANES.get(match[2].upper()))
    return None


def lanes(count: int, speed: float | None) -> float | None:
    """Return the rate of a link; 4 lanes of FDR are 56."""
    return count * speed if speed else None


def mark_of(text: str | None, place: FilePlace) -> str | None:
    """Parse a mark; None for an empty one. Raises Malformed for an unknown one."""
    word = (text or "").strip().lower().replace("_", "-").replace(" ", "-")
    if word and word not in MARKS:
        raise Malformed(f"{place}: mark {quoted(text)} is none of {', '.join(MARKS)}")
    return word or None


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
