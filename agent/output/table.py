"""Print the document as a table for a person at a terminal.

One line for each port, then the labels, then what is missing and why. The table is made from the
JSON document, so it shows nothing that JSON does not have. Lines have 80 columns at most, but for
words that are longer. Color only repeats what the words say. Text of the document may be a
stranger's (a neighbor's name, a snapshot's reason), so all of it is made printable first.
"""

from __future__ import annotations

import textwrap
from itertools import groupby
from typing import TYPE_CHECKING, Any

from agent.output.absent import ABSENT
from agent.output.ports import WIDTH, gbps, is_backend, is_standby, port_lines
from agent.reasons import SWITCHED_OFF, AcceleratorReason, HoldReason, NeighborReason
from agent.text import listed, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Document = dict[str, Any]
    Row = dict[str, Any]  # an entry of `ports`, `neighbors`, `missing_neighbors` or `problems`

MAX_NAMES = 12  # interfaces listed in one line
MAX_TEXT = 1000  # characters of one text of the document

# The meaning of a port's state for its cable
# (IBTA vol. 1, 14.2.5.6, PortState and PortPhysicalState).
STATES = {
    ("DOWN", "Polling"): "no signal from the far end: cable, transceiver, or the port over there",
    ("DOWN", "Disabled"): "administratively disabled on this side",
    ("DOWN", "Sleep"): "asleep",
    ("DOWN", "PortConfigurationTraining"): "still negotiating with the far end",
    ("DOWN", "LinkErrorRecovery"): "errors on the link: a failing cable or transceiver",
    ("INIT", "LinkUp"): "cable is fine, the subnet manager has not brought the port up",
    ("ARMED", "LinkUp"): "cable is fine, the subnet manager has not finished with the port",
}
# Drivers report "Disabled" or "Polling" for any Ethernet port without a link.
NO_LINK = "no link: cable, transceiver, the port over there, or the interface is not up"

# The reasons for a missing neighbor; a snapshot may have others.
MISSING = {str(reason): reason.text for reason in NeighborReason}


def render(document: Document, *, color: bool) -> str:
    """Return the table and the sections below it as text."""
    document = _printable(document)
    sections = (
        [_headline(document)],
        port_lines(_with_neighbors(document), color=color),
        _section("NVLink", _accelerator(document["accelerator"])),
        _labels(document["labels"]),
        _section("Backend ports that do not count", _not_counting(document)),
        _section("Neighbors", _missing_and_ambiguous(document)),
        _section("Ignored", _ignored(document["ports"])),
        _section("Problems", _problems(document["problems"])),
    )
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _printable(value: Any) -> Any:
    """Return a copy of a JSON value in which every string is printable."""
    if isinstance(value, str):
        return visible(value, MAX_TEXT)
    if isinstance(value, dict):
        return {_printable(key): _printable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_printable(item) for item in value]
    return value


def _headline(document: Document) -> str:
    node = document["node"] or "This node"
    if document["speed_gbps"] is None:
        return f"{node}: {_failure(document['problems'])}"
    flavor = document["flavor"] or "no backend network"
    return f"{node}: {flavor}, {gbps(document['speed_gbps'])}, {_active(document['ports'])}"


def _failure(problems: Iterable[Row]) -> str:
    """Return the reason why no port has a role."""
    texts = (str(problem["text"]) for problem in problems if problem["subject"] == "rdma")
    if any(text.startswith(HoldReason.FRONT_END_UNKNOWN) for text in texts):
        return "the front end is not known"
    return "the RDMA devices could not be read"


def _active(ports: Iterable[Row]) -> str:
    """Return the number of backend ports that are ACTIVE, out of all."""
    backend = [port for port in ports if is_backend(port)]
    active = sum(port["state"] == "ACTIVE" and not is_standby(port) for port in backend)
    return f"{active} of {len(backend)} backend ports ACTIVE"


def _with_neighbors(document: Document) -> list[Row]:
    """Return the ports, each with its selected neighbor."""
    selected = {row["interface"]: row for row in document["neighbors"] if row["selected"]}
    return [{**port, "neighbor": _neighbor(port, selected)} for port in document["ports"]]


def _neighbor(port: Row, selected: dict[str, Row]) -> Row | None:
    return selected.get(port["interface"]) if is_backend(port) else None


def _accelerator(accelerator: dict[str, Any]) -> Iterator[str]:
    """Yield the NVLink domain, or the reason for its absence, if the node has GPUs.

    A source that is switched off is not in the table.
    """
    gpus = len(accelerator["gpus"])
    if gpus:
        yield f"{gpus} GPU{'s' * (gpus != 1)}: {_domain(accelerator)}"
    elif accelerator["text"] != SWITCHED_OFF and accelerator["reason"] == AcceleratorReason.FAILED:
        yield AcceleratorReason.FAILED.text


def _domain(accelerator: dict[str, Any]) -> str:
    reason = accelerator["reason"]
    domain: str = accelerator["value"] or f"no domain ({reason})"
    if reason == AcceleratorReason.UNSUPPORTED:  # the other reasons are among the problems
        return f"{domain}: {accelerator['text']}"
    return domain


def _labels(labels: dict[str, str]) -> list[str]:
    """Return the section of the labels, written as kubectl takes them."""
    lines = [line for key, value in labels.items() for line in _label(key, value)]
    return ["Labels", *lines] if lines else []


def _label(key: str, value: str) -> list[str]:
    """Return the line of a label; one that is too long continues behind its `=`."""
    line = f"  {key}={value}"
    return [line] if len(line) <= WIDTH else [f"  {key}=", f"    {value}"]


def _not_counting(document: Document) -> Iterator[str]:
    """Yield a line for each backend port without a rate; lent ports are in another section."""
    missing = document["missing_neighbors"]
    lent = {row["interface"] for row in missing if row["reason"] == NeighborReason.NO_NETDEV}
    for port in document["ports"]:
        if is_backend(port) and not port["counted_gbps"] and port["interface"] not in lent:
            yield _without_rate(port)


def _without_rate(port: Row) -> str:
    """Return the name of a port, its states and what they mean."""
    name = f"{port['interface']} ({port['pci']})" if port["pci"] else port["interface"]
    states = filter(None, (port["state"], port["phys_state"]))
    parts = (name, ", ".join(states) or "state unknown", _meaning(port))
    return ": ".join(filter(None, parts))


def _meaning(port: Row) -> str:
    if port["state"] == ABSENT:
        return str(port["reason"])
    if is_standby(port):
        return "this leg of the bond is down or on standby"
    if port["state"] == "ACTIVE":
        return "its rate is unknown"
    if port["link_layer"] == "Ethernet" and port["state"] == "DOWN":
        return NO_LINK
    return STATES.get((port["state"], port["phys_state"]), "")


def _missing_and_ambiguous(document: Document) -> Iterator[str]:
    """Yield the ports without a neighbor by reason, then the ports with several neighbors."""
    yield from _missing(document["missing_neighbors"])
    for interface, rows in groupby(document["neighbors"], key=lambda row: row["interface"]):
        selected, *others = rows
        if others:
            yield _ambiguous(interface, selected, others)


def _missing(rows: Iterable[Row]) -> Iterator[str]:
    """Yield a line for each reason but a link that is down: such ports do not count either."""
    for reason, group in _grouped(rows, "reason"):
        if reason != NeighborReason.LINK_DOWN:
            yield f"{_listed(group)}: {MISSING.get(reason, reason)}"


def _ambiguous(interface: str, selected: Row, others: Iterable[Row]) -> str:
    names = [f"{row['device']} {row['port_name'] or row['port_id']}" for row in others]
    first = selected["device"]
    return f"{interface}: several neighbors: {first} selected, also {', '.join(names)}"


def _ignored(ports: Iterable[Row]) -> Iterator[str]:
    ignored = [port for port in ports if port["role"] == "ignored"]
    for reason, group in _grouped(ignored, "reason"):
        yield f"{_listed(group)}: {reason}"


def _grouped(rows: Iterable[Row], field: str) -> list[tuple[str, list[Row]]]:
    """Return the rows that are equal in a field, by its value in sorted order."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(str(row[field]), []).append(row)
    return sorted(groups.items(), key=lambda item: item[0])


def _listed(rows: Iterable[Row]) -> str:
    return listed([row["interface"] for row in rows], MAX_NAMES)


def _problems(problems: Iterable[Row]) -> Iterator[str]:
    """Yield one line for each kind of problem, with its first subject."""
    kinds: dict[str, list[str]] = {}
    for problem in problems:
        kinds.setdefault(_kind(problem), []).append(problem["subject"])
    for kind, subjects in kinds.items():
        subject = f"{listed(subjects, 1)}: "
        yield kind if kind.startswith(f"{subjects[0]} ") else f"{subject}{kind}"


def _kind(problem: Row) -> str:
    text, error = problem["text"], problem["error"]
    return f"{text} ({error})" if error else text


def _section(title: str, lines: Iterable[str]) -> list[str]:
    wrapper = textwrap.TextWrapper(
        WIDTH,
        initial_indent="  ",
        subsequent_indent="    ",
        break_on_hyphens=False,
        break_long_words=False,
    )
    body = [wrapped for line in lines for wrapped in wrapper.wrap(line)]
    return [title, *body] if body else []
