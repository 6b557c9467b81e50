"""NetBox: the answer of the REST API at `/api/dcim/cables/`, with one page or a list of cables.

A cable's ends are `a_terminations` and `b_terminations` (NetBox 3.3 and later: a list of
`object_type` and `object`) or `termination_a` and `termination_a_type` (before). Cables that end at
no interface (power, console, patch panels) are skipped, and so are those with several ends on a
side, since nothing pairs them. NetBox's tables in CSV are read by agent/plans/sheets.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.errors import Malformed
from agent.plans import tables
from agent.plans.cables import Cables, mark_of
from agent.plans.model import Cable, End, Place

if TYPE_CHECKING:
    from agent.plans.model import Plan
    from agent.plans.source import Source

KIND = "netbox"
INTERFACE = "dcim.interface"
_NEW, _OLD = ("a_terminations", "b_terminations"), ("termination_a", "termination_b")


def recognizes(source: Source) -> bool:
    """Return True for JSON with a cable of either form."""
    if not source.looks_like_json:
        return False
    first = next(iter(_cables(source.json)), None)
    if first is None:
        return isinstance(source.json, dict) and {"count", "results"} <= source.json.keys()
    return isinstance(first, dict) and bool({_NEW[0], _OLD[0]} & first.keys())


def read(source: Source) -> list[Plan]:
    """Return the plan of a page or of a table; raises Malformed for one page of several."""
    if not source.looks_like_json:
        return tables.read(source)
    _check_whole(source)
    cables = Cables(source.place)
    entries = _cables(source.json)[::-1]
    source.forget()
    number = 0
    while entries:  # consumed: a large answer takes several times its size as objects
        number += 1
        _add(cables, entries.pop(), Place(source.file, None, number))
    return [cables.whole(KIND, source.notes)]


def _add(cables: Cables, entry: Any, place: Place) -> None:
    """Add a cable; one that is none between two interfaces is skipped."""
    if not isinstance(entry, dict):
        raise Malformed(f"{place}: no cable: {type(entry).__name__}")
    sides = _sides(entry, place)
    if not all(sides):
        cables.skip("without a far end", place)
    elif any(end.get("object_type") != INTERFACE for side in sides for end in side):
        cables.skip("not between interfaces", place)
    elif max(map(len, sides)) > 1:
        cables.skip("with several ends on a side", place)
    else:
        ends = []
        for side, column in zip(sides, _NEW, strict=True):
            value = side[0].get("object")
            node, interface = _name(_member(value, "device")), _name(value)
            if not node or not interface:
                raise Malformed(f"{place}, column {column}: no names of device and interface")
            ends.append(End(node, interface))
        mark = _member(entry.get("custom_fields"), "mark")
        mark = mark_of(mark, place) if isinstance(mark, str) else None
        cables.add(Cable(ends[0], ends[1], place, None, mark, _fields(entry)))


def _cables(document: Any) -> list[Any]:
    found = document.get("results") if isinstance(document, dict) else document
    return found if isinstance(found, list) else []


def _check_whole(source: Source) -> None:
    page, found = source.json, len(_cables(source.json))
    if not isinstance(page, dict):
        return
    count = page.get("count")
    is_cut = isinstance(count, int) and count > found
    if is_cut or page.get("next") or page.get("previous"):
        raise Malformed(
            f"{source.file}: one page of several ({found} of {count} "
            "cables): ask for all with ?limit=0, or join the results"
        )


def _sides(entry: dict[str, Any], place: Place) -> list[list[Any]]:
    """Return the ends of each side as terminations of the newer form."""
    if _NEW[0] not in entry:  # before NetBox 3.3
        return [
            [{"object_type": entry.get(f"{side}_type"), "object": entry[side]}]
            if entry.get(side)
            else []
            for side in _OLD
        ]
    for name in _NEW:
        side = entry.get(name)
        if not isinstance(side, list) or not all(isinstance(end, dict) for end in side):
            raise Malformed(f"{place}, column {name}: no list of terminations")
    return [entry[name] for name in _NEW]


def _name(value: Any) -> str:
    """Return the name of an object; "" without one."""
    name = _member(value, "name")
    return name.strip() if isinstance(name, str) else ""


def _member(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None


def _fields(entry: dict[str, Any]) -> dict[str, str]:
    """Return the plain values of a cable, and the `value` of choices: `status` is `connected`."""
    return {
        key: str(plain)
        for key, value in entry.items()
        if _is_plain(plain := value.get("value") if isinstance(value, dict) else value)
        and not key.startswith("termination_")
    }


def _is_plain(value: Any) -> bool:
    return isinstance(value, (str, int, float)) and not isinstance(value, bool) and value != ""
