"""Anonymizes a captured record: equal names get equal replacements (agent/snapshot/names.py).

Replaced are GUIDs and MAC addresses (also inside GIDs, IPoIB addresses and interface names such as
enx0c42a1aabbcc), serial numbers, the host name, the boot ID, routes, GPU and cluster UUIDs, and the
names of neighbors. The description of the hardware stays: PCI addresses, board IDs, firmware
versions.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from agent.snapshot.capture import Record
from agent.snapshot.names import HOST, Names

ANONYMIZED = [
    "GUIDs",
    "MAC addresses",
    "serial numbers",
    "host name",
    "boot ID",
    "routes",
    "GPU and cluster UUIDs",
    "neighbors",
]
SWITCH_MANAGEMENT = b"SW_MNG"  # the only part of a VPD that the agent reads

_WORDS = re.compile(r"[A-Za-z0-9]+")
_STATES = frozenset({"up", "down", "active", "backup"})  # of netdevs and bonds
_ANY4, _ANY = "0" * 8, "0" * 32  # the IPv4 address 0.0.0.0, the IPv6 address ::
_TO_ANY = [_ANY, "00"]  # address and prefix length


def anonymize(record: Record) -> Record:
    """Return the record with replaced names; none of the originals is left in it."""
    names = Names(_host_names(record))
    # first collect the addresses in the kernel's notation, by which the others are recognized
    for path, data in record.files.items():
        names.text(path)
        _content(names, path, data)
    facts = _everywhere(names, record.facts)
    return replace(
        record,
        files={
            names.text(path): _content(names, path, data)
            for path, data in sorted(record.files.items())
        },
        facts=facts | {"hostname": HOST} if record.facts.get("hostname") else facts,
        links=_everywhere(names, record.links),
        folders={names.text(path) for path in record.folders},
        errors={names.text(path): error for path, error in record.errors.items()},
        meta=_everywhere(names, record.meta) | {"anonymized": ANONYMIZED},
        io=record.io.anonymized(names),
    )


def _host_names(record: Record) -> tuple[str, ...]:
    """Return the host name and its first label, but none that is a word of a kernel path."""
    host = record.facts.get("hostname") or ""
    paths = (*record.files, *record.links, *record.folders)
    words = _STATES.union(*(_WORDS.findall(path) for path in paths))
    return tuple(name for name in (host, host.partition(".")[0]) if name and name not in words)


def _content(names: Names, path: str, data: bytes) -> bytes:
    if path.endswith("/vpd"):
        return SWITCH_MANAGEMENT if SWITCH_MANAGEMENT in data else b""
    text = data.decode("utf-8", "surrogateescape")
    if path in _NETWORK:
        text = _NETWORK[path](text)
    return names.text(text).encode("utf-8", "surrogateescape")


def _ipv4_routes(text: str) -> str:
    """Return the default routes of /proc/net/route without their gateways."""
    header, *lines = text.split("\n")
    rows = [line.split("\t") for line in lines]
    # destination and mask
    default = [row for row in rows if len(row) > 7 and row[1] == row[7] == _ANY4]
    kept = ["\t".join([*row[:2], _ANY4, *row[3:]]) for row in default]
    return "\n".join([header, *kept, ""])


def _ipv6_routes(text: str) -> str:
    """Return the default routes of /proc/net/ipv6_route without source and next hop."""
    rows = [line.split() for line in text.split("\n")]
    default = [row for row in rows if len(row) == 10 and row[:2] == _TO_ANY]
    kept = [" ".join([*_TO_ANY, *_TO_ANY, _ANY, *row[5:]]) for row in default]
    return "\n".join([*kept, ""])


def _without_counters(text: str) -> str:
    """Return the names of /proc/net/dev, which follow two lines of titles."""
    lines = text.split("\n")
    return "\n".join(
        [*lines[:2], *(f"{line.partition(':')[0]}:" for line in lines[2:] if line), ""]
    )


_NETWORK = {
    "proc/net/route": _ipv4_routes,
    "proc/net/ipv6_route": _ipv6_routes,
    "proc/net/dev": _without_counters,
}


def _everywhere(names: Names, value: Any) -> Any:
    if isinstance(value, dict):
        return {_everywhere(names, key): _everywhere(names, item) for key, item in value.items()}
    if isinstance(value, list):
        return [_everywhere(names, item) for item in value]
    return names.text(value) if isinstance(value, str) else value
