"""What `doctor` says of the RDMA devices."""

from __future__ import annotations

import pytest

from agent.check import Step
from agent.model import Absent, Failed, Problem, RdmaDevice, Seen
from agent.reasons import HoldReason
from agent.sources.rdma_checks import checks
from tests.support.observations import observation
from tests.support.surroundings import around

CLASS, NET = "sys/class/infiniband", "sys/class/net"
NONE = "no RDMA device: /sys/class/infiniband is not there"
FUNCTIONS = ["0000:18:00.0", "bind", "module"]


def test_devices_are_counted() -> None:
    """All of them, and the backend ports."""
    seen = observation(("ibp0", None), rdma=Seen((RdmaDevice("ibp0"), RdmaDevice("mlx5_bond_0"))))
    assert [check.text for check in checks(around(seen))] == ["RDMA devices: 2, backend ports: 1"]


def test_a_node_without_devices_lacks_nothing() -> None:
    """Other NICs make no RDMA devices; a driver without a function has none to make."""
    folders = {
        NET: ["lo"],
        "sys/bus/pci/drivers/ice": FUNCTIONS,
        "sys/bus/pci/drivers/mlx5_core": ["bind", "module"],
    }
    (check,) = checks(around(observation(rdma=Absent(NONE)), folders))
    assert (check.missing, check.is_there, check.text) == (None, False, NONE)


def test_a_driver_without_its_rdma_module() -> None:
    folders = {NET: ["lo"], "sys/bus/pci/drivers/mlx5_core": FUNCTIONS}
    (check,) = checks(around(observation(rdma=Absent(NONE)), folders))
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
    (check,) = checks(around(observation(rdma=Failed("why")), folders))
    assert (check.missing, check.text) == (Step.DRIVER, "why")
    assert check.command.startswith(command)


def test_a_backend_that_is_not_known() -> None:
    """The devices can be read then, and an operator can name the backend."""
    failed = Failed("why", hold=HoldReason.FRONT_END_UNKNOWN)
    folders = {NET: ["lo"], CLASS: ["mlx5_0"]}
    (check,) = checks(around(observation(rdma=failed), folders))
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
    _, check = checks(around(observation(problems=problems)))
    assert check.missing is Step.PRIVILEGE
    assert check.text == f"files that root may read: 2, first {vpd.format(0)}"
