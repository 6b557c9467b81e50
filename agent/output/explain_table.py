"""Print the document of `bwagent explain` for a person at a terminal, in 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from agent.output.layout import joined, section, wrap
from agent.text import visible

Json = dict[str, Any]

MAX_TEXT = 1000  # characters of one text of the document
MARGIN = 10  # columns of the names


def render(document: Json) -> str:
    """Return the label, its state, its evidence and the Node's view as text."""
    value, key = document["value"], document["key"]
    is_equal = ": no label" if value is None else f"={visible(value, MAX_TEXT)}"
    return joined(
        [
            [f"{key}{is_equal}"],
            [*_summary(document)],
            _section("Read from", _read_from(document["evidence"])),
            _section("Problems", document["problems"]),
            _section("On the Node", _on_node(document)),
        ]
    )


def _section(title: str, lines: Iterable[str]) -> list[str]:
    return section(title, lines, most=MAX_TEXT, break_words=False)


def _summary(document: Json) -> Iterator[str]:
    """Yield the state, the time, and the texts of the row of the label table."""
    state, hold = document["state"], document["hold"]
    if state == "absent":
        state = f"absent: {document['reason']}"
    elif hold:
        state = f"{state}, {hold['reason']}: {hold['text']}"
    yield from _named("state", state)
    if times := sorted({one["seen"] for one in document["evidence"] if one["seen"]}):
        yield from _named("seen", times[0] if len(times) == 1 else f"{times[0]} to {times[-1]}")
    if document["raw"] not in (None, document["value"]):
        yield from _named("raw", document["raw"])
    yield from _named("meaning", document["meaning"])
    yield from _named("absent if", document["absent_when"])


def _named(name: str, text: str) -> list[str]:
    """Return a text behind its name, wrapped in a column of its own."""
    return wrap(visible(text, MAX_TEXT), name.ljust(MARGIN), " " * MARGIN)


def _read_from(evidence: Iterable[Json]) -> Iterator[str]:
    """Yield the facts of each interface; those of a frame, an answer or a GPU below its line."""
    for interface, facts in groupby(evidence, lambda one: one["interface"]):
        indent = "  " if interface else ""
        if interface:
            yield str(interface)
        for (via, subject), rows in groupby(facts, lambda one: (one["via"], one["subject"])):
            yield from (f"{indent}{line}" for line in _of_subject(via, subject, list(rows)))


def _of_subject(via: str, subject: str, rows: list[Json]) -> Iterator[str]:
    if via in ("lldp", "smp", "gpu"):
        yield f"{via} {subject}, {rows[0]['seen']}"
        yield from (f"  {one['fact']}: {_value(one)}" for one in rows)
    else:
        yield from (f"{subject}: {_value(one)}" for one in rows)


def _value(one: Json) -> str:
    return "unknown" if one["value"] is None else str(one["value"])


def _on_node(document: Json) -> Iterator[str]:
    """Yield what the Node has of the label, and what its annotation has of the interface.

    The rows of all interfaces are shown only if the label was not read in full.
    """
    facts = document["on_node"]
    if facts is None:
        return
    if facts.get("fault"):
        yield f"not read: {facts['fault']}"
        return
    if facts["value"] is None:
        yield "no such label"
    else:
        yield f"{facts['value']}, held by {', '.join(facts['managers']) or 'no field manager'}"
    if any(facts.get(name) for name in ("observed", "boot_id", "agent")):
        yield _observed(facts, document["boot_id"])
    if len(facts["interfaces"]) == 1 or document["state"] != "seen":
        yield from map(_row, facts["interfaces"])


def _observed(facts: Json, boot_id: str | None) -> str:
    """Return the annotation's facts of the last full observation, and of a later one."""
    time, version = facts["observed"] or "at an unknown time", facts["agent"] or "version unknown"
    boot = "boot unknown"
    if facts["boot_id"] and boot_id:
        boot = "this boot" if facts["boot_id"] == boot_id else "another boot"
    reported = facts.get("reported")
    later = f"; an incomplete one {reported}" if reported not in {None, facts["observed"]} else ""
    return f"last full observation {time}, {boot}, bwagent {version}{later}"


def _row(row: Json) -> str:
    """Return the facts of an interface in the annotation."""
    neighbor = row.get("neighbor") or {}
    parts = {name: value for name, value in row.items() if name not in ("neighbor", "interface")}
    parts |= {f"neighbor {name}": value for name, value in neighbor.items()}
    texts = [f"{name} {'unknown' if value is None else value}" for name, value in parts.items()]
    return f"annotation, {row['interface']}: {', '.join(texts)}"
