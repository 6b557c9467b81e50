"""The front end of a node whose netdevs, routes and links are a real kernel's, in a network
namespace; the RDMA devices in front of the netdevs are laid out as files.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.kernel_tree import HOME, NET, Entries, hca
from tests.support.real_parts import require
from tests.support.snapshots import REPOSITORY
from tests.support.switch import Namespace, cable, missing
from tests.support.sysfs_on_disk import lay

RAILS = range(3)


class Node(Namespace):
    """A namespace with a NIC eth0, and two rails eth1 and eth2; mlx5_N is the device of ethN."""

    sys: Path

    def routes(self, *routes: str) -> None:
        """Have these default routes and no others; the family comes first: `-4 dev eth0`."""
        for family in ("-4", "-6"):
            self.ip(family, "route", "flush", "default")
        for route in routes:
            family, *words = route.split()
            self.ip(family, "route", "append", "default", *words)

    def probe(self, *flags: str) -> dict[str, Any]:
        """Return the document of `bwagent probe` in the namespace."""
        return probe(*self.command(), *bwagent(self.sys, *flags))

    def front(self) -> list[str]:
        """Return the devices that carry the default route."""
        ports = self.probe()["ports"]
        return [port["device"] for port in ports if port["reason"].startswith("front end")]


def bwagent(sys_root: Path, *flags: str) -> list[str]:
    command = [sys.executable, "-m", "agent.cli", "probe", "--dry-run", "--no-wait", "-o", "json"]
    return [*command, "--source", "rdma", "--sysfs-root", str(sys_root), *flags]


def probe(*command: str) -> dict[str, Any]:
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert "Traceback" not in done.stderr
    return dict(json.loads(done.stdout))


def tree() -> Entries:
    """The devices; their netdevs are those of the namespace that looks."""
    entries: Entries = {NET: f"/{NET}"}
    for number in RAILS:
        function = f"0000:{number + 0x18:02x}:00.0"
        entries |= hca(f"mlx5_{number}", function, "Ethernet", {1: f"eth{number}"})
        entries |= {f"{HOME}/{function}/net/eth{number}": f"/{NET}/eth{number}"}
    return entries


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    require(missing())
    with Namespace() as far, Node() as near:
        near.sys = lay(tree(), tmp_path)
        for number in RAILS:
            cable(far, f"wire{number}", near, f"eth{number}")
        yield near


def test_the_lowest_metric_is_the_front_end(node: Node) -> None:
    """All routes of it; IPv6 counts only while there is no IPv4 default route."""
    cases: dict[tuple[str, ...], list[str]] = {
        (): [],
        ("-4 dev eth0 metric 100", "-4 dev eth1 metric 200"): ["mlx5_0"],
        ("-4 dev eth0 metric 4278198271", "-4 dev eth1 metric 4278198272"): ["mlx5_0"],
        ("-4 dev eth2",): ["mlx5_2"],
        ("-4 dev eth0 metric 100", "-6 dev eth1", "-6 dev eth2"): ["mlx5_0"],
        ("-6 dev eth1 metric 512", "-6 dev eth2"): ["mlx5_1"],
        # /proc/net/route has the first next hop only
        ("-4 nexthop dev eth0 nexthop dev eth1", "-4 dev eth2 metric 9"): ["mlx5_0", "mlx5_1"],
        ("-6 nexthop via fe80::1 dev eth0 nexthop via fe80::2 dev eth1",): ["mlx5_0", "mlx5_1"],
    }
    for routes, devices in cases.items():
        node.routes(*routes)
        assert (routes, node.front()) == (routes, devices)


def test_default_routes_come_before_thousands_of_others(node: Node, tmp_path: Path) -> None:
    """The kernel lists them first, so what is cut off a long table is no default route."""
    node.routes("-4 dev eth0 metric 100")
    batch = tmp_path / "batch"
    lines = (f"route add 10.{n >> 8}.{n & 255}.0/24 dev eth1\n" for n in range(10_000))
    batch.write_text("".join(lines))
    node.ip("-batch", str(batch))
    assert node.front() == ["mlx5_0"]


def test_another_namespace_has_no_say(node: Node) -> None:
    """The files of the node, read from a namespace with a default route of its own: no label, but
    with the backend named on the command line.
    """
    node.routes("-4 dev eth0")
    fixed = node.sys.parent / "fixed"
    entries = tree() | {NET: None}
    entries |= {f"{NET}/eth{number}/operstate": b"up\n" for number in RAILS}
    for number in RAILS:
        place = f"{HOME}/0000:{number + 0x18:02x}:00.0/net/eth{number}"
        entries[place] = f"{fixed}/{NET}/eth{number}"
    sys_root = lay(entries, fixed)
    with Namespace() as pod, Namespace() as far:
        cable(far, "wire", pod, "eth0")
        pod.ip("route", "add", "default", "dev", "eth0")
        done = subprocess.run(
            [*pod.command(), *bwagent(sys_root)],
            env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert "front-end-unknown" in done.stderr
        named = probe(*pod.command(), *bwagent(sys_root, "--backend-device", "mlx5_1"))
        assert [port["role"] for port in named["ports"]].count("backend") == 1
    assert probe(*node.command(), *bwagent(sys_root))["labels"]
