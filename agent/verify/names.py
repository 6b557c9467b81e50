"""Equality of the names that a plan and the fabric give to one device or one port.

Names are equal if they are the same text, or by one of TOLERANCES. Each of these has a name, is
reported as `matched_by`, and can be switched off.

Invariants:
- A comparison has three results: equal, different, and not comparable. Names of different schemes
  (a name and a GUID, `Ethernet32` and `etp5a`) are not comparable: that is no difference of cables.
- Numbers are compared as wholes: `eth1/1` is not `eth1/10`.
- `1/2` is a breakout port of a Cumulus switch (`swp1s1`), the port of a cage of a twin-port
  InfiniBand switch, or port 2 of slot 1: the far end or the plan must identify the platform.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from agent.infiniband.node_description import switch_name
from agent.labels import encode

if TYPE_CHECKING:
    from collections.abc import Iterable

    Off = frozenset[str]  # tolerances that are switched off

EXACT = "exact"
TOLERANCES = {
    "label": "as a label value: other characters as `-`, more than 63 bytes as a hash",
    "case": "upper and lower case",
    "fqdn": "the short name of a host or switch, and its fully qualified name",
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


def _equal(by: str) -> Match:
    return Match(equal=True, by=by)


class SeenDevice(NamedTuple):
    """What the far end says about itself."""

    label: str  # the text of the device label
    names: tuple[str, ...] = ()  # chosen by people: System Name, the name in a NodeDescription
    guids: tuple[str, ...] = ()
    macs: tuple[str, ...] = ()  # chassis ID, if it is one
    description: str | None = None  # NodeDescription


class SeenPort(NamedTuple):
    """What the far end says about its port."""

    texts: tuple[str, ...]  # port ID, port name
    description: str | None = None  # may be equal, but proves no difference
    infiniband: bool = False  # its only text is the LocalPortNum
    twin_port: bool | None = None  # the platform has two ports in each cage; None: not known


DIFFERENT, INCOMPARABLE = Match(equal=False), Match(equal=None)
_GUID = re.compile(
    r"(?:[A-Z]{1,2}-)?(?:0x)?((?:[0-9a-f]{4}:){3}[0-9a-f]{4}|[0-9a-f]{16})", re.IGNORECASE
)
_MAC = re.compile(r"(?:[0-9a-f]{2}([:-]))(?:[0-9a-f]{2}\1){4}[0-9a-f]{2}|[0-9a-f]{12}"
                  r"|(?:[0-9a-f]{4}[.-]){2}[0-9a-f]{4}", re.IGNORECASE)  # fmt: skip
# The last label of a domain has letters only: `L90.1.3` is a short name.
_DOMAIN = re.compile(r"(?:[a-z0-9-]+\.)*[a-z]{2,63}", re.IGNORECASE)
_PORT = re.compile(r"([A-Za-z]*(?:-(?=\d))?) ?(\d{1,6}(?:[-/:._s]\d{1,6})*)", re.ASCII)
_TWIN = re.compile(r"MQM97\d\d|Q3[24]\d\d")  # Quantum-2, Quantum-X800
_FLAT = re.compile(r"MQM8[78]\d\d|MSB7[78]\d\d|MSX6\d\d\d|SX60\d\d")
_CAGE = re.compile(r"(?:ib)?(?:1[-/])?(\d{1,3})[-/]([12])|sw(\d{1,3})p([12])", re.ASCII)
_SLOT = re.compile(r"(?:ib ?)?1[-/](\d{1,3})", re.ASCII)
_DIGITS, _NO_DIGIT, _ENCODED = re.compile(r"\d"), re.compile(r"\D"), re.compile("[:-]")
_VALUE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
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


def twin_port(*texts: str | None) -> bool | None:
    """Return True if a text names an InfiniBand switch with two ports in each cage.

    None if none of them names a known model. `texts` are NodeDescriptions, or fields of a plan.
    """
    joined = " ".join(filter(None, texts))
    if _TWIN.search(joined):
        return True
    return False if _FLAT.search(joined) else None


def guid(text: str) -> str | None:
    """Return the 16 hex digits of a GUID in any notation; None for other text."""
    found = _GUID.fullmatch(text)
    return found[1].replace(":", "").lower() if found else None


def mac(text: str) -> str | None:
    """Return the 12 hex digits of a MAC address in any notation; None for other text."""
    return re.sub("[:.-]", "", text).lower() if _MAC.fullmatch(text) else None


def compare_device(expected: str, seen: SeenDevice, off: Off = frozenset()) -> Match:
    """Compare the name of a device in a plan with what the device says about itself."""
    if expected == seen.label or expected in seen.names:
        return _equal(EXACT)
    if address := guid(expected):
        return _address(address, seen.guids, "guid", off)
    if address := mac(expected):
        found = _address(address, [mac(one) or one for one in seen.macs], "mac", off)
        return found if found.equal is not None else _names(expected, seen, off)
    return _names(expected, seen, off)


def _address(expected: str, seen: Iterable[str], tolerance: str, off: Off) -> Match:
    """Compare a GUID or MAC address with those of the far end."""
    addresses = list(seen)
    if not addresses or tolerance in off:
        return INCOMPARABLE
    return _equal(tolerance) if expected in addresses else DIFFERENT


def _names(expected: str, seen: SeenDevice, off: Off) -> Match:
    for name in seen.names:
        if by := same_name(expected, name, off):
            return _equal(by)
    if "description" not in off and _is_description(expected, seen):
        return _equal("description")
    return DIFFERENT if seen.names else INCOMPARABLE


def _is_description(expected: str, seen: SeenDevice) -> bool:
    """Return True if the plan has the NodeDescription, or another one with the switch's name."""
    if expected == seen.description:
        return True
    return expected.startswith("MF0;") and switch_name(expected) in seen.names


@lru_cache(8192)
def same_name(one: str, other: str, off: Off = frozenset()) -> str | None:
    """Return the tolerances by which two names of hosts or switches are equal; None if not."""
    if one == other:
        return EXACT
    if by := _same_text(one, other, off):
        return by
    if "fqdn" in off:
        return None
    for whole, short in ((one, other), (other, one)):
        host, dot, domain = whole.partition(".")
        is_domain = dot and _DOMAIN.fullmatch(domain)
        if is_domain and (by := EXACT if host == short else _same_text(host, short, off)):
            return "fqdn" if by == EXACT else f"fqdn+{by}"
    return None


def _same_text(one: str, other: str, off: Off) -> str | None:
    """Return `label`, `case`, or both, if the texts are equal by these; None if not."""
    folded = one.casefold(), other.casefold()
    if folded[0] == folded[1] and "case" not in off:
        return "case"
    if "label" in off or (_VALUE.fullmatch(one) and _VALUE.fullmatch(other)):
        return None  # a text that is a label value is encoded as itself
    if _is_encoded(one, other):
        return "label"
    return "label+case" if "case" not in off and _is_encoded(*folded) else None


def _is_encoded(one: str, other: str) -> bool:
    """Return True if one text is the label value of the other."""
    return label_value(one) == other or label_value(other) == one


@lru_cache(8192)
def label_value(text: str) -> str:
    """Return the label value of a text."""
    return encode.value(text)


def compare_port(expected: Iterable[str], seen: SeenPort, off: Off = frozenset()) -> Match:
    """Compare the names of a port in a plan with those that the far end gives it.

    Equal if any pair is; different if a pair is comparable, and none is equal.
    """
    texts = [*seen.texts, *filter(None, [seen.description])]
    results = {
        (one, text): _compare_port(one, text, seen, off) for one in expected for text in texts
    }
    equal = [match for match in results.values() if match.equal]
    if equal:
        return min(equal, key=lambda match: match.by != EXACT)
    proofs = _proofs(seen)
    is_different = any(
        match == DIFFERENT and text in proofs for (_, text), match in results.items()
    )
    return DIFFERENT if is_different else INCOMPARABLE


def _proofs(seen: SeenPort) -> Iterable[str]:
    """Return the texts that can prove a difference: of several, not a bare number (an ifIndex)."""
    names = [text for text in seen.texts if not text.isdecimal()]
    return seen.texts if seen.infiniband else names or seen.texts


def _compare_port(expected: str, text: str, seen: SeenPort, off: Off) -> Match:
    if expected == text:
        return _equal(EXACT)
    if seen.infiniband:
        return _infiniband(expected, text, seen.twin_port, off)
    return _ethernet(expected, text, off)


@lru_cache(8192)
def _infiniband(expected: str, number: str, is_twin: bool | None, off: Off) -> Match:
    """Compare a port of a plan with a LocalPortNum."""
    found, by = _port_number(expected.casefold(), is_twin)
    if found is None or by in off or not number.isdecimal():
        return INCOMPARABLE
    return _equal(by) if found == int(number) else DIFFERENT


def _port_number(text: str, is_twin: bool | None) -> tuple[int | None, str]:
    """Return the LocalPortNum that a text names, and the tolerance that this takes."""
    if found := _NUMBER.fullmatch(text):
        return int(found[1]), "number"
    if is_twin and (found := _CAGE.fullmatch(text)):
        cage, port = found[1] or found[3], found[2] or found[4]
        return 2 * (int(cage) - 1) + int(port), "twin-port"
    if is_twin is False and (found := _SLOT.fullmatch(text)):
        return int(found[1]), "number"
    return None, ""


@lru_cache(8192)
def _ethernet(expected: str, text: str, off: Off) -> Match:
    if by := _same_text(expected, text, off):
        return _equal(by)
    if (one := mac(expected)) and (other := mac(text)):
        return _address(one, [other], "mac", off)
    parts, seen = _parts(expected, off), _parts(text, off)
    if not parts or not seen:
        return INCOMPARABLE
    if parts[0] == seen[0]:
        return _same_scheme(parts, seen, _spelling(parts, seen))
    return _across_schemes(parts, seen, off)


class _Parts(NamedTuple):
    """A port name: `Eth1/5` is of scheme ("ethernet", "/") and has the numbers (1, 5)."""

    scheme: tuple[str, str]  # family, separators
    numbers: tuple[int, ...]
    spelled: tuple[str, str] = ("", "")  # family and separators, as they are


@lru_cache(8192)
def _parts(text: str, off: Off) -> _Parts | None:
    found = _PORT.fullmatch(text)
    if not found:
        return None
    spelled, separators = found[1].lower(), _DIGITS.sub("", found[2])
    family = found[1] if "case" in off else spelled
    if "abbreviation" not in off:
        family = _FAMILIES.get(family, family)
    like = separators if "label" in off else _ENCODED.sub("/", separators)
    numbers = tuple(map(int, _NO_DIGIT.split(found[2])))
    return _Parts((family, like), numbers, (spelled, separators))


def _spelling(one: _Parts, other: _Parts) -> str:
    """Return the tolerance by which two spellings of one scheme are equal."""
    if one.spelled[0] != other.spelled[0]:
        return "abbreviation"
    return "label" if one.spelled[1] != other.spelled[1] else "number"


def _same_scheme(one: _Parts, other: _Parts, by: str) -> Match:
    return _equal(by) if one.numbers == other.numbers else DIFFERENT


def _across_schemes(expected: _Parts, seen: _Parts, off: Off) -> Match:
    """Compare a bare number, or numbers, with a port name of the far end."""
    (family, separators), (seen_family, seen_separators) = expected.scheme, seen.scheme
    if family not in {"", "port"}:
        return INCOMPARABLE
    if (separators, seen_family, seen_separators) == ("/", "swp", "s") and "split" not in off:
        cage, lane = expected.numbers
        return _same_scheme(_Parts(expected.scheme, (cage, lane - 1)), seen, "split")
    # A bare number is the front-panel port of `swp5`, but not of SONiC's `Ethernet32`.
    is_known = seen_family in {"swp", "port", ""} if not separators else seen_family != "swp"
    if separators != seen_separators or not is_known or "number" in off:
        return INCOMPARABLE
    return _same_scheme(expected, seen, "number")
