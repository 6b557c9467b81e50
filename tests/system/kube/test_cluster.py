"""The API servers of the tests: what they leave behind, and how their programs are built."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.kube import programs
from tests.support.kube.cluster import Cluster
from tests.support.kube.programs import VERSION, ClusterError, missing, running
from tests.support.real_parts import require
from tests.support.switch import wait_for

START = """
from tests.support.kube.cluster import Cluster
with Cluster() as cluster:
    print(cluster.folder, flush=True)
    input()
"""


def processes_in(folder: str) -> list[str]:
    """Return the command lines that name this folder."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return [line for line in lines if folder in line]


def test_version(cluster: Cluster) -> None:
    """The API server has the version that go.mod pins, unless the user provides another."""
    version = cluster.request("GET", "/version").body["gitVersion"]
    assert version == VERSION or "KUBEBUILDER_ASSETS" in os.environ


@pytest.mark.sweep
def test_nothing_is_left() -> None:
    """After the block no process and no file of the cluster is left."""
    require(missing())
    with Cluster() as cluster:
        folder = cluster.folder
        assert processes_in(str(folder))
    assert not processes_in(str(folder))
    assert not folder.exists()


def test_killed_with_its_test(tmp_path: Path) -> None:
    """A test run that is killed ends its cluster too."""
    require(missing())
    start = [sys.executable, "-c", START]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        start, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as parent:
        assert parent.stdout is not None
        folder = parent.stdout.readline().decode().strip()
        assert processes_in(folder)
        parent.send_signal(signal.SIGKILL)
    wait_for(lambda: not processes_in(folder))


def test_a_program_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The reason for a skip names the missing program and the command that builds it."""
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    reason = missing("kube-nothing") or ""
    assert "kube-nothing" in reason or "etcd" in reason
    assert "build.sh" in reason
    with pytest.raises(ClusterError, match=r"build\.sh"), running("kube-nothing", [], tmp_path):
        pass


def test_assets_come_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A program in KUBEBUILDER_ASSETS is taken before one that build.sh made."""
    (tmp_path / "etcd").touch()
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    assert programs.program("etcd") == str(tmp_path / "etcd")


def build(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    script = ["/bin/sh", str(programs.HERE / "build.sh"), *arguments]
    return subprocess.run(
        script, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def pretend(script: Path, folder: Path, *names: str) -> None:
    """Put empty files into a folder of the cache, as if the script had made them."""
    command = ["sh", "-c", ". ../go.sh; key", script.name]
    key = subprocess.run(command, cwd=script.parent, check=True, capture_output=True).stdout
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).touch(mode=0o755)
        (folder / f".{name}.key").write_bytes(key)


def test_building_again(tmp_path: Path) -> None:
    """A second build builds nothing, and needs no Go."""
    folder = tmp_path / "bwagent" / "kube" / VERSION
    pretend(programs.HERE / "build.sh", folder, *programs.CONTROL_PLANE)
    done = build(XDG_CACHE_HOME=str(tmp_path), PATH="/usr/bin:/bin")
    assert (done.returncode, done.stdout) == (0, f"{folder}\n")


def test_building_without_go(tmp_path: Path) -> None:
    """Without Go the build fails, names what is missing, and leaves nothing behind."""
    (tmp_path / "bin").mkdir()
    for name in ("awk", "cat", "dirname", "sha256sum"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or name)
    done = build(XDG_CACHE_HOME=str(tmp_path / "cache"), PATH=str(tmp_path / "bin"))
    assert (done.returncode, done.stderr) == (
        1,
        "there is no Go to build etcd kube-apiserver kubectl with\n",
    )
    assert not (tmp_path / "cache").exists()


GO = """#!/bin/sh
case $1 in
mod) [ "$4" = k8s.io/kubernetes@v1.2.3 ] && echo '	"GoMod": "'$PWD'/their.mod",' ;;
build) [ "$GOFLAGS" = " -mod=mod" ] && cp go.mod "$6" ;;
esac
"""
THEIRS = """module k8s.io/kubernetes

go 1.99

require (
	k8s.io/api v0.0.0
	k8s.io/klog/v2 v2.0.0
)
"""
OURS = """module kube
go 1.99
require k8s.io/kubernetes v1.2.3
replace k8s.io/api => k8s.io/api v0.2.3
"""


def test_building_another_version(tmp_path: Path) -> None:
    """The module that is built has that version, its language, and the staging modules of its tag;
    a version that is none is one line. The stand-in for Go writes the module in place of a program.
    """
    tools, cache = tmp_path / "bin", tmp_path / "cache"
    tools.mkdir()
    (tools / "go").write_text(GO.replace("$PWD", str(tmp_path)))
    (tools / "go").chmod(0o755)
    (tmp_path / "their.mod").write_text(THEIRS)
    where = {"XDG_CACHE_HOME": str(cache), "PATH": f"{tools}:/usr/bin:/bin", "GOFLAGS": ""}
    done = build("kubectl", KUBERNETES="v1.2.3", **where)
    folder = cache / "bwagent/kube/v1.2.3"
    assert (done.returncode, done.stdout) == (0, f"{folder}\n")
    assert (folder / "kubectl").read_text() == OURS
    done = build("kubectl", KUBERNETES="v1.2.4", **where)
    last = done.stderr.splitlines()[-1]
    assert (done.returncode, last) == (1, "the Go modules have no Kubernetes v1.2.4")
    assert not list((cache / "bwagent/kube/v1.2.4").iterdir())
