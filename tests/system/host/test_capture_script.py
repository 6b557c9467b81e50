"""The shell script for nodes without bwagent, over a real /sys and over reads that fail."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support import capture_script, snapshots
from tests.support.capture_script import SHELLS, capture, missing, said
from tests.support.real_parts import require

if TYPE_CHECKING:
    from collections.abc import Iterator

CLASS = "sys/class/infiniband"
UNSET, REFUSED = "/sys/class/net/lo/speed", "/proc/1/mem"  # files that root cannot read either


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    """Each shell."""
    require(missing(request.param))
    return str(request.param)


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
