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
    from collections.abc import Iterator

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
    for number, entry in enumerate(_cables(source.json), 1):
        place = source.place._replace(row=number)
        if not isinstance(entry, dict):
            raise Malformed(f"{place}: no cable: {type(entry).__name__}")
        if reason := _other(entry, place):
            cables.skip(reason, place)
        else:
            cables.add(_cable(entry, place))
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


def _ends(entry: dict[str, Any], place: Place) -> Iterator[list[tuple[Any, Any]]]:
    """Yield the (type, object) pairs of each side."""
    for new, old in zip(_NEW, _OLD, strict=True):
        if new in entry:
            ends = entry[new]
            if not isinstance(ends, list) or not all(isinstance(end, dict) for end in ends):
                raise Malformed(f"{place}, column {new}: no list of terminations")
            yield [(end.get("object_type"), end.get("object")) for end in ends]
        else:
            end = entry.get(old)
            yield [(entry.get(f"{old}_type"), end)] if end else []


def _other(entry: dict[str, Any], place: Place) -> str | None:
    """Return the reason why an entry is no cable between two interfaces."""
    sides = list(_ends(entry, place))
    if not all(sides):
        return "without a far end"
    if any(kind != INTERFACE for side in sides for kind, _ in side):
        return "not between interfaces"
    if any(len(side) > 1 for side in sides):
        return "with several ends on a side"
    return None


def _cable(entry: dict[str, Any], place: Place) -> Cable:
    a, b = (
        _end(side[0][1], place, name) for side, name in zip(_ends(entry, place), _NEW, strict=True)
    )
    return Cable(a, b, place, None, _mark(entry, place), _fields(entry))


def _end(value: Any, place: Place, column: str) -> End:
    device = value.get("device") if isinstance(value, dict) else None
    names = [part.get("name") if isinstance(part, dict) else None for part in (device, value)]
    if not all(isinstance(name, str) and name.strip() for name in names):
        raise Malformed(f"{place}, column {column}: no names of device and interface")
    node, interface = (str(name).strip() for name in names)
    return End(node, interface)


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
