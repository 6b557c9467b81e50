"""The interface of this node that a plan names: by name, netdev, PCI address or number.

A number (`HCA 1`, `rail5`, `3`) is looked up in --hca-map; without that file it counts the backend
devices in PCI order. That order is an assumption, which is printed, and is not made where a device
is missing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from agent.verify.expected import Row
    from agent.verify.seen import Port, SeenNode

# Why a row has no interface here.
NOT_BACKEND = "not a backend port"
EXCLUDED = "excluded by --exclude-device"
UNREAD = "its device could not be read"
ABSENT = "not on this node"
UNKNOWN = "names no interface of this node"
NUMBERING = "numbering unknown, give --hca-map"

_PCI = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")
_NUMBER = re.compile(r"((?:hca|rail|nic)[ _#.-]*)?(\d{1,2})(?: ?/ ?(?:p|port)? ?1)?", re.IGNORECASE)
_PORT = re.compile(r"(.+?)(?:/p?|:| port | p)(\d{1,2})", re.IGNORECASE)


class Resolved(NamedTuple):
    """The rows with their interfaces, and those without one."""

    rows: tuple[Row, ...]
    without: tuple[tuple[Row, str], ...] = ()  # rows without an interface, and why
    assumption: str | None = None
    numbered: frozenset[str] = frozenset()  # the interfaces found by the assumption


def resolve(
    rows: Iterable[Row], node: SeenNode, hca_map: Mapping[str, str], of_plan: Collection[str] = ()
) -> Resolved:
    """Find the interface of each row; `of_plan` are the interfaces of all hosts of the plan."""
    rows = list(rows)
    names = _names(node.ports.values())
    order = _Order([] if hca_map else rows, node, of_plan)
    found = {row.text: _interface(row.text, names, hca_map) for row in rows}
    numbered = {row.text: order.interface(row.text) for row in rows if not found[row.text]}
    whole = [row._replace(interface=found[row.text] or numbered.get(row.text)) for row in rows]
    shapes = {shape(row.text) for row in whole if row.interface}
    is_complete = not node.unread and not any(_is_lent(port) for port in node.ports.values())
    used = frozenset(filter(None, numbered.values()))
    return Resolved(
        tuple(row for row in whole if row.interface),
        tuple(
            (row, ABSENT if row.text in hca_map else _reason(row, node, shapes, is_complete))
            for row in whole
            if not row.interface
        ),
        order.assumption if used else None,
        used,
    )


def _names(ports: Iterable[Port]) -> dict[str, str]:
    """Return the interface of every name of a port; a name of several ports is left out."""
    found: dict[str, str | None] = {}
    for port in ports:
        device, number = port.device, port.number
        names = (port.interface, port.netdev, port.pci, device)
        for name in {*names, f"{device}/{number}", f"{device}-{number}"}:
            if name:
                key = name.lower()
                found[key] = None if key in found else port.interface
    return {name: one for name, one in found.items() if one}


def _interface(text: str, names: Mapping[str, str], hca_map: Mapping[str, str]) -> str | None:
    """Return the interface that a text names by itself, or by --hca-map."""
    mapped = hca_map.get(text, text)
    return next((names[form] for form in _forms(mapped) if form in names), None)


def _forms(text: str) -> list[str]:
    """Return the spellings under which an interface is looked up."""
    plain = text.strip().lower()
    forms = [plain]
    if found := _PCI.fullmatch(plain):
        forms.append(f"{(found[1] or '0000')[-4:]}:{found[2]}")
    if found := _PORT.fullmatch(plain):
        forms.append(f"{found[1]}/{int(found[2])}")
    return forms


def shape(text: str) -> str:
    """Return a name with its numbers replaced: `mlx5_#`."""
    return re.sub(r"\d+", "#", text.lower())


def _is_lent(port: Port) -> bool:
    """Return True if the netdev is in another network namespace, so its name is not known."""
    return port.link_layer == "Ethernet" and port.netdev is None


def _reason(row: Row, node: SeenNode, shapes: Collection[str], is_complete: bool) -> str:
    """Return why a row has no interface.

    A name counts as that of a missing interface where labels or a PCI address give it, or where
    rows of the same form name others; anything else may be a management port.
    """
    forms = {*_forms(row.text), row.text}
    device = row.text.partition("/")[0]
    if {*forms, device} & node.others:
        return NOT_BACKEND
    if device in node.excluded:
        return EXCLUDED
    if device in node.unread:
        return UNREAD
    if _NUMBER.fullmatch(row.text):
        return NUMBERING
    is_pci = bool(_PCI.fullmatch(row.text.lower()))
    is_like_others = is_complete and shape(row.text) in shapes
    return ABSENT if row.is_label or is_pci or is_like_others else UNKNOWN


class _Order:
    """The backend devices in PCI order, and the number that the plan begins with."""

    def __init__(self, rows: Sequence[Row], node: SeenNode, of_plan: Collection[str]) -> None:
        own = {number for row in rows if (number := _number(row.text)) is not None}
        all_hosts = {_number(text) for text in of_plan if _has_word(text)} - {None}
        self._interfaces = [] if node.unread else _in_pci_order(node.ports.values())
        self._base = _base(own, own | {one for one in all_hosts if one is not None},
                           len(self._interfaces))  # fmt: skip

    @property
    def assumption(self) -> str:
        """The sentence that is printed."""
        first = self._interfaces[0] if self._interfaces else ""
        return (
            f"HCA numbers of the plan count the backend devices in PCI order: "
            f"{self._base} is {first} (--hca-map says otherwise)"
        )

    def interface(self, text: str) -> str | None:
        """Return the interface that a number stands for; None if it is no number, or unknown."""
        number = _number(text)
        if number is None or self._base is None:
            return None
        return self._interfaces[number - self._base]


def _number(text: str) -> int | None:
    found = _NUMBER.fullmatch(text.strip())
    return int(found[2]) if found else None


def _has_word(text: str) -> bool:
    """Return True for a number that names an HCA, not perhaps the port of a switch."""
    found = _NUMBER.fullmatch(text.strip())
    return bool(found and found[1])


def _base(own: Collection[int], of_plan: Collection[int], count: int) -> int | None:
    """Return 0 or 1, the number of the first device; None if the plan does not show it."""
    if not own:
        return None
    base = 0 if 0 in of_plan else 1 if max(of_plan) == count else None
    return base if base is not None and max(own) - base < count else None


def _in_pci_order(ports: Iterable[Port]) -> list[str]:
    """Return the interfaces by PCI address; none if an address is not known or has several."""
    ports = list(ports)
    addresses = [port.pci or "" for port in ports]
    if "" in addresses or len({*addresses}) < len(ports):
        return []
    return [port.interface for port in sorted(ports, key=lambda port: port.pci or "")]
