"""A small /sys for commands that are run as programs."""

from __future__ import annotations

from pathlib import Path


def a_node_without_rdma(folder: Path) -> Path:
    """Lay out one NIC and an empty PCI bus: the only label is `speed.current=0G`."""
    top = folder / "sys"
    (top / "class/net/lo").mkdir(parents=True)
    (top / "bus/pci/devices").mkdir(parents=True)
    return top
