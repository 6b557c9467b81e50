"""Print the document as a table for a person at a terminal.

One line for each port, then the labels, then the reasons for missing labels. The table is made from
the JSON document, so it shows nothing that JSON does not have. Lines have 80 columns at most, but
for words that are longer. Color adds no information to the words. Text of the document may be a
stranger's (a neighbor's name, a snapshot's reason), so all of it is made printable first.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from agent import encode
from agent.model import OF_NOTE, PlatformPosition
from agent.output.backend import ABSENT
from agent.output.layout import WIDTH, columns, joined, section
from agent.reasons import SWITCHED_OFF, AcceleratorReason, HoldReason, NeighborReason
from agent.text import Json, listed, visible

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

LINKS = {"InfiniBand": "IB", "Ethernet": "Eth"}
COLORS = {"good": 32, "bad": 31, "dim": 2}  # SGR parameters (ECMA-48, 8.3.117)
TITLES = ("INTERFACE", "ROLE", "LINK", "STATE", "RATE", "NEIGHBOR", "PORT")
FAR_END = (5, 6)  # shrink first: the name of an interface is the name in a label key


def render(document: Json, *, color: bool) -> str:
    """Return the table and the sections below it as text."""
    document = _printable(document)
    notes = [problem for problem in document["problems"] if problem["source"] == OF_NOTE]
    problems = [problem for problem in document["problems"] if problem["source"] != OF_NOTE]
    labels = []  # as kubectl takes them; a label that is too long continues behind its `=`
    for key, value in document["labels"].items():
        line = f"  {key}={value}"
        labels += [line] if len(line) <= WIDTH else [f"  {key}=", f"    {value}"]
    at = document["position"]
    platform = [f"{PlatformPosition(**at)}, slot {at['slot']}, host {at['host']}"] if at else []
    unstable = (
        f"{link['interface']}: {link['text']}"
        for link in document["link_errors"]
        if link["unstable"]
    )
    return joined(
        [
            [_headline(document)],
            _port_lines(document, color=color),
            _section("NVLink", _accelerator(document["accelerator"])),
            _section("Platform", platform),
            ["Labels", *labels] if labels else [],
            _section("Switches above", _tiers(document["tiers"])),
            _section("Transceivers", _modules(document.get("modules") or [])),
            _section("Backend ports that do not count", _not_counting(document)),
            _section("Links with errors", unstable),
            _section("NICs", _nics(document)),
            _section("Neighbors", _missing_and_ambiguous(document)),
            _section("Backend", _with_role("backend", document["ports"])),
            _section("Ignored", _with_role("ignored", document["ports"])),
            _section("Problems", _problems(problems)),
            _section("Notes", _problems(notes)),
        ]
    )


def _section(title: str, lines: Iterable[str]) -> list[str]:
    return section(title, lines, most=sys.maxsize, break_words=False)  # the texts are printable


def _printable(value: Any) -> Any:
    """Return a copy of a JSON value in which every string is printable."""
    if isinstance(value, str):
        return visible(value, MAX_TEXT)
    if isinstance(value, dict):
        return {_printable(key): _printable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_printable(item) for item in value]
    return value


def _headline(document: Json) -> str:
    node = document["node"] or "This node"
    if document["speed_gbps"] is None and not document["ports"]:  # no port has a role
        problems = (problem for problem in document["problems"] if problem["subject"] == "rdma")
        if any(
            str(problem["text"]).startswith(HoldReason.FRONT_END_UNKNOWN) for problem in problems
        ):
            return f"{node}: the front end is not known"
        return f"{node}: the RDMA devices could not be read"
    flavor = document["flavor"] or "no backend network"
    backend = [port for port in document["ports"] if _is_backend(port)]
    active = sum(port["state"] == "ACTIVE" and not _is_standby(port) for port in backend)
    ports = f"{active} of {len(backend)} backend ports ACTIVE"
    gbps = document["speed_gbps"]
    speed = "speed unknown" if gbps is None else encode.gbps(gbps)
    return f"{node}: {flavor}, {speed}, {ports}"


def _port_lines(document: Json, *, color: bool) -> list[str]:
    """Return the line of titles and a line for each port; none without ports."""
    ports = document["ports"]
    if not ports:
        return []
    selected = {
        neighbor["interface"]: neighbor
        for neighbor in document["neighbors"]
        if neighbor["selected"]
    }
    rows = [_cells(port, selected.get(port["interface"])) for port in ports]
    titles, *lines = columns([TITLES, *rows], "~", FAR_END)
    if color:
        for index, port in enumerate(ports):
            name = "dim"
            if _is_backend(port):
                name = "good" if port["counted_gbps"] else "bad"
            lines[index] = f"\x1b[{COLORS[name]}m{lines[index]}\x1b[0m"
    return [titles, *lines]


def _cells(port: Json, far_end: Json | None) -> tuple[str, ...]:
    """Return the cells of a port, as in TITLES; `far_end` is its selected neighbor."""
    is_standby, is_backend = _is_standby(port), _is_backend(port)
    # ports that are not ACTIVE have a rate in sysfs, too, but do not use it
    is_used = port["state"] == "ACTIVE" and not is_standby
    rate = (port["counted_gbps"] or port["rate_gbps"]) if is_used else None
    neighbor, far_port = "-" if is_backend else "", ""
    if far_end and is_backend:
        neighbor = far_end["device"] or ""
        far_port = far_end["port_name"] or far_end["port_id"] or ""
    return (
        str(port["interface"]),
        str(port["role"]),
        LINKS.get(port["link_layer"], port["link_layer"] or "?"),
        "standby" if is_standby else port["state"] or "?",
        "-" if rate is None else encode.gbps(rate),
        neighbor,
        far_port,
    )


def _is_backend(port: Json) -> bool:
    return bool(port["role"] == "backend")


def _is_standby(port: Json) -> bool:
    """Return True for a leg of an ACTIVE bond that carries no traffic itself."""
    is_active_leg = port["leg"] and _is_backend(port) and port["state"] == "ACTIVE"
    return bool(is_active_leg) and port["counted_gbps"] == 0


def _accelerator(accelerator: dict[str, Any]) -> Iterator[str]:
    """Yield the NVLink domain, or the reason for its absence, if the node has GPUs.

    A source that is switched off is not in the table.
    """
    gpus = len(accelerator["gpus"])
    if gpus:
        reason = accelerator["reason"]
        domain = accelerator["value"] or f"no domain ({reason})"
        if reason == AcceleratorReason.UNSUPPORTED:  # the other reasons are among the problems
            domain = f"{domain}: {accelerator['text']}"
        yield f"{gpus} GPU{'s' * (gpus != 1)}: {domain}"
    elif accelerator["text"] != SWITCHED_OFF and accelerator["reason"] == AcceleratorReason.FAILED:
        yield AcceleratorReason.FAILED.text


def _modules(modules: Iterable[Json]) -> Iterator[str]:
    for module in modules:
        if module["error"]:
            yield f"{module['interface']}: {module['error']}"
            continue
        temperature = module["celsius"]
        parts = [
            " ".join(filter(None, map(module.get, ("kind", "vendor", "part", "serial")))),
            "" if temperature is None else f"{temperature:g} C",
            *(
                f"{way} {' '.join(map(_dbm, powers))} dBm"
                for way in ("rx", "tx")
                if (powers := module[f"{way}_power_mw"]) is not None
            ),
            *module["alarms"],
        ]
        yield f"{module['interface']}: {', '.join(filter(None, parts))}"


def _dbm(milliwatts: float) -> str:
    """Return an optical power in dBm; `dark` without light."""
    return f"{10 * math.log10(milliwatts):.1f}" if milliwatts > 0 else "dark"


def _tiers(tiers: Json | None) -> Iterator[str]:
    """Yield a line a tier, and why the next one is missing; a failure is among the problems."""
    if tiers is None or tiers["reason"] == "failed":
        return
    for row in tiers["tiers"]:
        others = len(row["switches"]) - 1
        yield f"tier {row['tier']}: {row['value']}" + (f" and {others} more" if others else "")
    if tiers["reason"]:
        yield f"tier {len(tiers['tiers']) + 1}: none, {tiers['text']}"


def _not_counting(document: Json) -> Iterator[str]:
    """Yield the backend ports without a rate by state; lent ports are in another section."""
    missing = document["missing_neighbors"]
    lent = {port["interface"] for port in missing if port["reason"] == NeighborReason.NO_NETDEV}
    by_state: dict[str, list[str]] = {}
    for port in document["ports"]:
        if _is_backend(port) and not port["counted_gbps"] and port["interface"] not in lent:
            name = f"{port['interface']} ({port['pci']})" if port["pci"] else port["interface"]
            states = ", ".join(filter(None, (port["state"], port["phys_state"])))
            state = ": ".join(filter(None, (states or "state unknown", _meaning(port))))
            by_state.setdefault(state, []).append(name)
    for state, names in by_state.items():
        yield f"{listed(names, MAX_NAMES)}: {state}"


def _meaning(port: Json) -> str:
    """Return the meaning of the state of a port without a rate."""
    if port["state"] == ABSENT:
        return str(port["reason"])
    if _is_standby(port):
        return "this leg of the bond is down or on standby"
    if port["state"] == "ACTIVE":
        return "its rate is unknown"
    if port["link_layer"] == "Ethernet" and port["state"] == "DOWN":
        link = port["link_state"]
        return f"no link; its driver: {link['text']}" if link else NO_LINK
    return STATES.get((port["state"], port["phys_state"]), "")


def _nics(document: Json) -> Iterator[str]:
    """Yield the NICs whose driver reports an error, and those that another firmware waits for."""
    pending: dict[str, list[str]] = {}
    for nic in document["nics"] or ():
        ports = [port for port in document["ports"] if port["pci"] == nic["pci"]]
        name = f"{nic['pci']} ({', '.join(port['interface'] for port in ports)})"
        if nic["fault"]:
            is_up = any(port["state"] == "ACTIVE" for port in ports)
            yield f"{name}: {nic['fault']}{', although its link is up' * is_up}"
        for version in nic["firmware"]:
            if version["pending"]:
                text = f"{version['name']} {version['running']} runs, {version['stored']} is stored"
                pending.setdefault(text, []).append(name)
    for text, names in pending.items():
        yield f"{listed(names, MAX_NAMES)}: {text}: a reset of the NIC loads it"


def _missing_and_ambiguous(document: Json) -> Iterator[str]:
    """Yield the ports without a neighbor by reason, then the ports with several neighbors."""
    for reason, names in _by_reason(document["missing_neighbors"]):
        if reason != NeighborReason.LINK_DOWN:  # such ports do not count either
            yield f"{names}: {MISSING.get(reason, reason)}"
    by_interface = groupby(document["neighbors"], key=lambda neighbor: neighbor["interface"])
    for interface, neighbors in by_interface:
        selected, *others = neighbors
        if others:
            names = ", ".join(
                f"{neighbor['device']} {neighbor['port_name'] or neighbor['port_id']}"
                for neighbor in others
            )
            yield f"{interface}: several neighbors: {selected['device']} selected, also {names}"


def _with_role(role: str, ports: Iterable[Json]) -> Iterator[str]:
    """Yield the evidence that decided, with the interfaces; an absent port has none."""
    present = [port for port in ports if port["role"] == role and port["state"] != ABSENT]
    for reason, names in _by_reason(present):
        yield f"{names}: {reason}"


def _by_reason(ports: Iterable[Json]) -> list[tuple[str, str]]:
    """Return each reason, in sorted order, with the interfaces that have it."""
    groups: dict[str, list[str]] = {}
    for port in ports:
        groups.setdefault(str(port["reason"]), []).append(port["interface"])
    return [(reason, listed(names, MAX_NAMES)) for reason, names in sorted(groups.items())]


def _problems(problems: Iterable[Json]) -> Iterator[str]:
    """Yield one line for each kind of problem, with its first subject; flags are all named."""
    kinds: dict[tuple[str, bool], list[str]] = {}
    for problem in problems:
        text, error, subject = problem["text"], problem["error"], problem["subject"]
        own = text.removeprefix(f"{subject} ")
        kind = f"{own} ({error})" if error else own
        kinds.setdefault((kind, own != text), []).append(subject)
    for (kind, is_sentence), subjects in kinds.items():
        colon = "" if is_sentence and len(subjects) == 1 else ":"
        most = len(subjects) if subjects[0].startswith("--") else 1
        yield f"{listed(subjects, most)}{colon} {kind}"
