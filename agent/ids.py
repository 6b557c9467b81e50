"""Patterns of identifiers, as bwagent and the kernel write them; each is for `fullmatch`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from fnmatch import fnmatchcase

GUID = re.compile(r"[0-9a-f]{16}")  # of an InfiniBand node or port; no Chassis ID looks like one
NO_GUID = "0" * 16
# The label value of a text that is too long for one (encode.py); a switch may be named so.
HASH = re.compile(r"x[0-9a-f]{1,16}")
MAC = re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2}){5}", re.IGNORECASE)
PCI = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}:[01][0-9a-f]\.[0-7])")  # domain, then the rest
CODE = re.compile(r"[a-z][a-z-]{0,31}")  # a word of the agent's: a reason, the code of a finding


def pci_address(text: str) -> str | None:
    """Return a PCI address as sysfs writes it, `0008:01:00.0`; None for other text.

    GPU drivers write `00000008:01:00.0`, and lspci leaves out the domain 0.
    """
    lower = text.lower()
    match = PCI.fullmatch(lower) or PCI.fullmatch(f"0000:{lower}")
    return f"{int(match[1], 16):04x}:{match[2]}" if match else None


def is_of_device(interface: str, device: str) -> bool:
    """Return True for the interface of a device's only port, or of one of its ports or legs."""
    return interface == device or interface.startswith(f"{device}-")


def card_of(pci: str | None) -> str:
    """Return the address of a card, `0000:5e:00`: that of its functions without their number."""
    return (pci or "").rpartition(".")[0]


def moves(
    here: Iterable[tuple[str | None, str | None]], before: Iterable[tuple[str | None, str | None]]
) -> dict[str, str]:
    """Return the address that a PCI function has now, by the one it had before.

    Both are pairs of a port GUID and the address of its function. A function is known by a GUID
    that no other has.
    """
    addresses, former = functions_of(here), functions_of(before)
    return {former[guid]: addresses[guid] for guid in addresses.keys() & former.keys()}


def functions_of(pairs: Iterable[tuple[str | None, str | None]]) -> dict[str, str]:
    """Return the address of each port GUID that one PCI function has."""
    functions: defaultdict[str, set[str]] = defaultdict(set)
    for guid, pci in pairs:
        if guid and pci and guid != NO_GUID:
            functions[guid].add(pci)
    return {guid: addresses.pop() for guid, addresses in functions.items() if len(addresses) == 1}


def is_named(
    globs: Iterable[str], name: str, pci: str | None = None, ids: str | None = None
) -> bool:
    """Return True if a glob names a device.

    A glob is of its name (`mlx5_*`), of the address of its PCI function (`pci:0000:5e:00.0`), or of
    its vendor and device (`15b3:1021`).
    """
    for glob in globs:
        text, pattern = name, glob
        if glob.startswith("pci:"):
            address = glob.removeprefix("pci:").lower()
            text, pattern = pci or "", pci_address(address) or address
        elif is_pci_glob(glob):
            text, pattern = ids or "", glob.lower()
        if fnmatchcase(text, pattern):
            return True
    return False


def is_pci_glob(glob: str) -> bool:
    """Return True for a PCI address or PCI ids; no RDMA device has a colon in its name."""
    return ":" in glob
