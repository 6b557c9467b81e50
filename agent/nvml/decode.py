"""What NVML answered, as values: numbers get the names that nvml.h gives them.

The law of this module: an answer that makes no sense is Malformed, whoever gave it: the library, a child that was cut
off, a snapshot of a stranger. A number without a name in an open set, such as a return code that a newer driver
invented, makes sense: it becomes `unnamed-1234`, which is nobody's name for success.

Status and identifiers are looked at only when the state is "completed"; before that, nvml.h gives them no meaning.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from agent.errors import Malformed
from agent.model import Gpu

STATES = ("not-supported", "not-started", "in-progress", "completed")  # NVML_GPU_FABRIC_STATE_*
SUMMARIES = (
    "not-supported",
    "healthy",
    "unhealthy",
    "limited-capacity",
)  # NVML_GPU_FABRIC_HEALTH_SUMMARY_*
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
_HEX16 = re.compile(r"[0-9a-f]{32}")
_BUS_ID = re.compile(r"([0-9A-Fa-f]{4,8}):([0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])")
_UNSET = 0xFFFFFFFF  # a clique ID that nobody has set


class Refusal(NamedTuple):
    """A call that failed: its name, what it returned by name, and what that means in words."""

    call: str
    error: str
    text: str


def answer(data: Any) -> tuple[Refusal | None, list[Any]]:
    """What stopped the whole look, if anything did, and its GPUs, each to be decoded by `gpu`.

    `data` is the object described at `agent.nvml.library.look`. Malformed: it is no such object.
    """
    if not isinstance(data, dict):
        raise Malformed("NVML's answer is no JSON object")
    gpus, count = data.get("gpus"), _number(data.get("count"), "count")
    if not isinstance(gpus, list):
        raise Malformed("NVML's answer has no list of GPUs")
    if count != len(gpus):
        raise Malformed(f"NVML counts {count} GPUs and answers for {len(gpus)}")
    return refusal(data.get("error")), gpus


def refusal(data: Any) -> Refusal | None:
    """A failed call, {"call": name, "code": nvmlReturn_t, "text": words}; None for None."""
    if data is None:
        return None
    if not isinstance(data, dict):
        raise Malformed("an error is no JSON object")
    code, call = _number(data.get("code"), "error code"), _text(data.get("call"), "call")
    return Refusal(call, _returned(code), _text(data.get("text"), "error text"))


def gpu(data: Any) -> Gpu:
    """One GPU; Malformed where anything of it makes no sense."""
    if not isinstance(data, dict):
        raise Malformed("a GPU is no JSON object")
    uuid, pci, refused = data.get("uuid"), data.get("pci"), refusal(data.get("error"))
    return Gpu(
        index=_number(data.get("index"), "index"),
        uuid=None if uuid is None else _text(uuid, "uuid"),
        pci=None if pci is None else pci_address(pci),
        **(_refused(refused) if refused else _fabric(data.get("fabric"))),
    )


def _refused(refused: Refusal) -> dict[str, Any]:
    """Why facts are missing; a driver or a GPU that knows no fabric says so by refusing that one call."""
    missing = refused.call.startswith("nvmlDeviceGetGpuFabricInfo") and refused.error in NO_FABRIC
    facts = {"error": refused.error, "text": f"{refused.call}: {refused.text}"}
    return facts | ({"state": STATES[0]} if missing else {})


def _fabric(data: Any) -> dict[str, Any]:
    """The fields of Gpu that are out of a structure."""
    if not isinstance(data, dict):
        raise Malformed("a GPU has neither fabric nor error")
    version, state = _version(data), _number(data.get("state"), "fabric state")
    if state >= len(STATES):
        raise Malformed(f"fabric state {state} is none of {', '.join(STATES)}")
    return (
        {"version": version, "state": STATES[state]}
        | _health(data, version)
        | _identity(data, STATES[state])
    )


def _version(data: dict[str, Any]) -> int:
    """1, 2 or 3, when the fields are those of that version."""
    version = _VERSIONS.get(_number(data["version"], "version"), 0) if "version" in data else 1
    if version == 0 or version != 1 + ("health_mask" in data) + ("health_summary" in data):
        raise Malformed(
            f"the fabric structure says version {data.get('version', 1):#x}, its fields do not"
        )
    return version


def _health(data: dict[str, Any], version: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if version > 1:
        mask = _number(data["health_mask"], "health mask")
        found |= {"health_mask": mask, "health": health(mask)}
    if version > 2:
        found["health_summary"] = _name(
            SUMMARIES, _number(data["health_summary"], "health summary")
        )
    return found


def _identity(data: dict[str, Any], state: str) -> dict[str, Any]:
    status, clique = _number(data.get("status"), "status"), _number(data.get("clique_id"), "clique")
    cluster = cluster_uuid(data.get("cluster_uuid"))
    if state != "completed":
        return {}
    if clique == _UNSET and status == 0:
        raise Malformed(f"clique {clique} is no clique")
    return {"status": _returned(status), "clique_id": clique, "cluster_uuid": cluster}


def health(mask: int) -> tuple[tuple[str, str], ...]:
    """A health mask, part by part: (("degraded_bandwidth", "false"), ...); a part may be "not-supported"."""
    return tuple(
        (name, _name(values, mask >> shift & width)) for name, shift, width, values in _HEALTH
    )


def cluster_uuid(digits: Any) -> str:
    """16 bytes as 32 hex digits to lower-case 8-4-4-4-12."""
    if not isinstance(digits, str) or not _HEX16.fullmatch(digits):
        raise Malformed(f"cluster UUID {str(digits)[:64]!r} is not 16 bytes")
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def pci_address(bus_id: Any) -> str:
    """nvmlPciInfo_t.busId ("00000008:01:00.0") as sysfs writes it ("0008:01:00.0")."""
    match = _BUS_ID.fullmatch(bus_id) if isinstance(bus_id, str) else None
    if not match:
        raise Malformed(f"{str(bus_id)[:64]!r} is no PCI address")
    return f"{int(match[1], 16):04x}:{match[2].lower()}"


def _returned(code: int) -> str:
    return RETURNS.get(code, f"unnamed-{code}")


def _name(names: tuple[str, ...], number: int) -> str:
    return names[number] if number < len(names) else f"unnamed-{number}"


def _number(value: Any, what: str) -> int:
    """An unsigned int of C."""
    if type(value) is not int or not 0 <= value <= 0xFFFFFFFF:
        raise Malformed(f"{what} {str(value)[:64]!r} is no number of 32 bits")
    return value


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value.isprintable() or len(value) > 4096:
        raise Malformed(f"{what} {str(value)[:64]!r} is no printable text")
    return value
