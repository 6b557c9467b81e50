"""What NVML tells of the GPUs of this node, by ctypes: numbers and bytes as the library gives them.

The law of this module: one question, and the library is gone again. NVML held open blocks driver upgrades, is stale
after a reload and may hang in the kernel, so this runs in a child (helper.py), once for every look. What a look costs
is mostly Python's own start, which is why ctypes does it: importing nvidia-ml-py, a module of 370 KB of bytecode, would
take as long again. benchmarks/nvml_poll.py measures both, and the tests hold one against the other. For the same reason
nothing here is decoded: the names of numbers are in agent/nvml/decode.py, on the parent's side.

The library is searched in this order, and the first that loads is taken:

1. `--nvml-library PATH`, and then nothing else;
2. `libnvidia-ml.so.1` by the dynamic loader: LD_LIBRARY_PATH, ld.so.cache, the default folders. This is how it is found
   on a host, and in a container that the NVIDIA runtime or a CDI specification has put it into;
3. FOLDERS below each of ROOTS: a CDI mount in an image without ld.so.cache, GKE's and NixOS's places, and the root
   file system of GPU Operator's driver container.

One sick GPU costs its own facts: every failure is a `Refused`, with the call and its nvmlReturn_t.
"""

from __future__ import annotations

import ctypes
import os

TYPE_CHECKING = False  # importing typing is a tenth of a look
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

SONAME = "libnvidia-ml.so.1"
ROOTS = ("", "/run/nvidia/driver", "/host")
FOLDERS = (
    f"/usr/lib/{os.uname().machine}-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    f"/usr/lib/{os.uname().machine}-linux-gnu/nvidia/current",
    "/usr/local/nvidia/lib64",
    "/run/opengl-driver/lib",
)
MOST = 64  # GPUs that are asked, should the count make no sense; a node has up to 16

# nvml.h: enum nvmlReturn_t, as far as anything here depends on it
LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND = 12, 13
OTHER_VERSION = frozenset(
    {2, 25}
)  # NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_ARGUMENT_VERSION_MISMATCH


class PciInfo(ctypes.Structure):
    """nvmlPciInfo_t (_v3)."""

    _fields_ = (
        ("busIdLegacy", ctypes.c_char * 16),
        ("numbers", ctypes.c_uint * 5),
        ("busId", ctypes.c_char * 32),
    )


class FabricInfo(ctypes.Structure):
    """nvmlGpuFabricInfo_t. The state is one byte, as nvml.h has it: what follows up to the next field is padding."""

    _fields_ = (
        ("clusterUuid", ctypes.c_ubyte * 16),
        ("status", ctypes.c_uint),
        ("cliqueId", ctypes.c_uint),
        ("state", ctypes.c_ubyte),
    )


class FabricInfo2(ctypes.Structure):
    """nvmlGpuFabricInfo_v2_t."""

    _fields_ = (("version", ctypes.c_uint), *FabricInfo._fields_, ("healthMask", ctypes.c_uint))


class FabricInfo3(ctypes.Structure):
    """nvmlGpuFabricInfo_v3_t."""

    _fields_ = (*FabricInfo2._fields_, ("healthSummary", ctypes.c_ubyte))


VERSIONS = ((0x03000028, FabricInfo3), (0x02000024, FabricInfo2))
NAMES = {
    "clusterUuid": "cluster_uuid",
    "cliqueId": "clique_id",
    "healthMask": "health_mask",
    "healthSummary": "health_summary",
}


class Refused(Exception):  # noqa: N818 - the name says who is to blame
    """A call that failed, with its nvmlReturn_t: `as_json` is {"call": name, "code": number, "text": words}."""

    def __init__(self, call: str, code: int, text: str) -> None:
        super().__init__(text)
        self.call, self.code = call, code

    def as_json(self) -> dict[str, Any]:
        return {"call": self.call, "code": self.code, "text": str(self)}


class Library:
    """libnvidia-ml, loaded; Refused with LIBRARY_NOT_FOUND and the loader's words where that fails."""

    def __init__(self, path: str | None = None) -> None:
        complaint = f"{SONAME}: not found"
        for place in [path] if path else _places():
            try:
                self._lib, self.path = ctypes.CDLL(place), place
            except (OSError, ValueError) as error:
                complaint = str(error)  # the last is the best: it is about a file that is there
            else:
                return
        raise Refused("dlopen", LIBRARY_NOT_FOUND, complaint)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function that returns an nvmlReturn_t; Refused unless that is NVML_SUCCESS."""
        try:
            function = getattr(self._lib, name)
        except AttributeError:
            raise Refused(name, FUNCTION_NOT_FOUND, "the library has no such function") from None
        code = function(*arguments) & 0xFFFFFFFF
        if code:
            raise Refused(name, code, self._words(code))

    def _words(self, code: int) -> str:
        try:
            function = self._lib.nvmlErrorString
        except AttributeError:
            return f"error {code}"
        function.restype = ctypes.c_char_p
        return (function(code) or b"").decode(errors="replace") or f"error {code}"


def query(path: str | None = None) -> dict[str, Any]:
    """One look at all GPUs, from nvmlInit to nvmlShutdown.

    {"library": path | null, "driver": version | null, "error": ERROR | null, "count": 4, "gpus": [GPU, ...]}
    ERROR: {"call": name, "code": nvmlReturn_t, "text": words}
    GPU: {"index": 0, "uuid": "GPU-..." | null, "pci": "00000008:01:00.0" | null, "error": ERROR | null,
    "fabric": null | {"version": 0x03000028, "cluster_uuid": 32 hex digits, "status": nvmlReturn_t, "clique_id": 32766,
    "state": 3, "health_mask": 0, "health_summary": 0}}

    A structure of version 1 has no field of that name; the health fields came with versions 2 and 3.
    """
    answer: dict[str, Any] = {
        "library": None,
        "driver": None,
        "error": None,
        "count": 0,
        "gpus": [],
    }
    try:
        library = Library(path)
        answer["library"] = library.path
        library.call("nvmlInitWithFlags", ctypes.c_uint(0))
        answer["driver"] = _driver(library)
        answer["count"] = _count(library)
        answer["gpus"] = [_gpu(library, index) for index in range(min(answer["count"], MOST))]
        library.call("nvmlShutdown")
    except Refused as refused:
        # What was learned before stands: a shutdown that fails costs nothing, the process ends here anyway.
        answer["error"] = refused.as_json() if refused.call != "nvmlShutdown" else None
    return answer


def _places() -> Iterator[str]:
    yield SONAME
    for root in ROOTS:
        for folder in FOLDERS:
            if os.path.exists(place := f"{root}{folder}/{SONAME}"):
                yield place


def _driver(library: Library) -> str | None:
    buffer = ctypes.create_string_buffer(80)
    try:
        library.call("nvmlSystemGetDriverVersion", buffer, ctypes.c_uint(len(buffer)))
    except Refused:
        return None
    return buffer.value.decode(errors="replace")


def _count(library: Library) -> int:
    count = ctypes.c_uint()
    library.call("nvmlDeviceGetCount_v2", ctypes.byref(count))
    return count.value


def _gpu(library: Library, index: int) -> dict[str, Any]:
    gpu: dict[str, Any] = {"index": index, "uuid": None, "pci": None, "error": None, "fabric": None}
    try:
        device = ctypes.c_void_p()
        library.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(device))
        gpu["pci"] = _pci(library, device)
        gpu["uuid"] = _uuid(library, device)
        gpu["fabric"] = _fabric(library, device)
    except Refused as refused:
        gpu["error"] = refused.as_json()
    return gpu


def _pci(library: Library, device: ctypes.c_void_p) -> str:
    info = PciInfo()
    library.call("nvmlDeviceGetPciInfo_v3", device, ctypes.byref(info))
    return str(info.busId.decode(errors="replace"))


def _uuid(library: Library, device: ctypes.c_void_p) -> str:
    buffer = ctypes.create_string_buffer(96)
    library.call("nvmlDeviceGetUUID", device, buffer, ctypes.c_uint(len(buffer)))
    return buffer.value.decode(errors="replace")


def _fabric(library: Library, device: ctypes.c_void_p) -> dict[str, Any]:
    """The newest structure that the library knows; nvmlDeviceGetGpuFabricInfoV came with driver 550."""
    for version, structure in VERSIONS:
        info = structure(version)
        try:
            library.call("nvmlDeviceGetGpuFabricInfoV", device, ctypes.byref(info))
        except Refused as refused:
            if refused.code == FUNCTION_NOT_FOUND:
                break
            if refused.code not in OTHER_VERSION:
                raise
        else:
            return _facts(info)
    oldest = FabricInfo()
    library.call("nvmlDeviceGetGpuFabricInfo", device, ctypes.byref(oldest))
    return _facts(oldest)


def _facts(info: FabricInfo | FabricInfo2 | FabricInfo3) -> dict[str, Any]:
    facts = {NAMES.get(name, name): getattr(info, name) for name, _ in info._fields_}
    # All 16 bytes: a UUID may begin with a zero byte, where a C string would end.
    return facts | {"cluster_uuid": bytes(facts["cluster_uuid"]).hex()}
