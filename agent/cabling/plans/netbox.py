"""NetBox: the answers of its REST and GraphQL APIs, with cables or with connected interfaces.

    /api/dcim/cables/?limit=0            {cable_list {a_terminations {... on InterfaceType {
    /api/dcim/interfaces/?limit=0          name device {name}}} b_terminations {...}}}

A cable's ends are `a_terminations` and `b_terminations` (NetBox 3.3 and later: a list of
`object_type` and `object`; in GraphQL of the objects themselves) or `termination_a` and
`termination_a_type` (before). Cables that end at no interface (power, console, patch panels) are
skipped, and so are those with several ends on a side, since nothing pairs them. An interface has
its far end, also behind patch panels, in `connected_endpoints`, before 3.3 in `connected_endpoint`.
NetBox's tables in CSV are read by agent/cabling/plans/sheets.py.
"""

from __future__ import annotations

from typing import Any

from agent.cabling.plans import sheets
from agent.cabling.plans.columns import mark_of
from agent.cabling.plans.model import Cables, End, FilePlace, Plan, PlanCable, quoted
from agent.cabling.plans.source import PlanContent
from agent.errors import Malformed

KIND = "netbox"
INTERFACE = "dcim.interface"
SIDES, FORMER_SIDES = ("a_terminations", "b_terminations"), ("termination_a", "termination_b")
CONNECTED, FORMER_CONNECTED = "connected_endpoints", "connected_endpoint"
_LISTS = ("cable_list", "interface_list")  # of GraphQL


def recognizes(source: PlanContent) -> bool:
    """Return True for JSON with a cable or a connected interface of any form."""
    if not source.looks_like_json:
        return False
    first = next(iter(_entries(source.json)), None)
    if first is None:
        keys = source.json.keys() if isinstance(source.json, dict) else set()
        return {"count", "results"} <= keys or "data" in keys
    known = {SIDES[0], FORMER_SIDES[0], CONNECTED, FORMER_CONNECTED}
    return isinstance(first, dict) and bool(known & first.keys())


def read(source: PlanContent) -> list[Plan]:
    """Return the plan of a page or of a table; raises Malformed for one page of several."""
    if not source.looks_like_json:
        return sheets.read(source)
    if errors := _member(source.json, "errors"):
        text = _member(errors[0] if isinstance(errors, list) else errors, "message")
        raise Malformed(f"{source.file}: GraphQL answered with an error: {quoted(text)}")
    entries, page = _entries(source.json)[::-1], _page(source.json)
    count = _member(page, "count" if page is source.json else "total_count")
    is_cut = isinstance(count, int) and count > len(entries)
    if is_cut or _member(page, "next") or _member(page, "previous"):
        raise Malformed(
            f"{source.file}: one page of several ({len(entries)} of {count} "
            "cables): ask for all with ?limit=0, or join the results"
        )
    del page
    source.forget()
    cables = Cables(source.place, mirrored=bool(entries) and _is_interface(entries[-1]))
    for number in range(1, len(entries) + 1):
        # consumed: a large answer takes several times its size as objects
        _add(cables, entries.pop(), source.place.at(number))
    return [cables.whole(KIND, source.notes)]


def _add(cables: Cables, entry: Any, place: FilePlace) -> None:
    """Add a cable; one that is none between two interfaces is skipped."""
    if not isinstance(entry, dict):
        raise Malformed(f"{place}: no cable: {type(entry).__name__}")
    sides = _sides(entry, place)
    if not all(sides):
        cables.skip("without a far end", place)
    elif any(_type(end) != INTERFACE for side in sides for end in side):
        cables.skip("not between interfaces", place)
    elif max(map(len, sides)) > 1:
        cables.skip("with several ends on a side", place)
    else:
        values = [termination.get("object", termination) for [termination] in sides]
        a, b = (End(_name(_member(value, "device")), _name(value)) for value in values)
        for name, end in zip(SIDES, (a, b), strict=True):
            if not all(end.port):
                raise Malformed(f"{place}, column {name}: no names of device and interface")
        mark = _member(entry.get("custom_fields"), "mark")
        mark = mark_of(mark, place) if isinstance(mark, str) else None
        fields = {} if _is_interface(entry) else _fields(entry)
        cables.add(PlanCable(a, b, place, None, mark, fields))


def _is_interface(entry: Any) -> bool:
    """Return True for an interface with its far end; False for a cable."""
    return isinstance(entry, dict) and (CONNECTED in entry or FORMER_CONNECTED in entry)


def _sides(entry: dict[str, Any], place: FilePlace) -> list[list[Any]]:
    """Return the terminations of each side; of an interface itself, and those of its far end."""
    if _is_interface(entry):
        far = entry.get(CONNECTED) or entry.get(FORMER_CONNECTED) or []
        kind = entry.get(f"{CONNECTED}_type") or entry.get(f"{FORMER_CONNECTED}_type")
        far = [end for end in (far if isinstance(far, list) else [far]) if isinstance(end, dict)]
        far = [{"object_type": kind, "object": end} for end in far] if kind else far
        return [[{"object_type": INTERFACE, "object": entry}], far]
    if SIDES[0] not in entry:  # before NetBox 3.3
        return [
            [{"object_type": entry.get(f"{side}_type"), "object": entry[side]}]
            if entry.get(side)
            else []
            for side in FORMER_SIDES
        ]
    for name in SIDES:
        side = entry.get(name)
        if not isinstance(side, list) or not all(isinstance(end, dict) for end in side):
            raise Malformed(f"{place}, column {name}: no list of terminations")
    return [entry[name] for name in SIDES]


def _fields(entry: dict[str, Any]) -> dict[str, str]:
    """Return the plain values of a cable; of a choice its `value`: `status` is `connected`."""
    fields = {}
    for key, value in entry.items():
        plain = value.get("value") if isinstance(value, dict) else value
        is_plain = isinstance(plain, (str, int, float)) and not isinstance(plain, bool)
        if is_plain and plain != "" and not key.startswith("termination_"):
            fields[key] = str(plain)
    return fields


def _page(document: Any) -> Any:
    """Return the list of an answer, or the object whose `results` it is: in GraphQL a member."""
    lists = (_member(_member(document, "data"), name) for name in _LISTS)
    return next((listed for listed in lists if listed is not None), document)


def _entries(document: Any) -> list[Any]:
    """Return the cables or interfaces of an answer."""
    page = _page(document)  # from NetBox 4.5 on, GraphQL has `results`, too
    entries = page if isinstance(page, list) else _member(page, "results")
    return entries if isinstance(entries, list) else []


def _type(end: dict[str, Any]) -> str | None:
    """Return the type of an end; one of GraphQL without its type is what was asked for."""
    if "object" in end or "object_type" in end:
        return end.get("object_type")
    kind = end.get("__typename") or end.get("class_type") or "InterfaceType"
    is_interface = "device" in end and kind == "InterfaceType"
    return INTERFACE if is_interface else None


def _name(value: Any) -> str:
    """Return the name of an object; "" without one."""
    name = _member(value, "name")
    return name.strip() if isinstance(name, str) else ""


def _member(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None
