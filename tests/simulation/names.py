"""Keys and values of the label contract, as its text defines them. Shares no code with the
agent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tests.simulation.neighbors import Identity

P, IB, ACC = (
    "backend.coreweave.cloud",
    "ib.coreweave.cloud",
    "network.topology.nvidia.com/accelerator",
)
ANNOTATION = f"{P}/observed"
TABLE = re.compile(
    rf"{re.escape(P)}/(flavor|speed\.current|leaves\.current|leafgroup\.current"
    rf"|neighbors\.current\..+\.(device|port-id|port-name))"
    rf"|{re.escape(IB)}/(speed\.current|neighbors\.current\..+\.(device|port-id)|leaves\.current|ports\.current)"
    rf"|{re.escape(ACC)}"
)

Value = str | tuple[str | None, ...] | None
Values = frozenset[Value]


def encode(raw: str) -> str | None:
    """Return a label value as the contract's text defines it; None for no label."""
    data = raw.encode()
    if len(data) > 63:
        state = 14695981039346656037
        for byte in data:
            state = (state ^ byte) * 1099511628211 % 2**64
        return f"x{state:x}"
    text = re.sub("[^A-Za-z0-9._-]", "-", raw)
    return re.sub(r"^[^A-Za-z0-9]+|[^A-Za-z0-9]+$", "", text) or None


def label(identity: Identity) -> Value:
    """Return the values of a neighbor's three labels."""
    return tuple(encode(part) if part else None for part in identity)


def keys(unit: str) -> tuple[str, ...]:
    """Return the keys of a unit in family P (or the accelerator's), one for each part of
    its value.
    """
    kind, _, name = unit.partition(" ")
    if kind == "neighbor":
        return tuple(
            f"{P}/neighbors.current.{name}.{part}" for part in ("device", "port-id", "port-name")
        )
    return {
        "flavor": (f"{P}/flavor",),
        "speed": (f"{P}/speed.current",),
        "leaves": (f"{P}/leaves.current",),
        "group": (f"{P}/leafgroup.current",),
        "accelerator": (ACC,),
    }.get(unit, ())


def twins(unit: str) -> tuple[str | None, ...]:
    """Return the keys of a unit in family IB."""
    kind, _, name = unit.partition(" ")
    if kind == "neighbor":
        return (
            f"{IB}/neighbors.current.{name}.device",
            f"{IB}/neighbors.current.{name}.port-id",
            None,
        )
    return {"speed": (f"{IB}/speed.current",), "leaves": (f"{IB}/leaves.current",),
            "ports": (f"{IB}/ports.current",)}.get(unit, ())  # fmt: skip


def gigabits(total: float) -> str:
    return f"{total:g}G" if total < 1e6 else f"{int(total)}G"


def totals(ports: Iterable[Values]) -> Values:
    """The sums of what each port may count."""
    sums = {0}
    for counts in ports:
        sums = {total + int(str(count or 0)) for total in sums for count in counts}
    return frozenset(map(gigabits, sums))


class Told(NamedTuple):
    """What the annotation tells an agent that begins."""

    rows: Mapping[str, Any]  # its rows, by PCI function
    counts: Mapping[str, int | None]  # of the rows; None: it has none
    is_certain: bool  # the counts may be used
    # Since when parts are unread, by PCI function: state and rate, far end, role
    unread: Mapping[str, tuple[float | None, ...]]
    texts: float | None = None  # since when facts are unknown that the texts have
    domain: float | None = None


def told(annotation: str, speed: str | None, boot: int, suspended: float) -> Told:
    """Read it; `speed` is the agent's own label, `boot` the number of the node's boot.

    The times of the annotation include the seconds that the machine was `suspended`.
    """
    document = json.loads(annotation)
    last = (document.get("partial") or document).get("boot_id") or ""
    is_same_boot = last.startswith(f"{boot:08x}-")

    def since(time: int | None) -> float | None:
        return None if time is None or not is_same_boot else time - suspended

    rows = {row["pci"]: row for row in document.get("ports", ()) if "lost" not in row}
    for row in rows.values():
        if far := row.get("far"):
            parts = zip(("id", "name"), document["switches"][far[0]], strict=True)
            row["neighbor"] = {name: text for name, text in parts if text} | {"port_id": far[1]}
    counts = {pci: row.get("gbps") for pci, row in rows.items()}
    total = gigabits(sum(filter(None, counts.values())))
    is_certain = total == speed and (document.get("boot_id") or "").startswith(f"{boot:08x}-")
    known = {pci: None if gbps is None else int(gbps) for pci, gbps in counts.items()}
    unread = {pci: tuple(map(since, row.get("unread") or ())) for pci, row in rows.items()}
    return Told(
        rows,
        known,
        is_certain and None not in known.values(),
        {pci: times or (None,) * 3 for pci, times in unread.items()},
        since(document.get("texts_since")),
        since(document.get("domain_since")),
    )


def lost(annotation: str) -> set[str]:
    """Return the PCI functions that it has as lost."""
    return {row["pci"] for row in json.loads(annotation).get("ports", ()) if "lost" in row}


def natural(name: str) -> list[tuple[int, int, str]]:
    return [
        (0, int(part), "") if part.isdigit() else (1, 0, part)
        for part in re.findall(r"\d+|\D+", name)
    ]


def values(unit: str, labels: Mapping[str, str]) -> Values:
    """Return the unit's values in both families; another manager may have changed one of them."""
    own, others = keys(unit), twins(unit)
    if not own:
        return frozenset({value(tuple(key for key in others if key), labels)})
    mixed = tuple(other or key for key, other in zip(own, others, strict=True)) if others else own
    return frozenset({value(own, labels), value(mixed, labels)})


def value(names: tuple[str, ...], labels: Mapping[str, str]) -> Value:
    if len(names) == 1:
        return labels.get(names[0])
    parts = tuple(labels.get(name) for name in names)
    return parts if any(parts) else None
