"""A tree of tests/support/kernel_tree.py, or a bare one, as files on disk, for agents that run as
programs.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.support.kernel_tree import Entries


def lay(entries: Entries, folder: Path) -> Path:
    """Write the tree below `folder` and return its /sys."""
    for path, entry in entries.items():
        place = folder / path
        if entry is None:
            place.mkdir(parents=True, exist_ok=True)
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(entry, bytes):
            rewrite(place, entry)
        elif not place.is_symlink():
            place.symlink_to(entry)
    return folder / "sys"


def rewrite(place: Path, data: bytes) -> None:
    """Replace a file's content in place, as a kernel attribute changes: open descriptors read
    it.
    """
    with os.fdopen(os.open(place, os.O_WRONLY | os.O_CREAT, 0o644), "wb", buffering=0) as file:
        file.write(data.ljust(32, b"\n"))
        file.truncate(max(len(data), 32))


def remove(folder: Path, *paths: str) -> None:
    """Remove these files, links or folders."""
    for path in paths:
        place = folder / path
        if place.is_symlink() or place.is_file():
            place.unlink()
        else:
            shutil.rmtree(place)


def a_node_without_rdma(folder: Path) -> Path:
    """Lay out one NIC and an empty PCI bus: the only label is `speed.current=0G`."""
    top = folder / "sys"
    (top / "class/net/lo").mkdir(parents=True)
    (top / "bus/pci/devices").mkdir(parents=True)
    return top
