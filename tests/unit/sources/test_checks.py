"""What `doctor` says of the RDMA devices and the GPUs."""

from __future__ import annotations

import pytest

from agent.check import Step
from agent.model import Absent, Failed, Gpu, Problem, RdmaDevice, Seen
from agent.nvml.decode import RETURNS
from agent.reasons import HoldReason
from agent.sources.checks import NO_LIBRARY, of_gpus, of_rdma
from tests.support.observations import around, observation

CLASS, NET = "sys/class/infiniband", "sys/class/net"
NONE = "no RDMA device: /sys/class/infiniband is not there"
FUNCTIONS = ["0000:18:00.0", "bind", "module"]
BUS = {"sys/bus/pci/devices": ["0000:19:00.0"]}
LOADED = BUS | {"sys/module/nvidia": ["version"]}
VERSION = {"sys/module/nvidia/version": "580.65.06"}
LIBRARY = f"{NO_LIBRARY}: dlopen: libnvidia-ml.so.1: not found"


def test_devices_are_counted() -> None:
    """All of them, and the backend ports."""
    seen = observation(("ibp0", None), rdma=Seen((RdmaDevice("ibp0"), RdmaDevice("mlx5_bond_0"))))
    assert [check.text for check in of_rdma(around(seen))] == ["RDMA devices: 2, backend ports: 1"]


def test_a_node_without_devices_lacks_nothing() -> None:
    """Other NICs make no RDMA devices; a driver without a function has none to make."""
    folders = {
        NET: ["lo"],
        "sys/bus/pci/drivers/ice": FUNCTIONS,
        "sys/bus/pci/drivers/mlx5_core": ["bind", "module"],
    }
    (check,) = of_rdma(around(observation(rdma=Absent(NONE)), folders))
    assert (check.missing, check.is_there, check.text) == (None, False, NONE)


def test_a_driver_without_its_rdma_module() -> None:
    folders = {NET: ["lo"], "sys/bus/pci/drivers/mlx5_core": FUNCTIONS}
    (check,) = of_rdma(around(observation(rdma=Absent(NONE)), folders))
    command = "modprobe mlx5_ib (Ubuntu: apt-get install linux-modules-extra-$(uname -r))"
    assert (check.missing, check.command) == (Step.DRIVER, command)


@pytest.mark.parametrize(
    ("folders", "command"),
    [
        ({}, "mount -t sysfs"),
        ({NET: ["lo"]}, "modprobe mlx5_ib"),
        ({NET: ["lo"], CLASS: ["mlx5_0"]}, "bwagent probe"),
        (
            {NET: ["lo"], CLASS: ["mlx5_0"], "sys/bus/pci/drivers/mlx5_core": FUNCTIONS},
            "bwagent probe",
        ),
    ],
)
def test_devices_that_cannot_be_read(folders: dict[str, list[str]], command: str) -> None:
    """No sysfs, no driver, or devices whose files fail."""
    (check,) = of_rdma(around(observation(rdma=Failed("why")), folders))
    assert (check.missing, check.text) == (Step.DRIVER, "why")
    assert check.command.startswith(command)


def test_a_backend_that_is_not_known() -> None:
    """The devices can be read then, and an operator can name the backend."""
    failed = Failed("why", hold=HoldReason.FRONT_END_UNKNOWN)
    folders = {NET: ["lo"], CLASS: ["mlx5_0"]}
    (check,) = of_rdma(around(observation(rdma=failed), folders))
    assert "BWAGENT_BACKEND_DEVICE=" in check.command


def test_files_of_root() -> None:
    """They are counted; other failed reads, and those of other sources, are not."""
    vpd = "/sys/class/infiniband/ibp{}/device/vpd"
    problems = (
        Problem("rdma", vpd.format(0), "EACCES", "Permission denied"),
        Problem("rdma", vpd.format(1), "EPERM", "Operation not permitted"),
        Problem("rdma", vpd.format(2), "EIO", "Input/output error"),
        Problem("host", "/proc/x", "EACCES", "Permission denied"),
    )
    _, check = of_rdma(around(observation(problems=problems)))
    assert check.missing is Step.PRIVILEGE
    assert check.text == f"files that root may read: 2, first {vpd.format(0)}"


def test_gpus_are_counted() -> None:
    """However they are."""
    (check,) = of_gpus(around(observation(nvml=Seen((Gpu(0), Gpu(1, error="gpu-lost"))))))
    assert (check.is_there, check.text) == (True, "GPUs that NVML reports: 2")


def test_a_node_without_gpus_needs_nothing() -> None:
    """No library and no driver."""
    (check,) = of_gpus(around(observation(nvml=Absent("no GPU"))))
    assert (check.is_there, check.missing) == (False, None)


def test_a_bus_that_cannot_be_read() -> None:
    """Nothing is known of a GPU then, so no driver of one is missing."""
    (check,) = of_gpus(around(observation(nvml=Failed("/sys/bus/pci/devices could not be listed"))))
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
    found = list(of_gpus(around(seen, LOADED, VERSION, device_fault=lambda _path: fault)))
    assert [check.missing for check in found] == expected


def test_without_the_kernel_module_nothing_else_is_asked() -> None:
    """Its loading makes the device file."""
    (check,) = of_gpus(around(observation(nvml=Failed(LIBRARY)), BUS))
    assert (check.missing, check.command) == (Step.DRIVER, "modprobe nvidia")


@pytest.mark.parametrize(
    ("files", "package"), [(VERSION, "libnvidia-compute-580 "), ({}, "libnvidia-compute-BRANCH ")]
)
def test_the_library_is_of_the_modules_version(files: dict[str, str], package: str) -> None:
    """NVML refuses a driver of another version."""
    (check,) = of_gpus(around(observation(nvml=Failed(LIBRARY)), LOADED, files))
    assert package in check.command


def test_the_word_is_that_of_the_decoder() -> None:
    """NVML_ERROR_LIBRARY_NOT_FOUND."""
    assert RETURNS[12] == NO_LIBRARY
