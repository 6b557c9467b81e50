"""`bwagent capture -`: an archive on standard output, and nothing else anywhere."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from agent.snapshot.archive import entries as read_archive
from agent.snapshot.capture import entries, write_tar
from tests.support import snapshots
from tests.support.snapshots import FIXTURES, bwagent

SYS = str(FIXTURES / "dgx-h100/sys")
CAPTURE = ("capture", "-", "--no-wait", "--source", "rdma", "--sysfs-root", SYS)


@pytest.mark.parametrize("machine", snapshots.some("dgx-h100", "h200-roce", "sick-hca"))
def test_an_archive_is_the_folder(tmp_path: Path, machine: str) -> None:
    captured, observation = snapshots.captured(machine)
    with (tmp_path / "node.tar").open("wb") as file:
        write_tar(entries(captured), file, observation.time)
    assert read_archive(str(tmp_path / "node.tar")) == entries(captured)


@pytest.mark.slow
@pytest.mark.parametrize("flags", [(), ("--anonymize",)])
def test_standard_output_has_the_archive_only(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """Messages go to standard error, and no file is made: the folder may not be written to."""
    (tmp_path / "read-only").mkdir(mode=0o555)
    done = bwagent(*CAPTURE, *flags, cwd=tmp_path / "read-only")
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(rb"captured this host .*into standard output: \d+ files.*\n", done.stderr)
    assert list((tmp_path / "read-only").iterdir()) == []
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        names = archive.getnames()
    assert {name.partition("/")[0] for name in names} == {"bwagent-capture"}
    (tmp_path / "node.tar").write_bytes(done.stdout)
    replayed = bwagent("probe", "--replay", str(tmp_path / "node.tar"), "-o", "labels")
    live = bwagent("probe", "--dry-run", "--source", "rdma", "--sysfs-root", SYS, "-o", "labels")
    assert (replayed.returncode, replayed.stdout) == (0, live.stdout)
    meta = json.loads(read_archive(str(tmp_path / "node.tar"))["meta.json"] or b"")
    assert bool(meta["anonymized"]) is bool(flags)


def test_a_terminal_gets_no_archive() -> None:
    """Exit code 2, before anything is read."""
    parent, child = pty.openpty()
    command = [sys.executable, "-m", "agent.cli", *CAPTURE]
    done = subprocess.run(command, stdout=child, stderr=subprocess.PIPE, text=True, check=False)
    os.close(child)
    os.close(parent)
    assert done.returncode == 2
    assert done.stderr == (
        "bwagent capture: standard output is a terminal: redirect it, or name a folder\n"
    )


def test_a_reader_that_is_gone() -> None:
    command = [sys.executable, "-m", "agent.cli", *CAPTURE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        said = process.stderr.read().decode()
    assert (process.returncode, said) == (1, "")


def test_a_disk_that_is_full() -> None:
    with open("/dev/full", "wb") as full:
        done = bwagent(*CAPTURE, stdout=full)
    text = b"bwagent: cannot write the output: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, text)
