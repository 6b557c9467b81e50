"""Decoding of NVML answers: numbers, and malformed content."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.errors import Malformed
from agent.model import Gpu, PlatformPosition
from agent.nvml import decode as nvml
from agent.nvml.decode import FailedCall
from tests.support.gpus import FABRIC as V3
from tests.support.gpus import GPU, PLATFORM

V2 = {name: value for name, value in V3.items() if name != "health_summary"} | {
    "version": 0x02000024
}
V1 = {name: value for name, value in V2.items() if name not in {"version", "health_mask"}}
LOST = {"call": "nvmlDeviceGetUUID", "code": 15, "text": "GPU is lost"}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from([*GPU, *V3, *LOST, "gpus"]), inner)
    ),
    max_leaves=12,
)


def gpu(structure: dict[str, Any] | None = None, **changed: Any) -> Gpu:
    """Decode a GPU with that fabric structure, version 3 by default."""
    return nvml.gpu(GPU | {"fabric": V3 if structure is None else structure} | changed)


def test_a_registered_gpu() -> None:
    assert gpu() == Gpu(
        number=0,
        uuid="GPU-24fb92fc",
        pci="0008:01:00.0",
        version=3,
        state="completed",
        status="success",
        cluster_uuid="9c6f5af3-53bf-49b5-a436-b66766c413c3",
        clique_id=4026,
        health_mask=0x51AA,
        health=(
            ("degraded_bandwidth", "false"),
            ("route_recovery", "false"),
            ("route_unhealthy", "false"),
            ("access_timeout_recovery", "false"),
            ("incorrect_configuration", "none"),
            ("partition_assigned", "true"),
            ("gfm_state", "connected"),
        ),
        health_summary="healthy",
    )


@pytest.mark.parametrize(("structure", "version"), [(V1, 1), (V2, 2), (V3, 3)])
def test_each_version_says_as_much_as_it_knows(structure: dict[str, Any], version: int) -> None:
    """The identity is in all of them."""
    found = gpu(structure)
    assert (found.version, found.state, found.clique_id) == (version, "completed", 4026)
    assert (found.health_mask is None, found.health_summary is None) == (version < 2, version < 3)


@pytest.mark.parametrize(("number", "state"), list(enumerate(nvml.STATES)))
def test_states_by_name(number: int, state: str) -> None:
    """Status and identifiers mean nothing before the registration is complete."""
    found = gpu(V3 | {"state": number})
    assert found.state == state
    assert (found.status, found.cluster_uuid, found.clique_id).count(None) == (
        0 if state == "completed" else 3
    )


@pytest.mark.parametrize(
    ("number", "status"),
    [(0, "success"), (23, "insufficient-resources"), (999, "unknown"), (31, "unnamed-31")],
)
def test_statuses_by_name(number: int, status: str) -> None:
    """A status that a newer driver added is neither success nor malformed."""
    assert gpu(V3 | {"status": number}).status == status


@pytest.mark.parametrize(
    ("mask", "name", "value"),
    [
        (0x1, "degraded_bandwidth", "true"),
        (0x2, "degraded_bandwidth", "false"),
        (0x3, "degraded_bandwidth", "unnamed-3"),
        (0x4, "route_recovery", "true"),
        (0x10, "route_unhealthy", "true"),
        (0x40, "access_timeout_recovery", "true"),
        (0x80, "access_timeout_recovery", "false"),
        (0x200, "incorrect_configuration", "incorrect-sysguid"),
        (0x500, "incorrect_configuration", "insufficient-nvlinks"),
        (0x800, "incorrect_configuration", "gpu-state-invalid"),
        (0xF00, "incorrect_configuration", "unnamed-15"),
        (0x2000, "partition_assigned", "false"),
        (0x8000, "gfm_state", "disconnected"),
    ],
)
def test_health_part_by_part(mask: int, name: str, value: str) -> None:
    """One part is set, and every other is not supported."""
    parts = dict(nvml.health(mask))
    assert parts.pop(name) == value
    assert set(parts.values()) == {"not-supported"}


def test_a_uuid_keeps_its_zero_bytes() -> None:
    assert (
        nvml.cluster_uuid("00005af353bf49b5a436b66766c41300")
        == "00005af3-53bf-49b5-a436-b66766c41300"
    )
    assert nvml.cluster_uuid("0" * 32) == "00000000-0000-0000-0000-000000000000"


@pytest.mark.parametrize(
    ("bus_id", "address"),
    [
        ("00000000:0F:00.0", "0000:0f:00.0"),
        ("00000019:01:00.0", "0019:01:00.0"),
        ("00010000:E1:1f.7", "10000:e1:1f.7"),
    ],
)
def test_pci_addresses_as_sysfs_writes_them(bus_id: str, address: str) -> None:
    """Four digits of the domain, more where it needs more, lower case."""
    assert nvml.pci_address(bus_id) == address


def test_a_lost_gpu_keeps_what_was_learned() -> None:
    """The error by name, the call and the library's text; no state."""
    found = nvml.gpu(GPU | {"uuid": None, "error": LOST})
    assert (found.pci, found.state, found.error) == ("0008:01:00.0", None, "gpu-lost")
    assert found.text == "nvmlDeviceGetUUID: GPU is lost"


@pytest.mark.parametrize("call", ["nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetGpuFabricInfo"])
@pytest.mark.parametrize("code", [3, 13])
def test_no_fabric_is_a_state(call: str, code: int) -> None:
    """For a GPU without support, and for a driver without the function."""
    assert (
        gpu(error={"call": call, "code": code, "text": "?"}, fabric=None).state == "not-supported"
    )


@pytest.mark.parametrize(
    ("call", "code"), [("nvmlDeviceGetUUID", 3), ("nvmlDeviceGetGpuFabricInfoV", 15)]
)
def test_any_other_refusal_is_no_state(call: str, code: int) -> None:
    assert gpu(error={"call": call, "code": code, "text": "?"}, fabric=None).state is None


def test_what_stopped_the_look() -> None:
    """The failed call, and the GPUs that were queried before it."""
    stopped = {"call": "nvmlInitWithFlags", "code": 18, "text": "Driver/library version mismatch"}
    refused, gpus = nvml.answer({"error": stopped, "count": 0, "gpus": []})
    assert refused == FailedCall(
        "nvmlInitWithFlags", "version-mismatch", "Driver/library version mismatch"
    )
    assert gpus == []


STRUCTURES: list[tuple[dict[str, Any], str]] = [
    (V3 | {"state": None}, "fabric state 'None' is no number"),
    (V3 | {"state": True}, "no number of 32 bits"),
    (V3 | {"state": 4}, f"^fabric state 4 is none of {', '.join(nvml.STATES)}$"),
    (V3 | {"clique_id": 1 << 32}, "clique '4294967296' is no number of 32 bits"),
    (V3 | {"clique_id": -1}, "clique '-1' is no number"),
    (V3 | {"clique_id": 1.0}, "clique '1.0' is no number"),
    (V3 | {"status": "0"}, "status '0' is no number"),
    (V3 | {"cluster_uuid": "9c6f"}, "cluster UUID '9c6f' is not 16 bytes"),
    (V3 | {"cluster_uuid": "9C6F5AF353BF49B5A436B66766C413C3"}, "is not 16 bytes"),
    (V3 | {"cluster_uuid": None}, "is not 16 bytes"),
    (V3 | {"version": 0x02000024}, "not the fields of version 0x2000024"),
    (V3 | {"version": 0x04000030}, "not the fields of version 0x4000030"),
    (V3 | {"version": 3}, "not the fields of version 0x3"),
    (V3 | {"version": "3"}, "^version '3' is no number of 32 bits$"),
    (
        V1 | {"version": 0x04000030},
        "^the fabric structure has not the fields of version 0x4000030$",
    ),
    (V1 | {"health_mask": 0}, "not the fields of version 0x1"),
    (V2 | {"version": 0x03000028}, "not the fields of version 0x3000028"),
    (V3 | {"health_mask": 1 << 32}, "health mask '4294967296' is no number"),
    (V3 | {"health_summary": None}, "health summary 'None' is no number"),
]
GPUS: list[tuple[dict[str, Any], str]] = [
    ({"pci": "8:1:0"}, "'8:1:0' is no PCI address"),
    ({"uuid": "GPU-\x1b[2J"}, "is no printable text"),
    ({"uuid": 7}, "^uuid '7' is no printable text$"),
    ({"uuid": "x" * 4097}, "is no printable text"),
    ({"index": "0"}, "index '0' is no number"),
    ({"error": "lost"}, "an error is not a JSON object"),
    ({"error": LOST | {"code": "x"}}, "^error code 'x' is no number of 32 bits$"),
    ({"error": LOST | {"text": None}}, "^error text 'None' is no printable text$"),
    ({"error": {"call": None, "code": 15, "text": ""}}, "call 'None' is no printable text"),
    ({"fabric": None}, "^a GPU has neither fabric nor error$"),
]
PLATFORMS: list[tuple[dict[str, Any], str]] = [
    ({"chassis_serial_number": None}, "chassis serial number 'None' is no printable text"),
    ({"chassis_serial_number": "a\nb"}, "chassis serial number .* is no printable text"),
    ({"chassis_serial_number": "a" * 17}, "is not 1 to 16 bytes of ASCII"),
    ({"chassis_serial_number": "東京"}, "is not 1 to 16 bytes of ASCII"),
    ({"tray_index": 256}, "tray_index 256 is no number of 8 bits"),
    ({"module_id": None}, "module_id 'None' is no number"),
]
ANSWERS: list[tuple[Any, str]] = [
    (None, "^NVML's answer is not a JSON object$"),
    ([], "not a JSON object"),
    ({}, "count 'None' is no number"),
    ({"count": 0}, "^NVML's answer has no list of GPUs$"),
    ({"count": 4294967295, "gpus": []}, "counts 4294967295 GPUs and answers for 0"),
    ({"count": 1, "gpus": []}, "counts 1 GPUs and answers for 0"),
]


@pytest.mark.parametrize(
    ("decode", "data", "complaint"),
    [
        *((gpu, structure, complaint) for structure, complaint in STRUCTURES),
        *((nvml.gpu, GPU | {"fabric": V3} | changed, complaint) for changed, complaint in GPUS),
        *((nvml.platform, PLATFORM | changed, complaint) for changed, complaint in PLATFORMS),
        *((nvml.answer, data, complaint) for data, complaint in ANSWERS),
        (nvml.gpu, [], "^a GPU is not a JSON object$"),
    ],
)
def test_nonsense_is_named(decode: Callable[[Any], object], data: Any, complaint: str) -> None:
    """The GPU is dropped as a whole; texts reach terminals."""
    with pytest.raises(Malformed, match=complaint):
        decode(data)


def test_the_platform_position() -> None:
    """Without a chassis there is none: a machine that is in no chassis has zeros."""
    position = PlatformPosition("1823825185529", slot=5, tray=4, host=1)
    assert nvml.platform(PLATFORM) == {"position": position, "module_id": 2}
    assert nvml.platform(PLATFORM | {"chassis_serial_number": " "}) == {}
    assert nvml.platform(None) == {}


def test_a_clique_of_all_ones_is_a_clique() -> None:
    """Documented by nobody as unset; before the registration it means nothing, like any other."""
    assert gpu(V3 | {"clique_id": 0xFFFFFFFF}).clique_id == 0xFFFFFFFF
    assert gpu(V3 | {"clique_id": 0xFFFFFFFF, "status": 23}).status == "insufficient-resources"
    assert gpu(V3 | {"clique_id": 0xFFFFFFFF, "state": 2}).state == "in-progress"


@pytest.mark.parametrize(
    ("changed", "subject"),
    [
        ({"uuid": "\n" * 5000}, "uuid {} is no printable text"),
        ({"pci": "\n" * 5000}, "{} is no PCI address"),
        ({"index": "\n" * 5000}, "index {} is no number of 32 bits"),
        ({"fabric": V3 | {"cluster_uuid": "\n" * 5000}}, "cluster UUID {} is not 16 bytes"),
    ],
)
def test_a_message_quotes_only_the_beginning(changed: dict[str, Any], subject: str) -> None:
    with pytest.raises(Malformed) as caught:
        nvml.gpu(GPU | {"fabric": V3} | changed)
    assert str(caught.value) == subject.format(repr("\n" * 64))


def test_what_names_a_gpu_may_be_unknown() -> None:
    """Its PCI address and its UUID; both may be long."""
    found = gpu(pci=None, uuid="x" * 4096)
    assert (found.pci, found.uuid) == (None, "x" * 4096)
    assert gpu(uuid=None).uuid is None


@pytest.mark.slow
@given(JSON, st.sampled_from([*GPU, "fabric"]), st.sampled_from(list(V3)))
@example(0, "fabric", "version")
def test_anything_else_is_malformed(junk: Any, outer: str, inner: str) -> None:
    """Any content of a foreign snapshot raises Malformed and nothing else."""
    for decode, data in (
        (nvml.answer, junk),
        (nvml.gpu, junk),
        (nvml.gpu, GPU | {"fabric": V3} | {outer: junk}),
        (nvml.gpu, GPU | {"fabric": V3 | {inner: junk}}),
    ):
        with suppress(Malformed):
            decode(data)
