"""The emulated machine, tested with as few boots as possible: each takes about four seconds."""

from __future__ import annotations

import json
import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.qemu.machine import (
    USER_NETWORK,
    Machine,
    MachineError,
    Result,
    missing,
    with_dependencies,
)
from tests.support.real_parts import require

TOUR = """
set -eu
states() { grep -H . /sys/class/infiniband/*/ports/1/state; }

ip link add v0 type veth peer name v1
ip link set v0 up
ip link set v1 up
rdma link add rxe0 type rxe netdev v0
rdma link add rxe1 type rxe netdev v1
states >up.states
rdma -j link show >up.json

ip link set v0 down
states >down.states
rdma -j link show >down.json

modprobe -r rdma_rxe
ls /sys/class/infiniband >removed.txt
modprobe rdma_rxe
rdma link add rxe2 type rxe netdev v1
ls /sys/class/infiniband >reloaded.txt
modprobe ib_umad
ls /sys/class/infiniband_mad >umad.txt

ip link add bond7 type bond
ip link add link bond7 name bond7.5 type vlan id 5
ip link add dummy7 type dummy
ls /sys/class/net >netdevs.txt

modprobe virtio_net
ip addr add 10.0.2.15/24 dev eth0
ip link set eth0 up
"$PYTHON" -c '
import click, os, socket, sys
print(sys.prefix, sorted(os.environ), file=open("python.txt", "w"))
socket.create_connection(("10.0.2.2", int(os.environ["PORT"])), timeout=20).sendall(b"from inside")
'
echo written >"$ELSEWHERE"
cat "$ELSEWHERE"
echo and to standard error >&2
exit 7
"""


@dataclass(frozen=True, slots=True)
class Tour:
    """The results of one boot."""

    result: Result
    work_dir: Path
    elsewhere: Path
    received: bytes

    def read(self, name: str) -> str:
        return (self.work_dir / name).read_text()

    def states(self, name: str) -> dict[str, str]:
        """Return the device's name and its port's state, from the output of grep -H."""
        lines = (line.split(":", 1) for line in self.read(name).splitlines())
        return {Path(file).parts[4]: state for file, state in lines}

    def links(self, name: str) -> dict[str, dict[str, Any]]:
        return {link["ifname"]: link for link in json.loads(self.read(name))}


@pytest.fixture(scope="module")
def parts() -> None:
    """Skip tests that boot a machine where none can boot."""
    require(missing())


@pytest.fixture(scope="module")
def tour(parts: None, tmp_path_factory: pytest.TempPathFactory) -> Tour:  # noqa: ARG001
    """Boot once and run all steps that need no boot of their own."""
    work_dir, elsewhere = (
        tmp_path_factory.mktemp("tour"),
        tmp_path_factory.mktemp("elsewhere") / "file",
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)  # the connection waits in the backlog already
        env = {
            "PYTHON": sys.executable,
            "ELSEWHERE": str(elsewhere),
            "PORT": str(server.getsockname()[1]),
        }
        result = Machine(work_dir, devices=USER_NETWORK).run(TOUR, env=env)
        assert result.rc == 7, result.output
        with server.accept()[0] as connection:
            received = connection.recv(100)
    return Tour(result, work_dir, elsewhere, received)


def test_soft_roce_devices_on_a_veth_pair_are_active(tour: Tour) -> None:
    """Two rxe devices are in sysfs, ACTIVE, and rdma reports the same for the same netdevs."""
    assert tour.states("up.states") == {"rxe0": "4: ACTIVE", "rxe1": "4: ACTIVE"}
    links = tour.links("up.json")
    assert {name: (link["state"], link["netdev"]) for name, link in links.items()} == {
        "rxe0": ("ACTIVE", "v0"),
        "rxe1": ("ACTIVE", "v1"),
    }


def test_link_down_is_a_port_down(tour: Tour) -> None:
    """Taking the netdev down changes the port's state for real."""
    assert tour.states("down.states")["rxe0"] == "1: DOWN"
    assert tour.links("down.json")["rxe0"]["state"] == "DOWN"


def test_driver_can_be_removed_and_loaded_again(tour: Tour) -> None:
    """The devices are removed with their module, as in a driver upgrade, and come back with it."""
    assert tour.read("removed.txt") == ""
    assert tour.read("reloaded.txt") == "rxe2\n"
    assert "umad0\n" in tour.read("umad.txt")


def test_link_types_load_themselves(tour: Tour) -> None:
    """Bond, VLAN and dummy need no modprobe."""
    assert {"bond7", "bond7.5", "dummy7"} <= set(tour.read("netdevs.txt").split())


def test_python_of_the_virtualenv_runs_inside(tour: Tour) -> None:
    """The interpreter and its packages are at the same paths as outside; the environment is only
    what was passed.
    """
    prefix, environment = tour.read("python.txt").split(" ", 1)
    assert prefix == sys.prefix
    assert "PORT" in environment
    assert "PYTEST_CURRENT_TEST" not in environment


def test_host_loopback_is_within_reach(tour: Tour) -> None:
    """With USER_NETWORK a script can connect to a server that the test runs."""
    assert tour.received == b"from inside"


def test_host_is_not_written_outside_the_work_dir(tour: Tour) -> None:
    """The script can write and read back, and nothing of it is on the host."""
    assert tour.result.output == "written\nand to standard error\n"
    assert not tour.elsewhere.exists()


@pytest.mark.usefixtures("parts")
def test_script_that_outlasts_its_limit(tmp_path: Path) -> None:
    """The error has the script's last output, and the machine is gone."""
    said = ""
    for limit in (3, 100):  # on a busy host the shell starts late
        with pytest.raises(MachineError, match=rf"outlasted its {limit} s") as caught:
            Machine(tmp_path).run("echo so far so good; sleep 1000", timeout=limit)
        assert not _processes_in(tmp_path)
        if (said := str(caught.value)).count("so far so good"):
            break
    assert "so far so good" in said


@pytest.mark.usefixtures("parts")
def test_kernel_panic(tmp_path: Path) -> None:
    """A machine that crashes under its script raises an error with the kernel's message."""
    with pytest.raises(
        MachineError, match=r"(?s)went down under its script.*Kernel panic - not syncing: sysrq"
    ):
        Machine(tmp_path).run("echo c >/proc/sysrq-trigger; sleep 60")
    assert not _processes_in(tmp_path)


@pytest.mark.usefixtures("parts")
def test_boot_that_hangs(tmp_path: Path) -> None:
    """A machine that does not start its script in time has another error than a script that takes
    too long.
    """
    with pytest.raises(MachineError, match=r"did not boot within 0\.1 s"):
        Machine(tmp_path, boot_limit=0.1).run("true")
    assert not _processes_in(tmp_path)


@pytest.mark.usefixtures("parts")
def test_machine_that_qemu_refuses(tmp_path: Path) -> None:
    """The error has QEMU's message about its arguments."""
    with pytest.raises(MachineError, match=r"(?s)went down as it booted.*no-such-device"):
        Machine(tmp_path, devices=("-device", "no-such-device")).run("true")


def test_dependencies_are_found_under_either_spelling() -> None:
    """modules.dep names files, which may have a hyphen where the module has an underscore."""
    text = (
        "kernel/a/virtio-pci.ko: kernel/b/virtio.ko kernel/c/ring.ko\n"
        "kernel/b/virtio.ko:\nkernel/d/veth.ko:\n"
    )
    expected = {"kernel/a/virtio-pci.ko", "kernel/b/virtio.ko", "kernel/c/ring.ko"}
    assert with_dependencies(["virtio_pci"], text) == expected


@pytest.mark.usefixtures("parts")
def test_missing_kernel_is_said_in_words(tmp_path: Path) -> None:
    """The reason to skip names the command that installs the kernel."""
    assert "fetch_kernel.sh" in (missing(cache=tmp_path) or "")


def _processes_in(folder: Path) -> list[str]:
    """Return the processes whose current folder this is: QEMU runs in the machine's."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.path.realpath(process / "cwd") == str(folder.resolve()):
                found.append(process.name)
        except OSError:
            continue
    return found
