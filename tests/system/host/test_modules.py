"""Modules by the kernel's ethtool netlink: of network devices that have none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.helper import process as child
from agent.transceiver.modules import AS_NOBODY

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a veth, and CAP_NET_ADMIN")


def test_a_device_without_a_module_is_one_line() -> None:
    """The kernel's own words, and those for a name that is no device."""
    subprocess.run(["ip", "link", "add", "bwmod0", "type", "veth", "peer", "bwmod1"], check=True)
    try:
        answer = child.call("modules", {"netdevs": ["bwmod0", "bwmod-none"]}, 30)
    finally:
        subprocess.run(["ip", "link", "delete", "bwmod0"], check=True)
    assert [(module["netdev"], module["pages"]) for module in answer["modules"]] == [
        ("bwmod0", {}),
        ("bwmod-none", {}),
    ]
    assert [module["error"] for module in answer["modules"]] == [
        "Operation not supported",
        "No such device",
    ]


def test_without_the_capability_there_is_one_line(repository: Path) -> None:
    """The kernel refuses root, too, whose bounding set lacks it: an agent's Pod."""
    words = "doctor --no-cluster --modules --source rdma --sysfs-root sysfs_fixtures/h200-roce/sys"
    command = (
        "ip link add enp26s0np0 type veth peer bwmod1 && exec setpriv --bounding-set=-net_admin "
        f"--inh-caps=-net_admin {sys.executable} -m agent.cli {words}"
    )
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", command],
        cwd=repository,
        check=False,
        capture_output=True,
        text=True,
    )
    lines = [line for line in done.stdout.splitlines() if line.split()[1] == "modules"]
    assert lines == [f"missing  modules     {AS_NOBODY}; run: sudo bwagent doctor --modules"]
    assert (done.returncode, done.stderr) == (1, "")
