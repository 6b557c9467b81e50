"""The shell script for nodes without bwagent, run by each shell: over trees on disk, over a real
/sys, and over reads that fail.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from agent.model import Seen
from agent.snapshot.replay import replay
from agent.sources.observe import observe
from agent.transceiver.eeprom import LOWER, pages_of
from tests.support import capture_script, snapshots
from tests.support.capture_script import SHELLS, capture, pcie, said
from tests.support.machines import FOLDERS
from tests.support.real_parts import lacks, require
from tests.support.transceivers import DAC, DR8, SR4


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    require(lacks(SHELLS[request.param][0]))
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
    require(lacks(SHELLS[shell][0]))
    tree = kernel_like(machine, tmp_path / "tree")
    done = capture_script.run(shell, tmp_path / "copy", tree)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    captured = capture(tree, tmp_path / "captured")
    assert said(tmp_path / "copy") == said(captured)
    assert pcie(tmp_path / "copy") == pcie(captured)
    copied, listed = capture_script.files(tmp_path / "copy"), capture_script.matching(tree)
    assert copied <= listed
    left_out = {path for path in listed - copied if not re.search(r"/vpd$|counters/", path)}
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


@pytest.mark.parametrize("words", [(), ("",), ("--help",), ("-p",), ("--",), ("-m",)])
def test_anything_but_a_folder_is_a_usage_error(
    tmp_path: Path, shell: str, words: tuple[str, ...]
) -> None:
    """Nothing is made."""
    command = [*SHELLS[shell], str(capture_script.SCRIPT), *words]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "usage: sh capture.sh [-m] DIR\n")
    assert not list(tmp_path.iterdir())


def test_a_wrong_root_leaves_nothing_behind(tmp_path: Path, shell: str) -> None:
    """It is named in one line, missing or without /sys."""
    for root in ("/nowhere", "/dev"):
        done = capture_script.run(shell, tmp_path / "copy", root)
        assert done.returncode == 1
        assert re.fullmatch(f".*{root}.*\n", done.stderr)
    assert not list(tmp_path.iterdir())


ETHTOOL = """#!/bin/sh
if [ "$1" != -m ]; then cat "$ANSWERS/$1.txt"; exit; fi
file=$ANSWERS/$2-${10}-$6
if [ -e "$file" ]; then cat "$file"; else echo "netlink error: Input/output error" >&2; exit 1; fi
"""
DEVLINK = """#!/bin/sh
cat "$ANSWERS/$3.json"
"""
PCI = "0000:1a:00.0"
REPORTERS = [
    {"reporter": "fw", "state": "healthy", "error": 0, "recover": 0},
    {"reporter": "fw_fatal", "state": "error", "error": 2, "recover": 1},
]
INFO = {
    "driver": "mlx5_core",
    "serial_number": "MT2350",
    "versions": {"running": {"fw.version": "28.39.1002"}, "stored": {"fw.version": "28.42.1000"}},
}
PLACES = {"lower": "0-0", "00h": "0-128", "01h": "1-128", "11h": "17-128"}


def with_programs(tmp_path: Path, shell: str, *words: str) -> Path:
    """Run the script as root over h200-roce as /sys, with programs that print prepared answers."""
    require(None if os.geteuid() == 0 else "a mount namespace needs root")
    answers, programs = tmp_path / "answers", tmp_path / "programs"
    for folder, files in (
        (programs, {"ethtool": ETHTOOL.encode(), "devlink": DEVLINK.encode()}),
        (
            answers,
            {
                "enp26s0np0.txt": b"\tSpeed: Unknown!\n\tLink detected: no (No cable)\n",
                "enp60s0np0.txt": b"\tLink detected: yes\n\tLink Down Events: 3\n",
                "show.json": json.dumps({"health": {f"pci/{PCI}": REPORTERS}}).encode(),
                "info.json": json.dumps({"info": {f"pci/{PCI}": INFO}}).encode(),
            }
            | {f"enp26s0np0-{PLACES[name]}": page for name, page in DR8.items()}
            | {f"enp77s0np0-{PLACES[name]}": page for name, page in SR4.items()}
            | {f"enp94s0np0-{PLACES[name]}": page for name, page in DAC.items()},
        ),
    ):
        folder.mkdir()
        for name, data in files.items():
            (folder / name).write_bytes(data)
            (folder / name).chmod(0o755)
    tree = snapshots.FIXTURES / "h200-roce/sys"
    command = f'mount --bind {tree} /sys && PATH={programs}:$PATH exec "$@"'
    script = [*SHELLS[shell], str(capture_script.SCRIPT), *words, str(tmp_path / "copy")]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", command, "sh", *script],
        env=os.environ | {"ANSWERS": str(answers)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return tmp_path / "copy"


def test_what_ethtool_and_devlink_print_is_replayed(tmp_path: Path, shell: str) -> None:
    """As the answers of the drivers, without serial numbers."""
    copy = with_programs(tmp_path, shell)
    assert "MT2350" not in (copy / "devlink/info.json").read_text()
    assert not (copy / "modules.json").exists()
    outcome = observe(replay(str(copy))).nics
    assert isinstance(outcome, Seen)
    nics = outcome.value
    assert nics.links["enp26s0np0"].text == "no cable is plugged in"
    assert nics.links["enp60s0np0"].downs == 3
    assert nics.health[PCI].fault == "its driver reports fw_fatal in error (2 errors)"
    assert nics.health[PCI].firmware[0].is_pending


def test_the_transceivers_are_read_with_a_flag(tmp_path: Path, shell: str) -> None:
    """The pages of each kind of module, and the error of an empty cage."""
    host = replay(str(with_programs(tmp_path, shell, "-m")))
    modules = {row["netdev"]: row for row in host.modules([])["modules"]}
    for netdev, pages in {"enp26s0np0": DR8, "enp77s0np0": SR4, "enp94s0np0": DAC}.items():
        expected = {name: pages[name].hex() for name in (LOWER, *pages_of(pages[LOWER]))}
        assert modules[netdev] == {"netdev": netdev, "pages": expected, "error": None}
    assert modules["enp60s0np0"]["error"] == "Input/output error"


def test_transceivers_need_root(tmp_path: Path, shell: str) -> None:
    """One line, and nothing is made."""
    require(None if os.geteuid() == 0 else "root, to be another user")
    script = [*SHELLS[shell], "-s", "--", "-m", str(tmp_path / "copy")]
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--clear-groups", *script],
        input=capture_script.SCRIPT.read_text(),
        check=False,
        capture_output=True,
        text=True,
    )
    text = "capture.sh: -m: transceivers are read by root only\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", text)


CLASS = "sys/class/infiniband"
UNSET, REFUSED = "/sys/class/net/lo/speed", "/proc/1/mem"  # files that root cannot read either


def error(file: str) -> str:
    """Return the errno name of a read that fails."""
    try:
        Path(file).read_bytes()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    raise AssertionError(file)


@contextmanager
def bound(file: str, place: Path) -> Iterator[None]:
    """Show a file of this kernel at another place."""
    subprocess.run(["mount", "--bind", file, str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_failed_reads_are_recorded(tmp_path: Path, shell: str) -> None:
    """Each error of a read is in errors.json, and the report is that of `bwagent capture`."""
    require(None if os.geteuid() == 0 else "bind mounts need root")
    tree = tmp_path / "tree"
    shutil.copytree(snapshots.FIXTURES / "dgx-h100/sys", tree / "sys", symlinks=True)
    shutil.copytree(snapshots.FIXTURES / "dgx-h100/proc", tree / "proc", symlinks=True)
    failing = {
        f"{CLASS}/mlx5_0/ports/1/rate": UNSET,
        f"{CLASS}/mlx5_3/node_guid": REFUSED,
        f"{CLASS}/mlx5_4/ports/1/link_layer": REFUSED,
        f"{CLASS}/mlx5_5/sys_image_guid": REFUSED,
    }
    with ExitStack() as stack:
        for path, file in failing.items():
            stack.enter_context(bound(file, tree / path))
        assert capture_script.run(shell, tmp_path / "copy", tree).returncode == 0
        captured = capture(tree, tmp_path / "captured")
    notes = json.loads((tmp_path / "copy/errors.json").read_text())
    assert {path: notes["errors"][path] for path in failing} == {
        path: error(file) for path, file in failing.items()
    }
    assert said(tmp_path / "copy") == said(captured)
    failed = {problem["subject"] for problem in said(captured)["problems"]}
    assert failed >= {f"/{path}" for path, file in failing.items() if file == REFUSED}


def test_this_machine(tmp_path: Path, shell: str) -> None:
    """Over a real /sys with its loops, `/` as the root: the capture is small, and replays."""
    done = capture_script.run(shell, tmp_path / "copy", timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    size = sum(path.lstat().st_size for path in (tmp_path / "copy").rglob("*"))
    assert size < 4 << 20
    assert (tmp_path / "copy/proc/net/route").is_file()
    ours, theirs = said(capture(Path("/"), tmp_path / "here")), said(tmp_path / "copy")
    assert ours == theirs
