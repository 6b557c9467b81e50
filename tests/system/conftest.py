"""One API server for the tests of a run, in each worker; each test makes Nodes of its own in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.kube.agents import install
from tests.support.kube.cluster import Cluster
from tests.support.kube.lending import lent
from tests.support.kube.programs import missing
from tests.support.real_parts import require

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xdist.remote import Producer
    from xdist.scheduler import LoadFileScheduling

# Files whose tests share a machine or a boot.
GROUPS = {
    "machine": (
        *("test_chart_rollout.py", "test_daemonset.py", "test_kubelet.py"),
        "test_rollout.py",
    ),
    "boot": (
        *("test_probe.py", "test_capture_soft_roce.py", "test_wakeups.py", "test_neighbors.py"),
        *("test_machine.py", "test_broken_nic.py"),
    ),
}
GROUP_OF = {name: group for group, names in GROUPS.items() for name in names}
# What takes more than half a minute, the longest first: what begins last decides when a run ends.
# The emulated machine takes a core, the others wait for most of their time.
KUBE, QEMU = "tests/system/kube/test_", "tests/system/qemu/test_"
FIRST = (
    *("machine", f"{QEMU}run.py", f"{KUBE}events.py", f"{KUBE}attacks.py", f"{KUBE}run_fabric.py"),
    *("boot", f"{KUBE}former_prefix.py", "tests/system/container/test_release.py"),
    *("tests/system/host/test_capture_script.py", f"{KUBE}commands.py", f"{KUBE}fleet.py"),
    *(f"{KUBE}cabling_readiness.py", f"{KUBE}run.py"),
    f"{KUBE}run_lldp.py",
    *(f"{KUBE}chart.py", f"{KUBE}registry.py"),
    "tests/system/host/test_documented_commands.py",
)


def group_of(nodeid: str) -> str:
    """Return the group of a test, else its file."""
    file = nodeid.partition("::")[0]
    return GROUP_OF.get(file.rpartition("/")[2], file)


def rank(item: pytest.Item) -> int:
    """Return the place of a test's group in the order of the run."""
    group = group_of(item.nodeid)
    return next((n for n, name in enumerate(FIRST) if group.startswith(name)), len(FIRST))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest."""
    items.sort(key=rank)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """Keep a group in one worker, as `--dist loadfile` keeps a file: real components are started
    once for it. (`--dist loadgroup` of xdist 3.8 has no effect under pytest 9.)
    """
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByGroup(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return ByGroup(config, log)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A running control plane; the test is skipped where its programs are not built."""
    require(missing())
    with Cluster() as running:
        yield running


@pytest.fixture(scope="session")
def installed(cluster: Cluster) -> Cluster:
    """The API server with the manifests in it."""
    install(cluster, "sysfs")
    return cluster


@pytest.fixture(scope="session")
def spare() -> Iterator[Cluster]:
    """A second control plane, of which `lent` makes a fresh one for each file."""
    require(missing())
    with Cluster() as running:
        yield running


@pytest.fixture(scope="module")
def fresh(spare: Cluster) -> Iterator[Cluster]:
    """An API server without manifests, for the tests of one file."""
    with lent(spare) as cluster:
        yield cluster
