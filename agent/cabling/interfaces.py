"""The interface of this node that a plan names: by name, netdev, PCI address or number.

A number (`HCA 1`, `rail5`, `GPU0 NIC`, `3`) is looked up in --hca-map, by its text and then as the
bare number; without that file it counts the backend devices in PCI order. `OSFP2/1` is the third: a
cage of two ports counts both. That order is an assumption, which is printed, and is made only where
the plan numbers as many devices as the node has.

The file of --hca-map: which interface of the node a plan's HCA number, or rail, is.

    node,port,hca-name
    gpu-h100-*,1,mlx5_0
    gpu-h100-*,2,mlx5_3
    ,OSFP1/1,mlx5_7

A row with a glob in `node` is for the nodes whose name matches, fully qualified or short; a row
without one, or a file without the column, for all. Of several rows for a node the first with a glob
counts, then that without.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple

from agent.cabling.expected import ExpectedRow
from agent.cabling.plans.own import table
from agent.cabling.seen import SeenNode
from agent.errors import Malformed
from agent.ids import is_of_device, pci_address

# Why a row has no interface here.
NOT_BACKEND = "not a backend port"
EXCLUDED = "excluded by --exclude-device"
UNREAD = "its device could not be read"
ABSENT = "not on this node"
UNKNOWN = "names no interface of this node (--hca-map may say which)"
NUMBERING = "numbering unknown, give --hca-map"
UNMAPPED = "not in --hca-map"
SEVERAL = "names several ports of this node, give the port or its netdev"
NO_RDMA = "a network device here without an RDMA device"
NOT_BACKEND_NOW = "expected by its labels, but no backend port now"
PERHAPS_UNREAD = "perhaps a device that is excluded or could not be read"

_NUMBER = re.compile(r"((?:hca|rail|nic)[ _#.-]*)?(\d{1,2})(?: ?/ ?(?:p|port)? ?1)?", re.IGNORECASE)
_GPU = re.compile(r"gpu[ _#.-]*(\d{1,2})[ _.-]*(?:nic|hca|rail|port)", re.IGNORECASE)
_CAGE = re.compile(r"osfp[ _#.-]*(\d{1,2})(?:[ /.:-]+p?|p)([12])", re.IGNORECASE)
_PORT = re.compile(r"(.+?)(?:/p?|:| port | p)(\d{1,2})", re.IGNORECASE)


PortNames = tuple[str, str, int, str | None, str | None]  # as `_names_of` returns them
_names_of = attrgetter("interface", "device", "number", "netdev", "pci")


class Resolved(NamedTuple):
    """The rows with their interfaces, and those without one."""

    rows: tuple[ExpectedRow, ...]
    without: tuple[tuple[ExpectedRow, str], ...] = ()  # rows without an interface, and why
    assumption: str | None = None
    numbered: frozenset[str] = frozenset()  # the interfaces found by the assumption


def resolve(
    rows: Iterable[ExpectedRow],
    node: SeenNode,
    hca_map: Mapping[str, str],
    of_plan: Collection[int],
) -> Resolved:
    """Find the interface of each row; `of_plan` are the numbers of HCAs of all hosts."""
    rows = list(rows)
    names = _names(tuple(map(_names_of, node.ports.values())))
    named: dict[str, tuple[str, ...]] = {}
    for text in dict.fromkeys(row.text for row in rows):
        forms = _forms(mapped(text, hca_map) or text)
        named[text] = next((names[form] for form in forms if form in names), ())
    others = [] if hca_map else [text for text, several in named.items() if not several]
    numbered, assumption = _numbered(others, rows, node, of_plan)
    by_text = {text: several[0] for text, several in named.items() if len(several) == 1} | numbered
    for text, several in named.items():
        left = [n for n in several if n not in by_text.values()] if len(several) > 1 else ()
        if len(left) == 1 and node.ports[left[0]].number == 1:
            by_text[text] = left[0]  # of `mlx5_0` and `mlx5_0-2` the bare name is port 1
    resolved = tuple(
        row._replace(interface=by_text[row.text]) for row in rows if row.text in by_text
    )
    without = tuple(
        (row, SEVERAL if named[row.text] else _reason(row, node, hca_map, resolved))
        for row in rows
        if row.text not in by_text
    )
    return Resolved(resolved, without, assumption, frozenset(numbered.values()))


def _numbered(
    texts: Collection[str], rows: Sequence[ExpectedRow], node: SeenNode, of_plan: Collection[int]
) -> tuple[dict[str, str], str | None]:
    """Return the interfaces that texts stand for as numbers, and the assumption if any does.

    The plan begins with 0 or 1, and must number as many devices as the node has.
    """
    own = {number for row in rows if (number := _number(row.text)) is not None}
    addresses = [port.pci for port in node.ports.values() if port.pci]
    if not own or node.unread or len({*addresses}) < len(node.ports):
        return {}, None
    ports = sorted(node.ports.values(), key=lambda port: port.pci or "")
    order, every = [port.interface for port in ports], own.union(of_plan)
    base = 0 if 0 in every else 1
    counts = {max(own) - base + 1, max(every) - base + 1}
    if len(order) not in counts or max(own) - base >= len(order):
        return {}, None
    numbered = {
        text: order[number - base] for text in texts if (number := _number(text)) is not None
    }
    assumption = (
        f"HCA numbers of the plan count the backend devices in PCI order: "
        f"{base} is {order[0]} (if not, give --hca-map a row for such a node)"
    )
    return numbered, assumption if numbered else None


@lru_cache(1024)  # the nodes of a fleet have the same few sets of ports
def _names(ports: tuple[PortNames, ...]) -> Mapping[str, tuple[str, ...]]:
    """Return the interfaces of every name of a port."""
    by_name: dict[str, tuple[str, ...]] = {}
    for interface, device, number, netdev, pci in ports:
        names = (interface, netdev, pci, device, f"{device}/{number}", f"{device}-{number}")
        for name in filter(None, names):
            known = by_name.get(key := name.lower(), ())
            if interface not in known:
                by_name[key] = (*known, interface)
    return by_name


def mapped(text: str, hca_map: Mapping[str, str]) -> str | None:
    """Return what --hca-map has for a text of the plan, or for its number; None without either."""
    if not hca_map:
        return None
    match = _NUMBER.fullmatch(text.strip())
    number = hca_map.get(str(int(match[2]))) if match else None
    return hca_map.get(map_key(text), number)


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


def _reason(
    row: ExpectedRow,
    node: SeenNode,
    hca_map: Mapping[str, str],
    resolved: Collection[ExpectedRow],
) -> str:
    """Return the reason why a row has no interface, one of those above."""
    known = mapped(row.text, hca_map)
    text = known or row.text
    if reason := _of_device(text, node, is_label=row.is_label):
        return reason
    # in another network namespace, so its name is not known
    is_lent = any(port.link_layer == "Ethernet" and not port.netdev for port in node.ports.values())
    is_complete = not (node.unread or node.excluded or is_lent)
    if pci := pci_address(text.strip()):
        is_gone = node.on_bus and pci not in node.on_bus
        return ABSENT if is_gone or is_complete else PERHAPS_UNREAD
    if known or row.is_label:
        return ABSENT
    if _number(text) is not None:
        return UNMAPPED if hca_map else NUMBERING
    # any other name is missing if others of its form are there
    is_like = any(shape(peer.text) == shape(text) for peer in resolved)
    if is_like and text in node.netdevs:
        return NO_RDMA
    return ABSENT if is_like and is_complete else UNKNOWN


def _of_device(text: str, node: SeenNode, *, is_label: bool) -> str | None:
    """Return why a device of the node, which the text names, has no backend port; None for none."""
    device = text.partition("/")[0]
    if {*_forms(text), text, device} & node.others:
        return NOT_BACKEND_NOW if is_label else NOT_BACKEND
    for reason, names in ((EXCLUDED, node.excluded), (UNREAD, node.unread)):
        if any(is_of_device(device, name) for name in names):
            return reason
    return None


@lru_cache(8192)
def _number(text: str) -> int | None:
    """Return the number that a text is; None for any other name."""
    text = text.strip()
    if match := _NUMBER.fullmatch(text):
        return int(match[2])
    if match := _GPU.fullmatch(text):
        return int(match[1])
    match = _CAGE.fullmatch(text)
    return 2 * int(match[1]) - 2 + int(match[2]) if match else None


def numbers(texts: Iterable[str]) -> frozenset[int]:
    """Return the numbers that name HCAs, not perhaps ports of a switch."""
    numbered = (_number(text) for text in texts if text.strip()[:1].isalpha())
    return frozenset(number for number in numbered if number is not None)


# the file of --hca-map


COLUMNS = ("port", "hca-name")  # of the file of --hca-map


# A glob of nodes in lower case ("" is every node) and a text as `map_key` returns it, to the
# interface, netdev or PCI address.
HcaMap = Mapping[tuple[str, str], str]


def map_key(text: str) -> str:
    """Return a text of the plan as it is looked up: without case, white space and leading zeros."""
    key = "".join(text.casefold().split())
    return str(int(key)) if key.isascii() and key.isdigit() and len(key) < 10 else key


def read_map(path: str) -> HcaMap:
    """Return the rows; raises Malformed."""
    names: dict[tuple[str, str], str] = {}
    for place, cells in table(path, COLUMNS, ["node"]):
        port, name, node = cells.values()
        if not port or not name:
            raise Malformed(f"{place}: an empty cell")
        key = node.lower(), map_key(port)
        if names.setdefault(key, name) != name:
            raise Malformed(f"{place}: {port} is {name}, but {names[key]} above")
    if not names:
        raise Malformed(f"{path}: no row below the header")
    return names


def require_any(path: str, entries: HcaMap, nodes: Iterable[str]) -> None:
    """Raise Malformed if no node has a row: its numbers would be assumed in spite of the map."""
    if entries and not any(names_of(entries, node) for node in nodes):
        glob, _ = next(iter(entries))
        raise Malformed(f"{path}: no glob of the column node fits a Node, such as {glob!r}")


def names_of(entries: HcaMap, node: str) -> dict[str, str]:
    """Return the interfaces of a node by the texts of the plan."""
    if not entries:
        return {}
    names = (node.lower(), node.lower().partition(".")[0])
    by_port: dict[str, str] = {}
    # stable: in the file's order
    for (glob, port), name in sorted(entries.items(), key=lambda entry: not entry[0][0]):
        if not glob or any(fnmatchcase(spelling, glob) for spelling in names):
            by_port.setdefault(port, name)
    return by_port
