"""`verify` on a RoCE node with real cables: two change places, one is pulled, one moved.

Leaves are network namespaces with lldpd, cables are veth pairs. The RDMA devices of the node are
laid out as files on top of its real netdevs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.kube.rack import BACKEND, tree
from tests.support.real_parts import require
from tests.support.switch import Leaf, Namespace, cable, missing
from tests.support.sysfs_on_disk import lay

REPO = Path(__file__).parents[3]
PORTS = range(6)
TIMEOUT = 60.0  # seconds for one run


@dataclass(frozen=True, slots=True)
class Rack:
    """A node and two leaves, and the plan of their cables."""

    node: Namespace
    leaves: tuple[Leaf, Leaf]
    folder: Path

    def plug(self, number: int, leaf: int, port: str) -> None:
        """Plug a cable of the node into a port of a leaf."""
        cable(self.leaves[leaf - 1], port, self.node, f"eth{number}")

    def unplug(self, *numbers: int) -> None:
        """Take cables away."""
        for number in numbers:
            self.node.ip("link", "delete", f"eth{number}")

    def verify(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `bwagent verify` on the node; two seconds are enough for a frame each second."""
        options = ("--sysfs-root", str(self.folder / "sys"), "--wait", "3", "--node-name", "gpu-1")
        command = [sys.executable, "-m", "agent.cli", "verify", *options, *BACKEND, *words]
        return subprocess.run(
            self.node.command("env", f"PYTHONPATH={REPO}", *command),
            check=False,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )

    def findings(self, *words: str) -> list[dict[str, Any]]:
        plan = ("--plan", str(self.folder / "plan.csv"))
        done = self.verify(*plan, "-o", "json", *words)
        assert done.returncode in {0, 1, 3}, done.stderr
        return list(json.loads(done.stdout)["findings"])


def leaf_of(number: int) -> int:
    return 1 if number < 3 else 2


def plan() -> str:
    """Return the plan: eth0 on leaf1 swp0, and so on."""
    rows = (f"gpu-1,eth{number},LEAF{leaf_of(number)},,swp{number},B3" for number in PORTS)
    return "\n".join(["node,interface,device,port-id,port-name,far-rack", *rows, ""])


@pytest.fixture
def rack(tmp_path: Path) -> Iterator[Rack]:
    """Cable the node as planned."""
    require(missing())
    lay(tree(PORTS), tmp_path)
    (tmp_path / "plan.csv").write_text(plan())
    with ExitStack() as stack:
        node = stack.enter_context(Namespace())
        leaves = Leaf("leaf1"), Leaf("leaf2")
        for leaf in leaves:
            stack.enter_context(leaf)
        found = Rack(node, leaves, tmp_path)
        for number in PORTS:
            found.plug(number, leaf_of(number), f"swp{number}")
        yield found


@pytest.mark.slow
def test_cables_that_change_places(rack: Rack) -> None:
    """Nothing is found, then a swap, a pulled cable and a moved one; their IDs stay."""
    before = rack.verify("--plan", str(rack.folder / "plan.csv"))
    assert before.stdout.startswith("gpu-1: no findings; 6 of 6 cables as planned\n"), before.stderr
    assert before.returncode == 0
    golden = rack.verify("--write-plan", "labels")
    rack.unplug(0, 1, 3)
    rack.plug(0, 1, "swp1")
    rack.plug(1, 1, "swp0")
    rack.plug(3, 1, "swp9")
    rack.leaves[1].ip("link", "set", "swp4", "down")
    found = [one for one in rack.findings() if one["severity"] == "error"]
    assert [(one["code"], one["interfaces"]) for one in found] == [
        ("swapped", ["mlx5_0", "mlx5_1"]),
        ("miscabled", ["mlx5_3"]),
        ("missing", ["mlx5_4"]),
    ]
    texts = {one["code"]: one["text"] for one in found}
    assert texts["miscabled"] == (
        "Move the far end of mlx5_3 (eth3) from leaf1 port swp9 (rack B3) to LEAF2 port swp3 "
        "(rack B3)."
    )
    assert texts["swapped"].startswith(
        "Exchange the far ends of mlx5_0 (eth0) and mlx5_1 (eth1) of this node: mlx5_0 (eth0) "
        "belongs to LEAF1 port swp0 (rack B3)"
    )
    assert texts["missing"] == (
        "Check the cable of mlx5_4 (eth4) to LEAF2 port swp4 (rack B3), and that eth4 is up here: "
        "no link."
    )
    ids = {one["id"] for one in found}
    assert {one["id"] for one in rack.findings() if one["severity"] == "error"} == ids
    labels = rack.folder / "golden.yaml"
    labels.write_text(golden.stdout)
    by_labels = rack.verify("--plan", str(labels), "-o", "json")
    codes = {one["code"] for one in json.loads(by_labels.stdout)["findings"]}
    assert codes >= {"miscabled", "swapped", "missing"}, by_labels.stdout
