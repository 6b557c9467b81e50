"""A record without the names that lead back to its owner: the same name always becomes the same other name.

GUIDs and MAC addresses (also inside GIDs, IPoIB addresses and interface names such as enx0c42a1aabbcc), serial
numbers, the host name, the boot ID and routes. Zero and multicast addresses mean something and stay, so does
everything that describes hardware: PCI addresses, board IDs, firmware versions.

What is a GUID or a MAC is told by how the kernel writes it, with colons; what was found so is then replaced in any
other spelling as well (0x..., dashes, dots, plain digits), which alone could be a serial number or a counter.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from agent.snapshot.anonymize_peers import anonymize_io

if TYPE_CHECKING:
    from agent.snapshot.capture import Record

ANONYMIZED = [
    "GUIDs",
    "MAC addresses",
    "serial numbers",
    "host name",
    "boot ID",
    "routes",
    "GPU and cluster UUIDs",
    "neighbours",
]
SWITCH_MANAGEMENT = b"SW_MNG"  # all that the agent looks for in a VPD

# A GUID of 4 or a GID of 8 groups; a MAC address of 6 or an IPoIB address of 20 octets.
_GROUPS = re.compile(
    r"(?<![0-9a-f:])(?:[0-9a-f]{4}:){3}(?:(?:[0-9a-f]{4}:){4})?[0-9a-f]{4}(?![0-9a-f:])",
    re.IGNORECASE,
)
_OCTETS = re.compile(
    r"(?<![0-9a-f:])(?:[0-9a-f]{2}:){5}(?:(?:[0-9a-f]{2}:){14})?[0-9a-f]{2}(?![0-9a-f:])",
    re.IGNORECASE,
)
_WHOLE, _HALF = 32, 16  # hex digits of a GID, and of the prefix and the GUID that it consists of
_SPELLED = re.compile(
    r"(?<![0-9a-z])(?P<mark>0x)?(?P<octets>[0-9a-f]{2}(?:[:.-]?[0-9a-f]{2}){5}(?:(?:[:.-]?[0-9a-f]{2}){2})?)(?![0-9a-z])",
    re.IGNORECASE,
)
# `upper_enx...` is a link's name
_NAMED_AFTER = re.compile(
    r"(?<![A-Za-z0-9])(enx|wlx|ibx|rocex|iwx|opax)([0-9a-f]{16}|[0-9a-f]{12})"
)
_UUID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE)
# 02: locally administered, so that no vendor's address is ever made up. What was made up stays: a record may come here
# a second time.
_MADE_UP, _MADE_UP_UUID = "02bead", "00000000-0000-4000-8000-"
_MEANINGFUL = re.compile(rf"0+|f+|fe80000000000000|0180c2[0-9a-f]{{6}}|{_MADE_UP}[0-9a-f]+")
_WORDS = re.compile(r"[A-Za-z0-9]+")
_STATES = frozenset({"up", "down", "active", "backup"})  # of netdevs and bonds
_OTHER_HOST = "host-1"


@dataclass(slots=True)
class _Names:
    """The other names given so far."""

    hosts: tuple[str, ...]
    given: dict[str, str] = field(default_factory=dict)

    def text(self, text: str) -> str:
        """`text` with every name in it replaced."""
        text = _GROUPS.sub(lambda match: self._spaced(match[0], 4), text)
        text = _OCTETS.sub(lambda match: self._spaced(match[0], 2), text)
        text = _NAMED_AFTER.sub(lambda match: match[1] + self.digits(match[2]), text)
        text = _UUID.sub(lambda match: self._uuid(match[0]), text)
        text = _SPELLED.sub(self._respelled, text)
        for name in self.hosts:
            text = re.sub(
                rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])",
                _OTHER_HOST,
                text,
                flags=re.IGNORECASE,
            )
        return text

    def _respelled(self, match: re.Match[str]) -> str:
        other = self.given.get(re.sub("[:.-]", "", match["octets"]).lower())
        return f"{match['mark'] or ''}{other}" if other else match[0]

    def _spaced(self, text: str, width: int) -> str:
        """GUIDs, GIDs (two halves), MACs, IPoIB addresses (QPN, then a GID)."""
        digits = text.replace(":", "").lower()
        queue_pair, gid = (
            (digits[:-_WHOLE], digits[-_WHOLE:]) if len(digits) >= _WHOLE else ("", digits)
        )
        halves = (gid[:_HALF], gid[_HALF:]) if len(gid) == _WHOLE else (gid,)
        other = queue_pair + "".join(map(self.digits, halves))
        return ":".join(other[at : at + width] for at in range(0, len(other), width))

    def digits(self, digits: str) -> str:
        if _MEANINGFUL.fullmatch(digits):
            return digits
        width = len(digits) - len(_MADE_UP)
        return self.given.setdefault(digits, f"{_MADE_UP}{len(self.given) + 1:0{width}x}")

    def _uuid(self, text: str) -> str:
        if text.startswith(_MADE_UP_UUID):
            return text
        return self.given.setdefault(text.lower(), f"{_MADE_UP_UUID}{len(self.given) + 1:012x}")


def anonymize(record: Record) -> Record:
    """The record under other names, none of the originals left in it."""
    names = _Names(_host_names(record))
    for path, data in record.files.items():  # first all that is told by its form
        names.text(path)
        _content(names, path, data)
    return replace(
        record,
        files={
            names.text(path): _content(names, path, data)
            for path, data in sorted(record.files.items())
        },
        links={names.text(path): names.text(target) for path, target in record.links.items()},
        folders={names.text(path) for path in record.folders},
        errors={names.text(path): error for path, error in record.errors.items()},
        facts=_everywhere(names, record.facts)
        | ({"hostname": _OTHER_HOST} if record.facts.get("hostname") else {}),
        meta=_everywhere(names, record.meta) | {"anonymized": ANONYMIZED},
        io=replace(anonymize_io(record.io, names.text), nvml=_gpus(names, record.io.nvml)),
    )


def _gpus(names: _Names, value: Any) -> Any:
    """NVML's answer: UUIDs of GPUs as text, of clusters as 32 hex digits."""
    if isinstance(value, dict) and isinstance(value.get("cluster_uuid"), str):
        value = value | {"cluster_uuid": names.digits(value["cluster_uuid"])}
    if isinstance(value, dict):
        return {key: _gpus(names, item) for key, item in value.items()}
    if isinstance(value, list):
        return [_gpus(names, item) for item in value]
    return names.text(value) if isinstance(value, str) else value


def _host_names(record: Record) -> tuple[str, ...]:
    """The host name and its first part; not one that is a word of the kernel's own, such as `node`, `net` or `1`."""
    host = record.facts.get("hostname") or ""
    kernels = _STATES.union(
        *(_WORDS.findall(path) for path in (*record.files, *record.links, *record.folders))
    )
    return tuple(name for name in (host, host.partition(".")[0]) if name and name not in kernels)


def _content(names: _Names, path: str, data: bytes) -> bytes:
    if path.endswith("/vpd"):
        return SWITCH_MANAGEMENT if SWITCH_MANAGEMENT in data else b""
    text = data.decode("utf-8", "surrogateescape")
    if path == "proc/net/route":
        text = _ipv4_routes(text)
    if path == "proc/net/ipv6_route":
        text = _ipv6_routes(text)
    return names.text(text).encode("utf-8", "surrogateescape")


def _ipv4_routes(text: str) -> str:
    """Only what says which netdev carries a default route; no gateways."""
    header, *lines = text.split("\n")
    rows = [line.split("\t") for line in lines]
    kept = [
        "\t".join([*row[:2], "00000000", *row[3:]])
        for row in rows
        if len(row) > 7 and row[1] == row[7] == "00000000"
    ]
    return "\n".join([header, *kept, ""])


def _ipv6_routes(text: str) -> str:
    rows = [line.split() for line in text.split("\n")]
    nowhere = "0" * 32
    kept = [
        " ".join([nowhere, "00", nowhere, "00", nowhere, *row[5:]])
        for row in rows
        if len(row) == 10 and row[:2] == [nowhere, "00"]
    ]
    return "\n".join([*kept, ""])


def _everywhere(names: _Names, value: Any) -> Any:
    if isinstance(value, dict):
        return {_everywhere(names, key): _everywhere(names, item) for key, item in value.items()}
    if isinstance(value, list):
        return [_everywhere(names, item) for item in value]
    return names.text(value) if isinstance(value, str) else value
