"""Writes plan files of every kind that agent/cabling/plans reads.

Each writer takes cables and returns the content of a file. It writes what its format can express:
a test compares `meaning` of what it wrote and of what was read.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from openpyxl import Workbook

from agent.cabling.plans.model import NO_FIELDS, End, FilePlace, Plan, PlanCable
from agent.cabling.plans.reader import read_source
from agent.cabling.plans.source import Columns, PlanContent
from agent.errors import Malformed

Rows = list[list[str]]


NOWHERE = FilePlace("")
# Names of the columns node, interface, rack and unit of both ends, by form of header.
FORMS: dict[str, tuple[str, ...]] = {
    "sided": (
        *("A-Node Name", "A-Port", "A-Rack", "A-U"),
        *("Z-Node Name", "Z-Port", "Z-Rack", "Z-RU"),
    ),
    "bare": ("A-Node", "A-Port", "", "", "Z-Node", "Z-Port", "", ""),
    "words": ("Start Device", "Start Port", "", "", "End Device", "End Port", "", ""),
    "sonic": ("StartDevice", "StartPort", "", "", "EndDevice", "EndPort", "", ""),
    "doubled": ("Name", "HCA/Port", "Rack", "U", "Name", "Port", "Rack", "U"),
    "hosts": ("Host", "HCA", "", "", "Switch", "Port", "", ""),
    "suffix": ("Node A", "Port A", "Rack A", "U A", "Node B", "Port B", "Rack B", "U B"),
    "netbox-import": (
        *("side_a_device", "side_a_name", "", "", "side_b_device", "side_b_name", "", ""),
    ),
    "netbox-cables": (
        *("Device A", "Termination A", "Rack A", ""),
        *("Device B", "Termination B", "Rack B", ""),
    ),
    "netbox-connections": ("Device A", "Interface A", "", "", "Device B", "Interface B", "", ""),
}


def read(content: str | bytes, kind: str | None = None, columns: Columns = NO_FIELDS) -> list[Plan]:
    """Read a file that is named `p`."""
    data = content.encode() if isinstance(content, str) else content
    return read_source(PlanContent("p", data, columns), kind)


def read_one(content: str | bytes, kind: str | None = None, columns: Columns = NO_FIELDS) -> Plan:
    """Read a file with one plan."""
    (plan,) = read(content, kind, columns)
    return plan


def refusal(content: str | bytes, kind: str | None = None, columns: Columns = NO_FIELDS) -> str:
    """Return the message by which a file is refused: one printable line."""
    with pytest.raises(Malformed) as raised:
        read(content, kind, columns)
    assert str(raised.value).isprintable()
    return str(raised.value)


def cable(a: str, b: str, **more: Any) -> PlanCable:
    """Return the cable between two ends `gpu-017 mlx5_0` and `leaf01 swp1`."""
    ends = [End(*text.split(" ", 1)) for text in (a, b)]
    return PlanCable(ends[0], ends[1], NOWHERE, **more)


def meaning(cables: Iterable[PlanCable]) -> list[Any]:
    """Return cables for comparison, without the places that they were read from."""
    return sorted(
        (
            sorted(map(_end_key, (one.a, one.b))),
            one.rate_gbps or 0,
            one.mark or "",
            sorted(one.fields.items()),
        )
        for one in cables
    )


def _end_key(end: End) -> tuple[str, ...]:
    return tuple(text or "" for text in end)


def of(plans: Iterable[Plan]) -> list[Any]:
    """Return the meaning of all cables of plans."""
    return meaning(one for plan in plans for one in plan.cables)


def swapped(one: PlanCable) -> PlanCable:
    """Return the cable with its ends exchanged."""
    return one._replace(a=one.b, b=one.a)


def rows(
    cables: Sequence[PlanCable], form: str, order: Callable[[list[int]], list[int]] = list
) -> Rows:
    """Return the header and a row for each cable; `order` permutes the columns.

    Columns of a doubled header are permuted within the half of their end.
    """
    names = FORMS[form]
    extra = sorted({name for one in cables for name in one.fields})
    marked = any(one.mark for one in cables)
    rated = any(one.rate_gbps for one in cables)
    header = [*names, *(["Speed"] if rated else []), *(["Mark"] if marked else []), *extra]
    table = [header]
    for one in cables:
        row = [*_cells(one.a), *_cells(one.b)]
        row += [f"{one.rate_gbps:g}G" if one.rate_gbps else ""] if rated else []
        row += [one.mark or ""] if marked else []
        table.append(row + [one.fields.get(name, "") for name in extra])
    columns = [i for i, name in enumerate(header) if name]
    if form in {"doubled", "hosts"}:
        left = [i for i in columns if i < 4]
        columns = [*order(left), *order([i for i in columns if i >= 4])]
    else:
        columns = order(columns)
    return [[row[i] for i in columns] for row in table]


def _cells(end: End) -> list[str]:
    return [end.node, end.interface, end.rack or "", end.unit or ""]


def csv_text(table: Rows, delimiter: str = ",", newline: str = "\n") -> str:
    """Return a CSV file."""
    file = io.StringIO(newline="")
    csv.writer(file, delimiter=delimiter, lineterminator=newline).writerows(table)
    return file.getvalue()


def workbook(sheets: dict[str, Rows], hidden: Sequence[str] = ()) -> bytes:
    """Return an XLSX workbook; sheets by name."""
    book = Workbook(write_only=True)
    for name, table in sheets.items():
        sheet = book.create_sheet(name)
        sheet.sheet_state = "hidden" if name in hidden else "visible"
        for row in table:
            sheet.append(row)
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


def netbox(cables: Sequence[PlanCable]) -> str:
    """Return the answer of `/api/dcim/cables/` in the form of NetBox 3.3 and later."""
    results = [
        {"a_terminations": [_termination(one.a)], "b_terminations": [_termination(one.b)]}
        | dict(one.fields)
        | {"custom_fields": {"mark": one.mark}}
        for one in cables
    ]
    return json.dumps({"count": len(results), "next": None, "previous": None, "results": results})


def netbox_before_3_3(cables: Sequence[PlanCable]) -> str:
    """Return the answer of `/api/dcim/cables/` in the older form."""
    results = [
        {
            "termination_a_type": "dcim.interface",
            "termination_a": _termination(one.a)["object"],
            "termination_b_type": "dcim.interface",
            "termination_b": _termination(one.b)["object"],
        }
        | dict(one.fields)
        for one in cables
    ]
    return json.dumps({"count": len(results), "next": None, "previous": None, "results": results})


def _termination(end: End) -> dict[str, Any]:
    device = {"id": 1, "name": end.node}
    interface = {"id": 2, "device": device, "name": end.interface}
    return {"object_type": "dcim.interface", "object_id": 2, "object": interface}


def dot(cables: Sequence[PlanCable]) -> str:
    """Return a graph of ptmd."""
    edges = "".join(
        f"  {_dot_end(one.a)} -- {_dot_end(one.b)}{_attributes(one)};\n" for one in cables
    )
    return f"graph G {{\n{edges}}}\n"


def _dot_end(end: End) -> str:
    return f"{_dot_text(end.node)}:{_dot_text(end.interface)}"


def _dot_text(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _attributes(one: PlanCable) -> str:
    values = dict(one.fields) | ({"mark": one.mark} if one.mark else {})
    inside = ", ".join(f"{_dot_text(k)}={_dot_text(v)}" for k, v in values.items())
    return f" [{inside}]" if inside else ""


def ibnetdiscover(cables: Sequence[PlanCable]) -> str:
    """Return the topology that ibnetdiscover prints.

    Interfaces are numbers (a switch's) or `mlx5_0` (a host's).
    """
    sections: dict[tuple[str, str, str], list[str]] = {}
    for one in cables:
        for near, far in ((one.a, one.b), (one.b, one.a)):
            kind, guid, text, port = _ib(far)
            line = f'[{_ib(near)[3]}]\t"{kind}-{guid}"[{port}]\t\t# "{text}" lid 1 4xNDR\n'
            sections.setdefault(_ib(near)[:3], []).append(line)
    head = "#\n# Topology file: generated on Sun Nov 22 10:09:25 2026\n#\n"
    return head + "".join(
        f"\nvendid=0x2c9\ndevid=0xd2f2\n{word}guid=0x{guid}\n"
        f'{word.title()}\t{count} "{kind}-{guid}"\t\t# "{text}" lid 1 lmc 0\n{"".join(lines)}'
        for (kind, guid, text), lines in sections.items()
        for word, count in [("switch", 65) if kind == "S" else ("ca", 1)]
    )


def iblinkinfo(cables: Sequence[PlanCable]) -> str:
    """Return what `iblinkinfo --switches-only` prints of cables between a switch and a host."""
    sections: dict[str, list[str]] = {}
    switches = {end.node for one in cables for end in (one.a, one.b) if end.interface.isdigit()}
    lids = {node: lid for lid, node in enumerate(sorted(switches), 1)}
    for number, one in enumerate(cables, 1):
        for near, far in ((one.a, one.b), (one.b, one.a)):
            if near.node in lids:
                lid = lids.get(far.node, 10_000 + number)
                line = (
                    f"{lids[near.node]:12} {near.interface:>4}[  ] ==( 4X        106.25 Gbps "
                    f'Active/  LinkUp)==> {lid:7} {_ib(far)[3]:>4}[  ] "{_ib(far)[2]}" ( )\n'
                )
                sections.setdefault(near.node, []).append(line)
    return "".join(
        f"Switch: 0x{_guid(node)} {_described(node)}:\n{''.join(lines)}"
        for node, lines in sections.items()
    )


def _ib(end: End) -> tuple[str, str, str, str]:
    """Return node type, GUID, description and port number of an end."""
    if end.interface.isdigit():
        return "S", _guid(end.node), _described(end.node), end.interface
    text = f"{end.node} {end.interface}"
    return "H", _guid(text), text, "1"


def _described(node: str) -> str:
    return f"MF0;{node}:MQM9700/U1"


def _guid(text: str) -> str:
    return f"{sum(byte << 8 * (i % 7) for i, byte in enumerate(text.encode())):016x}"[-16:]
