"""Encode any text as a label value, and check keys and prefixes by the rules of Kubernetes.

A neighbor chooses its own name, so no raw text is trusted: `value` returns a valid label value or
"". Limits: Kubernetes, apimachinery/pkg/util/validation (IsValidLabelValue, IsQualifiedName).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from agent.errors import Malformed
from agent.text import natural

MAX_LENGTH = 63  # characters of a label value, and of the name part of a label key
MAX_PREFIX_LENGTH = 253  # characters of the prefix of a label key, a DNS subdomain (RFC 1123)

TRIMMED = "._-"  # characters that a value neither begins nor ends with

MIN_RANGE = 3  # names

_LAST_NUMBER = re.compile(r"(.*?)([0-9]+)([^0-9]*)", re.DOTALL)
_INVALID = re.compile(r"[^A-Za-z0-9._-]")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*")
_LIST = r"([^{}]*)\{([^{}/]*)\}([^{}/]*)"
_KUBERNETES = re.compile(r"(.*\.)?(kubernetes|k8s)\.io")
_FNV_OFFSET, _FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3  # RFC 9923, FNV-1a for 64 bits


class Naming(NamedTuple):
    """The prefixes and keys that the operator chose."""

    prefix: str = "backend.coreweave.cloud"
    ib_prefix: str = "ib.coreweave.cloud"  # "": the family is not written
    accelerator: str = "network.topology.nvidia.com/accelerator"  # a whole key; "": not written
    # whole keys of tiers 0, 1 and 2 (--tier-label); (): as in the table
    tiers: tuple[str, ...] = ()


def value(raw: str) -> str:
    """Return the label value for `raw`; "" if it has no letter and no digit.

    Text of more than 63 bytes of UTF-8 becomes `x` and its FNV-1a hash in hex without leading
    zeros. Topograph counts and writes it the same way, so both give one switch the same value. So
    does text with a letter or digit that is not ASCII: without it two names would be one value.
    Otherwise `Ethernet1/1` becomes `Ethernet1-1`, and both ends are trimmed to a letter or digit.
    """
    if len(_octets(raw)) > MAX_LENGTH or is_foreign(raw):
        return hashed(raw)
    return replaced(raw).strip(TRIMMED)


def is_value(text: str | None) -> bool:
    """Return True for a valid value of a label that is not empty."""
    return bool(text) and len(text or "") <= MAX_LENGTH and value(text or "") == text


def is_foreign(raw: str) -> bool:
    """Return True if `raw` has a letter or digit that is not ASCII."""
    return not raw.isascii() and any(
        character.isalnum() and not character.isascii() for character in raw
    )


def joined(names: Iterable[str]) -> str:
    """Return the distinct names in natural order, joined with `_`."""
    return "_".join(sorted({*names} - {""}, key=natural))


def ranged(names: Iterable[str]) -> str:
    """Return the distinct names joined with `_`; in ranges if that is too long for a value.

    Three or more names that differ in their last decimal number only, and are consecutive in it,
    are one range: `leaf01`, `leaf02`, `leaf03` become `leaf01..03`. No range has a name with `..`.
    """
    ordered = sorted({*names} - {""}, key=natural)
    text = "_".join(ordered)
    return text if len(_octets(text)) <= MAX_LENGTH else "_".join(_ranges(ordered))


def is_in_range(name: str, text: str) -> bool:
    """Return True if a range in `text`, which `ranged` has made, has the name."""
    parts = _LAST_NUMBER.fullmatch(name)
    if not parts:
        return False
    head, number, tail = parts.groups()
    ends = re.search(rf"_{re.escape(head)}([0-9]+)\.\.([0-9]+){re.escape(tail)}_", f"_{text}_")
    if not ends or len(number) > MAX_LENGTH:
        return False
    return int(ends[1]) <= int(number) <= int(ends[2])


def _ranges(names: Iterable[str]) -> Iterator[str]:
    """Yield the names, and the ranges of those that are consecutive."""
    series: list[str] = []
    for name in [*names, ""]:
        if series and name != _successor(series[-1]):
            if len(series) < MIN_RANGE:
                yield from series
            else:
                head, first, tail = _LAST_NUMBER.fullmatch(series[0]).groups()  # type: ignore[union-attr]
                yield f"{head}{first}..{series[-1][len(head) : len(series[-1]) - len(tail)]}{tail}"
            series = []
        series.append(name)


def _successor(name: str) -> str | None:
    """Return the name with the next number; None for a name that can be in no range."""
    parts = _LAST_NUMBER.fullmatch(name)
    if not parts or ".." in name or len(parts[2]) > MAX_LENGTH:
        return None
    return f"{parts[1]}{int(parts[2]) + 1:0{len(parts[2])}}{parts[3]}"


def replaced(raw: str) -> str:
    """Return `raw` with `-` for each character that is not valid in a label value."""
    return _INVALID.sub("-", raw)


def hashed(raw: str) -> str:
    """Return `x` and the FNV-1a hash of `raw`, a valid label value for any text."""
    return f"x{fnv1a_64(_octets(raw)):x}"


def _octets(raw: str) -> bytes:
    return raw.encode("utf-8", "surrogatepass")


def fnv1a_64(data: bytes) -> int:
    """Return the 64-bit FNV-1a hash of `data`."""
    state = _FNV_OFFSET
    for byte in data:
        state = (state ^ byte) * _FNV_PRIME & 0xFFFFFFFFFFFFFFFF
    return state


def key_fault(key: str) -> str | None:
    """Return the reason why `key` is not valid as a label key of ours; None if it is valid."""
    prefix, slash, name = key.rpartition("/")
    if slash and (fault := prefix_fault(prefix)):
        return fault
    if len(name) > MAX_LENGTH:
        return f"its name part has {len(name)} characters, {MAX_LENGTH} is the limit"
    if not _NAME.fullmatch(name):
        return (
            "its name part may contain letters, digits, '.', '_' and '-', "
            "and must begin and end with a letter or digit"
        )
    return None


def tier_keys(pattern: str) -> tuple[str, ...]:
    """Return the label keys of tiers 0, 1 and 2; raises Malformed for a pattern of other ones.

    `a.example/tier-{n}` has the numbers, `a.example/{leaf,spine,core}` the names of the tiers. The
    prefix is one: braces are in the name.
    """
    shown = repr(pattern[:MAX_LENGTH])
    if not (match := re.fullmatch(_LIST, pattern)):
        raise Malformed(f"{shown} has neither one {{n}} nor one list in braces after its slash")
    head, listed, tail = match.groups()
    names = [*"012"] if listed == "n" else listed.split(",")
    if len(names) != len("012") or "" in names:
        raise Malformed(f"{shown} has not three names in braces, for tiers 0, 1 and 2")
    keys = tuple(f"{head}{name}{tail}" for name in names)
    for key in keys:
        if "/" not in key:
            raise Malformed(f"{shown} has no prefix with a slash")
        if fault := key_fault(key):
            raise Malformed(f"{shown}: {key[:MAX_LENGTH]!r}: {fault}")
        if keys.count(key) > 1:
            raise Malformed(f"{shown} has {key[:MAX_LENGTH]!r} for two tiers")
    return keys


def is_subdomain(name: str) -> bool:
    """Return True for a DNS subdomain of RFC 1123, as the names of Nodes are."""
    return len(name) <= MAX_PREFIX_LENGTH and _PREFIX.fullmatch(name) is not None


def prefix_fault(prefix: str) -> str | None:
    """Return the reason why `prefix` is not valid before our label keys; None if it is valid.

    It must be a DNS subdomain, and not reserved for Kubernetes.
    """
    if not is_subdomain(prefix):
        return f"{prefix[:64]!r} is not a lower-case DNS name"
    if _KUBERNETES.fullmatch(prefix):
        return f"{prefix!r} is reserved for Kubernetes"
    return None


def gbps(rate: float) -> str:
    """Return a rate in Gb/s without trailing zeros: `2800G`, `2.5G`."""
    return f"{rate:.3f}".rstrip("0").rstrip(".") + "G"
