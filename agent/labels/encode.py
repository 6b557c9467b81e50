"""Any text to a label value, and which keys and values Kubernetes takes.

A neighbour chooses its own name, so no raw value is trusted: what comes out of `value` is a valid label value or "".
Limits: Kubernetes, apimachinery/pkg/util/validation (IsValidLabelValue, IsQualifiedName).
"""

from __future__ import annotations

import re

LONGEST = 63  # characters of a value, and of the name part of a key

_OUTSIDE = re.compile(r"[^A-Za-z0-9._-]")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*")
_FNV_OFFSET, _FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3  # RFC 9923, FNV-1a for 64 bits


def value(raw: str) -> str:
    """The label value for `raw`; "" when nothing of it can be a value.

    What is too long (in bytes of UTF-8, as Topograph counts) becomes `x` and its hash, exactly as Topograph writes it,
    so that both agree on the same switch.
    """
    data = raw.encode("utf-8", "surrogatepass")
    if len(data) > LONGEST:
        return f"x{fnv1a_64(data):x}"
    return _OUTSIDE.sub("-", raw).strip("._-")


def fnv1a_64(data: bytes) -> int:
    """FNV-1a over 64 bits."""
    state = _FNV_OFFSET
    for byte in data:
        state = (state ^ byte) * _FNV_PRIME & 0xFFFFFFFFFFFFFFFF
    return state


def key_fault(key: str) -> str | None:
    """Why Kubernetes would not take this label key; None when it would."""
    prefix, slash, name = key.rpartition("/")
    if slash and prefix_fault(prefix):
        return prefix_fault(prefix)
    if len(name) > LONGEST:
        return f"its name part has {len(name)} characters, {LONGEST} is the limit"
    if not _NAME.fullmatch(name):
        return "its name part may hold letters, digits, '.', '_' and '-', and ends with a letter or digit"
    return None


def prefix_fault(prefix: str) -> str | None:
    """Why this is no prefix for our keys (a DNS subdomain that is not Kubernetes' own); None when it is one."""
    if len(prefix) > 253 or not _PREFIX.fullmatch(prefix):
        return f"{prefix[:64]!r} is no DNS name in lower case"
    if prefix.endswith(("kubernetes.io", "k8s.io")) and prefix.split(".")[-2] in {
        "kubernetes",
        "k8s",
    }:
        return f"{prefix!r} belongs to Kubernetes"
    return None
