"""Query the GPUs of this node through nvidia-ml-py: numbers and bytes as the library gives them.

Invariant: the library is used for one query, then its process ends. NVML held open blocks driver
upgrades, is stale after a reload and may hang in the kernel, so this module runs in a helper
process or in a fork of a fork server, never in the agent, which decodes the answer
(agent/nvml/decode.py).

nvidia-ml-py loads `libnvidia-ml.so.1` and nothing else, so `load` gives it a library that it has
found itself. It takes the first that loads of:

1. `--nvml-library PATH`, and then no other;
2. `libnvidia-ml.so.1` by the dynamic loader: LD_LIBRARY_PATH, ld.so.cache, the default folders. It
   is found so on a host, and in a container into which the NVIDIA runtime or a CDI specification
   has put it;
3. FOLDERS below each of ROOTS: a CDI mount in an image without ld.so.cache, the folders of GKE and
   NixOS, and the root file system of GPU Operator's driver container.

A failure of one GPU is part of that GPU's answer, with the call and its nvmlReturn_t.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from contextlib import suppress

import pynvml  # type: ignore[import-untyped]  # nvidia-ml-py has no annotations

TYPE_CHECKING = False  # as in agent/helper/main.py: the fork server is smaller without `typing`
if TYPE_CHECKING:
    from typing import Any

    from agent.text import Json

SONAME = "libnvidia-ml.so.1"
# The second of them on a host, the third in a container that has the host's /proc.
DRIVER_CONTAINER = "/run/nvidia/driver"
ROOTS = ("", DRIVER_CONTAINER, f"/host/proc/1/root{DRIVER_CONTAINER}", "/host")
FOLDERS = (
    f"/usr/lib/{os.uname().machine}-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    f"/usr/lib/{os.uname().machine}-linux-gnu/nvidia/current",
    "/usr/local/nvidia/lib64",
    "/run/opengl-driver/lib",
)
MAX_GPUS = 64  # bounds a malformed count; a node has up to 16 GPUs

# The errors of a driver for a structure whose version it does not know.
_UNKNOWN_VERSION = (pynvml.NVML_ERROR_INVALID_ARGUMENT, pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
_VERSIONED = (pynvml.c_nvmlGpuFabricInfo_v3_t, pynvml.c_nvmlGpuFabricInfo_v2_t)
_KEYS = {
    "clusterUuid": "cluster_uuid",
    "cliqueId": "clique_id",
    "healthMask": "health_mask",
    "healthSummary": "health_summary",
}
_PLATFORM = {"slotNumber": "slot_number", "trayIndex": "tray_index"}  # each an unsigned char
_PLATFORM |= {"hostId": "host_id", "moduleId": "module_id"}


class CallFailed(Exception):  # noqa: N818 - it is the event that the answer reports
    """A failed NVML call: `as_json` is {"call": name, "code": nvmlReturn_t, "text": text}."""

    def __init__(self, call: str, code: int, text: str) -> None:
        super().__init__(text)
        self.call, self.code = call, code

    def as_json(self) -> Json:
        return {"call": self.call, "code": self.code, "text": str(self)}


def query(path: str | None = None) -> Json:
    """Query all GPUs, from nvmlInit to nvmlShutdown.

    {"library": path | null, "driver": version | null, "error": ERROR | null, "count": 4,
    "gpus": [GPU, ...]}
    ERROR: {"call": name, "code": nvmlReturn_t, "text": text}
    GPU: {"index": 0, "uuid": "GPU-..." | null, "pci": "00000008:01:00.0" | null, "error":
    ERROR | null, "fabric": null | {"version": 0x03000028, "cluster_uuid": 32 hex digits, "status":
    nvmlReturn_t, "clique_id": 32766, "state": 3, "health_mask": 0, "health_summary": 0},
    "platform": {"chassis_serial_number": "1823825185529", "slot_number": 5, "tray_index": 4,
    "host_id": 1, "module_id": 2}}

    A structure of version 1 has no version field; health_mask came with version 2, health_summary
    with version 3. "platform" is left out where the driver or the GPU has none.
    """
    answer: Json = {"library": None, "driver": None, "error": None, "count": 0, "gpus": []}
    try:
        answer["library"] = load(path)
        _call("nvmlInitWithFlags", pynvml.nvmlInitWithFlags, 0)
        with suppress(CallFailed):
            version = _call("nvmlSystemGetDriverVersion", pynvml.nvmlSystemGetDriverVersion)
            answer["driver"] = str(version)
        answer["count"] = _call("nvmlDeviceGetCount_v2", pynvml.nvmlDeviceGetCount)
        answer["gpus"] = [_gpu(index) for index in range(min(answer["count"], MAX_GPUS))]
        with suppress(CallFailed):  # a failed shutdown loses nothing: the process ends here anyway
            _call("nvmlShutdown", pynvml.nvmlShutdown)
    except CallFailed as failed:
        answer["error"] = failed.as_json()
    return answer


def load(path: str | None = None) -> str:
    """Load libnvidia-ml for pynvml and return the name or path by which it was found.

    Raises CallFailed with NVML_ERROR_LIBRARY_NOT_FOUND and the dynamic loader's message.
    """
    text = f"{SONAME}: not found"
    folders = [f"{root}{folder}" for root in ROOTS for folder in FOLDERS]
    paths = [f"{folder}/{SONAME}" for folder in folders if os.path.exists(f"{folder}/{SONAME}")]
    for name in [path] if path else [SONAME, *paths]:
        try:
            # By its own loader, pynvml would ignore the path of a file with another soname.
            pynvml.nvmlLib = ctypes.CDLL(name)
        except (OSError, ValueError) as error:
            text = str(error)  # the last message is about a file that exists
        else:
            return name
    raise CallFailed("dlopen", pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, text)


def _call(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of pynvml; raises CallFailed with the name of the C function."""
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        code = error.value & 0xFFFFFFFF  # an enum of C, unsigned
        text = f"error {code}"
        if code == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            text = "the library has no such function"
        else:
            with suppress(pynvml.NVMLError, UnicodeDecodeError):
                text = pynvml.nvmlErrorString(code) or text
        raise CallFailed(name, code, text) from None
    except UnicodeDecodeError as error:  # pynvml decodes strings strictly
        raise CallFailed(name, pynvml.NVML_ERROR_UNKNOWN, str(error)) from None


def _gpu(index: int) -> Json:
    gpu: Json = {"index": index, "uuid": None, "pci": None, "error": None, "fabric": None}
    handle = pynvml.nvmlDeviceGetHandleByIndex
    try:
        device = _call("nvmlDeviceGetHandleByIndex_v2", handle, index)
        pci = _call("nvmlDeviceGetPciInfo_v3", pynvml.nvmlDeviceGetPciInfo_v3, device)
        gpu["pci"] = str(pci.busId)
        gpu["uuid"] = _call("nvmlDeviceGetUUID", pynvml.nvmlDeviceGetUUID, device)
        with suppress(CallFailed):
            # It came with driver 565, version 2 of the structure with driver 570.
            info = pynvml.c_nvmlPlatformInfo_v2_t()
            function = pynvml.nvmlDeviceGetPlatformInfo
            _call("nvmlDeviceGetPlatformInfo", function, device, ctypes.byref(info))
            # The attributes of pynvml's structure are text, decoded strictly: 255 could not be read
            octets, layout = bytes(info), type(info)
            at = layout.chassisSerialNumber
            serial = octets[at.offset : at.offset + at.size].rstrip(b"\0")
            gpu["platform"] = {
                "chassis_serial_number": serial.decode("ascii", "backslashreplace"),
                **{key: octets[getattr(layout, name).offset] for name, key in _PLATFORM.items()},
            }
        gpu["fabric"] = _fabric(device)
    except CallFailed as failed:
        gpu["error"] = failed.as_json()
    return gpu


def _fabric(device: Any) -> Json:
    """Return the newest structure that the driver knows: version 3, 2, or 1 without versions.

    nvmlDeviceGetGpuFabricInfoV came with driver 550.
    """
    function = pynvml.nvmlDeviceGetGpuFabricInfoV
    for structure in _VERSIONED:
        info = structure()
        try:
            _call("nvmlDeviceGetGpuFabricInfoV", function, device, ctypes.byref(info))
        except CallFailed as failed:
            if failed.code == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
                break
            if failed.code not in _UNKNOWN_VERSION:
                raise
        else:
            return _facts(info)
    info = pynvml.c_nvmlGpuFabricInfo_t()
    function = pynvml.nvmlDeviceGetGpuFabricInfo
    _call("nvmlDeviceGetGpuFabricInfo", function, device, ctypes.byref(info))
    return _facts(info)


def _facts(info: Any) -> Json:
    facts = {_KEYS.get(name, name): getattr(info, name) for name, _ in info._fields_}
    # All 16 bytes: a UUID may begin with a zero byte, where a C string ends.
    facts["cluster_uuid"] = bytes(facts["cluster_uuid"]).hex()
    # nvml.h: nvmlGpuFabricState_t is an unsigned char. pynvml reads four bytes; three are padding.
    facts["state"] &= 0xFF
    return facts
