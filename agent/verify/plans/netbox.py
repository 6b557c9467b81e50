"""NetBox: the answer of the REST API at `/api/dcim/cables/`, with one page or a list of cables.

A cable's ends are `a_terminations` and `b_terminations` (NetBox 3.3 and later: a list of
`object_type` and `object`) or `termination_a` and `termination_a_type` (before). Cables that end at
no interface (power, console, patch panels) are skipped, and so are those with several ends on a
side, since nothing pairs them. NetBox's tables in CSV are read by agent/verify/plans/sheets.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.errors import Malformed
from agent.verify.model import Cable, End, Place
from agent.verify.plans import tables
from agent.verify.plans.cables import Cables, mark_of

if TYPE_CHECKING:
    from agent.verify.model import Plan
    from agent.verify.plans.source import Source

KIND = "netbox"
INTERFACE = "dcim.interface"
_NEW, _OLD = ("a_terminations", "b_terminations"), ("termination_a", "termination_b")


def recognizes(source: Source) -> bool:
    """Return True for JSON with a cable of either form."""
    if not source.looks_like_json:
        return False
    cables = _cables(source.json)
    return (
        bool(cables) and isinstance(cables[0], dict) and bool({_NEW[0], _OLD[0]} & set(cables[0]))
    )


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
        entry, number = entries.pop(), number + 1
        place = Place(source.file, None, number)
        if not isinstance(entry, dict):
            raise Malformed(f"{place}: no cable: {type(entry).__name__}")
        sides = _sides(entry, place)
        if reason := _other(sides):
            cables.skip(reason, place)
        else:
            cables.add(_cable(entry, sides, place))
    if not cables:
        raise Malformed(f"{source.file}: no cables between interfaces")
    return [cables.plan(KIND, source.notes)]


def _cables(document: Any) -> list[Any]:
    found = document.get("results") if isinstance(document, dict) else document
    return found if isinstance(found, list) else []


def _check_whole(source: Source) -> None:
    page = source.json
    if isinstance(page, dict) and (page.get("next") or page.get("previous")):
        raise Malformed(
            f"{source.file}: one page of several ({len(_cables(page))} of {page.get('count')} "
            "cables): ask for all with ?limit=0, or join the results"
        )


def _sides(entry: dict[str, Any], place: Place) -> list[list[Any]]:
    """Return the ends of each side as terminations of the newer form."""
    if _NEW[0] not in entry:
        return [
            [{"object_type": entry.get(f"{old}_type"), "object": entry[old]}]
            if entry.get(old)
            else []
            for old in _OLD
        ]
    sides = [entry.get(new) for new in _NEW]
    for side, new in zip(sides, _NEW, strict=True):
        if not isinstance(side, list) or not all(isinstance(end, dict) for end in side):
            raise Malformed(f"{place}, column {new}: no list of terminations")
    return [side or [] for side in sides]


def _other(sides: list[list[Any]]) -> str | None:
    """Return the reason why a cable is none between two interfaces."""
    if not all(sides):
        return "without a far end"
    if any(end.get("object_type") != INTERFACE for side in sides for end in side):
        return "not between interfaces"
    if max(map(len, sides)) > 1:
        return "with several ends on a side"
    return None


def _cable(entry: dict[str, Any], sides: list[list[Any]], place: Place) -> Cable:
    a, b = (
        _end(side[0].get("object"), place, name) for side, name in zip(sides, _NEW, strict=True)
    )
    return Cable(a, b, place, None, _mark(entry, place), _fields(entry))


def _end(value: Any, place: Place, column: str) -> End:
    device = value.get("device") if isinstance(value, dict) else None
    node = device.get("name") if isinstance(device, dict) else None
    interface = value.get("name") if device else None
    if not isinstance(node, str) or not isinstance(interface, str):
        raise Malformed(f"{place}, column {column}: no names of device and interface")
    end = End(node.strip(), interface.strip())
    if not all(end[:2]):
        raise Malformed(f"{place}, column {column}: an empty name of device or interface")
    return end


def _mark(entry: dict[str, Any], place: Place) -> str | None:
    """Return the mark of a cable: its custom field `mark`."""
    custom = entry.get("custom_fields")
    mark = custom.get("mark") if isinstance(custom, dict) else None
    return mark_of(mark, place) if isinstance(mark, str) else None


def _fields(entry: dict[str, Any]) -> dict[str, str]:
    """Return the plain values of a cable, and the `value` of choices: `status` is `connected`."""
    found = {}
    for key, value in entry.items():
        plain = value.get("value") if isinstance(value, dict) else value
        if isinstance(plain, (str, int, float)) and not isinstance(plain, bool) and plain != "":
            found[key] = str(plain)
    return {key: text for key, text in found.items() if not key.startswith("termination_")}
