"""The report for a person at three in the morning.

80 columns: one line a port, then the labels, then what is missing and why. Colour only repeats what the words say. It
works on the JSON document, so that it can show nothing that JSON does not.
"""

from __future__ import annotations

import textwrap
from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Port = dict[str, Any]
    Paint = Callable[[str, str], str]

WIDTH = 80
MOST_NAMES = 12  # in one line of the ignored ports
NARROWEST = 6  # characters that a column keeps when the table must shrink
LINKS = {"InfiniBand": "IB", "Ethernet": "Eth"}

# What a port's state means for its cable (IBTA vol. 1, 14.2.5.6, PortState and PortPhysicalState).
MEANING = {
    ("DOWN", "Polling"): "no signal from the far end: cable, transceiver, or the port over there",
    ("DOWN", "Disabled"): "switched off on this side",
    ("DOWN", "Sleep"): "asleep",
    ("DOWN", "PortConfigurationTraining"): "still negotiating with the far end",
    ("DOWN", "LinkErrorRecovery"): "errors on the link: a cable or transceiver going bad",
    ("INIT", "LinkUp"): "cable is fine, the subnet manager has not brought the port up",
    ("ARMED", "LinkUp"): "cable is fine, the subnet manager has not finished with the port",
}
# Drivers say "Disabled" or "Polling" of any Ethernet port without a link.
NO_LINK = "no link: cable, transceiver, the port over there, or the interface is not up"

# Why a port has no neighbour.
SILENCE = {
    "not-listened": "not listened for",
    "silent": "no neighbour has spoken (switches do so every 30 s)",
    "expired": "the neighbour has fallen silent for longer than it promised",
    "shutdown": "the neighbour said goodbye",
    "blocked-by-firmware": "the NIC's firmware keeps LLDP to itself",
    "not-permitted": "not permitted (LLDP needs CAP_NET_RAW, InfiniBand /dev/infiniband/umad*)",
    "no-netdev": "its network device is not here: lent to a pod",
    "no-answer": "the far end does not answer management packets",
    "no-umad": "no libibumad, or no umad device (module ib_umad)",
    "refused": "the port takes no management packets",
    "send-failed": "the management packet could not be sent",
    "malformed": "the answer makes no sense",
    "not-recorded": "the snapshot holds no answer of its neighbour",
    "unavailable": "could not be listened to",
}

COLUMNS: tuple[tuple[str, Callable[[Port], str]], ...] = (
    ("INTERFACE", lambda port: str(port["interface"])),
    ("ROLE", lambda port: str(port["role"])),
    ("LINK", lambda port: LINKS.get(port["link_layer"], port["link_layer"] or "?")),
    ("STATE", lambda port: "standby" if _stands_by(port) else port["state"] or "?"),
    ("RATE", lambda port: _gbps(_rate(port))),
    ("NEIGHBOUR", lambda port: _neighbor(port, "device")),
    ("PORT", lambda port: _neighbor(port, "port_name") or _neighbor(port, "port_id")),
)


def render(report: dict[str, Any], *, colour: bool) -> str:
    """The whole report as text."""
    paint = _paint if colour else _plain
    sections = (
        [_headline(report)],
        _ports(_with_neighbors(report), paint),
        _section("NVLink", _accelerator(report["accelerator"])),
        _labels(report["labels"]),
        _section("Backend ports that do not count", _not_counting(report)),
        _section("Neighbours", _far_ends(report)),
        _section("Ignored", _ignored(report["ports"])),
        _section("Problems", _problems(report["problems"])),
    )
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _headline(report: dict[str, Any]) -> str:
    backend = [port for port in report["ports"] if port["role"] == "backend"]
    if report["speed_gbps"] is None:
        return f"{report['node'] or 'This node'}: the RDMA devices could not be read"
    active = sum(port["state"] == "ACTIVE" and not _stands_by(port) for port in backend)
    speed = _gbps(report["speed_gbps"])
    fabric = report["flavor"] or "no backend network"
    return f"{report['node'] or 'This node'}: {fabric}, {speed}, {active} of {len(backend)} backend ports ACTIVE"


def _with_neighbors(report: dict[str, Any]) -> list[Port]:
    """The ports, each with its selected neighbour."""
    selected = {row["interface"]: row for row in report["neighbors"] if row["selected"]}
    return [
        {**port, "neighbor": selected.get(port["interface"]) if port["role"] == "backend" else None}
        for port in report["ports"]
    ]


def _neighbor(port: Port, field: str) -> str:
    if port["neighbor"]:
        return port["neighbor"][field] or ""
    return "-" if field == "device" and port["role"] == "backend" else ""


def _stands_by(port: Port) -> bool:
    """A leg of a bond that carries nothing, though the device above it is ACTIVE."""
    return (
        bool(port["leg"])
        and port["role"] == "backend"
        and port["state"] == "ACTIVE"
        and port["counted_gbps"] == 0
    )


def _far_ends(report: dict[str, Any]) -> Iterator[str]:
    """Why a port has no neighbour, and which of several was taken."""
    missing = [
        row for row in report["missing_neighbors"] if row["reason"] != "link-down"
    ]  # told above
    missing.sort(key=lambda row: str(row["reason"]))
    for reason, group in groupby(missing, key=lambda row: row["reason"]):
        yield f"{_listed([row['interface'] for row in group])}: {SILENCE.get(reason, reason)}"
    for interface, group in groupby(report["neighbors"], key=lambda row: row["interface"]):
        first, *others = group
        if others:
            rest = ", ".join(
                f"{row['device']} {row['port_name'] or row['port_id']}" for row in others
            )
            yield f"{interface}: several neighbours; {first['device']} taken, beside {rest}"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def _ports(ports: list[Port], paint: Paint) -> list[str]:
    if not ports:
        return []
    rows = [[title for title, _ in COLUMNS]] + [
        [cell(port) for _, cell in COLUMNS] for port in ports
    ]
    widths = _widths(rows)
    lines = [
        "  ".join(_fit(text, width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return [
        lines[0],
        *(paint(line, _mood(port)) for line, port in zip(lines[1:], ports, strict=True)),
    ]


def _widths(rows: list[list[str]]) -> list[int]:
    """As wide as the cells want, the widest column giving way until a line fits."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    while sum(widths) + 2 * (len(widths) - 1) > WIDTH and max(widths) > NARROWEST:
        widths[widths.index(max(widths))] -= 1
    return widths


def _fit(text: str, width: int) -> str:
    """What is cut is cut in the middle: names of one site begin alike, and differ at their end."""
    head = width // 2
    return (
        f"{text[:head]}~{text[len(text) - (width - head - 1) :]}"
        if len(text) > width
        else text.ljust(width)
    )


def _mood(port: Port) -> str:
    if port["role"] != "backend":
        return "dim"
    return "good" if port["counted_gbps"] else "bad"


def _rate(port: Port) -> float | None:
    """A port that is not ACTIVE claims a rate as well; only JSON shows it."""
    rate: float | None = port["counted_gbps"] or port["rate_gbps"]
    return rate if port["state"] == "ACTIVE" and not _stands_by(port) else None


def _gbps(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.3f}".rstrip("0").rstrip(".") + "G"


def _accelerator(accelerator: dict[str, Any]) -> Iterator[str]:
    """The NVLink domain in a line, where the node has GPUs."""
    gpus = len(accelerator["gpus"])
    if gpus:
        reason, text = accelerator["reason"], accelerator["text"]
        missing = f"no domain ({reason})" + f": {text}" * (
            reason == "unsupported"
        )  # the others are problems
        yield f"{gpus} GPU{'s' * (gpus != 1)}: {accelerator['value'] or missing}"
    elif accelerator["reason"] == "failed":
        yield "the GPUs could not be asked"


def _not_counting(report: dict[str, Any]) -> Iterator[str]:
    lent = {
        row["interface"] for row in report["missing_neighbors"] if row["reason"] == "no-netdev"
    }  # told below
    for port in report["ports"]:
        if port["role"] == "backend" and not port["counted_gbps"] and port["interface"] not in lent:
            state = ", ".join(filter(None, (port["state"], port["phys_state"]))) or "state unknown"
            where = f" ({port['pci']})" if port["pci"] else ""
            yield ": ".join(filter(None, (f"{port['interface']}{where}", state, _meaning(port))))


def _meaning(port: Port) -> str:
    if port["state"] == "ACTIVE":
        return (
            "this leg of the bond is down or on standby"
            if _stands_by(port)
            else "its rate is unknown"
        )
    if port["link_layer"] == "Ethernet" and port["state"] == "DOWN":
        return NO_LINK
    return MEANING.get((port["state"], port["phys_state"]), "")


def _ignored(ports: list[Port]) -> Iterator[str]:
    ignored = sorted(
        (port for port in ports if port["role"] == "ignored"), key=lambda port: str(port["reason"])
    )
    for reason, group in groupby(ignored, key=lambda port: port["reason"]):
        yield f"{_listed([port['interface'] for port in group])}: {reason}"


def _problems(problems: list[dict[str, Any]]) -> Iterator[str]:
    """One line for each kind of problem, with the first of those that have it."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for problem in problems:
        kinds.setdefault((problem["text"], problem["error"] or ""), []).append(problem["subject"])
    for (text, error), subjects in kinds.items():
        more = f" and {len(subjects) - 1} more" if len(subjects) > 1 else ""
        yield f"{subjects[0]}{more}: {text}" + (f" ({error})" if error else "")


def _labels(labels: dict[str, str]) -> list[str]:
    """As they are typed; one that is too long for a line goes on behind its `=`."""
    lines = []
    for key, value in labels.items():
        whole = f"  {key}={value}"
        lines += [whole] if len(whole) <= WIDTH else [f"  {key}=", f"    {value}"]
    return ["Labels", *lines] if lines else []


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


def _paint(text: str, mood: str) -> str:
    return f"\x1b[{ {'good': 32, 'bad': 31, 'dim': 2}[mood] }m{text}\x1b[0m"


def _plain(text: str, _mood: str) -> str:
    return text
