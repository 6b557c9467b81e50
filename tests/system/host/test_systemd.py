"""manifests/systemd: what systemd says of the units, and the service's command with the privileges
that the unit leaves it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kube.rack import BACKEND, tree
from tests.support.real_parts import lacks, require
from tests.support.switch import Leaf, Namespace, cable
from tests.support.switch import missing as no_switch
from tests.support.sysfs_on_disk import lay

REPO = Path(__file__).parents[3]
UNITS = REPO / "manifests/systemd"
SERVICE = UNITS / "bwagent-verify.service"
PROGRAM = "/opt/bwagent/bin/bwagent"
MAX_EXPOSURE = 23  # tenths of systemd's scale from 0 to 10; a service of root without settings: 96


def setting(name: str) -> str:
    """Return the value of the only line of the service with this name."""
    (found,) = (
        line.removeprefix(f"{name}=")
        for line in SERVICE.read_text().splitlines()
        if line.startswith(f"{name}=")
    )
    return found


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    require(lacks("systemd-analyze"))
    return subprocess.run(
        ["systemd-analyze", *words], check=False, capture_output=True, text=True, timeout=60
    )


def test_the_units_are_valid(tmp_path: Path) -> None:
    """All settings are known to systemd, and the timer finds its service."""
    for unit in UNITS.iterdir():
        text = unit.read_text().replace(PROGRAM, sys.executable)
        (tmp_path / unit.name).write_text(text)
    units = [str(path) for path in tmp_path.iterdir()]
    done = analyze("verify", "--man=no", *units)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_timer_can_be_enabled(tmp_path: Path) -> None:
    """Installed by the commands of docs/install.md, in a root of its own."""
    require(lacks("systemctl"))
    text = (REPO / "docs/install.md").read_text()
    installs = [line for line in text.splitlines() if line.startswith("install -")]
    (tmp_path / "cabling.csv").touch()
    (tmp_path / "manifests").symlink_to(REPO / "manifests")
    (tmp_path / "etc/systemd/system").mkdir(parents=True)
    for line in installs:
        words = line.replace(" /etc/", f" {tmp_path}/etc/").split()
        subprocess.run(words, cwd=tmp_path, check=True)
    enable = next(line for line in text.splitlines() if line.startswith("systemctl enable"))
    in_root = enable.replace("--now", f"--root={tmp_path}").split()
    subprocess.run(in_root, check=True, capture_output=True)
    wanted = tmp_path / "etc/systemd/system/timers.target.wants/bwagent-verify.timer"
    assert wanted.is_symlink()
    plan = setting("ExecStart").split()[-1]
    assert (tmp_path / plan.lstrip("/")).is_file()


def test_the_service_is_confined() -> None:
    """The exposure by the count of systemd is that of the settings that its work leaves."""
    flags = ("--offline=true", f"--threshold={MAX_EXPOSURE}")
    done = analyze("security", *flags, str(SERVICE))
    assert done.returncode == 0, done.stdout


@pytest.fixture
def node_and_leaf(tmp_path: Path) -> Iterator[tuple[Namespace, Leaf]]:
    """A node with the two cables of its plan, and the leaf at their other end."""
    require(no_switch())
    lay(tree(range(2)), tmp_path)
    rows = ("node,interface,device,port-name", "gpu-1,eth0,LEAF1,swp0", "gpu-1,eth1,LEAF1,swp1")
    (tmp_path / "cabling.csv").write_text("\n".join(rows))
    with Namespace() as node, Leaf("leaf1") as leaf:
        for number in range(2):
            cable(leaf, f"swp{number}", node, f"eth{number}")
        yield node, leaf


def test_its_privileges_are_enough(node_and_leaf: tuple[Namespace, Leaf], tmp_path: Path) -> None:
    """As root with the capabilities of the unit alone, on a file system that cannot be written:
    exit code 0 for the planned cables, and 3 once one is in another port.
    """
    node, leaf = node_and_leaf
    capabilities = setting("CapabilityBoundingSet").lower().replace("cap_", "+").split()
    confined = ["setpriv", "--no-new-privs", f"--bounding-set={','.join(['-all', *capabilities])}"]
    read_only = ["unshare", "--mount", "sh", "-c", 'mount -o remount,bind,ro / && exec "$@"', "sh"]
    words = setting("ExecStart").replace("/etc/bwagent/cabling.csv", str(tmp_path / "cabling.csv"))
    command = words.replace(PROGRAM, f"{sys.executable} -m agent.cli").split()
    where = ["--sysfs-root", str(tmp_path / "sys"), "--node-name", "gpu-1", "--wait", "3", *BACKEND]

    def verify() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            node.command(*read_only, *confined, *command, *where),
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
            env=os.environ | {"PYTHONPATH": str(REPO)},
        )

    as_planned = verify()
    assert as_planned.returncode == 0, as_planned.stdout + as_planned.stderr
    node.ip("link", "delete", "eth1")
    cable(leaf, "swp5", node, "eth1")
    moved = verify()
    assert moved.returncode == 3, moved.stdout + moved.stderr
    assert "wrong-port" in moved.stdout
