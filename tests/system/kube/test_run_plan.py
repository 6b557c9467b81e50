"""`bwagent run --plan` as a process: a ConfigMap volume that comes, changes and breaks."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from agent.daemon.plan_file import LOOK_INTERVAL
from agent.verify.one_node import MAX_SIZE
from tests.support.kernel_tree import NET, Entries, hca
from tests.support.kube.resident import LIMIT, Agent

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kube.cluster import Cluster

HEADER = "node,interface,device,port-id\n"
SOON = LIMIT + LOOK_INTERVAL  # seconds


class Volume:
    """A ConfigMap volume: the kubelet swaps the link `..data` (pkg/volume/util, AtomicWriter)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def write(self, name: str, content: bytes) -> None:
        """Replace what is in the ConfigMap by one key."""
        self._count += 1
        payload = self._folder / f"..{self._count}"
        payload.mkdir(parents=True)
        (payload / name).write_bytes(content)
        draft = self._folder / "..data_tmp"
        draft.symlink_to(payload.name)
        draft.rename(self._folder / "..data")
        if not (self._folder / name).is_symlink():
            (self._folder / name).symlink_to(f"..data/{name}")


@pytest.fixture
def two() -> Entries:
    """Two InfiniBand HCAs, and a /sys that is mounted."""
    return hca("ibp0", "0000:18:00.0") | hca("ibp1", "0000:19:00.0") | {f"{NET}/lo": None}


def rows(name: str, count: int) -> bytes:
    """Return a plan with rows of this node and of others."""
    own = "".join(f"{name},ibp{number},leaf-{number},{number}\n" for number in range(count))
    return (HEADER + own + "gpu-99,ibp0,leaf-0,7\n").encode()


@pytest.mark.sweep
def test_a_plan_that_comes_changes_and_breaks(
    cluster: Cluster, tmp_path: Path, two: Entries
) -> None:
    """A missing file is a line and no end; each change is read by a helper that ends."""
    cluster.node("run-plan")
    volume, plan = Volume(tmp_path / "plan"), tmp_path / "plan" / "plan.csv"
    with Agent(cluster, tmp_path, "run-plan", two, "--plan", str(plan)) as agent:
        agent.speaks("800G")
        agent.says(f'plan not read flag="--plan" reason="{plan}: No such file or directory"')
        volume.write("plan.csv", rows("run-plan", 1))
        agent.says(f"plan in use files={plan} rows=1", SOON)
        volume.write("plan.csv", rows("run-plan", 2))
        agent.says(f"plan in use files={plan} rows=2", SOON)
        volume.write("plan.csv", rows("run-plan", 2)[:-9])
        agent.says(f'reason="{plan}, row 4: ', SOON)
        volume.write("plan.csv", b"\n" * 2_000_000)
        agent.says("more than 1 MiB; split it: bwagent verify --plan FILE --write-plan csv", SOON)
        assert not agent.helpers("plan")
        assert agent.labels()["speed.current"] == "800G"
        assert agent.stop() == 0


def test_a_fifo_for_a_plan(cluster: Cluster, tmp_path: Path, two: Entries) -> None:
    """By the environment, with a file of labels beside it: the labels are published, nothing
    hangs; once it is a file both are in use.
    """
    cluster.node("run-plan-fifo")
    fifo, labels = tmp_path / "fifo", tmp_path / "labels.yaml"
    os.mkfifo(fifo)
    labels.write_text("backend.coreweave.cloud/neighbors.expected.ibp1.device: leaf-1\n")
    variable = {"BWAGENT_RUN_PLAN": f"{fifo} {labels}"}
    with Agent(cluster, tmp_path, "run-plan-fifo", two, environment=variable) as agent:
        agent.speaks("800G")
        agent.says(f"{fifo}: not a regular file")
        fifo.unlink()
        fifo.write_bytes(rows("run-plan-fifo", 1))
        agent.says("rows=2", SOON)
        assert f'plan in use files="{fifo}, {labels}" rows=2' in agent.log.read_text()
        began = time.monotonic()
        assert agent.stop() == 0
        assert time.monotonic() - began < 20  # nothing is waited for


def test_an_empty_name_is_a_wrong_flag(cluster: Cluster, tmp_path: Path, two: Entries) -> None:
    """It ends the start, as any wrong value does."""
    cluster.node("run-plan-empty")
    with Agent(cluster, tmp_path, "run-plan-empty", two, "--plan", "") as agent:
        assert agent.process.wait(LIMIT) == 2
        assert "--plan" in agent.log.read_text()


def test_a_part_fits_a_configmap(cluster: Cluster) -> None:
    """The limit of a plan file is that of the API server, to the byte."""
    path = "/api/v1/namespaces/default/configmaps"
    for more, status in ((0, 201), (1, 422)):
        data = {"plan-001.csv": "x" * (MAX_SIZE + more)}
        body = {"metadata": {"name": f"plan-{more}"}, "data": data}
        assert cluster.request("POST", path, body).status == status
