"""Answers of the NVML helper (agent/nvml/library.py, look)."""

from __future__ import annotations

from typing import Any

ACCELERATOR = "network.topology.nvidia.com/accelerator"
FABRIC = {
    "version": 0x03000028,
    "cluster_uuid": "9c6f5af353bf49b5a436b66766c413c3",
    "status": 0,
    "clique_id": 4026,
    "state": 3,
    "health_mask": 0x51AA,
    "health_summary": 1,
}
PLATFORM = {
    "chassis_serial_number": "1823825185529",
    "slot_number": 5,
    "tray_index": 4,
    "host_id": 1,
    "module_id": 2,
}
GPU = {
    "index": 0,
    "uuid": "GPU-24fb92fc",
    "pci": "00000008:01:00.0",
    "error": None,
    "fabric": FABRIC,
}


def answer(*gpus: Any, **changed: Any) -> dict[str, Any]:
    """The answer of a driver that counts these GPUs."""
    return {"error": None, "count": len(gpus), "gpus": list(gpus)} | changed
