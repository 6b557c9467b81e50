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
    without = tuple(
        (row, SEVERAL if named[row.text] else _reason(row, node, lookup, found))
        for row in rows
        if row.text not in one
    )
    return Resolved(found, without, assumption, frozenset(numbered.values()))


def _numbered(
    texts: Collection[str], rows: Sequence[Row], node: SeenNode, of_plan: Collection[str]
) -> tuple[dict[str, str], str | None]:
    """Return the interfaces that texts stand for as numbers, and the assumption if any does.

    The plan begins with 0 or 1, and must number as many devices as the node has.
    """
    own = {number for row in rows if (number := _number(row.text)) is not None}
    if not (texts and own) or node.unread:
        return {}, None
    order, every = _in_pci_order(node.ports.values()), own.union(numbers(of_plan))
    base = 0 if 0 in every else 1
    counts = {max(own) - base + 1, max(every) - base + 1}
    if not order or len(order) not in counts or max(own) - base >= len(order):
        return {}, None
    found = {text: order[number - base] for text in texts if (number := _number(text)) is not None}
    assumption = (
        f"HCA numbers of the plan count the backend devices in PCI order: "
        f"{base} is {order[0]} (--hca-map says otherwise)"
    )
    return found, assumption if found else None


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


def _reason(row: Row, node: SeenNode, lookup: Lookup, found: Collection[Row]) -> str:
    """Return the reason why a row has no interface, one of those above."""
    mapped = lookup.hca_map.get(map_key(row.text))
    text = mapped or row.text
    device = text.partition("/")[0]
    if {*_forms(text), text, device} & node.others:
        return NOT_BACKEND_NOW if row.is_label else NOT_BACKEND
    for reason, devices in ((EXCLUDED, node.excluded), (UNREAD, node.unread)):
        if any(is_of_device(device, one) for one in devices):
            return reason
    is_complete = not (node.unread or node.excluded or any(map(_is_lent, node.ports.values())))
    if pci := pci_address(text.strip()):
        is_gone = lookup.on_bus and pci not in lookup.on_bus
        return ABSENT if is_gone or is_complete else PERHAPS_UNREAD
    if mapped or row.is_label:
        return ABSENT
    if _NUMBER.fullmatch(text):
        return NUMBERING
    return _of_name(text, lookup, found, is_complete=is_complete)


def _of_name(text: str, lookup: Lookup, found: Collection[Row], *, is_complete: bool) -> str:
    """Return the reason of any other name: missing if others of its form are there."""
    if all(shape(one.text) != shape(text) for one in found):
        return UNKNOWN
    if text in lookup.netdevs:
        return NO_RDMA
    return ABSENT if is_complete else UNKNOWN


@lru_cache(8192)
def _number(text: str) -> int | None:
    found = _NUMBER.fullmatch(text.strip())
    return int(found[2]) if found else None


def numbers(texts: Iterable[str]) -> dict[int, str]:
    """Return the numbers that name HCAs, not perhaps ports of a switch, each with a text."""
    matches = ((_NUMBER.fullmatch(text.strip()), text) for text in texts)
    return {int(found[2]): text for found, text in matches if found and found[1]}


def _in_pci_order(ports: Iterable[Port]) -> list[str]:
    """Return the interfaces by PCI address; none if an address is not known or has several."""
    ports = list(ports)
    addresses = [port.pci or "" for port in ports]
    if "" in addresses or len({*addresses}) < len(ports):
        return []
    return [port.interface for port in sorted(ports, key=lambda port: port.pci or "")]
