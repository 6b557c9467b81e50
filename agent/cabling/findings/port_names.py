"""Equality of the names that a plan and the fabric give to one port; names.py has those of devices.

Invariants:
- Numbers are compared as wholes: `eth1/1` is not `eth1/10`.
- `1/2` is a breakout port of a Cumulus switch (`swp1s1`), the port of a cage of a twin-port
  InfiniBand switch, or port 2 of slot 1: the far end or the plan must identify the platform.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from agent.cabling.findings.names import (
    DIFFERENT,
    INCOMPARABLE,
    SAME,
    Match,
    Off,
    mac,
    matched,
    same_address,
    same_text,
)

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


class SeenPort(NamedTuple):
    """The names of a port at the far end."""

    texts: tuple[str, ...]  # port ID, port name
    description: str | None = None  # may be equal, but proves no difference
    infiniband: bool = False  # its only text is the LocalPortNum
    twin_port: bool | None = None  # the platform has two ports in each cage; None: not known


def twin_port(*texts: str | None) -> bool | None:
    """Return True if a text names an InfiniBand switch with two ports in each cage.

    None if none of them names a known model. `texts` are NodeDescriptions, or fields of a plan.
    """
    joined = " ".join(filter(None, texts))
    if _TWIN.search(joined):
        return True
    return False if _FLAT.search(joined) else None


def compare_port(expected: Iterable[str], seen: SeenPort, off: Off = frozenset()) -> Match:
    """Compare the names of a port in a plan with those that the far end gives it.

    Equal if any pair is; different if a pair is comparable, and none is equal.
    """
    expected = tuple(expected)
    texts = (*seen.texts, seen.description) if seen.description else seen.texts
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
    named = [text for text in seen.texts if not text.isdecimal()]
    proofs = seen.texts if seen.infiniband else named or seen.texts
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
