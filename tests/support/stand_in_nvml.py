"""The stand-in libnvidia-ml, built from stand_in_nvml.c when a test needs it, and plans for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.stand_in import compile_library

SOURCE = Path(__file__).with_suffix(".c")
CLUSTER = "9c6f5af353bf49b5a436b66766c413c3"
ZERO = "0" * 32
HEALTHY = 0x51AA  # not degraded, configuration right, in a partition, fabric manager connected


def build(folder: Path, *without: str) -> str:
    """Build the library, without "V", "FABRIC", "INIT" or "PLATFORM"; return its path."""
    folder.mkdir(exist_ok=True)
    library = str(folder / "libnvidia-ml.so.1")
    flags = ("-Wl,-soname,libnvidia-ml.so.1", *(f"-DWITHOUT_{name}" for name in without))
    compile_library(SOURCE, library, *flags)
    return library


def gpu(index: int, **changed: Any) -> str:
    """Return the line of a registered, healthy GPU with the `changed` fields."""
    facts: dict[str, Any] = {
        "state": 3,
        "status": 0,
        "clique": 32766,
        "cluster": CLUSTER,
        "mask": HEALTHY,
        "summary": 1,
    }
    facts |= changed
    fabric = "{state} {status} {clique} {cluster} {mask:x} {summary}".format(**facts)
    return f"gpu GPU-24fb92fc-15ec-deff-a5c1-{index:012x} {index:08X}:01:00.0 {fabric}\n"


def tray(*lines: str, gpus: int = 4) -> str:
    """Return a plan with that many equal GPUs, and more lines."""
    return "".join(gpu(index) for index in range(gpus)) + "".join(f"{line}\n" for line in lines)


def given(plan: str, version: int = 3) -> list[dict[str, Any]]:
    """Return the GPUs of a plan without faults, as agent.nvml.library.query returns them.

    `version` is the newest version of the structure in the library.
    """
    lines = [line.split() for line in plan.splitlines() if line.startswith("gpu ")]
    platforms = {
        int(line.split()[1]): _platform(*line.split()[2:])
        for line in plan.splitlines()
        if line.startswith("platform ")
    }
    return [
        _given(index, words, version, platforms.get(index, {}))
        for index, (_, *words) in enumerate(lines)
    ]


def _platform(serial: str, *numbers: str) -> dict[str, Any]:
    names = ("slot_number", "tray_index", "host_id", "module_id")
    facts = dict(zip(names, map(int, numbers), strict=True))
    return {"platform": {"chassis_serial_number": serial.strip("-"), **facts}}


def _given(index: int, words: list[str], version: int, platform: dict[str, Any]) -> dict[str, Any]:
    uuid, bus_id, state, status, clique, cluster, mask, summary = words
    fabric: dict[str, Any] = {
        "cluster_uuid": cluster,
        "status": int(status),
        "clique_id": int(clique),
        "state": int(state),
    }
    if version > 1:
        fabric |= {"version": (0, 0, 0x02000024, 0x03000028)[version], "health_mask": int(mask, 16)}
    if version > 2:
        fabric["health_summary"] = int(summary)
    return {"index": index, "uuid": uuid, "pci": bus_id, "error": None, "fabric": fabric} | platform
