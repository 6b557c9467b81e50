"""The interface of this node that a plan names: by name, netdev, PCI address or number.

A number (`HCA 1`, `rail5`, `3`) is looked up in --hca-map; without that file it counts the backend
devices in PCI order. That order is an assumption, which is printed, and is made only where the plan
numbers as many devices as the node has.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from agent.ids import pci_address
from agent.sources.roles import is_of_device

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from agent.verify.expected import Row
    from agent.verify.seen import Port, SeenNode

    Identity = tuple[str, str, int, str | None, str | None]  # interface, device, its port, ...

# Why a row has no interface here.
NOT_BACKEND = "not a backend port"
EXCLUDED = "excluded by --exclude-device"
UNREAD = "its device could not be read"
ABSENT = "not on this node"
UNKNOWN = "names no interface of this node (--hca-map may say which)"
NUMBERING = "numbering unknown, give --hca-map"
SEVERAL = "names several ports of this node, give the port or its netdev"
NO_RDMA = "a network device here without an RDMA device"
NOT_BACKEND_NOW = "expected by its labels, but no backend port now"
PERHAPS_UNREAD = "perhaps a device that is excluded or could not be read"

_NUMBER = re.compile(r"((?:hca|rail|nic)[ _#.-]*)?(\d{1,2})(?: ?/ ?(?:p|port)? ?1)?", re.IGNORECASE)
_PORT = re.compile(r"(.+?)(?:/p?|:| port | p)(\d{1,2})", re.IGNORECASE)


class Lookup(NamedTuple):
    """Where names are looked up, beside the ports of the node."""

    hca_map: Mapping[str, str] = {}
    on_bus: Collection[str] = ()  # PCI functions; empty: not read
    netdevs: Collection[str] = ()  # all of the node; empty: not read


NOWHERE = Lookup()


class Resolved(NamedTuple):
    """The rows with their interfaces, and those without one."""

    rows: tuple[Row, ...]
    without: tuple[tuple[Row, str], ...] = ()  # rows without an interface, and why
    assumption: str | None = None
    numbered: frozenset[str] = frozenset()  # the interfaces found by the assumption


def resolve(
    rows: Iterable[Row], node: SeenNode, lookup: Lookup = NOWHERE, of_plan: Collection[str] = ()
) -> Resolved:
    """Find the interface of each row; `of_plan` are the interfaces of all hosts of the plan."""
    rows = list(rows)
    names = _names(tuple(port[:5] for port in node.ports.values()))
    named = {row.text: _named(row.text, names, lookup) for row in rows}
    others = [] if lookup.hca_map else [text for text, found in named.items() if not found]
    numbered, assumption = _numbered(others, rows, node, of_plan)
    one = {text: found[0] for text, found in named.items() if len(found) == 1} | numbered
    found = tuple(row.at(one[row.text]) for row in rows if row.text in one)
    without = [row for row in rows if row.text not in one]
    reason = _Reasons(node, lookup, found)
    return Resolved(
        found,
        tuple((row, SEVERAL if named[row.text] else reason(row)) for row in without),
        assumption,
        frozenset(numbered.values()),
    )


def _numbered(
    texts: Collection[str], rows: Sequence[Row], node: SeenNode, of_plan: Collection[str]
) -> tuple[dict[str, str], str | None]:
    """Return the interfaces that texts stand for as numbers, and the assumption if any does."""
    if not texts:
        return {}, None
    order = _Order(rows, node, of_plan)
    found = {text: name for text in texts if (name := order.interface(text))}
    return found, order.assumption if found else None


@lru_cache(1024)  # the nodes of a fleet have the same few sets of ports
def _names(ports: tuple[Identity, ...]) -> Mapping[str, tuple[str, ...]]:
    """Return the interfaces of every name of a port."""
    found: dict[str, tuple[str, ...]] = {}
    for interface, device, number, netdev, pci in ports:
        names = (interface, netdev, pci, device, f"{device}/{number}", f"{device}-{number}")
        for name in filter(None, names):
            known = found.get(key := name.lower(), ())
            if interface not in known:
                found[key] = (*known, interface)
    return found


def _named(text: str, names: Mapping[str, tuple[str, ...]], lookup: Lookup) -> tuple[str, ...]:
    """Return the interfaces that a text names by itself, or by --hca-map."""
    mapped = lookup.hca_map.get(map_key(text), text) if lookup.hca_map else text
    return next((names[form] for form in _forms(mapped) if form in names), ())


def map_key(text: str) -> str:
    """Return a text of the plan as --hca-map looks it up: without case and white space."""
    return "".join(text.casefold().split())


@lru_cache(8192)
def _forms(text: str) -> tuple[str, ...]:
    """Return the spellings under which an interface is looked up."""
    plain = text.strip().lower()
    port = _PORT.fullmatch(plain)
    forms = [plain, pci_address(plain), f"{port[1]}/{int(port[2])}" if port else None]
    return tuple(filter(None, forms))


@lru_cache(8192)
def shape(text: str) -> str:
    """Return a name with its numbers replaced: `mlx5_#`."""
    return re.sub(r"\d+", "#", text.lower())


def _is_lent(port: Port) -> bool:
    """Return True if the netdev is in another network namespace, so its name is not known."""
    return port.link_layer == "Ethernet" and port.netdev is None


class _Reasons:
    """Gives the reason why a row has no interface."""

    def __init__(self, node: SeenNode, lookup: Lookup, found: Collection[Row]) -> None:
        self._node, self._lookup, self._found = node, lookup, found

    def __call__(self, row: Row) -> str:
        """Return the reason, one of those above."""
        mapped = self._lookup.hca_map.get(map_key(row.text))
        row = row._replace(text=mapped or row.text)
        if reason := self._of_device(row):
            return reason
        if pci := pci_address(row.text.strip()):
            return self._of_address(pci)
        if mapped or row.is_label:
            return ABSENT
        return NUMBERING if _NUMBER.fullmatch(row.text) else self._of_name(row.text)

    def _of_device(self, row: Row) -> str | None:
        """Return the reason of a row that names a device which is no backend, or is not read."""
        node, device = self._node, row.text.partition("/")[0]
        if {*_forms(row.text), row.text, device} & node.others:
            return NOT_BACKEND_NOW if row.is_label else NOT_BACKEND
        if any(is_of_device(device, one) for one in node.excluded):
            return EXCLUDED
        return UNREAD if any(is_of_device(device, one) for one in node.unread) else None

    @property
    def _is_complete(self) -> bool:
        node = self._node
        has_lent = any(map(_is_lent, node.ports.values()))
        return not (node.unread or node.excluded or has_lent)

    def _of_address(self, pci: str) -> str:
        is_gone = self._lookup.on_bus and pci not in self._lookup.on_bus
        return ABSENT if is_gone or self._is_complete else PERHAPS_UNREAD

    def _of_name(self, text: str) -> str:
        """Return the reason of any other name: missing if others of its form are there."""
        if all(shape(row.text) != shape(text) for row in self._found):
            return UNKNOWN
        if text in self._lookup.netdevs:
            return NO_RDMA
        return ABSENT if self._is_complete else UNKNOWN


class _Order:
    """The backend devices in PCI order, and the number that the plan begins with."""

    def __init__(self, rows: Sequence[Row], node: SeenNode, of_plan: Collection[str]) -> None:
        own = {number for row in rows if (number := _number(row.text)) is not None}
        self._interfaces = [] if node.unread else _in_pci_order(node.ports.values())
        self._base = _base(own, own.union(numbers(of_plan)), len(self._interfaces))

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


@lru_cache(8192)
def _number(text: str) -> int | None:
    found = _NUMBER.fullmatch(text.strip())
    return int(found[2]) if found else None


def numbers(texts: Iterable[str]) -> dict[int, str]:
    """Return the numbers that name HCAs, not perhaps ports of a switch, each with a text."""
    matches = ((_NUMBER.fullmatch(text.strip()), text) for text in texts)
    return {int(found[2]): text for found, text in matches if found and found[1]}


def _base(own: Collection[int], of_plan: Collection[int], count: int) -> int | None:
    """Return 0 or 1, the number of the first device; None if the numbers are not one for each."""
    base = 0 if 0 in of_plan else 1
    has_all = own and count in {max(own) - base + 1, max(of_plan) - base + 1}
    return base if has_all and max(own) - base < count else None


def _in_pci_order(ports: Iterable[Port]) -> list[str]:
    """Return the interfaces by PCI address; none if an address is not known or has several."""
    ports = list(ports)
    addresses = [port.pci or "" for port in ports]
    if "" in addresses or len({*addresses}) < len(ports):
        return []
    return [port.interface for port in sorted(ports, key=lambda port: port.pci or "")]
