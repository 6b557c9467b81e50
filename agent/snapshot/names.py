"""Replacement names for an anonymized snapshot; equal names get equal replacements.

Invariants:
- a GUID or MAC address is recognized by the kernel's notation with colons; once recognized, it is
  replaced in every other notation too (0x, dashes, dots, plain digits), which alone could also be a
  serial number or a counter;
- zero, broadcast, link-local and multicast addresses have a meaning and stay;
- replacements stay as they are, so a snapshot can be anonymized twice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

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
        text = _UUID.sub(lambda match: self._uuid(match[0]), text)
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

    def mac(self, mac: str) -> bytes:
        """Return the octets of the replacement of a MAC address with colons."""
        return bytes.fromhex(self.text(mac).replace(":", ""))

    def guid(self, guid: bytes) -> bytes:
        """Return the octets of the replacement of a GUID."""
        return bytes.fromhex(self.text(guid.hex(":", 2)).replace(":", ""))

    def peer(self, name: str, kind: str = "switch") -> str:
        """Return the replacement of the name of a switch or host: switch-1, peer-2."""
        return self.peers.setdefault(name, f"{kind}-{len(self.peers) + 1}")

    def port(self, name: str) -> str:
        """Return the replacement of the name of a port: port-3; names like INTERFACE stay."""
        return name if INTERFACE.fullmatch(name) else self.peer(name, "port")

    def _replaced(self, match: re.Match[str]) -> str:
        known = self.addresses.get(re.sub("[:.-]", "", match["octets"]).lower())
        return f"{match['mark'] or ''}{known}" if known else match[0]

    def _with_colons(self, text: str, width: int) -> str:
        """Replace a GUID, GID, MAC address or IPoIB address (queue pair number, then a GID).

        Both halves of a GID are replaced; a queue pair number before it stays.
        """
        digits = text.replace(":", "").lower()
        if len(digits) < _GID:
            found = self.digits(digits)
        else:
            queue_pair, prefix, guid = digits[:-_GID], digits[-_GID:-_GUID], digits[-_GUID:]
            found = queue_pair + self.digits(prefix) + self.digits(guid)
        return ":".join(found[at : at + width] for at in range(0, len(found), width))

    def _uuid(self, text: str) -> str:
        if text.startswith(_REPLACEMENT_UUID):
            return text
        replacement = f"{_REPLACEMENT_UUID}{self._next():012x}"
        return self.addresses.setdefault(text.lower(), replacement)

    def _next(self) -> int:
        """Return the number of the next replacement."""
        return len(self.addresses) + 1
