"""The same look through nvidia-ml-py: an oracle for agent/nvml/library.py, which shares no code
with it.

    LD_LIBRARY_PATH=FOLDER python -I -S nvml_by_binding.py SITE-PACKAGES

Prints the answer that `agent.nvml.library.query` would give, less the words and the library's path.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from typing import Any


def look() -> dict[str, Any]:
    """One look at all GPUs."""
    pynvml = import_module("pynvml")
    answer: dict[str, Any] = {"error": None, "driver": None, "count": 0, "gpus": []}
    try:
        pynvml.nvmlInit()
        answer["driver"] = pynvml.nvmlSystemGetDriverVersion()
        answer["count"] = pynvml.nvmlDeviceGetCount()
        answer["gpus"] = [_gpu(pynvml, index) for index in range(answer["count"])]
        pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        answer["error"] = error.value
    return answer


def _gpu(pynvml: Any, index: int) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "index": index,
        "uuid": None,
        "pci": None,
        "error": None,
        "fabric": None,
    }
    try:
        device = pynvml.nvmlDeviceGetHandleByIndex(index)
        facts["pci"] = pynvml.nvmlDeviceGetPciInfo(device).busId
        facts["uuid"] = pynvml.nvmlDeviceGetUUID(device)
        facts["fabric"] = _fabric(pynvml, device)
    except pynvml.NVMLError as error:
        facts["error"] = error.value
    return facts


def _fabric(pynvml: Any, device: Any) -> dict[str, Any]:
    from ctypes import byref

    for structure in (pynvml.c_nvmlGpuFabricInfo_v3_t, pynvml.c_nvmlGpuFabricInfo_v2_t):
        info = structure()
        try:
            pynvml.nvmlDeviceGetGpuFabricInfoV(device, byref(info))
        except pynvml.NVMLError_FunctionNotFound:
            break
        except (pynvml.NVMLError_ArgumentVersionMismatch, pynvml.NVMLError_InvalidArgument):
            continue
        return _facts(info)
    oldest = pynvml.c_nvmlGpuFabricInfo_t()
    pynvml.nvmlDeviceGetGpuFabricInfo(device, byref(oldest))
    return _facts(oldest)


def _facts(info: Any) -> dict[str, Any]:
    facts = {name: getattr(info, name) for name, _ in info._fields_}
    facts["cluster_uuid"] = bytes(facts.pop("clusterUuid")).hex()
    for theirs, ours in (
        ("cliqueId", "clique_id"),
        ("healthMask", "health_mask"),
        ("healthSummary", "health_summary"),
    ):
        if theirs in facts:
            facts[ours] = facts.pop(theirs)
    return facts


if __name__ == "__main__":
    sys.path += sys.argv[1:]
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    json.dump(look(), out)
    out.close()
