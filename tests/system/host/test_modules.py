"""Modules by the kernel's ethtool netlink: of network devices that have none."""

from __future__ import annotations

import os
import subprocess

import pytest

from agent.helper import process as child

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
