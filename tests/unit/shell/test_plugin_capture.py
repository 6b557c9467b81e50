"""`kubectl bwagent capture NODE`, with a stand-in for kubectl."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.snapshots import FIXTURES, NO_BYTECODE, REPOSITORY, report

SYS = str(FIXTURES / "dgx-h100/sys")
PLUGIN = "#!{}\nimport sys\nfrom agent.cli import main\nsys.exit(main())\n"
# It records its arguments, lists $PODS, and runs what comes after `--` on the captured machine.
KUBECTL = """#!/bin/sh
echo "$@" >>"$HOME/asked"
case "$*" in
*" get pods "*) echo "$PODS"; exit ${GET:-0} ;;
esac
while [ "$1" != -- ]; do shift; done
shift 2
[ -z "$CUT" ] || { head -c 100 /dev/zero; exit 0; }
exec %s -m agent.cli "$@" --source rdma --no-wait
"""
POD = json.dumps({"items": [{"metadata": {"name": "bwagent-x"}}]})
NONE = json.dumps({"items": []})


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a user whose PATH has both."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "kubectl-bwagent").write_text(PLUGIN.format(sys.executable))
    (programs / "kubectl").write_text(KUBECTL % sys.executable)
    for program in programs.iterdir():
        program.chmod(0o755)
    (tmp_path / "work").mkdir()
    given = {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(REPOSITORY)}
    own = {"HOME": str(tmp_path), "PODS": POD, "BWAGENT_SYSFS_ROOT": SYS}
    return given | own | NO_BYTECODE


def capture(
    environment: dict[str, str], *words: str, **more: str
) -> subprocess.CompletedProcess[str]:
    command = ["kubectl-bwagent", "capture", *words]
    return subprocess.run(
        command,
        env=environment | more,
        cwd=f"{environment['HOME']}/work",
        capture_output=True,
        text=True,
        check=False,
    )


def asked(environment: dict[str, str]) -> list[str]:
    with open(f"{environment['HOME']}/asked") as file:
        return file.read().splitlines()


@pytest.mark.slow
@pytest.mark.parametrize(("words", "made"), [((), "gpu-17.tar"), (("a",), "a")])
def test_the_capture_is_here(
    environment: dict[str, str], tmp_path: Path, words: tuple[str, ...], made: str
) -> None:
    """As NODE.tar or in a folder; a replay is the node."""
    done = capture(environment, "gpu-17", *words)
    assert (done.returncode, done.stdout.partition(":")[0]) == (0, made)
    assert [path.name for path in (tmp_path / "work").iterdir()] == [made]
    assert (tmp_path / "work" / made).is_dir() is (made == "a")
    expected = (FIXTURES / "dgx-h100/expected.labels").read_text().splitlines()
    of_sysfs = [line for line in expected if "speed" in line or "flavor" in line]
    labels = report(str(tmp_path / "work" / made))["labels"]
    assert [f"{key}={value}" for key, value in sorted(labels.items())] == of_sysfs


def test_kubectl_gets_the_flags(environment: dict[str, str]) -> None:
    """Node, namespace, context and kubeconfig for both; those of the capture for the second."""
    flags = [
        "-n",
        "net",
        "--context",
        "prod",
        "--kubeconfig",
        "k",
        "--anonymize",
        "--wait",
        "1.5",
        "--tiers",
    ]
    capture(environment, "gpu-17", *flags, CUT="1")
    common = "--namespace net --kubeconfig k --context prod"
    select = "--selector app.kubernetes.io/name=bwagent --field-selector"
    assert asked(environment) == [
        f"{common} get pods {select} spec.nodeName=gpu-17,status.phase=Running -o json",
        f"{common} exec bwagent-x -- bwagent capture - --anonymize --tiers --wait 1.5",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"PODS": NONE}, "Node gpu-17: no running Pod app.kubernetes.io/name=bwagent in namespace"),
        ({"PODS": "no JSON"}, "Node gpu-17: kubectl printed no list of Pods"),
        ({"GET": "1"}, "Node gpu-17: kubectl get pods:"),
        ({"CUT": "1"}, "Node gpu-17: Pod bwagent-x: not a tar archive, or truncated"),
        ({"BWAGENT_SYSFS_ROOT": "/nosuch"}, "capture in Pod bwagent-x failed with exit code 2"),
    ],
)
def test_a_failure_leaves_nothing(
    environment: dict[str, str], tmp_path: Path, more: dict[str, str], text: str
) -> None:
    """One line at the end names the Node."""
    done = capture(environment, "gpu-17", **more)
    assert (done.returncode, done.stdout) == (1, "")
    assert text in done.stderr.splitlines()[-1]
    assert list((tmp_path / "work").iterdir()) == []


def test_nothing_is_overwritten(environment: dict[str, str], tmp_path: Path) -> None:
    """The file is there: no Pod is asked."""
    (tmp_path / "work/gpu-17.tar").write_text("mine")
    done = capture(environment, "gpu-17")
    assert (done.returncode, "exists already" in done.stderr) == (1, True)
    assert (tmp_path / "work/gpu-17.tar").read_text() == "mine"
    assert not (tmp_path / "asked").exists()


def test_without_kubectl(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "bin/kubectl").unlink()
    done = capture(environment, "gpu-17", PATH=str(tmp_path / "bin"))
    assert (done.returncode, done.stderr) == (1, "bwagent: kubectl: No such file or directory\n")


def test_the_flags_of_the_plugin(environment: dict[str, str]) -> None:
    """Help is about NODE, fits a screen, and the two waits exclude each other."""
    text = capture(environment, "--help").stdout
    assert text.startswith("Usage: kubectl bwagent capture [OPTIONS] NODE [FILE|DIR]\n")
    assert max(map(len, text.splitlines())) <= 80
    done = capture(environment, "gpu-17", "--wait", "1", "--no-wait")
    assert (done.returncode, "--wait excludes --no-wait" in done.stderr) == (2, True)
