"""Commands over a server whose answers are about another object than the one that was asked for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.kernel_tree import NET, Entries, hca
from tests.support.kube.command import bwagent
from tests.support.kubeconfigs import kubeconfig
from tests.support.nodes import FLAVOR, node
from tests.support.odd_server import OddServer, reply, says, serving
from tests.support.snapshots import REPOSITORY
from tests.support.switch import PATIENCE, wait_for
from tests.support.sysfs_on_disk import lay

TREE: Entries = {**hca("mlx5_0", "0000:18:00.0", "InfiniBand"), f"{NET}/lo": None}
NODE = node({FLAVOR: "roce"})
OTHERS = {
    "no name and uid": {"name": "", "uid": ""},
    "no uid": {"uid": ""},
    "another Node": {"name": "n2", "uid": "another"},
}
COMMANDS: dict[str, Callable[[str], tuple[str, ...]]] = {
    "probe": lambda root: ("probe", "--node-name", "n1", "--sysfs-root", root),
    "explain": lambda root: ("explain", "flavor", "--node-name", "n1", "--sysfs-root", root),
    "cleanup": lambda _root: ("cleanup", "--node-name", "n1", "--yes"),
    "cleanup --lost": lambda _root: ("cleanup", "--lost", "--node-name", "n1", "--yes"),
}


def said(**changed: Any) -> bytes:
    """Return a reply with the Node, `changed`."""
    return reply(200, json.dumps(NODE | {"metadata": NODE["metadata"] | changed}).encode())


def methods(server: OddServer) -> list[str]:
    return [request.split(b" ")[0].decode() for request in server.requests]


@pytest.fixture
def root(tmp_path: Path) -> str:
    """Lay out a node with an InfiniBand port; the Node says that it is of RoCE."""
    return str(lay(TREE, tmp_path / "node"))


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("command", COMMANDS)
def test_the_first_get(command: str, name: str, root: str, tmp_path: Path) -> None:
    """One line that names the Node, and nothing is written; `explain` tells what it can."""
    with serving(says(said(**OTHERS[name]))) as server:
        path = kubeconfig(tmp_path / "config", f"http://127.0.0.1:{server.port}")
        done = bwagent(*COMMANDS[command](root), kubeconfig=path)
    code = 0 if command == "explain" else 1
    assert (done.returncode, set(methods(server))) == (code, {"GET"})
    told = (done.stdout + done.stderr).splitlines()
    [line] = [line for line in told if "like an API server" in line]
    assert "Node n1: " in line
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["probe", "cleanup"])
def test_the_answer_to_a_write(command: str, root: str, tmp_path: Path) -> None:
    """It is not taken for this Node: the outcome is unknown, exit code 1."""
    answers = says(said(), said(name="n2", uid="another"))
    with serving(answers) as server:
        path = kubeconfig(tmp_path / "config", f"http://127.0.0.1:{server.port}")
        done = bwagent(*COMMANDS[command](root), kubeconfig=path)
    assert "PATCH" in methods(server)
    assert done.returncode == 1
    assert "outcome unknown" in done.stderr
    assert "is Node n2 in place of n1" in done.stderr


def test_run_asks_again(root: str, tmp_path: Path) -> None:
    """The agent lives, waits longer each time, and writes only after an answer about its Node; an
    answer to a PATCH about another one is a failure, after which the Node is read again.
    """
    odd = [said(**changed) for changed in OTHERS.values()]
    # GETs, then a PATCH
    with serving(says(*odd, said(), said(name="n2"), said())) as server:
        path = kubeconfig(tmp_path / "config", f"http://127.0.0.1:{server.port}")
        command = [sys.executable, "-m", "agent.cli", "run", "--node-name", "n1"]
        command += ["--sysfs-root", root, "--kubeconfig", str(path), "--source", "rdma"]
        command += ["--min-interval", "1s"]
        with subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True) as agent:
            wait_for(lambda: len(server.requests) > len(OTHERS) + 3)
            assert agent.poll() is None
            os.kill(agent.pid, signal.SIGTERM)
            _, log = agent.communicate(timeout=PATIENCE)
    assert agent.returncode == 0
    assert "Traceback" not in log
    assert methods(server)[: len(OTHERS) + 1] == ["GET"] * (len(OTHERS) + 1)
    first = methods(server).index("PATCH")
    assert "GET" in methods(server)[first:]
    assert "is Node n2 in place of n1" in log
