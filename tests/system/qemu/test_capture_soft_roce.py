"""A capture made on a real kernel and replayed on this host, and the machine folder made by it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import agent
from tests.support.qemu.capture_soft_roce import REPO, replace
from tests.support.qemu.shared import Shared

IN_THE_REPO = REPO / "sysfs_fixtures" / "soft-roce"


@pytest.fixture(scope="module")
def fresh(shared: Shared) -> Path:
    """Return the folder with the capture and the probe's report."""
    folder = shared.results("test_capture_soft_roce")
    assert "Traceback" not in (folder / "output").read_text()
    return folder


def probe(snapshot: Path) -> dict[str, Any]:
    """Replay a snapshot on this host."""
    command = [sys.executable, "-m", "agent.cli", "probe", "--replay", str(snapshot), "-o", "json"]
    done = subprocess.run(command, cwd=REPO, check=True, capture_output=True)
    assert not done.stderr
    return dict(json.loads(done.stdout))


def meta(snapshot: Path) -> dict[str, Any]:
    return dict(json.loads((snapshot / "meta.json").read_text()))


def test_replay_is_what_probe_said_inside(fresh: Path) -> None:
    """The whole report, labels and ports included, is the same on another kernel."""
    assert probe(fresh / "captured") == json.loads((fresh / "probe.json").read_text())


def test_meta_tells_the_truth(fresh: Path) -> None:
    """Agent, kernel and boot are those of the capture."""
    told = meta(fresh / "captured")
    assert told["agent"] == agent.__version__
    assert told["kernel"] == (fresh / "kernel").read_text().strip()
    assert told["boot_id"] == (fresh / "boot_id").read_text().strip()


def test_the_shell_script_copies_the_same(fresh: Path) -> None:
    """Ports, labels and RDMA problems are those of the agent's own capture."""
    ours, theirs = probe(fresh / "captured"), probe(fresh / "copied")
    assert theirs["ports"] == ours["ports"]
    assert theirs["labels"] == ours["labels"]
    assert [one for one in theirs["problems"] if one["source"] == "rdma"] == [
        one for one in ours["problems"] if one["source"] == "rdma"
    ]


def test_machine_in_the_repo_is_a_capture(fresh: Path) -> None:
    """The folder matches the kernel's files; if not, `python -m
    tests.support.qemu.capture_soft_roce` renews it.
    """
    now, then = probe(fresh / "captured"), probe(IN_THE_REPO)
    counters = [port.pop("counters") for told in (now, then) for port in told["ports"]]
    assert (now["ports"], now["labels"]) == (then["ports"], then["labels"])
    assert any(row["name"] == "sent_pkts" for rows in counters for row in rows or ())


def test_machine_in_the_repo_names_its_boot() -> None:
    """The notes beside the tree are of the same boot as the tree, and were not edited by hand."""
    told = meta(IN_THE_REPO)
    assert told["agent"]
    assert told["boot_id"] == (IN_THE_REPO / "proc/sys/kernel/random/boot_id").read_text().strip()


def test_renewed_folder_keeps_what_people_wrote(tmp_path: Path) -> None:
    """README.md and expected.labels stay; all else of the old capture is replaced."""
    _write(
        tmp_path / "machine", "README.md", "expected.labels", "meta.json", "sys/gone", by="a person"
    )
    _write(tmp_path / "captured", "README.md", "meta.json", "sys/new", by="capture")
    replace(tmp_path / "machine", tmp_path / "captured")
    written = {
        str(file.relative_to(tmp_path)): file.read_text()
        for file in tmp_path.rglob("machine/**/*.*")
    }
    assert written == {
        "machine/README.md": "a person",
        "machine/expected.labels": "a person",
        "machine/meta.json": "capture",
    }
    assert [file.name for file in (tmp_path / "machine" / "sys").iterdir()] == ["new"]


def _write(folder: Path, *names: str, by: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(by)
