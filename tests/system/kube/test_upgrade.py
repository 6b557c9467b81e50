"""The agent takes the place of a release, and that takes its place again, while facts cannot be
read.

The releases are those of the changelog, in the history of this repository by the subjects of their
commits. 0.2.0 says that it does not read the annotation of a newer agent, and starts from the
labels alone.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from agent.kube.annotation import SCHEMA
from tests.support.fabric import Fabric, missing
from tests.support.fabrics import one_leaf
from tests.support.kernel_tree import HOME, NET, hca
from tests.support.kube.cluster import Cluster
from tests.support.kube.resident import REPOSITORY, Agent, P
from tests.support.real_parts import require
from tests.support.sysfs_on_disk import lay, rewrite

TREE = hca("ibsim0", "0000:18:00.0") | hca("ibp1", "0000:19:00.0") | {f"{NET}/lo": None}
STATE = f"{HOME}/0000:19:00.0/infiniband/ibp1/ports/1/state"
LABELS = {
    "flavor": "infiniband",
    "speed.current": "800G",
    "leaves.current": "leaf1",
    "leafgroup.current": "leaf1",
    "neighbors.current.ibsim0.device": "leaf1",
    "neighbors.current.ibsim0.port-id": "1",
}
START = "tests/support/quick.py"
OLDEST = "0.2.0"
SCHEMAS = {OLDEST: 1, "0.3.0": 2}  # of the annotation, where it is not that of today
CHANGELOG = (REPOSITORY / "CHANGELOG.md").read_text()
SECTIONS = re.findall(r"^## ([0-9.]+) - ", CHANGELOG, re.MULTILINE)
RELEASES = SECTIONS[: SECTIONS.index(OLDEST) + 1]  # newest first


class Older(NamedTuple):
    """The files of a release, which the tests' way to start an agent starts."""

    folder: Path
    node: str
    schema: int


@pytest.fixture(scope="module", params=RELEASES)
def older(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Older:
    git, version = ["git", "-C", str(REPOSITORY)], request.param
    find = [*git, "log", "-1", "--format=%H", "--grep", f"^release: version {version}$"]
    found = subprocess.run(find, capture_output=True, text=True, check=False).stdout.strip()
    if not found:
        pytest.skip(f"no history here that has {version}")
    files = subprocess.run(
        [*git, "archive", found, "agent", "tests"], capture_output=True, check=True
    )
    folder = tmp_path_factory.mktemp(version)
    with tarfile.open(fileobj=io.BytesIO(files.stdout)) as archive:
        wanted = [one for one in archive if one.name.startswith("agent/") or one.name == START]
        archive.extractall(folder, wanted, filter="data")
    start = folder / START
    start.parent.mkdir(parents=True, exist_ok=True)
    for package in (folder / "tests", start.parent):  # before those of this repository
        (package / "__init__.py").touch()
    if not start.exists():  # 0.2.0 has no bounds of its times
        start.write_text("from agent.cli import main\n\nmain()\n")
    return Older(folder, f"upgrade-{version}", SCHEMAS.get(version, SCHEMA))


class Site:
    """A node with a fabric, on which agents follow each other."""

    def __init__(self, cluster: Cluster, fabric: Fabric, folder: Path, older: Older) -> None:
        self.cluster, self.fabric, self.folder = cluster, fabric, folder
        self._older = older
        cluster.node(older.node)

    @contextmanager
    def agent(self, *, is_older: bool = False) -> Iterator[Agent]:
        """Run an agent until the block ends."""
        under = self.fabric.under("host")
        if is_older:
            place = self._older.folder
            under = [*under, "env", "-C", str(place), f"PYTHONPATH={place}"]
        with Agent(self.cluster, self.folder, self._older.node, {}, under=under) as agent:
            yield agent


def schema(agent: Agent) -> object:
    return json.loads(agent.metadata()["annotations"][f"{P}/observed"])["schema"]


def test_no_label_changes_on_the_way_there_and_back(
    cluster: Cluster, older: Older, tmp_path: Path
) -> None:
    """The switch does not answer any of the new agents, and the state of a port cannot be read."""
    require(missing())
    state = tmp_path / STATE
    with Fabric(one_leaf("host"), tmp_path) as fabric:
        site = Site(cluster, fabric, tmp_path, older)
        lay(TREE, tmp_path)
        with site.agent(is_older=True) as agent:
            agent.until(lambda: agent.labels() == LABELS)
            assert schema(agent) == older.schema
        fabric.console('Error "leaf1"[1] 100')
        state.unlink()
        state.mkdir()
        for is_older in (False, True, False):
            with site.agent(is_older=is_older) as agent:
                agent.until(lambda: agent.metrics().value("bwagent_labels_held"))
                assert agent.labels() == LABELS
        state.rmdir()
        rewrite(state, b"1: DOWN\n")
        for is_older, speed in ((False, "400G"), (True, "800G")):
            with site.agent(is_older=is_older) as agent:
                agent.speaks(speed)
                assert agent.labels() == LABELS | {"speed.current": speed}
                assert schema(agent) == (older.schema if is_older else SCHEMA)
            rewrite(state, b"4: ACTIVE\n")
