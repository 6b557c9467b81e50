"""Commands over a server whose answers are about another object than the one that was asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.kernel_tree import NET, Entries, hca
from tests.support.kube.command import bwagent
from tests.support.kubeconfigs import kubeconfig
from tests.support.nodes import FLAVOR, node
from tests.support.odd_server import reply, says, serving
from tests.support.sysfs_on_disk import lay

TREE: Entries = {**hca("mlx5_0", "0000:18:00.0", "InfiniBand"), f"{NET}/lo": None}
OTHER = reply(200, json.dumps(node({FLAVOR: "roce"}, name="n2")).encode())
COMMANDS: dict[str, Callable[[str], tuple[str, ...]]] = {
    "probe": lambda root: ("probe", "--node-name", "n1", "--sysfs-root", root),
    "explain": lambda root: ("explain", "flavor", "--node-name", "n1", "--sysfs-root", root),
    "cleanup": lambda _root: ("cleanup", "--node-name", "n1", "--yes"),
    "cleanup --lost": lambda _root: ("cleanup", "--lost", "--node-name", "n1", "--yes"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_first_get(command: str, tmp_path: Path) -> None:
    """One line that names the Node, and nothing is written; `explain` tells what it can."""
    root = str(lay(TREE, tmp_path / "node"))
    with serving(says(OTHER)) as server:
        path = kubeconfig(tmp_path / "config", f"http://127.0.0.1:{server.port}")
        done = bwagent(*COMMANDS[command](root), kubeconfig=path)
    code = 0 if command == "explain" else 1
    assert (done.returncode, {one[:4] for one in server.requests}) == (code, {b"GET "})
    told = (done.stdout + done.stderr).splitlines()
    [line] = [line for line in told if "like an API server" in line]
    assert "Node n1: " in line
    assert "Traceback" not in done.stderr
