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

from agent.model import AcceleratorReason, NeighborReason
from agent.text import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Port = dict[str, Any]  # an entry of `ports`, and its selected neighbor or None as "neighbor"
    Paint = Callable[[str, str], str]

WIDTH = 80
MAX_NAMES = 12  # interfaces listed in one line
MIN_COLUMN_WIDTH = 6
MAX_TEXT = 1000  # characters of one text of the document
LINKS = {"InfiniBand": "IB", "Ethernet": "Eth"}
COLORS = {"good": 32, "bad": 31, "dim": 2}  # SGR parameters (ECMA-48, 8.3.117)

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

COLUMNS: tuple[tuple[str, Callable[[Port], str]], ...] = (
    ("INTERFACE", lambda port: str(port["interface"])),
    ("ROLE", lambda port: str(port["role"])),
    ("LINK", lambda port: LINKS.get(port["link_layer"], port["link_layer"] or "?")),
    ("STATE", lambda port: "standby" if _is_standby(port) else port["state"] or "?"),
    ("RATE", lambda port: _gbps(_rate(port))),
    ("NEIGHBOR", lambda port: _neighbor(port, "device")),
    ("PORT", lambda port: _neighbor(port, "port_name") or _neighbor(port, "port_id")),
)


def render(document: dict[str, Any], *, color: bool) -> str:
    """Return the table and the sections below it as text."""
    document = _printable(document)
    paint = _paint if color else _plain
    sections = (
        [_headline(document)],
        _ports(_with_neighbors(document), paint),
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


def _headline(document: dict[str, Any]) -> str:
    node = document["node"] or "This node"
    if document["speed_gbps"] is None:
        return f"{node}: the RDMA devices could not be read"
    backend = [port for port in document["ports"] if port["role"] == "backend"]
    active = sum(port["state"] == "ACTIVE" and not _is_standby(port) for port in backend)
    flavor = document["flavor"] or "no backend network"
    speed = _gbps(document["speed_gbps"])
    return f"{node}: {flavor}, {speed}, {active} of {len(backend)} backend ports ACTIVE"


def _with_neighbors(document: dict[str, Any]) -> list[Port]:
    """Return the ports, each with its selected neighbor."""
    selected = {row["interface"]: row for row in document["neighbors"] if row["selected"]}
    ports = []
    for port in document["ports"]:
        neighbor = selected.get(port["interface"]) if port["role"] == "backend" else None
        ports.append({**port, "neighbor": neighbor})
    return ports


def _neighbor(port: Port, field: str) -> str:
    if port["neighbor"]:
        return port["neighbor"][field] or ""
    return "-" if field == "device" and port["role"] == "backend" else ""


def _is_standby(port: Port) -> bool:
    """Return True for a leg of an ACTIVE bond that carries no traffic itself."""
    is_active_leg = port["leg"] and port["role"] == "backend" and port["state"] == "ACTIVE"
    return bool(is_active_leg) and port["counted_gbps"] == 0


def _ports(ports: list[Port], paint: Paint) -> list[str]:
    if not ports:
        return []
    titles = [title for title, _ in COLUMNS]
    rows = [[cell(port) for _, cell in COLUMNS] for port in ports]
    widths = _widths([titles, *rows])
    lines = [_line(row, widths) for row in rows]
    painted = [paint(line, _color(port)) for line, port in zip(lines, ports, strict=True)]
    return [_line(titles, widths), *painted]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    fitted = (_fit(text, width) for text, width in zip(cells, widths, strict=True))
    return "  ".join(fitted).rstrip()


def _widths(rows: list[list[str]]) -> list[int]:
    """Return the widths of the columns; the widest shrink until a line has WIDTH characters."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    while sum(widths) + 2 * (len(widths) - 1) > WIDTH and max(widths) > MIN_COLUMN_WIDTH:
        widths[widths.index(max(widths))] -= 1
    return widths


def _fit(text: str, width: int) -> str:
    """Pad or cut a cell; the cut is in the middle, since the names of a site differ at the end."""
    if len(text) <= width:
        return text.ljust(width)
    head = width // 2
    tail = width - head - 1
    return f"{text[:head]}~{text[len(text) - tail :]}"


def _color(port: Port) -> str:
    if port["role"] != "backend":
        return "dim"
    return "good" if port["counted_gbps"] else "bad"


def _rate(port: Port) -> float | None:
    """Return the rate of an ACTIVE port; other ports have one in sysfs, too, but do not use it."""
    rate: float | None = port["counted_gbps"] or port["rate_gbps"]
    return rate if port["state"] == "ACTIVE" and not _is_standby(port) else None


def _gbps(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.3f}".rstrip("0").rstrip(".") + "G"


def _accelerator(accelerator: dict[str, Any]) -> Iterator[str]:
    """Yield the NVLink domain, or the reason for its absence, if the node has GPUs."""
    gpus, reason = len(accelerator["gpus"]), accelerator["reason"]
    if not gpus:
        if reason == AcceleratorReason.FAILED:
            yield AcceleratorReason.FAILED.text
        return
    domain = accelerator["value"] or f"no domain ({reason})"
    if reason == AcceleratorReason.UNSUPPORTED:  # the other reasons are among the problems
        domain = f"{domain}: {accelerator['text']}"
    yield f"{gpus} GPU{'s' * (gpus != 1)}: {domain}"


def _labels(labels: dict[str, str]) -> list[str]:
    """Return the labels as kubectl takes them; one that is too long continues behind its `=`."""
    lines = []
    for key, value in labels.items():
        line = f"  {key}={value}"
        lines += [line] if len(line) <= WIDTH else [f"  {key}=", f"    {value}"]
    return ["Labels", *lines] if lines else []


def _not_counting(document: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each backend port without a rate; lent ports are in another section."""
    missing = document["missing_neighbors"]
    lent = {row["interface"] for row in missing if row["reason"] == NeighborReason.NO_NETDEV}
    for port in document["ports"]:
        if port["role"] != "backend" or port["counted_gbps"] or port["interface"] in lent:
            continue
        name = f"{port['interface']} ({port['pci']})" if port["pci"] else port["interface"]
        states = [state for state in (port["state"], port["phys_state"]) if state]
        parts = (name, ", ".join(states) or "state unknown", _meaning(port))
        yield ": ".join(part for part in parts if part)


def _meaning(port: Port) -> str:
    if _is_standby(port):
        return "this leg of the bond is down or on standby"
    if port["state"] == "ACTIVE":
        return "its rate is unknown"
    if port["link_layer"] == "Ethernet" and port["state"] == "DOWN":
        return NO_LINK
    return STATES.get((port["state"], port["phys_state"]), "")


def _missing_and_ambiguous(document: dict[str, Any]) -> Iterator[str]:
    """Yield the ports without a neighbor by reason, then the ports with several neighbors.

    Ports whose link is down are left out: they are among those that do not count.
    """
    for reason, rows in _grouped(document["missing_neighbors"], "reason"):
        if reason != NeighborReason.LINK_DOWN:
            yield f"{_listed(rows)}: {MISSING.get(reason, reason)}"
    for interface, group in groupby(document["neighbors"], key=lambda row: row["interface"]):
        selected, *others = group
        if others:
            names = [f"{row['device']} {row['port_name'] or row['port_id']}" for row in others]
            first = selected["device"]
            yield f"{interface}: several neighbors: {first} selected, also {', '.join(names)}"


def _ignored(ports: list[Port]) -> Iterator[str]:
    ignored = [port for port in ports if port["role"] == "ignored"]
    for reason, group in _grouped(ignored, "reason"):
        yield f"{_listed(group)}: {reason}"


def _grouped(rows: list[dict[str, Any]], field: str) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the rows that are equal in a field, by its value in sorted order."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(str(row[field]), []).append(row)
    yield from sorted(groups.items(), key=lambda item: item[0])


def _listed(rows: list[dict[str, Any]]) -> str:
    names = [row["interface"] for row in rows]
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more


def _problems(problems: list[dict[str, Any]]) -> Iterator[str]:
    """Yield one line for each kind of problem, with its first subject."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for problem in problems:
        kinds.setdefault((problem["text"], problem["error"] or ""), []).append(problem["subject"])
    for (text, error), subjects in kinds.items():
        more = f" and {len(subjects) - 1} more" if len(subjects) > 1 else ""
        name = f" ({error})" if error else ""
        yield f"{subjects[0]}{more}: {text}{name}"


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


def _paint(text: str, color: str) -> str:
    return f"\x1b[{COLORS[color]}m{text}\x1b[0m"


def _plain(text: str, _color: str) -> str:
    return text
