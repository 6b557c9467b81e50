"""Decode NVML's answers: numbers get the names that nvml.h gives them.

Invariants:
- An answer that contradicts nvml.h or itself is Malformed, whether it came from the library, a
  helper process that was cut off or a recorded snapshot.
- A number outside an open set, such as a return code that a newer driver added, is no error: it
  becomes `unnamed-1234`, which equals no known name.
- Status and identifiers are used only if the state is "completed"; nvml.h gives them no meaning
  before that.
- nvml.h reserves no clique ID, so any number of 32 bits is one, 4294967295 too.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from agent import ids
from agent.errors import Malformed
from agent.model import Gpu, PlatformPosition
from agent.text import Json

STATES = ("not-supported", "not-started", "in-progress", "completed")  # NVML_GPU_FABRIC_STATE_*
# NVML_GPU_FABRIC_HEALTH_SUMMARY_*
SUMMARIES = ("not-supported", "healthy", "unhealthy", "limited-capacity")
RETURNS = {  # enum nvmlReturn_t
    0: "success",
    1: "uninitialized",
    2: "invalid-argument",
    3: "not-supported",
    4: "not-permitted",
    5: "already-initialized",
    6: "not-found",
    7: "insufficient-size",
    8: "insufficient-power",
    9: "driver-not-loaded",
    10: "timeout",
    11: "irq-issue",
    12: "library-missing",
    13: "symbol-missing",
    14: "corrupted-inforom",
    15: "gpu-lost",
    16: "reset-required",
    17: "operating-system",
    18: "version-mismatch",
    19: "in-use",
    20: "memory",
    21: "no-data",
    22: "vgpu-ecc-not-supported",
    23: "insufficient-resources",
    24: "freq-not-supported",
    25: "argument-version-mismatch",
    26: "deprecated",
    27: "not-ready",
    28: "gpu-not-found",
    29: "invalid-state",
    30: "reset-type-not-supported",
    999: "unknown",
}
NO_FABRIC = frozenset({"not-supported", "symbol-missing"})
# Of the calls before the GPUs are counted: no library, another library, no driver; no GPU.
NOT_INSTALLED = frozenset({"library-missing", "symbol-missing", "driver-not-loaded"})
NO_GPUS = NOT_INSTALLED | {"gpu-not-found"}

_YES_NO = ("not-supported", "true", "false")
_CONFIGURATIONS = (
    "not-supported",
    "none",
    "incorrect-sysguid",
    "incorrect-chassis-sn",
    "no-partition",
    "insufficient-nvlinks",
    "incompatible-gpu-fw",
    "invalid-location",
    "gpu-state-invalid",
)
_HEALTH = (  # NVML_GPU_FABRIC_HEALTH_MASK_{SHIFT,WIDTH}_*: name, shift, width, values
    ("degraded_bandwidth", 0, 0x3, _YES_NO),
    ("route_recovery", 2, 0x3, _YES_NO),
    ("route_unhealthy", 4, 0x3, _YES_NO),
    ("access_timeout_recovery", 6, 0x3, _YES_NO),
    ("incorrect_configuration", 8, 0xF, _CONFIGURATIONS),
    ("partition_assigned", 12, 0x3, _YES_NO),
    ("gfm_state", 14, 0x3, ("not-supported", "connected", "disconnected")),
)

_VERSIONS = {0x02000024: 2, 0x03000028: 3}
MAX_SERIAL = 16  # bytes of nvmlPlatformInfo_v2_t.chassisSerialNumber
_HEX16 = "[0-9a-f]{32}"


class FailedCall(NamedTuple):
    """A failed call: the function, the name of its nvmlReturn_t and the library's text."""

    call: str
    error: str
    text: str


def answer(data: Any) -> tuple[FailedCall | None, list[Any]]:
    """Return the failed call that ended the query, if any, and the GPUs, for `gpu` to decode.

    `data` is the object that `agent.nvml.library.query` returns. Raises Malformed if it is not.
    """
    fields = _object(data, "NVML's answer")
    gpus, count = fields.get("gpus"), _number(fields.get("count"), "count")
    if not isinstance(gpus, list):
        raise Malformed("NVML's answer has no list of GPUs")
    if count != len(gpus):
        raise Malformed(f"NVML counts {count} GPUs and answers for {len(gpus)}")
    return failed_call(fields.get("error")), gpus


def failed_call(data: Any) -> FailedCall | None:
    """Decode a failed call, {"call": name, "code": nvmlReturn_t, "text": text}; None for None."""
    if data is None:
        return None
    error = _object(data, "an error")
    code, call = _number(error.get("code"), "error code"), _text(error.get("call"), "call")
    return FailedCall(call, _returned(code), _text(error.get("text"), "error text"))


def gpu(data: Any) -> Gpu:
    """Decode a GPU; raises Malformed if any part of it is malformed.

    Names are None without an answer.
    """
    fields = _object(data, "a GPU")
    uuid, pci, failed = fields.get("uuid"), fields.get("pci"), failed_call(fields.get("error"))
    if failed is None:
        facts = _fabric(fields.get("fabric"))
    else:
        facts = {"error": failed.error, "text": f"{failed.call}: {failed.text}"}
        # A driver or GPU without fabric support fails the call for fabric information.
        is_of_fabric = failed.call.startswith("nvmlDeviceGetGpuFabricInfo")
        facts |= {"state": STATES[0]} if is_of_fabric and failed.error in NO_FABRIC else {}
    return Gpu(
        number=_number(fields.get("index"), "index"),
        uuid=None if uuid is None else _text(uuid, "uuid"),
        pci=None if pci is None else pci_address(pci),
        **facts,
    )


def _fabric(data: Any) -> Json:
    """Return the fields of Gpu that come from a fabric structure.

    Raises Malformed if its fields are not those of its version; version 1 has no field for it.
    """
    if not isinstance(data, dict):
        raise Malformed("a GPU has neither fabric nor error")
    version, claimed = 1 + ("health_mask" in data) + ("health_summary" in data), 1
    if "version" in data:
        claimed = _VERSIONS.get(_number(data["version"], "version"), 0)
    if version != claimed:
        number = data.get("version", 1)
        raise Malformed(f"the fabric structure has not the fields of version {number:#x}")
    state = _number(data.get("state"), "fabric state")
    if state >= len(STATES):
        raise Malformed(f"fabric state {state} is none of {', '.join(STATES)}")
    facts: Json = {"version": version, "state": STATES[state]}
    if version > 1:
        mask = _number(data.get("health_mask"), "health mask")
        facts |= {"health_mask": mask, "health": health(mask)}
    if version > 2:
        summary = _number(data.get("health_summary"), "health summary")
        facts["health_summary"] = _name(SUMMARIES, summary)
    status, clique = _number(data.get("status"), "status"), _number(data.get("clique_id"), "clique")
    cluster = cluster_uuid(data.get("cluster_uuid"))
    if STATES[state] == "completed":  # they mean nothing before that
        facts |= {"status": _returned(status), "clique_id": clique, "cluster_uuid": cluster}
    return facts


def health(mask: int) -> tuple[tuple[str, str], ...]:
    """Split a health mask: (("degraded_bandwidth", "false"), ...); a part may be not-supported."""
    return tuple(
        (name, _name(values, mask >> shift & width)) for name, shift, width, values in _HEALTH
    )


def cluster_uuid(digits: Any) -> str:
    """Format 16 bytes, given as 32 hex digits, as lower-case 8-4-4-4-12."""
    if not isinstance(digits, str) or not re.fullmatch(_HEX16, digits):
        raise Malformed(f"cluster UUID {str(digits)[:64]!r} is not 16 bytes")
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def pci_address(bus_id: Any) -> str:
    """Convert nvmlPciInfo_t.busId ("00000008:01:00.0") to the form of sysfs ("0008:01:00.0")."""
    address = ids.pci_address(bus_id) if isinstance(bus_id, str) else None
    if not address:
        raise Malformed(f"{str(bus_id)[:64]!r} is no PCI address")
    return address


def platform(data: Any) -> Json:
    """Return the fields of Gpu that come from its platform information; {} without a chassis.

    Trays are numbered within a chassis, and a machine that is in none has zeros. Raises Malformed
    for anything else than an answer.
    """
    if data is None:
        return {}
    fields = _object(data, "the platform information")
    serial = _text(fields.get("chassis_serial_number"), "chassis serial number").strip()
    numbers = []
    for name in ("slot_number", "tray_index", "host_id", "module_id"):
        number = _number(fields.get(name), name)
        if number > 0xFF:
            raise Malformed(f"{name} {number} is no number of 8 bits")
        numbers.append(number)
    slot, tray, host, module = numbers
    if not serial:
        return {}
    if len(serial) > MAX_SERIAL or not serial.isascii():
        raise Malformed(
            f"chassis serial number {serial[:64]!r} is not 1 to {MAX_SERIAL} bytes of ASCII"
        )
    return {"position": PlatformPosition(serial, slot, tray, host), "module_id": module}


def _object(data: Any, subject: str) -> Json:
    if not isinstance(data, dict):
        raise Malformed(f"{subject} is not a JSON object")
    return data


def _returned(code: int) -> str:
    return RETURNS.get(code, f"unnamed-{code}")


def _name(names: tuple[str, ...], number: int) -> str:
    return names[number] if number < len(names) else f"unnamed-{number}"


def _number(value: Any, field: str) -> int:
    """Return a C unsigned int; raises Malformed for any other value."""
    if type(value) is not int or not 0 <= value <= 0xFFFFFFFF:
        raise Malformed(f"{field} {str(value)[:64]!r} is no number of 32 bits")
    return value


def _text(value: Any, field: str) -> str:
    if not isinstance(value, str) or not value.isprintable() or len(value) > 4096:
        raise Malformed(f"{field} {str(value)[:64]!r} is no printable text")
    return value
