"""Schema 2 of the annotation, that of 0.3, as a document of schema 3.

It is read for one release, so that an upgrade renews no hold and forgets no leaf. It had a table of
switches, so `far` of a row is the index there, the ID of the far port, and its name; a fact that
had its usual value was left out. Its verdict had the findings and no word: with some of them it is
made anew.

A part of another form is left as it is, for the parser of schema 3 to report.
"""

from __future__ import annotations

from typing import Any

from agent.text import Json

_LAYERS = {"ib": "InfiniBand", "eth": "Ethernet"}
_UNREAD = ("state", "far", "role")
_OTHER = ("pci", "port", "rule")
_SINCE = {"texts_since": "node", "domain_since": "domain", "group_since": "group"}


def upgraded(document: Json) -> Json:
    """Return the document in schema 3."""
    table = document.get("switches")
    switches = table if isinstance(table, list) else []
    rows, others = document.get("ports"), document.get("others")
    verdict = document.get("verdict")
    if isinstance(verdict, dict) and "findings" in verdict:
        verdict = None if verdict["findings"] else {**verdict, "verdict": "pass", "findings": 0}
    return {
        **{name: value for name, value in document.items() if name != "switches"},
        "ports": [_row(row, switches) for row in rows] if isinstance(rows, list) else rows,
        "others": [_named(_OTHER, row) for row in others] if isinstance(others, list) else others,
        "unread": {name: document.get(old) for old, name in _SINCE.items()},
        "left_out": document.get("dropped"),
        "verdict": verdict,
    }


def _row(row: Any, switches: list[Any]) -> Any:
    if not isinstance(row, dict):
        return row
    layer, far = row.get("layer"), row.get("far")
    if isinstance(far, list) and 1 <= len(far) <= 3:  # its device is a row of the table
        index, *texts = far
        is_index = isinstance(index, int) and 0 <= index < len(switches)
        switch = switches[index] if is_index else None
        if isinstance(switch, list) and len(switch) == 2:
            names = "id", "name", "port_id", "port_name"
            far = dict(zip(names, (*switch, *texts), strict=False))
    usual = {"port": 1, "netdev": row.get("interface"), "node_guid": row.get("port_guid")}
    return {
        **usual,
        **row,
        "layer": _LAYERS.get(layer, layer) if isinstance(layer, str) else layer,
        "far": far,
        "unread": _named(_UNREAD, row.get("unread")),
    }


def _named(names: tuple[str, ...], values: Any) -> Any:
    """Return a list of values as an object."""
    if not isinstance(values, list) or len(values) > len(names):
        return values
    return dict(zip(names, values, strict=False))
