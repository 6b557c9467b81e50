"""A Slurm controller for tests: the topology.conf that it is given is the one that it runs with."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support.kube.programs import free_ports, running
from tests.support.switch import wait_for

CONFIGURATION = """
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={daemon}
AuthType=auth/none
CredType=cred/none
SlurmUser=root
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
TopologyPlugin=topology/tree
{nodes}
PartitionName=all Nodes=ALL Default=YES
"""


class Switch(NamedTuple):
    """A switch as the controller understood it."""

    level: int
    nodes: frozenset[str]
    switches: frozenset[str]


class Controller:
    """A running slurmctld."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def scontrol(self, *arguments: str) -> str:
        done = subprocess.run(
            ["scontrol", *arguments],
            env={"SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout if done.returncode == 0 else ""

    def hosts(self, expression: str) -> frozenset[str]:
        """Return the names of a hostlist, as Slurm expands it."""
        return frozenset(self.scontrol("show", "hostnames", expression).split())

    def topology(self) -> dict[str, Switch]:
        pattern = re.compile(r"SwitchName=(\S+) Level=(\d+) LinkSpeed=1 (?:Nodes=(\S+))?(.*)")
        found = {}
        for name, level, nodes, rest in pattern.findall(self.scontrol("show", "topology")):
            children = rest.partition("Switches=")[2].strip()
            found[name] = Switch(
                int(level),
                self.hosts(nodes) if nodes else frozenset(),
                self.hosts(children) if children else frozenset(),
            )
        return found

    @property
    def log(self) -> str:
        """What the controller said."""
        return (self.folder / "slurmctld.log").read_text()


@contextmanager
def controller(folder: Path, topology: str, nodes: list[str]) -> Iterator[Controller]:
    """Run slurmctld with this topology.conf and these nodes within the block."""
    ports = dict(zip(("controller", "daemon"), free_ports(2), strict=True))
    (folder / "state").mkdir()
    lines = "\n".join(
        f"NodeName={name} NodeAddr=127.0.1.{number % 250 + 1} CPUs=1"
        for number, name in enumerate(nodes)
    )
    (folder / "slurm.conf").write_text(CONFIGURATION.format(folder=folder, nodes=lines, **ports))
    (folder / "topology.conf").write_text(topology)
    arguments = ("-D", "-c", "-f", str(folder / "slurm.conf"))
    with running("slurmctld", arguments, folder, "slurmctld") as process:
        started = Controller(folder)

        def is_ready() -> bool:
            assert process.poll() is None, started.log
            return bool(started.scontrol("show", "topology"))

        wait_for(is_ready)
        yield started
