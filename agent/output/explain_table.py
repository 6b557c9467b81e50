"""Print the document of `bwagent explain` for a person at a terminal, in 80 columns."""

from __future__ import annotations

import textwrap
from itertools import groupby
from typing import TYPE_CHECKING, Any

from agent.output.ports import WIDTH
from agent.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Json = dict[str, Any]

MAX_TEXT = 1000  # characters of one text of the document
MARGIN = 10  # columns of the names


def render(document: Json) -> str:
    """Return the label, its state, its evidence and the Node's view as text."""
    sections = (
        [f"{document['key']}{_equals(document)}"],
        [*_summary(document)],
        _section("Read from", _read_from(document["evidence"])),
        _section("Problems", document["problems"]),
        _section("On the Node", _on_node(document)),
    )
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _equals(document: Json) -> str:
    value = document["value"]
    return ": no label" if value is None else f"={visible(value, MAX_TEXT)}"


def _summary(document: Json) -> Iterator[str]:
    """Yield the state, the time, and the texts of the row of the label table."""
    yield from _named("state", _state(document))
    if times := sorted({one["seen"] for one in document["evidence"] if one["seen"]}):
        yield from _named("seen", times[0] if len(times) == 1 else f"{times[0]} to {times[-1]}")
    if document["raw"] not in (None, document["value"]):
        yield from _named("raw", document["raw"])
    yield from _named("meaning", document["meaning"])
    yield from _named("absent if", document["absent_when"])


def _state(document: Json) -> str:
    hold, state = document["hold"], document["state"]
    if state == "absent":
        return f"absent: {document['reason']}"
    return f"{state}, {hold['reason']}: {hold['text']}" if hold else str(state)


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
    yield "no such label" if facts["value"] is None else _held_by(facts)
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


def _held_by(facts: Json) -> str:
    managers = ", ".join(facts["managers"]) or "no field manager"
    return f"{facts['value']}, held by {managers}"


def _row(row: Json) -> str:
    """Return the facts of an interface in the annotation."""
    neighbor = row.get("neighbor") or {}
    parts = {name: value for name, value in row.items() if name not in ("neighbor", "interface")}
    parts |= {f"neighbor {name}": value for name, value in neighbor.items()}
    texts = ", ".join(
        f"{name} {'unknown' if value is None else value}" for name, value in parts.items()
    )
    return f"annotation, {row['interface']}: {texts}"


def _named(name: str, text: str) -> list[str]:
    """Return a text behind its name, wrapped in a column of its own."""
    shown = visible(text, MAX_TEXT)
    return _wrapped(shown, name.ljust(MARGIN), " " * MARGIN, break_words=True)


def _section(title: str, lines: Iterable[str]) -> list[str]:
    body = []
    for line in lines:
        indent = " " * (2 + len(line) - len(line.lstrip()))
        body += _wrapped(visible(line.strip(), MAX_TEXT), indent, f"{indent}  ")
    return [title, *body] if body else []


def _wrapped(text: str, first: str, others: str, *, break_words: bool = False) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=others,
        break_on_hyphens=False,
        break_long_words=break_words,
    )
