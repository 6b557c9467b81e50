"""What `doctor` says of the GPUs."""

from __future__ import annotations

import pytest

from agent.check import Step
from agent.model import Absent, Failed, Gpu, Seen
from agent.nvml.checks import NO_LIBRARY, checks
from agent.nvml.decode import RETURNS
from tests.support.observations import observation
from tests.support.surroundings import around

BUS = {"sys/bus/pci/devices": ["0000:19:00.0"]}
LOADED = BUS | {"sys/module/nvidia": ["version"]}
VERSION = {"sys/module/nvidia/version": "580.65.06"}
LIBRARY = f"{NO_LIBRARY}: dlopen: libnvidia-ml.so.1: not found"


def test_gpus_are_counted() -> None:
    """However they are."""
    (check,) = checks(around(observation(nvml=Seen((Gpu(0), Gpu(1, error="gpu-lost"))))))
    assert (check.is_there, check.text) == (True, "GPUs that NVML reports: 2")


def test_a_node_without_gpus_needs_nothing() -> None:
    """No library and no driver."""
    (check,) = checks(around(observation(nvml=Absent("no GPU"))))
    assert (check.is_there, check.missing) == (False, None)


def test_a_bus_that_cannot_be_read() -> None:
    """Nothing is known of a GPU then, so no driver of one is missing."""
    (check,) = checks(around(observation(nvml=Failed("/sys/bus/pci/devices could not be listed"))))
    assert check.command.startswith("mount -t sysfs")


@pytest.mark.parametrize(
    ("fault", "reason", "expected"),
    [
        ("ENOENT", "driver-not-loaded: nvmlInitWithFlags: x", [Step.DEVICE_FILE]),
        ("EACCES", "not-permitted: nvmlInitWithFlags: x", [Step.PRIVILEGE]),
        ("ENOENT", LIBRARY, [Step.DEVICE_FILE, Step.LIBRARY]),
        (None, LIBRARY, [Step.LIBRARY]),
        (None, "nvml helper: late", [Step.DRIVER]),
    ],
)
def test_a_query_that_fails(fault: str | None, reason: str, expected: list[Step]) -> None:
    seen = observation(nvml=Failed(reason))
    found = list(checks(around(seen, LOADED, VERSION, device_fault=lambda _path: fault)))
    assert [check.missing for check in found] == expected


def test_without_the_kernel_module_nothing_else_is_asked() -> None:
    """Its loading makes the device file."""
    (check,) = checks(around(observation(nvml=Failed(LIBRARY)), BUS))
    assert (check.missing, check.command) == (Step.DRIVER, "modprobe nvidia")


@pytest.mark.parametrize(
    ("files", "package"), [(VERSION, "libnvidia-compute-580 "), ({}, "libnvidia-compute-BRANCH ")]
)
def test_the_library_is_of_the_modules_version(files: dict[str, str], package: str) -> None:
    """NVML refuses a driver of another version."""
    (check,) = checks(around(observation(nvml=Failed(LIBRARY)), LOADED, files))
    assert package in check.command


def test_the_word_is_that_of_the_decoder() -> None:
    """NVML_ERROR_LIBRARY_NOT_FOUND."""
    assert RETURNS[12] == NO_LIBRARY
