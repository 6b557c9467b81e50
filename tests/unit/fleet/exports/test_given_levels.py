"""`--level`: labels of the operator's choice as the levels above the leaf groups."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from agent.cli import cli
from tests.support.fleet_nodes import listed
from tests.support.fleet_nodes import node as manifest
from tests.support.wired_fleets import NAMING


def test_the_flag() -> None:
    """It is repeatable, and takes labels of Kubernetes, too."""
    zone = "topology.kubernetes.io/zone"
    key = f"{NAMING.prefix}/leafgroup.current"
    nodes = [manifest(at, {key: f"l{at}", zone: "z1"}) for at in range(2)]
    words = ["fleet", "export", "slurm", "--nodes", "-", "--level", zone]
    done = CliRunner().invoke(cli, words, input=listed(nodes))
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "SwitchName=z1 Switches=l[0-1]"


@pytest.mark.parametrize(
    ("form", "levels", "why"),
    [
        ("slurm", ["a b"], "--level: 'a b' is no label key"),
        ("slurm", ["/x"], "--level: '/x' is no label key"),
        ("slurm", ["rack", "rack"], "--level: rack is a level already"),
        ("kueue", ["kubernetes.io/hostname"], "--level: kubernetes.io/hostname is a level already"),
        ("kueue", [NAMING.accelerator], f"--level: {NAMING.accelerator} is a level already"),
        ("csv", ["rack"], "--level has no effect on csv: it has cables only"),
    ],
)
def test_a_wrong_flag(form: str, levels: list[str], why: str) -> None:
    words = [word for level in levels for word in ("--level", level)]
    done = CliRunner().invoke(cli, ["fleet", "export", form, "--nodes", "-", *words], input="")
    assert (done.exit_code, why in done.stderr) == (2, True)
