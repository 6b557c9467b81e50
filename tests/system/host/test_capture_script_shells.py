"""The shell script for nodes without bwagent, run by each shell over trees on disk."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import capture_script, snapshots
from tests.support.capture_script import SHELLS, capture, missing, pcie, said
from tests.support.machines import FOLDERS
from tests.support.real_parts import require


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    """Each shell."""
    require(missing(request.param))
    return str(request.param)


def kernel_like(machine: Path, folder: Path) -> Path:
    """Copy a machine's tree, with what else a kernel has in it: loops by `subsystem`, big files."""
    for top in ("sys", "proc"):
        if (machine / top).exists():
            shutil.copytree(machine / top, folder / top, symlinks=True)
    for name in ("sys/class/infiniband", "sys/class/net", "sys/bus/pci/devices"):
        for entry in [path for path in (folder / name).glob("*") if path.is_dir()]:
            if not (entry / "subsystem").is_symlink():
                (entry / "subsystem").symlink_to(os.path.relpath(folder / name, entry.resolve()))
            (entry / "resource0").write_bytes(bytes(1 << 16))
    return folder


RUNS = [
    pytest.param("dash", *one.values, id=f"dash-{one.id}", marks=one.marks) for one in FOLDERS
] + [
    pytest.param("busybox", snapshots.FIXTURES / name, id=f"busybox-{name}")
    for name in ("bond-roce", "cpu-node", "cx8-ib-smi", "hgx-b200-nvswitch", "soft-roce")
]


@pytest.mark.slow
@pytest.mark.parametrize(("shell", "machine"), RUNS)
def test_its_captures_replay_as_those_of_bwagent(machine: Path, tmp_path: Path, shell: str) -> None:
    """The report on a machine is the same, and the list has what was copied."""
    require(missing(shell))
    tree = kernel_like(machine, tmp_path / "tree")
    done = capture_script.run(shell, tmp_path / "copy", tree)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    captured = capture(tree, tmp_path / "captured")
    assert said(tmp_path / "copy") == said(captured)
    assert pcie(tmp_path / "copy") == pcie(captured)
    copied, listed = capture_script.files(tmp_path / "copy"), capture_script.matching(tree)
    assert copied <= listed
    left_out = {path for path in listed - copied if not path.endswith(("/vpd", "/link_downed"))}
    assert left_out == set()


def test_counters_that_fill_the_kernel_log_are_not_read(tmp_path: Path, shell: str) -> None:
    """Those of the functions that manage NVSwitches; their VPD tells."""
    tree = snapshots.FIXTURES / "hgx-b200-nvswitch"
    assert capture_script.run(shell, tmp_path / "copy", tree).returncode == 0
    managing = [path.parent for path in tree.rglob("vpd") if b"SW_MNG" in path.read_bytes()]
    others = [path.parent for path in tree.rglob("vpd") if b"SW_MNG" not in path.read_bytes()]
    assert len(managing) == 4
    for functions, count in ((managing, 0), (others, 1)):
        for function in functions:
            copy = tmp_path / "copy" / function.relative_to(tree)
            assert len(list(copy.rglob("link_downed"))) == count


def test_a_slow_vpd_is_read_of_infiniband_only(tmp_path: Path, shell: str) -> None:
    """As the agent does: no Ethernet function manages NVSwitches."""
    tree = kernel_like(snapshots.FIXTURES / "h200-roce", tmp_path / "tree")
    for function in (tree / "sys/bus/pci/devices").iterdir():
        (function / "vpd").write_bytes(b"\x82")
    assert capture_script.run(shell, tmp_path / "copy", tree).returncode == 0
    assert not list((tmp_path / "copy").rglob("vpd"))


def test_nothing_is_overwritten(tmp_path: Path, shell: str) -> None:
    """A folder that exists is named in one line, and so is a link that leads nowhere."""
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "there").mkdir()
    for name in ("there", "dangling"):
        done = capture_script.run(shell, tmp_path / name, snapshots.FIXTURES / "soft-roce")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == f"capture.sh: {tmp_path / name}: File exists\n"
    assert not list((tmp_path / "there").iterdir())


@pytest.mark.parametrize("words", [(), ("",), ("--help",), ("-p",), ("--",)])
def test_anything_but_a_folder_is_a_usage_error(
    tmp_path: Path, shell: str, words: tuple[str, ...]
) -> None:
    """Nothing is made."""
    command = [*SHELLS[shell], str(capture_script.SCRIPT), *words]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "usage: sh capture.sh DIR\n")
    assert not list(tmp_path.iterdir())


def test_a_wrong_root_leaves_nothing_behind(tmp_path: Path, shell: str) -> None:
    """It is named in one line, missing or without /sys."""
    for root in ("/nowhere", "/dev"):
        done = capture_script.run(shell, tmp_path / "copy", root)
        assert done.returncode == 1
        assert re.fullmatch(f".*{root}.*\n", done.stderr)
    assert not list(tmp_path.iterdir())
