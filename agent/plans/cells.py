"""Names in the cells of a table that are not those that somebody typed.

A spreadsheet program takes the split port `1/2` for the second of January and `1:2` for a time, and
puts an error in place of a reference that is lost. Text from a web page has spaces that do not
break, or characters without width: such a name looks like another one and is not equal to it.
"""

from __future__ import annotations

import re
from functools import lru_cache

from agent.plans.cables import quoted

MAX_NAME = 255  # characters; what LLDP transmits of a name (IEEE Std 802.1AB-2016, 8.5)
# 1/2/26 is a date, too, but also a port of a chassis.
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_DATE = re.compile(
    rf"\d{{4}}-\d\d-\d\d(?:[ T]\d\d:\d\d:\d\d)?|\d{{1,2}}:\d\d:\d\d"
    rf"|\d{{1,2}}[./]\d{{1,2}}[./](?:19|20)\d\d|{_MONTH}[- ]\d\d"
    rf"|\d{{1,2}}[-. ]{{1,2}}{_MONTH}(?:[-. ](?:19|20)?\d\d)?"
)
ERRORS = frozenset({"#N/A", "#REF!", "#VALUE!", "#NAME?", "#DIV/0!", "#NULL!", "#NUM!"})


def are_plain(names: list[str]) -> bool:
    """Return True if none of the names has a fault but a date."""
    joined = "".join(names)
    return joined.isprintable() and len(joined) <= MAX_NAME and ERRORS.isdisjoint(names)


def fault(name: str) -> str | None:
    """Return why a name cannot have been meant; None if it can."""
    if name in ERRORS:
        return name
    if len(name) > MAX_NAME:
        return f"more than {MAX_NAME} characters"
    if not name.isprintable():
        what = "a line break" if "\n" in name else "a character that does not print"
        return f"{what} in {quoted(name)}"
    return None


@lru_cache(8192)
def date_fault(port: str) -> str | None:
    """Return why a port cannot have been meant: it is a date or a time; None if it is none."""
    if not _DATE.fullmatch(port):
        return None
    return f"the date {quoted(port)}: a port such as 1/2 needs a column formatted as text"
