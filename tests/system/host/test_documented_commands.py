"""The commands of docs/install.md and docs/operations.md that need no cluster, as they stand
there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.commands import INSTALL, ON_A_HOST, OPERATIONS, ROOT, blocks, commands
from tests.support.real_parts import lacks, require
from tests.support.sysfs_on_disk import a_node_without_rdma

LEFT_OUT = shutil.ignore_patterns(".*", "tests", "sysfs_fixtures", "benchmarks")
PLAN = "node,interface,device,port-id,port-name\ngpu-1,mlx5_0,leaf-1,1,\n"
INSTALLED = ("/opt/bwagent", "/etc/bwagent", "/etc/systemd/system", "/etc/bash_completion.d")


@contextmanager
def replaced(folder: Path) -> Iterator[str]:
    """Return the beginning of a shell script that replaces what is installed into by empty folders,
    for itself alone.
    """
    lines = []
    with ExitStack() as stack:
        for place in map(Path, INSTALLED):
            if not place.exists():
                place.mkdir(parents=True)
                stack.callback(place.rmdir)
            (folder / place.relative_to("/")).mkdir(parents=True)
            lines.append(f"mount --bind {folder / place.relative_to('/')} {place}\n")
        yield "".join(lines)


def sh(script: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a script with mounts of its own and the bwagent of this checkout, until its first
    failure.
    """
    tools = cwd / "bin"
    tools.mkdir(exist_ok=True)
    (tools / "bwagent").write_text(f'#!/bin/sh\nexec {sys.executable} -m agent.cli "$@"\n')
    (tools / "bwagent").chmod(0o755)
    path = f"{tools}:{os.environ['PATH']}"
    return subprocess.run(
        ["unshare", "--mount", "sh", "-euc", script],
        cwd=cwd,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), **env},
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.fixture(autouse=True)
def _root() -> None:
    require(None if os.geteuid() == 0 else "mounts need root")


@pytest.mark.slow
def test_a_host_without_kubernetes(tmp_path: Path) -> None:
    """The program is installed into /opt/bwagent, and each command says what this host has; the
    last one that nothing was compared.
    """
    copy = tmp_path / "bwagent"
    shutil.copytree(ROOT, copy, ignore=LEFT_OUT)
    (copy / "cabling.csv").write_text(PLAN)
    first, _ = (one for heading, one in blocks(INSTALL) if heading.startswith("On a host"))
    *others, verify = commands(first)
    doctor = next(one for one in others if "doctor" in one)
    lines = "".join(one if one != doctor else f"{one.strip()} || [ $? = 1 ]\n" for one in others)
    with replaced(tmp_path / "root") as mounts:
        done = sh(f"{mounts}{lines}{verify.strip()} || echo exit $?", copy, PYTHONPATH="")
    assert done.returncode == 0, done.stderr
    assert "\nspeed.current" not in done.stderr
    assert "backend.coreweave.cloud/speed.current=" in done.stdout
    assert "exit 1" in done.stdout


def test_the_units(tmp_path: Path) -> None:
    """The commands put plan and units where systemd looks; it is not there, so that its own are
    recorded.
    """
    _, second = (one for heading, one in blocks(INSTALL) if heading.startswith("On a host"))
    (tmp_path / "bin").mkdir()
    for name in ("systemctl", "journalctl"):
        (tmp_path / "bin" / name).write_text(f'#!/bin/sh\necho {name} "$@" >>{tmp_path}/asked\n')
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "manifests").symlink_to(ROOT / "manifests")
    (tmp_path / "cabling.csv").write_text(PLAN)
    with replaced(tmp_path / "root") as mounts:
        done = sh(mounts + second, tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "root/etc/bwagent/cabling.csv").read_text() == PLAN
    units = {path.name for path in (tmp_path / "root/etc/systemd/system").iterdir()}
    assert units == {"bwagent-verify.service", "bwagent-verify.timer"}
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked == [
        one for one in second.splitlines() if one.split()[0] in {"systemctl", "journalctl"}
    ]


def test_captures_in_ci(tmp_path: Path) -> None:
    """Without a change of labels the commands succeed; with one the last of them fails."""
    block = dict(blocks(OPERATIONS))["Captures in CI"]
    folder, once, rest = block.split("\n", 2)
    sysfs = a_node_without_rdma(tmp_path)
    repository = tmp_path / "site"
    repository.mkdir()
    known = {"BWAGENT_SYSFS_ROOT": str(sysfs)}
    git = "git -c user.name=a -c user.email=a@b.example"
    captured = sh(f"git init -q\n{folder}\n{once}\n", repository, **known)
    assert captured.returncode == 0, captured.stderr
    first = sh(
        f"{rest.rpartition('git diff')[0]}git add captures; {git} commit -qm a\n", repository
    )
    assert first.returncode == 0, first.stderr
    (labels,) = repository.glob("captures/*/expected.labels")
    assert "speed.current=0G" in labels.read_text()
    assert sh(rest, repository).returncode == 0
    labels.write_text("other\n")
    assert sh(f"{git} commit -qam b\n{rest}", repository).returncode == 1


def test_capture_without_bwagent(tmp_path: Path) -> None:
    """The script leaves a tar that `probe --replay` reads."""
    shutil.copy(ROOT / "sysfs_fixtures/capture.sh", tmp_path)
    done = sh(one_of_the_text("sh capture.sh").replace("DIR", "taken"), tmp_path)
    assert done.returncode == 0, done.stderr
    replayed = sh("bwagent probe --replay taken.tgz -o labels", tmp_path)
    assert "speed.current=" in replayed.stdout, replayed.stderr


def test_completion(tmp_path: Path) -> None:
    """Bash reads what the command writes."""
    command = one_of_the_text("bwagent completion")
    with replaced(tmp_path / "root") as mounts:
        done = sh(f"{mounts}{command}\nbash -n /etc/bash_completion.d/bwagent", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "root/etc/bash_completion.d/bwagent").stat().st_size


@pytest.mark.parametrize(
    ("shell", "command", "printed"),
    [
        (
            "zsh",
            "zsh -f -c 'autoload -U compinit; compinit -u; . ./script; echo ${_comps[bwagent]}'",
            "_bwagent_completion\n",
        ),
        (
            "fish",
            """fish --no-config -c ". ./script; complete --do-complete 'bwagent cap'" | cut -f1""",
            "capture\n",
        ),
    ],
)
def test_completion_of_other_shells(tmp_path: Path, shell: str, command: str, printed: str) -> None:
    """The script registers itself for the program in zsh, and completes a command in fish."""
    require(lacks(shell))
    done = sh(f"bwagent completion {shell} >script; {command}", tmp_path, HOME=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, printed, "")


def one_of_the_text(start: str) -> str:
    """Return the only command of the text that begins so."""
    (found,) = (one for one in ON_A_HOST if one.startswith(start))
    return found


def transcripts() -> list[tuple[str, str]]:
    """Return command and output of each transcript."""
    parts = OPERATIONS.read_text().split("```\n$ ")[1:]
    return [
        (one[0], one[2].partition("```")[0]) for one in (part.partition("\n") for part in parts)
    ]


@pytest.mark.parametrize(
    ("command", "output"), transcripts(), ids=[one for one, _ in transcripts()]
)
def test_transcripts(tmp_path: Path, command: str, output: str) -> None:
    """A command with its output in the text prints this."""
    (tmp_path / "sysfs_fixtures").symlink_to(ROOT / "sysfs_fixtures")
    assert sh(command, tmp_path).stdout == output
