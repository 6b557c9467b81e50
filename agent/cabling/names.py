"""Equality of the names that a plan and the fabric give to one device, and to one port of it.

Names are equal if they are the same text, or by one of TOLERANCES. Each of these has a name, is
reported as `matched_by`, and can be switched off.

Invariants:
- A comparison has three results: equal, different, and not comparable. Names of different schemes
  (a name and a GUID, `Ethernet32` and `etp5a`) are not comparable: that is no difference of cables.
- Numbers of ports are compared as wholes: `eth1/1` is not `eth1/10`.
- `1/2` is a breakout port of a Cumulus switch (`swp1s1`), the port of a cage of a twin-port
  InfiniBand switch, or port 2 of slot 1: the far end or the plan must identify the platform.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from agent import encode
from agent.grouped import grouped
from agent.node_description import switch_name

if TYPE_CHECKING:  # it imports this one
    from agent.cabling.seen import SeenEnd

Off = frozenset[str]  # tolerances that are switched off

EXACT = "exact"
COMPOSED = "MF0;"  # begins the NodeDescription of a managed switch
TOLERANCES = {
    "label": "as a label value: other characters as `-`, more than 63 bytes as a hash",
    "case": "upper and lower case",
    "fqdn": "the short name of a host or switch, and its fully qualified name",
    "padding": "leading zeros of the numbers in the name of a switch: `leaf1` = `leaf01`",
    "abbreviation": "`Ethernet1/1` = `Eth1/1` = `Et1/1`, `Gi0/1` = `GigabitEthernet0/1`",
    "number": "`5` = `P5` = `port 5` = `swp5`, `1/5` = `Ethernet1/5`; InfiniBand: `IB1/5` = `5`",
    "split": "`1/2` = `swp1s1` on a switch that names its ports so",
    "twin-port": "cage and port of a twin-port InfiniBand switch: `3/1` = `sw3p1` = `5`",
    "mac": "`00:1c:73:aa:bb:cc` = `001c.73aa.bbcc` = `00-1C-73-AA-BB-CC`",
    "guid": "a GUID in any notation, and a GUID for the name of the switch that has it",
    "description": "a whole NodeDescription, and the name of the switch in it",
}


class Match(NamedTuple):
    """The result of a comparison."""

    equal: bool | None  # None: not comparable
    by: str | None = None  # the tolerances that made them equal, joined with "+", or EXACT


def matched(by: str) -> Match:
    """Return the result for equal names."""
    return Match(equal=True, by=by)


DIFFERENT, INCOMPARABLE = Match(equal=False), Match(equal=None)
SAME = matched(EXACT)
_GUID = re.compile(
    r"(?:[A-Z]{1,2}-)?(?:0x)?((?:[0-9a-f]{4}:){3}[0-9a-f]{4}|[0-9a-f]{16})", re.IGNORECASE
)
_MAC = re.compile(r"(?:[0-9a-f]{2}([:-]))(?:[0-9a-f]{2}\1){4}[0-9a-f]{2}|[0-9a-f]{12}"
                  r"|(?:[0-9a-f]{4}[.-]){2}[0-9a-f]{4}", re.IGNORECASE)  # fmt: skip
_MAC_LENGTHS = frozenset({12, 14, 17})
# The last label of a domain has letters only: `L90.1.3` is a short name.
_DOMAIN = re.compile(r"(?:[a-z0-9-]+\.)*[a-z]{2,63}", re.IGNORECASE)
_PADDING = re.compile(r"(?<!\d)0+(?=\d)", re.ASCII)
# Name of a switch port: word, numbers with their separators, letter of a lane (`Ethernet1/5`,
# `swp1s0`, `etp5a`).
_SWITCH_PORT = re.compile(
    r"([A-Za-z]*(?:-(?=\d))?) ?(\d{1,6}(?:[-/:._s]\d{1,6})*)([a-h]?)", re.ASCII | re.IGNORECASE
)
_TWIN = re.compile(r"MQM97\d\d|Q3[24]\d\d")  # Quantum-2, Quantum-X800
_FLAT = re.compile(r"MQM8[78]\d\d|MSB7[78]\d\d|MSX6\d\d\d|SX60\d\d")
_CAGE = re.compile(r"(?:ib)?(?:1[-/])?(\d{1,3})[-/]([12])|sw(\d{1,3})p([12])", re.ASCII)
_SLOT = re.compile(r"(?:ib ?)?1[-/](\d{1,3})", re.ASCII)
_NUMBERS = re.compile(r"(\d+)")
_NUMBER = re.compile(r"(?:p|port|ib)?[ -]?(\d{1,3})", re.ASCII)
_FAMILIES = {
    **dict.fromkeys(("e", "et", "eth"), "ethernet"),
    **dict.fromkeys(("gi", "gig", "gige"), "gigabitethernet"),
    **dict.fromkeys(("te", "ten", "tengige"), "tengigabitethernet"),
    **dict.fromkeys(("twe", "tf"), "twentyfivegige"),
    **dict.fromkeys(("fo", "fortygige"), "fortygigabitethernet"),
    **dict.fromkeys(("hu", "hundredgigabitethernet"), "hundredgige"),
    **dict.fromkeys(("fh", "fourhundredgigabitethernet"), "fourhundredgige"),
    **dict.fromkeys(("p", "port"), "port"),
}


def guid(text: str) -> str | None:
    """Return the 16 hex digits of a GUID in any notation; None for other text."""
    match = _GUID.fullmatch(text)
    return match[1].replace(":", "").lower() if match else None


def mac(text: str) -> str | None:
    """Return the 12 hex digits of a MAC address in any notation; None for other text."""
    if len(text) not in _MAC_LENGTHS or not _MAC.fullmatch(text):
        return None
    return re.sub("[:.-]", "", text).lower()


def compare_device(expected: str, seen: SeenEnd, off: Off = frozenset()) -> Match:
    """Compare the name of a device in a plan with its own name for itself."""
    if expected == seen.device or expected in seen.names:
        return SAME
    if address := guid(expected):
        return same_address(address, seen.guids, "guid", off)
    if address := mac(expected):
        match = same_address(address, map(mac, seen.macs), "mac", off)
        if match.equal is not None:
            return match
    for name in seen.names:
        by = same_name(expected, name, off)
        if not by and "padding" not in off:
            by = same_name(unpadded(expected), unpadded(name), off)
            by = "padding" if by == EXACT else by and f"padding+{by}"
        if by:
            return matched(by)
    # The plan has the NodeDescription, or another one with the switch's name.
    is_other = expected.startswith(COMPOSED) and switch_name(expected) in seen.names
    if "description" not in off and (expected == seen.description or is_other):
        return matched("description")
    return DIFFERENT if seen.names else INCOMPARABLE


def same_address(expected: str, seen: Iterable[str | None], tolerance: str, off: Off) -> Match:
    """Compare a GUID or MAC address with those of the far end."""
    addresses = list(seen)
    if not addresses or tolerance in off:
        return INCOMPARABLE
    return matched(tolerance) if expected in addresses else DIFFERENT


@lru_cache(8192)
def unpadded(name: str) -> str:
    """Return a name without the leading zeros of its numbers: `leaf1` of `leaf01`."""
    return _PADDING.sub("", name)


@lru_cache(8192)
def same_name(name: str, other: str, off: Off = frozenset()) -> str | None:
    """Return the tolerances by which two names of hosts or switches are equal; None if not."""
    if name == other:
        return EXACT
    if by := same_text(name, other, off):
        return by
    if "fqdn" in off:
        return None
    for whole, short in ((name, other), (other, name)):
        for host in hosts(whole):
            if by := EXACT if host == short else same_text(host, short, off):
                return "fqdn" if by == EXACT else f"fqdn+{by}"
    return None


def hosts(name: str) -> Iterator[str]:
    """Yield what stands before a domain: `L90.1.3` of `L90.1.3.example.com`."""
    for dot in re.finditer(r"\.", name):
        if _DOMAIN.fullmatch(name, dot.end()):
            yield name[: dot.start()]


def same_text(text: str, other: str, off: Off) -> str | None:
    """Return `label`, `case`, or both, if the texts are equal by these; None if not."""
    first, second = text.casefold(), other.casefold()
    if first == second and "case" not in off:
        return "case"
    if "label" in off or (label_value(text) == text and label_value(other) == other):
        return None
    if label_value(text) == other or label_value(other) == text:
        return "label"
    if "case" in off:
        return None
    is_equal = label_value(first) == second or label_value(second) == first
    return "label+case" if is_equal else None


@lru_cache(8192)
def label_value(text: str) -> str:
    """Return the label value of a text."""
    return encode.value(text)


# ports


def twin_port(*texts: str | None) -> bool | None:
    """Return True if a text names an InfiniBand switch with two ports in each cage.

    None if none of them names a known model. `texts` are NodeDescriptions, or fields of a plan.
    """
    joined = " ".join(filter(None, texts))
    if _TWIN.search(joined):
        return True
    return False if _FLAT.search(joined) else None


def compare_port(expected: Iterable[str], seen: SeenEnd, off: Off = frozenset()) -> Match:
    """Compare the names of a port in a plan with those that the far end gives it.

    Equal if any pair is; different if a pair is comparable, and none is equal.
    """
    expected, ids = tuple(expected), seen.ports
    texts = (*ids, seen.port_description) if seen.port_description else ids
    if not {*expected}.isdisjoint(texts):
        return SAME
    results = {
        (name, text): _infiniband(name, text, seen.twin_port, off)
        if seen.infiniband
        else _ethernet(name, text, off)
        for name in expected
        for text in texts
    }
    equal = [match for match in results.values() if match.equal]
    if equal:
        return equal[0]
    # Texts that can prove a difference: of several, not a bare number (an ifIndex).
    named = [text for text in ids if not text.isdecimal()]
    proofs = ids if seen.infiniband else named or ids
    is_different = any(
        match == DIFFERENT and text in proofs for (_, text), match in results.items()
    )
    return DIFFERENT if is_different else INCOMPARABLE


@lru_cache(8192)
def _infiniband(expected: str, number: str, is_twin: bool | None, off: Off) -> Match:
    """Compare a port of a plan with a LocalPortNum."""
    text = expected.casefold()
    plain = _NUMBER.fullmatch(text) or (_SLOT.fullmatch(text) if is_twin is False else None)
    cage = _CAGE.fullmatch(text) if is_twin and not plain else None
    by = "twin-port" if cage else "number"
    if not (plain or cage) or by in off or not number.isdecimal():
        return INCOMPARABLE
    if cage:
        port = 2 * int(cage[1] or cage[3]) - 2 + int(cage[2] or cage[4])
    elif plain:
        port = int(plain[1])
    return matched(by) if port == int(number) else DIFFERENT


@lru_cache(8192)
def _ethernet(expected: str, text: str, off: Off) -> Match:
    if by := same_text(expected, text, off):
        return matched(by)
    if (address := mac(expected)) and (other := mac(text)):
        return same_address(address, [other], "mac", off)
    parts, seen = _parts(expected, off), _parts(text, off)
    if not parts or not seen:
        return INCOMPARABLE
    numbers = parts.numbers
    (family, separators), (seen_family, seen_separators) = parts.scheme, seen.scheme
    if parts.scheme == seen.scheme:
        by = "label" if parts.spelled[1] != seen.spelled[1] else "number"
        by = "abbreviation" if parts.spelled[0] != seen.spelled[0] else by
    elif family not in {"", "port"}:
        return INCOMPARABLE
    elif (separators, seen_family, seen_separators) == ("/", "swp", "s") and "split" not in off:
        by, numbers = "split", (numbers[0], numbers[1] - 1)
    else:
        # A bare number is the front-panel port of `swp5`, but not of SONiC's `Ethernet32`.
        is_known = seen_family in {"swp", "port", ""} if not separators else seen_family != "swp"
        if separators != seen_separators or not is_known or "number" in off:
            return INCOMPARABLE
        by = "number"
    return matched(by) if numbers == seen.numbers else DIFFERENT


class _Parts(NamedTuple):
    """A port name: `Eth1/5` is of scheme ("ethernet", "/") and has the numbers (1, 5).

    The letter of a lane is a number, too: `etp5a` is of scheme ("etp", "a") and has (5, 0).
    """

    scheme: tuple[str, str]  # family, separators
    numbers: tuple[int, ...]
    spelled: tuple[str, str] = ("", "")  # family and separators, as they are


@lru_cache(8192)
def _parts(text: str, off: Off) -> _Parts | None:
    match = _SWITCH_PORT.fullmatch(text)
    if not match:
        return None
    word, digits, lane = match.groups()
    pieces = _NUMBERS.split(digits)
    family = word if "case" in off else word.lower()
    if "abbreviation" not in off:
        family = _FAMILIES.get(family, family)
    separators = "".join(pieces[::2]) + ("a" if lane else "")
    like = separators if "label" in off else separators.replace(":", "/").replace("-", "/")
    numbers = [*map(int, pieces[1::2]), *(ord(letter.lower()) - ord("a") for letter in lane)]
    return _Parts((family, like), tuple(numbers), (word.lower(), separators))


# Keys: texts by which names are found again without comparing each with each. All names that may
# be equal share
#   device_key   also those of other domains and paddings; an address has none
#   likeness     the same, an address its own
#   node_key     those without a domain; `name_keys` gives a name and its short form one
# and one leaf alone has its `leaf_key`.


@lru_cache(8192)
def device_key(device: str) -> str | None:
    """Return a text that all names share which may be equal; None for an address.

    `L90.1.1` and `L90.1.2` have one, because what follows a dot may be a domain.
    """
    if guid(device) or mac(device) or device.startswith(COMPOSED):
        return None
    return unpadded(label_value(device).casefold().partition(".")[0])


@lru_cache(8192)
def leaf_key(name: str) -> str:
    """Return a text that is one leaf's alone: an address in any notation, or a name in any case."""
    plain = switch_name(name) or name
    return guid(plain) or mac(plain) or node_key(plain)


@lru_cache(8192)
def likeness(name: str) -> str:
    """Return a text that all names of one leaf share, and perhaps those of other leaves."""
    plain = switch_name(name) or name
    return device_key(plain) or leaf_key(plain)


def node_key(name: str, off: Off = frozenset()) -> str:
    """Return a text that names share which are equal without a domain."""
    text = name if "label" in off else label_value(name)
    return text if "case" in off else text.casefold()


def name_keys(names: Iterable[str], off: Off = frozenset()) -> dict[str, str]:
    """Return a key for each of these names; equal ones share it.

    A qualified name is its short form if that is among them: of two domains, neither is the other.
    """
    keys = {name: node_key(name, off) for name in names}
    if "fqdn" not in off:
        known = {*keys.values()}
        for name, whole in keys.items():
            shorter = (node_key(host, off) for host in hosts(name))
            keys[name] = next((key for key in shorter if key in known), whole)
    return keys


class LeafNames:
    """The names that plans have for leaves."""

    def __init__(self, names: Iterable[str]) -> None:
        self._by_key = {leaf_key(name): name for name in names}
        self._alike = grouped(self._by_key.values(), likeness)

    def like(self, name: str) -> list[str]:
        """Return the leaf of this name, else all that differ in domain and leading zeros only."""
        if leaf := self._by_key.get(leaf_key(name)):
            return [leaf]
        alike = self._alike.get(likeness(name), ())
        return [other for other in alike if same_name(unpadded(other), unpadded(name))]
