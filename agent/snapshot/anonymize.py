"""Anonymizes a captured record: equal names get equal replacements.

Replaced are GUIDs and MAC addresses (also inside GIDs, IPoIB addresses and interface names such as
enx0c42a1aabbcc), serial numbers, the host name, the boot ID, routes, GPU and cluster UUIDs, and the
names of neighbors. The description of the hardware stays: PCI addresses, board IDs, firmware
versions.

Invariants:
- a GUID or MAC address is recognized by the kernel's notation with colons; once recognized, it is
  replaced in every other notation too (0x, dashes, dots, plain digits), which alone could also be a
  serial number or a counter;
- zero, broadcast, link-local and multicast addresses have a meaning and stay;
- replaced addresses stay as they are, so a snapshot can be anonymized twice; names of neighbors are
  numbered anew.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from agent.snapshot.capture import Record
from agent.sources.rdma import SWITCH_MANAGEMENT

# Port names that identify nobody: swp1s0, Ethernet1/1, Gi1/0/4, et-0/0/4:1, etp1a, 25GE1/0/4,
# enp193s0f0np0, TwentyFiveGigE1/0/1; 513 is an ifIndex.
INTERFACE = re.compile(
    r"""
    \d{1,6}
    |
    (?: (?: \d{1,3} | ten | twentyfive | forty | fifty | hundred
          | twohundred | fourhundred | eighthundred )? (?: ge | gige )
      | (?: ten | twentyfive | forty | hundred )? gigabitethernet | fastethernet | ethernet
      | eth? | etp | xe | gi | te | twe? | fo | fi | hu | th | fh
      | swp | port | mgmt | ma | management | en[ops] )
    [ -]? \d{1,5}
    (?: [/:.] \d{1,5} | s\d{1,3} | f\d{1,3} | np\d{1,3} | d\d{1,3} | [a-h] )*
    """,
    re.IGNORECASE | re.VERBOSE,
)

# A GUID of 4 or a GID of 8 groups; a MAC address of 6 or an IPoIB address of 20 octets.
_GROUPS = re.compile(
    r"(?<![0-9a-f:])(?:[0-9a-f]{4}:){3}(?:(?:[0-9a-f]{4}:){4})?[0-9a-f]{4}(?![0-9a-f:])",
    re.IGNORECASE,
)
_OCTETS = re.compile(
    r"(?<![0-9a-f:])(?:[0-9a-f]{2}:){5}(?:(?:[0-9a-f]{2}:){14})?[0-9a-f]{2}(?![0-9a-f:])",
    re.IGNORECASE,
)
_GID, _GUID = 32, 16  # hex digits; the upper half of a GID is its prefix, the lower half a GUID
_OTHER_NOTATION = re.compile(
    r"(?<![0-9a-z])(?P<mark>0x)?"
    r"(?P<octets>[0-9a-f]{2}(?:[:.-]?[0-9a-f]{2}){5}(?:(?:[:.-]?[0-9a-f]{2}){2})?)(?![0-9a-z])",
    re.IGNORECASE,
)
# Interface names that contain an address; `upper_enx...` is the name of a link.
_NAMED_BY_ADDRESS = re.compile(
    r"(?<![A-Za-z0-9])(enx|wlx|ibx|rocex|iwx|opax)([0-9a-f]{16}|[0-9a-f]{12})"
)
_UUID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE)
# 02: a locally administered address, which no vendor assigns.
_REPLACEMENT, _REPLACEMENT_UUID = "02bead", "00000000-0000-4000-8000-"
_KEPT = re.compile(rf"0+|f+|fe80000000000000|0180c2[0-9a-f]{{6}}|{_REPLACEMENT}[0-9a-f]+")
HOST = "host-1"
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

_WORDS = re.compile(r"[A-Za-z0-9]+")
_STATES = frozenset({"up", "down", "active", "backup"})  # of netdevs and bonds
_ANY4, _ANY = "0" * 8, "0" * 32  # the IPv4 address 0.0.0.0, the IPv6 address ::
_TO_ANY = [_ANY, "00"]  # address and prefix length


@dataclass(slots=True)
class Names:
    """The replacements made so far. `hosts` are the names of the host, replaced by HOST."""

    hosts: tuple[str, ...] = ()
    addresses: dict[str, str] = field(default_factory=dict)  # hex digits or UUID -> replacement
    peers: dict[str, str] = field(default_factory=dict)  # of switches, hosts and ports

    def text(self, text: str) -> str:
        """Return the text with every address, UUID and host name in it replaced."""
        text = _GROUPS.sub(lambda match: self._with_colons(match[0], 4), text)
        text = _OCTETS.sub(lambda match: self._with_colons(match[0], 2), text)
        text = _NAMED_BY_ADDRESS.sub(lambda match: match[1] + self.digits(match[2]), text)
        text = _UUID.sub(self._uuid, text)
        text = _OTHER_NOTATION.sub(self._replaced, text)
        for name in self.hosts:
            pattern = rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])"
            text = re.sub(pattern, HOST, text, flags=re.IGNORECASE)
        return text

    def digits(self, digits: str) -> str:
        """Return the replacement of an address in hex digits, of the same length."""
        if _KEPT.fullmatch(digits):
            return digits
        width = len(digits) - len(_REPLACEMENT)
        return self.addresses.setdefault(digits, f"{_REPLACEMENT}{self._next():0{width}x}")

    def guid(self, guid: bytes) -> bytes:
        """Return the octets of the replacement of a GUID."""
        return bytes.fromhex(self.text(guid.hex(":", 2)).replace(":", ""))

    def peer(self, name: str, kind: str = "switch") -> str:
        """Return the replacement of the name of a switch or host: switch-1, peer-2."""
        return self.peers.setdefault(name, f"{kind}-{len(self.peers) + 1}")

    def port(self, name: str) -> str:
        """Return the replacement of the name of a port: port-3; names like INTERFACE stay."""
        return name if INTERFACE.fullmatch(name) else self.peer(name, "port")

    def everywhere(self, value: Any) -> Any:
        """Return a JSON value with replaced names in all texts and keys."""
        if isinstance(value, dict):
            return {self.everywhere(key): self.everywhere(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.everywhere(item) for item in value]
        return self.text(value) if isinstance(value, str) else value

    def _replaced(self, match: re.Match[str]) -> str:
        replacement = self.addresses.get(re.sub("[:.-]", "", match["octets"]).lower())
        return f"{match['mark'] or ''}{replacement}" if replacement else match[0]

    def _with_colons(self, text: str, width: int) -> str:
        """Replace a GUID, GID, MAC address or IPoIB address (queue pair number, then a GID).

        Both halves of a GID are replaced; a queue pair number before it stays.
        """
        digits = text.replace(":", "").lower()
        if len(digits) < _GID:
            replaced = self.digits(digits)
        else:
            queue_pair, prefix, guid = digits[:-_GID], digits[-_GID:-_GUID], digits[-_GUID:]
            replaced = queue_pair + self.digits(prefix) + self.digits(guid)
        return ":".join(replaced[at : at + width] for at in range(0, len(replaced), width))

    def _uuid(self, match: re.Match[str]) -> str:
        text = match[0]
        if text.startswith(_REPLACEMENT_UUID):
            return text
        replacement = f"{_REPLACEMENT_UUID}{self._next():012x}"
        return self.addresses.setdefault(text.lower(), replacement)

    def _next(self) -> int:
        return len(self.addresses) + 1


def anonymize(record: Record) -> Record:
    """Return the record with replaced names; none of the originals is left in it."""
    # The host name and its first label, but none that is a word of a kernel path.
    host = record.facts.get("hostname") or ""
    # sorted: replacements are numbered, and the order of the reads differs from run to run
    paths = sorted({*record.files, *record.links, *record.folders, *record.errors})
    words = _STATES.union(*(_WORDS.findall(path) for path in paths))
    hosts = (name for name in (host, host.partition(".")[0]) if name and name not in words)
    names = Names(tuple(hosts))
    # first collect the addresses in the kernel's notation, by which the others are recognized
    for path in paths:
        names.text(f"{path} {record.links.get(path, '')}")
        _content(names, path, record.files.get(path, b""))
    facts = names.everywhere(record.facts)
    return replace(
        record,
        files={
            names.text(path): _content(names, path, data) for path, data in record.files.items()
        },
        facts=facts | {"hostname": HOST} if host else facts,
        links=names.everywhere(record.links),
        folders={names.text(path) for path in record.folders},
        errors={names.text(path): error for path, error in record.errors.items()},
        meta=names.everywhere(record.meta) | {"anonymized": ANONYMIZED},
        io={name: part.anonymized(names) for name, part in record.io.items()},
    )


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
